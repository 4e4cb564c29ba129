//! `records.parquet`: every sample of a run as one line of a flat table, for pandas, DuckDB and the like.

use super::Report;
use crate::{LabError, Record};
use parquet::basic::Encoding;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::borrow::Cow;
use std::sync::Arc;

/// The columns, and what they mean; also in the file's own metadata.
pub(crate) const COLUMNS: [(&str, &str, &str); 11] = [
    (
        "run",
        "required binary run (string)",
        "The run: the name of its folder, or what tells it from the others of a report.",
    ),
    ("cell", "required binary cell (string)", "Name of the cell."),
    (
        "metric",
        "required binary metric (string)",
        "What was measured, such as kl, ttft, itl, peak; recall:TASK.",
    ),
    (
        "unit",
        "required binary unit (string)",
        "Unit of value: nats, ms, bytes, token, 1 (a plain number).",
    ),
    (
        "window",
        "optional int64 window",
        "Quality and layers: the window of the text, from 0.",
    ),
    (
        "repeat",
        "optional int64 repeat",
        "Times: the repeat, from 0. Recall: the trial, from 0.",
    ),
    (
        "tokens",
        "optional int64 tokens",
        "Times and greedy text: tokens of the prompt. Recall: tokens of the context.",
    ),
    (
        "sequence",
        "optional int64 sequence",
        "Times: the sequence of the batch, from 0. Conversations: the turn. Request mixes: the request.",
    ),
    (
        "position",
        "optional int64 position",
        "Quality: the token of the window that was predicted, from 1. Gaps and greedy text: the token generated, from 0. Layers: the layer, from 0.",
    ),
    (
        "depth_percent",
        "optional double depth_percent",
        "Recall: where the needle stood, % of the context.",
    ),
    ("value", "required double value", "What was measured, in unit."),
];

/// Where a sample was taken, as far as that applies.
#[derive(Clone, Copy, Default)]
struct Place {
    window: Option<usize>,
    repeat: Option<usize>,
    tokens: Option<usize>,
    sequence: Option<usize>,
    position: Option<usize>,
    depth_percent: Option<f64>,
}

/// One sample.
struct Sample<'a> {
    run: &'a str,
    cell: &'a str,
    metric: Cow<'static, str>,
    unit: &'static str,
    place: Place,
    value: f64,
}

/// The file. It depends on the records alone, so that equal records make equal files.
///
/// # Errors
/// [`LabError::Write`].
pub(super) fn parquet(report: &Report<'_>) -> Result<Vec<u8>, LabError> {
    let mut samples = Vec::new();
    for (label, comparison) in &report.runs {
        for record in &comparison.records {
            of_record(label, record, &mut samples);
        }
    }
    file(&samples).map_err(refused)
}

/// The same for some records.
#[cfg(test)]
pub(super) fn of_records(run: &str, records: &[Record]) -> Result<Vec<u8>, LabError> {
    let mut samples = Vec::new();
    records.iter().for_each(|record| of_record(run, record, &mut samples));
    file(&samples).map_err(refused)
}

fn refused(error: parquet::errors::ParquetError) -> LabError {
    LabError::Write {
        what: "records.parquet",
        reason: error.to_string(),
    }
}

