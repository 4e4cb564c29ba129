//! Quantised weights times many rows with AVX-512: two panels at a time are unpacked to f32, and multiplied as floats.
//!
//! From some rows on this is faster than three products of bytes: a multiplication takes one instruction for 16 numbers
//! there and three for 64 here, but of the former there are two in a cycle.
#![allow(unsafe_code)]

use super::Part;
use super::float::{SOME, panels};
use super::integer::Integers;
use crate::Format;
use crate::input::Floats;
use crate::layout::{BLOCK, F32, Line, PANEL, Q4_0, Q4_1, Q4K, Q6K, Q8_0};
use crate::packed::Panel;
use bytemuck::Zeroable;
use std::arch::x86_64::*;

/// # Safety
/// As [`super::compute`], for a quantised weight, with AVX-512 (F, BW, VL, DQ).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn compute(part: &Part<'_>, x: &Floats<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        match part.weight.format() {
            Format::Q4_0 => all_panels::<Q4_0>(part, x),
            Format::Q4_1 => all_panels::<Q4_1>(part, x),
            Format::Q8_0 => all_panels::<Q8_0>(part, x),
            Format::Q4_K => all_panels::<Q4K>(part, x),
            Format::Q6_K => all_panels::<Q6K>(part, x),
            Format::F32 | Format::F16 | Format::BF16 => unreachable!("floats are floats already"),
        }
    }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn all_panels<L: Integers>(part: &Part<'_>, x: &Floats<'_>) {
    let lines = part.weight.cols().div_ceil(BLOCK) * BLOCK;
    let mut floats = vec![Line::zeroed(); SOME * lines];
    let (first, second) = floats.split_at_mut(lines);
    let mut panel = part.panels.start;
    while panel < part.panels.end {
        // SAFETY: passed on to the caller.
        panel += unsafe {
            unpack::<L>(part.weight.panel(panel), first);
            if panel + 1 < part.panels.end {
                unpack::<L>(part.weight.panel(panel + 1), second);
                panels::<F32, SOME>(part, panel, [first, second], x)
            } else {
                panels::<F32, 1>(part, panel, [first], x)
            }
        };
    }
}

/// Unpacks a panel, a line for each column.
///
/// # Safety
/// The machine has AVX-512 (F, BW, VL, DQ).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn unpack<L: Integers>(panel: Panel<'_>, out: &mut [Line]) {
    let blocks = out.len() / BLOCK;
    assert!(panel.codes.len() >= blocks * L::CODES && panel.scales.len() >= L::scale_lines(blocks));
    let (offset, byte) = (_mm512_set1_epi32(L::OFFSET), _mm512_set1_epi32(255));
    for (block, columns) in out.chunks_exact_mut(BLOCK).enumerate() {
        // SAFETY: the block is one of those that were asserted to be there, and a line has room for 16 numbers.
        unsafe {
            let codes = L::codes(panel.codes.as_ptr().add(block * L::CODES).cast());
            let (scale, minimum) = L::scales(panel.scales.as_ptr().cast(), block);
            for (i, four) in columns.chunks_exact_mut(4).enumerate() {
                let scale = scale[i * 4 / PANEL];
                let mut code = codes[i];
                for column in four {
                    let number = _mm512_sub_epi32(_mm512_and_si512(code, byte), offset);
                    let number = _mm512_fmadd_ps(_mm512_cvtepi32_ps(number), scale, minimum);
                    _mm512_storeu_ps(column.0.as_mut_ptr().cast(), number);
                    code = _mm512_srli_epi32::<8>(code);
                }
            }
        }
    }
}
