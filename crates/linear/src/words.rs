//! Activations as 16-bit codes: in blocks of 32 columns, `step * code`.
//!
//! A number that stands out from its block would make the step of the others coarse: it is left out, and multiplied in
//! f32 ([`Outlier`]).
#![allow(unsafe_code)]

use crate::layout::BLOCK;
use std::arch::x86_64::*;

/// Pairs of columns of a block. Of columns `4 i` to `4 i + 3`, the first and the third are a pair, and the others.
pub(crate) const PAIRS: usize = BLOCK / 2;
/// Words of a block and row: the pairs, the step, and the sum of the numbers for the minimum of a format.
pub(crate) const WORDS: usize = PAIRS + 2;

/// A number is left out of its block if its square is more than so many times the mean square of the others.
const OUTLIER: f32 = 36.0;
/// Most numbers that are left out of a block.
const MOST: usize = 4;

/// Blocks of smaller numbers are zeros: the reciprocal of a step would be infinite.
const TINY: f32 = 1e-31;

/// A number that is not among the codes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlier {
    /// Row of the tile.
    pub(crate) row: usize,
    /// Pair of columns, counted from the first block on.
    pub(crate) pair: usize,
    /// Whether it is the second of the pair.
    pub(crate) upper: bool,
    pub(crate) number: f32,
}

/// Fills a tile, `[blocks][WORDS][height]`, with the rows of `x`, `[rows, cols]`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(crate) fn fill(x: &[f32], cols: usize, most: i16, (data, height): (&mut [i32], usize), outliers: &mut Vec<Outlier>) {
    for (row, x) in x.chunks_exact(cols).enumerate() {
        let blocks = data.chunks_exact_mut(WORDS * height).zip(x.chunks(BLOCK));
        for (block, (data, x)) in blocks.enumerate() {
            let mut numbers = [0.0; BLOCK];
            match x.first_chunk() {
                Some(x) => numbers = *x,
                None => numbers[..x.len()].copy_from_slice(x),
            }
            let [a, b] = load(&numbers);
            let sum = _mm512_reduce_add_ps(_mm512_add_ps(a, b));
            let top = leave_out(&mut numbers, |column, number| {
                outliers.push(Outlier {
                    row,
                    pair: block * PAIRS + column / 4 * 2 + column % 2,
                    upper: column % 4 >= 2,
                    number,
                });
            });
            let (pairs, step) = code(load(&numbers), top, f32::from(most));
            for (to, pair) in data.chunks_exact_mut(height).zip(pairs) {
                to[row] = pair;
            }
            data[PAIRS * height + row] = step.to_bits() as i32;
            data[(PAIRS + 1) * height + row] = sum.to_bits() as i32;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(x: &[f32; BLOCK]) -> [__m512; 2] {
    // SAFETY: there are 32 numbers to read.
    unsafe { [_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(BLOCK / 2))] }
}

/// Takes the numbers out that stand out; the greatest magnitude of the others.
#[inline]
#[target_feature(enable = "avx512f")]
fn leave_out(numbers: &mut [f32; BLOCK], mut found: impl FnMut(usize, f32)) -> f32 {
    for left in (BLOCK - MOST..BLOCK).rev() {
        let (top, squares) = (greatest(numbers), squares(numbers));
        // Those that are none make no codes, and tiny ones are zeros.
        let stands_out = top.is_finite() && top > TINY && top * top * left as f32 > OUTLIER * (squares - top * top);
        let Some(column) = numbers.iter().position(|x| stands_out && x.abs() == top) else {
            return top;
        };
        found(column, numbers[column]);
        numbers[column] = 0.0;
    }
    greatest(numbers)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn greatest(x: &[f32; BLOCK]) -> f32 {
    // As integers, since a maximum of floats drops what is no number.
    let [a, b] = load(x).map(|x| _mm512_castps_si512(_mm512_abs_ps(x)));
    f32::from_bits(_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)) as u32)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn squares(x: &[f32; BLOCK]) -> f32 {
    let [a, b] = load(x);
    _mm512_reduce_add_ps(_mm512_fmadd_ps(a, a, _mm512_mul_ps(b, b)))
}

/// Codes and step of a block whose greatest magnitude is `top`. Infinity, and what is no number, makes a step that is none
/// either, and so outputs that show it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn code(x: [__m512; 2], top: f32, most: f32) -> ([i32; PAIRS], f32) {
    let (inverse, step) = match top {
        ..TINY => (0.0, 0.0),
        f32::INFINITY => (0.0, f32::NAN),
        _ => (most / top, top / most),
    };
    let inverse = _mm512_set1_ps(inverse);
    let [a, b] = x.map(|x| _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(x, inverse))));
    let words = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b);
    // Columns 0, 1, 2, 3 become 0, 2, 1, 3.
    let order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    let words = _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order));
    let mut pairs = [0; PAIRS];
    // SAFETY: there is room for 16 numbers.
    unsafe { _mm512_storeu_si512(pairs.as_mut_ptr().cast(), words) };
    (pairs, step)
}
