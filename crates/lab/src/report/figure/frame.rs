//! What every figure is drawn on: its size, its title, its legend, and the finished SVG.

use super::palette::{INK, MUTED, Marker, PAPER, Style};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What can go wrong while drawing. It says nothing that a user could act on.
pub(super) type Refused = Box<dyn std::error::Error>;
/// A part of a figure, in pixels.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What a figure is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A file of its own, with its title.
    Paper,
    /// The page, on a wide screen.
    Wide,
    /// The page, on a phone.
    Narrow,
}

/// A line of the legend.
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) style: Style,
    /// Whether a line goes through the points.
    pub(super) line: bool,
}

const ROW: u32 = 20;
const TITLE: u32 = 38;

impl Frame {
    /// Width of the whole figure, pixels.
    pub(super) fn width(self) -> u32 {
        match self {
            Self::Narrow => 356,
            Self::Paper | Self::Wide => 860,
        }
    }

    /// Size of the text at the axes. (plotters writes it 1.24 times as small: it means the height of a line.)
    pub(super) fn text_size(self) -> u32 {
        match self {
            Self::Narrow => 15,
            Self::Paper | Self::Wide => 16,
        }
    }

    /// Draws: `draw` gets the area below the title and without the legend, and is as high as it says. The SVG comes back.
    pub(super) fn draw(
        self,
        title: &str,
        legend: &[Entry<'_>],
        height: u32,
        draw: impl FnOnce(&Area<'_>) -> Result<(), Refused>,
    ) -> Result<String, Refused> {
        let most = legend.iter().map(|entry| entry.name.chars().count()).max().unwrap_or(0) as u32;
        let names = (most * 7 + 46).clamp(90, 270);
        let beside = self != Self::Narrow && !legend.is_empty();
        let rows = legend.len() as u32 * ROW;
        let title_height = if self == Self::Paper { TITLE } else { 0 };
        let body = match (beside, legend.is_empty()) {
            (true, _) => height.max(rows + 30),
            (false, true) => height,
            (false, false) => height + rows + 14,
        };
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (self.width(), title_height + body)).into_drawing_area();
            if self == Self::Paper {
                root.fill(&PAPER)?;
            }
            let (head, rest) = root.split_vertically(title_height);
            if self == Self::Paper {
                write(&head, title, (16, 22), 20, &INK, HPos::Left)?;
            }
            let (plot, names) = match (beside, legend.is_empty()) {
                (_, true) => (rest, None),
                (true, _) => {
                    let (plot, names) = rest.split_horizontally(self.width() - names);
                    (plot, Some((names, 24)))
                }
                (false, _) => {
                    let (plot, names) = rest.split_vertically(height);
                    (plot, Some((names, 12)))
                }
            };
            draw(&plot)?;
            if let Some((area, top)) = names {
                let room = (area.dim_in_pixel().0 - 44) / 7;
                for (i, entry) in legend.iter().enumerate() {
                    let y = top + i as i32 * ROW as i32;
                    let stroke = entry.style.colour.stroke_width(2);
                    match (entry.line, entry.style.dashed) {
                        (false, _) => {}
                        (true, false) => area.draw(&PathElement::new([(6, y), (32, y)], stroke))?,
                        (true, true) => {
                            area.draw(&PathElement::new([(6, y), (14, y)], stroke))?;
                            area.draw(&PathElement::new([(24, y), (32, y)], stroke))?;
                        }
                    }
                    mark(&area, (19, y), 4, entry.style)?;
                    write(
                        &area,
                        &shortened(entry.name, room as usize),
                        (40, y),
                        15,
                        &INK,
                        HPos::Left,
                    )?;
                }
            }
            root.present()?;
        }
        Ok(svg)
    }
}

/// A marker, in pixels.
pub(super) fn mark(area: &Area<'_>, (x, y): (i32, i32), radius: i32, style: Style) -> Result<(), Refused> {
    match style.marker {
        Marker::Disc => area.draw(&Circle::new((x, y), radius + 1, style.colour.filled()))?,
        marker => {
            let outline = marker.outline(radius).into_iter().map(|(dx, dy)| (x + dx, y + dy));
            area.draw(&Polygon::new(outline.collect::<Vec<_>>(), style.colour.filled()))?;
        }
    }
    Ok(())
}

/// A line of text, centred on `at` vertically.
pub(super) fn write(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: u32,
    colour: &RGBColor,
    side: HPos,
) -> Result<(), Refused> {
    let style = ("sans-serif", size)
        .into_font()
        .color(colour)
        .pos(Pos::new(side, VPos::Center));
    area.draw_text(text, &style, at)?;
    Ok(())
}

/// A quiet line of text.
pub(super) fn remark(area: &Area<'_>, text: &str, at: (i32, i32), side: HPos) -> Result<(), Refused> {
    write(area, text, at, 14, &MUTED, side)
}

/// A text of at most so many characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most.saturating_sub(1)).collect();
    start.trim_end().to_owned() + "…"
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn long_names_end_in_an_ellipsis() {
        assert_eq!(shortened("gqa f16", 7), "gqa f16");
        assert_eq!(shortened("gqa int4", 5), "gqa…");
        assert_eq!(shortened("ääää", 3), "ää…");
        assert_eq!(shortened("ab", 0), "…");
    }
}
