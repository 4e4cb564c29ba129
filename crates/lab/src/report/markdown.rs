//! `report.md`: what was run, on what, what came out, and how to run it again.

use super::columns::{Column, NOTHING, columns, first_divergence, named};
use super::{footnotes, number};
use crate::{Comparison, Quality, Row, Speed, Spread};
use kvlab_core::Bytes;

/// The report of a comparison.
pub(crate) fn markdown(comparison: &Comparison) -> String {
    let Comparison { experiment, rows, .. } = comparison;
    let mut out = format!("# {}\n\n", experiment.name);
    out += &what_was_run(comparison);
    out += "\n## Result\n\n";
    let columns = columns(rows);
    let header = columns.iter().map(|c| (c.header.replace('\n', " "), c.right));
    out += &table(header.collect(), rows.len(), |row| {
        columns.iter().map(|c: &Column| c.cells[row].clone()).collect()
    });
    out += "\n`@n`: after a prompt of n tokens. KL: mean of KL(oracle || cell). \
            First diff: the first step of a greedy text that differs from the oracle's.\n";
    for (mark, reasons) in footnotes(rows) {
        out += &format!("\n`{}` {}:\n\n", mark.sign(), mark.meaning());
        for (reason, cells) in reasons {
            out += &format!("- {}: {}\n", escape(&cells.join(", ")), escape(&reason));
        }
    }
    out += &notes(rows);
    out += &times(rows);
    out += &quality(rows);
    out += &memory(rows);
    out += &method(comparison);
    out
}

fn what_was_run(comparison: &Comparison) -> String {
    let Comparison {
        experiment,
        environment,
        ..
    } = comparison;
    let workload = &experiment.workload;
    let mut lines = Vec::new();
    lines.push(format!(
        "{} cells on `{}`.",
        experiment.cells().len(),
        workload.text.display()
    ));
    if experiment.measure.quality {
        let chunk = match workload.chunk {
            0 => "each in one step".to_owned(),
            1 => "token by token".to_owned(),
            n => format!("in chunks of {n}"),
        };
        lines.push(format!(
            "Quality: {} windows of {} tokens, {chunk}.",
            workload.windows, workload.window
        ));
    }
    if experiment.measure.speed {
        let list = |sizes: &[usize]| sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let (prompts, batch) = (list(&workload.prompts), list(&workload.batch));
        let (new, repeats) = (workload.new_tokens, experiment.repeats);
        lines.push(format!(
            "Speed: prompts of {prompts} tokens, {new} tokens generated after each, batch {batch}, {repeats} repeats."
        ));
    }
    let mut out = lines.join(" ") + "\n\n";
    let commit = environment
        .commit
        .as_ref()
        .map_or(String::new(), |commit| format!(", commit {commit}"));
    let mut item = |name: &str, value: String| out += &format!("- {name}: {value}\n");
    item("date", environment.date.clone());
    item(
        "kvlab",
        format!("{}{commit}, {} build", environment.kvlab, environment.build),
    );
    for (name, what) in &environment.devices {
        item(&format!("device `{name}`"), what.clone());
    }
    let threads = environment
        .threads
        .map_or(format!("{} (all cores)", environment.cores), |n| n.to_string());
    item("threads", threads);
    item("system", environment.system.clone());
    item("seed", environment.seed.to_string());
    if environment.build == "debug" {
        out += "\n**This is a debug build: its times say little.** Build with `cargo build --release`.\n";
    }
    out
}

/// The notes of the experiment file, each with the cells that share it.
fn notes(rows: &[Row]) -> String {
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        let Some(note) = row.note.as_deref() else { continue };
        match notes.iter_mut().find(|(known, _)| *known == note) {
            Some((_, cells)) => cells.push(&row.cell),
            None => notes.push((note, vec![&row.cell])),
        }
    }
    let items = notes
        .iter()
        .map(|(note, cells)| format!("- {}: {}\n", escape(&cells.join(", ")), note.trim()));
    let items: String = items.collect();
    if items.is_empty() {
        items
    } else {
        format!("\n## Notes\n\n{items}")
    }
}

