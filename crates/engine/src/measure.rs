//! Timed pieces of work for benchmarks: prefill and decode at a depth.

use crate::{Engine, EngineError};
use kvlab_core::{CacheError, SeqId, TokenId};
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

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// How long the work took, with the device done.
    pub time: Duration,
    /// Names of the kernels that ran.
    pub kernels: Vec<&'static str>,
    /// Tokens that were fed before the clock started: all of the depth, or none where the rows of an earlier
    /// measurement were still there.
    pub fed: usize,
}

/// A sequence that is filled to a depth, to measure work behind it as often as is wanted.
pub struct Filled<'e> {
    engine: &'e mut Engine,
    seq: SeqId,
    depth: usize,
}

impl Engine {
    /// A sequence of `depth` made-up tokens. They are fed by the first [`Filled::measure`].
    ///
    /// # Errors
    /// Whatever the cache reports.
    pub fn filled(&mut self, depth: usize) -> Result<Filled<'_>, EngineError> {
        let seq = self.cache.open(&[])?.seq;
        let engine = self;
        Ok(Filled { engine, seq, depth })
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

impl Filled<'_> {
    /// The engine that holds it.
    pub fn engine(&self) -> &Engine {
        self.engine
    }

    /// Does `work` behind the depth, on made-up tokens. What an earlier call added is cut off first; a cache that
    /// cannot be cut back so far is filled again. The clock starts after that.
    ///
    /// # Errors
    /// [`EngineError::TooLong`], and whatever model or cache report.
    pub fn measure(&mut self, work: Work) -> Result<Measured, EngineError> {
        let (depth, total) = (self.depth, self.depth + work.tokens());
        let (limit, what) = self.engine.limit();
        if total > limit {
            return Err(EngineError::TooLong {
                prompt: depth,
                new: work.tokens(),
                limit,
                what,
            });
        }
        let vocab = self.engine.model().vocab() as u64;
        // Any ids do; these differ from place to place.
        let tokens = (0..total).map(|i| (i as u64 * 7919 % vocab) as TokenId);
        let tokens: Vec<TokenId> = tokens.collect();
        let chunk = self.engine.chunk();
        let stored = self.cut()?;
        // A cache without memory is fed the depth with every step.
        let fed = match self.engine.cache.capabilities().remembers {
            true => depth - stored,
            false => 0,
        };
        self.engine.feed(self.seq, &tokens, depth - fed, depth, chunk)?;
        self.engine.device.sync()?;
        let start = Instant::now();
        let chunk = match work {
            Work::Prefill(_) => chunk,
            Work::Decode(_) => 1,
        };
        let kernels = self.engine.feed(self.seq, &tokens, depth, total, chunk)?;
        self.engine.device.sync()?;
        let time = start.elapsed();
        Ok(Measured { time, kernels, fed })
    }

    /// Cuts the sequence back to the depth, or to nothing where the cache cannot do that. Its length then.
    fn cut(&mut self) -> Result<usize, EngineError> {
        let cache = &mut self.engine.cache;
        let kept = cache.len(self.seq)?.min(self.depth);
        match cache.truncate(self.seq, kept) {
            Ok(()) => Ok(kept),
            Err(CacheError::Unsupported { .. }) => {
                cache.close(self.seq)?;
                self.seq = cache.open(&[])?.seq;
                Ok(0)
            }
            Err(other) => Err(other.into()),
        }
    }
}

impl Drop for Filled<'_> {
    fn drop(&mut self) {
        // It fails for a sequence that is not open, and then there is nothing to close.
        let _ = self.engine.cache.close(self.seq);
    }
}
