//! Generation: what is asked for, and what came of it.

use crate::batch::Batch;
use crate::text::{Sampler, Sampling};
use crate::{Engine, EngineError};
use kvlab_core::{TokenId, Usage};
use std::time::Duration;

/// What to generate.
#[derive(Clone, Debug)]
pub struct Request {
    /// The most tokens to generate for each prompt.
    pub max_new_tokens: usize,
    /// How tokens are chosen. Each sequence has a sampler of its own, seeded with `seed` plus its place.
    pub sampling: Sampling,
    /// Whether to go on after an end token.
    pub ignore_eos: bool,
}

/// A token, as it comes.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Which prompt.
    pub prompt: usize,
    /// The token.
    pub token: TokenId,
}

/// Why a sequence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// As many tokens as were asked for.
    Length,
    /// This end token came (it is not among the tokens).
    Stop(TokenId),
    /// There was nothing to begin with.
    EmptyPrompt,
}

/// What became of one prompt.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were found stored.
    pub cached_tokens: usize,
    /// The tokens that came.
    pub tokens: Vec<TokenId>,
    /// The natural logarithm of the probability that the model gave to each of them, whatever it was sampled with.
    /// Only [`Engine::samples`](crate::Engine::samples) asks for it; otherwise empty.
    pub log_probs: Vec<f64>,
    /// Time to first token: from the call to the first token in hand, the device done. `None` without one.
    pub ttft: Option<Duration>,
    /// The gap before each token after the first.
    pub gaps: Vec<Duration>,
    /// Why it ended.
    pub finish: Finish,
    /// The kernels that ran.
    pub kernels: Vec<&'static str>,
    /// Whether it had to wait for room, or to make some.
    pub waited: bool,
    /// How often its rows were given up for lack of room, and computed again later.
    pub preemptions: usize,
    /// The cache at its end, with all sequences of the call still open, but for those whose room was needed.
    pub usage: Usage,
}

impl Generation {
    pub(crate) fn new(prompt_tokens: usize) -> Self {
        Self {
            prompt_tokens,
            cached_tokens: 0,
            tokens: Vec::new(),
            log_probs: Vec::new(),
            ttft: None,
            gaps: Vec::new(),
            finish: Finish::Length,
            kernels: Vec::new(),
            waited: false,
            preemptions: 0,
            usage: Usage::default(),
        }
    }

    /// Of a prompt that nothing was asked after, or that is empty.
    pub(crate) fn without_tokens(prompt_tokens: usize) -> Self {
        let mut none = Self::new(prompt_tokens);
        if prompt_tokens == 0 {
            none.finish = Finish::EmptyPrompt;
        }
        none
    }

    /// From the call to the last token.
    pub fn total(&self) -> Duration {
        self.ttft.unwrap_or_default() + self.gaps.iter().sum::<Duration>()
    }

    /// Time per output token: the mean of the gaps. `None` with fewer than two tokens.
    pub fn tpot(&self) -> Option<Duration> {
        let gaps = u32::try_from(self.gaps.len()).ok().filter(|n| *n > 0)?;
        Some(self.gaps.iter().sum::<Duration>() / gaps)
    }
}

impl Engine {
    /// Continues every prompt. Prompts of unequal lengths are prefilled together, in chunks of
    /// `cache.prefill_chunk`, and then decoded together. `on_token` sees each token as it comes.
    ///
    /// An empty prompt ends with [`Finish::EmptyPrompt`] and the others go on. Where the cache has no room for all of
    /// them, the youngest wait until others have ended: their rows are given up, and computed again from their tokens
    /// ([`Generation::preemptions`]). What they say does not change by it.
    ///
    /// # Errors
    /// [`EngineError::TooLong`] before anything ran; [`CacheError::NoRoom`](kvlab_core::CacheError::NoRoom) for a
    /// sequence that does not fit alone; whatever model, cache or sampler report. Sequences are closed.
    pub fn generate(
        &mut self,
        prompts: &[Vec<TokenId>],
        request: &Request,
        on_token: &mut dyn FnMut(Event),
    ) -> Result<Vec<Generation>, EngineError> {
        for prompt in prompts {
            self.check_prompt(prompt, request)?;
        }
        let mut batch = self.batch(request)?;
        let outcome = self.generate_in(&mut batch, prompts, on_token);
        self.close_all(&mut batch)?;
        outcome.map(|()| batch.done)
    }

    fn generate_in(
        &mut self,
        batch: &mut Batch<'_>,
        prompts: &[Vec<TokenId>],
        on_token: &mut dyn FnMut(Event),
    ) -> Result<(), EngineError> {
        for prompt in prompts {
            if prompt.is_empty() || batch.request.max_new_tokens == 0 {
                batch.done.push(Generation::without_tokens(prompt.len()));
            } else {
                let opened = self.cache.open(prompt)?;
                batch.add(opened.seq, prompt.clone(), opened.reused)?;
            }
        }
        self.run(batch, on_token)
    }

    /// Checks a prompt before anything runs.
    pub(crate) fn check_prompt(&self, prompt: &[TokenId], request: &Request) -> Result<(), EngineError> {
        self.check_tokens(prompt)?;
        // Whether the sampler takes its settings.
        Sampler::new(request.sampling)?;
        let (limit, what) = self.limit();
        let (prompt, new) = (prompt.len(), request.max_new_tokens);
        if prompt + new > limit {
            return Err(EngineError::TooLong {
                prompt,
                new,
                limit,
                what,
            });
        }
        Ok(())
    }
}
