//! The sections of a report: model, weights and bytes here, memory, times and prices in files of their own.

mod memory;
mod price;
mod times;

use super::blocks::Block;
use super::grid::{Grid, LOSSY};
use super::number::{binary, count, decimal, short};
use crate::{Cell, Facts, Outcome, Plan};
use kvlab_core::Bytes;

pub(super) fn sections(plan: &Plan) -> Vec<Block> {
    let mut blocks = model(plan);
    blocks.push(Block::Gap);
    blocks.push(Block::Grid(weights(plan)));
    let mut refusals = Vec::new();
    let (context, layers) = (plan.context_tokens, plan.model.layers);
    let title = format!("Cache: bytes a token in all {layers} layers");
    let cell = |facts: &Facts| binary(facts.bytes_per_token);
    blocks.extend([Block::Gap, Block::Grid(everything(plan, title, &cell, &mut refusals))]);
    let title = format!("Cache: one request of {context} tokens");
    let cell = |facts: &Facts| binary(facts.bytes_at_context);
    blocks.extend([Block::Gap, Block::Grid(caches(plan, title, &cell, &mut refusals))]);
    blocks.extend(marks(plan));
    blocks.extend(by_layer(plan));
    blocks.extend(against(plan));
    if let Some(memory) = &plan.memory {
        blocks.push(Block::Gap);
        blocks.extend(memory::memory(plan, memory, &mut refusals));
    }
    if let Some(device) = &plan.device {
        blocks.push(Block::Gap);
        blocks.extend(times::times(plan, device, &mut refusals));
    }
    if let Some(cost) = &plan.cost {
        blocks.push(Block::Gap);
        blocks.extend(price::conversation(plan, cost));
    }
    if !refusals.is_empty() {
        blocks.push(Block::Gap);
        let refused = |(i, reason): (usize, &String)| Block::Fact("refused", format!("({}) {reason}", i + 1));
        blocks.extend(refusals.iter().enumerate().map(refused));
    }
    blocks
}

fn model(plan: &Plan) -> Vec<Block> {
    let (model, p) = (&plan.model, &plan.model.parameters);
    let active = match p.active < p.total {
        true => format!(" ({} for each token)", count(p.active)),
        false => String::new(),
    };
    let facts = format!(
        "{}: {}, {} parameters{active}, {} layers, at most {} positions",
        model.name,
        model.family,
        count(p.total),
        model.layers,
        model.max_positions
    );
    let notes = plan.notes.iter().map(|note| Block::Fact("note", note.clone()));
    std::iter::once(Block::Fact("model", facts)).chain(notes).collect()
}

fn weights(plan: &Plan) -> Grid {
    let weights = &plan.weights;
    let mark = |counted: bool| {
        let text = if counted && (plan.memory.is_some() || plan.device.is_some()) {
            "<- counted below"
        } else {
            ""
        };
        text.to_owned()
    };
    let row = |bytes: Bytes, counted| vec![decimal(bytes.0), binary(bytes), mark(counted)];
    let nominal = weights.precisions.iter().map(|(precision, bytes)| {
        let counted = weights.counted == Some(*precision);
        (precision.to_string(), row(*bytes, counted))
    });
    let stored = weights.stored.as_ref().map(|stored| {
        let formats: Vec<_> = stored
            .formats
            .iter()
            .take(3)
            .map(|(format, _)| format.as_str())
            .collect();
        let bits = 8.0 * stored.bytes.0 as f64 / stored.values as f64;
        let name = format!("as stored ({}: {} bits)", formats.join(", "), short(bits));
        (name, row(stored.bytes, weights.counted.is_none()))
    });
    Grid {
        title: "Weights (without scales, but for those stored)".into(),
        columns: ["decimal", "binary", ""].map(str::to_owned).to_vec(),
        rows: nominal.chain(stored).collect(),
    }
}

/// Variants down, number formats across; without those that are refused in every format.
fn caches(plan: &Plan, title: String, cell: &dyn Fn(&Facts) -> String, refusals: &mut Vec<String>) -> Grid {
    let mut grid = everything(plan, title, cell, refusals);
    let mut planned = plan
        .caches
        .iter()
        .map(|cache| cache.cells.iter().any(|cell| cell.facts().is_some()));
    grid.rows.retain(|_| planned.next().unwrap_or(true));
    grid.merged("every format")
}

