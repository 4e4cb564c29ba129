//! The loops that do the arithmetic: scores of queries and rows, and weighted sums of rows.
//!
//! Rows come as pointers, in a float format or as f32 from [`unpack`](super::unpack). Scores lie `[queries][ROWS]`.

#![allow(unsafe_code)] // Loads of vectors through pointers; what each must have room for is said beside it.

use super::simd::{Op, Simd};
use super::tile::ROWS;
use super::unpack::{BF16, E4M3, E5M2, F16, F32, INT2, INT4, INT8, is_float, vector};

/// The rows of a head in a tile, in a format that the loops read.
#[derive(Clone, Copy)]
pub struct Lines<'a> {
    pub format: u8,
    pub place: Place<'a>,
    /// Those that count.
    pub len: usize,
    /// Vectors of a row that are looked at.
    pub vectors: usize,
    /// The scales of codes.
    pub scaled: Scaled,
    /// Lines to ask for while these are read.
    pub ahead: Ahead<'a>,
}

/// Where rows lie.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub base: *const u8,
    /// Bytes from `base`, for each row; up to a multiple of sixteen rows.
    pub offsets: &'a [usize; ROWS],
}

impl Place<'_> {
    #[inline(always)]
    pub fn row(&self, row: usize) -> *const u8 {
        self.base.wrapping_add(self.offsets[row])
    }
}

/// A scale and what is added, for each group of a row: a number is `code * scale + zero`. They lie `[groups][ROWS]`.
#[derive(Clone, Copy)]
pub struct Scaled {
    pub scale: *const f32,
    pub zero: *const f32,
    /// Vectors of a group.
    pub group: usize,
}

impl Scaled {
    /// For floats.
    pub const NOT: Self = Self {
        scale: std::ptr::null(),
        zero: std::ptr::null(),
        group: 1,
    };

    /// Scale and zero of a group.
    ///
    /// # Safety
    /// The row has it, and the processor has `S`.
    #[inline(always)]
    unsafe fn at<S: Simd>(&self, row: usize, group: usize) -> [S::V; 2] {
        let at = group * ROWS + row;
        // SAFETY: the caller's promise.
        unsafe { [S::splat(*self.scale.add(at)), S::splat(*self.zero.add(at))] }
    }
}

/// Rows of a later tile, with all heads of a unit: each head's loop asks for some of them, so that lines are asked for in order
/// and once.
#[derive(Clone, Copy)]
pub struct Ahead<'a> {
    pub place: Place<'a>,
    pub len: usize,
    /// Bytes of a row.
    pub width: usize,
    /// Which of how many heads this is; the latter as [`share`](Self::share) of one.
    pub head: usize,
    pub share: usize,
}

