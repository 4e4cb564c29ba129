//! What fits into a memory.

use super::super::blocks::Block;
use super::caches;
use crate::{Facts, Memory, Plan};
use kvlab_core::Bytes;

pub(super) fn memory(plan: &Plan, memory: &Memory, refusals: &mut Vec<String>) -> Vec<Block> {
    let mut blocks = verdict(plan, memory);
    let context = plan.context_tokens;
    if memory.rows.is_some() {
        let each = if plan.requests == 1 {
            "one request".to_owned()
        } else {
            format!("each of {} requests", plan.requests)
        };
        let title = format!("Largest context of {each}, in tokens (= is all that the model takes)");
        blocks.push(Block::Gap);
        blocks.push(Block::Grid(caches(plan, title, &largest_context, refusals)));
        blocks.push(Block::Gap);
        let title = format!("Requests of {context} tokens at the same time");
        let cell = |facts: &Facts| facts.fit.map_or_else(String::new, |fit| fit.requests.to_string());
        blocks.push(Block::Grid(caches(plan, title, &cell, refusals)));
    }
    blocks
}

fn verdict(plan: &Plan, memory: &Memory) -> Vec<Block> {
    let counted = match plan.weights.counted {
        Some(precision) => precision.to_string(),
        None => "as stored".into(),
    };
    let reserve = match memory.reserve.0 {
        0 => String::new(),
        _ => format!(" - {} reserve", memory.reserve),
    };
    let rows = match memory.rows {
        Some(rows) => format!("= {rows} for rows"),
        None => "leaves nothing for rows".into(),
    };
    let sum = format!(
        "{} - {} weights ({counted}){reserve} {rows}",
        memory.budget, memory.weights
    );
    let asked = match plan.requests {
        1 => format!("a request of {} tokens", plan.context_tokens),
        n => format!("{n} requests of {} tokens", plan.context_tokens),
    };
    let cache = format!("{} {}", plan.chosen.variant, plan.chosen.codec);
    let mut blocks = vec![Block::Fact("memory", sum)];
    if memory.fits {
        let left = Bytes(memory.budget.0.saturating_sub(memory.needed().0));
        let text = format!("{asked} in {cache}: {} of rows, {left} left", memory.wanted);
        blocks.push(Block::Fact("FITS", text));
        return blocks;
    }
    let missing = Bytes(memory.needed().0.saturating_sub(memory.budget.0));
    let text = format!(
        "{asked} in {cache}: {} of rows, {missing} too much. One of these does:",
        memory.wanted
    );
    blocks.push(Block::Fact("DOES NOT", format!("fit: {text}")));
    blocks.extend(memory.ways_out.iter().cloned().map(Block::Item));
    blocks
}

fn largest_context(facts: &Facts) -> String {
    let Some(fit) = facts.fit else {
        return String::new();
    };
    let mark = if fit.limited_by_model { "=" } else { "" };
    format!("{mark}{}", fit.largest_context_tokens)
}