fn times(rows: &[Row]) -> String {
    let lines: Vec<(&Row, &Speed)> = rows
        .iter()
        .flat_map(|row| row.speed.iter().map(move |s| (row, s)))
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let header = [
        "prompt tokens",
        "TTFT ms, median (min to max)",
        "prefill tok/s",
        "ITL ms, p50 (95 % interval)",
        "p95",
        "p99",
        "TPOT ms, mean",
        "decode tok/s",
    ];
    let any_cached = lines.iter().any(|(_, s)| s.cached.is_some());
    let cached_header = ["TTFT cached ms, median (min to max)", "cached tokens"];
    let header: Vec<&str> = header
        .into_iter()
        .chain(cached_header.into_iter().filter(|_| any_cached))
        .collect();
    let fields = |i: usize| {
        let (row, s) = lines[i];
        let gap = |text: fn(&crate::Gaps) -> String| s.gaps.as_ref().map_or(NOTHING.to_owned(), text);
        let spread = |spread: Spread| {
            let [median, min, max] = [spread.median, spread.min, spread.max].map(number::short);
            format!("{median} ({min} to {max})")
        };
        let mut fields = vec![
            named(row),
            s.prompt_tokens.to_string(),
            spread(s.ttft_ms),
            number::short(s.prefill_tokens_per_s),
            gap(|g| {
                let [p50, low, high] = [g.p50, g.p50_interval.0, g.p50_interval.1].map(number::short);
                format!("{p50} ({low} to {high})")
            }),
            gap(|g| number::short(g.p95)),
            gap(|g| number::short(g.p99)),
            gap(|g| number::short(g.mean)),
            s.decode_tokens_per_s.map_or(NOTHING.to_owned(), number::short),
        ];
        if any_cached {
            let nothing = || NOTHING.to_owned();
            fields.push(s.cached.map_or_else(nothing, |cached| spread(cached.ttft_ms)));
            fields.push(s.cached.map_or_else(nothing, |cached| cached.tokens.to_string()));
        }
        fields
    };
    format!("\n## Times\n\n{}", table(with_cell(&header), lines.len(), fields))
}

fn quality(rows: &[Row]) -> String {
    let lines: Vec<(&Row, &Quality)> = rows
        .iter()
        .filter_map(|row| Some((row, row.quality.as_ref()?)))
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let header = [
        "ppl",
        "oracle's ppl",
        "change %",
        "nll difference, nats (standard error)",
        "KL mean",
        "KL p99",
        "KL max",
        "top-1 %",
        "max logit difference",
        "first diff",
    ];
    let fields = |i: usize| {
        let (row, q) = lines[i];
        let se = q.nll_difference_se.map_or(NOTHING.to_owned(), number::small);
        vec![
            named(row),
            format!("{:.3}", q.perplexity),
            format!("{:.3}", q.oracle_perplexity),
            number::change(q.perplexity_change_percent()),
            format!("{} ({se})", number::small(q.nll_difference)),
            number::small(q.kl_mean),
            number::small(q.kl_p99),
            number::small(q.kl_max),
            number::share(q.top1_percent),
            number::small(q.max_logit_difference),
            first_divergence(q),
        ]
    };
    let tokens = lines.first().map_or(0, |(_, q)| q.tokens);
    let what = format!(
        "Against the oracle (the same weights, uncached, in f32, with the model's own attention), over {tokens} tokens."
    );
    format!(
        "\n## Quality\n\n{what}\n\n{}",
        table(with_cell(&header), lines.len(), fields)
    )
}

