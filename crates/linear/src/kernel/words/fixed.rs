//! Floats as 16-bit codes: fixed point, with a power of two as the scale of a row's 32 columns.
#![allow(unsafe_code)]

use super::{Source, Unpacked, of_16_bits};
use crate::kernel::float::Columns;
use crate::kernel::vector::{Vector, Wide};
use crate::layout::{BF16, BLOCK, F16};
use crate::packed::Panel;
use crate::words::PAIRS;
use std::arch::x86_64::*;

/// The greatest magnitude of a block has a code from `2^13` to `2^14`. So a number of 8 bits (bf16) is exact down to a 64th
/// of it and one of 11 bits (f16) down to an 8th; smaller ones are off by at most a 16384th of it.
const UP: i32 = 1 << 13;
/// Blocks of smaller numbers are zeros: their scale would not be a normal number.
const TINY: i32 = 27 << 23;

/// # Safety
/// As [`Source::unpack`].
#[inline(always)]
unsafe fn unpack<L: Columns>(panel: Panel<'_>, block: usize, out: &mut [Wide], stride: usize) -> Unpacked<Wide> {
    assert!(panel.codes.len() >= (block + 1) * L::CODES && out.len() > (PAIRS - 1) * stride);
    // SAFETY: the codes are there.
    unsafe {
        let exponent = _mm512_set1_epi32(0x7f80_0000);
        let codes = panel.codes.as_ptr().add(block * L::CODES).cast::<u8>();
        let mut most = _mm512_setzero_si512();
        for pair in 0..BLOCK / 2 {
            for column in L::pair::<Wide>(codes, pair, 0) {
                // As integers, since a maximum of floats drops what is no number.
                most = _mm512_max_epi32(most, _mm512_castps_si512(_mm512_abs_ps(column)));
            }
        }
        // The exponent alone: the power of two below. It is infinity where a number is, or is none: so no product is finite.
        let power = _mm512_and_si512(most, exponent);
        let small = _mm512_cmplt_epi32_mask(power, _mm512_set1_epi32(TINY));
        let power = _mm512_castsi512_ps(power);
        let scale = _mm512_mul_ps(power, _mm512_set1_ps(1.0 / UP as f32));
        let up = _mm512_maskz_div_ps(!small, _mm512_set1_ps(UP as f32), power);
        for four in 0..BLOCK / 4 {
            let [a, b] = L::pair::<Wide>(codes, 2 * four, 0);
            let [c, d] = L::pair::<Wide>(codes, 2 * four + 1, 0);
            for (i, (first, second)) in [(a, c), (b, d)].into_iter().enumerate() {
                let first = _mm512_cvtps_epi32(_mm512_mul_ps(first, up));
                let second = _mm512_cvtps_epi32(_mm512_mul_ps(second, up));
                let pair = _mm512_mask_blend_epi16(0x5555_5555, _mm512_slli_epi32::<16>(second), first);
                out[(2 * four + i) * stride] = pair;
            }
        }
        Unpacked {
            scales: [_mm512_maskz_mov_ps(!small, scale); 2],
            minimum: _mm512_setzero_ps(),
            begin: [_mm512_setzero_si512(); 2],
        }
    }
}

macro_rules! source {
    ($layout:ty) => {
        impl Source<Wide> for $layout {
            of_16_bits!(Wide);

            // Codes of activations beside these are [`super::BESIDE_FLOATS`].
            const SCALES: usize = 1;
            const MINIMA: bool = false;

            #[inline(always)]
            unsafe fn unpack(
                panel: Panel<'_>,
                block: usize,
                _: usize,
                codes: &mut [Wide],
                stride: usize,
            ) -> Unpacked<Wide> {
                // SAFETY: passed on to the caller.
                unsafe { unpack::<$layout>(panel, block, codes, stride) }
            }
        }
    };
}

source!(F16);
source!(BF16);
