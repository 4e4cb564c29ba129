//! Equal regions of slots, one for each sequence that has rows.

use super::{Growth, Shortage};
use kvlab_core::SeqId;
use std::collections::BTreeMap;

/// Hands out regions `0..count`, the lowest free one first.
#[derive(Debug)]
pub struct Regions {
    taken: BTreeMap<SeqId, usize>,
    free: Vec<usize>,
}

impl Regions {
    pub fn new(count: usize) -> Self {
        Self {
            taken: BTreeMap::new(),
            free: (0..count).rev().collect(),
        }
    }

    pub fn get(&self, seq: SeqId) -> Option<usize> {
        self.taken.get(&seq).copied()
    }

    pub fn check(&self, batch: &[Growth<'_>]) -> Result<(), Shortage> {
        let needed = batch.iter().filter(|g| self.get(g.seq).is_none()).count();
        if needed <= self.free.len() {
            return Ok(());
        }
        Err(Shortage {
            what: "cache, in sequences",
            needed,
            free: self.free.len(),
        })
    }

    pub fn check_one(&self, seq: SeqId) -> Result<(), Shortage> {
        self.check(&[Growth {
            seq,
            start: 0,
            tokens: &[],
        }])
    }

    /// The region of a sequence, a new one if it has none and one is free.
    pub fn take(&mut self, seq: SeqId) -> Option<usize> {
        if let Some(region) = self.get(seq) {
            return Some(region);
        }
        let region = self.free.pop()?;
        self.taken.insert(seq, region);
        Some(region)
    }

    pub fn release(&mut self, seq: SeqId) {
        if let Some(region) = self.taken.remove(&seq) {
            self.free.push(region);
            self.free.sort_unstable_by(|a, b| b.cmp(a));
        }
    }
}
