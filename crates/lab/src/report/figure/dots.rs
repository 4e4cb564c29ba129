//! A dot plot: a line of dots for each cell, on one axis.

use super::axis::{Axis, Scale};
use super::frame::{Entry, Frame, Refused, mark, remark, shortened, write};
use super::palette::{GRID, INK, MUTED, Style};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// A dot: where it is, its range, and which of the styles it has.
pub(super) struct Dot {
    pub(super) x: f64,
    pub(super) range: Option<(f64, f64)>,
    pub(super) style: usize,
}

pub(super) struct Line {
    pub(super) name: String,
    pub(super) dots: Vec<Dot>,
}

pub(super) struct Dots {
    pub(super) title: &'static str,
    pub(super) scale: Scale,
    pub(super) label: fn(f64) -> String,
    pub(super) legend: Vec<(&'static str, Style)>,
    pub(super) lines: Vec<Line>,
}

impl Dots {
    pub(super) fn any(&self) -> bool {
        self.axis().is_some()
    }

    fn axis(&self) -> Option<Axis> {
        let dots = self.lines.iter().flat_map(|line| &line.dots);
        let values = dots.flat_map(|dot| {
            [
                dot.x,
                dot.range.map_or(dot.x, |r| r.0),
                dot.range.map_or(dot.x, |r| r.1),
            ]
        });
        Axis::over(self.title, self.scale, self.label, values)
    }

    pub(super) fn draw(&self, title: &str, frame: Frame) -> Result<String, Refused> {
        let Some(axis) = self.axis() else {
            return Ok(String::new());
        };
        let legend: Vec<Entry<'_>> = self
            .legend
            .iter()
            .map(|&(name, style)| Entry {
                name,
                style,
                line: false,
            })
            .collect();
        let narrow = frame == Frame::Narrow;
        // On a narrow screen the name stands above its line.
        let step = if narrow { 38 } else { 24 };
        let height = 14 + step * self.lines.len() as i32 + 52;
        frame.draw(title, &legend, height as u32, |area| {
            let (width, _) = area.dim_in_pixel();
            let names = self
                .lines
                .iter()
                .map(|line| line.name.chars().count())
                .max()
                .unwrap_or(0) as i32;
            let left = if narrow { 14 } else { (16 + names * 7).min(270) };
            let right = width as i32 - 30;
            let ((low, high), bottom) = (axis.places(), 14 + step * self.lines.len() as i32);
            let at = |x: f64| left + ((axis.place(x) - low) / (high - low) * f64::from(right - left)).round() as i32;
            for tick in axis.ticks(if narrow { 4 } else { 8 }) {
                let x = at(axis.number(tick));
                area.draw(&PathElement::new([(x, 8), (x, bottom)], GRID.stroke_width(1)))?;
                remark(area, &axis.text(tick), (x, bottom + 12), HPos::Center)?;
            }
            area.draw(&PathElement::new(
                [(left, bottom), (right, bottom)],
                MUTED.stroke_width(1),
            ))?;
            write(
                area,
                &axis.title,
                ((left + right) / 2, bottom + 34),
                frame.text_size(),
                &INK,
                HPos::Center,
            )?;
            for (i, line) in self.lines.iter().enumerate() {
                let top = 8 + step * i as i32;
                let y = top + if narrow { 26 } else { step / 2 };
                if narrow {
                    write(area, &shortened(&line.name, 46), (left, top + 10), 14, &INK, HPos::Left)?;
                } else {
                    let name = shortened(&line.name, (left / 7).max(1) as usize);
                    write(area, &name, (left - 8, y), 15, &INK, HPos::Right)?;
                }
                for dot in &line.dots {
                    let Some((_, style)) = self.legend.get(dot.style) else {
                        continue;
                    };
                    if let Some((a, b)) = dot.range {
                        let ends = [(at(a), y), (at(b), y)];
                        area.draw(&PathElement::new(ends, style.colour.stroke_width(2)))?;
                    }
                    mark(area, (at(dot.x), y), 4, *style)?;
                }
            }
            Ok(())
        })
    }
}
