//! `kvlab run`: continues a prompt as it comes, or holds a conversation, then says what it cost.

mod cost;
mod samples;
mod turns;

use crate::failure::{Failure, Outcome};
use crate::{Model, load};
use kvlab_config::ModelConfig;
use kvlab_core::CacheError;
use kvlab_engine::text::{Message, Sampling};
use kvlab_engine::{Engine, EngineError, Request};
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: Model,
    /// The text to continue. With --chat the user's messages, one a turn; with --chat and none, turns are read from
    /// standard input, one a line. Several prompts without --chat are refused
    #[arg(value_name = "PROMPT")]
    prompts: Vec<String>,
    /// Apply the model's chat template. A later turn feeds only what is new
    #[arg(long)]
    chat: bool,
    /// With --chat: what the system message says
    #[arg(long, requires = "chat", conflicts_with = "load")]
    system: Option<String>,
    /// Tokens to generate (in each turn); left out, generate.max_new_tokens of the model file
    #[arg(short = 'n', long)]
    max_new_tokens: Option<usize>,
    /// So many samples of one prompt, which is prefilled once and then forked. Needs generate.temperature above 0
    #[arg(long, value_name = "N", conflicts_with_all = ["save", "load"])]
    samples: Option<NonZeroUsize>,
    /// Save the text at its end, prompts and answers, with what the cache holds of it
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Go on from a saved text: prompts are appended to it. With --chat the saved conversation goes on
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
}

pub fn run(args: &Args) -> Outcome {
    let mut config = load::config(&args.model)?;
    check(args, &config)?;
    if let Some(n) = args.samples {
        config.cache.sequences = config.cache.sequences.max(n.get());
    }
    let mut engine = load::engine(&config)?;
    if args.save.is_some() {
        can_save(&engine)?;
    }
    let request = request(args, &config);
    match args.samples {
        Some(n) => samples::run(&mut engine, args, n.get(), &request),
        None => turns::run(&mut engine, args, &request),
    }
}

/// What can be said before anything is loaded.
fn check(args: &Args, config: &ModelConfig) -> Outcome {
    let refuse = |message: &str| Err(Failure::Request(message.to_owned()));
    let prompts = args.prompts.len();
    if let Some(n) = args.samples {
        if prompts != 1 {
            return refuse("--samples takes one prompt");
        }
        if n.get() > 1 && config.generate.temperature == 0.0 {
            return Err(EngineError::SameSamples(n.get()).into());
        }
    }
    match (args.chat, prompts) {
        (false, 0) if args.load.is_none() => {
            refuse("there is no prompt; give a text to continue, or --chat to read turns from standard input")
        }
        (false, 2..) => refuse(
            "several prompts are the turns of a conversation, which needs --chat; without it, give them as one text",
        ),
        _ => Ok(()),
    }
}

fn can_save(engine: &Engine) -> Outcome {
    let supported = engine.capabilities().save;
    supported.map_err(|reason| {
        let what = "saving a sequence (--save)".to_owned();
        EngineError::from(CacheError::Unsupported { what, reason }).into()
    })
}

fn request(args: &Args, config: &ModelConfig) -> Request {
    let generate = &config.generate;
    Request {
        max_new_tokens: args.max_new_tokens.unwrap_or(generate.max_new_tokens),
        sampling: Sampling {
            temperature: generate.temperature as f32,
            top_k: generate.top_k,
            top_p: generate.top_p as f32,
            seed: generate.seed,
        },
        ignore_eos: generate.ignore_eos,
    }
}

fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.to_owned(),
        content: content.to_owned(),
    }
}

/// The conversation so far as the tokens of a prompt.
fn chat_tokens(engine: &Engine, messages: &[Message]) -> Result<Vec<u32>, Failure> {
    let text = engine.chat(messages)?;
    Ok(engine.tokenizer()?.encode(&text, true).map_err(EngineError::from)?)
}

/// A text as tokens, appended to those that were there before.
fn text_tokens(engine: &Engine, before: &[u32], text: &str) -> Result<Vec<u32>, Failure> {
    let tokenizer = engine.tokenizer()?;
    let special = before.is_empty() && tokenizer.adds_bos();
    let new = tokenizer.encode(text, special).map_err(EngineError::from)?;
    let mut tokens = [before, &new].concat();
    if tokens.is_empty() {
        // Generation can still begin from the begin-of-text token, where the model has one.
        tokens.extend(tokenizer.bos());
    }
    Ok(tokens)
}
