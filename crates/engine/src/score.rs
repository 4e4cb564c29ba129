//! Teacher forcing: the logits of given tokens, fed through the cache in chunks.

use crate::{Engine, EngineError};
use kvlab_core::{SeqId, TokenId};

impl Engine {
    /// Feeds `tokens` to a new sequence in chunks of `chunk` tokens (0: all at once; 1: token by token) and
    /// calls `each` with the place of a token and the logits (`[vocab]`) that follow it, in order.
    ///
    /// A cache without memory is fed the whole prefix with every chunk.
    ///
    /// # Errors
    /// Too many tokens, tokens beyond the vocabulary, and whatever model or cache report; then the sequence is closed.
    pub fn score(
        &mut self,
        tokens: &[TokenId],
        chunk: usize,
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        self.check_text(tokens)?;
        let seq = self.cache.open(&[])?.seq;
        let scored = self.score_in(seq, tokens, chunk, each);
        self.cache.close(seq)?;
        scored
    }

    /// Checks a text that nothing is to be added to.
    pub(crate) fn check_text(&self, tokens: &[TokenId]) -> Result<(), EngineError> {
        let (limit, what) = self.limit();
        if tokens.len() > limit {
            return Err(EngineError::TooLong {
                prompt: tokens.len(),
                new: 0,
                limit,
                what,
            });
        }
        if tokens.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        self.check_tokens(tokens)
    }

    fn score_in(
        &mut self,
        seq: SeqId,
        tokens: &[TokenId],
        chunk: usize,
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        let vocab = self.model().vocab();
        let remembers = self.cache.capabilities().remembers;
        let chunk = if chunk == 0 { tokens.len() } else { chunk };
        for first in (0..tokens.len()).step_by(chunk) {
            let end = (first + chunk).min(tokens.len());
            let from = if remembers { first } else { 0 };
            let wanted: Vec<usize> = (first - from..end - from).collect();
            let (logits, _) = self.step(&[(seq, &tokens[from..end])], &wanted)?;
            let logits = self.read(logits)?;
            for (i, row) in logits.chunks_exact(vocab).enumerate() {
                if row.iter().any(|x| !x.is_finite()) {
                    return Err(EngineError::NotFinite {
                        position: first + i,
                        cache: self.spec().variant.clone(),
                    });
                }
                each(first + i, row);
            }
        }
        Ok(())
    }
}
