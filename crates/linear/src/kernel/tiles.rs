//! Many rows with AMX: `tdpbf16ps` multiplies 16 rows of 32 bf16 with 32 columns of 16, and adds up in f32: 8,192 products in
//! 16 cycles, eight times those of f32 in registers.
//!
//! A bf16 has 8 bits. So activations ([`Tiles`]) and weights are sums of two, which has 16 to 17 bits whatever the number's
//! size: upper times upper, lower times upper, and upper times lower (lower times lower is 2^-18 of the product and left
//! out). Weights are unpacked once for all rows, whatever their format, and need no scales then. Numbers below 2^-126 are zeros to
//! these instructions.
//!
//! The instructions have no intrinsics in stable Rust: they are assembly here, and what a tile register holds does not
//! outlive a block of it.
#![allow(unsafe_code)]

use super::Part;
use super::float::Columns;
use super::integer::Integers;
use crate::Format;
use crate::layout::{BF16, BLOCK, F16, HALF, Line, PANEL, Q4_0, Q4_1, Q4K, Q6K, Q8_0};
use crate::packed::Panel;
use crate::tiles::{HEIGHT, LINES, Tiles};
use bytemuck::Zeroable;
use std::arch::asm;
use std::arch::x86_64::*;
use std::cell::Cell;
use std::ops::Range;

/// Panels that are multiplied together, and tiles of activations.
const TWO: usize = 2;
/// Most blocks that are unpacked at a time: with two tiles of activations they fit into the nearest cache.
const CHUNK: usize = 8;
/// Most panels that are unpacked at a time: so often are activations used once they are near.
const GROUP: usize = 8;
/// Lines of an unpacked block of a panel: pairs of columns, upper parts and then lower ones.
const WEIGHT: usize = BLOCK;

/// How a block becomes f32.
trait Source {
    /// Whether a number is one bf16, and so has no lower part.
    const ONE: bool;

    /// The numbers of columns `2 i` and `2 i + 1` of a block, for each `i`.
    ///
    /// # Safety
    /// The panel has this block; the machine has AVX-512 (F, BW, VL, DQ).
    unsafe fn pairs(panel: Panel<'_>, block: usize) -> [[__m512; 2]; HALF];
}

/// # Safety
/// As [`super::compute`], for a weight that is not F32, with AMX (TILE and BF16) and AVX-512 (F, BW, VL, DQ, BF16).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn compute(part: &Part<'_>, x: &Tiles) {
    // SAFETY: passed on to the caller.
    unsafe {
        match part.weight.format() {
            Format::F16 => all_panels::<F16>(part, x),
            Format::BF16 => all_panels::<BF16>(part, x),
            Format::Q4_0 => all_panels::<Q4_0>(part, x),
            Format::Q4_1 => all_panels::<Q4_1>(part, x),
            Format::Q8_0 => all_panels::<Q8_0>(part, x),
            Format::Q4_K => all_panels::<Q4K>(part, x),
            Format::Q6_K => all_panels::<Q6K>(part, x),
            Format::F32 => unreachable!("multiplied as floats"),
        }
    }
}

/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn all_panels<L: Source>(part: &Part<'_>, x: &Tiles) {
    let configured = Configured::new();
    let mut room = ROOM.take();
    room.weights.resize(GROUP * CHUNK * WEIGHT, Line::zeroed());
    for first in part.panels.clone().step_by(GROUP) {
        let panels = first..part.panels.end.min(first + GROUP);
        // SAFETY: passed on to the caller.
        unsafe { some_panels::<L>(part, panels, &mut room, x, &configured) };
    }
    ROOM.set(room);
}

thread_local! {
    static ROOM: Cell<Room> = const {
        Cell::new(Room {
            weights: Vec::new(),
            sums: Vec::new(),
        })
    };
}

/// What a thread works with, kept for its next part: as fresh memory it would cost as much as a tenth of the products.
#[derive(Default)]
struct Room {
    /// `[panels][blocks][WEIGHT]`
    weights: Vec<Line>,
    /// `[pairs of tiles][pairs of panels][tiles][panels][HEIGHT]`
    sums: Vec<Line>,
}

