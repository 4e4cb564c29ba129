//! Many rows with AMX: products of matrices in [tile registers](kvlab_cpu::tiles), where numbers are sums of two bf16.
//!
//! Weights are unpacked once for all rows, whatever their format, and need no scales then. Activations come in tiles
//! ([`Tiles`]).
#![allow(unsafe_code)]

use super::Part;
use super::float::Columns;
use super::integer::Integers;
use super::vector::Wide;
use crate::Precision;
use crate::layout::{BF16, BLOCK, F16, HALF, Line, PANEL, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use crate::packed::{Panel, with_codes};
use crate::tiles::{HEIGHT, LINES, Tiles};
use bytemuck::Zeroable;
use kvlab_cpu::tiles::{Parts, Place, Product, Tiles as Registers, in_pairs, split};
use std::arch::x86_64::*;
use std::cell::Cell;
use std::ops::Range;

/// Panels that are multiplied together, and tiles of activations.
const TWO: usize = 2;
/// Most blocks that are unpacked at a time: with two tiles of activations they fit into the nearest cache.
const CHUNK: usize = 18;
/// Most panels that are unpacked at a time: so often are activations used once they are near.
const GROUP: usize = 12;
/// Lines of an unpacked block of a panel: pairs of columns, upper parts and then lower ones.
const WEIGHT: usize = BLOCK;

/// How a block is unpacked.
trait Source {
    /// Whether a number is one bf16, and so has no lower part.
    const ONE: bool;

    /// Writes the numbers of a block: [`put`] for each pair of columns. If `UPPER`, lower parts are left out.
    ///
    /// # Safety
    /// The panel has this block; the machine has AVX-512 (F, BW, VL, DQ, BF16).
    unsafe fn unpack<const UPPER: bool>(panel: Panel<'_>, block: usize, out: &mut [Line; WEIGHT]);
}

/// # Safety
/// As [`super::compute`], for a weight that is not F32, with AMX (TILE and BF16) and AVX-512 (F, BW, VL, DQ, BF16).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn compute(part: &Part<'_>, x: &Tiles) {
    // SAFETY: passed on to the caller.
    unsafe { with_codes!(part.weight.format(), all_panels(part, x)) }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn all_panels<L: Source>(part: &Part<'_>, x: &Tiles) {
    // SAFETY: passed on to the caller.
    let registers = unsafe { Registers::new() };
    let mut room = ROOM.take();
    room.weights.resize(GROUP * CHUNK * WEIGHT, Line::zeroed());
    for first in part.panels.clone().step_by(GROUP) {
        let panels = first..part.panels.end.min(first + GROUP);
        // SAFETY: passed on to the caller.
        unsafe { some_panels::<L>(part, panels, &mut room, x, &registers) };
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

/// What a thread works with, kept for its next part: fresh memory is slow.
#[derive(Default)]
struct Room {
    /// `[panels][blocks][WEIGHT]`
    weights: Vec<Line>,
    /// `[pairs of tiles][pairs of panels][rows][panels]`
    sums: Vec<Line>,
}

/// Some panels times all rows. If their number is odd, one more is multiplied, whose numbers are any, and nobody reads what
/// comes out.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn some_panels<L: Source>(
    part: &Part<'_>,
    panels: Range<usize>,
    room: &mut Room,
    x: &Tiles,
    registers: &Registers,
) {
    let parts = match part.weight.precision() {
        Precision::Medium => Parts::Upper,
        _ if L::ONE => Parts::Left,
        _ => Parts::Both,
    };
    let even = panels.len().next_multiple_of(TWO);
    let all = part.weight.cols().div_ceil(BLOCK);
    let chunk = all.div_ceil(all.div_ceil(CHUNK));
    let len = even * HEIGHT * x.tiles();
    if room.sums.len() < len {
        room.sums.resize(len, Line::zeroed());
    }
    let sums = &mut room.sums[..len];
    for first in (0..all).step_by(chunk) {
        let blocks = first..all.min(first + chunk);
        let weights = &mut room.weights[..even * blocks.len() * WEIGHT];
        for (panel, weights) in panels.clone().zip(weights.chunks_exact_mut(blocks.len() * WEIGHT)) {
            for (block, out) in blocks.clone().zip(weights.as_chunks_mut().0) {
                let panel = part.weight.panel(panel);
                // SAFETY: passed on to the caller.
                unsafe {
                    match parts {
                        Parts::Both => L::unpack::<false>(panel, block, out),
                        Parts::Left | Parts::Upper => L::unpack::<true>(panel, block, out),
                    }
                }
            }
        }
        for (i, sums) in sums.chunks_mut(TWO * even * HEIGHT).enumerate() {
            let (tile, tiles) = (TWO * i, sums.len() / (even * HEIGHT));
            let a = [x.lines(tile, first), x.lines(tile + tiles - 1, first)];
            let weights = weights.chunks_exact(TWO * blocks.len() * WEIGHT);
            let pairs = panels
                .clone()
                .step_by(TWO)
                .zip(sums.chunks_exact_mut(tiles * TWO * HEIGHT));
            for ((panel, sums), weights) in pairs.zip(weights) {
                let rows = tile * HEIGHT..x.rows().min((tile + tiles) * HEIGHT);
                let last = blocks.end == all;
                // Straight into the output, if there is a place for every number.
                let full = rows.len() == tiles * HEIGHT && part.weight.rows() >= (panel + TWO) * PANEL;
                let direct = (last && full && panel + TWO <= panels.end).then(|| part.out.place(rows.start, panel));
                if let Some(Place { first, stride }) = direct {
                    // Rows lie far apart: while the products are made, the memory is asked for all of them.
                    for row in 0..rows.len() {
                        for line in 0..TWO {
                            let to = first.wrapping_byte_add(row * stride + line * size_of::<Line>());
                            _mm_prefetch::<_MM_HINT_ET0>(to.cast_const().cast());
                        }
                    }
                }
                let sums_here = Place {
                    first: sums.as_mut_ptr().cast(),
                    stride: TWO * size_of::<Line>(),
                };
                // Later on nothing checks that they are there.
                let enough = a.iter().all(|a| a.len() >= blocks.len() * LINES);
                assert!(enough && weights.len() == TWO * blocks.len() * WEIGHT);
                // SAFETY: as asserted, there are so many blocks of each, and sums of the tiles; the caller promises that nobody
                // else writes the output.
                unsafe {
                    registers.multiply(&Product {
                        blocks: blocks.len(),
                        tiles,
                        left: a.map(|a| a.as_ptr().cast()),
                        right: [weights.as_ptr(), weights[blocks.len() * WEIGHT..].as_ptr()].map(<*const Line>::cast),
                        parts,
                        sums: (first > 0).then_some(sums_here),
                        to: direct.unwrap_or(sums_here),
                    });
                }
                if last && direct.is_none() {
                    for (row, sums) in rows.zip(sums.as_chunks::<TWO>().0) {
                        for (panel, sums) in (panel..panels.end).zip(sums) {
                            // SAFETY: the caller promises that nobody else writes there.
                            unsafe { part.out.store(row, panel, bytemuck::cast_ref(&sums.0)) };
                        }
                    }
                }
            }
        }
    }
}

/// Writes columns `2 i` and `2 i + 1` of a block, side by side.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn put<const UPPER: bool>(out: &mut [Line; WEIGHT], i: usize, first: __m512, second: __m512) {
    let (upper, lower) = split(first, second);
    // SAFETY: a line has room for 32 numbers.
    unsafe {
        _mm512_store_si512(out[i].0.as_mut_ptr().cast(), in_pairs(upper));
        if !UPPER {
            _mm512_store_si512(out[HALF + i].0.as_mut_ptr().cast(), in_pairs(lower));
        }
    }
}

/// Unpacks a block of a format that is quantised.
///
/// # Safety
/// As [`Source::unpack`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn quantised<L: Integers, const UPPER: bool>(panel: Panel<'_>, block: usize, out: &mut [Line; WEIGHT]) {
    assert!(panel.codes.len() >= (block + 1) * L::CODES);
    // SAFETY: the codes are there, as are the scales of every block.
    let (codes, (scales, minimum)) = unsafe {
        (
            L::codes(panel.codes.as_ptr().add(block * L::CODES).cast()),
            L::scales::<Wide>(panel.scales.as_ptr().cast(), block, 0),
        )
    };
    let byte = _mm512_set1_epi32(255);
    for (four, codes) in codes.into_iter().enumerate() {
        let scale = scales[four * 4 / HALF];
        // A number is `scale * (code - OFFSET) + minimum`.
        let least = _mm512_fnmadd_ps(scale, _mm512_set1_ps(L::OFFSET as f32), minimum);
        let columns = [
            _mm512_and_si512(codes, byte),
            _mm512_and_si512(_mm512_srli_epi32::<8>(codes), byte),
            _mm512_and_si512(_mm512_srli_epi32::<16>(codes), byte),
            _mm512_srli_epi32::<24>(codes),
        ];
        for (i, [first, second]) in columns.as_chunks().0.iter().enumerate() {
            let first = _mm512_fmadd_ps(_mm512_cvtepi32_ps(*first), scale, least);
            let second = _mm512_fmadd_ps(_mm512_cvtepi32_ps(*second), scale, least);
            put::<UPPER>(out, 2 * four + i, first, second);
        }
    }
}

/// Unpacks a block of a format of floats.
///
/// # Safety
/// As [`Source::unpack`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn floats<L: Columns, const UPPER: bool>(panel: Panel<'_>, block: usize, out: &mut [Line; WEIGHT]) {
    assert!(panel.codes.len() >= (block + 1) * L::CODES);
    for i in 0..HALF {
        // SAFETY: the codes are there.
        let [first, second] = unsafe { L::pair::<Wide>(panel.codes.as_ptr().add(block * L::CODES).cast(), i, 0) };
        put::<UPPER>(out, i, first, second);
    }
}

macro_rules! source {
    ($layout:ty, $unpack:ident, $one:literal) => {
        impl Source for $layout {
            const ONE: bool = $one;

            #[inline(always)]
            unsafe fn unpack<const UPPER: bool>(panel: Panel<'_>, block: usize, out: &mut [Line; WEIGHT]) {
                // SAFETY: passed on to the caller.
                unsafe { $unpack::<Self, UPPER>(panel, block, out) }
            }
        }
    };
}

source!(F16, floats, false);
source!(BF16, floats, true);
source!(Q4_0, quantised, false);
source!(Q4_1, quantised, false);
source!(Q5_0, quantised, false);
source!(Q5_1, quantised, false);
source!(Q8_0, quantised, false);
source!(Q4K, quantised, false);
source!(Q5K, quantised, false);
source!(Q6K, quantised, false);
