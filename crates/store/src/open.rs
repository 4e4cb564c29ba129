//! Rows that are not packed yet: for each sequence a small ring of slots, in the order of their positions.

use crate::layout::{Growth, Regions, Run, Shortage};
use kvlab_core::SeqId;

/// Which slots the open rows of each sequence have. Layers differ in how many: their rings have other sizes, in the
/// same order.
#[derive(Debug)]
pub struct OpenRows {
    regions: Regions,
}

impl OpenRows {
    /// For so many sequences.
    pub fn new(sequences: usize) -> Self {
        Self {
            regions: Regions::new(sequences),
        }
    }

    /// Whether new sequences among these find a ring.
    ///
    /// # Errors
    /// What there is too little of.
    pub fn check(&self, batch: &[Growth<'_>]) -> Result<(), Shortage> {
        let shortage = |s| Shortage {
            what: "rows that are not packed yet, in sequences",
            ..s
        };
        self.regions.check(batch).map_err(shortage)
    }

    /// The ring of a sequence; a new one if it has none.
    pub fn take(&mut self, seq: SeqId) -> Option<usize> {
        self.regions.take(seq)
    }

    /// Frees the ring of a sequence.
    pub fn release(&mut self, seq: SeqId) {
        self.regions.release(seq);
    }

    /// Whether a sequence has a ring.
    pub fn has(&self, seq: SeqId) -> bool {
        self.regions.get(seq).is_some()
    }

    /// The slots of positions `from..to` in rings of `room` slots, cut where they wrap.
    pub fn runs(&self, seq: SeqId, room: usize, from: usize, to: usize) -> Vec<Run> {
        let Some(region) = self.regions.get(seq) else {
            return Vec::new();
        };
        let mut runs = Vec::new();
        let mut position = from;
        while position < to {
            let turn = position % room;
            let len = (room - turn).min(to - position);
            runs.push(Run {
                slot: region * room + turn,
                position,
                len,
            });
            position += len;
        }
        runs
    }
}
