//! Quantised formats: codes of 4, 5, 6 or 8 bits, and scales.
//!
//! What a file's block looks like is said in `kvlab-weights` (`blocks.rs`). Scales keep the file's precision: a K
//! format has its f16 scale and its small integers, which are multiplied when they are used.

use super::{BLOCK, HALF, Lanes, Layout, Line, PANEL, Tile};
use kvlab_cpu::f16_to_f32;

/// Bytes of a line.
const LINE: usize = 64;
/// Bytes of 16 numbers in f16.
const F16S: usize = 2 * PANEL;

pub(crate) struct Q4_0;
pub(crate) struct Q4_1;
pub(crate) struct Q5_0;
pub(crate) struct Q5_1;
pub(crate) struct Q8_0;
pub(crate) struct Q4K;
pub(crate) struct Q5K;
pub(crate) struct Q6K;

/// Where the byte of a column lies among lines of four columns.
#[inline(always)]
fn byte(column: usize, lane: usize) -> usize {
    column / 4 * LINE + lane * 4 + column % 4
}

/// A 4-bit code.
#[inline(always)]
fn nibble(block: &[u8], column: usize, lane: usize) -> u8 {
    block[byte(column % HALF, lane)] >> (column / HALF * 4) & 15
}

/// Puts 32 4-bit codes into a block.
fn put_nibbles(block: &mut [u8], lane: usize, code: impl Fn(usize) -> u8) {
    for column in 0..HALF {
        block[byte(column, lane)] = code(column) | code(column + HALF) << 4;
    }
}

