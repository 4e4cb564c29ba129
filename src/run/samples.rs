//! Several samples of one prompt.

use super::{Args, chat_tokens, cost, message, text_tokens};
use crate::failure::Outcome;
use kvlab_engine::text::Message;
use kvlab_engine::{Engine, Generation, Request, Samples};
use std::io::{Result, Write};

pub fn run(engine: &mut Engine, args: &Args, n: usize, request: &Request) -> Outcome {
    let prompt = args.prompts.first().map_or("", String::as_str);
    let tokens = match args.chat {
        true => {
            let system = args.system.as_deref().map(|text| message("system", text));
            let messages: Vec<Message> = system.into_iter().chain([message("user", prompt)]).collect();
            chat_tokens(engine, &messages)?
        }
        false => text_tokens(engine, &[], prompt)?,
    };
    let samples = engine.samples(&tokens, n, request, &mut |_| {})?;
    let tokenizer = engine.tokenizer()?;
    let mut out = std::io::stdout().lock();
    for (i, sample) in samples.generations.iter().enumerate() {
        let seed = request.sampling.seed.wrapping_add(i as u64);
        writeln!(out, "sample {}, seed {seed}{}:", i + 1, likelihood(sample))?;
        let mut stream = tokenizer.stream_after(&tokens);
        let text: String = sample.tokens.iter().filter_map(|&id| stream.push(id)).collect();
        writeln!(out, "{text}{}\n", stream.finish())?;
    }
    Ok(write_cost(&mut out, engine, &samples)?)
}

fn likelihood(sample: &Generation) -> String {
    let mean = sample.mean_log_prob();
    mean.map_or(String::new(), |mean| format!(", mean log probability {mean:.3}"))
}

fn write_cost(out: &mut impl Write, engine: &Engine, samples: &Samples) -> Result<()> {
    let Samples {
        generations,
        usage,
        apart,
    } = samples;
    let best = generations
        .iter()
        .enumerate()
        .filter_map(|(i, g)| Some((i, g.mean_log_prob()?)));
    if let Some((i, _)) = best.max_by(|a, b| a.1.total_cmp(&b.1)) {
        writeln!(out, "best           sample {}, by its mean log probability", i + 1)?;
    }
    cost::cache(out, engine)?;
    let Some(first) = generations.first() else {
        return Ok(());
    };
    cost::prompt(out, first)?;
    let new: usize = generations.iter().map(|g| g.tokens.len()).sum();
    writeln!(out, "new            {new} tokens, in {} samples", generations.len())?;
    if let Some(ttft) = first.ttft {
        writeln!(out, "TTFT           {}", cost::ms(ttft))?;
    }
    let longest = generations.iter().map(Generation::total).max().unwrap_or_default();
    let decode = longest.saturating_sub(first.ttft.unwrap_or_default()).as_secs_f64();
    if decode > 0.0 {
        let after_first = new.saturating_sub(generations.len());
        writeln!(out, "decode         {:.1} tokens/s", after_first as f64 / decode)?;
    }
    let preemptions: usize = generations.iter().map(|g| g.preemptions).sum();
    if preemptions > 0 {
        writeln!(out, "preempted      {preemptions} times, for lack of room")?;
    }
    writeln!(
        out,
        "cache bytes    {} used by {} samples together, {apart} if they shared nothing; {} reserved, {} peak",
        usage.used(),
        generations.len(),
        usage.reserved,
        usage.peak
    )?;
    cost::kernels(out, first)
}
