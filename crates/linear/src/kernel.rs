//! The kernels: some panels of a weight times some rows of activations.
//!
//! | instruction set | quantised formats | floats |
//! |---|---|---|
//! | portable, NEON, AVX2 | `portable`: a block is unpacked to f32 | the same |
//! | AVX-512, few rows | `integer`: VNNI, activations of 24 bits as three bytes | `float`: unpacked in registers |
//! | AVX-512, more | `unpacked`: two panels are unpacked to f32 | the same |

#[cfg(target_arch = "x86_64")]
mod float;
#[cfg(target_arch = "x86_64")]
mod integer;
mod portable;
#[cfg(target_arch = "x86_64")]
mod unpacked;
#[cfg(target_arch = "x86_64")]
mod words;

use crate::input::{Codes, Floats};
use crate::output::Output;
#[cfg(target_arch = "x86_64")]
use crate::tiles::Tiles;
use crate::{Format, Packed};
use kvlab_cpu::Isa;
use std::ops::Range;

/// Most rows that a kernel takes at once; more are cut up, and so a weight is unpacked once for these.
pub(crate) const ROWS: usize = 8;

/// From so many rows on, unpacking a weight pays.
const UNPACK: usize = 2 * ROWS;

/// A part of a product: what one thread does at a time.
pub(crate) struct Part<'a> {
    pub(crate) weight: &'a Packed,
    pub(crate) panels: Range<usize>,
    pub(crate) out: &'a Output<'a>,
}

/// Activations of all rows, prepared for the kernels that some weights need.
pub(crate) struct Input<'a> {
    floats: Option<Floats<'a>>,
    codes: Option<Codes>,
    #[cfg(target_arch = "x86_64")]
    words: Option<Tiles>,
    #[cfg(target_arch = "x86_64")]
    tiles: Option<Tiles>,
}

impl<'a> Input<'a> {
    /// Prepares `x`, `[rows, cols]`.
    pub(crate) fn new(isa: Isa, weights: &[&Packed], x: &'a [f32], cols: usize) -> Self {
        let rows = x.len() / cols;
        #[cfg(target_arch = "x86_64")]
        if isa >= Isa::Avx512 && rows >= UNPACK {
            let mode = std::env::var("MODE").unwrap_or_default();
            let none = Self { floats: None, codes: None, words: None, tiles: None };
            if mode == "tiles" || weights.iter().any(|w| w.format() == Format::F32) {
                return Self { tiles: Some(Tiles::floats(x, cols)), ..none };
            }
            let most = if weights.iter().any(|w| is_float(w.format())) { 16383 } else { 32767 };
            return Self { words: Some(Tiles::words(x, cols, most)), ..none };
        }
        let integers = weights.iter().filter(|w| by_integers(isa, w.format(), rows)).count();
        Self {
            floats: (integers < weights.len()).then(|| Floats::new(x, cols)),
            codes: (integers > 0).then(|| codes(x, cols)),
            #[cfg(target_arch = "x86_64")]
            words: None,
            #[cfg(target_arch = "x86_64")]
            tiles: None,
        }
    }
}

fn is_float(format: Format) -> bool {
    matches!(format, Format::F32 | Format::F16 | Format::BF16)
}

/// Whether so many rows of activations are multiplied in integers.
fn by_integers(isa: Isa, format: Format, rows: usize) -> bool {
    isa >= Isa::Avx512 && !is_float(format) && rows < UNPACK
}

#[cfg(target_arch = "x86_64")]
fn codes(x: &[f32], cols: usize) -> Codes {
    Codes::new(x, cols, integer::quantise)
}

#[cfg(not(target_arch = "x86_64"))]
fn codes(_: &[f32], _: usize) -> Codes {
    unreachable!("no instruction set of this target multiplies in integers")
}

/// Computes a part.
///
/// # Safety
/// No other thread computes these panels into the same output; the machine has `isa`, and `input` was prepared with it
/// for this weight.
#[allow(unsafe_code)]
pub(crate) unsafe fn compute(isa: Isa, part: &Part<'_>, input: &Input<'_>) {
    // SAFETY: passed on to the caller.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if let Some(x) = &input.words {
            return words::compute(part, x);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(x) = &input.tiles {
            return unpacked::compute(part, x);
        }
        match (&input.codes, &input.floats) {
            #[cfg(target_arch = "x86_64")]
            (Some(x), _) if !is_float(part.weight.format()) => integer::compute(part, x),
            #[cfg(target_arch = "x86_64")]
            (_, Some(x)) if isa >= Isa::Avx512 && is_float(part.weight.format()) => float::compute(part, x),
            (_, Some(x)) => portable::compute(isa, part, x),
            (_, None) => unreachable!("prepared for this weight"),
        }
    }
}