/// A number of each lane, whose four columns are the bytes of a word, from the first column on.
#[inline(always)]
fn words(line: &Line) -> [u32; PANEL] {
    let mut words = [0; PANEL];
    for (word, bytes) in words.iter_mut().zip(line.0.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// Eight bits of each word from a bit on, of which `mask` counts, less `offset`.
#[inline(always)]
fn bits(words: &[u32; PANEL], from: usize, mask: u32, offset: f32) -> Lanes {
    let mut lanes = [0.0; PANEL];
    for (lane, word) in lanes.iter_mut().zip(words) {
        // With a sign, since that is what vectors of whole numbers have.
        *lane = (word >> from & mask) as i32 as f32 - offset;
    }
    lanes
}

/// All codes of four lines of nibbles.
#[inline(always)]
fn nibbles(block: &[Line], offset: f32, out: &mut Tile) {
    for (four, line) in block.iter().enumerate() {
        let words = words(line);
        for column in 0..4 {
            out[4 * four + column] = bits(&words, 8 * column, 15, offset);
            out[HALF + 4 * four + column] = bits(&words, 8 * column + 4, 15, offset);
        }
    }
}

/// Lines of 5-bit codes.
const FIVES: usize = 5;

/// The byte with the fifth bit of a column, behind four lines of nibbles: bit `i` for columns `4 i` to `4 i + 3`.
#[inline(always)]
fn fifth(column: usize, lane: usize) -> usize {
    4 * LINE + lane * 4 + column % 4
}

/// A 5-bit code.
#[inline(always)]
fn five(block: &[u8], column: usize, lane: usize) -> u8 {
    nibble(block, column, lane) | (block[fifth(column, lane)] >> (column / 4) & 1) << 4
}

/// Puts 32 5-bit codes into a block of zeros.
fn put_fives(block: &mut [u8], lane: usize, code: impl Fn(usize) -> u8) {
    put_nibbles(block, lane, |column| code(column) & 15);
    for column in 0..BLOCK {
        block[fifth(column, lane)] |= code(column) >> 4 << (column / 4);
    }
}

/// Code number `i` of a file's block, with the fifth bits of all and then pairs of nibbles.
fn five_of_file(block: &[u8], i: usize) -> u8 {
    let nibble = block[4 + i % HALF] >> (i / HALF * 4) & 15;
    nibble | (block[i / 8] >> (i % 8) & 1) << 4
}

/// All codes of four lines of nibbles and one of fifth bits.
#[inline(always)]
fn fives(block: &[Line], offset: f32, out: &mut Tile) {
    nibbles(&block[..4], offset, out);
    let words = words(&block[4]);
    for (column, lanes) in out.iter_mut().enumerate() {
        let fifth = bits(&words, 8 * (column % 4) + column / 4, 1, 0.0);
        for (lane, fifth) in lanes.iter_mut().zip(fifth) {
            *lane += 16.0 * fifth;
        }
    }
}

#[inline(always)]
fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// 16 numbers in f16.
#[inline(always)]
fn halves(bytes: &[u8], at: usize) -> Lanes {
    let mut lanes = [0.0; PANEL];
    for (lane, bytes) in lanes.iter_mut().zip(bytes[at..at + F16S].as_chunks::<2>().0) {
        *lane = f16_to_f32(u16::from_le_bytes(*bytes));
    }
    lanes
}

/// 16 of these, times a number of a byte each.
#[inline(always)]
fn times(mut halves: Lanes, bytes: &[u8], at: usize, number: impl Fn(u8) -> f32) -> Lanes {
    for (lane, byte) in halves.iter_mut().zip(&bytes[at..at + PANEL]) {
        *lane *= number(*byte);
    }
    halves
}

/// Puts the two bytes of a file's f16 into a lane.
fn put_half(scales: &mut [u8], first: usize, lane: usize, number: &[u8]) {
    scales[first + 2 * lane..][..2].copy_from_slice(&number[..2]);
}

impl Layout for Q4_0 {
    const CODES: usize = 4;

    fn scale_lines(blocks: usize) -> usize {
        blocks.div_ceil(2)
    }

    fn pack(row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]) {
        for (b, block) in row.as_chunks::<18>().0.iter().enumerate() {
            put_half(scales, b * F16S, lane, block);
            for (column, both) in block[2..].iter().enumerate() {
                codes[b * Self::CODES * LINE + byte(column, lane)] = *both;
            }
        }
    }

    #[inline(always)]
    fn code(block: &[u8], column: usize, lane: usize) -> f32 {
        f32::from(nibble(block, column, lane)) - 8.0
    }

    #[inline(always)]
    fn all_codes(block: &[Line], out: &mut Tile) {
        nibbles(block, 8.0, out);
    }

    #[inline(always)]
    fn all_scales(panel: &[u8], block: usize, _: usize) -> Option<[Lanes; 2]> {
        Some([halves(panel, block * F16S), [0.0; PANEL]])
    }

    #[inline(always)]
    fn scale(panel: &[u8], block: usize, _: usize, lane: usize) -> (f32, f32) {
        (half_at(panel, block * F16S + 2 * lane), 0.0)
    }
}

impl Layout for Q4_1 {
    const CODES: usize = 4;

    fn scale_lines(blocks: usize) -> usize {
        blocks
    }

    fn pack(row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]) {
        for (b, block) in row.as_chunks::<20>().0.iter().enumerate() {
            put_half(scales, b * LINE, lane, block);
            put_half(scales, b * LINE + F16S, lane, &block[2..]);
            for (column, both) in block[4..].iter().enumerate() {
                codes[b * Self::CODES * LINE + byte(column, lane)] = *both;
            }
        }
    }

    #[inline(always)]
    fn code(block: &[u8], column: usize, lane: usize) -> f32 {
        f32::from(nibble(block, column, lane))
    }

    #[inline(always)]
    fn all_codes(block: &[Line], out: &mut Tile) {
        nibbles(block, 0.0, out);
    }

    #[inline(always)]
    fn all_scales(panel: &[u8], block: usize, _: usize) -> Option<[Lanes; 2]> {
        Some([halves(panel, block * LINE), halves(panel, block * LINE + F16S)])
    }

    #[inline(always)]
    fn scale(panel: &[u8], block: usize, _: usize, lane: usize) -> (f32, f32) {
        let at = block * LINE + 2 * lane;
        (half_at(panel, at), half_at(panel, at + F16S))
    }
}

impl Layout for Q8_0 {
    const CODES: usize = 8;

    fn scale_lines(blocks: usize) -> usize {
        blocks.div_ceil(2)
    }

    fn pack(row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]) {
        for (b, block) in row.as_chunks::<34>().0.iter().enumerate() {
            put_half(scales, b * F16S, lane, block);
            for (column, code) in block[2..].iter().enumerate() {
                codes[b * Self::CODES * LINE + byte(column, lane)] = code ^ 0x80;
            }
        }
    }

    #[inline(always)]
    fn code(block: &[u8], column: usize, lane: usize) -> f32 {
        f32::from(block[byte(column, lane)]) - 128.0
    }

    #[inline(always)]
    fn all_codes(block: &[Line], out: &mut Tile) {
        for (columns, line) in out.as_chunks_mut::<4>().0.iter_mut().zip(block) {
            let words = words(line);
            for (column, lanes) in columns.iter_mut().enumerate() {
                *lanes = bits(&words, 8 * column, 255, 128.0);
            }
        }
    }

    #[inline(always)]
    fn all_scales(panel: &[u8], block: usize, _: usize) -> Option<[Lanes; 2]> {
        Some([halves(panel, block * F16S), [0.0; PANEL]])
    }

    #[inline(always)]
    fn scale(panel: &[u8], block: usize, _: usize, lane: usize) -> (f32, f32) {
        (half_at(panel, block * F16S + 2 * lane), 0.0)
    }
}

