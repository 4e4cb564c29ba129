//! Quality against bytes: what is lost for what is saved.

use super::axis::{Axis, Scale};
use super::chart::{Chart, Series};
use super::frame::Refused;
use super::{About, Figure, bytes};
use crate::report::{Facts, Report, number};

/// Below this two distributions are the same but for rounding: cells below it are drawn on it.
const FLOOR: f64 = 1e-8;

/// KL divergence (nats, logarithmic) against bytes a token (logarithmic), for cells that keep rows.
pub(super) fn figure(report: &Report<'_>) -> Result<Option<Figure>, Refused> {
    let points: Vec<(usize, f64, f64)> = report
        .facts
        .iter()
        .enumerate()
        .filter_map(|(i, facts)| Some((i, facts.bytes_per_token?, facts.kl?.max(FLOOR))))
        .filter(|(i, x, _)| report.facts[*i].remembers && *x > 0.0)
        .collect();
    let x = Axis::over(
        "cache, bytes a token",
        Scale::Log2,
        bytes,
        points.iter().map(|point| point.1),
    );
    let interval = |i: usize| {
        report.rows[i]
            .quality
            .as_ref()
            .and_then(|quality| quality.kl_mean_interval)
    };
    let ends = points.iter().filter_map(|point| interval(point.0)).flatten();
    let y = Axis::over(
        "KL(oracle || cell), nats a token",
        Scale::Log10,
        number::power,
        points.iter().map(|point| point.2).chain(ends.map(|end| end.max(FLOOR))),
    );
    let (Some(x), Some(y), true) = (x, y, points.len() > 1) else {
        return Ok(None);
    };
    let series = points.iter().map(|&(i, bytes, kl)| {
        let (row, facts) = (&report.rows[i], &report.facts[i]);
        let whiskers = interval(i).map(|[low, high]| (bytes, low.max(FLOOR), high.max(FLOOR)));
        Series {
            whiskers: whiskers.into_iter().collect(),
            ..Series::dots(&row.cell, facts.style, vec![(bytes, kl)])
        }
    });
    let fronts = (0..report.groups.len()).map(|group| front(&report.facts, group));
    let front = fronts.filter(|front| front.len() > 1).map(|front| {
        let points = front.into_iter().filter_map(|i| {
            let (bytes, kl) = (report.facts[i].bytes_per_token?, report.facts[i].kl?);
            Some((bytes, kl.max(FLOOR), report.rows[i].cell.clone()))
        });
        points.collect()
    });
    let chart = Chart {
        series: series.collect(),
        // Names stand to the right of their points.
        x: x.roomier(0.16),
        y,
        fronts: front.collect(),
    };
    let models = if report.groups.len() > 1 { ", of each model" } else { "" };
    let about = About {
        name: "quality",
        title: "What is lost for what is saved",
        caption: format!(
            "Mean KL divergence of the next-token distribution from the uncached model's, over the scored tokens, against the bytes \
             that the cache holds for each token{}; both axes are logarithmic. Further left is smaller, further down is closer to \
             the model. Upright lines: 95 % interval, from the windows of the text. Ringed and joined: the Pareto front{models}, which no other cell beats in both. Points at {FLOOR:e} are \
             at or below it: equal up to rounding. Cells without a cache keep nothing and are not shown.",
            report.at_length()
        ),
    };
    about.chart(&chart).map(Some)
}

/// The cells of a group that no other beats in bytes and KL, from few bytes to many.
fn front(facts: &[Facts], group: usize) -> Vec<usize> {
    let mut cells: Vec<(usize, f64, f64)> = facts
        .iter()
        .enumerate()
        .filter(|(_, facts)| facts.group == group && facts.remembers && !facts.failed)
        .filter_map(|(i, facts)| Some((i, facts.bytes_per_token?, facts.kl?.max(FLOOR))))
        .collect();
    cells.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.2.total_cmp(&b.2)));
    let mut least = f64::INFINITY;
    cells.retain(|cell| {
        let better = cell.2 < least;
        least = least.min(cell.2);
        better
    });
    cells.into_iter().map(|cell| cell.0).collect()
}
