//! Quantised weights as 16-bit codes: the numbers of the file less its offset, exactly.
#![allow(unsafe_code)]

use super::{Source, Unpacked, of_16_bits};
use crate::kernel::integer::Integers;
use crate::kernel::vector::Vector;
use crate::layout::{Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use crate::packed::Panel;
use crate::words::PAIRS;

/// The codes of a format that the integer kernel reads: it has the four columns of a row in a number, of which every
/// second one becomes a pair.
///
/// # Safety
/// As [`Source::unpack`].
#[inline(always)]
unsafe fn unpack<L: Integers, V: Vector>(
    panel: Panel<'_>,
    block: usize,
    row: usize,
    out: &mut [V],
    stride: usize,
) -> Unpacked<V> {
    assert!(panel.codes.len() >= (block + 1) * L::CODES && out.len() > (PAIRS - 1) * stride);
    // SAFETY: the codes are there, as are the scales of every block.
    unsafe {
        let (even, offset) = (V::words(255), V::words(L::OFFSET as i16));
        let codes = panel.codes.as_ptr().cast::<u8>().add(block * L::CODES * 64 + 4 * row);
        for (four, codes) in L::codes::<V>(codes).into_iter().enumerate() {
            out[2 * four * stride] = V::sub_words(V::and(codes, even), offset);
            out[(2 * four + 1) * stride] = V::sub_words(V::down_8(codes), offset);
        }
        let (scales, minimum) = L::scales::<V>(panel.scales.as_ptr().cast(), block, row);
        Unpacked {
            scales,
            minimum,
            begin: [V::numbers(0); 2],
        }
    }
}

macro_rules! source {
    ($layout:ty) => {
        impl<V: Vector> Source<V> for $layout {
            of_16_bits!(V);

            // 32 times 128 times 32767 is less than 2^28.
            const SCALES: usize = if Self::HALVES { 2 } else { 1 };
            const MINIMA: bool = <Self as Integers>::MINIMA;

            #[inline(always)]
            unsafe fn unpack(
                panel: Panel<'_>,
                block: usize,
                row: usize,
                codes: &mut [V],
                stride: usize,
            ) -> Unpacked<V> {
                // SAFETY: passed on to the caller.
                unsafe { unpack::<Self, V>(panel, block, row, codes, stride) }
            }
        }
    };
}

source!(Q4_0);
source!(Q4_1);
source!(Q5_0);
source!(Q5_1);
source!(Q8_0);
source!(Q4K);
source!(Q5K);
source!(Q6K);
