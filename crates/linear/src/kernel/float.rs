//! Floats with AVX-512: 16 rows of a column in a register, times one number of the activations.
#![allow(unsafe_code)]

use super::{Part, ROWS};
use crate::Format;
use crate::input::Floats;
use crate::layout::{BF16, F16, F32, Layout, Line, PANEL};
use std::arch::x86_64::*;

/// Panels that are read together for few rows, so that additions do not wait for each other.
const MANY: usize = 4;
/// For eight rows; more would not fit the registers.
const SOME: usize = 2;

/// How far ahead of the columns in use the memory is asked for, in pairs: for the second cache, and for the nearest one.
const FAR: usize = 48;
const NEAR: usize = 16;

/// How columns become f32.
pub(super) trait Columns: Layout {
    /// Columns `2 i` and `2 i + 1` of a panel.
    ///
    /// # Safety
    /// `panel` points to the codes of a panel that has them; the machine has AVX-512.
    unsafe fn pair(panel: *const u8, i: usize) -> [__m512; 2];
}

impl Columns for F32 {
    #[inline(always)]
    unsafe fn pair(panel: *const u8, i: usize) -> [__m512; 2] {
        // SAFETY: passed on to the caller.
        unsafe {
            let first = panel.add(i * 128).cast();
            [_mm512_loadu_ps(first), _mm512_loadu_ps(first.add(16))]
        }
    }
}

impl Columns for F16 {
    #[inline(always)]
    unsafe fn pair(panel: *const u8, i: usize) -> [__m512; 2] {
        // SAFETY: passed on to the caller.
        unsafe {
            let both = _mm512_loadu_si512(panel.add(i * 64).cast());
            [
                _mm512_cvtph_ps(_mm512_castsi512_si256(both)),
                _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(both)),
            ]
        }
    }
}

impl Columns for BF16 {
    #[inline(always)]
    unsafe fn pair(panel: *const u8, i: usize) -> [__m512; 2] {
        // SAFETY: passed on to the caller.
        unsafe {
            let both = _mm512_loadu_si512(panel.add(i * 64).cast());
            let upper = _mm512_and_si512(both, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            [
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(both)),
                _mm512_castsi512_ps(upper),
            ]
        }
    }
}

/// # Safety
/// As [`super::compute`], for a weight of floats, with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn compute(part: &Part<'_>, x: &Floats<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        match part.weight.format() {
            Format::F32 => all_rows::<F32>(part, x),
            Format::F16 => all_rows::<F16>(part, x),
            Format::BF16 => all_rows::<BF16>(part, x),
            _ => unreachable!("quantised formats have a kernel of their own"),
        }
    }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn all_rows<L: Columns>(part: &Part<'_>, x: &Floats<'_>) {
    let most = if x.rows() < ROWS { MANY } else { SOME };
    let codes = |panel: usize| part.weight.panel(panel).codes;
    let mut panel = part.panels.start;
    while panel < part.panels.end {
        // SAFETY: passed on to the caller.
        panel += unsafe {
            match most.min(part.panels.end - panel) {
                MANY => panels::<L, MANY>(part, panel, std::array::from_fn(|i| codes(panel + i)), x),
                SOME.. => panels::<L, SOME>(part, panel, std::array::from_fn(|i| codes(panel + i)), x),
                _ => panels::<L, 1>(part, panel, [codes(panel)], x),
            }
        };
    }
}

/// `P` panels from `panel` on, whose codes are given, times all rows; gives back `P`.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn panels<L: Columns, const P: usize>(
    part: &Part<'_>,
    panel: usize,
    codes: [&[Line]; P],
    x: &Floats<'_>,
) -> usize {
    let mut row = 0;
    while row < x.rows() {
        // SAFETY: passed on to the caller.
        row += unsafe {
            match x.rows() - row {
                1 => some_rows::<L, P, 1>(part, panel, &codes, x, row),
                2..=3 => some_rows::<L, P, 2>(part, panel, &codes, x, row),
                ROWS.. if P <= SOME => some_rows::<L, P, ROWS>(part, panel, &codes, x, row),
                _ => some_rows::<L, P, 4>(part, panel, &codes, x, row),
            }
        };
    }
    P
}

/// `P` panels times `R` rows from `row` on; gives back `R`.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn some_rows<L: Columns, const P: usize, const R: usize>(
    part: &Part<'_>,
    panel: usize,
    codes: &[&[Line]; P],
    x: &Floats<'_>,
    row: usize,
) -> usize {
    let rows: [&[f32]; R] = std::array::from_fn(|i| x.row(row + i));
    let pairs = rows[0].len() / 2;
    // Later on nothing checks that they are there: 32 columns, or 16 pairs, a block.
    assert!(codes.iter().all(|codes| codes.len() >= pairs / 16 * L::CODES));
    let panels = codes.map(|codes| codes.as_ptr().cast::<u8>());
    let mut sums = [[_mm512_setzero_ps(); P]; R];
    let size = L::CODES * 64 / 16;
    for pair in 0..pairs {
        // The first rows alone wait for the memory. Behind the end of a panel comes one that is in use; but the next are
        // as many panels further.
        if row == 0 {
            let skip = if pair + FAR < pairs { 0 } else { (P - 1) * pairs * size };
            for panel in panels {
                for line in 0..size / 64 {
                    _mm_prefetch::<_MM_HINT_T1>(panel.wrapping_add((pair + FAR) * size + skip + line * 64).cast());
                    _mm_prefetch::<_MM_HINT_T0>(panel.wrapping_add((pair + NEAR) * size + line * 64).cast());
                }
            }
        }
        // SAFETY: the pair is one of those that were asserted to be there; each of the rows has as many.
        unsafe {
            let mut weights = [[_mm512_setzero_ps(); 2]; P];
            for (weights, panel) in weights.iter_mut().zip(&panels) {
                *weights = L::pair(*panel, pair);
            }
            for (sums, row) in sums.iter_mut().zip(&rows) {
                for k in 0..2 {
                    let x = _mm512_set1_ps(*row.get_unchecked(2 * pair + k));
                    for (sum, weight) in sums.iter_mut().zip(&weights) {
                        *sum = _mm512_fmadd_ps(weight[k], x, *sum);
                    }
                }
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        for (p, sum) in sums.iter().enumerate() {
            let mut out = [0.0; PANEL];
            // SAFETY: there is room for 16 numbers; the rest is passed on to the caller.
            unsafe {
                _mm512_storeu_ps(out.as_mut_ptr(), *sum);
                part.out.store(row + i, panel + p, &out);
            }
        }
    }
    R
}
