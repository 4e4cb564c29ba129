//! Many rows with AVX-512 VNNI: `vpdpwssd` multiplies pairs of 16-bit integers and adds both products, 32 of them in an
//! instruction, at twice the pace of f32.
//!
//! Two panels at a time become 16-bit codes and scales, once for all rows ([`Source`]); quantised weights are exact so, and
//! floats nearly ([`fixed`]). Activations come in tiles ([`Words`]). A tile times two panels has its sums of integers in
//! registers for a block, or for as many columns as have a scale in common and cannot overflow, and its sums in f32 in
//! the nearest cache.
//!
//! [`bytes`] multiplies four codes of 8 bits instead (`vpdpbusd`), at twice the pace: activations of 8 bits times quantised weights.
#![allow(unsafe_code)]

mod bytes;
mod fixed;
mod quant;

use super::Part;
use crate::layout::{BLOCK, Line, PANEL};
use crate::packed::{Panel, with_codes};
use crate::words::{BESIDE, FOURS, HEIGHT, Outlier, Tile, Words};
use bytemuck::Zeroable;
use std::arch::x86_64::*;
use std::cell::Cell;
use std::ops::Range;

/// The greatest code of an activation where a weight has codes of floats: see [`fixed`].
pub(super) const MOST_BESIDE_FLOATS: i16 = 16383;
/// How many blocks ahead activations are asked for.
const AHEAD: usize = 2;
/// Panels that are multiplied together.
const TWO: usize = 2;
/// Most blocks that are unpacked at a time: with those of a tile they fit into the nearest cache.
const CHUNK: usize = 12;

/// How a block becomes codes.
trait Source {
    /// Words of a block and row: as many lines of a panel.
    const WORDS: usize;
    /// Words whose products are added up as integers: they have a scale in common, and the sum cannot overflow.
    const RUN: usize;
    /// Scales of a block.
    const SCALES: usize;
    /// Whether there are minima.
    const MINIMA: bool;
    /// Whether sums of integers begin with [`Unpacked::begin`], and not with zero.
    const BEGIN: bool = false;

    /// Writes the codes of a block, a word of each row in every `stride`th line, as [`crate::words`] orders them.
    ///
    /// # Safety
    /// The panel has this block; the machine has AVX-512 (F, BW, VL, DQ) with VNNI.
    unsafe fn unpack(panel: Panel<'_>, block: usize, codes: &mut [Line], stride: usize) -> Unpacked;

    /// Adds the products of the codes of each row to its sum; `x` has one word of activations in all places.
    ///
    /// # Safety
    /// The machine has AVX-512 with VNNI.
    unsafe fn dot(sum: __m512i, codes: __m512i, x: __m512i) -> __m512i;

    /// The word of a column of a block, and by how many bits its code is below the highest.
    fn place(column: usize) -> (usize, u32);
    /// Bits of a code.
    const BITS: u32;
}

/// What a block has besides its codes.
#[derive(Clone, Copy)]
struct Unpacked {
    /// Of both halves: the same, unless there are two.
    scales: [__m512; 2],
    minimum: __m512,
    begin: [__m512i; 2],
}

/// # Safety
/// As [`super::compute`], for a weight that is not F32, with AVX-512 (F, BW, VL, DQ) and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn compute(part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe {
        match x.words() {
            FOURS => bytes::compute(part, x),
            _ => with_codes!(part.weight.format(), all_panels(part, x)),
        }
    }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn all_panels<L: Source>(part: &Part<'_>, x: &Words) {
    let mut room = ROOM.take();
    room.weights.resize(CHUNK * lines::<L, TWO>(), Line::zeroed());
    room.sums.resize(TWO * x.height(), _mm512_setzero_ps());
    let mut panel = part.panels.start;
    while panel < part.panels.end {
        // SAFETY: passed on to the caller.
        panel += unsafe {
            match part.panels.end - panel {
                1 => panels::<L, 1>(part, panel, &mut room, x),
                _ => panels::<L, TWO>(part, panel, &mut room, x),
            }
        };
    }
    ROOM.set(room);
}

thread_local! {
    static ROOM: Cell<Room> = const {
        Cell::new(Room {
            weights: Vec::new(),
            sums: Vec::new(),
        })
    };
}

/// What a thread works with, kept for its next part.
#[derive(Default)]
struct Room {
    /// Blocks of some panels: codes, scales, minima.
    weights: Vec<Line>,
    /// `[rows][panels]`
    sums: Vec<__m512>,
}

/// Lines of a block of `P` panels.
const fn lines<L: Source, const P: usize>() -> usize {
    P * (L::WORDS + L::SCALES * (1 + L::BEGIN as usize) + L::MINIMA as usize)
}

