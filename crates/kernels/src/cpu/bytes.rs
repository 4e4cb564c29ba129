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
    /// In the order of [`word`].
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

    /// 32 bytes of each of 16 rows, `at` bytes into them, as 8 columns of words.
    unsafe fn columns(lines: &Lines<'_>, first: usize, at: usize) -> [__m512i; 8] {
        // Rows i and 8 + i in one vector.
        let mut r = [_mm512_setzero_si512(); 8];
        for (i, r) in r.iter_mut().enumerate() {
            let low = _mm256_loadu_si256(lines.place.row(first + i).add(at).cast());
            let high = _mm256_loadu_si256(lines.place.row(first + 8 + i).add(at).cast());
            *r = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
        }
        let mut t = [_mm512_setzero_si512(); 8];
        for i in 0..4 {
            t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
        }
        // In each lane four rows of a column, c in even lanes and 4 + c in odd ones.
        let mut columns = [_mm512_setzero_si512(); 8];
        for c in 0..4 {
            let (a, b) = (t[c / 2], t[2 + c / 2]);
            let (d, e) = (t[4 + c / 2], t[6 + c / 2]);
            let [first, second] = match c % 2 {
                0 => [_mm512_unpacklo_epi64(a, b), _mm512_unpacklo_epi64(d, e)],
                _ => [_mm512_unpackhi_epi64(a, b), _mm512_unpackhi_epi64(d, e)],
            };
            // Rows 0 to 3 and 8 to 11 are in `first`, 4 to 7 and 12 to 15 in `second`.
            columns[c] = _mm512_permutex2var_epi64(first, _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), second);
            columns[4 + c] = _mm512_permutex2var_epi64(first, _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15), second);
        }
        columns
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
                let at = c * kind.width();
                let mut r = [_mm512_setzero_si512(); 16];
                let (first, second) = r.split_at_mut(8);
                first.copy_from_slice(&columns(&lines, row, at));
                if BITS == 8 {
                    second.copy_from_slice(&columns(&lines, row, at + GROUP));
                } else {
                    let nibble = _mm512_set1_epi8(15);
                    for (low, high) in first.iter_mut().zip(second) {
                        *high = _mm512_and_si512(_mm512_srli_epi32::<4>(*low), nibble);
                        *low = _mm512_and_si512(*low, nibble);
                    }
                }
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
        // Adds to each word of a sum the products of its four codes and the four bytes of one word in memory. Left to itself, the
        // compiler loads all words first, for which there are no registers.
        macro_rules! product {
            ($sum:expr, $codes:expr, $q:ident, $byte:literal, $word:literal) => {
                std::arch::asm!(
                    "vpdpbusd {sum}, {codes}, dword ptr [{q} + {at}]{{1to16}}",
                    sum = inout(zmm_reg) $sum, codes = in(zmm_reg) $codes, q = in(reg) $q,
                    at = const std::mem::offset_of!(Chunk, bytes) + $byte * CHUNK + $word * 4,
                    options(pure, readonly, nostack, preserves_flags),
                )
            };
        }
        // Written out: in a loop, which half it is would be looked up.
        macro_rules! columns {
            ($($i:literal)*) => {$(
                // Which half a column of four codes belongs to.
                let half = if BITS == 8 { $i / 8 } else { $i / 4 % 2 };
                for (j, sums) in sums.iter_mut().enumerate() {
                    let q = q.add(j * chunks);
                    product!(sums[0][half], r[$i], q, 0, $i);
                    product!(sums[1][half], r[$i], q, 1, $i);
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
                let mut codes = [_mm512_setzero_si512(); ROWS / 16];
                for (code, product) in codes.iter_mut().zip(products[k]) {
                    *code = _mm512_cvtps_epi32(_mm512_mul_ps(product, inverse));
                }
                // Four rows of each vector side by side: where a word lies then, `word` says.
                let words = [_mm512_packs_epi32(codes[0], codes[1]), _mm512_packs_epi32(codes[2], codes[3])];
                let mut bytes = [[_mm512_setzero_si512(); 2]; 2];
                for (i, word) in words.into_iter().enumerate() {
                    bytes[0][i] = _mm512_srai_epi16::<8>(_mm512_add_epi16(word, _mm512_set1_epi16(128)));
                    bytes[1][i] = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(word));
                    sums[k] = _mm512_add_epi32(sums[k], _mm512_madd_epi16(word, _mm512_set1_epi16(1)));
                }
                for (b, [first, second]) in bytes.into_iter().enumerate() {
                    _mm512_storeu_si512(to.bytes[b].as_mut_ptr().cast(), _mm512_packs_epi16(first, second));
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
    /// Rows have the numbers that `fits` looked at, `w` are those of [`weights`], the sums have `dim` numbers, and `fours` has room.
    pub unsafe fn values(
        kind: Kind, lines: Lines<'_>, w: *const Weights, group: usize, dim: usize, sums: Queries, fours: *mut Fours,
    ) {
        match kind.bits {
            8 => all_values::<8>(kind, lines, w, group, dim, sums, fours),
            _ => all_values::<4>(kind, lines, w, group, dim, sums, fours),
        }
    }

    unsafe fn all_values[const BITS: u32](
        kind: Kind, lines: Lines<'_>, w: *const Weights, group: usize, dim: usize, sums: Queries, fours: *mut Fours,
    ) {
        let mut lines = lines;
        let groups = dim.div_ceil(group);
        for c in 0..dim / CHUNK {
            let (first, second) = (c * CHUNK / group, (c * CHUNK + GROUP) / group);
            let mut j = 0;
            while j < sums.count {
                let chunk = Values {
                    kind,
                    lines,
                    at: c * kind.width(),
                    w: w.add(j * groups + first),
                    second: second - first,
                    groups,
                    to: sums.first.add(j * sums.stride + c * CHUNK),
                    stride: sums.stride,
                    fours,
                };
                j += match (sums.count - j, j) {
                    (1, 0) => chunk.add::<BITS, 1, true>(),
                    (2 | 4, 0) => chunk.add::<BITS, 2, true>(),
                    (_, 0) => chunk.add::<BITS, 3, true>(),
                    (1, _) => chunk.add::<BITS, 1, false>(),
                    (2 | 4, _) => chunk.add::<BITS, 2, false>(),
                    _ => chunk.add::<BITS, 3, false>(),
                };
                lines.ahead = super::inner::Ahead::NOTHING;
            }
        }
    }

    /// A chunk's sums of one query, which are in the order of [`four_rows`], added to those in memory.
    unsafe fn add_in_order[const BITS: u32](x: [__m512; 4], to: *mut f32) {
        let (first, second) = if BITS == 8 {
            (
                _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23),
                _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31),
            )
        } else {
            // Numbers with even places are in the first half.
            (
                _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27),
                _mm512_setr_epi32(4, 12, 5, 13, 6, 14, 7, 15, 20, 28, 21, 29, 22, 30, 23, 31),
            )
        };
        let y = [
            _mm512_permutex2var_ps(x[0], first, x[1]),
            _mm512_permutex2var_ps(x[0], second, x[1]),
            _mm512_permutex2var_ps(x[2], first, x[3]),
            _mm512_permutex2var_ps(x[2], second, x[3]),
        ];
        for (i, y) in y.into_iter().enumerate() {
            let at = to.add(i * 16);
            _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), y));
        }
    }

    /// A chunk of each of four rows: in each word a code of all of them, those of its first half in two vectors, and then those of
    /// the second half, since their scales may be others.
    unsafe fn four_rows[const BITS: u32](rows: [*const u8; 4]) -> [__m512i; 4] {
        let mut r = [_mm512_setzero_si512(); 4];
        for (r, row) in r.iter_mut().zip(rows) {
            *r = if BITS == 8 {
                // In each lane eight bytes of one half and eight of the other.
                _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), _mm512_loadu_si512(row.cast()))
            } else {
                let codes = _mm512_castsi256_si512(_mm256_loadu_si256(row.cast()));
                let codes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 1, 3, 0, 2, 1, 3), codes);
                let codes = _mm512_srlv_epi64(codes, _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4));
                _mm512_and_si512(codes, _mm512_set1_epi8(15))
            };
        }
        let first = [_mm512_unpacklo_epi8(r[0], r[1]), _mm512_unpacklo_epi8(r[2], r[3])];
        let second = [_mm512_unpackhi_epi8(r[0], r[1]), _mm512_unpackhi_epi8(r[2], r[3])];
        [
            _mm512_unpacklo_epi16(first[0], first[1]),
            _mm512_unpackhi_epi16(first[0], first[1]),
            _mm512_unpacklo_epi16(second[0], second[1]),
            _mm512_unpackhi_epi16(second[0], second[1]),
        ]
    }
}

