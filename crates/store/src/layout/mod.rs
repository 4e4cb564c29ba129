//! Layouts: which slots of the storage a sequence has. Integers only; no tensor comes near.

mod contiguous;
mod forgetful;
mod paged;
mod pool;
mod regions;
mod ring;
#[cfg(test)]
mod tests;

pub use contiguous::Contiguous;
pub use forgetful::Forgetful;
pub use paged::{Paged, Reach};
pub(crate) use regions::Regions;
pub use ring::Ring;

use kvlab_core::{SeqId, TokenId, Truncate};
use std::collections::BTreeMap;

/// Consecutive slots that hold consecutive positions of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First slot.
    pub slot: usize,
    /// Position of the row in the first slot.
    pub position: usize,
    /// Rows.
    pub len: usize,
}

impl Run {
    /// The rows from `position` on, if there are any.
    pub fn from(self, position: usize) -> Option<Self> {
        let skip = position.saturating_sub(self.position);
        (skip < self.len).then(|| Self {
            slot: self.slot + skip,
            position: self.position + skip,
            len: self.len - skip,
        })
    }

    /// The rows before `position`, if there are any.
    pub fn until(self, position: usize) -> Option<Self> {
        let len = position.saturating_sub(self.position).min(self.len);
        (len > 0).then_some(Self { len, ..self })
    }
}

/// A piece of a chunk, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// First row of the piece, counted in the chunk.
    pub offset: usize,
    /// First slot.
    pub slot: usize,
    /// Rows.
    pub len: usize,
}

/// Slots to copy, for a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// First slot to read.
    pub from: usize,
    /// First slot to write.
    pub to: usize,
    /// Rows.
    pub len: usize,
}

/// Too little of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Of what.
    pub what: &'static str,
    /// Needed.
    pub needed: usize,
    /// Free.
    pub free: usize,
}

/// The new tokens of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Growth<'a> {
    /// Which.
    pub seq: SeqId,
    /// Its length so far.
    pub start: usize,
    /// Tokens to add, at least one.
    pub tokens: &'a [TokenId],
}

/// What to do so that new rows lie where they belong: first the copies, then the writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Rows of a page that was shared, for the page that takes its place.
    pub copies: Vec<Copy>,
    /// The new rows.
    pub writes: Vec<Write>,
}

impl Placed {
    /// Where the rows of a sequence lie, those from before the append and the new ones, in order of position. Unlike
    /// [`Layout::runs`], it has the slots too that the append has let go of again: pages behind a window, which a later
    /// prompt may find.
    pub fn slots(&self, past: &[Run], start: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut add = |run: Run| match runs.last_mut() {
            Some(last) if last.slot + last.len == run.slot && last.position + last.len == run.position => {
                last.len += run.len;
            }
            _ => runs.push(run),
        };
        for run in past {
            // At most the end of a sequence is copied: the partly filled page that it shared.
            let copied = self.copies.iter().map(|copy| (start - copy.len, copy.to)).next();
            let (from, to) = copied.unwrap_or((start, 0));
            run.until(from).into_iter().for_each(&mut add);
            let moved = run.from(from).map(|run| Run {
                slot: to + run.position - from,
                ..run
            });
            moved.into_iter().for_each(&mut add);
        }
        for write in &self.writes {
            add(Run {
                slot: write.slot,
                position: start + write.offset,
                len: write.len,
            });
        }
        runs
    }
}

/// Slots that hold something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Rows that sequences have, each once, however many share it.
    pub rows: usize,
    /// Empty slots that nobody else can have.
    pub padding: usize,
    /// Slots that no sequence has, but that a later prompt may find.
    pub kept: usize,
}

/// A rule for placing the rows of sequences into slots. The caller knows the length of each sequence.
pub trait Layout: Send {
    /// Its name in a config.
    fn name(&self) -> &'static str;

    /// Slots in all.
    fn slots(&self) -> usize;

    /// How far sequences can be cut back.
    fn rollback(&self) -> Truncate;

    /// Whether [`open`](Self::open) may find stored rows.
    fn shares(&self) -> bool {
        false
    }

    /// A new sequence that will begin with `prompt`: how many of its tokens are stored already.
    fn open(&mut self, _seq: SeqId, _prompt: &[TokenId]) -> usize {
        0
    }

    /// What sequences of these lengths take.
    fn used(&self, lengths: &BTreeMap<SeqId, usize>) -> Used {
        let rows = lengths.iter().flat_map(|(&seq, &len)| self.runs(seq, len));
        Used {
            rows: rows.map(|run| run.len).sum(),
            ..Used::default()
        }
    }

    /// The rows that a sequence of `len` tokens still has, in order of position.
    fn runs(&self, seq: SeqId, len: usize) -> Vec<Run>;

    /// Whether all of these can be added at once.
    ///
    /// # Errors
    /// What there is too little of.
    fn check(&self, batch: &[Growth<'_>]) -> Result<(), Shortage>;

    /// Adds tokens, and says which of their rows to write where. [`check`](Self::check) has passed for them or more.
    fn append(&mut self, growth: Growth<'_>) -> Placed;

    /// Gives the sequence `to` slots of its own for the rows that `from` has, `len` tokens long.
    ///
    /// # Errors
    /// What there is too little of; then nothing changed.
    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<Vec<Copy>, Shortage>;

    /// The shortest length to which a sequence can be cut, if it is longer.
    fn shortest(&self, seq: SeqId) -> usize;

    /// Forgets the rows from position `len` on. The sequence is longer than that, and `len` is not below
    /// [`shortest`](Self::shortest).
    fn truncate(&mut self, seq: SeqId, len: usize);

    /// Frees the slots of a sequence. Unknown ones have none.
    fn close(&mut self, seq: SeqId);
}
