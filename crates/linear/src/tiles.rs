//! Activations of many rows: tiles of 12 rows, whose numbers of a column lie side by side.

use crate::layout::BLOCK;
use crate::words::{self, Outlier, WORDS};
use std::sync::{Mutex, PoisonError};

/// Rows of a tile: the last one has as many as are left, filled up to 4, 8 or 12 with zeros.
pub(crate) const HEIGHT: usize = 12;

/// Rows of activations in tiles.
pub(crate) struct Tiles {
    rows: usize,
    /// Numbers of a row of a tile.
    width: usize,
    /// f32 as `[tile][cols][height]`, or [words] as `[tile][blocks][WORDS][height]`.
    data: Vec<i32>,
    /// Of each tile, for words.
    outliers: Vec<Vec<Outlier>>,
}

/// Some rows.
pub(crate) struct Tile<'a> {
    /// The first of them, and how many there are; up to `height`, the rows are zeros.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) height: usize,
    pub(crate) data: &'a [i32],
    pub(crate) outliers: &'a [Outlier],
}

impl Tiles {
    /// `x` is `[rows, cols]`; columns are filled up to whole blocks with zeros.
    pub(crate) fn floats(x: &[f32], cols: usize) -> Self {
        Self::new(x, cols, BLOCK, &|x, height, data, _| {
            for (row, x) in x.chunks_exact(cols).enumerate() {
                for (to, x) in data.chunks_exact_mut(height).zip(x) {
                    to[row] = x.to_bits() as i32;
                }
            }
        })
    }

    /// `x` is `[rows, cols]`; the greatest code is `most`.
    pub(crate) fn words(x: &[f32], cols: usize, most: i16) -> Self {
        Self::new(x, cols, WORDS, &|x, height, data, outliers| {
            // SAFETY: only an instruction set that has AVX-512 asks for words.
            #[allow(unsafe_code)]
            unsafe {
                words::fill(x, cols, most, (data, height), outliers);
            }
        })
    }

    fn new(x: &[f32], cols: usize, width: usize, fill: Fill<'_>) -> Self {
        let rows = x.len() / cols;
        let width = cols.div_ceil(BLOCK) * width;
        let mut all = Self {
            rows,
            width,
            data: vec![0; rows.next_multiple_of(4) * width],
            outliers: vec![Vec::new(); rows.div_ceil(HEIGHT)],
        };
        let tiles = all.data.chunks_mut(HEIGHT * width).zip(&mut all.outliers);
        let work = Mutex::new(tiles.zip(x.chunks(HEIGHT * cols)));
        kvlab_cpu::run(&|_| {
            let next = || work.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some(((data, outliers), x)) = next() {
                fill(x, data.len() / width, data, outliers);
            }
        });
        all
    }

    /// Rows of all tiles.
    pub(crate) fn height(&self) -> usize {
        self.rows.next_multiple_of(4)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Tile<'_>> {
        let tiles = self.data.chunks(HEIGHT * self.width).zip(&self.outliers);
        tiles.enumerate().map(|(i, (data, outliers))| Tile {
            first: i * HEIGHT,
            rows: HEIGHT.min(self.rows - i * HEIGHT),
            height: data.len() / self.width,
            data,
            outliers,
        })
    }
}

/// Fills a tile: rows, height, numbers, and what is left out of them.
type Fill<'a> = &'a (dyn Fn(&[f32], usize, &mut [i32], &mut Vec<Outlier>) + Sync);
