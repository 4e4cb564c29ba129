//! `kvlab run`: continues a prompt as it comes, then says what it cost.

use crate::failure::{Failure, Outcome};
use crate::{Model, load};
use kvlab_engine::text::{Message, Sampling};
use kvlab_engine::{EngineError, Finish, Generation, Request};
use kvlab_lab::percentile;
use std::io::Write;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: Model,
    /// The text to continue, or with --chat the user's message
    prompt: String,
    /// Apply the model's chat template
    #[arg(long)]
    chat: bool,
    /// With --chat: what the system message says
    #[arg(long, requires = "chat")]
    system: Option<String>,
    /// Tokens to generate; left out, generate.max_new_tokens of the model file
    #[arg(short = 'n', long)]
    max_new_tokens: Option<usize>,
}

pub fn run(args: &Args) -> Outcome {
    let config = load::config(&args.model)?;
    let mut engine = load::engine(&config)?;
    let text = match args.chat {
        false => args.prompt.clone(),
        true => {
            let message = |role: &str, content: &str| Message {
                role: role.into(),
                content: content.into(),
            };
            let system = args.system.as_deref().map(|text| message("system", text));
            let messages: Vec<_> = system.into_iter().chain([message("user", &args.prompt)]).collect();
            engine.chat(&messages)?
        }
    };
    let tokenizer = engine.tokenizer()?;
    let mut ids = tokenizer
        .encode(&text, args.chat || tokenizer.adds_bos())
        .map_err(EngineError::from)?;
    if ids.is_empty() {
        // Generation can still begin from the begin-of-text token, where the model has one.
        ids.extend(tokenizer.bos());
    }
    let mut stream = tokenizer.stream_after(&ids);
    let generate = &config.generate;
    let request = Request {
        max_new_tokens: args.max_new_tokens.unwrap_or(generate.max_new_tokens),
        sampling: Sampling {
            temperature: generate.temperature as f32,
            top_k: generate.top_k,
            top_p: generate.top_p as f32,
            seed: generate.seed,
        },
        ignore_eos: generate.ignore_eos,
    };
    let mut out = std::io::stdout().lock();
    let mut written = Ok(());
    let done = engine.generate(&[ids], &request, &mut |event| {
        if let (Some(piece), Ok(())) = (stream.push(event.token), &written) {
            written = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
        }
    })?;
    written?;
    let done = done
        .into_iter()
        .next()
        .ok_or(Failure::Request("there was no prompt".into()))?;
    if done.finish == Finish::EmptyPrompt {
        return Err(EngineError::EmptyPrompt.into());
    }
    writeln!(out, "{}\n", stream.finish())?;
    Ok(write_cost(&mut out, &engine, &done)?)
}

fn write_cost(out: &mut impl Write, engine: &kvlab_engine::Engine, done: &Generation) -> std::io::Result<()> {
    let spec = engine.spec();
    let usage = done.usage;
    writeln!(
        out,
        "cache          {} on {}",
        spec.variant,
        engine.device().description
    )?;
    if let kvlab_core::Exactness::Lossy(reasons) = &spec.exactness {
        writeln!(out, "lossy          {}", reasons.join("; "))?;
    }
    writeln!(
        out,
        "prompt         {} tokens, {} of them cached",
        done.prompt_tokens, done.cached_tokens
    )?;
    let why = match done.finish {
        Finish::Stop(token) => format!("ended by token {token}"),
        Finish::Length | Finish::EmptyPrompt => "as many as asked for".to_owned(),
    };
    writeln!(out, "new            {} tokens, {why}", done.tokens.len())?;
    if let Some(ttft) = done.ttft {
        writeln!(out, "TTFT           {}", ms(ttft))?;
    }
    if let Some(tpot) = done.tpot() {
        let gaps: Vec<f64> = done.gaps.iter().map(|gap| gap.as_secs_f64() * 1e3).collect();
        let [p50, p95] = [50.0, 95.0].map(|p| percentile(&gaps, p).unwrap_or(f64::NAN));
        writeln!(out, "ITL            p50 {p50:.2} ms, p95 {p95:.2} ms")?;
        writeln!(out, "decode         {:.1} tokens/s", 1.0 / tpot.as_secs_f64())?;
    }
    writeln!(
        out,
        "cache bytes    {} used, {} a token; {} reserved, {} peak",
        usage.used(),
        spec.per_token(),
        usage.reserved,
        usage.peak
    )?;
    writeln!(out, "kernels        {}", done.kernels.join(", "))
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
