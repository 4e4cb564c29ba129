//! `results.csv`: a line for each cell and length of prompt. `layers.csv`: a line for each layer. Units are in the
//! names.

use super::number::exact;
use crate::{LabError, Row, Speed};
use kvlab_core::{CacheSpec, Value};

/// A column: its name, and its text. Empty is what was not measured.
type Column = (&'static str, fn(&Row, Option<&Speed>) -> Option<String>);

/// Every column of `results.csv`. What belongs to a cell is repeated in each of its lines.
const COLUMNS: &[Column] = &[
    ("cell", |row, _| Some(row.cell.clone())),
    ("error", |row, _| row.error.clone()),
    ("model", |row, _| Some(row.model.clone())),
    ("device", |row, _| Some(row.device.clone())),
    ("variant", |row, _| row.variant.clone()),
    ("layout", |row, _| Some(row.layout.clone())),
    ("key_format", |row, _| Some(row.key_format.clone())),
    ("value_format", |row, _| Some(row.value_format.clone())),
    ("lossy", |row, _| {
        row.variant.as_ref().map(|_| (!row.lossy.is_empty()).to_string())
    }),
    ("lossy_reasons", |row, _| Some(row.lossy.join("; "))),
    ("weights_bytes", |row, _| Some(row.weights_bytes?.to_string())),
    ("prompt_tokens", |_, speed| Some(speed?.prompt_tokens.to_string())),
    ("new_tokens", |_, speed| Some(speed?.new_tokens.to_string())),
    ("batch", |_, speed| Some(speed?.batch.to_string())),
    ("repeats", |_, speed| Some(speed?.repeats.to_string())),
    ("bytes_per_token_predicted", |row, speed| {
        Some(memory(row, speed)?.per_token_predicted.to_string())
    }),
    ("bytes_per_token", |row, speed| {
        Some(exact(memory(row, speed)?.per_token_measured?))
    }),
    ("used_bytes_predicted", |row, speed| {
        Some(memory(row, speed)?.used_predicted.to_string())
    }),
    ("used_bytes", |row, speed| {
        Some(memory(row, speed)?.used_measured.to_string())
    }),
    ("reserved_bytes", |row, speed| {
        Some(memory(row, speed)?.reserved.to_string())
    }),
    ("peak_bytes", |row, speed| Some(memory(row, speed)?.peak.to_string())),
    ("ttft_ms", |_, speed| Some(exact(speed?.ttft_ms.median))),
    ("ttft_min_ms", |_, speed| Some(exact(speed?.ttft_ms.min))),
    ("ttft_max_ms", |_, speed| Some(exact(speed?.ttft_ms.max))),
    ("ttft_cached_ms", |_, speed| Some(exact(speed?.cached?.ttft_ms.median))),
    ("ttft_cached_min_ms", |_, speed| Some(exact(speed?.cached?.ttft_ms.min))),
    ("ttft_cached_max_ms", |_, speed| Some(exact(speed?.cached?.ttft_ms.max))),
    ("cached_tokens", |_, speed| Some(speed?.cached?.tokens.to_string())),
    ("prefill_tokens_per_s", |_, speed| {
        Some(exact(speed?.prefill_tokens_per_s))
    }),
    ("itl_p50_ms", |_, speed| Some(exact(speed?.gaps?.p50))),
    ("itl_p50_low_ms", |_, speed| Some(exact(speed?.gaps?.p50_interval.0))),
    ("itl_p50_high_ms", |_, speed| Some(exact(speed?.gaps?.p50_interval.1))),
    ("itl_p95_ms", |_, speed| Some(exact(speed?.gaps?.p95))),
    ("itl_p99_ms", |_, speed| Some(exact(speed?.gaps?.p99))),
    ("tpot_ms", |_, speed| Some(exact(speed?.gaps?.mean))),
    ("decode_tokens_per_s", |_, speed| {
        Some(exact(speed?.decode_tokens_per_s?))
    }),
    ("scored_tokens", |row, _| Some(row.quality.as_ref()?.tokens.to_string())),
    ("perplexity", |row, _| Some(exact(row.quality.as_ref()?.perplexity))),
    ("oracle_perplexity", |row, _| {
        Some(exact(row.quality.as_ref()?.oracle_perplexity))
    }),
    ("perplexity_change_percent", |row, _| {
        Some(exact(row.quality.as_ref()?.perplexity_change_percent()))
    }),
    ("nll_difference_nats", |row, _| {
        Some(exact(row.quality.as_ref()?.nll_difference))
    }),
    ("nll_difference_low_nats", |row, _| {
        Some(exact(row.quality.as_ref()?.nll_difference_interval?[0]))
    }),
    ("nll_difference_high_nats", |row, _| {
        Some(exact(row.quality.as_ref()?.nll_difference_interval?[1]))
    }),
    ("nll_difference_se_nats", |row, _| {
        Some(exact(row.quality.as_ref()?.nll_difference_se?))
    }),
    ("kl_mean_nats", |row, _| Some(exact(row.quality.as_ref()?.kl_mean))),
    ("kl_mean_low_nats", |row, _| {
        Some(exact(row.quality.as_ref()?.kl_mean_interval?[0]))
    }),
    ("kl_mean_high_nats", |row, _| {
        Some(exact(row.quality.as_ref()?.kl_mean_interval?[1]))
    }),
    ("kl_p99_nats", |row, _| Some(exact(row.quality.as_ref()?.kl_p99))),
    ("kl_max_nats", |row, _| Some(exact(row.quality.as_ref()?.kl_max))),
    ("top1_agreement_percent", |row, _| {
        Some(exact(row.quality.as_ref()?.top1_percent))
    }),
    ("max_logit_difference", |row, _| {
        Some(exact(row.quality.as_ref()?.max_logit_difference))
    }),
    ("greedy_tokens", |row, _| {
        Some(row.quality.as_ref()?.greedy_tokens.to_string())
    }),
    ("first_divergence_step", |row, _| {
        Some(row.quality.as_ref()?.first_divergence?.to_string())
    }),
    ("kernels", |row, _| Some(row.kernels.join(" "))),
];

fn memory(row: &Row, speed: Option<&Speed>) -> Option<crate::Memory> {
    speed.map_or(row.memory, |speed| speed.memory)
}

/// A line for each cell and length of prompt; one line for a cell whose speed was not measured.
pub(crate) fn results_csv(rows: &[Row]) -> Result<String, LabError> {
    let lines = rows.iter().flat_map(|row| {
        let none = row.speed.is_empty().then_some((row, None));
        none.into_iter()
            .chain(row.speed.iter().map(move |speed| (row, Some(speed))))
    });
    columns_csv("results.csv", |_| true, lines)
}

/// Times: a line for each cell and length of prompt.
pub(super) fn times_csv(rows: &[Row]) -> Result<String, LabError> {
    let parts = [
        "ttft",
        "itl",
        "tpot",
        "per_s",
        "cached",
        "prompt_tokens",
        "new_tokens",
        "batch",
        "repeats",
    ];
    let lines = rows
        .iter()
        .flat_map(|row| row.speed.iter().map(move |speed| (row, Some(speed))));
    columns_csv(
        "tables/times.csv",
        |name| parts.iter().any(|part| name.contains(part)),
        lines,
    )
}

/// Quality: a line for each cell.
pub(super) fn quality_csv(rows: &[Row]) -> Result<String, LabError> {
    let from = COLUMNS.iter().skip_while(|(name, _)| *name != "scored_tokens");
    let names: Vec<&str> = from
        .take_while(|(name, _)| *name != "kernels")
        .map(|(name, _)| *name)
        .collect();
    let lines = rows.iter().filter(|row| row.quality.is_some()).map(|row| (row, None));
    columns_csv("tables/quality.csv", |name| names.contains(&name), lines)
}

/// Memory: a line for each cell, at its longest prompt.
pub(super) fn memory_csv(rows: &[Row]) -> Result<String, LabError> {
    let lines = rows.iter().filter(|row| row.memory.is_some()).map(|row| (row, None));
    columns_csv("tables/memory.csv", |name| name.contains("bytes"), lines)
}

/// Some of [`COLUMNS`], with the cell before them.
fn columns_csv<'a>(
    what: &'static str,
    is_in: impl Fn(&str) -> bool,
    lines: impl Iterator<Item = (&'a Row, Option<&'a Speed>)>,
) -> Result<String, LabError> {
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .filter(|(name, _)| *name == "cell" || is_in(name))
        .collect();
    let header = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let lines = lines.map(|(row, speed)| {
        columns
            .iter()
            .map(|(_, text)| text(row, speed).unwrap_or_default())
            .collect()
    });
    write(what, std::iter::once(header).chain(lines).collect())
}

