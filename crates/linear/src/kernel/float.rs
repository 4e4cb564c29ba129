//! Floats: the rows of a column in registers, times one number of the activations.
#![allow(unsafe_code)]

use super::vector::{MOST_PARTS, Narrow, Vector, Wide};
use super::{Part, ROWS};
use crate::Format;
use crate::input::Floats;
use crate::layout::{BF16, F16, F32, Layout, Line, PANEL};
use kvlab_cpu::Isa;
use std::arch::x86_64::*;

/// Panels that are read together for few rows, so that additions do not wait for each other.
const MANY: usize = 4;
/// For more; others would not fit the registers.
const SOME: usize = 2;
/// Most rows that are multiplied together with AVX2, which has half as many registers.
const NARROW_ROWS: usize = 6;

/// How far ahead of the columns in use the memory is asked for, in pairs: for the second cache, and for the nearest one.
const FAR: usize = 48;
const NEAR: usize = 16;

/// How columns become f32.
pub(super) trait Columns: Layout {
    /// Columns `2 i` and `2 i + 1` of a panel, from a row on.
    ///
    /// # Safety
    /// `panel` points to the codes of a panel that has them; the machine has what the vector needs.
    unsafe fn pair<V: Vector>(panel: *const u8, i: usize, row: usize) -> [V::Floats; 2];
}

impl Columns for F32 {
    #[inline(always)]
    unsafe fn pair<V: Vector>(panel: *const u8, i: usize, row: usize) -> [V::Floats; 2] {
        // SAFETY: passed on to the caller.
        unsafe {
            let first = panel.add(i * 128 + 4 * row).cast::<f32>();
            [V::load_floats(first), V::load_floats(first.add(PANEL))]
        }
    }
}

impl Columns for F16 {
    #[inline(always)]
    unsafe fn pair<V: Vector>(panel: *const u8, i: usize, row: usize) -> [V::Floats; 2] {
        // SAFETY: passed on to the caller.
        unsafe {
            let first = panel.add(i * 64 + 2 * row);
            [V::from_f16(first), V::from_f16(first.add(2 * PANEL))]
        }
    }
}

impl Columns for BF16 {
    #[inline(always)]
    unsafe fn pair<V: Vector>(panel: *const u8, i: usize, row: usize) -> [V::Floats; 2] {
        // SAFETY: passed on to the caller.
        unsafe { V::from_bf16(V::load(panel.add(i * 64 + 4 * row))) }
    }
}

/// # Safety
/// As [`super::compute`], for a weight of floats, with AVX2.
pub(super) unsafe fn compute(isa: Isa, part: &Part<'_>, x: &Floats<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        match isa >= Isa::Avx512 {
            true => wide(part, x),
            false => narrow(part, x),
        }
    }
}

/// # Safety
/// As [`compute`], with AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn wide(part: &Part<'_>, x: &Floats<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        match part.weight.format() {
            Format::F32 => all_rows::<F32, Wide>(part, x),
            Format::F16 => all_rows::<F16, Wide>(part, x),
            Format::BF16 => all_rows::<BF16, Wide>(part, x),
            _ => unreachable!("quantised formats have a kernel of their own"),
        }
    }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn narrow(part: &Part<'_>, x: &Floats<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        match part.weight.format() {
            Format::F32 => all_rows::<F32, Narrow>(part, x),
            Format::F16 => all_rows::<F16, Narrow>(part, x),
            Format::BF16 => all_rows::<BF16, Narrow>(part, x),
            _ => unreachable!("quantised formats have a kernel of their own"),
        }
    }
}

/// # Safety
/// As [`compute`].
#[inline(always)]
unsafe fn all_rows<L: Columns, V: Vector>(part: &Part<'_>, x: &Floats<'_>) {
    let most = match x.rows() {
        1 => MANY,
        2..ROWS if V::PARTS == 1 => MANY,
        ROWS.. if V::PARTS == 1 => SOME,
        2..=3 => SOME,
        _ => 1,
    };
    let codes = |panel: usize| part.weight.panel(panel).codes;
    let mut panel = part.panels.start;
    while panel < part.panels.end {
        // SAFETY: passed on to the caller.
        panel += unsafe {
            match most.min(part.panels.end - panel) {
                MANY => panels::<L, V, MANY>(part, panel, std::array::from_fn(|i| codes(panel + i)), x),
                SOME.. => panels::<L, V, SOME>(part, panel, std::array::from_fn(|i| codes(panel + i)), x),
                _ => panels::<L, V, 1>(part, panel, [codes(panel)], x),
            }
        };
    }
}

/// `P` panels from `panel` on, whose codes are given, times all rows; gives back `P`.
///
/// # Safety
/// As [`compute`].
#[inline(always)]
unsafe fn panels<L: Columns, V: Vector, const P: usize>(
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
                1 => some_rows::<L, V, P, 1>(part, panel, &codes, x, row),
                2..=3 => some_rows::<L, V, P, 2>(part, panel, &codes, x, row),
                ROWS.. if V::PARTS == 1 && P <= SOME => some_rows::<L, V, P, ROWS>(part, panel, &codes, x, row),
                NARROW_ROWS.. if V::PARTS > 1 && P == 1 => {
                    some_rows::<L, V, P, NARROW_ROWS>(part, panel, &codes, x, row)
                }
                _ => some_rows::<L, V, P, 4>(part, panel, &codes, x, row),
            }
        };
    }
    P
}

/// `P` panels times `R` rows from `row` on; gives back `R`.
///
/// # Safety
/// As [`compute`].
#[inline(always)]
unsafe fn some_rows<L: Columns, V: Vector, const P: usize, const R: usize>(
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
    let size = L::CODES * 64 / 16;
    // SAFETY: the pair is one of those that were asserted to be there; each of the rows has as many. Below there is room for 16
    // numbers; the rest is passed on to the caller.
    unsafe {
        let mut sums = [[[V::float(0.0); MOST_PARTS]; P]; R];
        for pair in 0..pairs {
            // The first rows alone wait for the memory. Behind the end of a panel comes one that is in use; but the next are
            // as many panels further.
            if row == 0 {
                let skip = if pair + FAR < pairs { 0 } else { (P - 1) * pairs * size };
                for panel in panels {
                    for line in 0..size / 64 {
                        let line = line * 64;
                        _mm_prefetch::<_MM_HINT_T1>(panel.wrapping_add((pair + FAR) * size + skip + line).cast());
                        _mm_prefetch::<_MM_HINT_T0>(panel.wrapping_add((pair + NEAR) * size + line).cast());
                    }
                }
            }
            let mut weights = [[[V::float(0.0); 2]; MOST_PARTS]; P];
            for (weights, panel) in weights.iter_mut().zip(&panels) {
                for (p, weights) in weights.iter_mut().enumerate().take(V::PARTS) {
                    *weights = L::pair::<V>(*panel, pair, p * V::ROWS);
                }
            }
            for (sums, row) in sums.iter_mut().zip(&rows) {
                for k in 0..2 {
                    let x = V::float(*row.get_unchecked(2 * pair + k));
                    for (sums, weights) in sums.iter_mut().zip(&weights) {
                        for (sum, weight) in sums.iter_mut().zip(weights).take(V::PARTS) {
                            *sum = V::fused(weight[k], x, *sum);
                        }
                    }
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            for (p, sums) in sums.iter().enumerate() {
                let mut out = [0.0; PANEL];
                for (sum, out) in sums.iter().zip(out.chunks_exact_mut(V::ROWS)) {
                    V::store_floats(out.as_mut_ptr(), *sum);
                }
                part.out.store(row + i, panel + p, &out);
            }
        }
    }
    R
}
