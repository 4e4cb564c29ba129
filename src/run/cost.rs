//! What a run cost, in lines.

use kvlab_engine::{Engine, Finish, Generation};
use kvlab_lab::percentile;
use std::io::{Result, Write};
use std::time::Duration;

/// The whole block for one generation.
pub fn write(out: &mut impl Write, engine: &Engine, done: &Generation) -> Result<()> {
    cache(out, engine)?;
    prompt(out, done)?;
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
    let usage = done.usage;
    writeln!(
        out,
        "cache bytes    {} used, {} a token; {} reserved, {} peak",
        usage.used(),
        engine.spec().per_token(),
        usage.reserved,
        usage.peak
    )?;
    kernels(out, done)
}

/// Which cache, on what.
pub fn cache(out: &mut impl Write, engine: &Engine) -> Result<()> {
    let spec = engine.spec();
    let device = &engine.device().description;
    writeln!(out, "cache          {} on {device}", spec.variant)?;
    match &spec.exactness {
        kvlab_core::Exactness::Lossy(reasons) => writeln!(out, "lossy          {}", reasons.join("; ")),
        kvlab_core::Exactness::Exact => Ok(()),
    }
}

/// How much of the prompt was stored.
pub fn prompt(out: &mut impl Write, done: &Generation) -> Result<()> {
    let (all, cached) = (done.prompt_tokens, done.cached_tokens);
    writeln!(out, "prompt         {all} tokens, {cached} of them cached")
}

/// What computed the attention.
pub fn kernels(out: &mut impl Write, done: &Generation) -> Result<()> {
    writeln!(out, "kernels        {}", done.kernels.join(", "))
}

/// One turn of a conversation in a line.
pub fn turn(out: &mut impl Write, done: &Generation) -> Result<()> {
    let ttft = done.ttft.map_or(String::new(), |ttft| format!(", TTFT {}", ms(ttft)));
    let (prompt, cached, new) = (done.prompt_tokens, done.cached_tokens, done.tokens.len());
    writeln!(out, "[{prompt} prompt tokens, {cached} cached{ttft}, {new} new]\n")
}

/// Milliseconds.
pub fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
