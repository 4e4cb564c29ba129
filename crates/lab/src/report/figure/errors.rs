//! Where a cache loses: the error of the attention output, layer by layer.

use super::axis::{Axis, Scale};
use super::chart::Series;
use super::frame::Refused;
use super::{About, Figure, tokens};
use crate::report::{Report, number};

/// Relative errors below this are rounding.
const FLOOR: f64 = 1e-8;

/// Relative error (logarithmic) against the layer.
pub(super) fn figure(report: &Report<'_>) -> Result<Option<Figure>, Refused> {
    let with_errors = report
        .rows
        .iter()
        .zip(&report.facts)
        .filter(|(row, _)| !row.layer_errors.is_empty());
    let series = with_errors.map(|(row, facts)| {
        let points = row
            .layer_errors
            .iter()
            .map(|e| (e.layer as f64, e.relative_error.max(FLOOR)));
        Series::joined(&row.cell, facts.style, points.collect())
    });
    let series: Vec<Series> = series.collect();
    let points = || series.iter().flat_map(|series| &series.points);
    let x = Axis::over("layer", Scale::Whole, tokens, points().map(|point| point.0));
    let y = Axis::over(
        "relative error of the attention output",
        Scale::Log10,
        number::power,
        points().map(|point| point.1),
    );
    let about = About {
        name: "layer-error",
        title: "Where it is lost: error by layer",
        caption: format!(
            "Difference of the attention output from the uncached model's, over the norm of the latter (no unit, logarithmic), for \
             each layer. A layer also has what the layers below it did to its input. Points at {FLOOR:e} are at or below it."
        ),
    };
    about.series(x, y, series)
}
