//! Many rows with AVX-512 VNNI: `vpdpwssd` multiplies pairs of 16-bit integers and adds both products, 32 of them in an
//! instruction, at twice the pace of f32.
//!
//! Two panels at a time become 16-bit codes and scales, once for all rows ([`Source`]); quantised weights are exact so, and
//! floats nearly ([`fixed`]). Activations come in tiles ([`Tiles`]). A tile times two panels has its sums of integers in
//! registers for a block, or for as many columns as have a scale in common and cannot overflow, and its sums in f32 in
//! the nearest cache.
#![allow(unsafe_code)]

mod fixed;
mod quant;

use super::Part;
use super::unpacked::store;
use crate::Format;
use crate::layout::{BF16, BLOCK, F16, Line, Q4_0, Q4_1, Q4K, Q6K, Q8_0};
use crate::packed::Panel;
use crate::tiles::{Tile, Tiles};
use crate::words::{PAIRS, WORDS};
use bytemuck::Zeroable;
use std::arch::x86_64::*;

/// Panels that are multiplied together.
const TWO: usize = 2;

/// How a block becomes 16-bit codes.
trait Source {
    /// Pairs of columns whose products are added up as integers: they have a scale in common, and the sum of `2 * RUN`
    /// products cannot overflow.
    const RUN: usize;
    /// Scales of a block.
    const SCALES: usize;
    /// Whether there are minima.
    const MINIMA: bool;

    /// Writes the codes of a block, a pair of columns in every `stride`th line, as [`crate::words`] orders them; gives back
    /// the scales of both halves (the same, unless there are two) and the minima.
    ///
    /// # Safety
    /// The panel has this block; the machine has AVX-512 (F, BW, VL, DQ).
    unsafe fn unpack(panel: Panel<'_>, block: usize, codes: &mut [Line], stride: usize) -> ([__m512; 2], __m512);
}

/// # Safety
/// As [`super::compute`], for a weight that is not F32, with AVX-512 (F, BW, VL, DQ) and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn compute(part: &Part<'_>, x: &Tiles) {
    // SAFETY: passed on to the caller.
    unsafe {
        match part.weight.format() {
            Format::F16 => all_panels::<F16>(part, x),
            Format::BF16 => all_panels::<BF16>(part, x),
            Format::Q4_0 => all_panels::<Q4_0>(part, x),
            Format::Q4_1 => all_panels::<Q4_1>(part, x),
            Format::Q8_0 => all_panels::<Q8_0>(part, x),
            Format::Q4_K => all_panels::<Q4K>(part, x),
            Format::Q6_K => all_panels::<Q6K>(part, x),
            Format::F32 => unreachable!("multiplied as floats"),
        }
    }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn all_panels<L: Source>(part: &Part<'_>, x: &Tiles) {
    let blocks = part.weight.cols().div_ceil(BLOCK);
    let mut unpacked = vec![Line::zeroed(); blocks * lines::<L, TWO>()];
    let mut panel = part.panels.start;
    while panel < part.panels.end {
        // SAFETY: passed on to the caller.
        panel += unsafe {
            if panel + 1 < part.panels.end {
                panels::<L, TWO>(part, panel, &mut unpacked, x)
            } else {
                panels::<L, 1>(part, panel, &mut unpacked, x)
            }
        };
    }
}

/// Lines of a block of `P` panels: codes, scales, minima.
const fn lines<L: Source, const P: usize>() -> usize {
    P * (PAIRS + L::SCALES + L::MINIMA as usize)
}

/// `P` panels from `panel` on times all rows; gives back `P`.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn panels<L: Source, const P: usize>(part: &Part<'_>, panel: usize, unpacked: &mut [Line], x: &Tiles) -> usize {
    let blocks = part.weight.cols().div_ceil(BLOCK);
    let weights = &mut unpacked[..blocks * lines::<L, P>()];
    for (block, out) in weights.chunks_exact_mut(lines::<L, P>()).enumerate() {
        let (codes, rest) = out.split_at_mut(P * PAIRS);
        let (scales, minima) = rest.split_at_mut(P * L::SCALES);
        for p in 0..P {
            // SAFETY: a panel has all blocks, and a line has room for 16 numbers.
            unsafe {
                let (scale, minimum) = L::unpack(part.weight.panel(panel + p), block, &mut codes[p..], P);
                for half in 0..L::SCALES {
                    _mm512_store_ps(scales[half * P + p].0.as_mut_ptr().cast(), scale[half]);
                }
                if L::MINIMA {
                    _mm512_store_ps(minima[p].0.as_mut_ptr().cast(), minimum);
                }
            }
        }
    }
    for tile in x.iter() {
        // SAFETY: passed on to the caller.
        unsafe {
            match tile.height {
                4 => one_tile::<L, P, 4>(part, panel, weights, &tile),
                8 => one_tile::<L, P, 8>(part, panel, weights, &tile),
                _ => one_tile::<L, P, 12>(part, panel, weights, &tile),
            }
        }
    }
    P
}

