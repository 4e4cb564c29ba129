//! Attention over int8 and int4 rows in whole numbers, by the byte products of AVX-512 VNNI.
//!
//! A row's codes are multiplied as they are stored. Queries, and the softmax weights times the scales of the values,
//! become whole numbers of two bytes: 16 bits of a group's largest number, against the 8 or 4 bits of a code. What
//! that adds to the error of f32 arithmetic is kept below the laws' bound by `tests/kernels.rs`. One byte would not do:
//! it adds as much as an 8-bit cache has.
//!
//! Rows come in chunks of 64 numbers: a vector of bytes. Scores want 16 rows side by side, and values four: both are
//! turned in registers, so that no sum goes across a vector.

#![allow(unsafe_code, unused_unsafe)] // Loads of vectors through pointers; what each must have room for is said beside it.
#![allow(clippy::needless_range_loop)] // One index goes through several arrays.

use super::inner::{Lines, Queries, Scaled};
use super::simd::avx512::Avx512;
use super::tile::ROWS;
use kvlab_store::codec::{Code, Packing, Scales};
use std::arch::x86_64::*;

/// Numbers of a chunk, and of a group of it that has a scale of its own.
pub const CHUNK: usize = 64;
pub const GROUP: usize = 32;

/// Chunks of a row, at most.
const MOST_CHUNKS: usize = 32;

/// The whole number of the largest: `127 * 256`, so that both bytes have a sign.
const MOST: f32 = 32_512.0;

/// Numbers smaller than this are zero: the reciprocal of less is infinite.
const LEAST: f32 = 1e-33;

/// How rows are read that are multiplied here.
#[derive(Clone, Copy)]
pub struct Kind {
    bits: u32,
    zero_points: bool,
    by_channel: bool,
}

impl Kind {
    /// That of rows of `dim` numbers packed like this, as keys or as values, if they are multiplied here.
    pub fn new(packing: &Packing, dim: usize, keys: bool) -> Option<Self> {
        let Code::Int {
            bits: bits @ (8 | 4),
            zero_points,
        } = packing.code
        else {
            return None;
        };
        let (group, by_channel) = match packing.scales {
            Scales::Along(group) => (group.unwrap_or(dim), false),
            // A query is multiplied with the scales of channels; the weights of rows are not.
            Scales::Across(_) if keys => (CHUNK, true),
            Scales::None | Scales::Across(_) => return None,
        };
        let whole = group == GROUP || group.is_multiple_of(CHUNK);
        let fits = dim.is_multiple_of(CHUNK) && dim <= MOST_CHUNKS * CHUNK && whole;
        fits.then_some(Self {
            bits,
            // With channels in it, what a query's numbers add is theirs already.
            zero_points: zero_points || by_channel,
            by_channel,
        })
    }

    /// Whether the query has scales and zero points of channels in it: [`queries`] is given them then.
    pub fn by_channel(self) -> bool {
        self.by_channel
    }

    /// What is taken off codes before rounded numbers multiply them, and given back in f32 if it does not stand for 0. Without
    /// that the rounding of a weight would add the same to all numbers of a group, which a rotation then piles up.
    fn half(self) -> i32 {
        1 << (self.bits - 1)
    }

    /// Bytes of a chunk.
    fn width(self) -> usize {
        CHUNK * self.bits as usize / 8
    }
}

/// A chunk of a query in two bytes a number: about `scale * (256 high + low)`, with a scale for each half.
#[repr(C, align(64))]
pub struct Chunk {
    /// In the order of the codes of a row: see [`order`].
    bytes: [[i32; CHUNK / 4]; 2],
    scale: [f32; 2],
    /// Of each byte and half: what the codes' middle takes off.
    bias: [[i32; 2]; 2],
    /// Of each half, the sum of the numbers, which zero points are multiplied with.
    sum: [f32; 2],
}