/// Blocks of 32 in one of 256, and the lines of scales of all 16 rows for those.
pub(crate) const K_BLOCKS: usize = 8;
pub(crate) const K_SCALES: usize = 5;

impl Layout for Q4K {
    const CODES: usize = 4;

    fn scale_lines(blocks: usize) -> usize {
        blocks / K_BLOCKS * K_SCALES
    }

    fn pack(row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]) {
        for (s, block) in row.as_chunks::<144>().0.iter().enumerate() {
            put_scales_min(block, lane, &mut scales[s * K_SCALES * LINE..]);
            for group in 0..K_BLOCKS {
                // Two groups share 32 bytes: the low and the high nibbles.
                let pair = &block[16 + group / 2 * BLOCK..][..BLOCK];
                let codes = &mut codes[(s * K_BLOCKS + group) * Self::CODES * LINE..];
                put_nibbles(codes, lane, |i| pair[i] >> (group % 2 * 4) & 15);
            }
        }
    }

    #[inline(always)]
    fn code(block: &[u8], column: usize, lane: usize) -> f32 {
        f32::from(nibble(block, column, lane))
    }

    #[inline(always)]
    fn all_codes(block: &[Line], out: &mut Tile) {
        nibbles(block, 0.0, out);
    }

    #[inline(always)]
    fn all_scales(panel: &[u8], block: usize, _: usize) -> Option<[Lanes; 2]> {
        let (scales, group) = (&panel[block / K_BLOCKS * K_SCALES * LINE..], block % K_BLOCKS);
        Some([
            times(halves(scales, 0), scales, LINE + group * PANEL, f32::from),
            times(halves(scales, F16S), scales, 3 * LINE + group * PANEL, |minimum| {
                -f32::from(minimum)
            }),
        ])
    }

    #[inline(always)]
    fn scale(panel: &[u8], block: usize, _: usize, lane: usize) -> (f32, f32) {
        let (scales, group) = (&panel[block / K_BLOCKS * K_SCALES * LINE..], block % K_BLOCKS);
        let scale = f32::from(scales[LINE + group * PANEL + lane]);
        let minimum = f32::from(scales[3 * LINE + group * PANEL + lane]);
        (
            half_at(scales, 2 * lane) * scale,
            -(half_at(scales, F16S + 2 * lane) * minimum),
        )
    }
}

/// Codes of 5 bits with the scales of a format of 4, and what is taken off a code; `pack` as [`Layout::pack`].
macro_rules! five_bits {
    ($layout:ty, $four:ty, $offset:literal, $pack:ident) => {
        impl Layout for $layout {
            const CODES: usize = FIVES;

            fn scale_lines(blocks: usize) -> usize {
                <$four>::scale_lines(blocks)
            }

            fn pack(row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]) {
                $pack(row, lane, codes, scales);
            }

            #[inline(always)]
            fn code(block: &[u8], column: usize, lane: usize) -> f32 {
                f32::from(five(block, column, lane)) - $offset
            }

            #[inline(always)]
            fn all_codes(block: &[Line], out: &mut Tile) {
                fives(block, $offset, out);
            }

            #[inline(always)]
            fn all_scales(panel: &[u8], block: usize, half: usize) -> Option<[Lanes; 2]> {
                <$four>::all_scales(panel, block, half)
            }

            #[inline(always)]
            fn scale(panel: &[u8], block: usize, half: usize, lane: usize) -> (f32, f32) {
                <$four>::scale(panel, block, half, lane)
            }
        }
    };
}

five_bits!(Q5_0, Q4_0, 16.0, pack_q5_0);
five_bits!(Q5_1, Q4_1, 0.0, pack_q5_1);
five_bits!(Q5K, Q4K, 0.0, pack_q5_k);

fn pack_q5_0(row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]) {
    for (b, block) in row.as_chunks::<22>().0.iter().enumerate() {
        put_half(scales, b * F16S, lane, block);
        put_fives(&mut codes[b * FIVES * LINE..], lane, |i| five_of_file(&block[2..], i));
    }
}

fn pack_q5_1(row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]) {
    for (b, block) in row.as_chunks::<24>().0.iter().enumerate() {
        put_half(scales, b * LINE, lane, block);
        put_half(scales, b * LINE + F16S, lane, &block[2..]);
        put_fives(&mut codes[b * FIVES * LINE..], lane, |i| five_of_file(&block[4..], i));
    }
}

