//! Quantised weights as 16-bit codes: the numbers of the file less its offset, exactly.
#![allow(unsafe_code)]

use super::{Source, Unpacked, of_16_bits};
use crate::kernel::integer::Integers;
use crate::layout::{Line, Q4_0, Q4_1, Q4K, Q6K, Q8_0};
use crate::packed::Panel;
use crate::words::PAIRS;
use std::arch::x86_64::*;

/// The codes of a format that the integer kernel reads: it has the four columns of a row in a number, of which every
/// second one becomes a pair.
///
/// # Safety
/// As [`Source::unpack`].
#[inline(always)]
unsafe fn unpack<L: Integers>(panel: Panel<'_>, block: usize, out: &mut [Line], stride: usize) -> Unpacked {
    assert!(panel.codes.len() >= (block + 1) * L::CODES && out.len() > (PAIRS - 1) * stride);
    // SAFETY: the codes are there, as are the scales of every block; each store has a line.
    unsafe {
        let (even, offset) = (_mm512_set1_epi16(255), _mm512_set1_epi16(L::OFFSET as i16));
        let codes = L::codes(panel.codes.as_ptr().add(block * L::CODES).cast());
        for (four, codes) in codes.into_iter().enumerate() {
            for (i, pair) in [_mm512_and_si512(codes, even), _mm512_srli_epi16::<8>(codes)]
                .into_iter()
                .enumerate()
            {
                let to = out.as_mut_ptr().add((2 * four + i) * stride);
                _mm512_store_si512(to.cast(), _mm512_sub_epi16(pair, offset));
            }
        }
        let (scales, minimum) = L::scales(panel.scales.as_ptr().cast(), block);
        Unpacked {
            scales,
            minimum,
            begin: [_mm512_setzero_si512(); 2],
        }
    }
}

macro_rules! source {
    ($layout:ty) => {
        impl Source for $layout {
            of_16_bits!();

            // 32 times 128 times 32767 is less than 2^28.
            const RUN: usize = PAIRS / Self::SCALES;
            const SCALES: usize = if Self::HALVES { 2 } else { 1 };
            const MINIMA: bool = <Self as Integers>::MINIMA;

            #[inline(always)]
            unsafe fn unpack(panel: Panel<'_>, block: usize, codes: &mut [Line], stride: usize) -> Unpacked {
                // SAFETY: passed on to the caller.
                unsafe { unpack::<Self>(panel, block, codes, stride) }
            }
        }
    };
}

source!(Q4_0);
source!(Q4_1);
source!(Q8_0);
source!(Q4K);
source!(Q6K);
