//! A chart with two axes: lines, points, and what is marked among them.

use super::axis::Axis;
use super::frame::{Area, Entry, Frame, Refused, mark, write};
use super::palette::{GRID, INK, MUTED, Style};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::ops::Range;

/// What belongs to one cell, in the numbers of the axes.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) style: Style,
    /// A line.
    pub(super) line: Vec<(f64, f64)>,
    /// Points with the marker.
    pub(super) points: Vec<(f64, f64)>,
    /// Intervals of y: (x, low, high).
    pub(super) whiskers: Vec<(f64, f64, f64)>,
}

impl Series {
    /// Points with a line through them.
    pub(super) fn joined(name: &str, style: Style, points: Vec<(f64, f64)>) -> Self {
        Self {
            line: points.clone(),
            ..Self::dots(name, style, points)
        }
    }

    /// Points alone.
    pub(super) fn dots(name: &str, style: Style, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.to_owned(),
            style,
            line: Vec::new(),
            points,
            whiskers: Vec::new(),
        }
    }
}

/// A chart.
pub(super) struct Chart {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Points that are ringed and joined by a staircase, each from left to right, with the names that stand beside them.
    pub(super) fronts: Vec<Vec<(f64, f64, String)>>,
}

/// Where the plotting area of a drawn chart is, in pixels of the SVG, and what its x axis shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plot {
    pub(crate) x: (i32, i32),
    pub(crate) y: (i32, i32),
    pub(crate) ends: (f64, f64),
}

impl Chart {
    pub(super) fn draw(&self, title: &str, frame: Frame) -> Result<(String, Plot), Refused> {
        let legend: Vec<Entry<'_>> = self
            .series
            .iter()
            .map(|series| Entry {
                name: &series.name,
                style: series.style,
                line: !series.line.is_empty(),
            })
            .collect();
        let mut plot = Plot {
            x: (0, 0),
            y: (0, 0),
            ends: self.x.ends(),
        };
        let height = if frame == Frame::Narrow { 290 } else { 440 };
        let svg = frame.draw(title, &legend, height, |area| {
            plot = self.body(area, frame)?;
            Ok(())
        })?;
        Ok((svg, plot))
    }

    fn body(&self, area: &Area<'_>, frame: Frame) -> Result<Plot, Refused> {
        let narrow = frame == Frame::Narrow;
        let (x_ticks, y_ticks) = (
            self.x.ticks(if narrow { 4 } else { 8 }),
            self.y.ticks(if narrow { 5 } else { 8 }),
        );
        let widest = y_ticks.iter().map(|place| self.y.text(*place).chars().count()).max();
        let size = frame.text_size();
        let mut chart = ChartBuilder::on(area)
            .margin_top(10)
            .margin_right(14)
            .margin_left(if narrow { 6 } else { 0 })
            .x_label_area_size(46)
            .y_label_area_size(30 + 7 * widest.unwrap_or(0) as u32)
            .build_cartesian_2d(Places::new(&self.x, &x_ticks), Places::new(&self.y, &y_ticks))?;
        let label = ("sans-serif", size).into_font().color(&INK);
        let quiet = ("sans-serif", size).into_font().color(&MUTED);
        chart
            .configure_mesh()
            .axis_style(MUTED.stroke_width(1))
            .bold_line_style(GRID.stroke_width(1))
            .light_line_style(TRANSPARENT)
            .x_labels(x_ticks.len())
            .y_labels(y_ticks.len())
            .x_desc(self.x.title.as_str())
            .y_desc(self.y.title.as_str())
            .axis_desc_style(label)
            .label_style(quiet)
            .x_label_formatter(&|place| self.x.text(*place))
            .y_label_formatter(&|place| self.y.text(*place))
            .draw()?;
        let at = |(x, y): (f64, f64)| (self.x.place(x), self.y.place(y));
        for front in &self.fronts {
            let stairs = front.windows(2).flat_map(|pair| {
                let (a, b) = (&pair[0], &pair[1]);
                [at((a.0, a.1)), at((b.0, a.1)), at((b.0, b.1))]
            });
            chart.draw_series(LineSeries::new(stairs, MUTED.stroke_width(1)))?;
        }
        for series in &self.series {
            let stroke = series.style.colour.stroke_width(2);
            for &(x, low, high) in &series.whiskers {
                let ends = [at((x, low)), at((x, high))];
                chart.draw_series(std::iter::once(PathElement::new(
                    ends,
                    series.style.colour.stroke_width(1),
                )))?;
            }
            let line = series.line.iter().map(|point| at(*point));
            match series.style.dashed {
                true => chart.draw_series(DashedLineSeries::new(line.collect::<Vec<_>>(), 7, 5, stroke))?,
                false => chart.draw_series(LineSeries::new(line, stroke))?,
            };
        }
        // What has a place in the chart is drawn in pixels from here on, above all lines.
        let pixel = |point: (f64, f64)| chart.backend_coord(&at(point));
        let (base_x, base_y) = area.get_base_pixel();
        let within = |(x, y): (i32, i32)| (x - base_x, y - base_y);
        for series in &self.series {
            for point in &series.points {
                mark(area, within(pixel(*point)), 4, series.style)?;
            }
        }
        let (x_pixels, y_pixels) = chart.plotting_area().get_pixel_range();
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut taken: Vec<Taken> = points
            .map(|point| within(pixel(*point)))
            .map(|(x, y)| (x - 6, x + 6, y - 6, y + 6))
            .collect();
        for (x, y, name) in self.fronts.iter().flatten() {
            let (left, top) = within(pixel((*x, *y)));
            area.draw(&Circle::new((left, top), 9, INK.stroke_width(1)))?;
            // A name that finds no free place beside its point stands in the legend alone.
            if let (false, Some((at, side))) = (narrow, free(&mut taken, name, (left, top), area.dim_in_pixel().0)) {
                write(area, name, at, 15, &INK, side)?;
            }
        }
        Ok(Plot {
            x: (x_pixels.start, x_pixels.end),
            y: (y_pixels.start, y_pixels.end),
            ends: self.x.ends(),
        })
    }
}

