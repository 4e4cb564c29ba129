//! What a cache saves while a text is generated token by token, and what it does not.

use super::axis::{Axis, Scale};
use super::chart::Series;
use super::frame::Refused;
use super::palette::Style;
use super::{About, Figure, lengths};
use crate::report::Report;

/// Tokens whose query, key and value are projected until `n` tokens are there, one a step: with a cache each once, without one
/// the whole prefix in every step.
pub(super) fn projected(n: u64, cached: bool) -> f64 {
    let n = n as f64;
    if cached { n } else { n * (n + 1.0) / 2.0 }
}

/// Pairs of a query and a key that it may see, for each head and layer: with a cache the newest query meets all keys in every
/// step; without one all queries of the prefix do.
pub(super) fn scores(n: u64, cached: bool) -> f64 {
    let n = n as f64;
    let newest = n * (n + 1.0) / 2.0;
    if cached { newest } else { newest * (n + 2.0) / 3.0 }
}

/// Cumulative counts (logarithmic) against the tokens so far (logarithmic), up to the longest text of the report.
pub(super) fn figure(report: &Report<'_>) -> Result<Option<Figure>, Refused> {
    let longest = report.longest() as u64;
    if longest < 2 {
        return Ok(None);
    }
    let marks = || {
        (0..)
            .map(|power| 1_u64 << power)
            .take_while(|n| *n < longest)
            .chain([longest])
    };
    let line = |name: &str, style: Style, of: &dyn Fn(u64) -> f64| {
        Series::joined(name, style, marks().map(|n| (n as f64, of(n))).collect())
    };
    let series = vec![
        line("scores, no cache", Style::without_cache(1), &|n| scores(n, false)),
        line("projections, no cache", Style::without_cache(0), &|n| {
            projected(n, false)
        }),
        line("scores, cache", Style::nth(1), &|n| scores(n, true)),
        line("projections, cache", Style::nth(0), &|n| projected(n, true)),
    ];
    let points = || series.iter().flat_map(|series| &series.points);
    let x = lengths("tokens so far", points().map(|point| point.0));
    let count = |x: f64| if x < 1e4 { format!("{x:.0}") } else { format!("{x:.0e}") };
    let y = Axis::over("count so far", Scale::Log10, count, points().map(|point| point.1));
    let about = About {
        name: "operations",
        title: "What a cache saves, and what it does not",
        caption: format!(
            "Counted from the beginning of a text that is fed token by token, up to {longest} tokens; both axes are logarithmic. \
             Projections: tokens whose query, key and value are computed in a layer, n with a cache and n(n+1)/2 without. Scores: \
             pairs of a query and a key, for each head of a layer. The newest query has to meet every key, with a cache as \
             without: n(n+1)/2 scores remain. (As many as tokens are projected without a cache: the two lines in the middle.) Without a cache all older queries do it again: n(n+1)(n+2)/6. These are counts and \
             no measurements; a window would make fewer."
        ),
    };
    about.series(x, y, series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_loops() {
        for n in [1_u64, 2, 3, 10, 57] {
            let (mut tokens, mut cached, mut uncached) = (0, 0, 0);
            for step in 1..=n {
                tokens += step;
                cached += step;
                uncached += (1..=step).sum::<u64>();
            }
            assert_eq!(projected(n, true), n as f64);
            assert_eq!(projected(n, false), tokens as f64);
            assert_eq!(scores(n, true), cached as f64);
            assert_eq!(scores(n, false), uncached as f64);
        }
    }
}
