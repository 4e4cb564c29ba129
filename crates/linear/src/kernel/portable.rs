//! Every format on every processor: a block is unpacked to f32 and multiplied.
//!
//! It is plain Rust in loops over 16 lanes, which the compiler turns into the vectors of the target; it is compiled
//! twice on x86-64, once with AVX2.

use super::{Part, ROWS};
use crate::input::Floats;
use crate::layout::{BLOCK, Layout, PANEL, Tile, unpack};
use crate::packed::{Panel, with_layout};
use kvlab_cpu::Isa;

/// # Safety
/// As [`super::compute`].
#[allow(unsafe_code)]
pub(super) unsafe fn compute(isa: Isa, part: &Part<'_>, x: &Floats<'_>) {
    #[cfg(target_arch = "x86_64")]
    if isa >= Isa::Avx2 {
        // SAFETY: the machine has it, and the rest is passed on to the caller.
        return unsafe { avx2(part, x) };
    }
    let _ = isa;
    // SAFETY: passed on to the caller.
    unsafe { any(part, x) };
}

/// # Safety
/// As [`super::compute`], with AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2(part: &Part<'_>, x: &Floats<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { with_layout!(part.weight.format(), all_rows_fused(part, x)) }
}

/// # Safety
/// As [`super::compute`].
#[allow(unsafe_code)]
unsafe fn any(part: &Part<'_>, x: &Floats<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { with_layout!(part.weight.format(), all_rows_plain(part, x)) }
}

/// # Safety
/// As [`super::compute`]; without FMA in the instruction set it is right and very slow.
#[allow(unsafe_code)]
#[inline(always)]
unsafe fn all_rows_fused<L: Layout>(part: &Part<'_>, x: &Floats<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { all_rows::<L, true>(part, x) }
}

/// # Safety
/// As [`super::compute`].
#[allow(unsafe_code)]
#[inline(always)]
unsafe fn all_rows_plain<L: Layout>(part: &Part<'_>, x: &Floats<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { all_rows::<L, false>(part, x) }
}

#[allow(unsafe_code)]
#[inline(always)]
unsafe fn all_rows<L: Layout, const FUSED: bool>(part: &Part<'_>, x: &Floats<'_>) {
    for panel in part.panels.clone() {
        let lines = part.weight.panel(panel);
        let mut row = 0;
        while row < x.rows() {
            let count = (x.rows() - row).min(ROWS);
            let sums = match count {
                1 => some_rows::<L, 1, FUSED>(lines, x, row),
                2..=4 => some_rows::<L, 4, FUSED>(lines, x, row),
                _ => some_rows::<L, ROWS, FUSED>(lines, x, row),
            };
            for (i, lanes) in sums[..count].iter().enumerate() {
                // SAFETY: passed on to the caller.
                unsafe { part.out.store(row + i, panel, lanes) };
            }
            row += count;
        }
    }
}

/// The panel times `R` rows from `row` on. Rows that do not exist are taken from the last one, and not asked for.
#[inline(always)]
fn some_rows<L: Layout, const R: usize, const FUSED: bool>(
    panel: Panel<'_>,
    x: &Floats<'_>,
    row: usize,
) -> [[f32; PANEL]; ROWS] {
    let rows: [&[f32]; R] = std::array::from_fn(|i| x.row((row + i).min(x.rows() - 1)));
    let mut sums = [[0.0; PANEL]; ROWS];
    let mut tile: Tile = [[0.0; PANEL]; BLOCK];
    for block in 0..rows[0].len() / BLOCK {
        unpack::<L>(panel.codes, panel.scales, block, &mut tile);
        for (i, x) in rows.iter().enumerate() {
            let mut sum = sums[i];
            for (lanes, x) in tile.iter().zip(&x[block * BLOCK..][..BLOCK]) {
                for (sum, weight) in sum.iter_mut().zip(lanes) {
                    *sum = if FUSED {
                        weight.mul_add(*x, *sum)
                    } else {
                        *sum + weight * x
                    };
                }
            }
            sums[i] = sum;
        }
    }
    sums
}
