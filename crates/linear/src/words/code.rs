//! A block of activations as codes: `step * code`, the greatest magnitude being the greatest code.
#![allow(unsafe_code)]

use super::{BESIDE, FOURS, Most, Outlier};
use crate::layout::BLOCK;
use std::arch::x86_64::*;

/// A number is left out of its block if its square is more than so many times the mean square of the others.
///
/// It costs a multiplication in f32 for each panel: 16 would leave out one number in 57 of SmolLM2, 36 one in 160, 100 one
/// in 490. With 64, logits are off by a third more than with 16 (docs/design/0007-packed-weights.md).
const OUTLIER: f32 = 64.0;
/// Most numbers that are left out of a block.
pub(super) const MOST: usize = 4;

/// Blocks of smaller numbers are zeros: the reciprocal of a step would be infinite.
const TINY: f32 = 1e-31;

/// How many numbers ahead in a row the memory is asked for.
const FORESIGHT: usize = 4 * BLOCK;

/// Fills a tile, `[blocks][W + BESIDE][height]`, with the rows of `x`, `[rows, cols]`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn fill<const W: usize>(
    x: &[f32],
    cols: usize,
    most: Most,
    (data, height): (&mut [i32], usize),
    outliers: &mut Vec<Outlier>,
) {
    for (four, x) in x.chunks(4 * cols).enumerate() {
        for (block, data) in data.chunks_exact_mut((W + BESIDE) * height).enumerate() {
            let mut words = [_mm512_setzero_si512(); 4];
            let mut steps = [0; 4];
            let mut sums = [0; 4];
            for (i, x) in x.chunks_exact(cols).enumerate() {
                // The rows are read in short pieces, which the processor does not foresee.
                for line in 0..BLOCK / 16 {
                    let ahead = x.as_ptr().wrapping_add(block * BLOCK + FORESIGHT + line * 16);
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                }
                let mut numbers = load(&x[block * BLOCK..cols.min((block + 1) * BLOCK)]);
                let [a, b] = numbers;
                sums[i] = _mm512_reduce_add_ps(_mm512_add_ps(a, b)).to_bits() as i32;
                let top = leave_out(&mut numbers, |column, number| {
                    outliers.push(Outlier {
                        row: 4 * four + i,
                        block,
                        column,
                        number,
                    });
                });
                let (codes, step) = code(numbers, top, most);
                words[i] = if W == FOURS { bytes(codes) } else { pairs(codes) };
                steps[i] = step.to_bits() as i32;
            }
            let (to, rest) = data.split_at_mut(W * height);
            put::<W>(words, to, height, 4 * four);
            rest[4 * four..][..4].copy_from_slice(&steps);
            rest[height + 4 * four..][..4].copy_from_slice(&sums);
        }
    }
    outliers.sort_by_key(|outlier| outlier.block);
}

/// Whether a number's square is too far above the mean of so many others. Those that are none make no codes, and tiny ones are
/// zeros.
#[inline(always)]
pub(super) fn stands_out(top: f32, squares: f32, others: usize) -> bool {
    if !top.is_finite() || top < TINY {
        return false;
    }
    let within = top * top * others as f32 <= OUTLIER * (squares - top * top);
    !within
}

/// The step of a block whose greatest magnitude is `top`, after what numbers are multiplied with. Infinity, and what is no number,
/// makes a step that is none either, and so outputs that show it.
#[inline(always)]
pub(super) fn step(top: f32, most: f32) -> (f32, f32) {
    match top {
        ..TINY => (0.0, 0.0),
        f32::INFINITY => (0.0, f32::NAN),
        _ => (most / top, top / most),
    }
}

