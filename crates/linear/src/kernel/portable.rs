//! Every format on every processor: a block is unpacked to f32 and multiplied.
//!
//! It is plain Rust in loops over 16 lanes, which the compiler turns into the vectors of the target.

use super::Part;
use crate::input::Floats;
use crate::layout::{BLOCK, Lanes, Layout, PANEL, Tile, unpack};
use crate::packed::{Panel, with_layout};

/// Whether a multiplication and an addition are one instruction on every processor of the target; where they are not, it is a
/// call.
const FUSED: bool = cfg!(target_arch = "aarch64");
/// Most rows that a block is unpacked for: with their sums and what they are multiplied with it fits into the nearest cache.
const MANY: usize = 64;
/// Rows whose sums are in registers: four vectors of four numbers each, of 16 registers or 32.
const TOGETHER: usize = if FUSED { 4 } else { 2 };

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
    let mut sums = [[0.0; PANEL]; MANY];
    for panel in part.panels.clone() {
        let lines = part.weight.panel(panel);
        for first in (0..x.rows()).step_by(MANY) {
            let count = MANY.min(x.rows() - first);
            some_rows::<L>(lines, x, first, &mut sums[..count]);
            for (i, lanes) in sums[..count].iter().enumerate() {
                // SAFETY: passed on to the caller.
                unsafe { part.out.store(first + i, panel, lanes) };
            }
        }
    }
}

/// The panel times rows from `first` on.
fn some_rows<L: Layout>(panel: Panel<'_>, x: &Floats<'_>, first: usize, sums: &mut [Lanes]) {
    sums.fill([0.0; PANEL]);
    let mut tile: Tile = [[0.0; PANEL]; BLOCK];
    for block in 0..x.row(first).len() / BLOCK {
        unpack::<L>(panel.codes, panel.scales, block, &mut tile);
        let columns = |row: usize| -> &[f32; BLOCK] { &x.row(first + row).as_chunks().0[block] };
        let (groups, rest) = sums.as_chunks_mut::<TOGETHER>();
        let alone = groups.len() * TOGETHER;
        for (i, sums) in groups.iter_mut().enumerate() {
            add_block(&tile, std::array::from_fn(|row| columns(i * TOGETHER + row)), sums);
        }
        for (i, sums) in rest.as_chunks_mut::<1>().0.iter_mut().enumerate() {
            add_block(&tile, [columns(alone + i)], sums);
        }
    }
}

/// Adds a block's products with `R` rows.
#[inline(always)]
fn add_block<const R: usize>(tile: &Tile, x: [&[f32; BLOCK]; R], sums: &mut [Lanes; R]) {
    let mut held = *sums;
    for (column, weights) in tile.iter().enumerate() {
        for (held, x) in held.iter_mut().zip(x) {
            for (sum, weight) in held.iter_mut().zip(weights) {
                *sum = if FUSED {
                    weight.mul_add(x[column], *sum)
                } else {
                    *sum + weight * x[column]
                };
            }
        }
    }
    *sums = held;
}
