//! The loops that do the arithmetic: scores of queries and rows, and weighted sums of rows.
//!
//! Rows come as pointers, in a float format or as f32 from [`unpack`](super::unpack). Scores lie `[queries][ROWS]`.

#![allow(unsafe_code)] // Loads of vectors through pointers; what each must have room for is said beside it.

use super::simd::{Op, Simd};
use super::tile::ROWS;
use super::unpack::{BF16, F16, F32, vector};

/// The rows of a head in a tile, in a format that the loops read.
#[derive(Clone, Copy)]
pub struct Lines<'a> {
    pub format: u8,
    /// Filled up with copies of the last one.
    pub rows: &'a [*const u8; ROWS],
    /// Those that count.
    pub len: usize,
    /// Vectors of a row that are looked at.
    pub vectors: usize,
    /// Lines to ask for while these are read.
    pub ahead: Ahead<'a>,
}

/// Rows of a later tile.
#[derive(Clone, Copy)]
pub struct Ahead<'a> {
    pub rows: &'a [*const u8],
    /// Bytes of a row.
    pub width: usize,
}

impl Ahead<'_> {
    pub const NOTHING: Ahead<'static> = Ahead { rows: &[], width: 0 };

    /// Asks for the lines of some rows.
    #[inline(always)]
    unsafe fn ask<S: Simd>(&self, from: usize, rows: usize) {
        let end = (from + rows).min(self.rows.len());
        for row in &self.rows[from.min(end)..end] {
            let mut at = 0;
            while at < self.width {
                // SAFETY: an address is asked for, not read.
                unsafe { S::prefetch(row.wrapping_add(at)) };
                at += 64;
            }
        }
    }
}

/// Vectors of queries, or of their sums: `stride` numbers from one to the next.
#[derive(Clone, Copy)]
pub struct Queries {
    pub first: *mut f32,
    pub stride: usize,
    pub count: usize,
}

impl Queries {
    fn from(self, first: usize) -> Self {
        Self {
            first: self.first.wrapping_add(first * self.stride),
            count: self.count - first,
            ..self
        }
    }

    /// Size of the next block, where blocks have at most `most` and are nearly alike.
    fn block(self, most: usize) -> usize {
        self.count.div_ceil(self.count.div_ceil(most).max(1))
    }
}

/// Calls a loop that is compiled for each format and each number of queries.
macro_rules! for_queries {
    ($s:ident, $op:ident, $format:expr, $n:expr, $fields:tt) => {
        match $format {
            F16 => for_queries!(@ $s, $op, F16, $n, $fields),
            BF16 => for_queries!(@ $s, $op, BF16, $n, $fields),
            _ => for_queries!(@ $s, $op, F32, $n, $fields),
        }
    };
    (@ $s:ident, $op:ident, $format:ident, $n:expr, $fields:tt) => {
        match $n {
            2 if const { $s::QUERIES >= 2 } => $s::call($op::<$format, 2> $fields),
            3 if const { $s::QUERIES >= 3 } => $s::call($op::<$format, 3> $fields),
            4 if const { $s::QUERIES >= 4 } => $s::call($op::<$format, 4> $fields),
            5 if const { $s::QUERIES >= 5 } => $s::call($op::<$format, 5> $fields),
            6 if const { $s::QUERIES >= 6 } => $s::call($op::<$format, 6> $fields),
            _ => $s::call($op::<$format, 1> $fields),
        }
    };
}

/// Scores of queries and rows.
///
/// # Safety
/// Rows and queries have the vectors, `out` has room, and the processor has `S`.
pub unsafe fn scores<S: Simd>(mut lines: Lines<'_>, queries: Queries, out: *mut f32) {
    let mut first = 0;
    while first < queries.count {
        let q = queries.from(first);
        let n = q.block(S::QUERIES);
        let out = out.wrapping_add(first * ROWS);
        // SAFETY: the caller's promise, for the queries from `first` on.
        unsafe { for_queries!(S, Scores, lines.format, n, { lines, q, out }) };
        lines.ahead = Ahead::NOTHING;
        first += n;
    }
}

