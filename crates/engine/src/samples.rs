//! Several samples of one prompt: it is prefilled once, and its sequence forked.

use crate::batch::Batch;
use crate::{Engine, EngineError, Event, Generation, Request};
use kvlab_core::{Bytes, CacheError, SeqId, TokenId, Usage};

/// Samples of one prompt, and what they took together.
#[derive(Clone, Debug)]
pub struct Samples {
    /// One each, with the log probabilities of its tokens.
    pub generations: Vec<Generation>,
    /// The cache at the end, with every sample still open that no other needed the room of.
    pub usage: Usage,
    /// Bytes of the rows of as many sequences that share nothing, each as long as a sample.
    pub apart: Bytes,
}

impl Generation {
    /// The mean log probability of the tokens, nats. `None` where it was not asked for, or no token came.
    pub fn mean_log_prob(&self) -> Option<f64> {
        let n = self.log_probs.len();
        (n > 0).then(|| self.log_probs.iter().sum::<f64>() / n as f64)
    }
}

impl Engine {
    /// Continues one prompt `n` times. The prompt but for its last token is computed once, then the sequence is forked,
    /// and the samples are decoded together; sample `i` has a sampler seeded with `request.sampling.seed + i`.
    /// `on_token` sees the sample's number as [`Event::prompt`].
    ///
    /// # Errors
    /// [`EngineError::SameSamples`], [`EngineError::EmptyPrompt`], [`CacheError::Unsupported`] by a cache that cannot
    /// fork, [`CacheError::NoRoom`] where `cache.sequences` is less than `n`; otherwise as
    /// [`generate`](Self::generate). Sequences are closed.
    pub fn samples(
        &mut self,
        prompt: &[TokenId],
        n: usize,
        request: &Request,
        on_token: &mut dyn FnMut(Event),
    ) -> Result<Samples, EngineError> {
        self.check_prompt(prompt, request)?;
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if n > 1 && request.sampling.temperature == 0.0 {
            return Err(EngineError::SameSamples(n));
        }
        if n > 1 {
            self.cache
                .capabilities()
                .fork
                .map_err(|reason| CacheError::Unsupported {
                    what: format!("forking a sequence into {n} samples"),
                    reason,
                })?;
        }
        let mut batch = self.batch(request)?;
        batch.log_probs = true;
        let opened = self.cache.open(prompt)?;
        let mut seqs = vec![opened.seq];
        let prepared = self.prefill_and_fork(&mut seqs, opened.reused, prompt, n);
        for seq in seqs {
            batch.add(seq, prompt.to_vec(), opened.reused)?;
        }
        let outcome = match (prepared, request.max_new_tokens) {
            (Err(error), _) => Err(error),
            (Ok(()), 0) => Ok(()),
            (Ok(()), _) => self.run(&mut batch, on_token),
        };
        let (usage, apart) = (self.cache.usage(), self.apart(&batch));
        self.close_all(&mut batch)?;
        outcome.map(|()| Samples {
            generations: batch.done,
            usage,
            apart,
        })
    }

    /// Feeds all of a prompt but its last token, which every sample computes for itself, and forks its sequence.
    fn prefill_and_fork(
        &mut self,
        seqs: &mut Vec<SeqId>,
        stored: usize,
        prompt: &[TokenId],
        n: usize,
    ) -> Result<(), EngineError> {
        let Some(&first) = seqs.first() else { return Ok(()) };
        if self.cache.capabilities().remembers {
            self.feed(first, prompt, stored, prompt.len() - 1, self.chunk())?;
        }
        for _ in 1..n {
            seqs.push(self.cache.fork(first)?);
        }
        Ok(())
    }

    /// Bytes that the sequences of a batch would use if each had its rows for itself.
    fn apart(&self, batch: &Batch<'_>) -> Bytes {
        let open = batch.running.iter().chain(&batch.ended);
        let lengths = open.map(|r| self.cache.len(r.seq).unwrap_or(0));
        lengths.map(|len| self.cache.spec().used_at(len)).sum()
    }
}
