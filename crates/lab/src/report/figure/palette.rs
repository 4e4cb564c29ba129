//! Colours, markers and dashes: how a cell looks in every figure.

use plotters::prelude::*;

/// The ground of a figure.
pub(super) const PAPER: RGBColor = RGBColor(255, 255, 255);
/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(34, 34, 34);
/// Text that matters less.
pub(super) const MUTED: RGBColor = RGBColor(100, 100, 100);
/// Grid lines.
pub(super) const GRID: RGBColor = RGBColor(230, 230, 230);
/// Cells that keep nothing.
pub(super) const GREY: RGBColor = RGBColor(136, 136, 136);

/// Colours that differ for people who are colour-blind too (Okabe and Ito 2008; their yellow is too pale for lines on paper, and
/// is darkened here). The report's CSS has a lighter one for each on a dark ground.
pub(super) const SERIES: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(140, 120, 20),
];

/// The shape of a point. Five shapes and seven colours have no common divisor: 35 series differ in one of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Disc,
    Square,
    Triangle,
    Diamond,
    Cross,
}

const MARKERS: [Marker; 5] = [
    Marker::Disc,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::Cross,
];

/// How the points and the line of one series look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Style {
    pub(super) colour: RGBColor,
    pub(super) marker: Marker,
    pub(super) dashed: bool,
}

impl Style {
    /// The style of the `i`-th cell that keeps rows.
    pub(crate) fn nth(i: usize) -> Self {
        Self {
            colour: SERIES[i % SERIES.len()],
            marker: MARKERS[i % MARKERS.len()],
            dashed: (i / SERIES.len()) % 2 == 1,
        }
    }

    /// The style of the `i`-th cell that keeps nothing: grey and dashed.
    pub(crate) fn without_cache(i: usize) -> Self {
        Self {
            colour: GREY,
            marker: MARKERS[i % MARKERS.len()],
            dashed: true,
        }
    }
}

impl Marker {
    /// The outline around (0, 0), in pixels, of a marker with this radius; a disc has none.
    pub(super) fn outline(self, r: i32) -> Vec<(i32, i32)> {
        match self {
            Self::Disc => Vec::new(),
            Self::Square => vec![(-r, -r), (r, -r), (r, r), (-r, r)],
            Self::Triangle => vec![(0, -r - 1), (r + 1, r), (-r - 1, r)],
            Self::Diamond => vec![(0, -r - 2), (r + 2, 0), (0, r + 2), (-r - 2, 0)],
            Self::Cross => {
                let (a, b) = (r + 1, (r / 3).max(1));
                vec![
                    (-b, -a),
                    (b, -a),
                    (b, -b),
                    (a, -b),
                    (a, b),
                    (b, b),
                    (b, a),
                    (-b, a),
                    (-b, b),
                    (-a, b),
                    (-a, -b),
                    (-b, -b),
                ]
            }
        }
    }
}

/// Colour of a share between 0 and 1 (11 steps): from vermilion over white to blue, which keep their order for the colour-blind,
/// and whether white text reads better on it. None of them is a colour of the theme: a square looks the same on a dark page, and
/// so the text on it stays readable.
pub(super) fn heat(share: f64) -> (RGBColor, bool) {
    const ENDS: [(u8, u8, u8); 2] = [(196, 80, 0), (0, 100, 160)];
    const MIDDLE: f64 = 248.0;
    let step = (share.clamp(0.0, 1.0) * 10.0).round() / 10.0;
    let strength = (2.0 * step - 1.0).abs();
    let end = ENDS[usize::from(step >= 0.5)];
    let mix = |channel: u8| (MIDDLE + (f64::from(channel) - MIDDLE) * strength).round() as u8;
    (RGBColor(mix(end.0), mix(end.1), mix(end.2)), strength > 0.7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_five_cells_look_different() {
        let styles: Vec<Style> = (0..35).map(Style::nth).collect();
        for (i, a) in styles.iter().enumerate() {
            for b in &styles[..i] {
                assert!((a.colour, a.marker) != (b.colour, b.marker));
            }
        }
    }

    #[test]
    fn heat_goes_from_vermilion_to_blue_beside_the_theme() {
        assert_eq!(heat(0.0), (RGBColor(196, 80, 0), true));
        assert_eq!(heat(0.5), (RGBColor(248, 248, 248), false));
        assert_eq!(heat(1.0), (RGBColor(0, 100, 160), true));
        assert_eq!(heat(7.0), heat(1.0));
        for step in 0..=10 {
            let (colour, _) = heat(f64::from(step) / 10.0);
            assert!(!SERIES.contains(&colour) && ![PAPER, INK, MUTED, GRID, GREY].contains(&colour));
        }
    }
}
