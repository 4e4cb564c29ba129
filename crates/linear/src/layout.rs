//! How packed weights lie in memory.
//!
//! A *panel* is 16 rows of the weight (16 outputs), a *block* 32 columns of a panel. The codes of a block are whole
//! cache lines; each column, or group of four columns, has the codes of its 16 rows side by side. Scales lie apart,
//! in the same order. A weight whose rows do not fill the last panel has rows of zeros there, and one whose columns do
//! not fill the last block has columns of zeros.
//!
//! | format | code lines a block | a line holds |
//! |---|---|---|
//! | F32 | 32 | a column |
//! | F16 | 16 | two columns, one after the other |
//! | BF16 | 16 | two columns, their numbers in pairs |
//! | Q8_0 | 8 | four columns, `q + 128`, the four bytes of a row side by side |
//! | Q4_0, Q4_1, Q4_K | 4 | eight columns: `4 j` to `4 j + 3` as low nibbles, 16 more as high ones |
//! | Q5_0, Q5_1, Q5_K | 5 | the low four bits as above; then all columns, one bit each |
//! | Q6_K | 6 | the low four bits as above; then 16 columns a line, two bits each |

mod float;
mod quant;

pub(crate) use float::{BF16, F16, F32};
pub(crate) use quant::{K_BLOCKS, K_SCALES, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};

use bytemuck::{Pod, Zeroable};

/// Rows of a panel.
pub(crate) const PANEL: usize = 16;
/// Columns of a block.
pub(crate) const BLOCK: usize = 32;
/// Columns that share a scale in every format: half a block.
pub(crate) const HALF: usize = BLOCK / 2;

/// A cache line.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; 64]);

/// A format in memory. A number is `scale * code + minimum`.
pub(crate) trait Layout {
    /// Lines of codes of a block.
    const CODES: usize;

    /// Lines of scales of a panel of so many blocks.
    fn scale_lines(blocks: usize) -> usize;

    /// Puts a row of the file into its lane of a panel. Slices are those of the whole panel.
    fn pack(row: &[u8], lane: usize, codes: &mut [u8], scales: &mut [u8]);

    /// The code in a column and lane of a block.
    fn code(block: &[u8], column: usize, lane: usize) -> f32;

    /// All codes of a block, whose lines are as many as it has. In loops over the lanes, which a compiler makes vectors of.
    fn all_codes(block: &[Line], out: &mut Tile);

    /// Scale and minimum of half a block.
    fn scale(panel: &[u8], block: usize, half: usize, lane: usize) -> (f32, f32);

    /// Those of all lanes, unless they are 1 and 0 for all blocks.
    fn all_scales(panel: &[u8], block: usize, half: usize) -> Option<[Lanes; 2]>;
}

/// A number of each row of a panel.
pub(crate) type Lanes = [f32; PANEL];
/// A block in f32: `[columns][lanes]`.
pub(crate) type Tile = [Lanes; BLOCK];

/// Unpacks a block.
#[inline(always)]
pub(crate) fn unpack<L: Layout>(codes: &[Line], scales: &[Line], block: usize, out: &mut Tile) {
    L::all_codes(&codes[block * L::CODES..(block + 1) * L::CODES], out);
    let scales: &[u8] = bytemuck::cast_slice(scales);
    for (half, columns) in out.as_chunks_mut::<HALF>().0.iter_mut().enumerate() {
        let Some([scale, minimum]) = L::all_scales(scales, block, half) else {
            return;
        };
        for lanes in columns {
            for ((x, scale), minimum) in lanes.iter_mut().zip(&scale).zip(&minimum) {
                *x = *x * scale + minimum;
            }
        }
    }
}

/// Unpacks one row of a panel, as many numbers as `out` has.
pub(crate) fn unpack_row<L: Layout>(codes: &[Line], scales: &[Line], lane: usize, out: &mut [f32]) {
    let codes: &[u8] = bytemuck::cast_slice(codes);
    let scales: &[u8] = bytemuck::cast_slice(scales);
    let size = L::CODES * size_of::<Line>();
    for (i, out) in out.chunks_mut(HALF).enumerate() {
        let (block, half) = (i / 2, i % 2);
        let (scale, minimum) = L::scale(scales, block, half, lane);
        let codes = &codes[block * size..(block + 1) * size];
        for (column, x) in out.iter_mut().enumerate() {
            *x = scale * L::code(codes, half * HALF + column, lane) + minimum;
        }
    }
}
