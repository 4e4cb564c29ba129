//! Floats with AVX-512: 16 rows of a column in a register, times one number of the activations.
#![allow(unsafe_code)]

use super::{Part, ROWS};
use crate::Format;
use crate::input::Floats;
use crate::layout::{BF16, F16, F32, Layout, PANEL};
use std::arch::x86_64::*;

/// Panels that are read together for few rows, so that additions do not wait for each other.
const MANY: usize = 4;
/// For eight rows; more would not fit the registers.
const SOME: usize = 2;

/// How columns become f32.
trait Columns: Layout {
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
        unsafe { std::array::from_fn(|k| _mm512_loadu_ps(panel.add((2 * i + k) * 64).cast())) }
    }
}

impl Columns for F16 {
    #[inline(always)]
    unsafe fn pair(panel: *const u8, i: usize) -> [__m512; 2] {
        // SAFETY: passed on to the caller.
        unsafe { std::array::from_fn(|k| _mm512_cvtph_ps(_mm256_loadu_si256(panel.add((2 * i + k) * 32).cast()))) }
    }
}

impl Columns for BF16 {
    #[inline(always)]
    unsafe fn pair(panel: *const u8, i: usize) -> [__m512; 2] {
        // SAFETY: passed on to the caller.
        unsafe {
            let both = _mm512_loadu_si512(panel.add(i * 64).cast());
            let upper = _mm512_and_si512(both, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            [_mm512_slli_epi32::<16>(both), upper].map(|bits| _mm512_castsi512_ps(bits))
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
    let mut panel = part.panels.start;
    while panel < part.panels.end {
        let left = part.panels.end - panel;
        let panels = if left >= MANY {
            MANY
        } else if left >= SOME {
            SOME
        } else {
            1
        };
        let mut row = 0;
        while row < x.rows() {
            // SAFETY: passed on to the caller.
            row += unsafe {
                match (panels, x.rows() - row) {
                    (MANY, 1) => some_rows::<L, MANY, 1>(part, panel, x, row),
                    (MANY, 2..=3) => some_rows::<L, MANY, 2>(part, panel, x, row),
                    (MANY, 4..=7) => some_rows::<L, MANY, 4>(part, panel, x, row),
                    (MANY, _) => {
                        some_rows::<L, SOME, ROWS>(part, panel, x, row);
                        some_rows::<L, SOME, ROWS>(part, panel + SOME, x, row)
                    }
                    (SOME, 1..ROWS) => some_rows::<L, SOME, 1>(part, panel, x, row),
                    (SOME, _) => some_rows::<L, SOME, ROWS>(part, panel, x, row),
                    (_, 1..ROWS) => some_rows::<L, 1, 1>(part, panel, x, row),
                    _ => some_rows::<L, 1, ROWS>(part, panel, x, row),
                }
            };
        }
        panel += panels;
    }
}

/// `P` panels times `R` rows from `row` on; gives back `R`.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn some_rows<L: Columns, const P: usize, const R: usize>(
    part: &Part<'_>,
    panel: usize,
    x: &Floats<'_>,
    row: usize,
) -> usize {
    let rows: [&[f32]; R] = std::array::from_fn(|i| x.row(row + i));
    let panels: [_; P] = std::array::from_fn(|i| part.weight.panel(panel + i).codes);
    let pairs = rows[0].len() / 2;
    // Later on nothing checks that they are there: 32 columns, or 16 pairs, a block.
    assert!(panels.iter().all(|codes| codes.len() >= pairs / 16 * L::CODES));
    let panels = panels.map(|codes| codes.as_ptr().cast::<u8>());
    let mut sums = [[_mm512_setzero_ps(); P]; R];
    for pair in 0..pairs {
        // SAFETY: the pair is one of those that were asserted to be there; each of the rows has as many.
        unsafe {
            let weights = panels.map(|panel| L::pair(panel, pair));
            for (sums, row) in sums.iter_mut().zip(rows) {
                for k in 0..2 {
                    let x = _mm512_set1_ps(*row.get_unchecked(2 * pair + k));
                    for (sum, weight) in sums.iter_mut().zip(weights) {
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
