//! Quantised weights with AVX-512 VNNI: `vpdpbusd` multiplies 64 unsigned codes of weights (16 rows, four columns) with
//! four signed bytes of activations and adds up the four.
//!
//! An activation is 24 bits in three bytes, so each product is taken three times. That is as close as f32 and costs
//! little: a decoder waits for the memory. One byte, and two, move logits (docs/design/0007-packed-weights.md). What a
//! format subtracts from its codes (8, 32, 128) is taken off in integers, by way of the sum of the activations.
#![allow(unsafe_code)]

use super::{Part, ROWS};
use crate::input::{CodeBlock, Codes, MOST};
use crate::layout::{BLOCK, HALF, K_BLOCKS, K_SCALES, Layout, PANEL, Q4_0, Q4_1, Q4K, Q6K, Q8_0};
use crate::packed::{Panel, with_quantised};
use std::arch::x86_64::*;

/// How far ahead of the codes in use the memory is asked for, in bytes: for the second cache, and for the nearest one.
/// One distance alone leaves a tenth of the memory's pace unused: the nearest cache can wait for few lines at a time.
const FAR: usize = 3072;
const NEAR: usize = 1024;

/// How a block becomes codes of a byte and scales.
pub(super) trait Integers: Layout {
    /// What is subtracted from a code.
    const OFFSET: i32;
    /// Whether the halves of a block have scales of their own.
    const HALVES: bool;
    /// Whether there are minima.
    const MINIMA: bool;

    /// Columns `4 i` to `4 i + 3` of a block in vector `i`.
    ///
    /// # Safety
    /// `block` points to the codes of a block; the machine has AVX-512.
    unsafe fn codes(block: *const u8) -> [__m512i; 8];

    /// The scales of both halves (the same, unless `HALVES`), and the minima.
    ///
    /// # Safety
    /// `panel` points to the scales of a panel that has this block; the machine has AVX-512.
    unsafe fn scales(panel: *const u8, block: usize) -> ([__m512; 2], __m512);
}

/// # Safety
/// As [`super::compute`], for a quantised weight, with AVX-512 (F, BW, VL, DQ) and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn compute(part: &Part<'_>, x: &Codes) {
    // SAFETY: passed on to the caller.
    unsafe { with_quantised!(part.weight.format(), all_rows(part, x)) }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn all_rows<L: Integers>(part: &Part<'_>, x: &Codes) {
    for panel in part.panels.clone() {
        let lines = part.weight.panel(panel);
        let mut row = 0;
        while row < x.rows() {
            // SAFETY: passed on to the caller.
            row += unsafe {
                match x.rows() - row {
                    1 => some_rows::<L, 1>(part, panel, lines, x, row),
                    2..=3 => some_rows::<L, 2>(part, panel, lines, x, row),
                    4..=7 => some_rows::<L, 4>(part, panel, lines, x, row),
                    _ => some_rows::<L, ROWS>(part, panel, lines, x, row),
                }
            };
        }
    }
}

/// The panel times `R` rows from `row` on; gives back `R`.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn some_rows<L: Integers, const R: usize>(
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
    let mut sums = [_mm512_setzero_ps(); R];
    let scale_bytes = L::scale_lines(blocks) * 64 / blocks;
    for block in 0..blocks {
        // SAFETY: the block is one of those that were asserted to be there; each of the rows has as many.
        unsafe {
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
            let weights = L::codes(codes);
            let (scale, minimum) = L::scales(scales, block);
            for (sum, row) in sums.iter_mut().zip(&rows) {
                let x = row.get_unchecked(block);
                *sum = add_block::<L>(*sum, &weights, &scale, minimum, x);
            }
        }
    }
    for (i, sum) in sums.iter().enumerate() {
        let mut out = [0.0; PANEL];
        // SAFETY: there is room for 16 numbers; the rest is passed on to the caller.
        unsafe {
            _mm512_storeu_ps(out.as_mut_ptr(), *sum);
            part.out.store(row + i, panel, &out);
        }
    }
    R
}

