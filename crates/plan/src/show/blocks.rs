//! What a report is made of, and how it looks on a terminal and in Markdown.

use super::grid::Grid;

/// A piece of a report.
pub(super) enum Block {
    /// A heading of everything.
    Title(String),
    /// A name and what is to be said under it; lines that are too long go on below the first.
    Fact(&'static str, String),
    /// An indented line.
    Item(String),
    /// A table.
    Grid(Grid),
    /// An empty line.
    Gap,
}

/// Columns of the names in front of facts.
const NAMES: usize = 10;

/// Columns of a report that no terminal limits.
const WIDE: u16 = 120;

pub(super) fn terminal(blocks: &[Block], width: Option<u16>) -> String {
    let columns = usize::from(width.unwrap_or(WIDE));
    let mut text = String::new();
    for block in blocks {
        match block {
            Block::Title(title) => text += &format!("{title}\n"),
            Block::Fact(name, what) => text += &wrapped(&format!("{name:NAMES$}"), what, columns),
            Block::Item(what) => text += &wrapped(&format!("{:NAMES$}- ", ""), what, columns),
            Block::Grid(grid) => text += &grid.terminal(width),
            Block::Gap => text.push('\n'),
        }
    }
    text
}

pub(super) fn markdown(blocks: &[Block]) -> String {
    let mut text = String::new();
    let mut list = false;
    for block in blocks {
        // A list ends with an empty line.
        if list && !matches!(block, Block::Fact(..) | Block::Item(_) | Block::Gap) {
            text.push('\n');
        }
        list = matches!(block, Block::Fact(..) | Block::Item(_));
        match block {
            Block::Title(title) => text += &format!("# {title}\n\n"),
            Block::Fact("", what) => text += &format!("- {what}\n"),
            Block::Fact(name, what) => text += &format!("- **{name}**: {what}\n"),
            Block::Item(what) => text += &format!("  - {what}\n"),
            Block::Grid(grid) => text += &grid.markdown(),
            Block::Gap => text.push('\n'),
        }
    }
    text
}

/// `what` behind `lead`, in lines of at most `columns`; those after the first begin below `what`.
fn wrapped(lead: &str, what: &str, columns: usize) -> String {
    let indent = " ".repeat(lead.chars().count());
    let mut text = String::new();
    let mut line = lead.to_owned();
    let mut empty = true;
    for word in what.split(' ') {
        let length = line.chars().count() + usize::from(!empty) + word.chars().count();
        if !empty && length > columns {
            text += line.trim_end();
            text.push('\n');
            line.clone_from(&indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    text + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_on_below_the_first() {
        assert_eq!(wrapped("ab  ", "one two three", 11), "ab  one two\n    three\n");
        assert_eq!(wrapped("ab  ", "one two", 80), "ab  one two\n");
        assert_eq!(wrapped("", "averyverylongword x", 4), "averyverylongword\nx\n");
    }
}