struct Scores<'a, const K: u8, const Q: usize> {
    lines: Lines<'a>,
    q: Queries,
    out: *mut f32,
}

impl<const K: u8, const Q: usize> Op for Scores<'_, K, Q> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { lines, q, out } = self;
        // SAFETY: the promise of `scores`.
        unsafe {
            for (i, rows) in lines.rows.as_chunks::<4>().0[..lines.len.div_ceil(4)]
                .iter()
                .enumerate()
            {
                lines.ahead.ask::<S>(4 * i, 4);
                let mut sums = [[S::splat(0.0); 4]; Q];
                for v in 0..lines.vectors {
                    let k = [
                        vector::<S, K>(rows[0], v),
                        vector::<S, K>(rows[1], v),
                        vector::<S, K>(rows[2], v),
                        vector::<S, K>(rows[3], v),
                    ];
                    for (j, sums) in sums.iter_mut().enumerate() {
                        let q = S::load(q.first.add(j * q.stride + v * S::LANES));
                        for (sum, k) in sums.iter_mut().zip(k) {
                            *sum = S::fma(k, q, *sum);
                        }
                    }
                }
                for (j, sums) in sums.into_iter().enumerate() {
                    S::sums(sums, out.add(j * ROWS + 4 * i));
                }
            }
        }
    }
}

/// Writes rows as columns, `[vectors * LANES][ROWS]`.
///
/// # Safety
/// Rows have the vectors, `to` has room, and the processor has `S`.
pub unsafe fn columns<S: Simd>(lines: Lines<'_>, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match lines.format {
            F16 => S::call(Columns::<F16> { lines, to }),
            BF16 => S::call(Columns::<BF16> { lines, to }),
            _ => S::call(Columns::<F32> { lines, to }),
        }
    }
}

struct Columns<'a, const K: u8> {
    lines: Lines<'a>,
    to: *mut f32,
}

impl<const K: u8> Op for Columns<'_, K> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { lines, to } = self;
        // SAFETY: the promise of `columns`.
        unsafe {
            for i in (0..lines.len).step_by(S::LANES) {
                lines.ahead.ask::<S>(i, S::LANES);
                let mut square = [S::splat(0.0); 16];
                for v in 0..lines.vectors {
                    for (number, row) in square.iter_mut().zip(&lines.rows[i..i + S::LANES]) {
                        *number = vector::<S, K>(*row, v);
                    }
                    S::transpose(&square, to.add(v * S::LANES * ROWS + i), ROWS);
                }
            }
        }
    }
}

/// Rows as [`columns`] of `dim` numbers.
#[derive(Clone, Copy)]
pub struct Turned {
    pub columns: *const f32,
    pub rows: usize,
    pub dim: usize,
}

/// Scores of queries and columns, for the rows rounded up to two vectors.
///
/// # Safety
/// Columns and queries have the numbers, `out` has room, and the processor has `S`.
pub unsafe fn column_scores<S: Simd>(turned: Turned, queries: Queries, out: *mut f32) {
    let mut first = 0;
    while first < queries.count {
        let q = queries.from(first);
        let out = out.wrapping_add(first * ROWS);
        // SAFETY: the caller's promise, for the queries from `first` on.
        first += unsafe {
            match q.count {
                12.. if const { S::COLUMNS >= 12 } => S::call(ColumnScores::<12> { turned, q, out }),
                4.. if const { S::COLUMNS >= 4 } => S::call(ColumnScores::<4> { turned, q, out }),
                2.. => S::call(ColumnScores::<2> { turned, q, out }),
                _ => S::call(ColumnScores::<1> { turned, q, out }),
            }
        };
    }
}

