//! `report.md`: what was run, on what, what came out, and how to run it again.

use super::tables::{self, Table};
use super::{Report, footnotes};
use crate::{Comparison, LabError, Row};

/// The report of one run, or of several side by side.
///
/// # Errors
/// [`LabError::Write`].
pub(crate) fn markdown(report: &Report<'_>) -> Result<String, LabError> {
    let mut out = format!("# {}\n\n", escape(&report.title()));
    for (label, comparison) in &report.runs {
        if report.is_several() {
            out += &format!("## {}\n\n", escape(label));
        }
        out += &what_was_run(comparison);
        out += "\n";
    }
    if report.is_several() {
        out += "## What differs between the runs\n\n";
        let differences = report.differences();
        for (what, values) in &differences {
            let values = report
                .runs
                .iter()
                .zip(values)
                .map(|((label, _), value)| format!("{} ({})", escape(value), escape(label)));
            out += &format!("- {what}: {}\n", values.collect::<Vec<_>>().join(", "));
        }
        if differences.is_empty() {
            out += "Nothing but the time.\n";
        }
    }
    out += section(&tables::result(&report.rows)?).trim_start_matches('\n');
    for (mark, reasons) in footnotes(&report.rows) {
        out += &format!("\n`{}` {}:\n\n", mark.sign(), mark.meaning());
        for (reason, cells) in reasons {
            out += &format!("- {}: {}\n", escape(&cells.join(", ")), escape(&reason));
        }
    }
    out += &notes(&report.rows);
    for table in tables::details(&report.rows)? {
        out += &section(&table);
    }
    out += &how_it_was_measured(report);
    Ok(out)
}

fn what_was_run(comparison: &Comparison) -> String {
    let mut out = comparison.summary() + "\n\n";
    for (name, value) in comparison.environment.lines() {
        out += &format!("- {name}: {}\n", escape(&value));
    }
    if comparison.environment.build == "debug" {
        out += "\n**This is a debug build: its times say little.** Build with `cargo build --release`.\n";
    }
    out
}

/// The notes of the experiment file, each with the cells that share it.
fn notes(rows: &[Row]) -> String {
    let items = super::notes(rows).into_iter();
    let items = items.map(|(note, cells)| format!("- {}: {}\n", escape(&cells.join(", ")), escape(note.trim())));
    let items: String = items.collect();
    if items.is_empty() {
        items
    } else {
        format!("\n## Notes\n\n{items}")
    }
}

fn how_it_was_measured(report: &Report<'_>) -> String {
    let mut out = String::from("\n## How it was measured\n\n");
    for line in report.method() {
        out += &format!("- {line}\n");
    }
    out += "- Raw samples are in `records.jsonl` and `records.parquet`, the resolved configs in `resolved.toml`, all numbers in \
            `results.csv`, figures in `figures/`. `report.html` is this report with the figures.\n";
    for (label, comparison) in &report.runs {
        let which = if report.is_several() {
            format!(" ({})", escape(label))
        } else {
            String::new()
        };
        out += &format!(
            "\nRun it again{which} (`--fresh`: from the beginning):\n\n```sh\n{}\n```\n",
            comparison.again()
        );
    }
    out
}

/// A table, with its title and what is said about it.
fn section(table: &Table) -> String {
    let mut out = format!("\n## {}\n\n", table.title);
    if !table.about.is_empty() {
        out += &format!("{}\n\n", table.about);
    }
    out += &bare(table);
    for remark in &table.remarks {
        out += &format!("\n{remark}\n");
    }
    out
}

/// A table alone.
pub(super) fn bare(table: &Table) -> String {
    let line = |fields: Vec<String>| format!("| {} |\n", fields.join(" | "));
    let sides = table
        .header
        .iter()
        .map(|(_, right)| if *right { "---:" } else { "---" }.to_owned());
    let names = table.header.iter().map(|(name, _)| escape(name)).collect();
    let body = table
        .lines
        .iter()
        .map(|fields| line(fields.iter().map(|text| escape(text)).collect()));
    [line(names), line(sides.collect())].into_iter().chain(body).collect()
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
