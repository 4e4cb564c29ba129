//! Tables and files of a few rows that were made up.
#![allow(clippy::unwrap_used)]
mod side_by_side;

use super::csv_files::{layers_csv, results_csv};
use super::*;
use crate::{Cached, Gaps, Memory, Quality, Speed, Spread};
use kvlab_core::{CacheSpec, Exactness, Format, LayerId, LayerSpec, Retention, RowSpec, Value, Visibility};

fn good() -> Row {
    let memory = Memory {
        tokens: 31,
        sequences: 1,
        per_token_predicted: 2048,
        per_token_measured: Some(2048.0),
        used_predicted: 63_488,
        used_measured: 63_488,
        reserved: 1 << 20,
        peak: 1 << 21,
    };
    let gaps = Gaps {
        count: 4,
        p50: 1.5,
        p50_interval: (1.25, 1.75),
        p95: 2.5,
        p99: 3.5,
        mean: 2.0,
    };
    let speed = |prompt_tokens| Speed {
        prompt_tokens,
        new_tokens: 16,
        batch: 1,
        repeats: 2,
        ttft_ms: Spread {
            median: 12.5,
            min: 11.0,
            max: 14.0,
            interval: None,
        },
        cached: None,
        prefill_tokens_per_s: 1280.0,
        gaps: Some(gaps),
        decode_tokens_per_s: Some(500.0),
        memory: Some(memory),
        work: None,
        process: None,
    };
    Row {
        cell: "good".into(),
        note: None,
        model: "m".into(),
        device: "cpu".into(),
        variant: Some("swa".into()),
        layout: "ring".into(),
        key_format: "f32".into(),
        value_format: "f16".into(),
        lossy: Vec::new(),
        error: None,
        weights_bytes: Some(4096),
        memory: Some(memory),
        speed: vec![speed(16), speed(64)],
        quality: Some(Quality {
            tokens: 30,
            perplexity: 5.5,
            oracle_perplexity: 5.0,
            nll_difference: 0.0953,
            nll_difference_se: Some(0.01),
            nll_difference_interval: None,
            kl_mean: 0.002,
            kl_mean_interval: None,
            kl_p99: 0.03,
            kl_max: 0.04,
            top1_percent: 99.99,
            max_logit_difference: 1.25,
            greedy_tokens: 16,
            first_divergence: None,
        }),
        kernels: vec!["a".into(), "b".into()],
        ..Row::default()
    }
}

fn rows() -> Vec<Row> {
    let lossy = Row {
        cell: "lo|ssy".into(),
        lossy: vec!["rows are dropped".into()],
        ..good()
    };
    let failed = Row {
        cell: "failed".into(),
        error: Some("NaN, at \"3\"".into()),
        variant: None,
        memory: None,
        speed: Vec::new(),
        quality: None,
        ..good()
    };
    let memory = good().memory.map(|memory| Memory {
        used_measured: 1,
        ..memory
    });
    vec![
        good(),
        lossy,
        failed,
        Row {
            cell: "odd".into(),
            memory,
            ..good()
        },
    ]
}

#[test]
fn every_column_of_the_table_and_every_mark() {
    let table = terminal(&rows(), None);
    let lines: Vec<&str> = table.lines().collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(lines[0]).join(" "),
        "cell cache K/V bytes/ used TTFT TTFT ITL ITL tok/s ppl ppl KL top-1 first"
    );
    assert_eq!(
        words(lines[1]).join(" "),
        "token at end ms ms p50 ms p50 ms Δ % nats % diff"
    );
    assert_eq!(words(lines[2]).join(" "), "@16 @64 @16 @64");
    assert_eq!(
        words(lines[4]).join(" "),
        "good swa ring f32/f16 2048 62.0 KiB 12.5 12.5 1.50 1.50 500 5.50 +10.00 0.0020 <100 none"
    );
    assert!(
        lines[5].starts_with("~ lo|ssy ") && lines[7].starts_with("* odd "),
        "{table}"
    );
    assert_eq!(words(lines[6]).join(" "), "! failed - f32/f16 - - - - - - - - - - - -");
    let notes = table.split_once("\n\n").unwrap().1;
    assert!(
        notes.contains("~ lossy: not the model's own attention\n  lo|ssy: rows are dropped\n"),
        "{notes}"
    );
    assert!(notes.contains("! failed\n  failed: NaN, at \"3\"\n"), "{notes}");
    assert!(notes.contains("  odd: 63488 B predicted, 1 B in use\n"), "{notes}");
}

#[test]
fn a_terminal_of_130_columns_is_enough() {
    let wide = Row {
        cell: "mha to gqa, 2 heads".into(),
        ..good()
    };
    let table = terminal(&[wide.clone(), wide], Some(130));
    let widest = table.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 130, "{widest} columns:\n{table}");
    assert!(table.contains("mha to gqa, 2 heads"), "nothing is wrapped:\n{table}");
}

#[test]
fn columns_without_numbers_are_left_out() {
    let mut row = good();
    row.quality = None;
    let table = terminal(&[row], None);
    assert!(!table.contains("ppl") && table.contains("TTFT"), "{table}");
    let models = [
        good(),
        Row {
            model: "n".into(),
            ..good()
        },
    ];
    assert!(terminal(&models, None).lines().next().unwrap().contains("model"));
}

