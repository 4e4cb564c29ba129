//! Activations of 8 bits times quantised weights: four products of a byte without a sign, an activation's code and 128, and one
//! with, a weight's, are added up at a time. What the 128 add is the same for all rows of activations and is taken off the sums.
#![allow(unsafe_code)]

use super::{Source, Unpacked};
use crate::kernel::integer::Integers;
use crate::kernel::vector::Vector;
use crate::packed::Panel;
use crate::words::FOURS;
use std::marker::PhantomData;

/// A format's codes as bytes with a sign.
pub(super) struct Bytes<L>(PhantomData<L>);

impl<L: Integers> Bytes<L> {
    /// What is taken off a code: with a minimum, codes begin with zero, and the rounding of activations would be multiplied with what
    /// all have in common.
    const MIDDLE: i32 = (L::MOST + 1) / 2;
}

impl<L: Integers, V: Vector> Source<V> for Bytes<L> {
    const WORDS: usize = FOURS;
    // 32 times 128 times 255 is less than 2^21.
    const SCALES: usize = if L::HALVES { 2 } else { 1 };
    const MINIMA: bool = L::MINIMA;
    const BEGIN: bool = true;
    const BITS: u32 = 8;

    #[inline(always)]
    unsafe fn unpack(panel: Panel<'_>, block: usize, row: usize, out: &mut [V], stride: usize) -> Unpacked<V> {
        assert!(panel.codes.len() >= (block + 1) * L::CODES && out.len() > (FOURS - 1) * stride);
        // SAFETY: the codes are there, as are the scales of every block.
        unsafe {
            let middle = V::bytes(Self::MIDDLE as i8);
            let up = V::bytes(i8::MIN);
            let mut begin = [V::numbers(0); 2];
            let codes = panel.codes.as_ptr().cast::<u8>().add(block * L::CODES * 64 + 4 * row);
            for (i, codes) in L::codes::<V>(codes).into_iter().enumerate() {
                let codes = V::sub_bytes(codes, middle);
                out[i * stride] = codes;
                let half = &mut begin[i * <Self as Source<V>>::SCALES / FOURS];
                *half = Self::dot(*half, codes, up);
            }
            let (scales, minimum) = L::scales::<V>(panel.scales.as_ptr().cast(), block, row);
            let taken = V::float((Self::MIDDLE - L::OFFSET) as f32);
            Unpacked {
                scales,
                minimum: V::fused(scales[0], taken, minimum),
                begin: [
                    V::sub(V::numbers(0), Self::sums(begin[0])),
                    V::sub(V::numbers(0), Self::sums(begin[1])),
                ],
            }
        }
    }

    #[inline(always)]
    unsafe fn dot(sum: V, codes: V, x: V) -> V {
        // SAFETY: passed on to the caller.
        unsafe { V::dot_bytes(sum, codes, x) }
    }

    #[inline(always)]
    unsafe fn sums(sums: V) -> V {
        // SAFETY: passed on to the caller.
        unsafe { V::sums(sums) }
    }

    fn place(column: usize) -> (usize, u32) {
        (column / 4, 8 * (3 - column as u32 % 4))
    }
}
