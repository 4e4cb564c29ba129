//! Plain floats: a row's numbers are scattered to the columns.

use super::{Layout, PANEL};
use half::{bf16, f16};

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct BF16;

impl Layout for F32 {
    const CODES: usize = 32;

    fn scale_lines(_: usize) -> usize {
        0
    }

    fn pack(row: &[u8], lane: usize, codes: &mut [u8], _: &mut [u8]) {
        for (column, number) in row.as_chunks::<4>().0.iter().enumerate() {
            codes[(column * PANEL + lane) * 4..][..4].copy_from_slice(number);
        }
    }

    #[inline(always)]
    fn code(block: &[u8], column: usize, lane: usize) -> f32 {
        let at = (column * PANEL + lane) * 4;
        f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
    }

    #[inline(always)]
    fn scale(_: &[u8], _: usize, _: usize, _: usize) -> (f32, f32) {
        (1.0, 0.0)
    }
}

impl Layout for F16 {
    const CODES: usize = 16;

    fn scale_lines(_: usize) -> usize {
        0
    }

    fn pack(row: &[u8], lane: usize, codes: &mut [u8], _: &mut [u8]) {
        for (column, number) in row.as_chunks::<2>().0.iter().enumerate() {
            codes[(column * PANEL + lane) * 2..][..2].copy_from_slice(number);
        }
    }

    #[inline(always)]
    fn code(block: &[u8], column: usize, lane: usize) -> f32 {
        let at = (column * PANEL + lane) * 2;
        f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
    }

    #[inline(always)]
    fn scale(_: &[u8], _: usize, _: usize, _: usize) -> (f32, f32) {
        (1.0, 0.0)
    }
}

impl BF16 {
    /// Two columns share a line, so that each is one shift or mask away from f32.
    #[inline(always)]
    fn at(column: usize, lane: usize) -> usize {
        (column / 2 * PANEL + lane) * 4 + column % 2 * 2
    }
}

impl Layout for BF16 {
    const CODES: usize = 16;

    fn scale_lines(_: usize) -> usize {
        0
    }

    fn pack(row: &[u8], lane: usize, codes: &mut [u8], _: &mut [u8]) {
        for (column, number) in row.as_chunks::<2>().0.iter().enumerate() {
            codes[Self::at(column, lane)..][..2].copy_from_slice(number);
        }
    }

    #[inline(always)]
    fn code(block: &[u8], column: usize, lane: usize) -> f32 {
        let at = Self::at(column, lane);
        bf16::from_le_bytes([block[at], block[at + 1]]).to_f32()
    }

    #[inline(always)]
    fn scale(_: &[u8], _: usize, _: usize, _: usize) -> (f32, f32) {
        (1.0, 0.0)
    }
}
