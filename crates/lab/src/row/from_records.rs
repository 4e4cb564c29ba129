//! The records of a cell become its row.

mod dialogue;
mod quality;

use super::{Cached, Memory, Row, Speed};
use crate::metrics::{Gaps, Spread};
use crate::speed::{self, Point};
use crate::{CachedRecord, Phase, Rates, Record, SpeedRecord, UsageRecord, Work, WorkRecord};
use kvlab_config::{Cell, Device, Experiment};
use kvlab_core::{Bytes, CacheSpec, Exactness, LayerSpec};
use std::cmp::Reverse;

/// The row of a cell, from all records of a run.
///
/// `rates` are those of the processor; a cell on another device has no fraction of them.
pub(crate) fn from_records(
    experiment: &Experiment,
    cell: &Cell,
    records: &[Record],
    error: Option<String>,
    rates: Option<&Rates>,
) -> Row {
    let mut row = Row {
        cell: cell.name.clone(),
        note: cell.note.clone(),
        model: cell.config.name.clone(),
        device: cell.config.backend.device.to_string(),
        error,
        ..Row::default()
    };
    let (mut windows, mut greedy, mut speed, mut spec) = (Vec::new(), None, Vec::new(), None);
    let (mut recall, mut layers, mut turns, mut mixes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for record in records.iter().filter(|record| record.cell() == cell.name) {
        match record {
            Record::Cell(r) => {
                row.weights_bytes = Some(r.weights_bytes);
                spec = Some(&r.spec);
            }
            Record::Quality(r) => windows.push(r),
            Record::Greedy(r) => greedy = Some(r),
            Record::Speed(r) => speed.push(r),
            Record::Recall(r) => recall.push(r),
            Record::LayerError(r) => layers.push(r),
            Record::Turn(r) => turns.push(r),
            Record::Mix(r) => mixes.push(r),
            Record::Failure(_) => {}
        }
    }
    let Some(spec) = spec else { return row };
    describe(&mut row, spec);
    // Over fewer windows than the other cells it would be another number.
    if windows.len() == experiment.workload.windows {
        row.quality = quality::quality(&windows, greedy);
    }
    row.recall = quality::recall(experiment, &recall);
    row.layer_errors = quality::layer_errors(&layers, spec.layers.len(), experiment.workload.windows);
    let rates = rates.filter(|_| cell.config.backend.device == Device::Cpu);
    let points = speed::points(&experiment.workload);
    row.speed = points
        .iter()
        .filter_map(|point| speed_at(point, &speed, spec, (experiment.seed, rates)))
        .collect();
    row.turns = dialogue::turns(&turns, experiment.seed);
    row.mix = dialogue::mix(&mixes, experiment.seed);
    // With one sequence where there are several batches: what a token takes shows best there.
    let longest = row
        .speed
        .iter()
        .max_by_key(|speed| (speed.prompt_tokens, Reverse(speed.batch)));
    row.memory = longest.and_then(|speed| speed.memory).or_else(|| {
        let greedy = greedy?;
        memory(
            spec,
            greedy.prompt_tokens + greedy.tokens.len().checked_sub(1)?,
            1,
            &greedy.usage,
        )
    });
    let kernels = speed
        .iter()
        .flat_map(|r| &r.kernels)
        .chain(greedy.iter().flat_map(|r| &r.kernels));
    row.kernels = kernels.cloned().collect();
    row.kernels.sort();
    row.kernels.dedup();
    row
}

fn describe(row: &mut Row, spec: &CacheSpec) {
    let stored = || spec.layers.iter().filter(|layer| stores(layer));
    row.variant = Some(spec.variant.clone());
    row.layout = each_once(spec.layers.iter().map(|layer| layer.layout.as_str()));
    row.key_format = each_once(stored().map(|layer| layer.key.name.as_str()));
    let values = stored().filter(|layer| layer.row.stored_value_dim() > 0);
    row.value_format = each_once(values.map(|layer| layer.value.name.as_str()));
    if let Exactness::Lossy(reasons) = &spec.exactness {
        row.lossy = reasons.clone();
    }
}

fn each_once<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen.join("+")
}