/// Puts the words of four rows into a block, `[W][height]`, from a row on.
#[inline]
#[target_feature(enable = "avx512f")]
fn put<const W: usize>(rows: [__m512i; 4], to: &mut [i32], height: usize, row: usize) {
    let [a, b, c, d] = rows;
    let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
    let (upper_ab, upper_cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
    // Words `i`, `4 + i`, `8 + i` and `12 + i`, of four rows each.
    let columns = [
        _mm512_unpacklo_epi64(ab, cd),
        _mm512_unpackhi_epi64(ab, cd),
        _mm512_unpacklo_epi64(upper_ab, upper_cd),
        _mm512_unpackhi_epi64(upper_ab, upper_cd),
    ];
    for (i, column) in columns.into_iter().enumerate() {
        let parts = [
            _mm512_castsi512_si128(column),
            _mm512_extracti32x4_epi32::<1>(column),
            _mm512_extracti32x4_epi32::<2>(column),
            _mm512_extracti32x4_epi32::<3>(column),
        ];
        for (four, part) in parts.into_iter().enumerate().take(W / 4) {
            let to = &mut to[(4 * four + i) * height + row..][..4];
            // SAFETY: there is room for four numbers.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), part) };
        }
    }
}

/// Up to 32 numbers, and zeros.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(x: &[f32]) -> [__m512; 2] {
    let there = u32::MAX >> (BLOCK - x.len());
    // SAFETY: only those that are there are read.
    unsafe {
        [
            _mm512_maskz_loadu_ps(there as u16, x.as_ptr()),
            _mm512_maskz_loadu_ps((there >> 16) as u16, x.as_ptr().wrapping_add(16)),
        ]
    }
}

/// Takes the numbers out that stand out; the greatest magnitude of the others.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn leave_out(numbers: &mut [__m512; 2], mut found: impl FnMut(usize, f32)) -> f32 {
    let mut top = greatest(numbers);
    for left in (BLOCK - MOST..BLOCK).rev() {
        let [a, b] = *numbers;
        let squares = _mm512_reduce_add_ps(_mm512_fmadd_ps(a, a, _mm512_mul_ps(b, b)));
        if !stands_out(top, squares, left) {
            break;
        }
        take_out(numbers, top, &mut found);
        top = greatest(numbers);
    }
    top
}

#[inline]
#[target_feature(enable = "avx512f")]
fn greatest(x: &[__m512; 2]) -> f32 {
    // As integers, since a maximum of floats drops what is no number.
    let [a, b] = x.map(|x| _mm512_castps_si512(_mm512_abs_ps(x)));
    f32::from_bits(_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)) as u32)
}

/// Takes the first number of this magnitude out.
#[cold]
#[target_feature(enable = "avx512f,avx512dq")]
fn take_out(numbers: &mut [__m512; 2], magnitude: f32, found: &mut impl FnMut(usize, f32)) {
    for (half, numbers) in numbers.iter_mut().enumerate() {
        let here = _mm512_cmpeq_ps_mask(_mm512_abs_ps(*numbers), _mm512_set1_ps(magnitude));
        if here != 0 {
            let first = here & here.wrapping_neg();
            let number = _mm512_mask_reduce_add_ps(first, *numbers);
            *numbers = _mm512_maskz_mov_ps(!first, *numbers);
            return found(half * BLOCK / 2 + first.trailing_zeros() as usize, number);
        }
    }
}

/// Codes and step of a block whose greatest magnitude is `top`.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn code([a, b]: [__m512; 2], mut top: f32, most: Most) -> ([__m512i; 2], f32) {
    if let Some(part) = most.part() {
        let part = _mm512_set1_ps(part);
        let parts = _mm512_fmadd_ps(_mm512_abs_ps(a), part, _mm512_mul_ps(_mm512_abs_ps(b), part));
        top = top.max(_mm512_reduce_add_ps(parts));
    }
    let (inverse, step) = step(top, f32::from(most.code));
    let inverse = _mm512_set1_ps(inverse);
    let codes = [
        _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)),
        _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)),
    ];
    (codes, step)
}

/// Codes as words of 16 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn pairs([a, b]: [__m512i; 2]) -> __m512i {
    let words = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(a));
    let words = _mm512_inserti64x4::<1>(words, _mm512_cvtepi32_epi16(b));
    // Columns 0, 1, 2, 3 become 0, 2, 1, 3.
    let order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
}

/// Codes as bytes without a sign, in the lower half.
#[inline]
#[target_feature(enable = "avx512f")]
fn bytes([a, b]: [__m512i; 2]) -> __m512i {
    let up = _mm512_set1_epi32(128);
    let a = _mm512_castsi128_si512(_mm512_cvtepi32_epi8(_mm512_add_epi32(a, up)));
    _mm512_inserti32x4::<1>(a, _mm512_cvtepi32_epi8(_mm512_add_epi32(b, up)))
}
