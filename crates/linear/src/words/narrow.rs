//! [`super::code`] with AVX2. No closures: those are functions of their own, without its instructions.
#![allow(unsafe_code)]

use super::code::{MOST, stands_out, step};
use super::{BESIDE, FOURS, Most, Outlier, PAIRS};
use crate::layout::BLOCK;
use std::arch::x86_64::*;

/// Numbers of a vector.
const LANES: usize = 8;

/// Fills a tile, `[blocks][W + BESIDE][height]`, with the rows of `x`, `[rows, cols]`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn fill<const W: usize>(
    x: &[f32],
    cols: usize,
    most: Most,
    (data, height): (&mut [i32], usize),
    outliers: &mut Vec<Outlier>,
) {
    if x.len() < cols * height {
        data.fill(0);
    }
    for (block, data) in data.chunks_exact_mut((W + BESIDE) * height).enumerate() {
        for (row, x) in x.chunks_exact(cols).enumerate() {
            let mut numbers = [0.0; BLOCK];
            let there = &x[block * BLOCK..cols.min((block + 1) * BLOCK)];
            numbers[..there.len()].copy_from_slice(there);
            let [total, squares] = sums(&numbers);
            let mut top = greatest(&numbers);
            if stands_out(top, squares, BLOCK - 1) {
                top = leave_out(&mut numbers, (row, block), outliers);
            }
            if let Some(part) = most.part() {
                top = top.max(parts(&numbers, part));
            }
            let (inverse, step) = step(top, f32::from(most.code));
            for (word, number) in words::<W>(&numbers, inverse).iter().enumerate().take(W) {
                data[word * height + row] = *number;
            }
            data[W * height + row] = step.to_bits() as i32;
            data[(W + 1) * height + row] = total.to_bits() as i32;
        }
    }
}

/// Takes the numbers out that stand out; the greatest magnitude of the others.
#[cold]
#[target_feature(enable = "avx2,fma,f16c")]
fn leave_out(numbers: &mut [f32; BLOCK], (row, block): (usize, usize), outliers: &mut Vec<Outlier>) -> f32 {
    let mut top = greatest(numbers);
    for others in (BLOCK - MOST..BLOCK).rev() {
        let column = numbers.iter().position(|x| x.abs() == top);
        let Some(column) = column.filter(|_| stands_out(top, sums(numbers)[1], others)) else {
            break;
        };
        let number = std::mem::take(&mut numbers[column]);
        outliers.push(Outlier {
            row,
            block,
            column,
            number,
        });
        top = greatest(numbers);
    }
    top
}

/// The words of a block's codes: `W` of them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn words<const W: usize>(numbers: &[f32; BLOCK], inverse: f32) -> [i32; PAIRS] {
    let mut codes = [_mm256_setzero_si256(); BLOCK / LANES];
    for (codes, x) in codes.iter_mut().zip(numbers.as_chunks::<LANES>().0) {
        // SAFETY: there are eight numbers.
        let x = unsafe { _mm256_loadu_ps(x.as_ptr()) };
        *codes = _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(inverse)));
    }
    let mut words = [_mm256_setzero_si256(); 2];
    if W == FOURS {
        let up = _mm256_set1_epi32(128);
        for codes in &mut codes {
            *codes = _mm256_add_epi32(*codes, up);
        }
        let [a, b, c, d] = codes;
        let bytes = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        // The lower halves of all four came first.
        words[0] = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    } else {
        // Columns 0, 1, 2, 3 become the pairs 0, 2 and 1, 3.
        for codes in &mut codes {
            let upper = _mm256_slli_epi32::<16>(_mm256_shuffle_epi32::<0b_11_10_11_10>(*codes));
            *codes = _mm256_blend_epi16::<0b_1010_1010>(*codes, upper);
        }
        for (words, codes) in words.iter_mut().zip(codes.as_chunks::<2>().0) {
            let both = _mm256_unpacklo_epi64(codes[0], codes[1]);
            *words = _mm256_permute4x64_epi64::<0b_11_01_10_00>(both);
        }
    }
    bytemuck::cast(words)
}

/// The greatest magnitude. As integers, since a maximum of floats drops what is no number.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn greatest(x: &[f32; BLOCK]) -> f32 {
    let mut most = _mm256_setzero_si256();
    for x in x.as_chunks::<LANES>().0 {
        // SAFETY: there are eight numbers.
        let x = unsafe { _mm256_loadu_si256(x.as_ptr().cast()) };
        most = _mm256_max_epi32(most, _mm256_and_si256(x, _mm256_set1_epi32(i32::MAX)));
    }
    let four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256::<1>(most));
    let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b_11_10_11_10>(four));
    let one = _mm_max_epi32(two, _mm_shuffle_epi32::<0b_01_01_01_01>(two));
    f32::from_bits(_mm_cvtsi128_si32(one) as u32)
}

/// The sum of a part of each magnitude.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn parts(x: &[f32; BLOCK], part: f32) -> f32 {
    let mut all = [0.0; LANES];
    for x in x.as_chunks::<LANES>().0 {
        for (sum, x) in all.iter_mut().zip(x) {
            *sum += x.abs() * part;
        }
    }
    all.iter().sum()
}

/// The sum of the numbers, and of their squares.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sums(x: &[f32; BLOCK]) -> [f32; 2] {
    let mut sums = [_mm256_setzero_ps(); 2];
    for x in x.as_chunks::<LANES>().0 {
        // SAFETY: there are eight numbers.
        let x = unsafe { _mm256_loadu_ps(x.as_ptr()) };
        sums = [_mm256_add_ps(sums[0], x), _mm256_fmadd_ps(x, x, sums[1])];
    }
    let pairs = _mm256_hadd_ps(sums[0], sums[1]);
    let fours = _mm256_hadd_ps(pairs, pairs);
    let eights = _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours));
    [_mm_cvtss_f32(eights), _mm_cvtss_f32(_mm_movehdup_ps(eights))]
}
