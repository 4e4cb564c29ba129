//! The kernels: some panels of a weight times some rows of activations.
//!
//! | instruction set | rows | quantised formats | F16, BF16 | F32 |
//! |---|---|---|---|---|
//! | portable, NEON | any | `portable`: a block is unpacked to f32 | the same | the same |
//! | AVX2 | up to 15 | `integer`: activations of 24 bits as three bytes | `float`: unpacked in registers | `float` |
//! | AVX2 | more | `words`: 16 bits, or activations of 8 ([`Precision::Medium`], weights of 4) | `words`: 16 bits | `float` |
//! | AVX-512 | up to 15 | `integer`, with VNNI | `float` | `float` |
//! | AVX-512 | more | `words` with VNNI: 16 bits, or activations of 8 ([`Precision::Medium`]) | `words`: 16 bits | `float` |
//! | AMX | more | `tiles`: numbers as two bf16 | the same | `float` |

#[cfg(target_arch = "x86_64")]
mod float;
#[cfg(target_arch = "x86_64")]
mod integer;
mod portable;
#[cfg(target_arch = "x86_64")]
mod tiles;
#[cfg(target_arch = "x86_64")]
mod vector;
#[cfg(target_arch = "x86_64")]
mod words;

use crate::input::{Codes, Floats};
use crate::output::Output;
#[cfg(target_arch = "x86_64")]
use crate::tiles::Tiles;
#[cfg(target_arch = "x86_64")]
use crate::words::{Most, Words};
use crate::{Format, Packed, Precision};
use kvlab_cpu::Isa;
use std::ops::Range;

/// Most rows that a kernel takes at once; more are cut up, and so a weight is unpacked once for these.
pub(crate) const ROWS: usize = 8;

/// From so many rows on, unpacking a weight to 16 bits pays.
const MANY: usize = 2 * ROWS;

/// A part of a product: what one thread does at a time.
pub(crate) struct Part<'a> {
    pub(crate) weight: &'a Packed,
    pub(crate) panels: Range<usize>,
    pub(crate) out: &'a Output<'a>,
}

/// How a weight is multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In f32: by `float`, or by `portable`.
    Floats,
    /// With three bytes for each activation.
    Bytes,
    /// With 16 bits for each number.
    Words,
    /// With 8 bits for each activation.
    Short,
    /// With two bf16 for each number.
    Tiles,
}

fn way(isa: Isa, weight: &Packed, rows: usize) -> Way {
    let floats = is_float(weight.format());
    if isa < Isa::Avx2 || weight.format() == Format::F32 {
        Way::Floats
    } else if rows >= MANY && weight.precision() < Precision::Highest {
        match weight.precision() {
            _ if isa >= Isa::Amx => Way::Tiles,
            Precision::Medium if is_short(isa, weight.format()) => Way::Short,
            _ => Way::Words,
        }
    } else if floats {
        Way::Floats
    } else {
        Way::Bytes
    }
}

fn is_float(format: Format) -> bool {
    matches!(format, Format::F32 | Format::F16 | Format::BF16)
}

/// Whether activations of 8 bits serve: sums of AVX2 have room for codes of 4 bits only.
fn is_short(isa: Isa, format: Format) -> bool {
    match format {
        Format::F32 | Format::F16 | Format::BF16 => false,
        Format::Q4_0 | Format::Q4_1 | Format::Q4_K => true,
        Format::Q5_0 | Format::Q5_1 | Format::Q8_0 | Format::Q5_K | Format::Q6_K => isa >= Isa::Avx512,
    }
}

/// Activations of all rows, prepared for the kernels that some weights need.
pub(crate) struct Input<'a> {
    rows: usize,
    floats: Option<Floats<'a>>,
    codes: Option<Codes>,
    #[cfg(target_arch = "x86_64")]
    words: Option<Words>,
    #[cfg(target_arch = "x86_64")]
    short: Option<Words>,
    #[cfg(target_arch = "x86_64")]
    tiles: Option<Tiles>,
}

impl<'a> Input<'a> {
    /// Prepares `x`, `[rows, cols]`.
    pub(crate) fn new(isa: Isa, weights: &[&Packed], x: &'a [f32], cols: usize) -> Self {
        let rows = x.len() / cols;
        let needs = |asked: Way| weights.iter().any(|weight| way(isa, weight, rows) == asked);
        Self {
            rows,
            floats: needs(Way::Floats).then(|| Floats::new(x, cols)),
            codes: needs(Way::Bytes).then(|| codes(isa, x, cols)),
            #[cfg(target_arch = "x86_64")]
            words: needs(Way::Words).then(|| {
                let floats = weights.iter().any(|weight| is_float(weight.format()));
                Words::new(isa, x, cols, if floats { words::BESIDE_FLOATS } else { Most::WORDS })
            }),
            #[cfg(target_arch = "x86_64")]
            short: needs(Way::Short).then(|| Words::new(isa, x, cols, Most::BYTES)),
            #[cfg(target_arch = "x86_64")]
            tiles: needs(Way::Tiles).then(|| Tiles::new(x, cols)),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn codes(isa: Isa, x: &[f32], cols: usize) -> Codes {
    Codes::new(x, cols, |x, out| integer::quantise(isa, x, out))
}

#[cfg(not(target_arch = "x86_64"))]
fn codes(_: Isa, _: &[f32], _: usize) -> Codes {
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
        match (way(isa, part.weight, input.rows), input) {
            #[cfg(target_arch = "x86_64")]
            (Way::Tiles, Input { tiles: Some(x), .. }) => tiles::compute(part, x),
            #[cfg(target_arch = "x86_64")]
            (Way::Words, Input { words: Some(x), .. }) | (Way::Short, Input { short: Some(x), .. }) => {
                words::compute(isa, part, x)
            }
            #[cfg(target_arch = "x86_64")]
            (Way::Bytes, Input { codes: Some(x), .. }) => integer::compute(isa, part, x),
            #[cfg(target_arch = "x86_64")]
            (Way::Floats, Input { floats: Some(x), .. }) if isa >= Isa::Avx2 => float::compute(isa, part, x),
            (Way::Floats, Input { floats: Some(x), .. }) => portable::compute(part, x),
            _ => unreachable!("prepared for this weight"),
        }
    }
}
