//! Times at best.

use super::super::blocks::Block;
use super::super::number::{short, time};
use super::caches;
use crate::{Cell, Device, Facts, Plan};

pub(super) fn times(plan: &Plan, device: &Device, refusals: &mut Vec<String>) -> Vec<Block> {
    let rate = match device.rate(plan.weights.multiplied()) {
        Some((rate, format)) => format!("{} TFLOP/s in {format}", short(rate / 1e12)),
        None => "FLOP/s not published, so no TTFT".into(),
    };
    let facts = format!(
        "{}: {rate}, {} GB/s ({})",
        device.name,
        short(device.bandwidth_gb_s),
        device.source
    );
    let what = "a roofline: the longer of computing and reading, each at full speed. Real systems take longer";
    let mut blocks = vec![Block::Fact("device", facts), Block::Fact("times", what.into())];
    let context = plan.context_tokens;
    if let Some((times, ttft)) = plan
        .chosen()
        .and_then(|facts| facts.times)
        .and_then(|t| Some((t, t.ttft_ms?)))
    {
        let text = format!(
            "{} for a prompt of {context} tokens ({} {}), set by {}",
            time(ttft),
            plan.chosen.variant,
            plan.chosen.codec,
            by(times.ttft_by_memory)
        );
        blocks.push(Block::Fact("TTFT", text));
    }
    let each = match plan.requests {
        1 => "one request".to_owned(),
        n => format!("{n} requests"),
    };
    let computing = |facts: &Facts| facts.times.is_some_and(|times| !times.itl_by_memory);
    let cells = plan.caches.iter().flat_map(|cache| &cache.cells);
    let note = match cells.filter_map(Cell::facts).any(computing) {
        true => " (* set by computing, else by memory)",
        false => ", set by memory",
    };
    blocks.push(Block::Gap);
    let itl = |facts: &Facts| {
        let mark = if computing(facts) { "*" } else { "" };
        facts.times.map_or_else(String::new, |times| time(times.itl_ms) + mark)
    };
    let title = format!("ITL behind {context} tokens, {each}{note}");
    blocks.push(Block::Grid(caches(plan, title, &itl, refusals)));
    if device.dense_tflops.is_some() && plan.memory.as_ref().is_some_and(|memory| memory.rows.is_some()) {
        let most = |facts: &Facts| {
            facts
                .times
                .and_then(|times| times.most_tokens_per_second)
                .map_or("-".to_owned(), short)
        };
        let title = format!("Tokens a second with as many requests of {context} tokens as fit");
        blocks.push(Block::Gap);
        blocks.push(Block::Grid(caches(plan, title, &most, refusals)));
    }
    blocks
}

fn by(memory: bool) -> &'static str {
    if memory { "memory" } else { "computing" }
}
