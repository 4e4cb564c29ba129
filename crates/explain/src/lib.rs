//! One short sentence through a tiny model, as a self-contained page that can be stepped: what a KV cache does, with the
//! numbers that the model computed.
//!
//! [`trace`] runs the sentence through the engine, once with the cache and once without, for the cache of a model file
//! and for MHA, GQA, SWA and MLA beside it. [`page`] writes what was recorded as one HTML file that needs nothing else.
//!
//! # Why this shape
//! A [`Step`](kvlab_core::Step) is all that a model sees of a cache, so a step that hands everything on and remembers it
//! shows every row, query and output without a change to a model or a cache. Scores and softmax are made again from
//! them in f64, and a page is refused whose sums are not what the model's attention gave. What was turned down: hooks in
//! the kernels, which keep no scores to show.
//!
//! # What it does not do
//! No long texts, no packed number formats, no attention in two parts. It measures no time.

mod attention;
mod error;
mod layer;
mod page;
mod record;
mod trace;
mod variants;
mod watch;

pub use error::ExplainError;
pub use page::{Language, MOST_BYTES, page};
pub use trace::{Chunk, Counts, Guess, Keeps, Layer, Missing, Numbers, Source, Token, Trace, Variant};

use kvlab_config::ModelConfig;
use kvlab_core::TokenId;
use kvlab_engine::text::Tokenizer;
use kvlab_engine::{Engine, EngineError, Pool};
use record::{Recording, Then, record};
use std::num::NonZeroUsize;
use std::path::Path;
use variants::{Choice, Wish, narrow, others};

/// The most tokens that are fed to the model.
pub const MOST_TOKENS: usize = 48;

/// Guesses that are kept of each pass.
const GUESSES: usize = 3;

/// What to explain.
#[derive(Clone, Debug)]
pub struct Request {
    /// The sentence: it is the prompt.
    pub text: String,
    /// Tokens to generate after it.
    pub new_tokens: NonZeroUsize,
    /// The window of SWA, in tokens; left out, one that shows something.
    pub window: Option<NonZeroUsize>,
    /// The layers to show; none for all.
    pub layers: Vec<usize>,
    /// Show other variants by converting the weights of the file, even if there are files of trained ones beside it.
    pub convert: bool,
}

/// Runs a sentence through the cache of `config`, which was read from `file`, and through the others. `progress` is told
/// what is loaded, the tensors read, and their total.
///
/// # Errors
/// A text that is empty or too long, a config that cannot be shown, and whatever model or cache report. A variant other
/// than the file's that this model cannot have is no error: see [`Trace::missing`].
pub fn trace(
    file: &Path,
    config: &ModelConfig,
    request: &Request,
    progress: &mut dyn FnMut(&str, usize, usize),
) -> Result<Trace, ExplainError> {
    if request.text.is_empty() {
        return Err(ExplainError::EmptyText);
    }
    if config.cache.variant.as_deref() == Some("none") {
        return Err(ExplainError::NoCache);
    }
    let mut pool = Pool::new();
    let mut load = |config: &ModelConfig| {
        let what = format!("loading {}", config.name);
        pool.load(config, &mut |done, total| progress(&what, done, total))
    };
    let mut engine = load(config)?;
    let prompt = tokens(&engine, &request.text)?;
    let fed = fed(prompt.len(), request.new_tokens)?;
    let own = engine.spec().variant.clone();
    let window = request.window.map(NonZeroUsize::get);
    if own == "swa" {
        let (mut narrowed, model) = (config.clone(), engine.model().attention(0).visibility.window());
        narrow(&mut narrowed.cache, model, window, fed);
        if narrowed != *config {
            engine = load(&narrowed)?;
        }
    }
    let layers = layers(&request.layers, engine.model().layers())?;

    let generate = Then::Generate(request.new_tokens.get());
    let recording = record(&mut engine, &prompt, generate, &layers)?;
    let generated = recording.generated.clone();
    let chunks = recording.passes.clone();
    let all = [&prompt[..], &generated].concat();
    let shown = texts(engine.tokenizer()?, &all);
    let mut variants = vec![variant(&engine, &own, Source::Own, recording)?];
    let mut missing = Vec::new();
    let wish = Wish {
        file,
        config,
        own: &own,
        convert: request.convert,
        window,
        fed,
    };
    for Choice { name, source, config } in others(&wish) {
        let loaded = config.and_then(|config| load(&config).map_err(|error| error.to_string()));
        let mut engine = match loaded {
            Ok(engine) => engine,
            Err(reason) => {
                missing.push(Missing { name, reason });
                continue;
            }
        };
        if tokens(&engine, &request.text)? != prompt {
            let reason = format!("{} reads the text as other tokens", engine.config().name);
            missing.push(Missing { name, reason });
            continue;
        }
        let layers = self::layers(&request.layers, engine.model().layers())?;
        let recording = record(&mut engine, &prompt, Then::Feed(&generated), &layers)?;
        variants.push(variant(&engine, &name, source, recording)?);
    }
    Ok(Trace {
        model: config.name.clone(),
        text: request.text.clone(),
        tokens: shown,
        prompt: prompt.len(),
        passes: chunks,
        variants,
        missing,
    })
}

