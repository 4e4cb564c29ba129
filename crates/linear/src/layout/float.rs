//! Plain floats: a row's numbers are scattered to the columns.

use super::{Lanes, Layout, Line, PANEL, Tile};
use kvlab_cpu::f16_to_f32;

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
    fn all_codes(block: &[Line], out: &mut Tile) {
        for (lanes, line) in out.iter_mut().zip(block) {
            for (lane, bytes) in lanes.iter_mut().zip(line.0.as_chunks::<4>().0) {
                *lane = f32::from_le_bytes(*bytes);
            }
        }
    }

    #[inline(always)]
    fn scale(_: &[u8], _: usize, _: usize, _: usize) -> (f32, f32) {
        (1.0, 0.0)
    }

    #[inline(always)]
    fn all_scales(_: &[u8], _: usize, _: usize) -> Option<[Lanes; 2]> {
        None
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
        f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
    }

    #[inline(always)]
    fn all_codes(block: &[Line], out: &mut Tile) {
        for (columns, line) in out.as_chunks_mut::<2>().0.iter_mut().zip(block) {
            for (lanes, numbers) in columns.iter_mut().zip(line.0.as_chunks::<{ 2 * PANEL }>().0) {
                for (lane, bytes) in lanes.iter_mut().zip(numbers.as_chunks::<2>().0) {
                    *lane = f16_to_f32(u16::from_le_bytes(*bytes));
                }
            }
        }
    }

    #[inline(always)]
    fn scale(_: &[u8], _: usize, _: usize, _: usize) -> (f32, f32) {
        (1.0, 0.0)
    }

    #[inline(always)]
    fn all_scales(_: &[u8], _: usize, _: usize) -> Option<[Lanes; 2]> {
        None
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
        f32::from_bits(u32::from(u16::from_le_bytes([block[at], block[at + 1]])) << 16)
    }

    #[inline(always)]
    fn all_codes(block: &[Line], out: &mut Tile) {
        for ([first, second], line) in out.as_chunks_mut::<2>().0.iter_mut().zip(block) {
            for (lane, both) in line.0.as_chunks::<4>().0.iter().enumerate() {
                let both = u32::from_le_bytes(*both);
                first[lane] = f32::from_bits(both << 16);
                second[lane] = f32::from_bits(both & 0xffff_0000);
            }
        }
    }

    #[inline(always)]
    fn scale(_: &[u8], _: usize, _: usize, _: usize) -> (f32, f32) {
        (1.0, 0.0)
    }

    #[inline(always)]
    fn all_scales(_: &[u8], _: usize, _: usize) -> Option<[Lanes; 2]> {
        None
    }
}
