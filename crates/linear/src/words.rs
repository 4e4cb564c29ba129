//! Activations of many rows as codes of 16 bits, or of 8, in tiles of 12 rows.

mod code;
mod narrow;

use crate::layout::BLOCK;
use crate::spare::Spare;
use kvlab_cpu::Isa;
use std::ops::Range;

static SPARE: Spare<i32> = Spare::new();

/// Words of a block's codes of 16 bits. Of columns `4 i` to `4 i + 3`, the first and the third are a word, and the others.
pub(crate) const PAIRS: usize = BLOCK / 2;
/// Words of a block's codes of 8 bits, 128 above what they stand for: columns `4 i` to `4 i + 3`.
pub(crate) const FOURS: usize = BLOCK / 4;
/// What a block and row has besides its codes: the step, and the sum of the numbers for the minimum of a format.
pub(crate) const BESIDE: usize = 2;
/// Rows of a tile: the last one has as many as are left, filled up to 4, 8 or 12 with zeros.
pub(crate) const HEIGHT: usize = 12;

/// How great codes may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// The magnitude of one.
    pub(crate) code: i16,
    /// All magnitudes of a block together, before they are rounded.
    pub(crate) sum: f32,
}

impl Most {
    pub(crate) const BYTES: Self = Self::each(i8::MAX as i16);
    pub(crate) const WORDS: Self = Self::each(i16::MAX);

    const fn each(code: i16) -> Self {
        Self {
            code,
            sum: f32::INFINITY,
        }
    }

    /// The part of each magnitude whose sum is what the greatest would have to be, if the sum were the narrower limit.
    fn part(self) -> Option<f32> {
        (self.sum < f32::INFINITY).then(|| f32::from(self.code) / self.sum)
    }
}

/// Rows of activations: in blocks of 32 columns, `step * code`.
pub(crate) struct Words {
    rows: usize,
    /// Words of a block's codes: [`PAIRS`] or [`FOURS`].
    words: usize,
    /// Words of a row.
    width: usize,
    /// `[tile][blocks][words + BESIDE][height]`, and what more there was.
    data: Vec<i32>,
    /// Of each tile, by block.
    outliers: Vec<Outliers>,
}

/// The numbers of a tile that stand out.
#[derive(Clone, Default)]
struct Outliers {
    /// By block.
    all: Vec<Outlier>,
    /// How many there are before each block, and at the end.
    before: Vec<u32>,
}

/// A number that stands out from its block. Its code would make the step of the others coarse: it is left out, and
/// multiplied in f32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlier {
    /// Row of the tile.
    pub(crate) row: usize,
    pub(crate) block: usize,
    /// Column of the block.
    pub(crate) column: usize,
    pub(crate) number: f32,
}

/// Some rows.
pub(crate) struct Tile<'a> {
    /// The first of them, and how many there are; up to `height`, the rows are zeros.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) height: usize,
    pub(crate) data: &'a [i32],
    outliers: &'a Outliers,
}

impl<'a> Tile<'a> {
    /// The numbers that stand out from some blocks.
    pub(crate) fn outliers(&self, blocks: Range<usize>) -> &'a [Outlier] {
        let [from, to] = [blocks.start, blocks.end].map(|block| self.outliers.before[block] as usize);
        &self.outliers.all[from..to]
    }
}

impl Words {
    /// `x` is `[rows, cols]`; columns are filled up to whole blocks with zeros.
    pub(crate) fn new(isa: Isa, x: &[f32], cols: usize, most: Most) -> Self {
        let rows = x.len() / cols;
        let words = if most.code > Most::BYTES.code { PAIRS } else { FOURS };
        let width = cols.div_ceil(BLOCK) * (words + BESIDE);
        let len = rows.next_multiple_of(4) * width;
        let mut codes = Self {
            rows,
            words,
            width,
            data: SPARE.take(len),
            outliers: vec![Outliers::default(); rows.div_ceil(HEIGHT)],
        };
        let tiles = codes.data[..len].chunks_mut(HEIGHT * width).zip(&mut codes.outliers);
        kvlab_cpu::for_each(tiles.zip(x.chunks(HEIGHT * cols)), |((data, outliers), x)| {
            let height = data.len() / width;
            let (blocks, tile, all) = (cols.div_ceil(BLOCK), (data, height), &mut outliers.all);
            // SAFETY: the machine has the instruction set; only one that has AVX2 asks for words.
            #[allow(unsafe_code)]
            unsafe {
                match (isa >= Isa::Avx512, words) {
                    (true, PAIRS) => code::fill::<PAIRS>(x, cols, most, tile, all),
                    (true, _) => code::fill::<FOURS>(x, cols, most, tile, all),
                    (false, PAIRS) => narrow::fill::<PAIRS>(x, cols, most, tile, all),
                    (false, _) => narrow::fill::<FOURS>(x, cols, most, tile, all),
                }
            }
            outliers.before.reserve_exact(blocks + 1);
            let mut count = 0;
            for block in 0..=blocks {
                count += all[count..].iter().take_while(|outlier| outlier.block < block).count();
                outliers.before.push(count as u32);
            }
        });
        codes
    }

    /// Words of a block's codes.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// Rows of all tiles.
    pub(crate) fn height(&self) -> usize {
        self.rows.next_multiple_of(4)
    }

    pub(crate) fn tiles(&self) -> impl Iterator<Item = Tile<'_>> {
        let tiles = self.data[..self.height() * self.width].chunks(HEIGHT * self.width);
        let tiles = tiles.zip(&self.outliers);
        tiles.enumerate().map(|(i, (data, outliers))| Tile {
            first: i * HEIGHT,
            rows: HEIGHT.min(self.rows - i * HEIGHT),
            height: data.len() / self.width,
            data,
            outliers,
        })
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        SPARE.give(std::mem::take(&mut self.data));
    }
}
