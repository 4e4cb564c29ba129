//! Answers, figures and the page, of rows that were made up.

use super::super::answer::{best, first_budget, ranked};
use super::super::figure::{self, Style};
use super::super::{Facts, Report, page, samples};
use super::good;
use crate::{LayerError, QualityRecord, Recall, Record, Row};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

/// A report of cells: name, bytes a token, KL, whether it is lossy.
fn report(cells: &[(&str, f64, f64, bool)]) -> Report<'static> {
    let mut report = Report {
        runs: Vec::new(),
        rows: Vec::new(),
        facts: Vec::new(),
        groups: vec!["m".into()],
    };
    for (i, &(name, bytes, kl, lossy)) in cells.iter().enumerate() {
        let mut row = good();
        row.cell = name.into();
        row.lossy = if lossy {
            vec!["rows are dropped".into()]
        } else {
            Vec::new()
        };
        if let Some(quality) = &mut row.quality {
            quality.kl_mean = kl;
        }
        report.rows.push(row);
        report.facts.push(Facts {
            group: 0,
            spec: None,
            remembers: bytes > 0.0,
            failed: false,
            bytes_per_token: Some(bytes),
            kl: Some(kl),
            style: Style::nth(i),
        });
    }
    report
}

const CELLS: [(&str, f64, f64, bool); 6] = [
    ("none", 0.0, 0.0, false),
    ("f32", 4096.0, 0.0, false),
    ("f16", 2048.0, 1e-6, false),
    ("int8", 1088.0, 1e-4, true),
    ("int4", 576.0, 0.05, true),
    ("bad", 1000.0, 0.9, true),
];

#[test]
fn the_answer_is_the_least_loss_that_fits_and_of_exact_caches_the_smallest() {
    let mut report = report(&CELLS);
    let name = |report: &Report<'_>, budget: f64| {
        let ranked = ranked(report, 0);
        best(&ranked, budget).map(|found| report.rows[found.row].cell.clone())
    };
    for (budget, want) in [
        (100.0, None),
        (576.0, Some("int4")),
        (1023.0, Some("int4")),
        (1088.0, Some("int8")),
        (2047.0, Some("int8")),
        (2048.0, Some("f16")),
        (1e9, Some("f16")),
    ] {
        assert_eq!(name(&report, budget).as_deref(), want, "{budget}");
    }
    assert_eq!(first_budget(&ranked(&report, 0)), 1024.0, "the middle of five is 1088");
    report.facts[2].failed = true;
    assert_eq!(
        name(&report, 2048.0).as_deref(),
        Some("int8"),
        "what failed is no answer"
    );
    report.facts[3].kl = None;
    assert_eq!(
        name(&report, 2048.0).as_deref(),
        Some("int4"),
        "a loss that nobody measured comes last"
    );
    assert!(ranked(&report, 1).is_empty());
}

#[test]
fn figures_appear_with_their_data() {
    let mut report = report(&CELLS);
    let names =
        |report: &Report<'_>| -> Vec<String> { figure::all(report).unwrap().into_iter().map(|f| f.name).collect() };
    assert_eq!(names(&report), ["quality", "itl", "times"]);
    for row in &mut report.rows {
        row.layer_errors = (0..3)
            .map(|layer| LayerError {
                layer,
                relative_error: 0.1,
                max_difference: 1.0,
            })
            .collect();
        for (task, tokens, depth_percent) in [("needle", 64, 0.0), ("needle", 128, 50.0), ("tracking", 64, 0.0)] {
            row.recall.push(Recall {
                task: task.into(),
                tokens,
                depth_percent,
                trials: 4,
                correct: 3,
            });
        }
    }
    assert_eq!(
        names(&report),
        [
            "quality",
            "itl",
            "times",
            "layer-error",
            "recall-needle",
            "recall-tracking"
        ]
    );
    for figure in figure::all(&report).unwrap() {
        for svg in [&figure.paper, &figure.wide, &figure.narrow] {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}: {svg}", figure.name);
        }
        assert!(
            figure.paper.contains("<title>") && figure.paper.contains("#FFFFFF"),
            "{}",
            figure.name
        );
        if figure.name == "recall-needle" {
            // Six cells, two of four places measured.
            assert_eq!(figure.wide.matches("\n75\n").count(), 12);
        }
    }
    for row in &mut report.rows {
        (row.speed, row.quality) = (Vec::new(), None);
    }
    report.facts.iter_mut().for_each(|facts| facts.kl = None);
    assert_eq!(names(&report), ["layer-error", "recall-needle", "recall-tracking"]);
}

