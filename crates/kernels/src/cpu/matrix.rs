//! Many queries with tile registers (AMX): scores and sums of rows as products of matrices.
//!
//! Queries, rows and weights are sums of two bf16 ([`kvlab_cpu::tiles`]), whatever the format of the rows: 16 to 17 bits. Rows
//! are unpacked once for all queries of a unit; their keys are turned, so that a row becomes a column, and their values come in
//! pairs of rows.

#![allow(unsafe_code, unused_unsafe)] // Loads of vectors through pointers; what each must have room for is said beside it.
#![allow(clippy::needless_range_loop)] // One index goes through several arrays.

use super::inner::{Lines, Queries};
use super::simd::Simd;
use super::simd::avx512::Avx512;
use super::tile::ROWS;
use super::unpack::{BF16, F16, F32, vector};
use kvlab_cpu::tiles::{self, BLOCK, LINE, LINES, Parts, Place, Product, Tiles, in_pairs, put_left, split};
use std::arch::x86_64::*;

/// Numbers of a register.
const LANES: usize = 16;
/// f32 numbers that a block has room for.
const NUMBERS: usize = LINES * LINE / size_of::<f32>();

/// Fewer queries of a head are dearer this way.
pub const LEAST: usize = 48;

/// How many queries there is room for, if there are so many.
pub fn padded(queries: usize) -> usize {
    queries.next_multiple_of(tiles::ROWS)
}

/// How many numbers of a vector there is room for.
pub fn width(dim: usize) -> usize {
    dim.next_multiple_of(BLOCK)
}

/// f32 numbers that the tiles of so many queries or rows take, with so many numbers each.
pub fn room(rows: usize, numbers: usize) -> usize {
    padded(rows) / tiles::ROWS * numbers.div_ceil(BLOCK) * NUMBERS
}

/// Line number `line` of a block, as f32 numbers.
#[inline(always)]
fn at(to: *mut f32, block: usize, line: usize) -> *mut f32 {
    to.wrapping_add(block * NUMBERS + line * LANES)
}

/// Rows of f32 numbers, `stride` from one to the next, as the left side of a product: `[tiles][blocks][LINES]`. The first `dim`
/// numbers count.
///
/// # Safety
/// The rows are there, `to` has [`room`], and the processor has AVX-512 (F, BW, BF16).
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn left(rows: Queries, dim: usize, to: *mut f32) {
    let blocks = dim.div_ceil(BLOCK);
    for i in 0..rows.count {
        for block in 0..blocks {
            let from = rows.first.wrapping_add(i * rows.stride + block * BLOCK);
            let to = at(to, i / tiles::ROWS * blocks + block, i % tiles::ROWS);
            // SAFETY: the caller's promise.
            unsafe { put_left(from, dim - block * BLOCK, to.cast()) };
        }
    }
}

/// Calls a loop that is compiled for each format in which rows are read where they lie.
macro_rules! for_floats {
    ($function:ident, $lines:ident, $to:ident) => {
        match $lines.format {
            F16 => $function::<F16>($lines, $to),
            BF16 => $function::<BF16>($lines, $to),
            _ => $function::<F32>($lines, $to),
        }
    };
}

