//! [`super::code`] for a processor without AVX-512: plain loops, which the compiler makes vectors of.
#![allow(unsafe_code)]

use super::code::{MOST, OUTLIER, TINY};
use super::{BESIDE, FOURS, Outlier};
use crate::layout::BLOCK;

/// Fills a tile, `[blocks][W + BESIDE][height]`, with the rows of `x`, `[rows, cols]`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn fill<const W: usize>(
    x: &[f32],
    cols: usize,
    most: i16,
    (data, height): (&mut [i32], usize),
    outliers: &mut Vec<Outlier>,
) {
    for (block, data) in data.chunks_exact_mut((W + BESIDE) * height).enumerate() {
        data.fill(0);
        for (row, x) in x.chunks_exact(cols).enumerate() {
            let mut numbers = [0.0; BLOCK];
            let there = &x[block * BLOCK..cols.min((block + 1) * BLOCK)];
            numbers[..there.len()].copy_from_slice(there);
            data[(W + 1) * height + row] = sum(&numbers, |x| x).to_bits() as i32;
            let top = leave_out(&mut numbers, |column, number| {
                outliers.push(Outlier {
                    row,
                    block,
                    column,
                    number,
                });
            });
            // Infinity, and what is no number, makes a step that is none either.
            let (inverse, step) = match top {
                ..TINY => (0.0, 0.0),
                f32::INFINITY => (0.0, f32::NAN),
                _ => (f32::from(most) / top, top / f32::from(most)),
            };
            data[W * height + row] = step.to_bits() as i32;
            let codes = numbers.map(|x| (x * inverse).round_ties_even() as i32);
            for (four, codes) in codes.as_chunks::<4>().0.iter().enumerate() {
                if W == FOURS {
                    let bytes = codes.map(|code| (code + 128) as u8);
                    data[four * height + row] = i32::from_le_bytes(bytes);
                } else {
                    let pair = |low: i32, high: i32| low & 0xffff | high << 16;
                    data[2 * four * height + row] = pair(codes[0], codes[2]);
                    data[(2 * four + 1) * height + row] = pair(codes[1], codes[3]);
                }
            }
        }
    }
}

/// Takes the numbers out that stand out; the greatest magnitude of the others.
#[inline(always)]
fn leave_out(numbers: &mut [f32; BLOCK], mut found: impl FnMut(usize, f32)) -> f32 {
    let mut top = greatest(numbers);
    for left in (BLOCK - MOST..BLOCK).rev() {
        let squares = sum(numbers, |x| x * x);
        // Those that are none make no codes, and tiny ones are zeros.
        if !top.is_finite() || top < TINY || top * top * left as f32 <= OUTLIER * (squares - top * top) {
            break;
        }
        if let Some(column) = numbers.iter().position(|x| x.abs() == top) {
            found(column, std::mem::take(&mut numbers[column]));
        }
        top = greatest(numbers);
    }
    top
}

#[inline(always)]
fn greatest(x: &[f32; BLOCK]) -> f32 {
    // As integers, since a maximum of floats drops what is no number.
    f32::from_bits(x.iter().fold(0, |most: u32, x| most.max(x.abs().to_bits())))
}

/// The sum of what `of` makes of the numbers.
#[inline(always)]
fn sum(x: &[f32; BLOCK], of: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0; 8];
    for eight in x.as_chunks::<8>().0 {
        for (sum, x) in sums.iter_mut().zip(eight) {
            *sum += of(*x);
        }
    }
    sums.iter().sum()
}
