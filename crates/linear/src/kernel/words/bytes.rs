//! Activations of 8 bits times quantised weights: `vpdpbusd` adds four products of a byte without a sign, an activation's code
//! and 128, and one with, a weight's. What the 128 add is the same for all rows of activations: sums begin with it taken off.
#![allow(unsafe_code)]

use super::{Part, Source, Unpacked, all_panels, dot_bytes};
use crate::kernel::integer::Integers;
use crate::layout::Line;
use crate::packed::{Panel, with_quantised};
use crate::words::{FOURS, Words};
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// # Safety
/// As [`super::compute`], for a quantised weight.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn compute(part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe { with_quantised!(part.weight.format(), panels(part, x)) }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn panels<L: Integers>(part: &Part<'_>, x: &Words) {
    // SAFETY: passed on to the caller.
    unsafe { all_panels::<Bytes<L>>(part, x) }
}

/// A format's codes as bytes with a sign.
struct Bytes<L>(PhantomData<L>);

impl<L: Integers> Bytes<L> {
    /// What is taken off a code: with a minimum, codes of 4 bits begin with zero, and the rounding of activations would be
    /// multiplied with what all have in common.
    const MIDDLE: i32 = if L::MINIMA { 8 } else { L::OFFSET };
}

impl<L: Integers> Source for Bytes<L> {
    const WORDS: usize = FOURS;
    // 32 times 128 times 255 is less than 2^21.
    const RUN: usize = FOURS / Self::SCALES;
    const SCALES: usize = if L::HALVES { 2 } else { 1 };
    const MINIMA: bool = L::MINIMA;
    const BEGIN: bool = true;
    const BITS: u32 = 8;

    #[inline(always)]
    unsafe fn unpack(panel: Panel<'_>, block: usize, out: &mut [Line], stride: usize) -> Unpacked {
        assert!(panel.codes.len() >= (block + 1) * L::CODES && out.len() > (FOURS - 1) * stride);
        // SAFETY: the codes are there, as are the scales of every block; each store has a line.
        unsafe {
            let middle = _mm512_set1_epi8(Self::MIDDLE as i8);
            let up = _mm512_set1_epi8(i8::MIN);
            let mut begin = [_mm512_setzero_si512(); 2];
            for (i, codes) in L::codes(panel.codes.as_ptr().add(block * L::CODES).cast())
                .into_iter()
                .enumerate()
            {
                let codes = _mm512_sub_epi8(codes, middle);
                _mm512_store_si512(out.as_mut_ptr().add(i * stride).cast(), codes);
                let half = &mut begin[i * Self::SCALES / FOURS];
                *half = Self::dot(*half, codes, up);
            }
            let (scales, minimum) = L::scales(panel.scales.as_ptr().cast(), block);
            let taken = _mm512_set1_ps((Self::MIDDLE - L::OFFSET) as f32);
            Unpacked {
                scales,
                minimum: _mm512_fmadd_ps(scales[0], taken, minimum),
                begin: begin.map(|begin| _mm512_sub_epi32(_mm512_setzero_si512(), begin)),
            }
        }
    }

    #[inline(always)]
    unsafe fn dot(sum: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        // SAFETY: passed on to the caller.
        unsafe { dot_bytes(sum, codes, x) }
    }

    fn place(column: usize) -> (usize, u32) {
        (column / 4, 8 * (3 - column as u32 % 4))
    }
}
