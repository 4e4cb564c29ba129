//! The generation loop: prefill in chunks, then one token a step, with every gap measured. Where room runs out, the
//! youngest sequence waits.

use crate::text::{Sampler, Sampling};
use crate::{Engine, EngineError, Event, Finish, Generation, Request};
use kvlab_core::{CacheError, SeqId, StepReport, TokenId};
use std::collections::VecDeque;
use std::time::Instant;

/// One running sequence.
pub(crate) struct Running {
    pub prompt: usize,
    pub seq: SeqId,
    /// Prompt and generated tokens.
    pub tokens: Vec<TokenId>,
    sampler: Sampler,
    /// Whether a step has fed it since it was opened.
    fed: bool,
    last: Instant,
}

/// The sequences of one call.
pub(crate) struct Batch<'r> {
    pub request: &'r Request,
    begin: Instant,
    /// Whether the log probabilities of tokens are wanted.
    pub log_probs: bool,
    /// Those that go on, the oldest first.
    pub running: Vec<Running>,
    /// Those that are over; still open.
    pub ended: Vec<Running>,
    /// Those that had to make room, the oldest first; not open.
    pub waiting: VecDeque<Running>,
    /// What becomes of each prompt.
    pub done: Vec<Generation>,
}

impl Batch<'_> {
    /// Adds a sequence that is open. `tokens` are its text so far, of which `cached` are stored.
    pub fn add(&mut self, seq: SeqId, tokens: Vec<TokenId>, cached: usize) -> Result<(), EngineError> {
        let prompt = self.done.len();
        let sampling = self.request.sampling;
        self.done.push(Generation {
            cached_tokens: cached,
            ..Generation::new(tokens.len())
        });
        self.running.push(Running {
            prompt,
            seq,
            tokens,
            sampler: Sampler::new(Sampling {
                seed: sampling.seed.wrapping_add(prompt as u64),
                ..sampling
            })?,
            fed: false,
            last: self.begin,
        });
        Ok(())
    }
}

