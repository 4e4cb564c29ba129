//! Linear layers on packed weights: `y = W x`, with `W` in the number format of its file.
//!
//! A decoder that makes one token reads every weight once and computes little with it, so its pace is that of the
//! memory. [`Packed`] holds a weight in 4 to 16 bits a number, and [`apply`] multiplies it without ever having it in
//! f32 as a whole.
//!
//! # Why this shape
//! A weight is cut into panels of 16 outputs and blocks of 32 inputs (`layout`), whatever its format: so one vector
//! register holds the same input of 16 outputs, no kernel sums across a register, and a kernel written once serves the
//! formats that unpack in the same way. Repacking costs one pass over the file while it is read.
//!
//! Activations are not rounded to 8 bits as llama.cpp does it: this is a workbench for caches, and what the layers do to
//! the logits must be less than what a cache does. The integer kernels take 24-bit activations as three bytes for a few rows,
//! which is as close as f32, and 16 bits for many, which moves logits by a third of what a cache in f16 does, or less.
//! docs/design/0007-packed-weights.md has the figures.
//!
//! # What it does not do
//! It knows no tensor library and no file: slices in, slices out. It quantises no weights.

mod apply;
mod error;
mod format;
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "codes are multiplied on x86-64 only")
)]
mod input;
mod kernel;
mod layout;
mod output;
mod packed;
mod rows;
#[cfg(target_arch = "x86_64")]
mod spare;
#[cfg(target_arch = "x86_64")]
mod tiles;
#[cfg(target_arch = "x86_64")]
mod words;

pub use apply::apply;
pub use error::LinearError;
pub use format::Format;
pub use packed::{Packed, Precision};
pub use rows::{add, rms_norm, rotate, silu_product};

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;