/// Adds a block's products with one row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_block<L: Integers>(
    sum: __m512,
    weights: &[__m512i; 8],
    scale: &[__m512; 2],
    minimum: __m512,
    x: &CodeBlock,
) -> __m512 {
    let step = _mm512_set1_ps(x.scale);
    let mut sum = sum;
    if L::HALVES {
        for (half, scale) in scale.iter().enumerate() {
            let product = dot::<4>(
                &weights[half * 4..half * 4 + 4],
                x,
                half * 4,
                offsets::<L>(x.sums[half]),
            );
            sum = _mm512_fmadd_ps(product, _mm512_mul_ps(*scale, step), sum);
        }
    } else {
        let both = [
            x.sums[0][0].wrapping_add(x.sums[1][0]),
            x.sums[0][1].wrapping_add(x.sums[1][1]),
        ];
        let product = dot::<8>(weights, x, 0, offsets::<L>(both));
        sum = _mm512_fmadd_ps(product, _mm512_mul_ps(scale[0], step), sum);
    }
    if L::MINIMA {
        sum = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x.sum), sum);
    }
    sum
}

/// What a format's offset adds to the products of the upper byte and of the lower two. No product overflows: 32 columns
/// of at most 255 times 32896 are less than 2^28. Where activations are no numbers it may, and their scale is none then.
#[inline(always)]
fn offsets<L: Integers>(sums: [i32; 2]) -> [i32; 2] {
    sums.map(|sum| sum.wrapping_mul(-L::OFFSET))
}

/// The products of `N` vectors of weights with a row's codes from vector `first` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn dot<const N: usize>(weights: &[__m512i], x: &CodeBlock, first: usize, offsets: [i32; 2]) -> __m512 {
    let mut high = _mm512_set1_epi32(offsets[0]);
    let mut middle = _mm512_setzero_si512();
    let mut low = _mm512_set1_epi32(offsets[1]);
    for (i, weights) in weights.iter().enumerate().take(N) {
        high = _mm512_dpbusd_epi32(high, *weights, _mm512_set1_epi32(x.high[first + i]));
        middle = _mm512_dpbusd_epi32(middle, *weights, _mm512_set1_epi32(x.middle[first + i]));
        low = _mm512_dpbusd_epi32(low, *weights, _mm512_set1_epi32(x.low[first + i]));
    }
    let lower = _mm512_add_epi32(_mm512_slli_epi32::<8>(middle), low);
    let (high, lower) = (_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(lower));
    _mm512_fmadd_ps(high, _mm512_set1_ps(65536.0), lower)
}

/// Four lines of nibbles to eight vectors of codes.
///
/// # Safety
/// `block` points to four lines; the machine has AVX-512.
#[inline(always)]
unsafe fn nibbles(block: *const u8) -> [__m512i; 8] {
    // SAFETY: passed on to the caller.
    unsafe {
        let mask = _mm512_set1_epi8(15);
        let mut codes = [mask; 8];
        for i in 0..4 {
            let line = _mm512_loadu_si512(block.add(i * 64).cast());
            codes[i] = _mm512_and_si512(line, mask);
            codes[i + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(line), mask);
        }
        codes
    }
}

/// 16 numbers in f16.
///
/// # Safety
/// `at` points to 32 bytes; the machine has AVX-512.
#[inline(always)]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: passed on to the caller.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
}

impl Integers for Q4_0 {
    const OFFSET: i32 = 8;
    const HALVES: bool = false;
    const MINIMA: bool = false;

    #[inline(always)]
    unsafe fn codes(block: *const u8) -> [__m512i; 8] {
        // SAFETY: passed on to the caller.
        unsafe { nibbles(block) }
    }

    #[inline(always)]
    unsafe fn scales(panel: *const u8, block: usize) -> ([__m512; 2], __m512) {
        // SAFETY: passed on to the caller.
        unsafe { ([halves(panel.add(block * 32)); 2], _mm512_setzero_ps()) }
    }
}

impl Integers for Q4_1 {
    const OFFSET: i32 = 0;
    const HALVES: bool = false;
    const MINIMA: bool = true;

    #[inline(always)]
    unsafe fn codes(block: *const u8) -> [__m512i; 8] {
        // SAFETY: passed on to the caller.
        unsafe { nibbles(block) }
    }