fn pack_q5_k(row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]) {
    for (s, block) in row.as_chunks::<176>().0.iter().enumerate() {
        put_scales_min(block, lane, &mut scales[s * K_SCALES * LINE..]);
        let fifths = &block[16..][..BLOCK];
        for group in 0..K_BLOCKS {
            let pair = &block[48 + group / 2 * BLOCK..][..BLOCK];
            let codes = &mut codes[(s * K_BLOCKS + group) * FIVES * LINE..];
            let nibble = |i: usize| pair[i] >> (group % 2 * 4) & 15;
            put_fives(codes, lane, |i| nibble(i) | (fifths[i] >> group & 1) << 4);
        }
    }
}

/// Scales and minima of a block of Q4_K or Q5_K: the first line has those of the 16 blocks and then of their minima; then come,
/// group by group, a byte of each row: eight groups of scales, and eight of minima.
fn put_scales_min(block: &[u8], lane: usize, scales: &mut [u8]) {
    put_half(scales, 0, lane, block);
    put_half(scales, F16S, lane, &block[2..]);
    for group in 0..K_BLOCKS {
        let (scale, minimum) = scale_min(&block[4..16], group);
        scales[LINE + group * PANEL + lane] = scale;
        scales[3 * LINE + group * PANEL + lane] = minimum;
    }
}

/// Scale and minimum of a group of eight, 6 bits each in 12 bytes, as `kvlab-weights` explains it.
fn scale_min(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        (
            packed[group + 4] & 15 | packed[group - 4] >> 6 << 4,
            packed[group + 4] >> 4 | packed[group] >> 6 << 4,
        )
    }
}

impl Layout for Q6K {
    const CODES: usize = 6;

    fn scale_lines(blocks: usize) -> usize {
        blocks / K_BLOCKS * K_SCALES
    }

    /// Of the scales, the first line has those of the 16 blocks; then come, group by group, a byte of each row.
    fn pack(row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]) {
        for (s, block) in row.as_chunks::<210>().0.iter().enumerate() {
            let scales = &mut scales[s * K_SCALES * LINE..];
            put_half(scales, 0, lane, &block[208..]);
            for (group, scale) in block[192..208].iter().enumerate() {
                scales[LINE + group * PANEL + lane] = *scale;
            }
            for b in 0..K_BLOCKS {
                let (half, run) = (b / 4, b % 4);
                let low = &block[64 * half + 32 * (run % 2)..][..BLOCK];
                let high = &block[128 + 32 * half..][..BLOCK];
                let codes = &mut codes[(s * K_BLOCKS + b) * Self::CODES * LINE..];
                put_nibbles(codes, lane, |i| low[i] >> (4 * (run / 2)) & 15);
                for (column, bits) in high.iter().enumerate() {
                    codes[upper(column, lane)] |= (bits >> (2 * run) & 3) << upper_shift(column);
                }
            }
        }
    }

    #[inline(always)]
    fn code(block: &[u8], column: usize, lane: usize) -> f32 {
        let high = block[upper(column, lane)] >> upper_shift(column) & 3;
        f32::from(nibble(block, column, lane) | high << 4) - 32.0
    }

    #[inline(always)]
    fn all_codes(block: &[Line], out: &mut Tile) {
        let (lower, upper) = block.split_at(4);
        nibbles(lower, 32.0, out);
        for (columns, line) in out.as_chunks_mut::<HALF>().0.iter_mut().zip(upper) {
            let words = words(line);
            for (column, lanes) in columns.iter_mut().enumerate() {
                let upper = bits(&words, 8 * (column % 4) + upper_shift(column), 3, 0.0);
                for (lane, upper) in lanes.iter_mut().zip(upper) {
                    *lane += 16.0 * upper;
                }
            }
        }
    }

    #[inline(always)]
    fn all_scales(panel: &[u8], block: usize, half: usize) -> Option<[Lanes; 2]> {
        let scales = &panel[block / K_BLOCKS * K_SCALES * LINE..];
        let group = LINE + (block % K_BLOCKS * 2 + half) * PANEL;
        let scale = times(halves(scales, 0), scales, group, |scale| f32::from(scale as i8));
        Some([scale, [0.0; PANEL]])
    }

    #[inline(always)]
    fn scale(panel: &[u8], block: usize, half: usize, lane: usize) -> (f32, f32) {
        let (scales, group) = (
            &panel[block / K_BLOCKS * K_SCALES * LINE..],
            block % K_BLOCKS * 2 + half,
        );
        let scale = scales[LINE + group * PANEL + lane] as i8;
        (half_at(scales, 2 * lane) * f32::from(scale), 0.0)
    }
}

/// The byte with the two upper bits of a column: behind four lines of nibbles, 16 columns a line.
#[inline(always)]
fn upper(column: usize, lane: usize) -> usize {
    (4 + column / HALF) * LINE + lane * 4 + column % 4
}

/// Columns 0 to 3 of 16 have the lowest bits of their byte.
#[inline(always)]
fn upper_shift(column: usize) -> usize {
    column % HALF / 4 * 2
}
