//! The columns of the table that terminal and report share.

use super::{number, signs};
use crate::{Quality, Row, Speed};
use std::collections::BTreeSet;

/// A column: its header (lines), its side, and its text for each row.
pub(super) struct Column {
    pub(super) header: String,
    pub(super) right: bool,
    pub(super) cells: Vec<String>,
}

/// What stands where nothing was measured.
pub(super) const NOTHING: &str = "-";

impl Column {
    fn new(header: impl Into<String>, right: bool, rows: &[Row], text: impl Fn(&Row) -> Option<String>) -> Self {
        let cells = rows.iter().map(|row| text(row).filter(|text| !text.is_empty()));
        let cells = cells.map(|text| text.unwrap_or_else(|| NOTHING.to_owned())).collect();
        Self {
            header: header.into(),
            right,
            cells,
        }
    }

    fn is_empty(&self) -> bool {
        self.cells.iter().all(|text| text == NOTHING)
    }
}

/// The columns; those with nothing in them are left out.
pub(super) fn columns(rows: &[Row]) -> Vec<Column> {
    let mut columns = vec![Column::new("cell", false, rows, |row| Some(named(row)))];
    let models: BTreeSet<&str> = rows.iter().map(|row| row.model.as_str()).collect();
    if models.len() > 1 {
        columns.push(Column::new("model", false, rows, |row| Some(row.model.clone())));
    }
    let text = |header: &str, text: fn(&Row) -> Option<String>| Column::new(header, false, rows, text);
    let number = |header: &str, text: fn(&Row) -> Option<String>| Column::new(header, true, rows, text);
    columns.push(text("cache", |row| Some(cache(row))));
    columns.push(text("K/V", |row| Some(format(row))));
    columns.push(number("bytes/\ntoken", |row| {
        Some(row.memory?.per_token_predicted.to_string())
    }));
    columns.push(number("used\nat end", |row| {
        Some(number::bytes(row.memory?.used_measured))
    }));
    columns.extend(at_each_prompt("TTFT\nms\n", rows, |speed| {
        Some(number::short(speed.ttft_ms.median))
    }));
    columns.extend(at_each_prompt("TTFT ms\ncached\n", rows, |speed| {
        Some(number::short(speed.cached?.ttft_ms.median))
    }));
    columns.extend(at_each_prompt("cached\ntokens\n", rows, |speed| {
        Some(speed.cached?.tokens.to_string())
    }));
    columns.extend(at_each_prompt("ITL\np50 ms\n", rows, |speed| {
        Some(number::short(speed.gaps?.p50))
    }));
    columns.push(number("tok/s", |row| {
        let longest = row.speed.iter().max_by_key(|speed| speed.prompt_tokens)?;
        Some(number::short(longest.decode_tokens_per_s?))
    }));
    let quality = |header: &str, text: fn(&Quality) -> String| {
        Column::new(header, true, rows, |row| row.quality.as_ref().map(text))
    };
    columns.push(quality("ppl", |q| number::short(q.perplexity)));
    columns.push(quality("ppl\nΔ %", |q| number::change(q.perplexity_change_percent())));
    columns.push(quality("KL\nnats", |q| number::small(q.kl_mean)));
    columns.push(quality("top-1\n%", |q| number::share(q.top1_percent)));
    columns.push(quality("first\ndiff", first_divergence));
    columns.retain(|column| !column.is_empty());
    columns
}

/// One column for each length of prompt.
fn at_each_prompt(header: &str, rows: &[Row], text: fn(&Speed) -> Option<String>) -> Vec<Column> {
    let mut prompts: Vec<usize> = Vec::new();
    for speed in rows.iter().flat_map(|row| &row.speed) {
        if !prompts.contains(&speed.prompt_tokens) {
            prompts.push(speed.prompt_tokens);
        }
    }
    let column = |prompt: usize| {
        let speed = move |row: &Row| text(row.speed.iter().find(|speed| speed.prompt_tokens == prompt)?);
        Column::new(format!("{header}@{prompt}"), true, rows, speed)
    };
    prompts.into_iter().map(column).collect()
}

/// The name, with its marks before it.
pub(super) fn named(row: &Row) -> String {
    match signs(row) {
        signs if signs.is_empty() => row.cell.clone(),
        signs => format!("{signs} {}", row.cell),
    }
}

/// The variant, and its layout where that says more: slots of a sequence in one piece are the rule.
fn cache(row: &Row) -> String {
    match &row.variant {
        Some(variant) if *variant == row.layout || row.layout == "contiguous" => variant.clone(),
        Some(variant) => format!("{variant} {}", row.layout),
        None => String::new(),
    }
}

fn format(row: &Row) -> String {
    match row.value_format.as_str() {
        "" => row.key_format.clone(),
        value if value == row.key_format => value.to_owned(),
        value => format!("{}/{value}", row.key_format),
    }
}

/// The step at which the greedy text leaves the oracle's, or `none` within so many.
pub(super) fn first_divergence(quality: &Quality) -> String {
    match (quality.first_divergence, quality.greedy_tokens) {
        (Some(step), _) => step.to_string(),
        (None, 0) => String::new(),
        (None, _) => "none".to_owned(),
    }
}
