//! The tables of a report, as text: for Markdown, and for the page.

use super::columns::{NOTHING, columns, first_divergence, named};
use super::{csv_files, number, workload_tables};
use crate::{Gaps, LabError, Memory, Quality, Recall, Row, Speed, Spread};
use kvlab_core::Bytes;

/// A table.
pub(super) struct Table {
    /// A name for files and links: lower-case letters and `-`.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// A line about it; may be empty.
    pub(super) about: String,
    /// The header of each column, and whether it stands on the right: numbers do.
    pub(super) header: Vec<(String, bool)>,
    pub(super) lines: Vec<Vec<String>>,
    /// What there is to say below it.
    pub(super) remarks: Vec<String>,
    /// The same with every digit.
    pub(super) csv: String,
}

impl Table {
    /// A table about cells: the first column is the name, the others are numbers.
    pub(super) fn of_cells<T>(
        name: &'static str,
        title: &'static str,
        header: &[&str],
        all: &[Row],
        lines: Vec<(usize, T)>,
        text: impl Fn(&T) -> Vec<String>,
    ) -> Self {
        let names = std::iter::once("cell").chain(header.iter().copied()).enumerate();
        let texts = lines.iter().map(|(row, line)| {
            let mut texts = vec![named(&all[*row])];
            texts.extend(text(line));
            texts
        });
        Self {
            name,
            title,
            about: String::new(),
            header: names.map(|(i, name)| (name.to_owned(), i > 0)).collect(),
            lines: texts.collect(),
            remarks: Vec::new(),
            csv: String::new(),
        }
    }
}

/// Everything in one line a cell.
pub(super) fn result(rows: &[Row]) -> Result<Table, LabError> {
    let columns = columns(rows);
    Ok(Table {
        name: "result",
        title: "Result",
        about: String::new(),
        header: columns.iter().map(|c| (c.header.clone(), c.right)).collect(),
        lines: (0..rows.len())
            .map(|row| columns.iter().map(|c| c.cells[row].clone()).collect())
            .collect(),
        remarks: vec![
            "`@n`: after a prompt of n tokens. KL: mean of KL(oracle || cell). First diff: the first step of a greedy text that \
             differs from the oracle's."
                .to_owned(),
        ],
        csv: csv_files::results_csv(rows)?,
    })
}

/// The tables of single subjects, as far as there is something in them.
///
/// # Errors
/// [`LabError::Write`].
pub(super) fn details(rows: &[Row]) -> Result<Vec<Table>, LabError> {
    let tables = [
        times(rows)?,
        quality(rows)?,
        memory(rows)?,
        recall(rows)?,
        layer_errors(rows)?,
        workload_tables::work(rows)?,
        workload_tables::turns(rows)?,
        workload_tables::mix(rows)?,
    ];
    Ok(tables.into_iter().filter(|table| !table.lines.is_empty()).collect())
}

fn times(rows: &[Row]) -> Result<Table, LabError> {
    let speeds = rows
        .iter()
        .enumerate()
        .flat_map(|(i, row)| row.speed.iter().map(move |speed| (i, speed)));
    let lines: Vec<(usize, &Speed)> = speeds.collect();
    let any_cached = lines.iter().any(|(_, speed)| speed.cached.is_some());
    let mut header = vec![
        "prompt tokens",
        "TTFT ms, median (min to max)",
        "prefill tok/s",
        "ITL ms, p50 (95 % interval)",
        "p95",
        "p99",
        "TPOT ms, mean",
        "decode tok/s",
    ];
    if any_cached {
        header.extend(["TTFT cached ms, median (min to max)", "cached tokens"]);
    }
    let nothing = || NOTHING.to_owned();
    let table = Table::of_cells("times", "Times", &header, rows, lines, |speed| {
        let gap = |text: fn(&Gaps) -> String| speed.gaps.as_ref().map_or_else(nothing, text);
        let mut fields = vec![
            speed.prompt_tokens.to_string(),
            spread(speed.ttft_ms),
            number::short(speed.prefill_tokens_per_s),
            gap(|gaps| {
                let [p50, low, high] = [gaps.p50, gaps.p50_interval.0, gaps.p50_interval.1].map(number::short);
                format!("{p50} ({low} to {high})")
            }),
            gap(|gaps| number::short(gaps.p95)),
            gap(|gaps| number::short(gaps.p99)),
            gap(|gaps| number::short(gaps.mean)),
            speed.decode_tokens_per_s.map_or_else(nothing, number::short),
        ];
        if any_cached {
            fields.push(speed.cached.map_or_else(nothing, |cached| spread(cached.ttft_ms)));
            fields.push(speed.cached.map_or_else(nothing, |cached| cached.tokens.to_string()));
        }
        fields
    });
    let csv = csv_files::times_csv(rows)?;
    Ok(Table { csv, ..table })
}

pub(super) fn spread(spread: Spread) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(number::short);
    format!("{median} ({min} to {max})")
}

