//! Rows against numbers computed by hand.
#![allow(clippy::unwrap_used)]
use super::quality::{first_difference, layer_errors, recall};
use super::*;
use crate::{LayerErrorRecord, QualityRecord, RecallRecord};
use kvlab_core::{Format, LayerId, Retention, RowSpec, Value, Visibility};

const USAGE: UsageRecord = UsageRecord {
    payload_bytes: 0,
    metadata_bytes: 0,
    padding_bytes: 0,
    reserved_bytes: 0,
    peak_bytes: 0,
};

fn window(window: usize, nll: &[f64], oracle: &[f64]) -> QualityRecord {
    QualityRecord {
        cell: "c".into(),
        window,
        mean_nll_nats: crate::metrics::mean(nll).unwrap(),
        oracle_mean_nll_nats: crate::metrics::mean(oracle).unwrap(),
        nll_nats: nll.to_vec(),
        oracle_nll_nats: oracle.to_vec(),
        kl_nats: nll.iter().zip(oracle).map(|(a, b)| (a - b).abs()).collect(),
        logit_difference: vec![window as f64; nll.len()],
        top1_agreed: 1,
    }
}

fn layer(rows_per_sequence: usize, retention: Retention) -> LayerSpec {
    LayerSpec {
        layer: LayerId(0),
        variant: "swa".into(),
        layout: "ring".into(),
        query_heads: 4,
        row: RowSpec {
            heads: 2,
            key: 8,
            value: Value::Own(4),
        },
        visibility: Visibility::Causal,
        retention,
        key: Format::plain("f32", 32),
        value: Format::plain("f16", 16),
        rows_per_sequence,
        page_size: 0,
        seal: None,
    }
}

fn spec(layers: Vec<LayerSpec>) -> CacheSpec {
    CacheSpec {
        variant: "swa".into(),
        layers,
        capacity: 100,
        sequences: 2,
        exactness: Exactness::Exact,
    }
}

fn last(n: usize) -> Retention {
    Retention::Window {
        window: n.try_into().unwrap(),
        sinks: 0,
    }
}

#[test]
fn perplexity_is_over_tokens_and_not_over_windows() {
    // A window of three tokens and one of one: the mean of four tokens is 2, the mean of the windows would be 3.
    let (a, b) = (window(0, &[1.0, 1.0, 1.0], &[1.0, 1.0, 1.0]), window(1, &[5.0], &[1.0]));
    let quality = quality::quality(&[&a, &b], None).unwrap();
    assert_eq!(
        (quality.perplexity, quality.oracle_perplexity),
        (2.0_f64.exp(), 1.0_f64.exp())
    );
    assert!((quality.perplexity_change_percent() - 100.0 * (1.0_f64.exp() - 1.0)).abs() < 1e-12);
    // Differences 0, 0, 0, 4: mean 1, variance 4, standard error sqrt(4 / 4).
    assert_eq!((quality.nll_difference, quality.nll_difference_se), (1.0, Some(1.0)));
    assert_eq!((quality.kl_mean, quality.kl_max), (1.0, 4.0));
    // By windows the differences are 0 and 4: mean 2, standard error 2, and t(1) at 97.5 % is 12.7062.
    let [low, high] = quality.nll_difference_interval.unwrap();
    assert!(
        (low - (2.0 - 25.4124)).abs() < 1e-3 && (high - 27.4124).abs() < 1e-3,
        "{low} {high}"
    );
    assert_eq!(quality.kl_mean_interval, quality.nll_difference_interval);
    let [_, percent] = quality.perplexity_change_interval().unwrap();
    assert!((percent / (100.0 * (high.exp() - 1.0)) - 1.0).abs() < 1e-12);
    assert!((quality.kl_p99 - 3.88).abs() < 1e-12);
    assert_eq!((quality.top1_percent, quality.max_logit_difference), (50.0, 1.0));
    assert_eq!((quality.greedy_tokens, quality.first_divergence), (0, None));
}

#[test]
fn a_vocabulary_that_is_equally_likely_is_the_perplexity() {
    let nll = crate::score_token(&[0.5; 256], &[0.5; 256], 3).unwrap().nll;
    let quality = quality::quality(&[&window(0, &[nll; 191], &[nll; 191])], None).unwrap();
    assert!((quality.perplexity - 256.0).abs() < 1e-9, "{}", quality.perplexity);
    assert_eq!(quality.perplexity_change_percent(), 0.0);
}