impl Ahead<'_> {
    pub const NOTHING: Ahead<'static> = Ahead {
        place: Place {
            base: std::ptr::null(),
            offsets: &[0; ROWS],
        },
        len: 0,
        width: 0,
        head: 0,
        share: 0,
    };

    /// One of so many, in parts of 2^16, rounded up.
    pub fn share(of: usize) -> usize {
        (1_usize << 16).div_ceil(of.max(1))
    }

    /// Asks for the lines of this head's share of `rows` rows.
    ///
    /// # Safety
    /// The processor has `S`.
    #[inline(always)]
    pub unsafe fn ask<S: Simd>(&self, from: usize, rows: usize) {
        let cut = |row: usize| ((self.head * ROWS + row) * self.share) >> 16;
        for row in cut(from)..cut(from + rows).min(self.len) {
            let row = self.place.row(row);
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

/// Calls a loop that is compiled for each format and each number of queries up to a limit; packed formats have fewer of the
/// latter, so that there are not too many loops.
macro_rules! for_queries {
    ($s:ident::$limit:ident, $op:ident, $format:expr, $n:expr, $fields:tt) => {
        match $format {
            F32 => for_queries!(@floats $s::$limit, $op, F32, $n, $fields),
            F16 => for_queries!(@floats $s::$limit, $op, F16, $n, $fields),
            BF16 => for_queries!(@floats $s::$limit, $op, BF16, $n, $fields),
            E4M3 => for_queries!(@packed $s::$limit, $op, E4M3, $n, $fields),
            E5M2 => for_queries!(@packed $s::$limit, $op, E5M2, $n, $fields),
            INT8 => for_queries!(@packed $s::$limit, $op, INT8, $n, $fields),
            INT4 => for_queries!(@packed $s::$limit, $op, INT4, $n, $fields),
            _ => for_queries!(@packed $s::$limit, $op, INT2, $n, $fields),
        }
    };
    (@floats $s:ident::$limit:ident, $op:ident, $format:ident, $n:expr, $fields:tt) => {
        match $n {
            5 if const { $s::$limit >= 5 } => $s::call($op::<$format, 5> $fields),
            6 if const { $s::$limit >= 6 } => $s::call($op::<$format, 6> $fields),
            _ => for_queries!(@packed $s::$limit, $op, $format, $n, $fields),
        }
    };
    (@packed $s:ident::$limit:ident, $op:ident, $format:ident, $n:expr, $fields:tt) => {
        match $n {
            2 if const { $s::$limit >= 2 } => $s::call($op::<$format, 2> $fields),
            3 if const { $s::$limit >= 3 } => $s::call($op::<$format, 3> $fields),
            4 if const { $s::$limit >= 4 } => $s::call($op::<$format, 4> $fields),
            _ => $s::call($op::<$format, 1> $fields),
        }
    };
}

/// Queries of a block of [`scores`], at most.
pub fn most<S: Simd>(format: u8) -> usize {
    of_format(format, S::QUERIES)
}

/// The queries of a block, where floats have this many at most.
fn of_format(format: u8, most: usize) -> usize {
    if is_float(format) {
        most
    } else {
        most.min(PACKED_QUERIES)
    }
}

/// The same for packed formats.
const PACKED_QUERIES: usize = 4;

/// Scores of queries and rows.
///
/// # Safety
/// Rows and queries have the vectors, `out` has room, and the processor has `S`.
pub unsafe fn scores<S: Simd>(mut lines: Lines<'_>, queries: Queries, out: *mut f32) {
    let mut first = 0;
    while first < queries.count {
        let q = queries.from(first);
        let n = q.block(most::<S>(lines.format));
        let out = out.wrapping_add(first * ROWS);
        // SAFETY: the caller's promise, for the queries from `first` on.
        unsafe { for_queries!(S::QUERIES, Scores, lines.format, n, { lines, q, out }) };
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
            for i in 0..lines.len.div_ceil(4) {
                lines.ahead.ask::<S>(4 * i, 4);
                // Loops and no closures: a closure that is not inlined has none of the caller's instructions.
                let mut rows = [std::ptr::null(); 4];
                for (row, at) in rows.iter_mut().enumerate() {
                    *at = lines.place.row(4 * i + row);
                }
                let mut sums = [[S::splat(0.0); 4]; Q];
                let mut v = 0;
                let mut group = 0;
                while v < lines.vectors {
                    let end = if is_float(K) {
                        lines.vectors
                    } else {
                        v + lines.scaled.group
                    };
                    let mut factors = [[S::splat(0.0); 2]; 4];
                    if !is_float(K) {
                        for (row, factors) in factors.iter_mut().enumerate() {
                            *factors = lines.scaled.at::<S>(4 * i + row, group);
                        }
                    }
                    while v < end {
                        let mut k = [S::splat(0.0); 4];
                        for (row, k) in k.iter_mut().enumerate() {
                            *k = scaled::<S, K>(rows[row], v, factors[row]);
                        }
                        for (j, sums) in sums.iter_mut().enumerate() {
                            let q = S::load(q.first.add(j * q.stride + v * S::LANES));
                            for (sum, k) in sums.iter_mut().zip(k) {
                                *sum = S::fma(k, q, *sum);
                            }
                        }
                        v += 1;
                    }
                    group += 1;
                }
                for (j, sums) in sums.into_iter().enumerate() {
                    S::sums(sums, out.add(j * ROWS + 4 * i));
                }
            }
        }
    }
}

/// Vector number `v` of a row, with a scale and what is added, unless it is of floats.
#[inline(always)]
unsafe fn scaled<S: Simd, const K: u8>(row: *const u8, v: usize, [scale, zero]: [S::V; 2]) -> S::V {
    // SAFETY: the caller promises that the row has it, and `S`.
    unsafe {
        let numbers = vector::<S, K>(row, v);
        match is_float(K) {
            true => numbers,
            false => S::fma(numbers, scale, zero),
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
            F32 => S::call(Columns::<F32> { lines, to }),
            F16 => S::call(Columns::<F16> { lines, to }),
            BF16 => S::call(Columns::<BF16> { lines, to }),
            E4M3 => S::call(Columns::<E4M3> { lines, to }),
            E5M2 => S::call(Columns::<E5M2> { lines, to }),
            INT8 => S::call(Columns::<INT8> { lines, to }),
            INT4 => S::call(Columns::<INT4> { lines, to }),
            _ => S::call(Columns::<INT2> { lines, to }),
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
                    let group = if is_float(K) { 0 } else { v / lines.scaled.group };
                    for (row, number) in square[..S::LANES].iter_mut().enumerate() {
                        let factors = match is_float(K) {
                            true => [S::splat(0.0); 2],
                            false => lines.scaled.at::<S>(i + row, group),
                        };
                        *number = scaled::<S, K>(lines.place.row(i + row), v, factors);
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

/// Scores of queries and columns, for the rows rounded up to two vectors, or to four.
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
                6.. if const { S::REGISTERS >= 24 } && turned.rows > 2 * S::LANES => {
                    S::call(ColumnScores::<6, 4> { turned, q, out })
                }
                6.. if const { S::REGISTERS >= 12 } => S::call(ColumnScores::<6, 2> { turned, q, out }),
                4.. if const { S::REGISTERS >= 8 } => S::call(ColumnScores::<4, 2> { turned, q, out }),
                2.. => S::call(ColumnScores::<2, 2> { turned, q, out }),
                _ => S::call(ColumnScores::<1, 2> { turned, q, out }),
            }
        };
    }
}

/// For `N` vectors of rows at a time.
struct ColumnScores<const Q: usize, const N: usize> {
    turned: Turned,
    q: Queries,
    out: *mut f32,
}

impl<const Q: usize, const N: usize> Op for ColumnScores<Q, N> {
    type Out = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> usize {
        let Self { turned, q, out } = self;
        // SAFETY: the promise of `column_scores`.
        unsafe {
            for row in (0..turned.rows).step_by(N * S::LANES) {
                let mut sums = [[S::splat(0.0); N]; Q];
                for i in 0..turned.dim {
                    let mut keys = [S::splat(0.0); N];
                    for (n, keys) in keys.iter_mut().enumerate() {
                        *keys = S::load(turned.columns.add(i * ROWS + row + n * S::LANES));
                    }
                    for (j, sums) in sums.iter_mut().enumerate() {
                        let q = S::splat(*q.first.add(j * q.stride + i));
                        for (sum, keys) in sums.iter_mut().zip(keys) {
                            *sum = S::fma(keys, q, *sum);
                        }
                    }
                }
                for (j, sums) in sums.into_iter().enumerate() {
                    for (n, sum) in sums.into_iter().enumerate() {
                        S::store(out.add(j * ROWS + row + n * S::LANES), sum);
                    }
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
        let n = sums.block(of_format(lines.format, S::SUMS));
        let weights = weights.wrapping_add(first * ROWS);
        // SAFETY: the caller's promise, for the queries from `first` on.
        unsafe { for_queries!(S::SUMS, AddRows, lines.format, n, { lines, weights, sums }) };
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
                    4.. if const { S::REGISTERS >= 4 * Q } => self.part::<S, 4>(v),
                    2.. if const { S::REGISTERS < 4 * Q } => self.part::<S, 2>(v),
                    _ => self.part::<S, 1>(v),
                }
            };
            self.lines.ahead = Ahead::NOTHING;
        }
    }
}

/// Rows from one time that later ones are asked for to the next.
const ASK: usize = 4;

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
            let mut group = [0; N];
            for (i, group) in group.iter_mut().enumerate() {
                *group = if is_float(K) { 0 } else { (v + i) / lines.scaled.group };
            }
            for r in 0..lines.len {
                if r % ASK == 0 {
                    lines.ahead.ask::<S>(r, ASK);
                }
                let row = lines.place.row(r);
                if const { Q < N } {
                    // The fewer of both stay in registers, as few have room beside the sums.
                    let mut weight = [S::splat(0.0); Q];
                    for (j, weight) in weight.iter_mut().enumerate() {
                        *weight = S::splat(*weights.add(j * ROWS + r));
                    }
                    for i in 0..N {
                        let number = self.number::<S>(row, r, v + i, group[i]);
                        for (held, weight) in held.iter_mut().zip(weight) {
                            held[i] = S::fma(number, weight, held[i]);
                        }
                    }
                } else {
                    let mut numbers = [S::splat(0.0); N];
                    for (i, number) in numbers.iter_mut().enumerate() {
                        *number = self.number::<S>(row, r, v + i, group[i]);
                    }
                    for (j, held) in held.iter_mut().enumerate() {
                        let weight = S::splat(*weights.add(j * ROWS + r));
                        for (sum, number) in held.iter_mut().zip(numbers) {
                            *sum = S::fma(number, weight, *sum);
                        }
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

    /// Vector `v` of a row, which is of this group.
    #[inline(always)]
    unsafe fn number<S: Simd>(&self, row: *const u8, r: usize, v: usize, group: usize) -> S::V {
        // SAFETY: the promise of `add_rows`.
        unsafe {
            let factors = match is_float(K) {
                true => [S::splat(0.0); 2],
                false => self.lines.scaled.at::<S>(r, group),
            };
            scaled::<S, K>(row, v, factors)
        }
    }
}