fn quality(rows: &[Row]) -> Result<Table, LabError> {
    let with_quality = rows
        .iter()
        .enumerate()
        .filter_map(|(i, row)| Some((i, row.quality.as_ref()?)));
    let lines: Vec<(usize, &Quality)> = with_quality.collect();
    let tokens = lines.first().map_or(0, |(_, quality)| quality.tokens);
    let header = [
        "ppl",
        "oracle's ppl",
        "change %",
        "nll difference, nats (95 % interval)",
        "KL mean (95 % interval)",
        "KL p99",
        "KL max",
        "top-1 %",
        "max logit difference",
        "first diff",
    ];
    let table = Table::of_cells("quality", "Quality", &header, rows, lines, |q| {
        let interval = |ends: Option<[f64; 2]>| {
            ends.map_or(String::new(), |[low, high]| {
                format!(" ({} to {})", number::small(low), number::small(high))
            })
        };
        vec![
            format!("{:.3}", q.perplexity),
            format!("{:.3}", q.oracle_perplexity),
            number::change(q.perplexity_change_percent()),
            number::small(q.nll_difference) + &interval(q.nll_difference_interval),
            number::small(q.kl_mean) + &interval(q.kl_mean_interval),
            number::small(q.kl_p99),
            number::small(q.kl_max),
            number::share(q.top1_percent),
            number::small(q.max_logit_difference),
            first_divergence(q),
        ]
    });
    Ok(Table {
        about: format!(
            "Against the oracle (the same weights, uncached, in f32, with the model's own attention), over {tokens} tokens. \
             Intervals are from the means of the windows."
        ),
        csv: csv_files::quality_csv(rows)?,
        ..table
    })
}

pub(super) fn memory(rows: &[Row]) -> Result<Table, LabError> {
    let with_memory = rows.iter().enumerate().filter_map(|(i, row)| Some((i, row.memory?)));
    let lines: Vec<(usize, Memory)> = with_memory.collect();
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
    let named: Vec<(&Row, Memory)> = lines.iter().map(|(i, memory)| (&rows[*i], *memory)).collect();
    let remarks = exceeding(&named).into_iter().map(|(less, more)| {
        format!(
            "{less} reserves less than {more}, and held more at its peak: what a step keeps beside the storage and what a kernel \
             unpacks outweigh the bytes that are saved."
        )
    });
    let remarks = remarks.collect();
    let with_weights = lines.iter().map(|(i, memory)| (*i, (rows[*i].weights_bytes, *memory)));
    let table = Table::of_cells(
        "memory",
        "Memory",
        &header,
        rows,
        with_weights.collect(),
        |(weights, m)| {
            let tokens = match m.sequences {
                1 => m.tokens.to_string(),
                n => format!("{n} x {}", m.tokens),
            };
            vec![
                tokens,
                m.per_token_predicted.to_string(),
                m.per_token_measured
                    .map_or("rows dropped".to_owned(), |bytes| format!("{bytes}")),
                m.used_predicted.to_string(),
                m.used_measured.to_string(),
                Bytes(m.reserved).to_string(),
                Bytes(m.peak).to_string(),
                weights.map_or(NOTHING.to_owned(), |bytes| Bytes(bytes).to_string()),
            ]
        },
    );
    Ok(Table {
        remarks,
        csv: csv_files::memory_csv(rows)?,
        ..table
    })
}

/// Cells that reserve less than another one of as many tokens, and yet held more: the format saved nothing.
fn exceeding<'a>(lines: &[(&'a Row, Memory)]) -> Vec<(&'a str, &'a str)> {
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

fn recall(rows: &[Row]) -> Result<Table, LabError> {
    let all = rows
        .iter()
        .enumerate()
        .flat_map(|(i, row)| row.recall.iter().map(move |recall| (i, recall)));
    let header = ["task", "tokens", "depth %", "right", "of", "share % (95 % interval)"];
    let mut table = Table::of_cells("recall", "Recall", &header, rows, all.collect(), |recall| {
        vec![
            recall.task.clone(),
            recall.tokens.to_string(),
            format!("{:.0}", recall.depth_percent),
            recall.correct.to_string(),
            recall.trials.to_string(),
            share(recall),
        ]
    });
    if let Some(task) = table.header.get_mut(1) {
        task.1 = false;
    }
    let csv = csv_files::recall_csv(rows)?;
    Ok(Table { csv, ..table })
}

fn share(recall: &Recall) -> String {
    let percent = |share: f64| format!("{:.0}", 100.0 * share);
    let interval = recall.interval().map_or(String::new(), |[low, high]| {
        format!(" ({} to {})", percent(low), percent(high))
    });
    percent(recall.share()) + &interval
}

fn layer_errors(rows: &[Row]) -> Result<Table, LabError> {
    let all = rows
        .iter()
        .enumerate()
        .flat_map(|(i, row)| row.layer_errors.iter().map(move |error| (i, error)));
    let header = ["layer", "relative error", "max difference"];
    let table = Table::of_cells(
        "layer-errors",
        "Error by layer",
        &header,
        rows,
        all.collect(),
        |error| {
            vec![
                error.layer.to_string(),
                number::small(error.relative_error),
                number::small(error.max_difference),
            ]
        },
    );
    Ok(Table {
        about: "The attention output against the oracle's, over all tokens of all windows.".to_owned(),
        csv: csv_files::layer_errors_csv(rows)?,
        ..table
    })
}
