//! A table: variants down, number formats across.

use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};

/// Behind the name of what changes the output of the model.
pub(super) const LOSSY: &str = " ~";

/// A table. Every row has as many cells as there are columns.
pub(super) struct Grid {
    /// What the cells are.
    pub(super) title: String,
    /// Heads of the columns, without that of the names.
    pub(super) columns: Vec<String>,
    /// Names and cells.
    pub(super) rows: Vec<(String, Vec<String>)>,
}

impl Grid {
    pub(super) fn terminal(&self, width: Option<u16>) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_style(TableComponent::HeaderLines, '─');
        table.set_style(TableComponent::MiddleHeaderIntersections, '─');
        table.set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = width {
            table.set_width(width);
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        table.set_header(std::iter::once("").chain(self.columns.iter().map(String::as_str)));
        for (name, cells) in &self.rows {
            table.add_row(std::iter::once(name).chain(cells));
        }
        for (i, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if i > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
        format!("{}\n{}", self.title, lines.collect::<String>())
    }

    pub(super) fn markdown(&self) -> String {
        let line = |name: &str, cells: &[String]| format!("| {name} | {} |\n", cells.join(" | "));
        let mut text = format!("**{}**\n\n{}", self.title, line("", &self.columns));
        text += &format!("|---|{}\n", "---:|".repeat(self.columns.len()));
        for (name, cells) in &self.rows {
            text += &line(&name.replace('|', "\\|"), cells);
        }
        text
    }

    /// Neighbouring columns with the same cells, as one: `f16, bf16`; `all` where nothing else is left.
    pub(super) fn merged(mut self, all: &str) -> Self {
        let before = self.columns.len();
        let mut i = 1;
        while i < self.columns.len() {
            if self.rows.iter().all(|(_, cells)| cells[i] == cells[i - 1]) {
                let column = self.columns.remove(i);
                let left = &mut self.columns[i - 1];
                // A mark that both have is said once.
                if let (Some(bare), true) = (left.strip_suffix(LOSSY), column.ends_with(LOSSY)) {
                    *left = bare.to_owned();
                }
                *left += &format!(", {column}");
                self.rows.iter_mut().for_each(|(_, cells)| _ = cells.remove(i));
            } else {
                i += 1;
            }
        }
        if before > 2 && self.columns.len() == 1 {
            self.columns = vec![all.to_owned()];
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_neighbours_become_one_column() {
        let grid = Grid {
            title: String::new(),
            columns: ["a", "b ~", "c ~", "d"].map(str::to_owned).to_vec(),
            rows: vec![
                ("x".into(), ["1", "2", "2", "2"].map(str::to_owned).to_vec()),
                ("y".into(), ["1", "3", "3", "4"].map(str::to_owned).to_vec()),
            ],
        };
        let merged = grid.merged("all");
        assert_eq!(merged.columns, ["a", "b, c ~", "d"]);
        assert_eq!(merged.rows[1].1, ["1", "3", "4"]);
        let same = Grid {
            title: String::new(),
            columns: ["a", "b", "c"].map(str::to_owned).to_vec(),
            rows: vec![("x".into(), ["1", "1", "1"].map(str::to_owned).to_vec())],
        };
        assert_eq!(same.merged("all").columns, ["all"]);
    }
}