/// Recall: a line for each cell, task, length and depth.
pub(super) fn recall_csv(rows: &[Row]) -> Result<String, LabError> {
    let mut lines = vec![
        ["cell", "task", "context_tokens", "depth_percent", "trials", "correct"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for row in rows {
        lines.extend(row.recall.iter().map(|recall| {
            vec![
                row.cell.clone(),
                recall.task.clone(),
                recall.tokens.to_string(),
                exact(recall.depth_percent),
                recall.trials.to_string(),
                recall.correct.to_string(),
            ]
        }));
    }
    write("tables/recall.csv", lines)
}

/// Error of the attention output: a line for each cell and layer.
pub(super) fn layer_errors_csv(rows: &[Row]) -> Result<String, LabError> {
    let mut lines = vec![
        ["cell", "layer", "relative_error", "max_difference"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for row in rows {
        lines.extend(row.layer_errors.iter().map(|error| {
            vec![
                row.cell.clone(),
                error.layer.to_string(),
                exact(error.relative_error),
                exact(error.max_difference),
            ]
        }));
    }
    write("tables/layer-errors.csv", lines)
}

/// A line for each layer of each cell. Over the layers of a cell, `bytes_per_token` and `reserved_bytes` sum to its
/// totals.
pub(crate) fn layers_csv(specs: &[(&str, &CacheSpec)]) -> Result<String, LabError> {
    let header = "cell,layer,variant,layout,visibility,retention,heads,key_values,\
        stored_value_values,value_is_prefix_of_key,key_format,value_format,\
        bytes_per_token,rows_per_sequence,reserved_bytes";
    let mut lines = vec![header.split(',').map(str::to_owned).collect::<Vec<_>>()];
    for (cell, spec) in specs {
        for layer in &spec.layers {
            let stores = layer.rows_per_sequence > 0;
            let per_token = if stores { layer.per_token().0 } else { 0 };
            let reserved = layer.allocated(spec.sequences);
            lines.push(vec![
                (*cell).to_owned(),
                layer.layer.0.to_string(),
                layer.variant.clone(),
                layer.layout.clone(),
                layer.visibility.to_string(),
                layer.retention.to_string(),
                layer.row.heads.to_string(),
                layer.row.key.to_string(),
                layer.row.stored_value_dim().to_string(),
                matches!(layer.row.value, Value::PrefixOfKey(_)).to_string(),
                layer.key.name.clone(),
                layer.value.name.clone(),
                per_token.to_string(),
                layer.rows_per_sequence.to_string(),
                reserved.0.to_string(),
            ]);
        }
    }
    write("layers.csv", lines)
}

pub(super) fn write(what: &'static str, lines: Vec<Vec<String>>) -> Result<String, LabError> {
    let refused = |reason: String| LabError::Write { what, reason };
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in lines {
        let line = line.iter().map(|text| harmless(text));
        writer
            .write_record(line.collect::<Vec<_>>())
            .map_err(|e| refused(e.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|e| refused(e.to_string()))?;
    String::from_utf8(bytes).map_err(|e| refused(e.to_string()))
}

/// A text that a spreadsheet does not take for a formula: one that begins like it, and is no number, gets an apostrophe before
/// it, which spreadsheets read as "this is text" (OWASP, "CSV Injection"). Cells are named by whoever wrote the experiment.
fn harmless(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    if formula { format!("'{text}") } else { text.to_owned() }
}