/// A layer without rows (variant `none`) stores nothing, whatever its row would take.
fn stores(layer: &LayerSpec) -> bool {
    layer.rows_per_sequence > 0
}

fn memory(spec: &CacheSpec, tokens: usize, sequences: usize, usage: &UsageRecord) -> Option<Memory> {
    let layers = || spec.layers.iter().filter(|layer| stores(layer));
    let held = (tokens * sequences).max(1);
    let whole = layers().all(|layer| layer.rows_at(tokens) == tokens);
    Some(Memory {
        tokens,
        sequences,
        per_token_predicted: layers().map(LayerSpec::per_token).sum::<Bytes>().0,
        per_token_measured: whole.then(|| usage.used_bytes() as f64 / held as f64),
        used_predicted: (spec.used_at(tokens) * sequences as u64).0,
        used_measured: usage.used_bytes(),
        reserved: usage.reserved_bytes,
        peak: usage.peak_bytes,
    })
}

fn speed_at(
    point: &Point,
    records: &[&SpeedRecord],
    spec: &CacheSpec,
    (seed, rates): (u64, Option<&Rates>),
) -> Option<Speed> {
    let &Point::Prompt {
        tokens: prompt_tokens,
        batch,
    } = point
    else {
        return None;
    };
    let records = || {
        records
            .iter()
            .filter(|r| (r.prompt_tokens, r.batch) == (prompt_tokens, batch))
    };
    let first = records().next()?;
    let ttft_ms = Spread::of(&records().map(|r| last(&r.ttft_ms)).collect::<Vec<_>>(), seed)?;
    let gaps: Vec<f64> = records().flat_map(|r| r.gaps_ms.iter().flatten()).copied().collect();
    let gaps = Gaps::of(&gaps, seed);
    // The last token was sampled and not fed.
    let tokens = prompt_tokens + first.new_tokens.checked_sub(1)?;
    Some(Speed {
        prompt_tokens,
        new_tokens: first.new_tokens,
        batch: first.batch,
        repeats: records().count(),
        prefill_tokens_per_s: (prompt_tokens * first.batch) as f64 * 1e3 / ttft_ms.median,
        ttft_ms,
        cached: cached(&records().filter_map(|r| r.cached.as_ref()).collect::<Vec<_>>(), seed),
        decode_tokens_per_s: gaps.map(|gaps| first.batch as f64 * 1e3 / gaps.mean),
        gaps,
        work: work(first.work.as_ref(), &ttft_ms, gaps.as_ref(), rates),
        process: records().next_back().and_then(|r| r.process),
        memory: memory(spec, tokens, first.batch, &first.usage),
    })
}

/// The work of both phases in the time that they took.
fn work(record: Option<&WorkRecord>, ttft_ms: &Spread, gaps: Option<&Gaps>, rates: Option<&Rates>) -> Option<Work> {
    let record = record?;
    let phase = |bytes: u64, flops: u64, ms: f64| Phase {
        bytes,
        flops,
        fraction_of_bandwidth: rates.map(|rates| bytes as f64 * 1e3 / ms / rates.read_bytes_per_second),
        fraction_of_flops: rates.map(|rates| flops as f64 * 1e3 / ms / rates.f32_flops_per_second),
    };
    let step = |total: u64| total / record.decode_steps.max(1) as u64;
    Some(Work {
        prefill: phase(record.prefill_bytes, record.prefill_flops, ttft_ms.median),
        decode: gaps.map(|gaps| phase(step(record.decode_bytes), step(record.decode_flops), gaps.mean)),
    })
}

/// When the last sequence of a batch has its token.
fn last(ttft_ms: &[f64]) -> f64 {
    ttft_ms.iter().copied().fold(0.0, f64::max)
}

fn cached(records: &[&CachedRecord], seed: u64) -> Option<Cached> {
    Some(Cached {
        ttft_ms: Spread::of(&records.iter().map(|r| last(&r.ttft_ms)).collect::<Vec<_>>(), seed)?,
        tokens: records.iter().flat_map(|r| &r.cached_tokens).copied().min()?,
    })
}

#[cfg(test)]
mod tests;
