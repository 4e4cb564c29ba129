//! Quantised weights in whole numbers: 64 codes of weights without a sign (16 rows, four columns) are multiplied with four bytes
//! of activations, and the four are added up: by `vpdpbusd` with AVX-512 VNNI, half of them at a time by `vpmaddubsw` with AVX2.
//!
//! An activation is 24 bits in three bytes, so each product is taken three times. That is as close as f32 and costs
//! little: a decoder waits for the memory. One byte, and two, move logits (docs/design/0007-packed-weights.md). What a
//! format subtracts from its codes (8, 32, 128) is taken off in integers, by way of the sum of the activations.
#![allow(unsafe_code)]

use super::vector::{MOST_PARTS, Narrow, Vector, Wide};
use super::{Part, ROWS};
use crate::input::{CodeBlock, Codes, MOST};
use crate::layout::{BLOCK, HALF, K_BLOCKS, K_SCALES, Layout, PANEL, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use crate::packed::{Panel, with_quantised};
use kvlab_cpu::Isa;
use std::arch::x86_64::*;

/// How far ahead of the codes in use the memory is asked for, in bytes: for the second cache, and for the nearest one.
/// One distance alone leaves a tenth of the memory's pace unused: the nearest cache can wait for few lines at a time.
const FAR: usize = 3072;
const NEAR: usize = 1024;

/// How a block becomes codes of a byte and scales.
pub(super) trait Integers: Layout {
    /// The greatest code.
    const MOST: i32;
    /// What is subtracted from a code.
    const OFFSET: i32;
    /// Whether the halves of a block have scales of their own.
    const HALVES: bool;
    /// Whether there are minima.
    const MINIMA: bool;

    /// Columns `4 i` to `4 i + 3` of a block in vector `i`.
    ///
    /// # Safety
    /// `block` points to the codes of a block, from the vector's first row on; the machine has what the vector needs.
    unsafe fn codes<V: Vector>(block: *const u8) -> [V; 8];

    /// The scales of both halves (the same, unless `HALVES`), and the minima, of rows from `row` on.
    ///
    /// # Safety
    /// `panel` points to the scales of a panel that has this block; the machine has what the vector needs.
    unsafe fn scales<V: Vector>(panel: *const u8, block: usize, row: usize) -> ([V::Floats; 2], V::Floats);
}

/// # Safety
/// As [`super::compute`], for a quantised weight, with AVX2.
pub(super) unsafe fn compute(isa: Isa, part: &Part<'_>, x: &Codes) {
    // SAFETY: passed on to the caller.
    unsafe {
        match isa >= Isa::Avx512 {
            true => with_quantised!(part.weight.format(), wide(part, x)),
            false => with_quantised!(part.weight.format(), narrow(part, x)),
        }
    }
}

/// # Safety
/// As [`compute`], with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn wide<L: Integers>(part: &Part<'_>, x: &Codes) {
    // SAFETY: passed on to the caller.
    unsafe { all_rows::<L, Wide>(part, x) }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn narrow<L: Integers>(part: &Part<'_>, x: &Codes) {
    // SAFETY: passed on to the caller.
    unsafe { all_rows::<L, Narrow>(part, x) }
}

/// # Safety
/// As [`compute`].
#[inline(always)]
unsafe fn all_rows<L: Integers, V: Vector>(part: &Part<'_>, x: &Codes) {
    for panel in part.panels.clone() {
        let lines = part.weight.panel(panel);
        let mut row = 0;
        while row < x.rows() {
            // SAFETY: passed on to the caller.
            row += unsafe {
                match x.rows() - row {
                    1 => some_rows::<L, V, 1>(part, panel, lines, x, row),
                    2..=3 => some_rows::<L, V, 2>(part, panel, lines, x, row),
                    4..=7 => some_rows::<L, V, 4>(part, panel, lines, x, row),
                    _ => some_rows::<L, V, ROWS>(part, panel, lines, x, row),
                }
            };
        }
    }
}

/// The panel times `R` rows from `row` on; gives back `R`.
///
/// # Safety
/// As [`compute`].
#[inline(always)]
unsafe fn some_rows<L: Integers, V: Vector, const R: usize>(
    part: &Part<'_>,
    panel: usize,
    lines: Panel<'_>,
    x: &Codes,
    row: usize,
) -> usize {
    let rows: [&[CodeBlock]; R] = std::array::from_fn(|i| x.row(row + i));
    let blocks = rows[0].len();
    // Later on nothing checks that they are there.
    assert!(lines.codes.len() >= blocks * L::CODES && lines.scales.len() >= L::scale_lines(blocks));
    let (codes, scales) = (lines.codes.as_ptr().cast::<u8>(), lines.scales.as_ptr().cast::<u8>());
    let scale_bytes = L::scale_lines(blocks) * 64 / blocks;
    // SAFETY: the block is one of those that were asserted to be there; each of the rows has as many.
    unsafe {
        let mut sums = [[V::float(0.0); MOST_PARTS]; R];
        for block in 0..blocks {
            let codes = codes.add(block * L::CODES * 64);
            // The first rows alone wait for the memory.
            if row == 0 {
                let ahead = (block + FAR / (L::CODES * 64)) * scale_bytes;
                _mm_prefetch::<_MM_HINT_T0>(scales.wrapping_add(ahead).cast());
                for line in 0..L::CODES {
                    _mm_prefetch::<_MM_HINT_T1>(codes.wrapping_add(line * 64 + FAR).cast());
                    _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(line * 64 + NEAR).cast());
                }
            }
            for p in 0..V::PARTS {
                let weights = L::codes::<V>(codes.add(p * size_of::<V>()));
                let (scale, minimum) = L::scales::<V>(scales, block, p * V::ROWS);
                for (sums, row) in sums.iter_mut().zip(&rows) {
                    let x = row.get_unchecked(block);
                    sums[p] = add_block::<L, V>(sums[p], &weights, &scale, minimum, x);
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            let mut out = [0.0; PANEL];
            for (p, sum) in sums.iter().enumerate().take(V::PARTS) {
                V::store_floats(out[p * V::ROWS..].as_mut_ptr(), *sum);
            }
            part.out.store(row + i, panel, &out);
        }
    }
    R
}

/// Adds a block's products with one row.
///
/// # Safety
/// The machine has what the vector needs.
#[inline(always)]
unsafe fn add_block<L: Integers, V: Vector>(
    sum: V::Floats,
    weights: &[V; 8],
    scale: &[V::Floats; 2],
    minimum: V::Floats,
    x: &CodeBlock,
) -> V::Floats {
    // SAFETY: passed on to the caller.
    unsafe {
        let step = V::float(x.scale);
        let mut sum = sum;
        if L::HALVES {
            for (half, scale) in scale.iter().enumerate() {
                let product = dot::<L, V, 4>(weights, x, half * 4, offsets::<L>(x.sums[half]));
                sum = V::fused(product, V::times(*scale, step), sum);
            }
        } else {
            let both = [
                x.sums[0][0].wrapping_add(x.sums[1][0]),
                x.sums[0][1].wrapping_add(x.sums[1][1]),
            ];
            let product = dot::<L, V, 8>(weights, x, 0, offsets::<L>(both));
            sum = V::fused(product, V::times(scale[0], step), sum);
        }
        if L::MINIMA {
            sum = V::fused(minimum, V::float(x.sum), sum);
        }
        sum
    }
}

/// What a format's offset adds to the products of the upper byte and of the lower two. No product overflows: 32 columns
/// of at most 255 times 32896 are less than 2^28. Where activations are no numbers it may, and their scale is none then.
#[inline(always)]
fn offsets<L: Integers>(sums: [i32; 2]) -> [i32; 2] {
    sums.map(|sum| sum.wrapping_mul(-L::OFFSET))
}

/// The products of `N` vectors of weights with a row's codes, both from number `first` on.
///
/// # Safety
/// The machine has what the vector needs.
#[inline(always)]
unsafe fn dot<L: Integers, V: Vector, const N: usize>(
    weights: &[V; 8],
    x: &CodeBlock,
    first: usize,
    offsets: [i32; 2],
) -> V::Floats {
    // SAFETY: passed on to the caller.
    unsafe {
        let weights = &weights[first..first + N];
        let high = products::<L, V>(offsets[0], weights, &x.high[first..first + N]);
        let middle = products::<L, V>(0, weights, &x.middle[first..first + N]);
        let low = products::<L, V>(offsets[1], weights, &x.low[first..first + N]);
        let lower = V::add(V::numbers_up_8(middle), low);
        V::fused(V::floats(high), V::float(65536.0), V::floats(lower))
    }
}

/// # Safety
/// The machine has what the vector needs.
#[inline(always)]
unsafe fn products<L: Integers, V: Vector>(begin: i32, weights: &[V], x: &[i32]) -> V {
    // SAFETY: passed on to the caller.
    unsafe {
        // A constant of a trait cannot be handed on to a function that is generic over one.
        match L::MOST {
            ..16 => V::dot_codes::<15>(begin, weights, x),
            16..64 => V::dot_codes::<63>(begin, weights, x),
            _ => V::dot_codes::<255>(begin, weights, x),
        }
    }
}

/// Four lines of nibbles to eight vectors of codes.
///
/// # Safety
/// As [`Integers::codes`].
#[inline(always)]
unsafe fn nibbles<V: Vector>(block: *const u8) -> [V; 8] {
    // SAFETY: passed on to the caller.
    unsafe {
        let mask = V::bytes(15);
        let mut codes = [mask; 8];
        for i in 0..4 {
            let line = V::load(block.add(i * 64));
            codes[i] = V::and(line, mask);
            codes[i + 4] = V::and(V::down_4(line), mask);
        }
        codes
    }
}

/// Those, and a line of fifth bits.
///
/// # Safety
/// As [`Integers::codes`].
#[inline(always)]
unsafe fn fives<V: Vector>(block: *const u8) -> [V; 8] {
    // SAFETY: passed on to the caller.
    unsafe {
        let mut codes = nibbles::<V>(block);
        let bits = V::load(block.add(4 * 64));
        let fifth = V::bytes(16);
        let shifted = [
            V::up_4(bits),
            V::up_1(V::up_2(bits)),
            V::up_2(bits),
            V::up_1(bits),
            bits,
            V::down_1(bits),
            V::down_2(bits),
            V::down_1(V::down_2(bits)),
        ];
        for (code, bits) in codes.iter_mut().zip(shifted) {
            *code = V::or(*code, V::and(bits, fifth));
        }
        codes
    }
}

impl Integers for Q4_0 {
    const MOST: i32 = 15;
    const OFFSET: i32 = 8;
    const HALVES: bool = false;
    const MINIMA: bool = false;

    #[inline(always)]
    unsafe fn codes<V: Vector>(block: *const u8) -> [V; 8] {
        // SAFETY: passed on to the caller.
        unsafe { nibbles(block) }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(panel: *const u8, block: usize, row: usize) -> ([V::Floats; 2], V::Floats) {
        // SAFETY: passed on to the caller.
        unsafe { ([V::from_f16(panel.add(block * 32 + 2 * row)); 2], V::float(0.0)) }
    }
}

impl Integers for Q4_1 {
    const MOST: i32 = 15;
    const OFFSET: i32 = 0;
    const HALVES: bool = false;
    const MINIMA: bool = true;

    #[inline(always)]
    unsafe fn codes<V: Vector>(block: *const u8) -> [V; 8] {
        // SAFETY: passed on to the caller.
        unsafe { nibbles(block) }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(panel: *const u8, block: usize, row: usize) -> ([V::Floats; 2], V::Floats) {
        // SAFETY: passed on to the caller.
        unsafe {
            let line = panel.add(block * 64 + 2 * row);
            ([V::from_f16(line); 2], V::from_f16(line.add(32)))
        }
    }
}

impl Integers for Q8_0 {
    const MOST: i32 = 255;
    const OFFSET: i32 = 128;
    const HALVES: bool = false;
    const MINIMA: bool = false;

    #[inline(always)]
    unsafe fn codes<V: Vector>(block: *const u8) -> [V; 8] {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut codes = [V::bytes(0); 8];
            for (i, codes) in codes.iter_mut().enumerate() {
                *codes = V::load(block.add(i * 64));
            }
            codes
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(panel: *const u8, block: usize, row: usize) -> ([V::Floats; 2], V::Floats) {
        // SAFETY: passed on to the caller.
        unsafe { ([V::from_f16(panel.add(block * 32 + 2 * row)); 2], V::float(0.0)) }
    }
}

impl Integers for Q4K {
    const MOST: i32 = 15;
    const OFFSET: i32 = 0;
    const HALVES: bool = false;
    const MINIMA: bool = true;

    #[inline(always)]
    unsafe fn codes<V: Vector>(block: *const u8) -> [V; 8] {
        // SAFETY: passed on to the caller.
        unsafe { nibbles(block) }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(panel: *const u8, block: usize, row: usize) -> ([V::Floats; 2], V::Floats) {
        // SAFETY: passed on to the caller.
        unsafe {
            let lines = panel.add(block / K_BLOCKS * K_SCALES * 64);
            let group = lines.add(64 + block % K_BLOCKS * PANEL + row);
            let whole = lines.add(2 * row);
            let scale = V::times(V::from_f16(whole), V::from_u8(group));
            let minimum = V::times(V::from_f16(whole.add(32)), V::from_u8(group.add(128)));
            ([scale; 2], V::minus(V::float(0.0), minimum))
        }
    }
}

impl Integers for Q6K {
    const MOST: i32 = 63;
    const OFFSET: i32 = 32;
    const HALVES: bool = true;
    const MINIMA: bool = false;

    #[inline(always)]
    unsafe fn codes<V: Vector>(block: *const u8) -> [V; 8] {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut codes = nibbles::<V>(block);
            let mask = V::bytes(0x30);
            for (half, four) in codes.chunks_exact_mut(HALF / 4).enumerate() {
                let bits = V::load(block.add((4 + half) * 64));
                let shifted = [V::up_4(bits), V::up_2(bits), bits, V::down_2(bits)];
                for (code, bits) in four.iter_mut().zip(shifted) {
                    *code = V::or(*code, V::and(bits, mask));
                }
            }
            codes
        }
    }

    #[inline(always)]
    unsafe fn scales<V: Vector>(panel: *const u8, block: usize, row: usize) -> ([V::Floats; 2], V::Floats) {
        // SAFETY: passed on to the caller.
        unsafe {
            let lines = panel.add(block / K_BLOCKS * K_SCALES * 64);
            let group = lines.add(64 + block % K_BLOCKS * 2 * PANEL + row);
            let whole = V::from_f16(lines.add(2 * row));
            let scale = [
                V::times(whole, V::from_i8(group)),
                V::times(whole, V::from_i8(group.add(PANEL))),
            ];
            (scale, V::float(0.0))
        }
    }
}

/// Codes of 5 bits with the scales of a format of 4: around the middle, or from zero on, as there.
macro_rules! five_bits {
    ($layout:ty, $four:ty) => {
        impl Integers for $layout {
            const MOST: i32 = 31;
            const OFFSET: i32 = 2 * <$four as Integers>::OFFSET;
            const HALVES: bool = false;
            const MINIMA: bool = <$four as Integers>::MINIMA;

            #[inline(always)]
            unsafe fn codes<V: Vector>(block: *const u8) -> [V; 8] {
                // SAFETY: passed on to the caller.
                unsafe { fives(block) }
            }

            #[inline(always)]
            unsafe fn scales<V: Vector>(panel: *const u8, block: usize, row: usize) -> ([V::Floats; 2], V::Floats) {
                // SAFETY: passed on to the caller.
                unsafe { <$four>::scales::<V>(panel, block, row) }
            }
        }
    };
}

five_bits!(Q5_0, Q4_0);
five_bits!(Q5_1, Q4_1);
five_bits!(Q5K, Q4K);

/// Turns a row of numbers into codes.
pub(super) fn quantise(isa: Isa, x: &[f32], out: &mut [CodeBlock]) {
    for (x, out) in x.as_chunks::<BLOCK>().0.iter().zip(out) {
        // SAFETY: the machine has the instruction set.
        *out = unsafe {
            match isa >= Isa::Avx512 {
                true => quantise_block(x),
                false => quantise_block_narrow(x),
            }
        };
    }
}

/// [`quantise_block`] for a processor without AVX-512.
#[target_feature(enable = "avx2,fma,f16c")]
fn quantise_block_narrow(x: &[f32; BLOCK]) -> CodeBlock {
    let mut out = CodeBlock::default();
    let most = f32::from_bits(x.iter().fold(0, |most: u32, x| most.max(x.abs().to_bits())));
    if most < 1e-31 {
        return out;
    }
    let inverse = MOST / most;
    for half in 0..BLOCK / HALF {
        let mut bytes = [[0; HALF]; 3];
        let mut sums = [0; 2];
        for (i, x) in x[half * HALF..][..HALF].iter().enumerate() {
            let code = (x * inverse).round_ties_even() as i32;
            let high = (code + 128 * 256 + 128) >> 16;
            let lower = code - (high << 16);
            let middle = (lower + 128) >> 8;
            let low = lower - (middle << 8);
            bytes[0][i] = high as u8;
            bytes[1][i] = middle as u8;
            bytes[2][i] = low as u8;
            sums[0] += high;
            sums[1] += lower;
        }
        for (to, bytes) in [&mut out.high, &mut out.middle, &mut out.low].into_iter().zip(bytes) {
            for (to, four) in to[half * HALF / 4..].iter_mut().zip(bytes.as_chunks::<4>().0) {
                *to = i32::from_le_bytes(*four);
            }
        }
        out.sums[half] = sums;
    }
    let mut total = [0.0; 8];
    for eight in x.as_chunks::<8>().0 {
        for (total, x) in total.iter_mut().zip(eight) {
            *total += x;
        }
    }
    out.scale = most / MOST;
    out.sum = total.iter().sum();
    out
}

/// Numbers that are none, and infinite ones, make a scale that is none either, and so outputs that show it.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn quantise_block(x: &[f32; BLOCK]) -> CodeBlock {
    let mut out = CodeBlock::default();
    // SAFETY: there are 32 numbers to read.
    let x: [__m512; 2] = std::array::from_fn(|half| unsafe { _mm512_loadu_ps(x.as_ptr().add(half * HALF)) });
    // As integers, since a maximum of floats drops what is no number.
    let size = |x| _mm512_castps_si512(_mm512_abs_ps(x));
    let most = f32::from_bits(_mm512_reduce_max_epi32(_mm512_max_epi32(size(x[0]), size(x[1]))) as u32);
    // Below this, the reciprocal is infinite; such blocks are zero.
    if most < 1e-31 {
        return out;
    }
    let inverse = _mm512_set1_ps(MOST / most);
    for (half, x) in x.into_iter().enumerate() {
        let code = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
        // Signed digits: the lower two are at most 127 * 256 + 127, and at least -128 * 256 - 128.
        let high = _mm512_srai_epi32::<16>(_mm512_add_epi32(code, _mm512_set1_epi32(128 * 256 + 128)));
        let lower = _mm512_sub_epi32(code, _mm512_slli_epi32::<16>(high));
        let middle = _mm512_srai_epi32::<8>(_mm512_add_epi32(lower, _mm512_set1_epi32(128)));
        let low = _mm512_sub_epi32(lower, _mm512_slli_epi32::<8>(middle));
        put_bytes(&mut out.high, half, high);
        put_bytes(&mut out.middle, half, middle);
        put_bytes(&mut out.low, half, low);
        out.sums[half] = [_mm512_reduce_add_epi32(high), _mm512_reduce_add_epi32(lower)];
    }
    out.scale = most / MOST;
    out.sum = _mm512_reduce_add_ps(_mm512_add_ps(x[0], x[1]));
    out
}

/// Writes 16 numbers as bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn put_bytes(out: &mut [i32; BLOCK / 4], half: usize, numbers: __m512i) {
    let four = &mut out[half * HALF / 4..][..HALF / 4];
    // SAFETY: four times four bytes.
    unsafe { _mm_storeu_si128(four.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(numbers)) }
}
