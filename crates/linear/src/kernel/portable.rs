//! Every format on every processor: a block is unpacked to f32 and multiplied.
//!
//! It is plain Rust in loops over 16 lanes, which the compiler turns into the vectors of the target.

use super::{Part, ROWS};
use crate::input::Floats;
use crate::layout::{BLOCK, Layout, PANEL, Tile, unpack};
use crate::packed::{Panel, with_layout};

/// Whether a multiplication and an addition are one instruction on every processor of the target; where they are not, it is a
/// call.
const FUSED: bool = cfg!(target_arch = "aarch64");

/// # Safety
/// As [`super::compute`].
#[allow(unsafe_code)]
pub(super) unsafe fn compute(part: &Part<'_>, x: &Floats<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { with_layout!(part.weight.format(), all_rows(part, x)) }
}

/// # Safety
/// As [`super::compute`].
#[allow(unsafe_code)]
unsafe fn all_rows<L: Layout>(part: &Part<'_>, x: &Floats<'_>) {
    for panel in part.panels.clone() {
        let lines = part.weight.panel(panel);
        let mut row = 0;
        while row < x.rows() {
            let count = (x.rows() - row).min(ROWS);
            let sums = match count {
                1 => some_rows::<L, 1>(lines, x, row),
                2..=4 => some_rows::<L, 4>(lines, x, row),
                _ => some_rows::<L, ROWS>(lines, x, row),
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
fn some_rows<L: Layout, const R: usize>(panel: Panel<'_>, x: &Floats<'_>, row: usize) -> [[f32; PANEL]; ROWS] {
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
