//! Colours of figures and of the page.

/// What a figure draws in a colour of the theme has a rule in the page's CSS, for each way it is drawn in.
#[test]
fn the_page_knows_every_colour_of_the_theme() {
    use super::palette::{GREY, GRID, INK, MUTED, PAPER, SERIES};
    let css = include_str!("../page/report.css");
    let hex = |c: plotters::style::RGBColor| format!("#{:02X}{:02X}{:02X}", c.0, c.1, c.2);
    let both = SERIES.into_iter().chain([GREY, INK, MUTED]);
    for colour in both.flat_map(|c| [format!("fill=\"{}\"", hex(c)), format!("stroke=\"{}\"", hex(c))]) {
        assert!(css.contains(&format!(".plot [{colour}]")), "{colour}");
    }
    assert!(css.contains(&format!(".plot [stroke=\"{}\"]", hex(GRID))));
    assert!(css.contains(&format!(".plot [fill=\"{}\"]", hex(PAPER))));
}