/// Rows as columns of the right side of a product: `[16 rows each][blocks][LINES]`.
///
/// # Safety
/// Rows have their vectors, up to a multiple of 16 of them; `to` has [`room`]; the processor has AVX-512 (F, BW, DQ, BF16).
pub unsafe fn keys(lines: Lines<'_>, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe { for_floats!(keys_of, lines, to) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
unsafe fn keys_of<const K: u8>(lines: Lines<'_>, to: *mut f32) {
    let blocks = lines.vectors.div_ceil(2);
    // SAFETY: the promise of `keys`.
    unsafe {
        for first in (0..lines.len).step_by(LANES) {
            lines.ahead.ask::<Avx512>(first, LANES);
            for block in 0..blocks {
                let mut upper = [_mm512_setzero_ps(); LANES];
                let mut lower = [_mm512_setzero_ps(); LANES];
                for i in 0..LANES {
                    let row = lines.place.row(first + i);
                    let a = vector::<Avx512, K>(row, 2 * block);
                    let b = match 2 * block + 1 < lines.vectors {
                        true => vector::<Avx512, K>(row, 2 * block + 1),
                        false => _mm512_setzero_ps(),
                    };
                    let (high, low) = split(a, b);
                    upper[i] = _mm512_castsi512_ps(high);
                    lower[i] = _mm512_castsi512_ps(low);
                }
                let block = first / LANES * blocks + block;
                Avx512::transpose(&upper, at(to, block, 0), LANES);
                Avx512::transpose(&lower, at(to, block, tiles::ROWS), LANES);
            }
        }
    }
}

/// Rows as rows of the right side of a product: `[vectors, rounded up to two][blocks of 32 rows][LINES]`.
///
/// # Safety
/// As [`keys`].
pub unsafe fn values(lines: Lines<'_>, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe { for_floats!(values_of, lines, to) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
unsafe fn values_of<const K: u8>(lines: Lines<'_>, to: *mut f32) {
    let (blocks, even) = (lines.len.div_ceil(BLOCK), lines.vectors.next_multiple_of(2));
    // SAFETY: the promise of `values`.
    unsafe {
        for pair in 0..blocks * BLOCK / 2 {
            lines.ahead.ask::<Avx512>(2 * pair, 2);
            let (block, line) = (pair / LANES, pair % LANES);
            for v in 0..even {
                // What is not there is zero: whatever its weight is times.
                let mut both = [_mm512_setzero_ps(); 2];
                for i in 0..2 {
                    if 2 * pair + i < lines.len && v < lines.vectors {
                        both[i] = vector::<Avx512, K>(lines.place.row(2 * pair + i), v);
                    }
                }
                let (upper, lower) = split(both[0], both[1]);
                let block = v * blocks + block;
                _mm512_store_si512(at(to, block, line).cast(), in_pairs(upper));
                _mm512_store_si512(at(to, block, tiles::ROWS + line).cast(), in_pairs(lower));
            }
        }
    }
}

/// `sums = left * right`, or `sums += left * right`: so many rows, two tiles at a time, times so many pairs of columns of 16.
///
/// # Safety
/// Both sides have their tiles of so many blocks, as [`left`], [`keys`] and [`values`] write them; there is room for the rows,
/// up to a multiple of 16; the processor has AMX.
pub unsafe fn multiply(
    registers: &Tiles,
    [left, right]: [*const f32; 2],
    blocks: usize,
    pairs: usize,
    sums: Queries,
    add: bool,
) {
    let tile = |side: *const f32, i: usize| side.wrapping_add(i * blocks * NUMBERS).cast();
    let all = sums.count.div_ceil(tiles::ROWS);
    for first in (0..all).step_by(2) {
        for pair in 0..pairs {
            let place = Place {
                first: sums
                    .first
                    .wrapping_add(first * tiles::ROWS * sums.stride + pair * BLOCK),
                stride: sums.stride * size_of::<f32>(),
            };
            // SAFETY: the caller's promise.
            unsafe {
                registers.multiply(&Product {
                    blocks,
                    tiles: (all - first).min(2),
                    left: [tile(left, first), tile(left, first + 1)],
                    right: [tile(right, 2 * pair), tile(right, 2 * pair + 1)],
                    parts: Parts::Both,
                    sums: add.then_some(place),
                    to: place,
                });
            }
        }
    }
}

/// Room of queries, of a tile's keys and its values, and of the weights of its rows.
pub fn rooms(queries: usize, key: usize, value: usize) -> [usize; 4] {
    let values = width(value) / LANES * ROWS.div_ceil(BLOCK) * NUMBERS;
    [room(queries, key), room(ROWS, key), values, room(queries, ROWS)]
}