/// On the front are f32, f16, int8 and int4; `bad` is beaten by int4 in both, and `none` keeps nothing.
#[test]
fn the_front_is_what_nothing_beats_in_both() {
    let report = report(&CELLS);
    let figures = figure::all(&report).unwrap();
    let quality = figures.iter().find(|f| f.name == "quality").unwrap();
    let rings = quality.wide.matches("r=\"9\"").count();
    assert_eq!(rings, 4);
    // Beside its point, and in the legend.
    for (name, times) in [
        ("f32", 2),
        ("f16", 2),
        ("int8", 2),
        ("int4", 2),
        ("bad", 1),
        ("none", 0),
    ] {
        assert_eq!(quality.wide.matches(&format!("\n{name}\n")).count(), times, "{name}");
    }
}

#[test]
fn what_others_wrote_is_text_on_the_page() {
    let evil = "<script>alert(1)</script>";
    let mut report = report(&[(evil, 1024.0, 0.1, true), ("b", 2048.0, 0.0, false)]);
    for row in &mut report.rows {
        row.note = Some("</style><img src=x onerror=alert(2)>".into());
        row.lossy = vec!["{{ 7 * 7 }} & \"quoted\"".into()];
        row.error = None;
    }
    report.rows[1].error = Some("<iframe>".into());
    let figures = figure::all(&report).unwrap();
    let page = page::page(&report, &figures, &[]).unwrap();
    assert!(page.contains("&lt;script&gt;alert(1)"), "the name is shown");
    for tag in ["<script>alert", "<img", "<iframe", "</style><"] {
        assert!(!page.contains(tag), "{tag}");
    }
    assert!(page.contains("{{ 7 * 7 }} &amp; &quot;quoted&quot;"));
    assert_eq!(page.matches("<script").count(), 2, "its data, and its own script");
}

/// What stands in the file is what was measured, column by column.
#[test]
fn samples_are_read_back_from_parquet() {
    let quality = |cell: &str, window, kl: &[f64]| {
        Record::Quality(QualityRecord {
            cell: cell.into(),
            window,
            mean_nll_nats: 0.0,
            oracle_mean_nll_nats: 0.0,
            nll_nats: vec![],
            oracle_nll_nats: vec![],
            kl_nats: kl.to_vec(),
            logit_difference: vec![],
            top1_agreed: 1,
        })
    };
    let recall = Record::Recall(crate::RecallRecord {
        cell: "ä".into(),
        task: "needle".into(),
        tokens: 64,
        depth_percent: 12.5,
        trial: 2,
        expected: vec![1],
        answer: vec![1],
    });
    let records = [quality("a", 3, &[0.25, 1e-300]), recall];
    let bytes = samples::of_records("run", &records).unwrap();
    assert_eq!(
        bytes,
        samples::of_records("run", &records).unwrap(),
        "equal records make equal files"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let reader = SerializedFileReader::new(file.reopen().unwrap()).unwrap();
    let about = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
    let lines: Vec<Vec<(String, Field)>> = reader
        .get_row_iter(None)
        .unwrap()
        .map(|row| {
            row.unwrap()
                .get_column_iter()
                .map(|(name, field)| (name.clone(), field.clone()))
                .collect()
        })
        .collect();
    let get = |line: usize, name: &str| lines[line].iter().find(|(n, _)| n == name).unwrap().1.clone();
    let text = |text: &str| Field::Str(text.into());
    assert_eq!(lines.len(), 4);
    for (name, want) in [
        ("run", text("run")),
        ("cell", text("a")),
        ("metric", text("kl")),
        ("unit", text("nats")),
        ("window", Field::Long(3)),
        ("position", Field::Long(2)),
        ("repeat", Field::Null),
        ("depth_percent", Field::Null),
        ("value", Field::Double(1e-300)),
    ] {
        assert_eq!(get(1, name), want, "{name}");
    }
    assert_eq!(
        (get(0, "value"), get(2, "metric")),
        (Field::Double(0.25), text("top1_agreed"))
    );
    for (name, want) in [
        ("cell", text("ä")),
        ("metric", text("recall:needle")),
        ("tokens", Field::Long(64)),
        ("repeat", Field::Long(2)),
        ("depth_percent", Field::Double(12.5)),
        ("value", Field::Double(1.0)),
    ] {
        assert_eq!(get(3, name), want, "{name}");
    }
    for (name, _) in &lines[0] {
        assert!(
            about.iter().any(|entry| entry.key == *name && entry.value.is_some()),
            "{name} is not explained"
        );
    }
}

/// A name that a spreadsheet would run is marked as text; numbers stay numbers.
#[test]
fn no_field_of_a_csv_is_a_formula() {
    let rows = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "plain = text", "-1.5"].map(|cell| Row {
        cell: cell.into(),
        ..good()
    });
    let text = super::results_csv(&rows).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names: Vec<String> = reader
        .records()
        .map(|line| line.unwrap()[0].to_owned())
        .step_by(2)
        .collect();
    assert_eq!(
        names,
        [
            "'=1+1",
            "'+cmd|' /C calc'!A0",
            "'-2+3",
            "'@SUM(A1)",
            "plain = text",
            "-1.5"
        ]
    );
}
