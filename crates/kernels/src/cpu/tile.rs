//! Rows in tiles: what the loops look at together.

use super::planes::Rows;
use kvlab_store::Run;
use std::ops::Range;

/// The most rows of a tile.
pub const ROWS: usize = 64;

/// Some rows of one part, in order of position.
pub struct Tile {
    pub part: usize,
    pub len: usize,
    pub slots: [usize; ROWS],
    /// The last of the slots.
    pub last: usize,
    pub positions: [usize; ROWS],
    /// Where the codes of its keys and of its values lie: bytes behind those of slot 0, filled up to sixteen with the last.
    pub offsets: [[usize; ROWS]; 2],
}

impl Tile {
    pub fn new() -> Self {
        Self {
            part: 0,
            len: 0,
            slots: [0; ROWS],
            last: 0,
            positions: [0; ROWS],
            offsets: [[0; ROWS]; 2],
        }
    }

    /// Finds the codes of its rows.
    #[inline(always)] // Compiled with the instructions of its caller.
    pub fn locate(&mut self, rows: &Rows) {
        let sides = std::iter::once(&rows.key).chain(&rows.value);
        for (offsets, side) in self.offsets.iter_mut().zip(sides) {
            let stride = side.codes.slot_stride();
            for (offset, slot) in offsets.iter_mut().zip(&self.slots[..self.len]) {
                *offset = slot * stride;
            }
            // The loops take rows four or sixteen at a time.
            let last = offsets[self.len.saturating_sub(1)];
            offsets[self.len..self.len.next_multiple_of(16)].fill(last);
        }
    }

    /// First and last position.
    pub fn ends(&self) -> (usize, usize) {
        (self.positions[0], self.positions[self.len.saturating_sub(1)])
    }
}

/// A run of rows of a part.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub part: usize,
    pub run: Run,
}

/// Goes through some of the rows of several pieces, counted from the first one.
pub struct Cursor<'a> {
    pieces: &'a [Piece],
    /// Rows of the first piece that are done.
    skip: usize,
    left: usize,
    /// Rows of a tile.
    most: usize,
    /// For each part, the slots that share scales: no tile has rows of two such blocks.
    blocks: &'a [usize],
}

impl<'a> Cursor<'a> {
    pub fn new(mut pieces: &'a [Piece], rows: Range<usize>, most: usize, blocks: &'a [usize]) -> Self {
        let mut skip = rows.start;
        while let [first, rest @ ..] = pieces
            && skip >= first.run.len
        {
            skip -= first.run.len;
            pieces = rest;
        }
        Self {
            pieces,
            skip,
            left: rows.len(),
            most: most.min(ROWS),
            blocks,
        }
    }

    /// Fills a tile with the next rows; an empty one at the end.
    #[inline(always)] // As above.
    pub fn fill(&mut self, tile: &mut Tile) {
        (tile.len, tile.last) = (0, 0);
        while let [Piece { part, run }, rest @ ..] = self.pieces {
            if self.left == 0 || tile.len == self.most || (tile.len > 0 && *part != tile.part) {
                return;
            }
            tile.part = *part;
            let (slot, block) = (run.slot + self.skip, self.blocks[*part]);
            if tile.len > 0 && tile.slots[tile.len - 1] / block != slot / block {
                return;
            }
            let left = run.len - self.skip;
            let n = left.min(self.left).min(self.most - tile.len).min(block - slot % block);
            for (i, slot) in tile.slots[tile.len..tile.len + n].iter_mut().enumerate() {
                *slot = run.slot + self.skip + i;
            }
            for (i, position) in tile.positions[tile.len..tile.len + n].iter_mut().enumerate() {
                *position = run.position + self.skip + i;
            }
            tile.len += n;
            tile.last = tile.last.max(slot + n - 1);
            self.left -= n;
            self.skip += n;
            if self.skip == run.len {
                self.pieces = rest;
                self.skip = 0;
            } else if tile.len < self.most {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces() -> Vec<Piece> {
        let piece = |part, slot, position, len| Piece {
            part,
            run: Run { slot, position, len },
        };
        vec![
            piece(0, 10, 0, 5),
            piece(0, 40, 5, 70),
            piece(0, 7, 75, 1),
            piece(1, 0, 76, 3),
        ]
    }

    /// Every row once, in order, whatever is cut.
    #[test]
    fn no_row_is_lost() {
        let pieces = pieces();
        for (most, block) in [(1, 8), (3, usize::MAX), (16, 8), (64, usize::MAX), (64, 16)] {
            let blocks = [block; 2];
            for end in 0..=79 {
                for start in 0..=end {
                    let mut cursor = Cursor::new(&pieces, start..end, most, &blocks);
                    let mut tile = Tile::new();
                    let mut seen = Vec::new();
                    loop {
                        cursor.fill(&mut tile);
                        if tile.len == 0 {
                            break;
                        }
                        assert!(tile.len <= most);
                        assert!(
                            tile.slots[..tile.len]
                                .iter()
                                .all(|slot| slot / block == tile.slots[0] / block)
                        );
                        for (&slot, &position) in tile.slots[..tile.len].iter().zip(&tile.positions) {
                            let run = pieces
                                .iter()
                                .find(|p| p.run.from(position).is_some_and(|r| r.position == position));
                            let run = run.map(|p| (p.part, p.run.slot + position - p.run.position));
                            assert_eq!(run, Some((tile.part, slot)));
                            seen.push(position);
                        }
                    }
                    assert_eq!(seen, (start..end).collect::<Vec<_>>());
                }
            }
        }
    }
}
