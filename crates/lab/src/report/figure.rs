//! The figures of a report. Each is drawn three times: as a file for a paper, and for the page on a wide and on a narrow screen.

mod axis;
mod chart;
mod dots;
mod errors;
mod frame;
mod itl;
mod memory;
mod operations;
mod palette;
mod quality;
mod recall;
mod times;

pub(crate) use chart::Plot;
pub(crate) use palette::Style;

use super::Report;
use crate::{LabError, Row, Speed};
use axis::Axis;
use chart::{Chart, Series};
use frame::{Frame, Refused};

/// A figure, as SVG.
pub(crate) struct Figure {
    /// A name for files and links: lower-case letters and `-`.
    pub(crate) name: String,
    pub(crate) title: String,
    /// What is to be seen, with units.
    pub(crate) caption: String,
    /// With its title, on white.
    pub(crate) paper: String,
    pub(crate) wide: String,
    pub(crate) narrow: String,
    /// Where the plotting areas of `wide` and `narrow` are, for charts.
    pub(crate) plots: Option<[Plot; 2]>,
}

/// All figures that there are data for.
///
/// # Errors
/// [`LabError::Write`].
pub(crate) fn all(report: &Report<'_>) -> Result<Vec<Figure>, LabError> {
    let figures = [
        quality::figure(report),
        itl::figure(report),
        times::figure(report),
        memory::figure(report),
        errors::figure(report),
    ];
    let mut drawn = Vec::new();
    for figure in figures {
        drawn.extend(figure.map_err(refused)?);
    }
    drawn.extend(recall::figures(report).map_err(refused)?);
    drawn.extend(operations::figure(report).map_err(refused)?);
    Ok(drawn)
}

fn refused(error: Refused) -> LabError {
    LabError::Write {
        what: "a figure",
        reason: error.to_string(),
    }
}

/// What a figure is called, and what is said about it.
struct About<'a> {
    name: &'a str,
    title: &'a str,
    caption: String,
}

impl About<'_> {
    /// A figure of what `draw` draws into each frame.
    fn drawn(self, draw: impl Fn(&str, Frame) -> Result<String, Refused>) -> Result<Figure, Refused> {
        let Self { name, title, caption } = self;
        Ok(Figure {
            name: name.to_owned(),
            title: title.to_owned(),
            paper: described(&draw(title, Frame::Paper)?, title, &caption),
            wide: draw(title, Frame::Wide)?,
            narrow: draw(title, Frame::Narrow)?,
            caption,
            plots: None,
        })
    }

    /// A chart of these series without a front; `None` where there is nothing to span an axis.
    fn series(self, x: Option<Axis>, y: Option<Axis>, series: Vec<Series>) -> Result<Option<Figure>, Refused> {
        let Some((x, y)) = x.zip(y) else { return Ok(None) };
        let fronts = Vec::new();
        self.chart(&Chart { x, y, series, fronts }).map(Some)
    }

    fn chart(self, chart: &Chart) -> Result<Figure, Refused> {
        let plots = [Frame::Wide, Frame::Narrow].map(|frame| chart.draw("", frame).map(|(_, plot)| plot));
        let [wide, narrow] = plots;
        let plots = Some([wide?, narrow?]);
        let figure = self.drawn(|title, frame| Ok(chart.draw(title, frame)?.0))?;
        Ok(Figure { plots, ..figure })
    }
}

/// An SVG with its title and description as elements, for those who do not see it.
fn described(svg: &str, title: &str, caption: &str) -> String {
    let Some((open, rest)) = svg.split_once('>') else {
        return svg.to_owned();
    };
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "{open} role=\"img\">\n<title>{}</title>\n<desc>{}</desc>{rest}",
        escape(title),
        escape(caption)
    )
}

/// The times of a row that can be compared: of several batches those of the smallest.
fn of_one_batch(row: &Row) -> impl Iterator<Item = &Speed> {
    let batch = row.speed.iter().map(|speed| speed.batch).min();
    row.speed.iter().filter(move |speed| Some(speed.batch) == batch)
}

/// A whole number of tokens, for an axis.
fn tokens(x: f64) -> String {
    format!("{x:.0}")
}

/// Milliseconds, for an axis.
fn ms(x: f64) -> String {
    super::number::plain(x)
}

/// Bytes, for an axis with ticks at powers of two.
fn bytes(x: f64) -> String {
    kvlab_core::Bytes(x.round() as u64).to_string()
}

/// An axis of prompt or context lengths.
fn lengths(title: &str, values: impl IntoIterator<Item = f64>) -> Option<Axis> {
    Axis::over(title, axis::Scale::Log2, tokens, values)
}

#[cfg(test)]
pub(super) mod tests;
