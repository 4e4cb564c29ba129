//! The figure of a comparison: time per token against the length of the text, as SVG.

use crate::{LabError, Row};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colours that differ for people who are colour-blind too (Okabe and Ito 2008).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(140, 120, 20),
];
const GREY: RGBColor = RGBColor(130, 130, 130);
const SIZE: (u32, u32) = (860, 480);

/// A line for each cell: its name, whether it keeps rows, and (prompt tokens, median ITL in ms).
struct Line<'a> {
    name: &'a str,
    remembers: bool,
    points: Vec<(f64, f64)>,
}

/// Median ITL (ms, logarithmic) against prompt length (tokens); cells without a cache are grey. `None` where no cell
/// has two lengths.
///
/// # Errors
/// [`LabError::Write`].
pub(crate) fn itl_svg(rows: &[Row]) -> Result<Option<String>, LabError> {
    let mut lines: Vec<Line<'_>> = rows
        .iter()
        .map(|row| Line {
            name: &row.cell,
            remembers: row.variant.as_deref() != Some("none"),
            points: row
                .speed
                .iter()
                .filter_map(|s| Some((s.prompt_tokens as f64, s.gaps.as_ref()?.p50)))
                .collect(),
        })
        .filter(|line| line.points.len() > 1)
        .collect();
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    if lines.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    let drawn = draw(&mut svg, &lines);
    drawn.map_err(|error| LabError::Write {
        what: "the figure",
        reason: error.to_string(),
    })?;
    Ok(Some(svg))
}

fn draw(svg: &mut String, lines: &[Line<'_>]) -> Result<(), Box<dyn std::error::Error>> {
    let all = || lines.iter().flat_map(|line| line.points.iter().copied());
    let bounds = |of: fn((f64, f64)) -> f64| {
        all()
            .map(of)
            .fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)))
    };
    let ((x0, x1), (y0, y1)) = (bounds(|p| p.0), bounds(|p| p.1));
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    // Room on the right for the names of the lines.
    let (plot, legend) = root.split_horizontally(SIZE.0 - 250);
    let mut chart = ChartBuilder::on(&plot)
        .caption("Time per token against the length of the text", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d(x0..x1, (y0 * 0.8..y1 * 1.2).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("prompt, tokens")
        .y_desc("ITL p50, ms (logarithmic)")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.2}"))
        .draw()?;
    let mut cached = 0;
    for (i, line) in lines.iter().enumerate() {
        // When the colours have all been used, they come again with hollow dots.
        let (colour, dot) = match line.remembers {
            true => {
                let colour = COLOURS[cached % COLOURS.len()];
                cached += 1;
                (
                    colour,
                    if cached > COLOURS.len() {
                        colour.stroke_width(1)
                    } else {
                        colour.filled()
                    },
                )
            }
            false => (GREY, GREY.filled()),
        };
        let style = colour.stroke_width(2);
        chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
        chart.draw_series(line.points.iter().map(|&point| Circle::new(point, 4, dot)))?;
        let y = 44 + 22 * i as i32;
        legend.draw(&PathElement::new([(4, y), (30, y)], style))?;
        legend.draw(&Circle::new((17, y), 4, dot))?;
        let text = ("sans-serif", 13)
            .into_font()
            .into_text_style(&legend)
            .pos(Pos::new(HPos::Left, VPos::Center));
        legend.draw_text(line.name, &text, (38, y))?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_named_and_stays_in_the_picture() {
        let line = |name, remembers, points: &[(f64, f64)]| Line {
            name,
            remembers,
            points: points.to_vec(),
        };
        let lines = [
            line("a <b>", true, &[(32.0, 0.2), (160.0, 0.25)]),
            line("none", false, &[(32.0, 1.5), (160.0, 11.0)]),
        ];
        let mut svg = String::new();
        draw(&mut svg, &lines).unwrap();
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("none"), "{svg}");
        assert!(svg.trim_end().ends_with("</svg>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn one_length_is_no_line() {
        assert_eq!(itl_svg(&[]).unwrap(), None);
    }
}