#[test]
fn the_first_difference_counts_from_one() {
    assert_eq!(first_difference(&[1, 2, 3], &[1, 2, 3]), None);
    assert_eq!(first_difference(&[9, 2, 3], &[1, 2, 3]), Some(1));
    assert_eq!(first_difference(&[1, 2, 9], &[1, 2, 3]), Some(3));
    assert_eq!(first_difference(&[1, 2], &[1, 2, 3]), Some(3));
}

#[test]
fn bytes_of_a_window_and_of_no_cache() {
    // Two heads of 8 keys in f32 and 4 values in f16 are 80 bytes a row.
    let used = |payload_bytes| UsageRecord { payload_bytes, ..USAGE };
    let two = spec(vec![layer(100, Retention::All), layer(4, last(4))]);
    let short = memory(&two, 4, 1, &used(640)).unwrap();
    assert_eq!(
        (
            short.per_token_predicted,
            short.per_token_measured,
            short.as_predicted()
        ),
        (160, Some(160.0), true)
    );
    let long = memory(&two, 10, 2, &used(2 * (10 + 4) * 80)).unwrap();
    assert_eq!(
        (long.per_token_measured, long.used_predicted, long.as_predicted()),
        (None, 2240, true)
    );
    assert!(!memory(&two, 10, 2, &used(2239)).unwrap().as_predicted());
    let none = memory(&spec(vec![layer(0, Retention::All)]), 10, 1, &used(0)).unwrap();
    assert_eq!(
        (none.per_token_predicted, none.per_token_measured, none.as_predicted()),
        (0, Some(0.0), true)
    );
}

#[test]
fn times_of_a_batch() {
    let record = |repeat, ttft_ms: [f64; 2], gap: f64| SpeedRecord {
        cell: "c".into(),
        repeat,
        prompt_tokens: 10,
        new_tokens: 3,
        batch: 2,
        warm_up_tokens: 3,
        ttft_ms: ttft_ms.to_vec(),
        gaps_ms: vec![vec![gap; 2]; 2],
        tokens: vec![0; 3],
        cached_tokens: 0,
        work: Some(WorkRecord {
            prefill_bytes: 600,
            prefill_flops: 9_000,
            decode_bytes: 200,
            decode_flops: 1_000,
            decode_steps: 2,
        }),
        process: None,
        cached: Some(CachedRecord {
            ttft_ms: ttft_ms.map(|ms| ms / 10.0).to_vec(),
            cached_tokens: vec![9, 8 + repeat],
        }),
        usage: USAGE,
        kernels: vec![],
    };
    let (a, b) = (record(0, [10.0, 20.0], 1.0), record(1, [40.0, 30.0], 3.0));
    let other = SpeedRecord {
        prompt_tokens: 11,
        ..record(0, [1e6, 1e6], 1e6)
    };
    let rates = Rates {
        threads: 1,
        read_bytes_per_second: 4e4,
        f32_flops_per_second: 4e5,
    };
    let point = |tokens| Point::Prompt { tokens, batch: 2 };
    let speed = speed_at(
        &point(10),
        &[&a, &other, &b],
        &spec(vec![layer(100, Retention::All)]),
        (0, Some(&rates)),
    )
    .unwrap();
    assert_eq!(
        speed.ttft_ms,
        Spread {
            median: 30.0,
            min: 20.0,
            max: 40.0,
            interval: None,
        },
        "until the last sequence has its token"
    );
    // 600 bytes and 9000 operations in 30 ms are 20 KB/s and 300 kFLOP/s; a step is half of 200 and 1000, in 2 ms.
    let work = speed.work.unwrap();
    let of = |phase: Phase| {
        (
            phase.bytes,
            phase.flops,
            phase.fraction_of_bandwidth,
            phase.fraction_of_flops,
        )
    };
    assert_eq!(of(work.prefill), (600, 9_000, Some(0.5), Some(0.75)));
    assert_eq!(of(work.decode.unwrap()), (100, 500, Some(1.25), Some(0.625)));
    let cached = speed.cached.unwrap();
    assert_eq!(
        (cached.ttft_ms.median, cached.ttft_ms.max, cached.tokens),
        (3.0, 4.0, 8)
    );
    let gaps = speed.gaps.unwrap();
    assert_eq!((speed.repeats, gaps.count, gaps.p50, gaps.mean), (2, 8, 2.0, 2.0));
    assert_eq!(speed.decode_tokens_per_s, Some(1000.0));
    assert!(
        (speed.prefill_tokens_per_s - 20.0 / 0.03).abs() < 1e-9,
        "{}",
        speed.prefill_tokens_per_s
    );
    let memory = speed.memory.unwrap();
    assert_eq!((memory.tokens, memory.used_predicted), (12, 2 * 12 * 80));
    assert_eq!(speed_at(&point(12), &[&a], &spec(vec![]), (0, None)), None);
}

