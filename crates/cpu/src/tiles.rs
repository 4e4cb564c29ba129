//! Products of matrices in tile registers (AMX): `tdpbf16ps` multiplies 16 rows of 32 bf16 with 32 rows of 16, and adds up in
//! f32: 8,192 products in 16 cycles, eight times those of f32 in vectors.
//!
//! A bf16 has 8 bits. So numbers are [sums of two](split), which has 16 to 17 bits whatever their size: upper times upper, lower
//! times upper, and upper times lower (lower times lower is 2^-18 of the product and left out). Numbers below 2^-126 are
//! zeros to these instructions.
//!
//! The instructions have no intrinsics in stable Rust: they are assembly here, and what a tile register holds does not
//! outlive a block of it.

#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::*;

/// Rows of a tile.
pub const ROWS: usize = 16;
/// Numbers of a block's rows, and rows of what it is multiplied with.
pub const BLOCK: usize = 32;
/// Bytes of a line: 32 numbers.
pub const LINE: usize = 64;
/// Lines of a block: 16 of upper parts, then 16 of lower ones.
pub const LINES: usize = 2 * ROWS;

/// The tile registers are set up for this thread as long as this lives: all of 16 rows of 64 bytes.
#[derive(Debug)]
pub struct Tiles(());

/// Where numbers lie: 32 side by side, in rows.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The first of them.
    pub first: *mut f32,
    /// Bytes from row to row.
    pub stride: usize,
}

/// What of the numbers is multiplied; lower parts that are not are not read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parts {
    /// Upper and lower parts of both sides: three products.
    Both,
    /// The right side has upper parts only: two.
    Left,
    /// The upper parts: one.
    Upper,
}

/// Sums of products: one tile or two of the left side, by 16 rows, times two of the right side, by 16 columns.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Blocks of 32 that are added up.
    pub blocks: usize,
    /// Tiles of the left side, 1 or 2.
    pub tiles: usize,
    /// `[blocks][LINES]` of each: a line has a row. If there is one tile only, the second is not looked at.
    pub left: [*const u8; 2],
    /// `[blocks][LINES]` of each: a line has the numbers of two rows, in pairs.
    pub right: [*const u8; 2],
    /// What of the numbers counts.
    pub parts: Parts,
    /// What the sums are added to; nothing, if they begin here.
    pub sums: Option<Place>,
    /// Where they go.
    pub to: Place,
}

#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// `tileloadd`: register and place.
macro_rules! load {
    ($tile:literal, $at:literal) => {
        concat!("tileloadd tmm", $tile, ", [", $at, " + {line}]\n")
    };
}

/// `tdpbf16ps`: sums, left and right.
macro_rules! add {
    ($sums:literal, $left:literal, $right:literal) => {
        concat!("tdpbf16ps tmm", $sums, ", tmm", $left, ", tmm", $right, "\n")
    };
}

/// The upper parts of one tile, or of two, times those of the right side, which stay in registers 6 and 7; that of one tile stays
/// in register 4.
macro_rules! one_upper {
    () => {
        concat!(
            load!("4", "{a0}"),
            load!("6", "{b0}"),
            add!("0", "4", "6"),
            load!("7", "{b1}"),
            add!("1", "4", "7"),
        )
    };
}
macro_rules! two_upper {
    () => {
        concat!(
            one_upper!(),
            load!("5", "{a1}"),
            add!("2", "5", "6"),
            add!("3", "5", "7")
        )
    };
}

/// The lower parts of one tile, or of two, times the upper parts in registers 6 and 7.
macro_rules! one_lower {
    () => {
        concat!(load!("5", "{a0} + 1024"), add!("0", "5", "6"), add!("1", "5", "7"))
    };
}
macro_rules! two_lower {
    () => {
        concat!(
            load!("4", "{a0} + 1024"),
            add!("0", "4", "6"),
            add!("1", "4", "7"),
            load!("5", "{a1} + 1024"),
            add!("2", "5", "6"),
            add!("3", "5", "7"),
        )
    };
}

/// All parts of one tile, or of two, times those of the right side but lower times lower. Each is loaded once, since loads take
/// longer than products, and with two tiles three other sums come before the same one again. The order of what is added to a sum is
/// that of one tile: what a row's numbers are does not depend on how many rows there are.
macro_rules! one_both {
    () => {
        concat!(
            load!("5", "{a0} + 1024"),
            load!("6", "{b0}"),
            add!("0", "5", "6"),
            load!("7", "{b1}"),
            add!("1", "5", "7"),
            load!("4", "{a0}"),
            add!("0", "4", "6"),
            add!("1", "4", "7"),
            load!("6", "{b0} + 1024"),
            add!("0", "4", "6"),
            load!("7", "{b1} + 1024"),
            add!("1", "4", "7"),
        )
    };
}
macro_rules! two_both {
    () => {
        concat!(
            load!("4", "{a0} + 1024"),
            load!("6", "{b0}"),
            add!("0", "4", "6"),
            load!("7", "{b1}"),
            add!("1", "4", "7"),
            load!("5", "{a1} + 1024"),
            add!("2", "5", "6"),
            add!("3", "5", "7"),
            load!("4", "{a0}"),
            add!("0", "4", "6"),
            add!("1", "4", "7"),
            load!("5", "{a1}"),
            add!("2", "5", "6"),
            add!("3", "5", "7"),
            load!("6", "{b0} + 1024"),
            add!("0", "4", "6"),
            add!("2", "5", "6"),
            load!("7", "{b1} + 1024"),
            add!("1", "4", "7"),
            add!("3", "5", "7"),
        )
    };
}