/// The codes of a chunk of a tile, four rows at a time: see [`four_rows`].
#[repr(C, align(64))]
pub struct Fours([[__m512i; 4]; ROWS / 4]);

/// f32 numbers of it.
pub const FOURS_ROOM: usize = size_of::<Fours>() / 4;

/// A chunk of the values of all rows, and what of some queries belongs to it.
#[derive(Clone, Copy)]
struct Values<'a> {
    kind: Kind,
    lines: Lines<'a>,
    /// Bytes of a row before it.
    at: usize,
    /// Of its first half, `groups` from one query to the next; those of the other half come `second` behind.
    w: *const Weights,
    second: usize,
    groups: usize,
    to: *mut f32,
    stride: usize,
    /// Its codes: written by the first queries, and read by all others.
    fours: *mut Fours,
}

impl Values<'_> {
    /// Adds it for `Q` queries.
    ///
    /// # Safety
    /// As [`values`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
    #[inline]
    unsafe fn add<const BITS: u32, const Q: usize, const FIRST: bool>(self) -> usize {
        let Self {
            kind,
            lines,
            at,
            w,
            second,
            groups,
            to,
            stride,
            fours,
        } = self;
        // SAFETY: the caller's promise.
        unsafe {
            // Of each query and byte.
            let mut sums = [[[_mm512_setzero_si512(); 4]; 2]; Q];
            for i in 0..lines.len.div_ceil(4) {
                let place = (&raw mut (*fours).0).cast::<[__m512i; 4]>().add(i);
                if FIRST {
                    lines.ahead.ask::<Avx512>(4 * i, 4);
                    let row = |row: usize| lines.place.row(4 * i + row).add(at);
                    place.write(four_rows::<BITS>([row(0), row(1), row(2), row(3)]));
                }
                let codes = place.read();
                for (j, sums) in sums.iter_mut().enumerate() {
                    // The word of these rows.
                    let w = w.add(j * groups).cast::<i32>().add(word(i));
                    let other = w.byte_add(second * size_of::<Weights>());
                    // One load for two products: some processors do more products than loads of a vector.
                    macro_rules! products {
                        ($byte:literal, $first:literal, $second:literal, $w:ident) => {
                            // Without a type, the assembler is given another register's name.
                            let _x: __m512i;
                            std::arch::asm!(
                                "vpbroadcastd {x}, dword ptr [{w} + {at}]",
                                "vpdpbusd {first}, {a}, {x}",
                                "vpdpbusd {second}, {b}, {x}",
                                first = inout(zmm_reg) sums[$byte][$first], a = in(zmm_reg) codes[$first],
                                second = inout(zmm_reg) sums[$byte][$second], b = in(zmm_reg) codes[$second],
                                w = in(reg) $w, x = out(zmm_reg) _x,
                                at = const std::mem::offset_of!(Weights, bytes) + $byte * ROWS,
                                options(pure, readonly, nostack, preserves_flags),
                            )
                        };
                    }
                    products!(0, 0, 1, w);
                    products!(1, 0, 1, w);
                    products!(0, 2, 3, other);
                    products!(1, 2, 3, other);
                }
            }
            for (j, sums) in sums.iter().enumerate() {
                let mut x = [_mm512_setzero_ps(); 4];
                for (k, x) in x.iter_mut().enumerate() {
                    let w = &*w.add(j * groups + k / 2 * second);
                    let middle = _mm512_set1_epi32(kind.half().wrapping_mul(w.sum));
                    let sum = _mm512_add_epi32(_mm512_slli_epi32::<8>(sums[0][k]), sums[1][k]);
                    let sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, middle));
                    *x = _mm512_fmadd_ps(sum, _mm512_set1_ps(w.scale), _mm512_set1_ps(w.zero));
                }
                add_in_order::<BITS>(x, to.add(j * stride));
            }
            Q
        }
    }
}

/// The byte that number `i` of a chunk is in, once its codes are unpacked: of 4-bit codes, those in the low halves of
/// the stored bytes come first.
fn order(bits: u32, i: usize) -> usize {
    if bits == 8 { i } else { i % 2 * GROUP + i / 2 }
}

/// Where [`weights`] puts the word of rows `4 i` to `4 i + 3`.
const fn word(i: usize) -> usize {
    i % 4 * 4 + i / 4
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