/// `P` panels times a tile of `R` rows.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn one_tile<L: Source, const P: usize, const R: usize>(
    part: &Part<'_>,
    panel: usize,
    weights: &[Line],
    tile: &Tile<'_>,
) {
    let size = lines::<L, P>();
    let blocks = weights.len() / size;
    // Later on nothing checks that they are there.
    assert!(tile.height == R && tile.data.len() >= blocks * WORDS * R);
    let mut sums = [[_mm512_setzero_ps(); P]; R];
    for block in 0..blocks {
        // SAFETY: both have this block.
        unsafe {
            let weights = weights.as_ptr().add(block * size);
            let x = tile.data.as_ptr().add(block * WORDS * R);
            match L::RUN < PAIRS / L::SCALES {
                false => add_block::<L, P, R>(&mut sums, weights, x),
                true if R == 12 => {
                    add_runs::<L, P, R, 6>(&mut sums, weights, x, 0);
                    add_runs::<L, P, R, 6>(&mut sums, weights, x, 6);
                }
                true => (0..R)
                    .step_by(4)
                    .for_each(|row| add_runs::<L, P, R, 4>(&mut sums, weights, x, row)),
            }
        }
    }
    for outlier in tile.outliers {
        // SAFETY: outliers are in blocks and rows of the tile.
        unsafe {
            let weights = weights.as_ptr().add(outlier.pair / PAIRS * size);
            let sums = &mut sums[outlier.row];
            for (p, sum) in sums.iter_mut().enumerate() {
                let codes = _mm512_load_si512(weights.add(outlier.pair % PAIRS * P + p).cast());
                let codes = match outlier.upper {
                    false => _mm512_slli_epi32::<16>(codes),
                    true => codes,
                };
                let codes = _mm512_cvtepi32_ps(_mm512_srai_epi32::<16>(codes));
                let half = outlier.pair % PAIRS * L::SCALES / PAIRS;
                let scale = _mm512_load_ps(weights.add(P * (PAIRS + half) + p).cast());
                *sum = _mm512_fmadd_ps(codes, _mm512_mul_ps(scale, _mm512_set1_ps(outlier.number)), *sum);
            }
        }
    }
    // SAFETY: passed on to the caller.
    unsafe { store(part, panel, tile, &sums) };
}

/// Adds a block's products.
///
/// # Safety
/// `weights` points to the lines of a block, `x` to the words, steps and sums of one; the machine has AVX-512 and VNNI.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn add_block<L: Source, const P: usize, const R: usize>(
    sums: &mut [[__m512; P]; R],
    weights: *const Line,
    x: *const i32,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let steps = x.add(PAIRS * R).cast::<f32>();
        for half in 0..L::SCALES {
            let pairs = PAIRS / L::SCALES;
            let mut products = [[_mm512_setzero_si512(); P]; R];
            for pair in half * pairs..(half + 1) * pairs {
                let mut codes = [_mm512_setzero_si512(); P];
                for (p, codes) in codes.iter_mut().enumerate() {
                    *codes = _mm512_load_si512(weights.add(pair * P + p).cast());
                }
                for (i, products) in products.iter_mut().enumerate() {
                    let x = _mm512_set1_epi32(*x.add(pair * R + i));
                    for (product, codes) in products.iter_mut().zip(&codes) {
                        *product = _mm512_dpwssd_epi32(*product, *codes, x);
                    }
                }
            }
            let mut scales = [_mm512_setzero_ps(); P];
            for (p, scale) in scales.iter_mut().enumerate() {
                *scale = _mm512_load_ps(weights.add(P * (PAIRS + half) + p).cast());
            }
            for (i, (sums, products)) in sums.iter_mut().zip(&products).enumerate() {
                let step = _mm512_set1_ps(*steps.add(i));
                for ((sum, product), scale) in sums.iter_mut().zip(products).zip(&scales) {
                    let product = _mm512_cvtepi32_ps(*product);
                    *sum = _mm512_fmadd_ps(product, _mm512_mul_ps(*scale, step), *sum);
                }
            }
        }
        if L::MINIMA {
            let mut minima = [_mm512_setzero_ps(); P];
            for (p, minimum) in minima.iter_mut().enumerate() {
                *minimum = _mm512_load_ps(weights.add(P * (PAIRS + L::SCALES) + p).cast());
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*steps.add(R + i));
                for (sum, minimum) in sums.iter_mut().zip(&minima) {
                    *sum = _mm512_fmadd_ps(*minimum, x, *sum);
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
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn add_runs<L: Source, const P: usize, const R: usize, const Q: usize>(
    sums: &mut [[__m512; P]; R],
    weights: *const Line,
    x: *const i32,
    first: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let mut floats = [[_mm512_setzero_ps(); P]; Q];
        for run in 0..PAIRS / L::RUN {
            let mut products = [[_mm512_setzero_si512(); P]; Q];
            for pair in run * L::RUN..(run + 1) * L::RUN {
                let mut codes = [_mm512_setzero_si512(); P];
                for (p, codes) in codes.iter_mut().enumerate() {
                    *codes = _mm512_load_si512(weights.add(pair * P + p).cast());
                }
                for (i, products) in products.iter_mut().enumerate() {
                    let x = _mm512_set1_epi32(*x.add(pair * R + first + i));
                    for (product, codes) in products.iter_mut().zip(&codes) {
                        *product = _mm512_dpwssd_epi32(*product, *codes, x);
                    }
                }
            }
            for (float, product) in floats.iter_mut().flatten().zip(products.iter().flatten()) {
                *float = _mm512_add_ps(*float, _mm512_cvtepi32_ps(*product));
            }
        }
        for (i, floats) in floats.iter().enumerate() {
            let step = _mm512_set1_ps(*x.add(PAIRS * R + first + i).cast::<f32>());
            for (p, float) in floats.iter().enumerate() {
                let scale = _mm512_load_ps(weights.add(P * PAIRS + p).cast());
                let sum = &mut sums[first + i][p];
                *sum = _mm512_fmadd_ps(*float, _mm512_mul_ps(scale, step), *sum);
            }
        }
    }
}
