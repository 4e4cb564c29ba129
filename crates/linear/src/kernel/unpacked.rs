//! Many rows in f32 with AVX-512: two panels at a time are unpacked, once for all rows, and multiplied by activations in
//! tiles. The 24 sums of 12 rows stay in registers for all columns.
#![allow(unsafe_code)]

use super::Part;
use super::float::Columns;
use super::integer::Integers;
use crate::Format;
use crate::layout::{BF16, BLOCK, F16, F32, Line, PANEL, Q4_0, Q4_1, Q4K, Q6K, Q8_0};
use crate::packed::Panel;
use crate::tiles::{Tile, Tiles};
use bytemuck::Zeroable;
use std::arch::x86_64::*;

/// Panels that are multiplied together.
const TWO: usize = 2;

/// # Safety
/// As [`super::compute`], with AVX-512 (F, BW, VL, DQ).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn compute(part: &Part<'_>, x: &Tiles) {
    // SAFETY: passed on to the caller.
    unsafe {
        match part.weight.format() {
            Format::F32 => all_panels(part, x, floats::<F32>),
            Format::F16 => all_panels(part, x, floats::<F16>),
            Format::BF16 => all_panels(part, x, floats::<BF16>),
            Format::Q4_0 => all_panels(part, x, quantised::<Q4_0>),
            Format::Q4_1 => all_panels(part, x, quantised::<Q4_1>),
            Format::Q8_0 => all_panels(part, x, quantised::<Q8_0>),
            Format::Q4_K => all_panels(part, x, quantised::<Q4K>),
            Format::Q6_K => all_panels(part, x, quantised::<Q6K>),
        }
    }
}

/// Unpacks a panel: a column in every `stride`th line.
type Unpack = unsafe fn(Panel<'_>, out: &mut [Line], stride: usize);

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn all_panels(part: &Part<'_>, x: &Tiles, unpack: Unpack) {
    let cols = part.weight.cols().next_multiple_of(BLOCK);
    let mut unpacked = vec![Line::zeroed(); TWO * cols];
    let mut panel = part.panels.start;
    while panel < part.panels.end {
        let count = TWO.min(part.panels.end - panel);
        let weights = &mut unpacked[..count * cols];
        // SAFETY: passed on to the caller.
        unsafe {
            for p in 0..count {
                unpack(part.weight.panel(panel + p), &mut weights[p..], count);
            }
            for tile in x.iter() {
                match (count, tile.height) {
                    (TWO, 4) => one_tile::<TWO, 4>(part, panel, weights, &tile),
                    (TWO, 8) => one_tile::<TWO, 8>(part, panel, weights, &tile),
                    (TWO, _) => one_tile::<TWO, 12>(part, panel, weights, &tile),
                    (_, 4) => one_tile::<1, 4>(part, panel, weights, &tile),
                    (_, 8) => one_tile::<1, 8>(part, panel, weights, &tile),
                    (_, _) => one_tile::<1, 12>(part, panel, weights, &tile),
                }
            }
        }
        panel += count;
    }
}

/// `P` panels times a tile of `R` rows.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn one_tile<const P: usize, const R: usize>(part: &Part<'_>, panel: usize, weights: &[Line], tile: &Tile<'_>) {
    let cols = weights.len() / P;
    // Later on nothing checks that they are there.
    assert!(tile.height == R && tile.data.len() >= cols * R);
    let mut sums = [[_mm512_setzero_ps(); P]; R];
    let (mut weights, mut x) = (weights.as_ptr(), tile.data.as_ptr().cast::<f32>());
    for _ in 0..cols {
        // SAFETY: both have so many columns.
        unsafe {
            let mut column = [_mm512_setzero_ps(); P];
            for (p, column) in column.iter_mut().enumerate() {
                *column = _mm512_load_ps(weights.add(p).cast());
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*x.add(i));
                for (sum, column) in sums.iter_mut().zip(&column) {
                    *sum = _mm512_fmadd_ps(*column, x, *sum);
                }
            }
            weights = weights.add(P);
            x = x.add(R);
        }
    }
    // SAFETY: passed on to the caller.
    unsafe { store(part, panel, tile, &sums) };
}

/// Hands a tile's sums in.
///
/// # Safety
/// As [`compute`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn store<const P: usize>(part: &Part<'_>, panel: usize, tile: &Tile<'_>, sums: &[[__m512; P]]) {
    for (i, sums) in sums.iter().enumerate().take(tile.rows) {
        for (p, sum) in sums.iter().enumerate() {
            let (to, count) = part.out.lanes(tile.first + i, panel + p);
            // SAFETY: there is room for so many numbers, and the caller promises that nobody else writes there.
            unsafe { _mm512_mask_storeu_ps(to, u16::MAX >> (PANEL - count), *sum) };
        }
    }
}

/// # Safety
/// The machine has AVX-512 (F, BW, VL, DQ).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn floats<L: Columns>(panel: Panel<'_>, out: &mut [Line], stride: usize) {
    let blocks = out.len().div_ceil(stride) / BLOCK;
    assert!(panel.codes.len() >= blocks * L::CODES);
    for (i, columns) in out.chunks_mut(2 * stride).enumerate() {
        // SAFETY: the pair is in one of the blocks that were asserted to be there, and a line has room for 16 numbers.
        unsafe {
            let [first, second] = L::pair(panel.codes.as_ptr().cast(), i);
            _mm512_storeu_ps(columns[0].0.as_mut_ptr().cast(), first);
            _mm512_storeu_ps(columns[stride].0.as_mut_ptr().cast(), second);
        }
    }
}

/// # Safety
/// The machine has AVX-512 (F, BW, VL, DQ).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn quantised<L: Integers>(panel: Panel<'_>, out: &mut [Line], stride: usize) {
    let blocks = out.len().div_ceil(stride) / BLOCK;
    assert!(panel.codes.len() >= blocks * L::CODES && panel.scales.len() >= L::scale_lines(blocks));
    let (offset, byte) = (_mm512_set1_epi32(L::OFFSET), _mm512_set1_epi32(255));
    for (block, columns) in out.chunks_mut(BLOCK * stride).enumerate() {
        // SAFETY: the block is one of those that were asserted to be there, and a line has room for 16 numbers.
        unsafe {
            let codes = L::codes(panel.codes.as_ptr().add(block * L::CODES).cast());
            let (scale, minimum) = L::scales(panel.scales.as_ptr().cast(), block);
            for (i, four) in columns.chunks_mut(4 * stride).enumerate() {
                let scale = scale[i * 4 / PANEL];
                let mut code = codes[i];
                for column in four.iter_mut().step_by(stride) {
                    let number = _mm512_sub_epi32(_mm512_and_si512(code, byte), offset);
                    let number = _mm512_fmadd_ps(_mm512_cvtepi32_ps(number), scale, minimum);
                    _mm512_storeu_ps(column.0.as_mut_ptr().cast(), number);
                    code = _mm512_srli_epi32::<8>(code);
                }
            }
        }
    }
}