/// The rows' weights for a group of the values, for one query: about `scale * (256 high + low)`.
#[repr(C, align(64))]
pub struct Weights {
    bytes: [[i32; ROWS / 4]; 2],
    scale: f32,
    /// Sum of the whole numbers.
    sum: i32,
    /// What zero points add to each number of the group.
    zero: f32,
}

/// Room of both, in f32 numbers.
pub const CHUNK_ROOM: usize = size_of::<Chunk>() / 4;
pub const WEIGHTS_ROOM: usize = size_of::<Weights>() / 4;

/// Instructions of every function here.
macro_rules! vnni {
    ($($(#[$m:meta])* $v:vis unsafe fn $name:ident $([$($g:tt)*])? ($($a:ident: $t:ty),* $(,)?) $(-> $r:ty)? $body:block)*) => {$(
        $(#[$m])*
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
        #[inline]
        $v unsafe fn $name $(<$($g)*>)? ($($a: $t),*) $(-> $r)? {
            // SAFETY: what the function asks of its caller.
            unsafe { $body }
        }
    )*};
}

vnni! {
    /// Two bytes of a whole number, each with a sign.
    unsafe fn split(code: __m512i) -> [__m512i; 2] {
        let high = _mm512_srai_epi32::<8>(_mm512_add_epi32(code, _mm512_set1_epi32(128)));
        [high, _mm512_sub_epi32(code, _mm512_slli_epi32::<8>(high))]
    }

    /// Queries of `dim` numbers each as chunks; if channels have scales and zero points, multiplied with those.
    ///
    /// # Safety
    /// `to` has room for `dim / 64` chunks a query, and there are as many factors of channels as numbers.
    pub unsafe fn queries(kind: Kind, q: Queries, dim: usize, channels: Option<[*const f32; 2]>, to: *mut Chunk) {
        // Off all codes, zero points or not: the rounding of a query would multiply what they have in common.
        let middle = kind.half();
        for j in 0..q.count {
            for c in 0..dim / CHUNK {
                let from = q.first.add(j * q.stride + c * CHUNK);
                let to = &mut *to.add(j * (dim / CHUNK) + c);
                let mut x = [_mm512_setzero_ps(); 4];
                // What zero points are multiplied with: one for all channels, or theirs already.
                let mut added = [_mm512_setzero_ps(); 4];
                for (i, (x, added)) in x.iter_mut().zip(&mut added).enumerate() {
                    *x = _mm512_loadu_ps(from.add(i * 16));
                    *added = *x;
                    if let Some([scale, zero]) = channels {
                        let at = c * CHUNK + i * 16;
                        *added = _mm512_mul_ps(*x, _mm512_loadu_ps(zero.add(at)));
                        *x = _mm512_mul_ps(*x, _mm512_loadu_ps(scale.add(at)));
                        *added = _mm512_fmadd_ps(*x, _mm512_set1_ps(middle as f32), *added);
                    }
                }
                for half in 0..2 {
                    let added = _mm512_add_ps(added[2 * half], added[2 * half + 1]);
                    let x = [x[2 * half], x[2 * half + 1]];
                    // As whole numbers, since a maximum of floats drops what is no number.
                    let size = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(x[0])), _mm512_castps_si512(_mm512_abs_ps(x[1])));
                    let most = f32::from_bits(_mm512_reduce_max_epi32(size) as u32);
                    let (scale, inverse) = if most < LEAST { (0.0, 0.0) } else { (most / MOST, MOST / most) };
                    to.scale[half] = scale;
                    to.sum[half] = _mm512_reduce_add_ps(added);
                    let mut sums = [0; 2];
                    let mut halves = [[0_i8; GROUP]; 2];
                    for (i, x) in x.into_iter().enumerate() {
                        let code = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(inverse)));
                        for (b, byte) in split(code).into_iter().enumerate() {
                            _mm_storeu_si128(halves[b].as_mut_ptr().add(i * 16).cast(), _mm512_cvtepi32_epi8(byte));
                            sums[b] += _mm512_reduce_add_epi32(byte);
                        }
                    }
                    for b in 0..2 {
                        // What was no number has become sums that mean nothing: the scale is none either.
                        to.bias[b][half] = middle.wrapping_neg().wrapping_mul(sums[b]);
                        let bytes: &mut [i8; CHUNK] = &mut *(&raw mut to.bytes[b]).cast();
                        for (i, &byte) in halves[b].iter().enumerate() {
                            bytes[order(kind.bits, half * GROUP + i)] = byte;
                        }
                    }
                }
            }
        }
    }

    /// Adds to each word of `sum` the products of its four codes and the four bytes of one word in memory. Left to
    /// itself, the compiler loads all words first, for which there are no registers.
    unsafe fn product(sum: __m512i, codes: __m512i, word: &i32) -> __m512i {
        let mut sum = sum;
        std::arch::asm!(
            "vpdpbusd {sum}, {codes}, dword ptr [{word}]{{1to16}}",
            sum = inout(zmm_reg) sum, codes = in(zmm_reg) codes, word = in(reg) word,
            options(pure, readonly, nostack, preserves_flags),
        );
        sum
    }

    /// A chunk of a row: a code in each byte, in the [`order`] of the format.
    unsafe fn codes[const BITS: u32](row: *const u8) -> __m512i {
        if BITS == 8 {
            return _mm512_loadu_si512(row.cast());
        }
        let both = _mm512_broadcast_i64x4(_mm256_loadu_si256(row.cast()));
        let nibbles = _mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4));
        _mm512_and_si512(nibbles, _mm512_set1_epi8(15))
    }

    /// 16 rows of 16 words to 16 columns.
    unsafe fn turn(r: &mut [__m512i; 16]) {
        let mut t = *r;
        for i in 0..8 {
            t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
        }
        let mut u = t;
        for i in 0..4 {
            u[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
            u[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
            u[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
            u[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
        }
        for c in 0..4 {
            let low = [_mm512_shuffle_i32x4::<0x88>(u[c], u[4 + c]), _mm512_shuffle_i32x4::<0x88>(u[8 + c], u[12 + c])];
            let high = [_mm512_shuffle_i32x4::<0xDD>(u[c], u[4 + c]), _mm512_shuffle_i32x4::<0xDD>(u[8 + c], u[12 + c])];
            r[c] = _mm512_shuffle_i32x4::<0x88>(low[0], low[1]);
            r[8 + c] = _mm512_shuffle_i32x4::<0xDD>(low[0], low[1]);
            r[4 + c] = _mm512_shuffle_i32x4::<0x88>(high[0], high[1]);
            r[12 + c] = _mm512_shuffle_i32x4::<0xDD>(high[0], high[1]);
        }
    }

    /// Scores of queries and rows.
    ///
    /// # Safety
    /// Rows and factors have the numbers that `fits` looked at, `q` are `dim / 64` chunks for each query, and `out` has
    /// room.
    pub unsafe fn scores(kind: Kind, lines: Lines<'_>, q: *const Chunk, queries: usize, dim: usize, out: *mut f32) {
        match (kind.bits, kind.zero_points) {
            (8, false) => all_scores::<8, false>(kind, lines, q, queries, dim, out),
            (8, true) => all_scores::<8, true>(kind, lines, q, queries, dim, out),
            (_, false) => all_scores::<4, false>(kind, lines, q, queries, dim, out),
            (_, true) => all_scores::<4, true>(kind, lines, q, queries, dim, out),
        }
    }

    unsafe fn all_scores[const BITS: u32, const ZERO: bool](
        kind: Kind, lines: Lines<'_>, q: *const Chunk, queries: usize, dim: usize, out: *mut f32,
    ) {
        let chunks = dim / CHUNK;
        // What was taken off the codes is given back with the zero points; those of channels have it already.
        let half = if kind.by_channel { 0.0 } else { kind.half() as f32 };
        // `group` counts vectors of 16.
        let group = lines.scaled.group * 16;
        let mut groups = [[0; 2]; MOST_CHUNKS];
        for (c, groups) in groups.iter_mut().enumerate().take(chunks) {
            *groups = [c * CHUNK / group, (c * CHUNK + GROUP) / group];
        }
        for row in (0..lines.len).step_by(16) {
            lines.ahead.ask::<Avx512>(row, 16);
            for (c, &groups) in groups.iter().enumerate().take(chunks) {
                let mut r = [_mm512_setzero_si512(); 16];
                for (i, r) in r.iter_mut().enumerate() {
                    *r = codes::<BITS>(lines.place.row(row + i).add(c * kind.width()));
                }
                turn(&mut r);
                let factors = Pair::new(&lines.scaled, groups, row, half);
                let mut j = 0;
                while j < queries {
                    let (q, out) = (q.add(j * chunks + c), out.add(j * ROWS + row));
                    j += match queries - j {
                        1 => some_scores::<BITS, ZERO, 1>(&r, &factors, q, chunks, c == 0, out),
                        2 | 4 => some_scores::<BITS, ZERO, 2>(&r, &factors, q, chunks, c == 0, out),
                        _ => some_scores::<BITS, ZERO, 3>(&r, &factors, q, chunks, c == 0, out),
                    };
                }
            }
        }
    }

    unsafe fn some_scores[const BITS: u32, const ZERO: bool, const Q: usize](
        r: &[__m512i; 16], factors: &Pair, q: *const Chunk, chunks: usize, first: bool, out: *mut f32,
    ) -> usize {
        // Of each query, byte and half.
        let mut sums = [[[_mm512_setzero_si512(); 2]; 2]; Q];
        for (j, sums) in sums.iter_mut().enumerate() {
            let q = &*q.add(j * chunks);
            for (b, sums) in sums.iter_mut().enumerate() {
                for (half, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_set1_epi32(q.bias[b][half]);
                }
            }
        }
        // Written out: in a loop, which half it is would be looked up.
        macro_rules! columns {
            ($($i:literal)*) => {$(
                // Which half a column of four codes belongs to.
                let half = if BITS == 8 { $i / 8 } else { $i / 4 % 2 };
                for (j, sums) in sums.iter_mut().enumerate() {
                    let q = &*q.add(j * chunks);
                    for (b, sums) in sums.iter_mut().enumerate() {
                        sums[half] = product(sums[half], r[$i], &q.bytes[b][$i]);
                    }
                }
            )*};
        }
        columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        for (j, sums) in sums.iter().enumerate() {
            let q = &*q.add(j * chunks);
            let out = out.add(j * ROWS);
            let mut score = if first { _mm512_setzero_ps() } else { _mm512_loadu_ps(out) };
            for (half, (&high, &low)) in sums[0].iter().zip(&sums[1]).enumerate() {
                let high = _mm512_cvtepi32_ps(high);
                let dot = _mm512_fmadd_ps(high, _mm512_set1_ps(256.0), _mm512_cvtepi32_ps(low));
                let dot = _mm512_mul_ps(dot, _mm512_set1_ps(q.scale[half]));
                score = _mm512_fmadd_ps(dot, factors.scale[half], score);
                if ZERO {
                    score = _mm512_fmadd_ps(_mm512_set1_ps(q.sum[half]), factors.zero[half], score);
                }
            }
            _mm512_storeu_ps(out, score);
        }
        Q
    }

    /// Softmax weights times the scales of `groups` groups, as whole numbers: `[queries][groups]`.
    ///
    /// Four of them go together, because what is found across a vector takes the time of its chain.
    ///
    /// # Safety
    /// There are weights and factors for the rows rounded up to sixteen, and `to` has room.
    pub unsafe fn weights(kind: Kind, scaled: Scaled, rows: usize, groups: usize, from: *const f32, queries: usize, to: *mut Weights) {
        let (vectors, all) = (rows.div_ceil(16), queries * groups);
        let (mut query, mut group) = (0, 0);
        for first in (0..all).step_by(4) {
            let to = std::slice::from_raw_parts_mut(to.add(first), 4.min(all - first));
            let mut products = [[_mm512_setzero_ps(); ROWS / 16]; 4];
            let mut most = [_mm512_setzero_si512(); 4];
            let mut zeros = [_mm512_setzero_ps(); 4];
            for k in 0..to.len() {
                let (w, scale, zero) = (from.add(query * ROWS), scaled.scale.add(group * ROWS), scaled.zero.add(group * ROWS));
                for (i, product) in products[k].iter_mut().enumerate().take(vectors) {
                    let w = _mm512_loadu_ps(w.add(i * 16));
                    *product = _mm512_mul_ps(w, _mm512_loadu_ps(scale.add(i * 16)));
                    // As whole numbers, since a maximum of floats drops what is no number.
                    most[k] = _mm512_max_epi32(most[k], _mm512_castps_si512(_mm512_abs_ps(*product)));
                    if kind.zero_points {
                        zeros[k] = _mm512_fmadd_ps(w, _mm512_loadu_ps(zero.add(i * 16)), zeros[k]);
                        zeros[k] = _mm512_fmadd_ps(*product, _mm512_set1_ps(kind.half() as f32), zeros[k]);
                    }
                }
                group += 1;
                if group == groups {
                    (query, group) = (query + 1, 0);
                }
            }
            let most = _mm_castsi128_ps(four_maxima(most));
            let enough = _mm_cmp_ps_mask::<_CMP_NLT_UQ>(most, _mm_set1_ps(LEAST));
            let (mut scale, mut inverse, mut zero) = ([0.0; 4], [0.0; 4], [0.0; 4]);
            _mm_storeu_ps(scale.as_mut_ptr(), _mm_maskz_div_ps(enough, most, _mm_set1_ps(MOST)));
            _mm_storeu_ps(inverse.as_mut_ptr(), _mm_maskz_div_ps(enough, _mm_set1_ps(MOST), most));
            if kind.zero_points {
                for (zero, zeros) in zero.iter_mut().zip(zeros) {
                    *zero = _mm512_reduce_add_ps(zeros);
                }
            }
            let mut sums = [_mm512_setzero_si512(); 4];
            for (k, to) in to.iter_mut().enumerate() {
                let inverse = _mm512_set1_ps(inverse[k]);
                for (i, product) in products[k].into_iter().enumerate().take(vectors) {
                    let code = _mm512_cvtps_epi32(_mm512_mul_ps(product, inverse));
                    sums[k] = _mm512_add_epi32(sums[k], code);
                    for (b, byte) in split(code).into_iter().enumerate() {
                        let at = to.bytes[b].as_mut_ptr().add(i * 4);
                        _mm_storeu_si128(at.cast(), _mm512_cvtepi32_epi8(byte));
                    }
                }
            }
            let mut sum = [0; 4];
            _mm_storeu_si128(sum.as_mut_ptr().cast(), four_sums(sums));
            for (k, to) in to.iter_mut().enumerate() {
                (to.scale, to.zero, to.sum) = (scale[k], zero[k], sum[k]);
            }
        }
    }

    /// The largest number of each of four vectors.
    unsafe fn four_maxima(of: [__m512i; 4]) -> __m128i {
        let [a, b, c, d] = of;
        let ab = _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let cd = _mm512_max_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        let quarters = _mm512_max_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
        let halves = _mm256_max_epi32(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64::<1>(quarters));
        _mm_max_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves))
    }

    /// The sum of each of four vectors.
    unsafe fn four_sums(of: [__m512i; 4]) -> __m128i {
        let [a, b, c, d] = of;
        let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        let quarters = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
        let halves = _mm256_add_epi32(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64::<1>(quarters));
        _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves))
    }

    /// Adds rows to the sums of every query, each with its weight. `group` is the number of numbers of a group.
    ///
    /// # Safety
    /// Rows have the numbers that `fits` looked at, `w` are those of [`weights`], and the sums have `dim` numbers.
    pub unsafe fn values(kind: Kind, lines: Lines<'_>, w: *const Weights, group: usize, dim: usize, sums: Queries) {
        match (kind.bits, group == GROUP) {
            (8, false) => all_values::<8, false>(kind, lines, w, group, dim, sums),
            (8, true) => all_values::<8, true>(kind, lines, w, group, dim, sums),
            (_, false) => all_values::<4, false>(kind, lines, w, group, dim, sums),
            (_, true) => all_values::<4, true>(kind, lines, w, group, dim, sums),
        }
    }

    unsafe fn all_values[const BITS: u32, const TWO: bool](
        kind: Kind, lines: Lines<'_>, w: *const Weights, group: usize, dim: usize, sums: Queries,
    ) {
        let mut lines = lines;
        let groups = dim.div_ceil(group);
        for c in 0..dim / CHUNK {
            let mut j = 0;
            let w = w.add(c * CHUNK / group);
            while j < sums.count {
                let (w, to) = (w.add(j * groups), sums.first.add(j * sums.stride + c * CHUNK));
                j += match sums.count - j {
                    1 => some_values::<BITS, TWO, 1>(kind, lines, w, groups, c, to, sums.stride),
                    2 | 4 => some_values::<BITS, TWO, 2>(kind, lines, w, groups, c, to, sums.stride),
                    _ => some_values::<BITS, TWO, 3>(kind, lines, w, groups, c, to, sums.stride),
                };
                lines.ahead = super::inner::Ahead::NOTHING;
            }
        }
    }

    unsafe fn some_values[const BITS: u32, const TWO: bool, const Q: usize](
        kind: Kind, lines: Lines<'_>, w: *const Weights, groups: usize, c: usize, to: *mut f32, stride: usize,
    ) -> usize {
        // Of each query and byte: words 4 k to 4 k + 3 of every sixteen.
        let mut sums = [[[_mm512_setzero_si512(); 4]; 2]; Q];
        for i in 0..lines.len.div_ceil(4) {
            lines.ahead.ask::<Avx512>(4 * i, 4);
            let mut r = [_mm512_setzero_si512(); 4];
            for (row, r) in r.iter_mut().enumerate() {
                *r = codes::<BITS>(lines.place.row(4 * i + row).add(c * kind.width()));
            }
            let low = [_mm512_unpacklo_epi8(r[0], r[1]), _mm512_unpacklo_epi8(r[2], r[3])];
            let high = [_mm512_unpackhi_epi8(r[0], r[1]), _mm512_unpackhi_epi8(r[2], r[3])];
            let four = [
                _mm512_unpacklo_epi16(low[0], low[1]),
                _mm512_unpackhi_epi16(low[0], low[1]),
                _mm512_unpacklo_epi16(high[0], high[1]),
                _mm512_unpackhi_epi16(high[0], high[1]),
            ];
            for (j, sums) in sums.iter_mut().enumerate() {
                let w = w.add(j * groups);
                for (b, sums) in sums.iter_mut().enumerate() {
                    let mut weight = _mm512_set1_epi32((*w).bytes[b][i]);
                    if TWO {
                        weight = _mm512_mask_set1_epi32(weight, second::<BITS>(), (*w.add(1)).bytes[b][i]);
                    }
                    for (sum, codes) in sums.iter_mut().zip(four) {
                        *sum = _mm512_dpbusd_epi32(*sum, codes, weight);
                    }
                }
            }
        }
        for (j, sums) in sums.iter().enumerate() {
            let w = w.add(j * groups);
            let (first, second_group) = (&*w, &*w.add(usize::from(TWO)));
            let mask = if TWO { second::<BITS>() } else { 0 };
            let both = |x: f32, y: f32| _mm512_mask_mov_ps(_mm512_set1_ps(x), mask, _mm512_set1_ps(y));
            let (scale, zero) = (both(first.scale, second_group.scale), both(first.zero, second_group.zero));
            let middle = kind.half();
            let middle = _mm512_mask_set1_epi32(
                _mm512_set1_epi32(middle.wrapping_mul(first.sum)), mask, middle.wrapping_mul(second_group.sum),
            );
            let mut x = [_mm512_setzero_ps(); 4];
            for (k, x) in x.iter_mut().enumerate() {
                let sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(sums[0][k]), sums[1][k]);
                let sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, middle));
                *x = _mm512_fmadd_ps(sum, scale, zero);
            }
            add_in_order::<BITS>(x, to.add(j * stride));
        }
        Q
    }

    /// Adds a chunk's sums, which are in the order of `some_values`, to those in memory.
    unsafe fn add_in_order[const BITS: u32](x: [__m512; 4], to: *mut f32) {
        let low = [_mm512_shuffle_f32x4::<0x44>(x[0], x[1]), _mm512_shuffle_f32x4::<0x44>(x[2], x[3])];
        let high = [_mm512_shuffle_f32x4::<0xEE>(x[0], x[1]), _mm512_shuffle_f32x4::<0xEE>(x[2], x[3])];
        let mut y = [
            _mm512_shuffle_f32x4::<0x88>(low[0], low[1]),
            _mm512_shuffle_f32x4::<0xDD>(low[0], low[1]),
            _mm512_shuffle_f32x4::<0x88>(high[0], high[1]),
            _mm512_shuffle_f32x4::<0xDD>(high[0], high[1]),
        ];
        if BITS == 4 {
            // Numbers with even places are in the first half of the bytes.
            let first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let last = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            y = [
                _mm512_permutex2var_ps(y[0], first, y[2]),
                _mm512_permutex2var_ps(y[0], last, y[2]),
                _mm512_permutex2var_ps(y[1], first, y[3]),
                _mm512_permutex2var_ps(y[1], last, y[3]),
            ];
        }
        for (i, y) in y.into_iter().enumerate() {
            let at = to.add(i * 16);
            _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), y));
        }
    }
}