fn of_record<'a>(run: &'a str, record: &'a Record, samples: &mut Vec<Sample<'a>>) {
    let plain = Place::default();
    let mut add = |metric: &'static str, unit, place: Place, value: f64| {
        samples.push(Sample {
            run,
            cell: record.cell(),
            metric: Cow::Borrowed(metric),
            unit,
            place,
            value,
        });
    };
    match record {
        Record::Cell(r) => add("weights", "bytes", plain, r.weights_bytes as f64),
        Record::Quality(r) => {
            let lists = [
                ("nll", "nats", &r.nll_nats),
                ("oracle_nll", "nats", &r.oracle_nll_nats),
                ("kl", "nats", &r.kl_nats),
                ("logit_difference", "1", &r.logit_difference),
            ];
            for (metric, unit, values) in lists {
                for (i, value) in values.iter().enumerate() {
                    let place = Place {
                        window: Some(r.window),
                        position: Some(i + 1),
                        ..plain
                    };
                    add(metric, unit, place, *value);
                }
            }
            let place = Place {
                window: Some(r.window),
                ..plain
            };
            add("top1_agreed", "token", place, r.top1_agreed as f64);
        }
        Record::Greedy(r) => {
            let lists = [("greedy_token", &r.tokens), ("oracle_greedy_token", &r.oracle_tokens)];
            for (metric, tokens) in lists {
                for (i, token) in tokens.iter().enumerate() {
                    let place = Place {
                        tokens: Some(r.prompt_tokens),
                        position: Some(i),
                        ..plain
                    };
                    add(metric, "1", place, f64::from(*token));
                }
            }
        }
        Record::Speed(r) => {
            let place = Place {
                repeat: Some(r.repeat),
                tokens: Some(r.prompt_tokens),
                ..plain
            };
            let at = |sequence| Place {
                sequence: Some(sequence),
                ..place
            };
            for (i, ms) in r.ttft_ms.iter().enumerate() {
                add("ttft", "ms", at(i), *ms);
            }
            for (i, ms) in r.cached.iter().flat_map(|cached| cached.ttft_ms.iter().enumerate()) {
                add("ttft_cached", "ms", at(i), *ms);
            }
            for (i, gaps) in r.gaps_ms.iter().enumerate() {
                for (j, ms) in gaps.iter().enumerate() {
                    // The first token has no gap before it.
                    let place = Place {
                        position: Some(j + 1),
                        ..at(i)
                    };
                    add("itl", "ms", place, *ms);
                }
            }
            let usage = r.usage;
            let bytes = [
                ("payload", usage.payload_bytes),
                ("metadata", usage.metadata_bytes),
                ("padding", usage.padding_bytes),
                ("reserved", usage.reserved_bytes),
                ("peak", usage.peak_bytes),
            ];
            for (metric, bytes) in bytes {
                add(metric, "bytes", place, bytes as f64);
            }
        }
        Record::Recall(r) => {
            let place = Place {
                repeat: Some(r.trial),
                tokens: Some(r.tokens),
                depth_percent: Some(r.depth_percent),
                ..plain
            };
            samples.push(Sample {
                run,
                cell: &r.cell,
                metric: Cow::Owned(format!("recall:{}", r.task)),
                unit: "1",
                place,
                value: if r.is_correct() { 1.0 } else { 0.0 },
            });
        }
        Record::LayerError(r) => {
            let place = Place {
                window: Some(r.window),
                position: Some(r.layer),
                ..plain
            };
            add("layer_squared_error", "1", place, r.squared_error);
            add("layer_squared_norm", "1", place, r.squared_norm);
            add("layer_max_difference", "1", place, r.max_difference);
        }
        Record::Turn(r) => {
            let place = Place {
                repeat: Some(r.repeat),
                tokens: Some(r.prompt_tokens),
                sequence: Some(r.turn),
                ..plain
            };
            add("turn_ttft", "ms", place, r.ttft_ms);
            add("turn_reused", "token", place, r.reused_tokens as f64);
            for (i, ms) in r.gaps_ms.iter().enumerate() {
                let place = Place {
                    position: Some(i + 1),
                    ..place
                };
                add("turn_itl", "ms", place, *ms);
            }
        }
        Record::Mix(r) => {
            let place = Place {
                repeat: Some(r.repeat),
                ..plain
            };
            add("mix_total", "ms", place, r.total_ms);
            for (i, (ms, reused)) in r.ttft_ms.iter().zip(&r.reused_tokens).enumerate() {
                let place = Place {
                    sequence: Some(i),
                    ..place
                };
                add("mix_ttft", "ms", place, *ms);
                add("mix_reused", "token", place, *reused as f64);
            }
        }
        Record::Failure(_) => {}
    }
}

fn file(samples: &[Sample<'_>]) -> parquet::errors::Result<Vec<u8>> {
    let fields = COLUMNS.map(|(_, field, _)| format!("{field};")).join(" ");
    let schema = Arc::new(parse_message_type(&format!("message samples {{ {fields} }}"))?);
    let about = COLUMNS.map(|(name, _, meaning)| KeyValue::new(name.to_owned(), meaning.to_owned()));
    let properties = WriterProperties::builder()
        .set_created_by(format!("kvlab {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(about.to_vec()))
        // Measured numbers hardly repeat: apart from each other, their bytes at least compress later.
        .set_column_dictionary_enabled(ColumnPath::from("value"), false)
        .set_column_encoding(ColumnPath::from("value"), Encoding::BYTE_STREAM_SPLIT)
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    for part in samples.chunks(1 << 20) {
        let mut group = writer.next_row_group()?;
        let mut columns = COLUMNS.iter();
        while let Some(mut column) = group.next_column()? {
            let name = columns.next().map_or("", |(name, _, _)| *name);
            match column.untyped() {
                ColumnWriter::ByteArrayColumnWriter(column) => {
                    column.write_batch(&texts(part, name), None, None)?;
                }
                ColumnWriter::Int64ColumnWriter(column) => {
                    let (levels, values) = optional(part, |sample| Some(whole(&sample.place, name)? as i64));
                    column.write_batch(&values, Some(&levels), None)?;
                }
                ColumnWriter::DoubleColumnWriter(column) if name == "value" => {
                    let values: Vec<f64> = part.iter().map(|sample| sample.value).collect();
                    column.write_batch(&values, None, None)?;
                }
                ColumnWriter::DoubleColumnWriter(column) => {
                    let (levels, values) = optional(part, |sample| sample.place.depth_percent);
                    column.write_batch(&values, Some(&levels), None)?;
                }
                _ => {
                    return Err(parquet::errors::ParquetError::General(format!(
                        "no such column: {name}"
                    )));
                }
            }
            column.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(bytes)
}

fn texts(samples: &[Sample<'_>], name: &str) -> Vec<ByteArray> {
    let text = |sample: &Sample<'_>| match name {
        "run" => ByteArray::from(sample.run),
        "cell" => ByteArray::from(sample.cell),
        "metric" => ByteArray::from(&*sample.metric),
        _ => ByteArray::from(sample.unit),
    };
    samples.iter().map(text).collect()
}

fn whole(place: &Place, name: &str) -> Option<usize> {
    match name {
        "window" => place.window,
        "repeat" => place.repeat,
        "tokens" => place.tokens,
        "sequence" => place.sequence,
        _ => place.position,
    }
}

/// Definition levels (1 where there is a value), and the values that there are.
fn optional<T>(samples: &[Sample<'_>], value: impl Fn(&Sample<'_>) -> Option<T>) -> (Vec<i16>, Vec<T>) {
    let values: Vec<Option<T>> = samples.iter().map(value).collect();
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (levels, values.into_iter().flatten().collect())
}