struct ColumnScores<const Q: usize> {
    turned: Turned,
    q: Queries,
    out: *mut f32,
}

impl<const Q: usize> Op for ColumnScores<Q> {
    type Out = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> usize {
        let Self { turned, q, out } = self;
        // SAFETY: the promise of `column_scores`.
        unsafe {
            for row in (0..turned.rows).step_by(2 * S::LANES) {
                let mut sums = [[S::splat(0.0); 2]; Q];
                for i in 0..turned.dim {
                    let at = turned.columns.add(i * ROWS + row);
                    let k = [S::load(at), S::load(at.add(S::LANES))];
                    for (j, sums) in sums.iter_mut().enumerate() {
                        let q = S::splat(*q.first.add(j * q.stride + i));
                        sums[0] = S::fma(k[0], q, sums[0]);
                        sums[1] = S::fma(k[1], q, sums[1]);
                    }
                }
                for (j, sums) in sums.into_iter().enumerate() {
                    let out = out.add(j * ROWS + row);
                    S::store(out, sums[0]);
                    S::store(out.add(S::LANES), sums[1]);
                }
            }
        }
        Q
    }
}

/// Adds rows to the sums of every query, each with its weight.
///
/// # Safety
/// Rows and sums have the vectors, there is a weight for each row and query, and the processor has `S`.
pub unsafe fn add_rows<S: Simd>(mut lines: Lines<'_>, weights: *const f32, sums: Queries) {
    let mut first = 0;
    while first < sums.count {
        let sums = sums.from(first);
        let n = sums.block(S::QUERIES);
        let weights = weights.wrapping_add(first * ROWS);
        // SAFETY: the caller's promise, for the queries from `first` on.
        unsafe { for_queries!(S, AddRows, lines.format, n, { lines, weights, sums }) };
        lines.ahead = Ahead::NOTHING;
        first += n;
    }
}

struct AddRows<'a, const K: u8, const Q: usize> {
    lines: Lines<'a>,
    weights: *const f32,
    sums: Queries,
}

impl<const K: u8, const Q: usize> Op for AddRows<'_, K, Q> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let mut v = 0;
        while v < self.lines.vectors {
            // SAFETY: the promise of `add_rows`.
            v += unsafe {
                match self.lines.vectors - v {
                    4.. => self.part::<S, 4>(v),
                    _ => self.part::<S, 1>(v),
                }
            };
            self.lines.ahead = Ahead::NOTHING;
        }
    }
}

impl<const K: u8, const Q: usize> AddRows<'_, K, Q> {
    /// Vectors `v..v + N` of the rows.
    #[inline(always)]
    unsafe fn part<S: Simd, const N: usize>(&self, v: usize) -> usize {
        let Self { lines, weights, sums } = self;
        // SAFETY: the promise of `add_rows`.
        unsafe {
            let mut held = [[S::splat(0.0); N]; Q];
            for (j, held) in held.iter_mut().enumerate() {
                for (i, sum) in held.iter_mut().enumerate() {
                    *sum = S::load(sums.first.add(j * sums.stride + (v + i) * S::LANES));
                }
            }
            for (r, row) in lines.rows[..lines.len].iter().enumerate() {
                lines.ahead.ask::<S>(r, 1);
                let mut numbers = [S::splat(0.0); N];
                for (i, number) in numbers.iter_mut().enumerate() {
                    *number = vector::<S, K>(*row, v + i);
                }
                for (j, held) in held.iter_mut().enumerate() {
                    let weight = S::splat(*weights.add(j * ROWS + r));
                    for (sum, number) in held.iter_mut().zip(numbers) {
                        *sum = S::fma(number, weight, *sum);
                    }
                }
            }
            for (j, held) in held.into_iter().enumerate() {
                for (i, sum) in held.into_iter().enumerate() {
                    S::store(sums.first.add(j * sums.stride + (v + i) * S::LANES), sum);
                }
            }
        }
        N
    }
}
