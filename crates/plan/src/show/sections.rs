//! The sections of a report: model, weights, bytes, memory, times, prices.

use super::blocks::Block;
use super::grid::Grid;
use super::number::{count, money, short, time};
use crate::{Cell, Cost, Device, Facts, Memory, Outcome, Plan, Precision};
use kvlab_core::Bytes;

/// Behind the name of what changes the output of the model.
const LOSSY: &str = " ~";

pub(super) fn sections(plan: &Plan) -> Vec<Block> {
    let mut blocks = model(plan);
    blocks.push(Block::Gap);
    blocks.push(Block::Grid(weights(plan)));
    let mut refusals = Vec::new();
    let mut grid = |title: String, cell: &dyn Fn(&Facts) -> String| {
        blocks.push(Block::Gap);
        blocks.push(Block::Grid(caches(plan, title, cell, &mut refusals)));
    };
    let (context, layers) = (plan.context_tokens, plan.model.layers);
    grid(format!("Cache: bytes a token in all {layers} layers"), &|facts| {
        facts.bytes_per_token.to_string()
    });
    grid(format!("Cache: one request of {context} tokens"), &|facts| {
        facts.bytes_at_context.to_string()
    });
    blocks.extend(marks(plan));
    blocks.extend(by_layer(plan));
    blocks.extend(against(plan));
    if let Some(memory) = &plan.memory {
        blocks.push(Block::Gap);
        blocks.extend(verdict(plan, memory));
        if memory.rows.is_some() {
            let each = if plan.requests == 1 {
                "one request".to_owned()
            } else {
                format!("each of {} requests", plan.requests)
            };
            let title = format!("Largest context of {each}, in tokens (= is all that the model takes)");
            blocks.push(Block::Gap);
            blocks.push(Block::Grid(caches(plan, title, &largest_context, &mut refusals)));
            blocks.push(Block::Gap);
            let title = format!("Requests of {context} tokens at the same time");
            let cell = |facts: &Facts| facts.fit.map_or_else(String::new, |fit| fit.requests.to_string());
            blocks.push(Block::Grid(caches(plan, title, &cell, &mut refusals)));
        }
    }
    if let Some(device) = &plan.device {
        blocks.push(Block::Gap);
        blocks.extend(times(plan, device, &mut refusals));
    }
    if let Some(cost) = &plan.cost {
        blocks.push(Block::Gap);
        blocks.extend(conversation(plan, cost));
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
        let text = if counted { "<- counted below" } else { "" };
        text.to_owned()
    };
    let row = |bytes: Bytes, counted| vec![short(bytes.0 as f64 / 1e9), short(gib(bytes)), mark(counted)];
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
        columns: ["GB", "GiB", ""].map(str::to_owned).to_vec(),
        rows: nominal.chain(stored).collect(),
    }
}

fn gib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / f64::from(1 << 30)
}

/// Variants down, number formats across.
fn caches(plan: &Plan, title: String, cell: &dyn Fn(&Facts) -> String, refusals: &mut Vec<String>) -> Grid {
    let mut text = |one: &Cell| match &one.outcome {
        Outcome::Planned(facts) => cell(facts),
        Outcome::Refused(reason) => {
            let known = refusals.iter().position(|r| r == reason);
            let place = known.unwrap_or_else(|| {
                refusals.push(reason.clone());
                refusals.len() - 1
            });
            format!("refused ({})", place + 1)
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
    grid.merged(0)
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
    vec![Block::Gap, Block::Grid(grid.merged(0))]
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

fn times(plan: &Plan, device: &Device, refusals: &mut Vec<String>) -> Vec<Block> {
    let precision = plan.weights.counted.unwrap_or(Precision::Fp16);
    let rate = match device.rate(precision) {
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
    if plan.memory.as_ref().is_some_and(|memory| memory.rows.is_some()) {
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

fn conversation(plan: &Plan, cost: &Cost) -> Vec<Block> {
    let (c, p) = (cost.conversation, &cost.prices);
    let talk = format!(
        "{} turns; system prompt {} tokens, question {}, answer {}; each turn sends all that went before",
        c.turns, c.system, c.user, c.reply
    );
    let m = p.per_million_tokens;
    let prices = format!(
        "{} ({}): {} {} input, {} cached read, {} cache write, {} output for a million tokens ({})",
        p.name, p.date, p.currency, m.input, m.cached_read, m.cache_write, m.output, p.source
    );
    let row = |name: &str, tokens: crate::Tokens, price: f64| {
        let parts = [tokens.input, tokens.cached_read, tokens.cache_write, tokens.output];
        let mut cells: Vec<_> = parts.iter().map(u64::to_string).collect();
        cells.push(money(price));
        (name.to_owned(), cells)
    };
    let grid = Grid {
        title: format!("Tokens, and {}", p.currency),
        columns: ["input", "cached read", "cache write", "output", &p.currency]
            .map(str::to_owned)
            .to_vec(),
        rows: vec![
            row("no prompt caching", cost.plain, cost.plain_price),
            row("prompt caching", cost.cached, cost.cached_price),
        ],
    };
    let change = match cost.plain_price > 0.0 {
        true => format!(
            "{:.1} % of the price without. ",
            100.0 * cost.cached_price / cost.plain_price
        ),
        false => String::new(),
    };
    let pays = match cost.reuses_that_pay {
        None => "a cache write never pays".to_owned(),
        Some(0) => "a cache write costs less than input: it always pays".to_owned(),
        Some(1) => "a cache write has paid when it is read once".to_owned(),
        Some(n) => format!("a cache write has paid when it is read {n} times"),
    };
    let mut blocks = vec![
        Block::Fact("talk", talk),
        Block::Fact("prices", prices),
        Block::Gap,
        Block::Grid(grid),
        Block::Gap,
        Block::Fact("caching", format!("{change}At these prices {pays}")),
    ];
    if let Some([without, with]) = plan.last_turn_ttft_ms {
        let text = format!(
            "{} in the last turn, {} with the prefix cached",
            time(without),
            time(with)
        );
        blocks.push(Block::Fact("TTFT", text));
    }
    blocks
}
