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
const CHUNK: usize = 18;
/// Most panels that are unpacked at a time: so often are activations used once they are near.
const GROUP: usize = 12;
/// Lines of an unpacked block of a panel: pairs of columns, upper parts and then lower ones.
const WEIGHT: usize = BLOCK;

/// How a block is unpacked.
trait Source {
    /// Whether a number is one bf16, and so has no lower part.
    const ONE: bool;

    /// Writes the numbers of a block: [`put`] for each pair of columns.
    ///
    /// # Safety
    /// The panel has this block; the machine has AVX-512 (F, BW, VL, DQ, BF16).
    unsafe fn unpack(panel: Panel<'_>, block: usize, out: &mut [Line; WEIGHT]);
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
    /// `[pairs of tiles][pairs of panels][rows][panels]`
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
    let len = even * HEIGHT * x.tiles();
    if room.sums.len() < len {
        room.sums.resize(len, Line::zeroed());
    }
    let sums = &mut room.sums[..len];
    for first in (0..all).step_by(chunk) {
        let blocks = first..all.min(first + chunk);
        let weights = &mut room.weights[..even * blocks.len() * WEIGHT];
        for (panel, weights) in panels.clone().zip(weights.chunks_exact_mut(blocks.len() * WEIGHT)) {
            for (block, out) in blocks.clone().zip(weights.as_chunks_mut().0) {
                // SAFETY: passed on to the caller.
                unsafe { L::unpack(part.weight.panel(panel), block, out) };
            }
        }
        for (i, sums) in sums.chunks_mut(TWO * even * HEIGHT).enumerate() {
            let (tile, tiles) = (TWO * i, sums.len() / (even * HEIGHT));
            let a = [x.lines(tile, first), x.lines(tile + tiles - 1, first)];
            let weights = weights.chunks_exact(TWO * blocks.len() * WEIGHT);
            let pairs = panels
                .clone()
                .step_by(TWO)
                .zip(sums.chunks_exact_mut(tiles * TWO * HEIGHT));
            for ((panel, sums), weights) in pairs.zip(weights) {
                let rows = tile * HEIGHT..x.rows().min((tile + tiles) * HEIGHT);
                let last = blocks.end == all;
                // Straight into the output, if there is a place for every number.
                let full = rows.len() == tiles * HEIGHT && part.weight.rows() >= (panel + TWO) * PANEL;
                let direct = (last && full && panel + TWO <= panels.end).then(|| part.out.place(rows.start, panel));
                if let Some((to, stride)) = direct {
                    // Rows lie far apart: while the products are made, the memory is asked for all of them.
                    for row in 0..rows.len() {
                        for line in 0..TWO {
                            let to = to.wrapping_byte_add(row * stride + line * size_of::<Line>());
                            _mm_prefetch::<_MM_HINT_ET0>(to.cast_const().cast());
                        }
                    }
                }
                // SAFETY: the caller promises that nobody else writes there.
                unsafe {
                    configured.multiply(Multiply {
                        one: L::ONE,
                        begin: first == 0,
                        blocks: blocks.len(),
                        a,
                        weights,
                        sums,
                        to: direct,
                    });
                }
                if last && direct.is_none() {
                    for (row, sums) in rows.zip(sums.as_chunks::<TWO>().0) {
                        for (panel, sums) in (panel..panels.end).zip(sums) {
                            // SAFETY: the caller promises that nobody else writes there.
                            unsafe { part.out.store(row, panel, bytemuck::cast_ref(&sums.0)) };
                        }
                    }
                }
            }
        }
    }
}

/// Writes columns `2 i` and `2 i + 1` of a block, side by side.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
fn put<L: Source>(out: &mut [Line; WEIGHT], i: usize, first: __m512, second: __m512) {
    let order = interleaved();
    let (upper, lower) = split(first, second);
    // SAFETY: a line has room for 32 numbers.
    unsafe {
        _mm512_store_si512(out[i].0.as_mut_ptr().cast(), _mm512_permutexvar_epi16(order, upper));
        if !L::ONE {
            let lower = _mm512_permutexvar_epi16(order, lower);
            _mm512_store_si512(out[HALF + i].0.as_mut_ptr().cast(), lower);
        }
    }
}

/// Takes every number of the first half and then one of the second.
#[inline]
#[target_feature(enable = "avx512f")]
fn interleaved() -> __m512i {
    let first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_or_si512(
        first,
        _mm512_slli_epi32::<16>(_mm512_add_epi32(first, _mm512_set1_epi32(16))),
    )
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

/// The sums begin with zeros or as they are, blocks are added in a loop, and the sums are stored.
macro_rules! multiply {
    ($m:ident, $b:ident, $place:ident, ($($sum:literal at $from:literal to $to:literal),+), [$($step:expr),+ $(,)?]) => {
        asm!(
            // Not every shape has a second tile: "/* {a1} {to1} */" names what it leaves unused.
            "/* {a1} {to1} */",
            "test {begin}, {begin}",
            "jz 3f",
            $(concat!("tilezero tmm", $sum),)+
            "jmp 2f",
            "3:",
            $(concat!("tileloadd tmm", $sum, ", [", $from, " + 2 * {stride}]"),)+
            "2:",
            $($step,)+
            "add {a0}, 2048",
            "add {a1}, 2048",
            "add {b0}, 2048",
            "add {b1}, 2048",
            "dec {blocks}",
            "jnz 2b",
            $(concat!("tilestored [", $to, " + {to_stride}], tmm", $sum),)+
            begin = in(reg) usize::from($m.begin),
            a0 = inout(reg) $m.a[0].as_ptr() => _,
            a1 = inout(reg) $m.a[1].as_ptr() => _,
            b0 = inout(reg) $b[0].as_ptr() => _,
            b1 = inout(reg) $b[1].as_ptr() => _,
            blocks = inout(reg) $m.blocks => _,
            stride = in(reg) size_of::<Line>(),
            from = in(reg) $m.sums.as_ptr(),
            to0 = in(reg) $place.0,
            to1 = in(reg) $place.0.wrapping_byte_add(HEIGHT * $place.1),
            to_stride = in(reg) $place.1,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// The products of some blocks: of two panels with a tile of activations or two.
struct Multiply<'a> {
    /// Whether weights have no lower part.
    one: bool,
    /// Whether the sums begin with these blocks.
    begin: bool,
    blocks: usize,
    a: [&'a [Line]; TWO],
    /// `[panels][blocks][WEIGHT]`
    weights: &'a [Line],
    /// `[rows][panels]`
    sums: &'a mut [Line],
    /// Where the sums are stored instead: the first number, and the bytes from row to row.
    to: Option<(*mut f32, usize)>,
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

    /// # Safety
    /// If there is another place for the sums, it has room for 32 numbers of each row, and nobody else writes there.
    unsafe fn multiply(&self, m: Multiply<'_>) {
        let Multiply {
            one, blocks, weights, ..
        } = m;
        // Nothing else checks that they are there.
        assert!(blocks > 0 && m.a.iter().all(|a| a.len() >= blocks * LINES) && weights.len() == TWO * blocks * WEIGHT);
        let b = [weights, &weights[blocks * WEIGHT..]];
        let tiles = m.sums.len() / (TWO * HEIGHT);
        assert!(m.sums.len() == tiles * TWO * HEIGHT);
        let to = m.to.unwrap_or((m.sums.as_mut_ptr().cast(), TWO * size_of::<Line>()));
        // SAFETY: as asserted, there are so many blocks of each, and sums of one or two tiles; the tile registers are set up.
        // The rest is passed on to the caller.
        unsafe {
            match (tiles, one) {
                (1, false) => multiply!(m, b, to, ("0" at "{from}" to "{to0}", "1" at "{from} + 64" to "{to0} + 64"), [
                    load!("4", "{a0}"), load!("6", "{b0}"), add!("0", "4", "6"),
                    load!("7", "{b1}"), add!("1", "4", "7"),
                    load!("5", "{a1} + 1024"), add!("0", "5", "6"), add!("1", "5", "7"),
                    load!("6", "{b0} + 1024"), add!("0", "4", "6"),
                    load!("7", "{b1} + 1024"), add!("1", "4", "7"),
                ]),
                (1, true) => multiply!(m, b, to, ("0" at "{from}" to "{to0}", "1" at "{from} + 64" to "{to0} + 64"), [
                    load!("4", "{a0}"), load!("6", "{b0}"), add!("0", "4", "6"),
                    load!("7", "{b1}"), add!("1", "4", "7"),
                    load!("5", "{a1} + 1024"), add!("0", "5", "6"), add!("1", "5", "7"),
                ]),
                (TWO, false) => multiply!(m, b, to, (
                    "0" at "{from}" to "{to0}", "1" at "{from} + 64" to "{to0} + 64",
                    "2" at "{from} + 2048" to "{to1}", "3" at "{from} + 2112" to "{to1} + 64"
                ), [
                    load!("4", "{a0}"), load!("6", "{b0}"), add!("0", "4", "6"),
                    load!("7", "{b1}"), add!("1", "4", "7"),
                    load!("5", "{a1}"), add!("2", "5", "6"), add!("3", "5", "7"),
                    load!("4", "{a0} + 1024"), add!("0", "4", "6"), add!("1", "4", "7"),
                    load!("5", "{a1} + 1024"), add!("2", "5", "6"), add!("3", "5", "7"),
                    load!("4", "{a0}"), load!("6", "{b0} + 1024"), add!("0", "4", "6"),
                    load!("7", "{b1} + 1024"), add!("1", "4", "7"),
                    load!("5", "{a1}"), add!("2", "5", "6"), add!("3", "5", "7"),
                ]),
                (TWO, true) => multiply!(m, b, to, (
                    "0" at "{from}" to "{to0}", "1" at "{from} + 64" to "{to0} + 64",
                    "2" at "{from} + 2048" to "{to1}", "3" at "{from} + 2112" to "{to1} + 64"
                ), [
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

/// Unpacks a block of a format that is quantised.
///
/// # Safety
/// As [`Source::unpack`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn quantised<L: Integers + Source>(panel: Panel<'_>, block: usize, out: &mut [Line; WEIGHT]) {
    assert!(panel.codes.len() >= (block + 1) * L::CODES);
    // SAFETY: the codes are there, as are the scales of every block.
    let (codes, (scales, minimum)) = unsafe {
        (
            L::codes(panel.codes.as_ptr().add(block * L::CODES).cast()),
            L::scales(panel.scales.as_ptr().cast(), block),
        )
    };
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
        for (i, [first, second]) in columns.as_chunks().0.iter().enumerate() {
            let first = _mm512_fmadd_ps(_mm512_cvtepi32_ps(*first), scale, least);
            let second = _mm512_fmadd_ps(_mm512_cvtepi32_ps(*second), scale, least);
            put::<L>(out, 2 * four + i, first, second);
        }
    }
}

/// Unpacks a block of a format of floats.
///
/// # Safety
/// As [`Source::unpack`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
unsafe fn floats<L: Columns + Source>(panel: Panel<'_>, block: usize, out: &mut [Line; WEIGHT]) {
    assert!(panel.codes.len() >= (block + 1) * L::CODES);
    for i in 0..HALF {
        // SAFETY: the codes are there.
        let [first, second] = unsafe { L::pair(panel.codes.as_ptr().add(block * L::CODES).cast(), i) };
        put::<L>(out, i, first, second);
    }
}

macro_rules! source {
    ($layout:ty, $unpack:ident, $one:literal) => {
        impl Source for $layout {
            const ONE: bool = $one;

            #[inline(always)]
            unsafe fn unpack(panel: Panel<'_>, block: usize, out: &mut [Line; WEIGHT]) {
                // SAFETY: passed on to the caller.
                unsafe { $unpack::<Self>(panel, block, out) }
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