/// A part of the area that something is in: left, right, top, bottom.
type Taken = (i32, i32, i32, i32);

/// Where a name has room beside a ringed point, and from which side it is written; the place is then taken.
fn free(taken: &mut Vec<Taken>, name: &str, (x, y): (i32, i32), width: u32) -> Option<((i32, i32), HPos)> {
    let long = 7 * name.chars().count() as i32 + 4;
    let places = [(13, -9), (13, 10), (-13, -9), (-13, 10)];
    let (place, side, found) = places.into_iter().find_map(|(dx, dy)| {
        let (x, y) = (x + dx, y + dy);
        let (side, left) = if dx > 0 {
            (HPos::Left, x)
        } else {
            (HPos::Right, x - long)
        };
        let own = (left, left + long, y - 8, y + 8);
        let apart = |other: &Taken| own.1 < other.0 || other.1 < own.0 || own.3 < other.2 || other.3 < own.2;
        let inside = own.0 > 60 && own.1 < width as i32 - 4 && own.2 > 0;
        (inside && taken.iter().all(apart)).then_some(((x, y), side, own))
    })?;
    taken.push(found);
    Some((place, side))
}

/// An axis as plotters wants it: a linear range of places, with our ticks.
struct Places {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Places {
    fn new(axis: &Axis, ticks: &[f64]) -> Self {
        let (low, high) = axis.places();
        Self {
            low,
            high,
            ticks: ticks.to_vec(),
        }
    }
}

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (place - self.low) / (self.high - self.low);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.ticks.clone()
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::axis::Scale;
    use super::*;

    fn chart() -> Chart {
        let number = |x: f64| format!("{x}");
        Chart {
            x: Axis::over("bytes", Scale::Log2, number, [1024.0, 8192.0]).unwrap(),
            y: Axis::over("nats", Scale::Log10, number, [1e-6, 1.0]).unwrap(),
            series: vec![
                Series::dots("a <b>&\"", Style::nth(0), vec![(1024.0, 1.0)]),
                Series::joined("dashed", Style::nth(8), vec![(1024.0, 0.5), (8192.0, 1e-6)]),
            ],
            fronts: vec![vec![(1024.0, 1.0, "a".into()), (8192.0, 1e-6, "</svg>".into())]],
        }
    }

    #[test]
    fn names_are_text_and_every_number_is_a_number() {
        for frame in [Frame::Paper, Frame::Wide, Frame::Narrow] {
            let (svg, _) = chart().draw("T <1>", frame).unwrap();
            assert!(svg.contains("a &lt;b&gt;&amp;&quot;") && !svg.contains("<b>"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert_eq!(svg.matches("</svg>").count(), 1);
            assert_eq!(
                svg.contains("T &lt;1&gt;"),
                frame == Frame::Paper,
                "the page has its own titles"
            );
        }
    }

    #[test]
    fn names_beside_points_do_not_cover_each_other() {
        let mut taken = Vec::new();
        let places: Vec<_> = (0..6).map(|_| free(&mut taken, "a name", (200, 100), 400)).collect();
        assert_eq!(places.iter().flatten().count(), 4);
        assert_eq!(taken.len(), 4);
        let (_, side) = free(&mut Vec::new(), "a name that is long", (395, 100), 400).unwrap();
        assert!(matches!(side, HPos::Right), "no room to the right");
    }

    #[test]
    fn points_are_where_the_plot_says() {
        let (svg, plot) = chart().draw("", Frame::Wide).unwrap();
        // 1024 on an axis from 1024 / 2^0.25 to 8192 * 2^0.25: 0.25 of 3.5 powers of two.
        let want = f64::from(plot.x.0) + 0.25 / 3.5 * f64::from(plot.x.1 - plot.x.0);
        let circle = svg.split("<circle cx=\"").nth(1).unwrap();
        let x: f64 = circle.split('"').next().unwrap().parse().unwrap();
        assert!((x - want).abs() < 2.0, "{x} and {want}");
        assert!(plot.ends.0 < 1024.0 && plot.ends.1 > 8192.0);
    }
}