#[test]
fn quality_of_some_windows_only_is_none() {
    // As a resolved.toml: its workload says how many windows there ought to be.
    let model = "schema = 1\nname = \"m\"\n[cell.config.model]\npath = \"/m\"\n";
    let head = "schema = 1\nname = \"x\"\nrepeats = 1\nseed = 0\n[measure]\nquality = true\nspeed = true\n";
    let workload = "[workload]\nkind = \"text\"\ntext = \"/t\"\nwindows = 2\nwindow = 2\n\
        chunk = 0\noffset = 0\nprompts = []\nnew_tokens = 1\nbatch = 1\n";
    let experiment = format!("{head}{workload}[[cell]]\nname = \"c\"\n[cell.config]\n{model}");
    let experiment: Experiment = toml::from_str(&experiment).unwrap();
    let cell = &experiment.cells()[0];
    let about = crate::CellRecord {
        cell: "c".into(),
        weights: String::new(),
        weights_bytes: 7,
        device: String::new(),
        threads: 1,
        spec: spec(vec![layer(4, last(4))]),
    };
    let mut records = vec![Record::Cell(about), Record::Quality(window(0, &[1.0], &[1.0]))];
    let row = from_records(&experiment, cell, &records, None, None);
    assert_eq!((row.quality, row.memory, row.weights_bytes), (None, None, Some(7)));
    assert_eq!(
        (row.layout.as_str(), row.key_format.as_str(), row.value_format.as_str()),
        ("ring", "f32", "f16")
    );
    records.push(Record::Quality(window(1, &[1.0], &[1.0])));
    assert!(from_records(&experiment, cell, &records, None, None).quality.is_some());
}

#[test]
fn errors_of_a_layer_are_over_all_windows() {
    let record = |window, layer, squared_error, squared_norm, max_difference| LayerErrorRecord {
        cell: "c".into(),
        window,
        layer,
        squared_error,
        squared_norm,
        max_difference,
    };
    // Layer 1: (3 + 6) / (100 + 125), the root of it 0.2; a mean of the windows' ratios would be another number.
    let records = [
        record(0, 0, 0.0, 0.0, 0.0),
        record(0, 1, 3.0, 100.0, 0.5),
        record(1, 1, 6.0, 125.0, 0.25),
        record(1, 0, 0.0, 4.0, 0.0),
    ];
    let all: Vec<&LayerErrorRecord> = records.iter().collect();
    let errors = layer_errors(&all, 2, 2);
    assert_eq!(
        (errors[0].layer, errors[0].relative_error),
        (0, 0.0),
        "nothing over nothing"
    );
    assert_eq!(
        (errors[1].layer, errors[1].relative_error, errors[1].max_difference),
        (1, 0.2, 0.5)
    );
    assert_eq!(layer_errors(&all[..3], 2, 2), [], "a layer of a window is missing");
}

#[test]
fn recall_counts_whole_answers_and_whole_trials() {
    let text = "schema = 1\nname = \"x\"\nrepeats = 1\nseed = 0\ncell = []\n[measure]\nquality = true\nspeed = true\n\
        [workload]\nkind = \"text\"\ntext = \"/t\"\nwindows = 2\nwindow = 2\nchunk = 0\noffset = 0\nprompts = []\n\
        new_tokens = 1\nbatch = [1, 2]\n[[workload.recall]]\nkind = \"needles\"\ncount = 4\nstyle = \"words\"\n\
        lengths = [64, 32]\ndepths = [100.0, 0.0]\ntrials = 2\n";
    let experiment: Experiment = toml::from_str(text).unwrap();
    let record = |tokens, depth_percent, trial, answer: [u32; 2]| RecallRecord {
        cell: "c".into(),
        task: "needles 4".into(),
        tokens,
        depth_percent,
        trial,
        expected: vec![7, 8],
        answer: answer.to_vec(),
    };
    let records = [
        record(64, 0.0, 0, [7, 8]),
        record(64, 0.0, 1, [7, 9]),
        record(64, 100.0, 1, [7, 8]),
        record(64, 100.0, 0, [7, 8]),
        record(32, 100.0, 0, [7, 8]),
    ];
    let rows = recall(&experiment, &records.iter().collect::<Vec<_>>());
    let short: Vec<_> = rows
        .iter()
        .map(|r| (r.tokens, r.depth_percent, r.correct, r.trials))
        .collect();
    assert_eq!(
        short,
        [(64, 100.0, 2, 2), (64, 0.0, 1, 2)],
        "one trial of 32 is missing"
    );
}
