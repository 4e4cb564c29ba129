//! Bytes of a sequence against its length.

use super::axis::{Axis, Scale};
use super::chart::Series;
use super::frame::Refused;
use super::{About, Figure, bytes, lengths};
use crate::report::Report;

/// Lengths at which a spec is asked, between the shortest and the longest.
const STEPS: usize = 48;
/// The curves go on to so many times the longest measured length, or to the capacity.
const BEYOND: usize = 4;

/// Bytes in use (logarithmic) of one sequence against its length (tokens, logarithmic): lines from the spec, points measured.
pub(super) fn figure(report: &Report<'_>) -> Result<Option<Figure>, Refused> {
    let measured: Vec<Vec<(f64, f64)>> = report
        .rows
        .iter()
        .map(|row| {
            let memories = row.speed.iter().filter_map(|speed| speed.memory).chain(row.memory);
            let mut points: Vec<(f64, f64)> = memories
                .filter(|memory| memory.used_measured > 0 && memory.tokens > 0)
                .map(|m| (m.tokens as f64, m.used_measured as f64 / m.sequences.max(1) as f64))
                .collect();
            points.dedup();
            points
        })
        .collect();
    let tokens = || measured.iter().flatten().map(|point| point.0);
    let longest = tokens().fold(report.longest() as f64, f64::max);
    let shortest = tokens().fold(longest, f64::min).min(longest / 16.0).max(1.0);
    let mut series = Vec::new();
    for (i, (row, facts)) in report.rows.iter().zip(&report.facts).enumerate() {
        let Some(spec) = &facts.spec else { continue };
        let end = (longest * BEYOND as f64).min(spec.capacity as f64);
        if !facts.remembers || end <= shortest {
            continue;
        }
        let length = |step: usize| shortest * (end / shortest).powf(step as f64 / STEPS as f64);
        let line = (0..=STEPS)
            .map(|step| length(step).round())
            .map(|n| (n, spec.used_at(n as usize).0 as f64));
        let mut line: Vec<(f64, f64)> = line.collect();
        line.dedup();
        series.push(Series {
            line,
            ..Series::dots(&row.cell, facts.style, measured[i].clone())
        });
    }
    let all = || series.iter().flat_map(|s| s.line.iter().chain(&s.points));
    let x = lengths("tokens of the sequence", all().map(|point| point.0));
    let y = Axis::over("bytes of one sequence", Scale::Log2, bytes, all().map(|point| point.1));
    let about = About {
        name: "memory",
        title: "Bytes against the length of the text",
        caption: "Bytes that a cache has in use for one sequence; both axes are logarithmic. Lines: predicted from what the cache \
            says that it stores. Points: measured. A line that bends drops rows, or waits for a group of rows before it packs \
            them. Cells without a cache keep nothing and are not shown."
            .to_owned(),
    };
    about.series(x, y, series)
}