/// Some panels times all rows. If their number is odd, one more is multiplied, whose numbers are any, and nobody reads what
/// comes out.
///
/// # Safety
/// As [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn some_panels<L: Source>(
    part: &Part<'_>,
    panels: Range<usize>,
    room: &mut Room,
    x: &Tiles,
    configured: &Configured,
) {
    let even = panels.len().next_multiple_of(TWO);
    let all = part.weight.cols().div_ceil(BLOCK);
    let chunk = all.div_ceil(all.div_ceil(CHUNK));
    room.sums.clear();
    room.sums.resize(even * HEIGHT * x.tiles(), Line::zeroed());
    let sums = room.sums.as_mut_slice();
    for first in (0..all).step_by(chunk) {
        let blocks = first..all.min(first + chunk);
        let weights = &mut room.weights[..even * blocks.len() * WEIGHT];
        for (panel, weights) in panels.clone().zip(weights.chunks_exact_mut(blocks.len() * WEIGHT)) {
            // SAFETY: passed on to the caller.
            unsafe { unpack::<L>(part.weight.panel(panel), blocks.clone(), weights) };
        }
        for (i, sums) in sums.chunks_mut(TWO * even * HEIGHT).enumerate() {
            let (tile, tiles) = (TWO * i, sums.len() / (even * HEIGHT));
            let a = [x.lines(tile, first), x.lines(tile + tiles - 1, first)];
            let two = weights.chunks_exact(TWO * blocks.len() * WEIGHT);
            for (weights, sums) in two.zip(sums.chunks_exact_mut(tiles * TWO * HEIGHT)) {
                configured.multiply(L::ONE, a, weights, sums, blocks.len());
            }
        }
    }
    for (i, sums) in sums.chunks(TWO * even * HEIGHT).enumerate() {
        let tiles = sums.len() / (even * HEIGHT);
        for row in 0..(tiles * HEIGHT).min(x.rows() - i * TWO * HEIGHT) {
            let sums = &sums[row / HEIGHT * TWO * HEIGHT + row % HEIGHT..];
            for (p, panel) in panels.clone().enumerate() {
                let (to, count) = part.out.lanes(i * TWO * HEIGHT + row, panel);
                let sums = &sums[(p / TWO * tiles * TWO + p % TWO) * HEIGHT];
                // SAFETY: a line has 16 numbers; there is room for so many, and the caller promises that nobody else writes
                // there.
                unsafe {
                    let sums = _mm512_load_ps(sums.0.as_ptr().cast());
                    _mm512_mask_storeu_ps(to, u16::MAX >> (PANEL - count), sums);
                }
            }
        }
    }
}

/// Unpacks some blocks of a panel.
///
/// # Safety
/// The panel has these blocks; the machine has AVX-512 (F, BW, VL, DQ, BF16).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn unpack<L: Source>(panel: Panel<'_>, blocks: Range<usize>, out: &mut [Line]) {
    let order = interleaved();
    for (block, out) in blocks.zip(out.as_chunks_mut::<WEIGHT>().0) {
        // SAFETY: the block is there, and a line has room for 32 numbers.
        unsafe {
            let pairs = L::pairs(panel, block);
            for i in 0..HALF {
                let (upper, lower) = split(pairs[i][0], pairs[i][1]);
                _mm512_store_si512(out[i].0.as_mut_ptr().cast(), _mm512_permutexvar_epi16(order, upper));
                if !L::ONE {
                    let lower = _mm512_permutexvar_epi16(order, lower);
                    _mm512_store_si512(out[HALF + i].0.as_mut_ptr().cast(), lower);
                }
            }
        }
    }
}

/// Takes every number of the first half and then one of the second.
#[inline]
#[target_feature(enable = "avx512f")]
fn interleaved() -> __m512i {
    let first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_or_si512(first, _mm512_slli_epi32::<16>(_mm512_add_epi32(first, _mm512_set1_epi32(16))))
}

/// 32 numbers as sums of two bf16 each: upper parts and lower ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn split(first: __m512, second: __m512) -> (__m512i, __m512i) {
    let upper = to_bf16(first, second);
    let first = _mm512_sub_ps(first, from_bf16(_mm512_castsi512_si256(upper)));
    let second = _mm512_sub_ps(second, from_bf16(_mm512_extracti64x4_epi64::<1>(upper)));
    (upper, to_bf16(first, second))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn to_bf16(first: __m512, second: __m512) -> __m512i {
    // SAFETY: both are 512 bits, any of which are numbers.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first)) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn from_bf16(numbers: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(numbers)))
}