/// T43: a format that reserves less and yet holds more at its peak is named.
#[test]
fn t43_a_peak_that_eats_the_saving_is_said() {
    let with = |cell: &str, reserved, peak| {
        let mut row = good();
        row.cell = cell.into();
        row.memory = row.memory.map(|memory| Memory {
            reserved,
            peak,
            ..memory
        });
        row
    };
    let table = tables::memory(&[with("int4", 100, 900), with("f32", 800, 850)]).unwrap();
    assert_eq!(table.remarks.len(), 1);
    let remark = &table.remarks[0];
    assert!(
        remark.contains("int4 reserves less than f32, and held more"),
        "{remark}"
    );
    let table = tables::memory(&[with("int4", 100, 400), with("f32", 800, 850)]).unwrap();
    assert_eq!(table.remarks, [""; 0]);
}

/// T56: times with a stored prompt stand beside the cold ones, and only where there are some.
#[test]
fn t56_cold_and_cached_times_stand_apart() {
    let mut found = good();
    found.cell = "found".into();
    for speed in &mut found.speed {
        speed.cached = Some(Cached {
            ttft_ms: Spread {
                median: 0.75,
                min: 0.5,
                max: 1.0,
                interval: None,
            },
            tokens: speed.prompt_tokens - 1,
        });
    }
    let rows = [good(), found];
    let table = terminal(&rows, None);
    let line = |cell: &str| table.lines().find(|line| line.starts_with(cell)).unwrap().to_owned();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert!(
        words(&line("found"))
            .join(" ")
            .contains("12.5 12.5 0.750 0.750 15 63 1.50"),
        "{table}"
    );
    assert!(
        words(&line("good")).join(" ").contains("12.5 12.5 - - - - 1.50"),
        "{table}"
    );
    assert!(!terminal(&[good()], None).contains("cached"));
    let text = results_csv(&rows).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers().unwrap().clone();
    let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let field = |line: usize, name: &str| lines[line][names.iter().position(|n| n == name).unwrap()].to_owned();
    let cached = |line| {
        [
            field(line, "ttft_ms"),
            field(line, "ttft_cached_ms"),
            field(line, "cached_tokens"),
        ]
    };
    assert_eq!(
        (cached(0), cached(3)),
        (
            ["12.5", "", ""].map(str::to_owned),
            ["12.5", "0.75", "63"].map(str::to_owned)
        )
    );
}

#[test]
fn the_csv_has_units_in_its_names_and_a_line_for_what_failed() {
    let text = results_csv(&rows()).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 2 + 2 + 1 + 2);
    let field = |line: usize, name: &str| lines[line][names.iter().position(|n| n == name).unwrap()].to_owned();
    for (name, want) in [
        ("cell", "good"),
        ("prompt_tokens", "64"),
        ("lossy", "false"),
        ("bytes_per_token", "2048"),
        ("used_bytes", "63488"),
        ("ttft_ms", "12.5"),
        ("itl_p50_ms", "1.5"),
        ("itl_p50_low_ms", "1.25"),
        ("itl_p99_ms", "3.5"),
        ("tpot_ms", "2"),
        ("decode_tokens_per_s", "500"),
        ("perplexity", "5.5"),
        ("kl_mean_nats", "0.002"),
        ("first_divergence_step", ""),
        ("kernels", "a b"),
        ("error", ""),
    ] {
        assert_eq!(field(1, name), want, "{name}");
    }
    assert_eq!(
        (field(2, "lossy"), field(2, "lossy_reasons")),
        ("true".into(), "rows are dropped".into())
    );
    assert_eq!(
        (field(4, "cell"), field(4, "error")),
        ("failed".into(), "NaN, at \"3\"".into())
    );
    assert_eq!(
        (field(4, "ttft_ms"), field(4, "perplexity"), field(4, "lossy")),
        Default::default()
    );
    for name in names
        .iter()
        .filter(|name| name.contains("ttft") || name.contains("itl") || name.contains("bytes"))
    {
        let unit = [
            "_ms",
            "_bytes",
            "_bytes_predicted",
            "bytes_per_token",
            "bytes_per_token_predicted",
        ];
        assert!(unit.iter().any(|unit| name.ends_with(unit)), "{name} has no unit");
    }
}

#[test]
fn the_bytes_of_layers_sum_to_those_of_the_cache() {
    let layer = |i, key, rows_per_sequence| LayerSpec {
        layer: LayerId(i),
        variant: "gqa".into(),
        layout: "contiguous".into(),
        query_heads: 4,
        row: RowSpec {
            heads: 2,
            key,
            value: Value::PrefixOfKey(8),
        },
        visibility: Visibility::Causal,
        retention: Retention::All,
        key: Format::plain("f16", 16),
        value: Format::plain("f16", 16),
        rows_per_sequence,
        page_size: 0,
        seal: None,
    };
    let spec = CacheSpec {
        variant: "gqa".into(),
        layers: vec![layer(0, 16, 10), layer(1, 32, 20)],
        capacity: 20,
        sequences: 3,
        exactness: Exactness::Exact,
    };
    let text = layers_csv(&[("a", &spec)]).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers().unwrap().clone();
    let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let sum = |name: &str| {
        let column = names.iter().position(|n| n == name).unwrap();
        lines
            .iter()
            .map(|line| line[column].parse::<u64>().unwrap())
            .sum::<u64>()
    };
    assert_eq!(
        (lines.len(), sum("bytes_per_token"), sum("reserved_bytes")),
        (2, spec.per_token().0, spec.allocated().0)
    );
}
