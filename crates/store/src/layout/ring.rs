//! Ring: the first `sinks` rows stay, the others share `window` slots in turn.
//!
//! With the `window` newest rows in storage, the next query (which adds its own row) finds the `window - 1`
//! older ones that it may see. The one row more is what lets a sequence be cut back by one token.

use super::regions::Regions;
use super::{Copy, Growth, Layout, Placed, Run, Shortage, Write};
use kvlab_core::{SeqId, Truncate};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub struct Ring {
    sinks: usize,
    /// Slots that are used in turn.
    turn: usize,
    window: usize,
    sequences: usize,
    regions: Regions,
    /// For each sequence the lowest position, from `sinks` on, that is still stored.
    oldest: BTreeMap<SeqId, usize>,
}

impl Ring {
    /// Room for `sequences` sequences, each with `sinks + window` rows, or `capacity` rows if that is less.
    /// In the latter case a sequence cannot grow beyond `capacity` tokens; otherwise there is no limit.
    pub fn new(window: usize, sinks: usize, capacity: usize, sequences: usize) -> Self {
        Self {
            sinks,
            turn: window.min(capacity.saturating_sub(sinks)).max(1),
            window,
            sequences,
            regions: Regions::new(sequences),
            oldest: BTreeMap::new(),
        }
    }

    /// Rows of one sequence.
    pub fn rows_per_sequence(&self) -> usize {
        self.sinks + self.turn
    }

    fn oldest(&self, seq: SeqId) -> usize {
        self.oldest.get(&seq).copied().unwrap_or(self.sinks)
    }

    /// The slots of positions `from..to`, cut where they wrap. All of them are on one side of `sinks`.
    fn pieces(&self, region: usize, from: usize, to: usize) -> Vec<Run> {
        let base = region * self.rows_per_sequence();
        let mut runs = Vec::new();
        let mut position = from;
        while position < to {
            let (slot, room) = if position < self.sinks {
                (position, self.sinks - position)
            } else {
                let turn = (position - self.sinks) % self.turn;
                (self.sinks + turn, self.turn - turn)
            };
            let len = room.min(to - position);
            runs.push(Run {
                slot: base + slot,
                position,
                len,
            });
            position += len;
        }
        runs
    }
}

impl Layout for Ring {
    fn name(&self) -> &'static str {
        "ring"
    }

    fn slots(&self) -> usize {
        self.rows_per_sequence() * self.sequences
    }

    fn rollback(&self) -> Truncate {
        Truncate::Last(1)
    }

    fn runs(&self, seq: SeqId, len: usize) -> Vec<Run> {
        let Some(region) = self.regions.get(seq) else {
            return Vec::new();
        };
        let mut runs = self.pieces(region, 0, self.sinks.min(len));
        runs.extend(self.pieces(region, self.oldest(seq), len));
        runs
    }

    fn check(&self, batch: &[Growth<'_>]) -> Result<(), Shortage> {
        if self.turn < self.window {
            let room = self.rows_per_sequence();
            let over = |g: &&Growth<'_>| g.tokens.len() > room.saturating_sub(g.start);
            if let Some(growth) = batch.iter().find(over) {
                return Err(Shortage {
                    what: "ring, in tokens of one sequence",
                    needed: growth.tokens.len(),
                    free: room.saturating_sub(growth.start),
                });
            }
        }
        self.regions.check(batch)
    }

    fn append(&mut self, growth: Growth<'_>) -> Placed {
        let Growth { seq, start, tokens } = growth;
        let Some(region) = self.regions.take(seq) else {
            return Placed::default();
        };
        let end = start + tokens.len();
        let oldest = self.oldest(seq).max(end.saturating_sub(self.turn));
        self.oldest.insert(seq, oldest);
        let mut runs = self.pieces(region, start, end.min(self.sinks));
        runs.extend(self.pieces(region, oldest.max(start).max(self.sinks), end));
        let writes = runs.into_iter().map(|run| Write {
            offset: run.position - start,
            slot: run.slot,
            len: run.len,
        });
        Placed {
            writes: writes.collect(),
            ..Placed::default()
        }
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<Vec<Copy>, Shortage> {
        let Some(source) = self.regions.get(from) else {
            return Ok(Vec::new());
        };
        self.regions.check_one(to)?;
        self.oldest.insert(to, self.oldest(from));
        let rows = self.rows_per_sequence();
        let used = len.min(rows);
        let copy = self.regions.take(to).map(|target| Copy {
            from: source * rows,
            to: target * rows,
            len: used,
        });
        Ok(copy.into_iter().filter(|copy| copy.len > 0).collect())
    }

    fn shortest(&self, seq: SeqId) -> usize {
        // The next query, at position `len`, sees the rows from `len - (window - 1)` on.
        match self.oldest(seq) {
            oldest if oldest > self.sinks => oldest + self.window - 1,
            _ => 0,
        }
    }

    fn truncate(&mut self, seq: SeqId, len: usize) {
        if len == 0 {
            self.close(seq);
        }
    }

    fn close(&mut self, seq: SeqId) {
        self.regions.release(seq);
        self.oldest.remove(&seq);
    }
}
