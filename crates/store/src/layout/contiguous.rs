//! Contiguous: each sequence has one region, position `p` in its slot `p`. A region is whole blocks of rows that are
//! packed together.

use super::regions::Regions;
use super::{Copy, Growth, Layout, Placed, Run, Shortage, Write};
use kvlab_core::{SeqId, Truncate};

/// See the module.
#[derive(Debug)]
pub struct Contiguous {
    capacity: usize,
    /// Slots of a region.
    rows: usize,
    sequences: usize,
    regions: Regions,
}

impl Contiguous {
    /// Room for `sequences` sequences of `capacity` tokens, whose rows are packed `block` at a time.
    pub fn new(capacity: usize, sequences: usize, block: usize) -> Self {
        Self {
            capacity,
            rows: capacity.next_multiple_of(block.max(1)),
            sequences,
            regions: Regions::new(sequences),
        }
    }
}

impl Contiguous {
    /// Slots of one sequence.
    pub fn rows_per_sequence(&self) -> usize {
        self.rows
    }
}

impl Layout for Contiguous {
    fn name(&self) -> &'static str {
        "contiguous"
    }

    fn slots(&self) -> usize {
        self.rows * self.sequences
    }

    fn rollback(&self) -> Truncate {
        Truncate::Any
    }

    fn runs(&self, seq: SeqId, len: usize) -> Vec<Run> {
        match self.regions.get(seq) {
            Some(region) if len > 0 => vec![Run {
                slot: region * self.rows,
                position: 0,
                len,
            }],
            _ => Vec::new(),
        }
    }

    fn check(&self, batch: &[Growth<'_>]) -> Result<(), Shortage> {
        let over = |g: &&Growth<'_>| g.tokens.len() > self.capacity.saturating_sub(g.start);
        if let Some(growth) = batch.iter().find(over) {
            return Err(Shortage {
                what: "contiguous cache, in tokens of one sequence",
                needed: growth.tokens.len(),
                free: self.capacity.saturating_sub(growth.start),
            });
        }
        self.regions.check(batch)
    }

    fn append(&mut self, growth: Growth<'_>) -> Placed {
        let region = self.regions.take(growth.seq);
        let write = region.map(|region| Write {
            offset: 0,
            slot: region * self.rows + growth.start,
            len: growth.tokens.len(),
        });
        Placed {
            writes: write.into_iter().collect(),
            ..Placed::default()
        }
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<Vec<Copy>, Shortage> {
        let Some(source) = self.regions.get(from) else {
            return Ok(Vec::new());
        };
        self.regions.check_one(to)?;
        let copy = self.regions.take(to).map(|target| Copy {
            from: source * self.rows,
            to: target * self.rows,
            len,
        });
        Ok(copy.into_iter().filter(|copy| copy.len > 0).collect())
    }

    fn shortest(&self, _: SeqId) -> usize {
        0
    }

    fn truncate(&mut self, seq: SeqId, len: usize) {
        if len == 0 {
            self.regions.release(seq);
        }
    }

    fn close(&mut self, seq: SeqId) {
        self.regions.release(seq);
    }
}
