//! The table on a terminal.

use super::columns::columns;
use super::footnotes;
use crate::Row;
use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};

/// The table, with its footnotes. With a width, long texts are wrapped to fit into so many columns.
pub(crate) fn terminal(rows: &[Row], width: Option<u16>) -> String {
    let columns = columns(rows);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_style(TableComponent::HeaderLines, '─');
    table.set_style(TableComponent::MiddleHeaderIntersections, '─');
    match width {
        Some(width) => {
            table.set_width(width);
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    table.set_header(columns.iter().map(|column| &column.header));
    for row in 0..rows.len() {
        table.add_row(columns.iter().map(|column| &column.cells[row]));
    }
    for (i, column) in columns.iter().enumerate() {
        let Some(place) = table.column_mut(i) else { continue };
        place.set_padding((0, 1));
        if column.right {
            place.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text: String = table.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    for (mark, reasons) in footnotes(rows) {
        text.push_str(&format!("\n{} {}\n", mark.sign(), mark.meaning()));
        for (reason, cells) in reasons {
            text.push_str(&format!("  {}: {reason}\n", cells.join(", ")));
        }
    }
    text
}