fn tokens(engine: &Engine, text: &str) -> Result<Vec<TokenId>, ExplainError> {
    let tokenizer = engine.tokenizer()?;
    let tokens = tokenizer.encode(text, tokenizer.adds_bos());
    Ok(tokens.map_err(EngineError::from)?)
}

/// Tokens that are fed: the last generated one is not.
fn fed(prompt: usize, new: NonZeroUsize) -> Result<usize, ExplainError> {
    match prompt.saturating_add(new.get() - 1) {
        fed if fed <= MOST_TOKENS => Ok(fed),
        fed => Err(ExplainError::TooLong {
            prompt,
            new: new.get(),
            fed,
            most: MOST_TOKENS,
        }),
    }
}

/// The layers to show, ascending.
fn layers(asked: &[usize], layers: usize) -> Result<Vec<usize>, ExplainError> {
    if let Some(&asked) = asked.iter().find(|layer| **layer >= layers) {
        return Err(ExplainError::Layer { asked, layers });
    }
    let shown = |layer: &usize| asked.is_empty() || asked.contains(layer);
    Ok((0..layers).filter(shown).collect())
}

fn variant(engine: &Engine, name: &str, source: Source, recording: Recording) -> Result<Variant, ExplainError> {
    let spec = engine.spec();
    let tokenizer = engine.tokenizer()?;
    let next = recording.logits.iter().map(|logits| guesses(tokenizer, logits));
    Ok(Variant {
        name: name.to_owned(),
        model: engine.config().name.clone(),
        source,
        lossy: match &spec.exactness {
            kvlab_core::Exactness::Exact => Vec::new(),
            kvlab_core::Exactness::Lossy(reasons) => reasons.clone(),
        },
        bytes_per_token: spec.per_token().0,
        bytes: recording.bytes,
        next: next.collect(),
        layers: recording.layers,
        all_layers: engine.model().layers(),
        deviation: recording.deviation,
        difference: recording.difference,
    })
}

/// The likeliest tokens, by the softmax of the logits.
fn guesses(tokenizer: &Tokenizer, logits: &[f32]) -> Vec<Guess> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let power = |logit: f32| f64::from(logit - max).exp();
    let sum: f64 = logits.iter().map(|logit| power(*logit)).sum();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let guess = |&token: &usize| Guess {
        text: alone(tokenizer, token as TokenId),
        p: (power(logits[token]) / sum * 1000.0).round() / 1000.0,
    };
    order.iter().take(GUESSES).map(guess).collect()
}

/// Tokens with their texts, each as it is in the whole.
fn texts(tokenizer: &Tokenizer, tokens: &[TokenId]) -> Vec<Token> {
    let text = |(i, &id): (usize, &TokenId)| {
        let piece = tokenizer.stream_after(&tokens[..i]).push(id);
        let own = alone(tokenizer, id);
        // A token that only ends a character is shown by its number, as those before it.
        let whole = own == tokenizer.decode(&[id]) || tokenizer.decode(&[id]).is_empty();
        Token {
            id,
            text: piece.filter(|_| whole).unwrap_or(own),
        }
    };
    tokens.iter().enumerate().map(text).collect()
}

/// A token on its own; its id in hexadecimal digits where that is no text.
fn alone(tokenizer: &Tokenizer, id: TokenId) -> String {
    let text = tokenizer.decode(&[id]);
    match text.contains(char::REPLACEMENT_CHARACTER) {
        true => format!("<{id:02X}>"),
        false => text,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;
