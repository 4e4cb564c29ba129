//! Timed pieces of work for benchmarks: prefill and decode at a depth.

use crate::{Engine, EngineError};
use kvlab_core::{SeqId, TokenId};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A piece of work to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// So many tokens in prefill chunks.
    Prefill(usize),
    /// So many tokens, one a step.
    Decode(usize),
}

impl Work {
    /// Tokens of the work.
    pub fn tokens(self) -> usize {
        match self {
            Self::Prefill(n) | Self::Decode(n) => n,
        }
    }
}

impl Engine {
    /// Does `work` behind `depth` tokens that are fed before the clock starts, on made-up tokens, and says how
    /// long it took with the device done. The names of the kernels that ran come with it.
    ///
    /// # Errors
    /// [`EngineError::TooLong`], and whatever model or cache report.
    pub fn measure(&mut self, depth: usize, work: Work) -> Result<(Duration, Vec<&'static str>), EngineError> {
        let (limit, what) = self.limit();
        if depth + work.tokens() > limit {
            return Err(EngineError::TooLong {
                prompt: depth,
                new: work.tokens(),
                limit,
                what,
            });
        }
        let vocab = self.model().vocab() as u64;
        // Any ids do; these differ from place to place.
        let tokens = (0..depth + work.tokens()).map(|i| (i as u64 * 7919 % vocab) as TokenId);
        let tokens: Vec<TokenId> = tokens.collect();
        let seq = self.cache.open(&[])?.seq;
        let timed = self.timed(seq, &tokens, depth, work);
        self.cache.close(seq)?;
        timed
    }

    fn timed(
        &mut self,
        seq: SeqId,
        tokens: &[TokenId],
        depth: usize,
        work: Work,
    ) -> Result<(Duration, Vec<&'static str>), EngineError> {
        let chunk = self.chunk();
        if self.cache.capabilities().remembers {
            self.feed(seq, tokens, 0, depth, chunk)?;
        }
        self.device.sync()?;
        let start = Instant::now();
        let kernels = match work {
            Work::Prefill(_) => self.feed(seq, tokens, depth, tokens.len(), chunk)?,
            Work::Decode(_) => self.feed(seq, tokens, depth, tokens.len(), 1)?,
        };
        self.device.sync()?;
        Ok((start.elapsed(), kernels))
    }

    /// Feeds `tokens[from..to]` and reads the logits of each chunk's last token, as generation does. A cache
    /// without memory is fed the whole prefix with every chunk.
    pub(crate) fn feed(
        &mut self,
        seq: SeqId,
        tokens: &[TokenId],
        from: usize,
        to: usize,
        chunk: usize,
    ) -> Result<Vec<&'static str>, EngineError> {
        let remembers = self.cache.capabilities().remembers;
        let mut kernels = BTreeSet::new();
        let mut at = from;
        while at < to {
            let end = to.min(at.saturating_add(chunk));
            let first = if remembers { at } else { 0 };
            let (logits, report) = self.step(&[(seq, &tokens[first..end])], &[end - first - 1])?;
            self.read(logits)?;
            kernels.extend(report.kernels);
            at = end;
        }
        Ok(kernels.into_iter().collect())
    }
}
