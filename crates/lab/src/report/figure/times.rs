//! Time of prefill and decode, cell by cell.

use super::axis::Scale;
use super::dots::{Dot, Dots, Line};
use super::frame::Refused;
use super::palette::Style;
use super::{About, Figure, ms, of_one_batch};
use crate::report::Report;

/// Time (ms, logarithmic) of the prompt and of everything after it, at the longest prompt of each cell.
pub(super) fn figure(report: &Report<'_>) -> Result<Option<Figure>, Refused> {
    let mut lines = Vec::new();
    let (mut prompt, mut new) = (0, 0);
    let any_cached = report
        .rows
        .iter()
        .flat_map(|row| &row.speed)
        .any(|speed| speed.cached.is_some());
    for row in &report.rows {
        let Some(speed) = of_one_batch(row).max_by_key(|speed| speed.prompt_tokens) else {
            continue;
        };
        (prompt, new) = (prompt.max(speed.prompt_tokens), new.max(speed.new_tokens));
        let mut dots = vec![Dot {
            x: speed.ttft_ms.median,
            range: Some((speed.ttft_ms.min, speed.ttft_ms.max)),
            style: 0,
        }];
        dots.extend(speed.gaps.map(|gaps| Dot {
            x: gaps.mean * speed.new_tokens.saturating_sub(1) as f64,
            range: None,
            style: 1,
        }));
        dots.extend(speed.cached.map(|cached| Dot {
            x: cached.ttft_ms.median,
            range: Some((cached.ttft_ms.min, cached.ttft_ms.max)),
            style: 2,
        }));
        lines.push(Line {
            name: row.cell.clone(),
            dots,
        });
    }
    let mut legend = vec![("prefill", Style::nth(0)), ("decode", Style::nth(1))];
    if any_cached {
        legend.push(("prefill, stored", Style::nth(2)));
    }
    let dots = Dots {
        title: "time, ms",
        scale: Scale::Log10,
        label: ms,
        legend,
        lines,
    };
    if !dots.any() {
        return Ok(None);
    }
    let about = About {
        name: "times",
        title: "Time of prefill and decode",
        caption: format!(
            "Prefill: time to first token of a prompt of {prompt} tokens, median over repeats, with the range of the repeats. Decode: \
             the {} tokens after the first, at their mean gap. The axis is logarithmic.{}",
            new.saturating_sub(1),
            if any_cached {
                " Prefill, stored: the same prompt again, where the cache finds what it has stored."
            } else {
                ""
            }
        ),
    };
    about.drawn(|title, frame| dots.draw(title, frame)).map(Some)
}
