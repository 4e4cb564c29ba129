//! The plan as CSV: a line for each variant, number format and layer, and one for all layers together.

use crate::{Cache, Cell, Outcome, Plan};

/// Names of the columns, with units.
const COLUMNS: [&str; 15] = [
    "model",
    "variant",
    "own",
    "codec",
    "layer",
    "bytes_per_token",
    "context_tokens",
    "bytes_at_context",
    "largest_context_tokens",
    "requests",
    "ttft_ms",
    "itl_ms",
    "tokens_per_second",
    "outcome",
    "reason",
];

/// A line for each variant and number format (`layer` is `all`), followed by one for each layer, whose bytes a token add up to the
/// first. What is refused is a line too.
pub fn csv(plan: &Plan) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Nothing can go wrong in memory, with lines of one length.
    let mut write = |line: &[String]| _ = writer.write_record(line);
    write(&COLUMNS.map(str::to_owned));
    for cache in &plan.caches {
        for cell in &cache.cells {
            write(&total(plan, cache, cell));
            let layers = cell.facts().map_or(&[][..], |facts| &facts.bytes_per_token_by_layer);
            for (layer, bytes) in layers.iter().enumerate() {
                let mut line = lead(plan, cache, cell, layer.to_string());
                line.push(bytes.0.to_string());
                line.resize(COLUMNS.len(), String::new());
                write(&line);
            }
        }
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

fn lead(plan: &Plan, cache: &Cache, cell: &Cell, layer: String) -> Vec<String> {
    vec![
        plan.model.name.clone(),
        cache.variant.clone(),
        cache.own.to_string(),
        cell.codec.clone(),
        layer,
    ]
}

fn total(plan: &Plan, cache: &Cache, cell: &Cell) -> Vec<String> {
    let mut line = lead(plan, cache, cell, "all".into());
    let facts = match &cell.outcome {
        Outcome::Planned(facts) => facts,
        Outcome::Refused(reason) => {
            line.resize(COLUMNS.len() - 2, String::new());
            line.extend(["refused".to_owned(), reason.clone()]);
            return line;
        }
    };
    let float = |x: Option<f64>| x.map_or_else(String::new, |x| x.to_string());
    let reasons: Vec<_> = cache.lossy.iter().chain(&facts.lossy).map(String::as_str).collect();
    line.extend([
        facts.bytes_per_token.0.to_string(),
        plan.context_tokens.to_string(),
        facts.bytes_at_context.0.to_string(),
        facts
            .fit
            .map_or_else(String::new, |fit| fit.largest_context_tokens.to_string()),
        facts.fit.map_or_else(String::new, |fit| fit.requests.to_string()),
        float(facts.times.and_then(|times| times.ttft_ms)),
        float(facts.times.map(|times| times.itl_ms)),
        float(facts.times.and_then(|times| times.most_tokens_per_second)),
        if reasons.is_empty() { "exact" } else { "lossy" }.to_owned(),
        reasons.join("; "),
    ]);
    line
}