/// The line of a block with the scales of a half.
const fn scale<L: Source, const P: usize>(half: usize) -> usize {
    P * (L::WORDS + half)
}

/// The line with the minima.
const fn minimum<L: Source, const P: usize>() -> usize {
    P * (L::WORDS + L::SCALES)
}

/// The line with what the sums of a half begin with.
const fn begin<L: Source, const P: usize>(half: usize) -> usize {
    P * (L::WORDS + L::SCALES + L::MINIMA as usize + half)
}

/// `P` panels from `panel` on times all rows; gives back `P`.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn panels<L: Source, const P: usize>(part: &Part<'_>, panel: usize, room: &mut Room, x: &Words) -> usize {
    let all = part.weight.cols().div_ceil(BLOCK);
    let chunk = all.div_ceil(all.div_ceil(CHUNK));
    room.sums.fill(_mm512_setzero_ps());
    let (sums, _) = room.sums.as_chunks_mut::<P>();
    for first in (0..all).step_by(chunk) {
        let blocks = first..all.min(first + chunk);
        let weights = &mut room.weights[..blocks.len() * lines::<L, P>()];
        // SAFETY: passed on to the caller.
        unsafe {
            for p in 0..P {
                unpack::<L, P>(part.weight.panel(panel + p), p, blocks.clone(), weights);
            }
            let ahead: [&[Line]; P] = std::array::from_fn(|p| next_codes(part, panel + p, P, &blocks));
            let tiles = x.height().div_ceil(HEIGHT);
            for (i, tile) in x.tiles().enumerate() {
                for lines in ahead {
                    for line in &lines[lines.len() * i / tiles..lines.len() * (i + 1) / tiles] {
                        _mm_prefetch::<_MM_HINT_T1>(line.0.as_ptr().cast());
                    }
                }
                match tile.height {
                    4 => one_tile::<L, P, 4>(sums, weights, blocks.clone(), &tile),
                    8 => one_tile::<L, P, 8>(sums, weights, blocks.clone(), &tile),
                    _ => one_tile::<L, P, 12>(sums, weights, blocks.clone(), &tile),
                }
            }
        }
    }
    for tile in x.tiles() {
        // SAFETY: passed on to the caller.
        unsafe { store(part, panel, &tile, &sums[tile.first..]) };
    }
    P
}

/// The codes that are unpacked after some blocks: while those are multiplied, the memory is asked for these.
fn next_codes<'a>(part: &Part<'a>, panel: usize, panels: usize, blocks: &Range<usize>) -> &'a [Line] {
    let lines = part.weight.panel(panel).codes;
    let block = lines.len() / part.weight.cols().div_ceil(BLOCK);
    let (from, to) = (blocks.end * block, (blocks.end + blocks.len()) * block);
    if from < lines.len() {
        &lines[from..to.min(lines.len())]
    } else if panel + panels < part.panels.end {
        &part.weight.panel(panel + panels).codes[..blocks.len() * block]
    } else {
        &[]
    }
}

/// Unpacks some blocks of a panel, which is number `p` of `P`.
///
/// # Safety
/// The panel has these blocks; the machine has AVX-512 (F, BW, VL, DQ).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn unpack<L: Source, const P: usize>(panel: Panel<'_>, p: usize, blocks: Range<usize>, out: &mut [Line]) {
    for (block, out) in blocks.zip(out.chunks_exact_mut(lines::<L, P>())) {
        // SAFETY: the block is there, and a line has room for 16 numbers.
        unsafe {
            let unpacked = L::unpack(panel, block, &mut out[p..], P);
            for half in 0..L::SCALES {
                let to = out[scale::<L, P>(half) + p].0.as_mut_ptr();
                _mm512_store_ps(to.cast(), unpacked.scales[half]);
                if L::BEGIN {
                    _mm512_store_si512(out[begin::<L, P>(half) + p].0.as_mut_ptr().cast(), unpacked.begin[half]);
                }
            }
            if L::MINIMA {
                _mm512_store_ps(out[minimum::<L, P>() + p].0.as_mut_ptr().cast(), unpacked.minimum);
            }
        }
    }
}