impl Engine {
    /// An empty batch, and the clock of its TTFT started.
    pub(crate) fn batch<'r>(&self, request: &'r Request) -> Result<Batch<'r>, EngineError> {
        self.device.sync()?;
        Ok(Batch {
            request,
            begin: Instant::now(),
            log_probs: false,
            running: Vec::new(),
            ended: Vec::new(),
            waiting: VecDeque::new(),
            done: Vec::new(),
        })
    }

    /// Closes every open sequence of a batch.
    pub(crate) fn close_all(&mut self, batch: &mut Batch<'_>) -> Result<(), EngineError> {
        for r in batch.running.drain(..).chain(batch.ended.drain(..)) {
            self.cache.close(r.seq)?;
        }
        Ok(())
    }

    /// Tokens that a sequence is fed in one step; a cache without memory is fed everything at once.
    pub(crate) fn chunk(&self) -> usize {
        match self.cache.capabilities().remembers {
            true => self.config.cache.prefill_chunk,
            false => usize::MAX,
        }
    }

    /// Runs a batch until every sequence of it has ended. They stay open, unless their room is needed.
    pub(crate) fn run(&mut self, batch: &mut Batch<'_>, on_token: &mut dyn FnMut(Event)) -> Result<(), EngineError> {
        let chunk = self.chunk();
        let vocab = self.model().vocab();
        let mut room = false;
        while self.admit(batch, room)? {
            // What each sequence still has to be fed; those that reach their last token get logits.
            let mut chunks = Vec::with_capacity(batch.running.len());
            let mut wanted = Vec::new();
            let mut complete = Vec::new();
            let mut offset = 0;
            for r in &batch.running {
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
            let (logits, report) = match self.step(&chunks, &wanted) {
                Err(refused @ EngineError::Cache(CacheError::NoRoom { .. })) => {
                    room = false;
                    self.make_room(batch, refused)?;
                    continue;
                }
                stepped => stepped?,
            };
            let logits = self.read(logits)?;
            let mut rows = logits.chunks_exact(vocab);
            let mut over = Vec::with_capacity(complete.len());
            for (i, complete) in complete.into_iter().enumerate() {
                let row = if complete { rows.next() } else { None };
                over.push(self.advance(batch, i, row, &report, on_token)?);
            }
            let mut over = over.into_iter();
            let before = batch.ended.len();
            let ended = batch.running.extract_if(.., |_| over.next().unwrap_or(false));
            batch.ended.extend(ended);
            room |= batch.ended.len() > before;
        }
        Ok(())
    }

    /// Frees rows after a step that found no room: those of sequences that have ended, else those of the youngest.
    fn make_room(&mut self, batch: &mut Batch<'_>, refused: EngineError) -> Result<(), EngineError> {
        if !batch.ended.is_empty() {
            return self.close_ended(batch);
        }
        // One that does not fit alone never will.
        let alone = batch.running.len() < 2;
        let Some(mut youngest) = batch.running.pop_if(|_| !alone) else {
            return Err(refused);
        };
        let generation = &mut batch.done[youngest.prompt];
        generation.waited = true;
        generation.preemptions += usize::from(std::mem::take(&mut youngest.fed));
        self.cache.close(youngest.seq)?;
        batch.waiting.push_front(youngest);
        Ok(())
    }

    /// Lets the oldest sequence that waits go on, if there may be `room` for it. Whether any sequence is running.
    fn admit(&mut self, batch: &mut Batch<'_>, room: bool) -> Result<bool, EngineError> {
        if room && !batch.waiting.is_empty() {
            self.close_ended(batch)?;
            if let Some(mut r) = batch.waiting.pop_front() {
                let opened = self.cache.open(&r.tokens)?;
                r.seq = opened.seq;
                let generation = &mut batch.done[r.prompt];
                if generation.tokens.is_empty() {
                    generation.cached_tokens = opened.reused;
                }
                batch.running.push(r);
            }
        }
        Ok(!batch.running.is_empty())
    }

    fn close_ended(&mut self, batch: &mut Batch<'_>) -> Result<(), EngineError> {
        while let Some(r) = batch.ended.pop() {
            self.cache.close(r.seq)?;
        }
        Ok(())
    }

    /// One sequence after a step: its next token, if it was fed all it has. Says whether it has ended.
    fn advance(
        &self,
        batch: &mut Batch<'_>,
        place: usize,
        logits: Option<&[f32]>,
        report: &StepReport,
        on_token: &mut dyn FnMut(Event),
    ) -> Result<bool, EngineError> {
        let r = &mut batch.running[place];
        r.fed = true;
        let generation = &mut batch.done[r.prompt];
        for kernel in &report.kernels {
            if !generation.kernels.contains(kernel) {
                generation.kernels.push(kernel);
            }
        }
        let Some(logits) = logits else { return Ok(false) };
        if logits.iter().any(|x| !x.is_finite()) {
            let (position, cache) = (r.tokens.len() - 1, self.cache.spec().variant.clone());
            return Err(EngineError::NotFinite { position, cache });
        }
        let token = r.sampler.sample(logits)?;
        let now = Instant::now();
        let gap = now - r.last;
        r.last = now;
        if !batch.request.ignore_eos && self.stop.is_stop(token) {
            generation.finish = Finish::Stop(token);
            generation.usage = self.cache.usage();
            return Ok(true);
        }
        match generation.ttft {
            None => generation.ttft = Some(gap),
            Some(_) => generation.gaps.push(gap),
        }
        if batch.log_probs {
            generation.log_probs.push(log_prob(logits, token));
        }
        generation.tokens.push(token);
        r.tokens.push(token);
        let prompt = r.prompt;
        on_token(Event { prompt, token });
        let over = generation.tokens.len() == batch.request.max_new_tokens;
        if over {
            generation.usage = self.cache.usage();
        }
        Ok(over)
    }
}

/// The natural logarithm of a token's probability, in f64.
fn log_prob(logits: &[f32], token: TokenId) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let distance = |logit: f32| f64::from(logit) - f64::from(most);
    let sum: f64 = logits.iter().map(|&logit| distance(logit).exp()).sum();
    logits
        .get(token as usize)
        .map_or(f64::NEG_INFINITY, |&logit| distance(logit))
        - sum.ln()
}
