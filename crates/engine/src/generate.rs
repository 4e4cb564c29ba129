//! The generation loop: prefill in chunks, then one token a step, with every gap measured.

use crate::text::{Sampler, Sampling};
use crate::{Engine, EngineError};
use kvlab_core::{SeqId, TokenId, Usage};
use std::time::{Duration, Instant};

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
    /// Time to first token: from the call to the first token in hand, the device done. `None` without one.
    pub ttft: Option<Duration>,
    /// The gap before each token after the first.
    pub gaps: Vec<Duration>,
    /// Why it ended.
    pub finish: Finish,
    /// The kernels that ran.
    pub kernels: Vec<&'static str>,
    /// The cache at its end, with all sequences of the call still open.
    pub usage: Usage,
}

impl Generation {
    fn new(prompt_tokens: usize) -> Self {
        Self {
            prompt_tokens,
            cached_tokens: 0,
            tokens: Vec::new(),
            ttft: None,
            gaps: Vec::new(),
            finish: Finish::Length,
            kernels: Vec::new(),
            usage: Usage::default(),
        }
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

/// One running sequence.
struct Running {
    prompt: usize,
    seq: SeqId,
    /// Prompt and generated tokens.
    tokens: Vec<TokenId>,
    sampler: Sampler,
    last: Instant,
}

impl Engine {
    /// Continues every prompt. Prompts of unequal lengths are prefilled together, in chunks of
    /// `cache.prefill_chunk`, and then decoded together. `on_token` sees each token as it comes.
    ///
    /// An empty prompt ends with [`Finish::EmptyPrompt`] and the others go on.
    ///
    /// # Errors
    /// [`EngineError::TooLong`] before anything ran; whatever model, cache or sampler report. Sequences are closed.
    pub fn generate(
        &mut self,
        prompts: &[Vec<TokenId>],
        request: &Request,
        on_token: &mut dyn FnMut(Event),
    ) -> Result<Vec<Generation>, EngineError> {
        let (limit, what) = self.limit();
        for prompt in prompts {
            self.check_tokens(prompt)?;
            if prompt.len() + request.max_new_tokens > limit {
                let (prompt, new) = (prompt.len(), request.max_new_tokens);
                return Err(EngineError::TooLong {
                    prompt,
                    new,
                    limit,
                    what,
                });
            }
        }
        let sampler = |i: usize| {
            let seed = request.sampling.seed.wrapping_add(i as u64);
            Sampler::new(Sampling {
                seed,
                ..request.sampling
            })
        };
        let samplers = (0..prompts.len()).map(sampler).collect::<Result<Vec<_>, _>>()?;
        let mut done: Vec<_> = prompts.iter().map(|p| Generation::new(p.len())).collect();
        let mut running = Vec::new();
        for ((i, prompt), sampler) in prompts.iter().enumerate().zip(samplers) {
            if prompt.is_empty() {
                done[i].finish = Finish::EmptyPrompt;
            } else if request.max_new_tokens > 0 {
                let opened = self.cache.open(prompt)?;
                done[i].cached_tokens = opened.reused;
                running.push(Running {
                    prompt: i,
                    seq: opened.seq,
                    tokens: prompt.clone(),
                    sampler,
                    last: Instant::now(),
                });
            }
        }
        let seqs: Vec<_> = running.iter().map(|r| r.seq).collect();
        let outcome = self.run(running, request, &mut done, on_token);
        for seq in seqs {
            self.cache.close(seq)?;
        }
        outcome.map(|()| done)
    }

    fn run(
        &mut self,
        mut running: Vec<Running>,
        request: &Request,
        done: &mut [Generation],
        on_token: &mut dyn FnMut(Event),
    ) -> Result<(), EngineError> {
        let stop = self.stop.clone().ignore_eos(request.ignore_eos);
        let vocab = self.model().vocab();
        let remembers = self.cache.capabilities().remembers;
        let chunk = if remembers {
            self.config.cache.prefill_chunk
        } else {
            usize::MAX
        };
        self.device.sync()?;
        let begin = Instant::now();
        running.iter_mut().for_each(|r| r.last = begin);
        while !running.is_empty() {
            // What each sequence still has to be fed; those that reach their last token get logits.
            let mut chunks = Vec::with_capacity(running.len());
            let mut wanted = Vec::new();
            let mut complete = Vec::new();
            let mut offset = 0;
            for r in &running {
                let from = self.cache.len(r.seq)?;
                let to = r.tokens.len().min(from.saturating_add(chunk));
                chunks.push((r.seq, &r.tokens[from..to]));
                offset += to - from;
                let whole = to == r.tokens.len();
                if whole {
                    wanted.push(offset - 1);
                }
                complete.push(whole);
            }
            let (logits, report) = self.step(&chunks, &wanted)?;
            let logits = self.read(logits)?;
            let mut rows = logits.chunks_exact(vocab);
            let mut still = Vec::with_capacity(running.len());
            for (mut r, complete) in running.into_iter().zip(complete) {
                let generation = &mut done[r.prompt];
                for kernel in &report.kernels {
                    if !generation.kernels.contains(kernel) {
                        generation.kernels.push(kernel);
                    }
                }
                if !complete {
                    still.push(r);
                    continue;
                }
                let Some(row) = rows.next() else { continue };
                if row.iter().any(|x| !x.is_finite()) {
                    let (position, cache) = (r.tokens.len() - 1, self.cache.spec().variant.clone());
                    return Err(EngineError::NotFinite { position, cache });
                }
                let token = r.sampler.sample(row)?;
                let now = Instant::now();
                let gap = now - r.last;
                r.last = now;
                if stop.is_stop(token) {
                    generation.finish = Finish::Stop(token);
                    generation.usage = self.cache.usage();
                    continue;
                }
                match generation.ttft {
                    None => generation.ttft = Some(gap),
                    Some(_) => generation.gaps.push(gap),
                }
                generation.tokens.push(token);
                on_token(Event {
                    prompt: r.prompt,
                    token,
                });
                if generation.tokens.len() < request.max_new_tokens {
                    r.tokens.push(token);
                    still.push(r);
                } else {
                    generation.usage = self.cache.usage();
                }
            }
            running = still;
        }
        Ok(())
    }
}