/// Writes a row of activations into a tile: `out` begins with the row's first line.
///
/// # Safety
/// The machine has AVX-512 (F, BW, BF16).
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) unsafe fn split_row(x: &[f32], out: &mut [Line]) {
    for (x, out) in x.chunks(BLOCK).zip(out.chunks_mut(LINES)) {
        let there = u32::MAX >> (BLOCK - x.len());
        // SAFETY: only numbers that are there are read; a line has room for 32.
        unsafe {
            let first = _mm512_maskz_loadu_ps(there as u16, x.as_ptr());
            let second = _mm512_maskz_loadu_ps((there >> 16) as u16, x.as_ptr().wrapping_add(HALF));
            let (upper, lower) = split(first, second);
            _mm512_store_si512(out[0].0.as_mut_ptr().cast(), upper);
            _mm512_store_si512(out[HEIGHT].0.as_mut_ptr().cast(), lower);
        }
    }
}

/// `tileloadd`: register and place.
macro_rules! load {
    ($tile:literal, $at:literal) => {
        concat!("tileloadd tmm", $tile, ", [", $at, " + {stride}]\n")
    };
}

/// `tdpbf16ps`: sums, activations and weights.
macro_rules! add {
    ($sums:literal, $a:literal, $b:literal) => {
        concat!("tdpbf16ps tmm", $sums, ", tmm", $a, ", tmm", $b, "\n")
    };
}