/// The byte that number `i` of a chunk is in, once its codes are unpacked: of 4-bit codes, those in the low halves of
/// the stored bytes come first.
fn order(bits: u32, i: usize) -> usize {
    if bits == 8 { i } else { i % 2 * GROUP + i / 2 }
}

/// The words of a vector that belong to the second half of a chunk.
const fn second<const BITS: u32>() -> __mmask16 {
    if BITS == 8 { 0xFF00 } else { 0xF0F0 }
}

/// Scales and zero points of 16 rows, for both halves of a chunk.
struct Pair {
    scale: [__m512; 2],
    zero: [__m512; 2],
}

impl Pair {
    /// # Safety
    /// The rows have factors for the chunk, and the processor has AVX-512.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
    #[inline]
    unsafe fn new(scaled: &Scaled, groups: [usize; 2], row: usize, half_code: f32) -> Self {
        let mut pair = Self {
            scale: [_mm512_setzero_ps(); 2],
            zero: [_mm512_setzero_ps(); 2],
        };
        for (half, group) in groups.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                pair.scale[half] = _mm512_loadu_ps(scaled.scale.add(group * ROWS + row));
                let zero = _mm512_loadu_ps(scaled.zero.add(group * ROWS + row));
                pair.zero[half] = _mm512_fmadd_ps(pair.scale[half], _mm512_set1_ps(half_code), zero);
            }
        }
        pair
    }
}