    #[inline(always)]
    unsafe fn scales(panel: *const u8, block: usize) -> ([__m512; 2], __m512) {
        // SAFETY: passed on to the caller.
        unsafe {
            let line = panel.add(block * 64);
            ([halves(line); 2], halves(line.add(32)))
        }
    }
}

impl Integers for Q8_0 {
    const OFFSET: i32 = 128;
    const HALVES: bool = false;
    const MINIMA: bool = false;

    #[inline(always)]
    unsafe fn codes(block: *const u8) -> [__m512i; 8] {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut codes = [_mm512_setzero_si512(); 8];
            for (i, codes) in codes.iter_mut().enumerate() {
                *codes = _mm512_loadu_si512(block.add(i * 64).cast());
            }
            codes
        }
    }

    #[inline(always)]
    unsafe fn scales(panel: *const u8, block: usize) -> ([__m512; 2], __m512) {
        // SAFETY: passed on to the caller.
        unsafe { ([halves(panel.add(block * 32)); 2], _mm512_setzero_ps()) }
    }
}

impl Integers for Q4K {
    const OFFSET: i32 = 0;
    const HALVES: bool = false;
    const MINIMA: bool = true;

    #[inline(always)]
    unsafe fn codes(block: *const u8) -> [__m512i; 8] {
        // SAFETY: passed on to the caller.
        unsafe { nibbles(block) }
    }

    #[inline(always)]
    unsafe fn scales(panel: *const u8, block: usize) -> ([__m512; 2], __m512) {
        // SAFETY: passed on to the caller.
        unsafe {
            let lines = panel.add(block / K_BLOCKS * K_SCALES * 64);
            let group = lines.add(64 + block % K_BLOCKS * PANEL);
            let scale = _mm512_cvtepu8_epi32(_mm_loadu_si128(group.cast()));
            let minimum = _mm512_cvtepu8_epi32(_mm_loadu_si128(group.add(128).cast()));
            let scale = _mm512_mul_ps(halves(lines), _mm512_cvtepi32_ps(scale));
            let minimum = _mm512_mul_ps(halves(lines.add(32)), _mm512_cvtepi32_ps(minimum));
            ([scale; 2], _mm512_sub_ps(_mm512_setzero_ps(), minimum))
        }
    }
}

impl Integers for Q6K {
    const OFFSET: i32 = 32;
    const HALVES: bool = true;
    const MINIMA: bool = false;

    #[inline(always)]
    unsafe fn codes(block: *const u8) -> [__m512i; 8] {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut codes = nibbles(block);
            let mask = _mm512_set1_epi8(0x30);
            for (half, four) in codes.chunks_exact_mut(HALF / 4).enumerate() {
                let bits = _mm512_loadu_si512(block.add((4 + half) * 64).cast());
                let shifted = [
                    _mm512_slli_epi16::<4>(bits),
                    _mm512_slli_epi16::<2>(bits),
                    bits,
                    _mm512_srli_epi16::<2>(bits),
                ];
                for (code, bits) in four.iter_mut().zip(shifted) {
                    *code = _mm512_or_si512(*code, _mm512_and_si512(bits, mask));
                }
            }
            codes
        }
    }

    #[inline(always)]
    unsafe fn scales(panel: *const u8, block: usize) -> ([__m512; 2], __m512) {
        // SAFETY: passed on to the caller.
        unsafe {
            let lines = panel.add(block / K_BLOCKS * K_SCALES * 64);
            let group = lines.add(64 + block % K_BLOCKS * 2 * PANEL);
            let whole = halves(lines);
            let mut scale = [whole; 2];
            for (half, scale) in scale.iter_mut().enumerate() {
                let integers = _mm512_cvtepi8_epi32(_mm_loadu_si128(group.add(half * PANEL).cast()));
                *scale = _mm512_mul_ps(whole, _mm512_cvtepi32_ps(integers));
            }
            (scale, _mm512_setzero_ps())
        }
    }
}

/// Turns a row of numbers into codes.
pub(super) fn quantise(x: &[f32], out: &mut [CodeBlock]) {
    for (x, out) in x.as_chunks::<BLOCK>().0.iter().zip(out) {
        // SAFETY: only an instruction set that has it asks for codes.
        *out = unsafe { quantise_block(x) };
    }
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
