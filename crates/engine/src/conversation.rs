//! A sequence that stays open from one call to the next, so that a second turn feeds only what is new.

use crate::text::Message;
use crate::{Engine, EngineError, Event, Generation, Request};
use kvlab_core::{SeqId, TokenId};

/// A text that goes on: what its sequence in the cache stands for.
///
/// It belongs to the engine that it was continued with, and holds rows there until [`Engine::end`].
#[derive(Debug, Default)]
pub struct Conversation {
    pub(crate) seq: Option<SeqId>,
    pub(crate) tokens: Vec<TokenId>,
    /// What was said, where it is a chat; empty for a plain text. Kept for the caller: the engine does not read it.
    pub messages: Vec<Message>,
}

impl Conversation {
    /// One in which nothing was said.
    pub fn new() -> Self {
        Self::default()
    }

    /// All tokens so far, prompts and answers. The last one may not have been fed to the cache.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Its sequence in the cache; `None` before the first turn.
    pub fn sequence(&self) -> Option<SeqId> {
        self.seq
    }
}

impl Engine {
    /// Continues a conversation. `prompt` is the whole text so far, new turn included. What of it the sequence holds
    /// already is not computed again: the longest beginning that both have in common and that the cache can be cut
    /// back to. Where they differ (an answer is tokenised in another way than it was generated, a chat template rewrites
    /// what was said before), the rows from there on are given up; [`Generation::cached_tokens`] says how many were kept.
    ///
    /// At least one token is computed.
    ///
    /// # Errors
    /// As [`generate`](Self::generate). The conversation stays usable.
    pub fn converse(
        &mut self,
        conversation: &mut Conversation,
        prompt: &[TokenId],
        request: &Request,
        on_token: &mut dyn FnMut(Event),
    ) -> Result<Generation, EngineError> {
        self.check_prompt(prompt, request)?;
        let nothing = Generation::without_tokens(prompt.len());
        if prompt.is_empty() || request.max_new_tokens == 0 {
            return Ok(nothing);
        }
        let mut batch = self.batch(request)?;
        let (seq, cached) = self.reuse(conversation, prompt)?;
        batch.add(seq, prompt.to_vec(), cached)?;
        let outcome = self.run(&mut batch, on_token);
        // Also after an error: what was fed is the beginning of these tokens.
        if let Some(r) = batch.running.pop().or(batch.ended.pop()) {
            conversation.tokens = r.tokens;
        }
        outcome?;
        Ok(batch.done.pop().unwrap_or(nothing))
    }

    /// Ends a conversation and frees its rows.
    ///
    /// # Errors
    /// [`CacheError::UnknownSequence`](kvlab_core::CacheError::UnknownSequence) for one of another engine.
    pub fn end(&mut self, conversation: Conversation) -> Result<(), EngineError> {
        match conversation.seq {
            Some(seq) => Ok(self.cache.close(seq)?),
            None => Ok(()),
        }
    }

    /// The sequence for a prompt, and how many of its tokens are stored there.
    fn reuse(&mut self, conversation: &mut Conversation, prompt: &[TokenId]) -> Result<(SeqId, usize), EngineError> {
        if let Some(seq) = conversation.seq {
            let stored = &conversation.tokens[..self.cache.len(seq)?.min(conversation.tokens.len())];
            let common = stored.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            // One token is left to compute, so that there are logits.
            let most = common.min(prompt.len().saturating_sub(1));
            let kept = (1..=most).rev().find(|&len| self.cache.can_truncate(seq, len).is_ok());
            conversation.tokens.truncate(kept.unwrap_or(0));
            if let Some(kept) = kept {
                self.cache.truncate(seq, kept)?;
                return Ok((seq, kept));
            }
            conversation.seq = None;
            self.cache.close(seq)?;
        }
        let opened = self.cache.open(prompt)?;
        conversation.seq = Some(opened.seq);
        conversation.tokens = prompt[..opened.reused].to_vec();
        Ok((opened.seq, opened.reused))
    }
}