/// The sums begin with zeros or as they are, blocks are added in a loop, and the sums are stored.
macro_rules! multiply {
    ($p:ident, ($($sum:literal at $from:literal to $to:literal),+), [$($step:expr),+ $(,)?]) => {{
        let from = $p.sums.unwrap_or($p.to);
        asm!(
            // Not every shape has a second tile: this names what it leaves unused.
            "/* {a1} {from1} {to1} */",
            "test {begin}, {begin}",
            "jz 3f",
            $(concat!("tilezero tmm", $sum),)+
            "jmp 2f",
            "3:",
            $(concat!("tileloadd tmm", $sum, ", [", $from, " + {from_stride}]"),)+
            "2:",
            $($step,)+
            "add {a0}, 2048",
            "add {a1}, 2048",
            "add {b0}, 2048",
            "add {b1}, 2048",
            "dec {blocks}",
            "jnz 2b",
            $(concat!("tilestored [", $to, " + {to_stride}], tmm", $sum),)+
            begin = in(reg) usize::from($p.sums.is_none()),
            a0 = inout(reg) $p.left[0] => _,
            a1 = inout(reg) $p.left[1] => _,
            b0 = inout(reg) $p.right[0] => _,
            b1 = inout(reg) $p.right[1] => _,
            blocks = inout(reg) $p.blocks => _,
            line = in(reg) LINE,
            from0 = in(reg) from.first,
            from1 = in(reg) from.first.wrapping_byte_add(ROWS * from.stride),
            from_stride = in(reg) from.stride,
            to0 = in(reg) $p.to.first,
            to1 = in(reg) $p.to.first.wrapping_byte_add(ROWS * $p.to.stride),
            to_stride = in(reg) $p.to.stride,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    }};
}

macro_rules! one {
    ($p:ident, $steps:tt) => {
        multiply!($p, ("0" at "{from0}" to "{to0}", "1" at "{from0} + 64" to "{to0} + 64"), $steps)
    };
}
macro_rules! two {
    ($p:ident, $steps:tt) => {
        multiply!($p, (
            "0" at "{from0}" to "{to0}", "1" at "{from0} + 64" to "{to0} + 64",
            "2" at "{from1}" to "{to1}", "3" at "{from1} + 64" to "{to1} + 64"
        ), $steps)
    };
}

impl Tiles {
    /// Sets them up.
    ///
    /// # Safety
    /// The machine has [`Isa::Amx`](crate::Isa::Amx).
    pub unsafe fn new() -> Self {
        let mut config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        config.row_bytes[..8].fill(LINE as u16);
        config.rows[..8].fill(ROWS as u8);
        // SAFETY: the caller's promise, and the configuration is one of palette 1.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
        Self(())
    }

    /// Multiplies.
    ///
    /// # Safety
    /// Both sides have so many blocks; there are numbers for 16 rows of each tile where sums come from, and room for as many
    /// where they go.
    pub unsafe fn multiply(&self, p: &Product) {
        debug_assert!(p.blocks > 0 && (1..=2).contains(&p.tiles));
        // SAFETY: the caller's promise; the registers are set up.
        unsafe {
            match p.tiles {
                1 => match p.parts {
                    Parts::Both => one!(p, [one_both!()]),
                    Parts::Left => one!(p, [one_upper!(), one_lower!()]),
                    Parts::Upper => one!(p, [one_upper!()]),
                },
                _ => match p.parts {
                    Parts::Both => two!(p, [two_both!()]),
                    Parts::Left => two!(p, [two_upper!(), two_lower!()]),
                    Parts::Upper => two!(p, [two_upper!()]),
                },
            }
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the machine has AMX. Without this, every switch of threads would save the registers.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// 32 numbers as sums of two bf16 each, the nearest and the nearest to what is left: upper parts and lower ones.
///
/// # Safety
/// The machine has AVX-512 with bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub fn split(first: __m512, second: __m512) -> (__m512i, __m512i) {
    let upper = to_bf16(first, second);
    let first = _mm512_sub_ps(first, from_bf16(_mm512_castsi512_si256(upper)));
    let second = _mm512_sub_ps(second, from_bf16(_mm512_extracti64x4_epi64::<1>(upper)));
    (upper, to_bf16(first, second))
}

/// Writes up to 32 numbers as a line of the left side, and their lower parts [`ROWS`] lines behind; zeros fill the line up.
///
/// # Safety
/// There are `count` numbers, at least one, and room for both lines; the machine has AVX-512 (F, BW) with bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn put_left(from: *const f32, count: usize, to: *mut u8) {
    let there = u32::MAX >> (BLOCK - count.min(BLOCK));
    // SAFETY: only numbers that are there are read; the rest is the caller's promise.
    unsafe {
        let first = _mm512_maskz_loadu_ps(there as u16, from);
        let second = _mm512_maskz_loadu_ps((there >> 16) as u16, from.wrapping_add(BLOCK / 2));
        let (upper, lower) = split(first, second);
        _mm512_store_si512(to.cast(), upper);
        _mm512_store_si512(to.wrapping_add(ROWS * LINE).cast(), lower);
    }
}

/// 16 numbers and 16 more in pairs: the first ones of both, the second ones, and so on.
///
/// # Safety
/// The machine has AVX-512 (F, BW).
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub fn in_pairs(both: __m512i) -> __m512i {
    let first = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let order = _mm512_or_si512(
        first,
        _mm512_slli_epi32::<16>(_mm512_add_epi32(first, _mm512_set1_epi32(16))),
    );
    _mm512_permutexvar_epi16(order, both)
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