/// Some blocks of `P` panels times a tile of `R` rows.
///
/// # Safety
/// The machine has AVX-512 (F, BW, VL, DQ) and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn one_tile<L: Source, const P: usize, const R: usize>(
    sums: &mut [[__m512; P]],
    weights: &[Line],
    blocks: Range<usize>,
    tile: &Tile<'_>,
) {
    let Some(sums) = sums[tile.first..].first_chunk_mut::<R>() else {
        unreachable!("as many rows as tiles have");
    };
    let size = lines::<L, P>();
    // Later on nothing checks that they are there.
    assert!(
        tile.height == R
            && weights.len() >= blocks.len() * size
            && tile.data.len() >= blocks.end * (L::WORDS + BESIDE) * R
    );
    for (i, block) in blocks.clone().enumerate() {
        // SAFETY: both have this block.
        unsafe {
            let weights = weights.as_ptr().add(i * size);
            let x = tile.data.as_ptr().add(block * (L::WORDS + BESIDE) * R);
            let sums = sums.as_mut_ptr().cast();
            match L::RUN < L::WORDS / L::SCALES {
                false => add_block::<L, P, R>(sums, weights, x),
                true if R == 12 => {
                    add_runs::<L, P, R, 6>(sums, weights, x, 0);
                    add_runs::<L, P, R, 6>(sums, weights, x, 6);
                }
                true => {
                    add_runs::<L, P, R, 4>(sums, weights, x, 0);
                    if R == 8 {
                        add_runs::<L, P, R, 4>(sums, weights, x, 4);
                    }
                }
            }
        }
    }
    let before = |block: usize| tile.outliers.partition_point(|outlier| outlier.block < block);
    for outlier in &tile.outliers[before(blocks.start)..before(blocks.end)] {
        let block = outlier.block - blocks.start;
        // SAFETY: the block is there.
        unsafe { add_outlier::<L, P>(&mut sums[outlier.row], weights.as_ptr().add(block * size), outlier) };
    }
}

/// Hands a tile's sums in.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn store<const P: usize>(part: &Part<'_>, panel: usize, tile: &Tile<'_>, sums: &[[__m512; P]]) {
    for (i, sums) in sums.iter().enumerate().take(tile.rows) {
        for (p, sum) in sums.iter().enumerate() {
            let (to, count) = part.out.lanes(tile.first + i, panel + p);
            // SAFETY: there is room for so many numbers, and the caller promises that nobody else writes there.
            unsafe { _mm512_mask_storeu_ps(to, u16::MAX >> (PANEL - count), *sum) };
        }
    }
}

/// Adds what the codes do not have.
///
/// # Safety
/// `weights` points to the lines of a block; the machine has AVX-512.
#[target_feature(enable = "avx512f")]
unsafe fn add_outlier<L: Source, const P: usize>(sums: &mut [__m512; P], weights: *const Line, outlier: &Outlier) {
    let (word, below) = L::place(outlier.column);
    for (p, sum) in sums.iter_mut().enumerate() {
        // SAFETY: passed on to the caller.
        unsafe {
            let codes = _mm512_load_si512(weights.add(word * P + p).cast());
            let codes = _mm512_sllv_epi32(codes, _mm512_set1_epi32(below as i32));
            let codes = _mm512_srav_epi32(codes, _mm512_set1_epi32(32 - L::BITS as i32));
            let scale = scale::<L, P>(word * L::SCALES / L::WORDS) + p;
            let factor = _mm512_mul_ps(
                _mm512_load_ps(weights.add(scale).cast()),
                _mm512_set1_ps(outlier.number),
            );
            *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(codes), factor, *sum);
        }
    }
}

/// Adds a block's products.
///
/// # Safety
/// `weights` points to the lines of a block, `x` to the words, steps and sums of one; the machine has AVX-512 and VNNI.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn add_block<L: Source, const P: usize, const R: usize>(sums: *mut __m512, weights: *const Line, x: *const i32) {
    // SAFETY: passed on to the caller.
    unsafe {
        let steps = x.add(L::WORDS * R).cast::<f32>();
        for half in 0..L::SCALES {
            let words = L::WORDS / L::SCALES;
            let mut products = [[_mm512_setzero_si512(); P]; R];
            if L::BEGIN {
                for p in 0..P {
                    let begin = _mm512_load_si512(weights.add(begin::<L, P>(half) + p).cast());
                    products.iter_mut().for_each(|products| products[p] = begin);
                }
            }
            for word in half * words..(half + 1) * words {
                let mut codes = [_mm512_setzero_si512(); P];
                for (p, codes) in codes.iter_mut().enumerate() {
                    *codes = _mm512_load_si512(weights.add(word * P + p).cast());
                }
                _mm_prefetch::<_MM_HINT_T0>(x.wrapping_add(AHEAD * (L::WORDS + BESIDE) * R + word * 16).cast());
                for (i, products) in products.iter_mut().enumerate() {
                    let x = _mm512_set1_epi32(*x.add(word * R + i));
                    for (product, codes) in products.iter_mut().zip(&codes) {
                        *product = L::dot(*product, *codes, x);
                    }
                }
            }
            let last = half + 1 == L::SCALES;
            let mut scales = [_mm512_setzero_ps(); P];
            let mut minima = [_mm512_setzero_ps(); P];
            for p in 0..P {
                scales[p] = _mm512_load_ps(weights.add(scale::<L, P>(half) + p).cast());
                if L::MINIMA && last {
                    minima[p] = _mm512_load_ps(weights.add(minimum::<L, P>() + p).cast());
                }
            }
            for (i, products) in products.iter().enumerate() {
                let step = _mm512_set1_ps(*steps.add(i));
                let total = _mm512_set1_ps(*steps.add(R + i));
                for (p, product) in products.iter().enumerate() {
                    let sum = sums.add(i * P + p);
                    let product = _mm512_cvtepi32_ps(*product);
                    let mut new = _mm512_fmadd_ps(product, _mm512_mul_ps(scales[p], step), _mm512_load_ps(sum.cast()));
                    if L::MINIMA && last {
                        new = _mm512_fmadd_ps(minima[p], total, new);
                    }
                    _mm512_store_ps(sum.cast(), new);
                }
            }
        }
    }
}

