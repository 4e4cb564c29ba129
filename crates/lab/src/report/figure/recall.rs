//! Recall by depth and length: a heat map for each cell.

use super::frame::{Area, Frame, Refused, remark, shortened, write};
use super::palette::{INK, heat};
use super::{About, Figure};
use crate::report::Report;
use crate::{Recall, Row};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

/// What a square is coloured and labelled in.
const LIGHT: RGBColor = RGBColor(254, 254, 254);
const DARK: RGBColor = RGBColor(17, 17, 17);

/// One figure for each task.
pub(super) fn figures(report: &Report<'_>) -> Result<Vec<Figure>, Refused> {
    let mut tasks: Vec<&str> = Vec::new();
    for recall in report.rows.iter().flat_map(|row| &row.recall) {
        if !tasks.contains(&recall.task.as_str()) {
            tasks.push(&recall.task);
        }
    }
    tasks.into_iter().map(|task| figure(report, task)).collect()
}

fn figure(report: &Report<'_>, task: &str) -> Result<Figure, Refused> {
    let map = Map::new(&report.rows, task);
    let plain: String = task
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let title = format!("Recall by depth and length: {}", task.replace('_', " "));
    let about = About {
        name: &format!("recall-{}", plain.to_lowercase()),
        title: &title,
        caption: "Share of questions that were answered in full, %, by the length of the context (tokens) and by where the answer \
            stood in it (depth, 0 % is the beginning). Blue: all, vermilion: none."
            .to_owned(),
    };
    about.drawn(|title, frame| map.draw(title, frame))
}

struct Map<'a> {
    /// Tokens of the contexts, ascending.
    lengths: Vec<usize>,
    /// Depths, ascending.
    depths: Vec<f64>,
    cells: Vec<(&'a str, Vec<&'a Recall>)>,
}

impl<'a> Map<'a> {
    fn new(rows: &'a [Row], task: &str) -> Self {
        let of = |row: &'a Row| {
            row.recall
                .iter()
                .filter(|recall| recall.task == task)
                .collect::<Vec<_>>()
        };
        let cells: Vec<_> = rows
            .iter()
            .map(|row| (row.cell.as_str(), of(row)))
            .filter(|(_, recall)| !recall.is_empty())
            .collect();
        let all = || cells.iter().flat_map(|(_, recall)| recall.iter());
        let mut lengths: Vec<usize> = all().map(|recall| recall.tokens).collect();
        let mut depths: Vec<f64> = all().map(|recall| recall.depth_percent).collect();
        lengths.sort_unstable();
        lengths.dedup();
        depths.sort_by(f64::total_cmp);
        depths.dedup();
        Self { lengths, depths, cells }
    }

    fn draw(&self, title: &str, frame: Frame) -> Result<String, Refused> {
        let across = if frame == Frame::Narrow {
            1
        } else {
            3_usize.min(self.cells.len())
        };
        let down = self.cells.len().div_ceil(across.max(1));
        let panel = 34 + 24 * self.depths.len() as u32 + 34;
        frame.draw(title, &[], panel * down as u32 + 24, |area| {
            let (width, _) = area.dim_in_pixel();
            let panels = area.margin(0, 24, 6, 6).split_evenly((down, across));
            for (panel, (name, recall)) in panels.iter().zip(&self.cells) {
                self.panel(panel, name, recall)?;
            }
            let note = "length of the context, tokens (across), and depth, % (down)";
            remark(
                area,
                note,
                (width as i32 / 2, (panel * down as u32 + 12) as i32),
                HPos::Center,
            )
        })
    }

    fn panel(&self, area: &Area<'_>, name: &str, recall: &[&Recall]) -> Result<(), Refused> {
        let (width, _) = area.dim_in_pixel();
        let left = 40;
        let side = ((width as i32 - left - 14) / self.lengths.len().max(1) as i32).min(90);
        write(
            area,
            &shortened(name, (width / 7) as usize),
            (left, 16),
            15,
            &INK,
            HPos::Left,
        )?;
        for (row, depth) in self.depths.iter().enumerate() {
            let top = 30 + 24 * row as i32;
            remark(area, &format!("{depth:.0}"), (left - 6, top + 12), HPos::Right)?;
            for (column, length) in self.lengths.iter().enumerate() {
                let x = left + side * column as i32;
                let here = recall.iter().find(|r| r.tokens == *length && r.depth_percent == *depth);
                let Some(here) = here.filter(|recall| recall.trials > 0) else {
                    continue;
                };
                let share = here.correct as f64 / here.trials as f64;
                let (colour, dark) = heat(share);
                let square = [(x + 1, top + 1), (x + side - 1, top + 23)];
                area.draw(&Rectangle::new(square, colour.filled()))?;
                let ink = if dark { LIGHT } else { DARK };
                let text = format!("{:.0}", 100.0 * share);
                write(area, &text, (x + side / 2, top + 12), 14, &ink, HPos::Center)?;
            }
        }
        for (column, length) in self.lengths.iter().enumerate() {
            let x = left + side * column as i32 + side / 2;
            let y = 30 + 24 * self.depths.len() as i32 + 12;
            remark(area, &length.to_string(), (x, y), HPos::Center)?;
        }
        Ok(())
    }
}