/// The same with all variants.
fn everything(plan: &Plan, title: String, cell: &dyn Fn(&Facts) -> String, refusals: &mut Vec<String>) -> Grid {
    let mut text = |one: &Cell| match &one.outcome {
        Outcome::Planned(facts) => cell(facts),
        Outcome::Refused(reason) => {
            let known = refusals.iter().position(|r| r == reason);
            let place = known.unwrap_or_else(|| {
                refusals.push(reason.clone());
                refusals.len() - 1
            });
            format!("({})", place + 1)
        }
    };
    let rows = plan.caches.iter().map(|cache| {
        let own = if cache.own { " (own)" } else { "" };
        let lossy = if cache.lossy.is_empty() { "" } else { LOSSY };
        let cells = cache.cells.iter().map(&mut text).collect();
        (format!("{}{own}{lossy}", cache.variant), cells)
    });
    let grid = Grid {
        title,
        rows: rows.collect(),
        columns: columns(plan),
    };
    grid.merged("every format")
}

fn columns(plan: &Plan) -> Vec<String> {
    let cells = plan.caches.first().map_or(&[][..], |cache| &cache.cells);
    let lossy = |i: usize| {
        let facts = plan.caches.iter().filter_map(|cache| cache.cells.get(i)?.facts());
        facts.into_iter().any(|facts| !facts.lossy.is_empty())
    };
    let name = |(i, cell): (usize, &Cell)| format!("{}{}", cell.codec, if lossy(i) { LOSSY } else { "" });
    cells.iter().enumerate().map(name).collect()
}

/// What the marks mean.
fn marks(plan: &Plan) -> Vec<Block> {
    let variants = plan.caches.iter().filter(|cache| !cache.lossy.is_empty());
    let variants = variants.map(|cache| format!("{}: {}", cache.variant, cache.lossy.join("; ")));
    let own = plan.caches.first().into_iter().flat_map(|cache| &cache.cells);
    let formats: Vec<_> = own
        .filter(|cell| cell.facts().is_some_and(|facts| !facts.lossy.is_empty()))
        .map(|cell| cell.codec.as_str())
        .collect();
    let formats =
        (!formats.is_empty()).then(|| format!("{}: fewer than 16 bits a number, scales counted", formats.join(", ")));
    let mut lines: Vec<_> = variants.chain(formats).map(Block::Item).collect();
    if !lines.is_empty() {
        let what = "the output is no longer that of the model's own attention, up to rounding of 16 bits";
        lines.insert(0, Block::Fact("~ lossy", what.into()));
        lines.insert(0, Block::Gap);
    }
    lines
}

/// Layers that differ, in the chosen format; one line where they do not.
fn by_layer(plan: &Plan) -> Vec<Block> {
    let mut blocks = vec![Block::Gap];
    let codec = &plan.chosen.codec;
    let kinds = |cell: &Cell| cell.facts().map_or_else(Vec::new, |facts| facts.kinds.clone());
    let chosen = |cache: &crate::Cache| cache.cells.iter().find(|cell| cell.codec == *codec).map(kinds);
    let own = plan.caches.first().and_then(&chosen).unwrap_or_default();
    if let [(layers, what, bytes)] = own.as_slice() {
        let text = format!("{layers} alike, {what}: {bytes} a token each in {codec}");
        blocks.push(Block::Fact("layers", text));
        return blocks;
    }
    let rows = plan.caches.iter().flat_map(|cache| {
        let kinds = chosen(cache).unwrap_or_default();
        kinds.into_iter().map(|(layers, what, bytes)| {
            let cells = vec![layers.to_string(), what, bytes.to_string()];
            (cache.variant.clone(), cells)
        })
    });
    blocks.push(Block::Grid(Grid {
        title: format!("By layer, in {codec}: bytes a token, until a window is full"),
        columns: ["layers", "sees or keeps", "each"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }));
    blocks
}

fn against(plan: &Plan) -> Vec<Block> {
    let Some(against) = &plan.against else {
        return Vec::new();
    };
    let cells = against.percent_less.iter().map(|(_, less)| format!("{less:.1} %"));
    let grid = Grid {
        title: format!(
            "Against {} in {} ({} a token): bytes a token less",
            against.name, against.codec, against.bytes_per_token
        ),
        columns: against.percent_less.iter().map(|(codec, _)| codec.clone()).collect(),
        rows: vec![(
            format!("{} (own)", plan.caches.first().map_or("", |own| &own.variant)),
            cells.collect(),
        )],
    };
    vec![Block::Gap, Block::Grid(grid.merged("every format"))]
}