/// [`add_block`] where fewer products can be added up as integers: so many fewer rows, `Q` of the `R` from `first` on,
/// that their sums in f32 are in registers too.
///
/// # Safety
/// As [`add_block`].
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn add_runs<L: Source, const P: usize, const R: usize, const Q: usize>(
    sums: *mut __m512,
    weights: *const Line,
    x: *const i32,
    first: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let mut floats = [[_mm512_setzero_ps(); P]; Q];
        for run in 0..L::WORDS / L::RUN {
            let mut products = [[_mm512_setzero_si512(); P]; Q];
            for word in run * L::RUN..(run + 1) * L::RUN {
                let mut codes = [_mm512_setzero_si512(); P];
                for (p, codes) in codes.iter_mut().enumerate() {
                    *codes = _mm512_load_si512(weights.add(word * P + p).cast());
                }
                for (i, products) in products.iter_mut().enumerate() {
                    let x = _mm512_set1_epi32(*x.add(word * R + first + i));
                    for (product, codes) in products.iter_mut().zip(&codes) {
                        *product = L::dot(*product, *codes, x);
                    }
                }
            }
            for (floats, products) in floats.iter_mut().zip(&products) {
                for (float, product) in floats.iter_mut().zip(products) {
                    *float = _mm512_add_ps(*float, _mm512_cvtepi32_ps(*product));
                }
            }
        }
        for (i, floats) in floats.iter().enumerate() {
            let step = _mm512_set1_ps(*x.add(L::WORDS * R + first + i).cast::<f32>());
            for (p, float) in floats.iter().enumerate() {
                let scale = _mm512_load_ps(weights.add(scale::<L, P>(0) + p).cast());
                let sum = sums.add((first + i) * P + p).cast();
                let new = _mm512_fmadd_ps(*float, _mm512_mul_ps(scale, step), _mm512_load_ps(sum));
                _mm512_store_ps(sum, new);
            }
        }
    }
}

/// What 16-bit codes have in common.
macro_rules! of_16_bits {
    () => {
        const WORDS: usize = crate::words::PAIRS;
        const BITS: u32 = 16;

        #[inline(always)]
        unsafe fn dot(sum: __m512i, codes: __m512i, x: __m512i) -> __m512i {
            // SAFETY: passed on to the caller.
            unsafe { crate::kernel::words::dot_words(sum, codes, x) }
        }

        fn place(column: usize) -> (usize, u32) {
            (column / 4 * 2 + column % 2, 16 * (1 - column as u32 % 4 / 2))
        }
    };
}
use of_16_bits;

/// A product of VNNI. As an intrinsic, the compiler makes a multiplication and an addition of it here and there, which take twice
/// as long.
macro_rules! product {
    ($(#[$doc:meta])* $name:ident, $instruction:literal) => {
        $(#[$doc])*
        #[inline]
        #[target_feature(enable = "avx512f,avx512vnni")]
        fn $name(sum: __m512i, codes: __m512i, x: __m512i) -> __m512i {
            let mut sum = sum;
            // SAFETY: the machine has the instruction, which only uses these registers.
            unsafe {
                std::arch::asm!(
                    concat!($instruction, " {sum}, {x}, {codes}"),
                    sum = inout(zmm_reg) sum,
                    codes = in(zmm_reg) codes,
                    x = in(zmm_reg) x,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sum
        }
    };
}

product!(
    /// Adds the two products of each pair.
    dot_words,
    "vpdpwssd"
);
product!(
    /// Adds the four products of bytes: those of `x` have no sign.
    dot_bytes,
    "vpdpbusd"
);
