//! Time per token against the length of the prompt.

use super::axis::{Axis, Scale};
use super::chart::Series;
use super::frame::Refused;
use super::{About, Figure, lengths, ms, of_one_batch};
use crate::report::Report;

/// Median ITL (ms, logarithmic) against prompt length (tokens), for cells with two lengths or more.
pub(super) fn figure(report: &Report<'_>) -> Result<Option<Figure>, Refused> {
    let mut series = Vec::new();
    for (row, facts) in report.rows.iter().zip(&report.facts) {
        let gaps = of_one_batch(row).filter_map(|s| Some((s.prompt_tokens as f64, s.gaps?)));
        let mut gaps: Vec<_> = gaps.collect();
        gaps.sort_by(|a, b| a.0.total_cmp(&b.0));
        if gaps.len() > 1 {
            let points = gaps.iter().map(|(x, gaps)| (*x, gaps.p50)).collect();
            let whiskers = gaps
                .iter()
                .map(|(x, gaps)| (*x, gaps.p50_interval.0, gaps.p50_interval.1));
            series.push(Series {
                whiskers: whiskers.collect(),
                ..Series::joined(&row.cell, facts.style, points)
            });
        }
    }
    let points = || series.iter().flat_map(|series| &series.points);
    let ends = series.iter().flat_map(|s| &s.whiskers).flat_map(|w| [w.1, w.2]);
    let x = lengths("prompt, tokens", points().map(|point| point.0));
    let y = Axis::over(
        "ITL p50, ms",
        Scale::Log10,
        ms,
        points().map(|point| point.1).chain(ends),
    );
    let about = About {
        name: "itl",
        title: "Time per token against the length of the prompt",
        caption: "Median gap between tokens after a prompt of so many tokens; both axes are logarithmic. Upright lines: 95 % \
            bootstrap interval of the median. Grey and dashed: without a cache, where every token recomputes the whole prefix."
            .to_owned(),
    };
    about.series(x, y, series)
}
