//! Activations, as the kernels want them.

use crate::layout::{BLOCK, HALF};
use std::borrow::Cow;

/// Rows of activations in f32, their columns filled up to whole blocks with zeros.
pub(crate) struct Floats<'a> {
    data: Cow<'a, [f32]>,
    cols: usize,
}

impl<'a> Floats<'a> {
    /// `x` is `[rows, cols]`.
    pub(crate) fn new(x: &'a [f32], cols: usize) -> Self {
        let padded = cols.next_multiple_of(BLOCK);
        if padded == cols {
            return Self {
                data: Cow::Borrowed(x),
                cols,
            };
        }
        let mut data = vec![0.0; x.len() / cols * padded];
        for (to, from) in data.chunks_exact_mut(padded).zip(x.chunks_exact(cols)) {
            to[..cols].copy_from_slice(from);
        }
        Self {
            data: Cow::Owned(data),
            cols: padded,
        }
    }

    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.cols..(row + 1) * self.cols]
    }

    pub(crate) fn rows(&self) -> usize {
        self.data.len() / self.cols
    }
}

/// Rows of activations as integers.
pub(crate) struct Codes {
    data: Vec<CodeBlock>,
    blocks: usize,
}

/// 32 activations as 24-bit codes in three bytes each: a number is about `scale * (65536 high + 256 middle + low)`.
///
/// The greatest magnitude becomes [`MOST`], so a number is off by at most 1/16646144 of it: as much as f32 rounds it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct CodeBlock {
    /// Signed bytes, four of them in a number, as `vpdpbusd` takes them.
    pub(crate) high: [i32; BLOCK / 4],
    pub(crate) middle: [i32; BLOCK / 4],
    pub(crate) low: [i32; BLOCK / 4],
    pub(crate) scale: f32,
    /// The sum of the numbers themselves, for the minimum of a format.
    pub(crate) sum: f32,
    /// Of each half, the sums of `high` and of `256 middle + low`.
    pub(crate) sums: [[i32; 2]; BLOCK / HALF],
}

/// The code of the greatest magnitude: `127 * 65536`.
pub(crate) const MOST: f32 = 8_323_072.0;
/// Fewer numbers than this are not worth a second thread.
const ALONE: usize = 1 << 14;

impl Codes {
    /// `x` is `[rows, cols]`, and `cols` are whole blocks; `quantise` turns a row of numbers into one of codes.
    pub(crate) fn new(x: &[f32], cols: usize, quantise: impl Fn(&[f32], &mut [CodeBlock]) + Sync) -> Self {
        let blocks = cols / BLOCK;
        let mut data = vec![CodeBlock::default(); x.len() / BLOCK];
        let rows = data.chunks_exact_mut(blocks).zip(x.chunks_exact(cols));
        if x.len() < ALONE {
            rows.for_each(|(codes, x)| quantise(x, codes));
        } else {
            kvlab_cpu::for_each(rows, |(codes, x)| quantise(x, codes));
        }
        Self { data, blocks }
    }

    pub(crate) fn row(&self, row: usize) -> &[CodeBlock] {
        &self.data[row * self.blocks..(row + 1) * self.blocks]
    }

    pub(crate) fn rows(&self) -> usize {
        self.data.len() / self.blocks
    }
}