/// The sums are loaded, blocks are added in a loop, and the sums are stored.
macro_rules! multiply {
    ($a:ident, $b:ident, $c:ident, $blocks:ident, ($($sum:literal at $at:literal),+), [$($step:expr),+ $(,)?]) => {
        asm!(
            $(load!($sum, $at),)+
            "2:",
            $($step,)+
            "add {a0}, 2048",
            "add {a1}, 2048",
            "add {b0}, 2048",
            "add {b1}, 2048",
            "dec {blocks}",
            "jnz 2b",
            $(concat!("tilestored [", $at, " + {stride}], tmm", $sum),)+
            a0 = inout(reg) $a[0].as_ptr() => _,
            a1 = inout(reg) $a[1].as_ptr() => _,
            b0 = inout(reg) $b[0].as_ptr() => _,
            b1 = inout(reg) $b[1].as_ptr() => _,
            c = in(reg) $c.as_mut_ptr(),
            blocks = inout(reg) $blocks => _,
            stride = in(reg) 64_usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// The tile registers are set up for this thread as long as this lives: all of 16 rows of 64 bytes.
struct Configured(());

#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Configured {
    fn new() -> Self {
        let mut config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        config.row_bytes[..8].fill(64);
        config.rows[..8].fill(HEIGHT as u8);
        // SAFETY: the machine has AMX, and the configuration is one of palette 1.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
        Self(())
    }

    /// Adds the products of some blocks, of two panels with a tile of activations or two, to their sums.
    fn multiply(&self, one: bool, a: [&[Line]; TWO], weights: &[Line], sums: &mut [Line], blocks: usize) {
        // Nothing else checks that they are there.
        assert!(blocks > 0 && a.iter().all(|a| a.len() >= blocks * LINES) && weights.len() == TWO * blocks * WEIGHT);
        let b = [weights, &weights[blocks * WEIGHT..]];
        let tiles = sums.len() / (TWO * HEIGHT);
        assert!(sums.len() == tiles * TWO * HEIGHT);
        // SAFETY: as asserted, there are so many blocks of each, and sums of one or two tiles; the tile registers are set up.
        unsafe {
            match (tiles, one) {
                (1, false) => multiply!(a, b, sums, blocks, ("0" at "{c}", "1" at "{c} + 1024"), [
                    load!("4", "{a0}"), load!("6", "{b0}"), add!("0", "4", "6"),
                    load!("7", "{b1}"), add!("1", "4", "7"),
                    load!("5", "{a0} + 1024"), add!("0", "5", "6"), add!("1", "5", "7"),
                    load!("6", "{b0} + 1024"), add!("0", "4", "6"),
                    load!("7", "{b1} + 1024"), add!("1", "4", "7"),
                ]),
                (1, true) => multiply!(a, b, sums, blocks, ("0" at "{c}", "1" at "{c} + 1024"), [
                    load!("4", "{a0}"), load!("6", "{b0}"), add!("0", "4", "6"),
                    load!("7", "{b1}"), add!("1", "4", "7"),
                    load!("5", "{a0} + 1024"), add!("0", "5", "6"), add!("1", "5", "7"),
                ]),
                (TWO, false) => multiply!(
                    a, b, sums, blocks,
                    ("0" at "{c}", "1" at "{c} + 1024", "2" at "{c} + 2048", "3" at "{c} + 3072"), [
                    load!("4", "{a0}"), load!("6", "{b0}"), add!("0", "4", "6"),
                    load!("7", "{b1}"), add!("1", "4", "7"),
                    load!("5", "{a1}"), add!("2", "5", "6"), add!("3", "5", "7"),
                    load!("4", "{a0} + 1024"), add!("0", "4", "6"), add!("1", "4", "7"),
                    load!("5", "{a1} + 1024"), add!("2", "5", "6"), add!("3", "5", "7"),
                    load!("4", "{a0}"), load!("6", "{b0} + 1024"), add!("0", "4", "6"),
                    load!("7", "{b1} + 1024"), add!("1", "4", "7"),
                    load!("5", "{a1}"), add!("2", "5", "6"), add!("3", "5", "7"),
                ]),
                (TWO, true) => multiply!(
                    a, b, sums, blocks,
                    ("0" at "{c}", "1" at "{c} + 1024", "2" at "{c} + 2048", "3" at "{c} + 3072"), [
                    load!("4", "{a0}"), load!("6", "{b0}"), add!("0", "4", "6"),
                    load!("7", "{b1}"), add!("1", "4", "7"),
                    load!("5", "{a1}"), add!("2", "5", "6"), add!("3", "5", "7"),
                    load!("4", "{a0} + 1024"), add!("0", "4", "6"), add!("1", "4", "7"),
                    load!("5", "{a1} + 1024"), add!("2", "5", "6"), add!("3", "5", "7"),
                ]),
                _ => unreachable!("sums of one or two tiles"),
            }
        }
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: the machine has AMX. Without this, every switch of threads would save the registers.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// The columns of a format that is quantised.
///
/// # Safety
/// As [`Source::pairs`].
#[inline(always)]
unsafe fn quantised<L: Integers>(panel: Panel<'_>, block: usize) -> [[__m512; 2]; HALF] {
    assert!(panel.codes.len() >= (block + 1) * L::CODES);
    // SAFETY: the codes are there, as are the scales of every block.
    unsafe {
        let mut out = [[_mm512_setzero_ps(); 2]; HALF];
        let codes = L::codes(panel.codes.as_ptr().add(block * L::CODES).cast());
        let (scales, minimum) = L::scales(panel.scales.as_ptr().cast(), block);
        let byte = _mm512_set1_epi32(255);
        for (four, codes) in codes.into_iter().enumerate() {
            let scale = scales[four * 4 / HALF];
            // A number is `scale * (code - OFFSET) + minimum`.
            let least = _mm512_fnmadd_ps(scale, _mm512_set1_ps(L::OFFSET as f32), minimum);
            let columns = [
                _mm512_and_si512(codes, byte),
                _mm512_and_si512(_mm512_srli_epi32::<8>(codes), byte),
                _mm512_and_si512(_mm512_srli_epi32::<16>(codes), byte),
                _mm512_srli_epi32::<24>(codes),
            ];
            for (column, codes) in columns.into_iter().enumerate() {
                out[2 * four + column / 2][column % 2] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(codes), scale, least);
            }
        }
        out
    }
}

/// The columns of a format of floats.
///
/// # Safety
/// As [`Source::pairs`].
#[inline(always)]
unsafe fn floats<L: Columns>(panel: Panel<'_>, block: usize) -> [[__m512; 2]; HALF] {
    assert!(panel.codes.len() >= (block + 1) * L::CODES);
    // SAFETY: the codes are there.
    unsafe {
        let mut out = [[_mm512_setzero_ps(); 2]; HALF];
        for (i, pair) in out.iter_mut().enumerate() {
            *pair = L::pair(panel.codes.as_ptr().add(block * L::CODES).cast(), i);
        }
        out
    }
}

macro_rules! source {
    ($layout:ty, $columns:ident, $one:literal) => {
        impl Source for $layout {
            const ONE: bool = $one;

            #[inline(always)]
            unsafe fn pairs(panel: Panel<'_>, block: usize) -> [[__m512; 2]; HALF] {
                // SAFETY: passed on to the caller.
                unsafe { $columns::<Self>(panel, block) }
            }
        }
    };
}

source!(F16, floats, false);
source!(BF16, floats, true);
source!(Q4_0, quantised, false);
source!(Q4_1, quantised, false);
source!(Q8_0, quantised, false);
source!(Q4K, quantised, false);
source!(Q6K, quantised, false);
