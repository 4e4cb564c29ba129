//! What the records of a cell's quality come to: windows, layers, questions.

use crate::metrics::{mean, mean_interval, percentile, standard_error};
use crate::recall;
use crate::row::{LayerError, Quality, Recall};
use crate::{GreedyRecord, LayerErrorRecord, QualityRecord, RecallRecord};
use kvlab_config::Experiment;

pub(super) fn quality(windows: &[&QualityRecord], greedy: Option<&GreedyRecord>) -> Option<Quality> {
    let all = |list: fn(&QualityRecord) -> &Vec<f64>| -> Vec<f64> {
        windows.iter().flat_map(|&r| list(r)).copied().collect()
    };
    let (nll, oracle_nll) = (all(|r| &r.nll_nats), all(|r| &r.oracle_nll_nats));
    let differences: Vec<f64> = nll
        .iter()
        .zip(&oracle_nll)
        .map(|(cell, oracle)| cell - oracle)
        .collect();
    let kl = all(|r| &r.kl_nats);
    let by_window = |of: fn(&QualityRecord) -> f64| windows.iter().map(|&r| of(r)).collect::<Vec<f64>>();
    let agreed: usize = windows.iter().map(|r| r.top1_agreed).sum();
    Some(Quality {
        tokens: nll.len(),
        perplexity: mean(&nll)?.exp(),
        oracle_perplexity: mean(&oracle_nll)?.exp(),
        nll_difference: mean(&differences)?,
        nll_difference_se: standard_error(&differences),
        nll_difference_interval: mean_interval(&by_window(|r| r.mean_nll_nats - r.oracle_mean_nll_nats)),
        kl_mean: mean(&kl)?,
        kl_mean_interval: mean_interval(&by_window(|r| mean(&r.kl_nats).unwrap_or_default())),
        kl_p99: percentile(&kl, 99.0)?,
        kl_max: percentile(&kl, 100.0)?,
        top1_percent: 100.0 * agreed as f64 / nll.len() as f64,
        max_logit_difference: percentile(&all(|r| &r.logit_difference), 100.0)?,
        greedy_tokens: greedy.map_or(0, |r| r.tokens.len()),
        first_divergence: greedy.and_then(|r| first_difference(&r.tokens, &r.oracle_tokens)),
    })
}

/// The place of the first difference, counted from 1.
pub(super) fn first_difference(a: &[u32], b: &[u32]) -> Option<usize> {
    let differs = a.iter().zip(b).position(|(a, b)| a != b);
    let shorter = (a.len() != b.len()).then(|| a.len().min(b.len()));
    differs.or(shorter).map(|place| place + 1)
}

/// Every task, length and depth of which all trials are there, in the order of the workload.
pub(super) fn recall(experiment: &Experiment, records: &[&RecallRecord]) -> Vec<Recall> {
    let mut out: Vec<Recall> = Vec::new();
    for place in recall::places(experiment).iter().filter(|place| place.trial == 0) {
        let task = place.task.to_string();
        let here = records
            .iter()
            .filter(|r| r.task == task && r.tokens == place.tokens && r.depth_percent == place.depth_percent);
        let (trials, correct) = here.fold((0, 0), |(trials, correct), r| {
            (trials + 1, correct + usize::from(r.is_correct()))
        });
        if trials == place.task.trials {
            out.push(Recall {
                task,
                tokens: place.tokens,
                depth_percent: place.depth_percent,
                trials,
                correct,
            });
        }
    }
    out
}

/// The error of each layer over all windows; empty as long as some are missing.
pub(super) fn layer_errors(records: &[&LayerErrorRecord], layers: usize, windows: usize) -> Vec<LayerError> {
    if records.len() != layers * windows {
        return Vec::new();
    }
    let layer = |layer: usize| {
        let here = || records.iter().filter(move |r| r.layer == layer);
        let (error, norm): (f64, f64) = (
            here().map(|r| r.squared_error).sum(),
            here().map(|r| r.squared_norm).sum(),
        );
        LayerError {
            layer,
            relative_error: if error == 0.0 { 0.0 } else { (error / norm).sqrt() },
            max_difference: here().map(|r| r.max_difference).fold(0.0, f64::max),
        }
    };
    (0..layers).map(layer).collect()
}
