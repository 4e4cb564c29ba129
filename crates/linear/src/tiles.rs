//! Activations of many rows as pairs of bf16, in tiles of 16 rows.

use crate::layout::{BLOCK, Line};
use crate::spare::Spare;
use kvlab_cpu::tiles::put_left;
pub(crate) use kvlab_cpu::tiles::{LINES, ROWS as HEIGHT};

static SPARE: Spare<Line> = Spare::new();

/// Rows of activations: a number is the sum of two bf16, its nearest and the nearest to what is left of it.
pub(crate) struct Tiles {
    rows: usize,
    blocks: usize,
    /// `[tiles][blocks][LINES]`
    data: Vec<Line>,
}

impl Tiles {
    /// `x` is `[rows, cols]`; columns are filled up to whole blocks with zeros.
    pub(crate) fn new(x: &[f32], cols: usize) -> Self {
        let (rows, blocks) = (x.len() / cols, cols.div_ceil(BLOCK));
        let len = rows.div_ceil(HEIGHT) * blocks * LINES;
        let mut data = SPARE.take(len);
        let tiles = data[..len]
            .chunks_exact_mut(blocks * LINES)
            .zip(x.chunks(HEIGHT * cols));
        // Rows that a last tile lacks are multiplied too, but nobody reads what comes out.
        kvlab_cpu::for_each(tiles, |(tile, x)| {
            for (row, x) in x.chunks_exact(cols).enumerate() {
                for (x, lines) in x.chunks(BLOCK).zip(tile.as_chunks_mut::<LINES>().0) {
                    let to = lines[row..].as_mut_ptr().cast();
                    // SAFETY: only an instruction set that has AVX-512 with bf16 asks for tiles; a tile has this row.
                    #[allow(unsafe_code)]
                    unsafe {
                        put_left(x.as_ptr(), x.len(), to);
                    }
                }
            }
        });
        Self { rows, blocks, data }
    }

    /// Rows that are there.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// How many tiles there are.
    pub(crate) fn tiles(&self) -> usize {
        self.rows.div_ceil(HEIGHT)
    }

    /// A tile's lines from a block on.
    pub(crate) fn lines(&self, tile: usize, block: usize) -> &[Line] {
        &self.data[(tile * self.blocks + block) * LINES..(tile + 1) * self.blocks * LINES]
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        SPARE.give(std::mem::take(&mut self.data));
    }
}