pub(super) fn memory(rows: &[Row]) -> String {
    let lines: Vec<_> = rows.iter().filter_map(|row| Some((row, row.memory?))).collect();
    if lines.is_empty() {
        return String::new();
    }
    let header = [
        "tokens held",
        "bytes/token predicted",
        "measured",
        "used bytes predicted",
        "measured",
        "reserved",
        "peak",
        "weights",
    ];
    let fields = |i: usize| {
        let (row, m) = lines[i];
        let tokens = if m.sequences == 1 {
            m.tokens.to_string()
        } else {
            format!("{} x {}", m.sequences, m.tokens)
        };
        vec![
            named(row),
            tokens,
            m.per_token_predicted.to_string(),
            m.per_token_measured
                .map_or("rows dropped".to_owned(), |bytes| format!("{bytes}")),
            m.used_predicted.to_string(),
            m.used_measured.to_string(),
            Bytes(m.reserved).to_string(),
            Bytes(m.peak).to_string(),
            row.weights_bytes
                .map_or(NOTHING.to_owned(), |bytes| Bytes(bytes).to_string()),
        ]
    };
    let mut text = format!("\n## Memory\n\n{}", table(with_cell(&header), lines.len(), fields));
    for (less, more) in exceeding(&lines) {
        text += &format!(
            "\n{less} reserves less than {more}, and held more at its peak: what a step keeps beside the storage and what a \
             kernel unpacks outweigh the bytes that are saved.\n"
        );
    }
    text
}

/// Cells that reserve less than another one of as many tokens, and yet held more: the format saved nothing.
fn exceeding<'a>(lines: &[(&'a Row, crate::Memory)]) -> Vec<(&'a str, &'a str)> {
    let mut pairs = Vec::new();
    for (a, less) in lines {
        let worse = lines.iter().find(|(_, more)| {
            let alike = (less.tokens, less.sequences) == (more.tokens, more.sequences);
            alike && less.reserved < more.reserved && less.peak > more.peak
        });
        pairs.extend(worse.map(|(b, _)| (a.cell.as_str(), b.cell.as_str())));
    }
    pairs
}

fn method(comparison: &Comparison) -> String {
    let mut out = String::from("\n## How it was measured\n\n");
    if comparison.experiment.measure.speed {
        out += "- Before each measurement a prompt of the same length and of other tokens was run once as a warm-up, which \
            is in no number: a whole run, and two tokens where there is no cache.\n";
        out += "- TTFT is that of a prompt of which nothing was stored. Where the cache finds stored prefixes, the same \
            prompt was then given again: TTFT cached, with the tokens that were found.\n";
        out += "- Each repeat went through all cells, in an order that the seed decides. TTFT is the median over \
            repeats; the gaps (ITL) of all repeats are taken together, and their interval is a bootstrap \
            of the median, as if gaps were independent.\n";
        out += "- A token counts when its logits are on the host: the device has finished.\n";
    }
    if comparison.experiment.measure.quality {
        out += "- The first token of a window is not scored, every other once. Softmax, likelihood and divergence \
            are computed in f64; of equal logits the lowest id counts.\n";
    }
    out += "- Raw samples are in `records.jsonl`, the resolved configs in `resolved.toml`, \
            all numbers in `results.csv`.\n";
    let command = comparison
        .command
        .as_deref()
        .unwrap_or("kvlab compare <the experiment file>");
    out += &format!("\nRun it again (`--fresh`: from the beginning):\n\n```sh\n{command}\n```\n");
    out
}

/// The header of a table about cells: all to the right of the name are numbers.
fn with_cell(header: &[&str]) -> Vec<(String, bool)> {
    let rest = header.iter().map(|name| ((*name).to_owned(), true));
    std::iter::once(("cell".to_owned(), false)).chain(rest).collect()
}

fn table(header: Vec<(String, bool)>, rows: usize, fields: impl Fn(usize) -> Vec<String>) -> String {
    let line = |fields: Vec<String>| format!("| {} |\n", fields.join(" | "));
    let sides = header
        .iter()
        .map(|(_, right)| if *right { "---:" } else { "---" }.to_owned())
        .collect();
    let names = header.into_iter().map(|(name, _)| escape(&name)).collect();
    let body = (0..rows).map(|row| line(fields(row).iter().map(|text| escape(text)).collect()));
    [line(names), line(sides)].into_iter().chain(body).collect()
}

/// A text that stays inside of its cell, and is not taken for markup.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(' '),
            '|' | '*' | '_' | '`' | '<' | '~' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}
