//! A plan for people (a terminal, Markdown) and for programs (CSV; JSON is the plan itself).

mod blocks;
mod csv_file;
mod grid;
mod number;
mod sections;

pub use csv_file::csv;

use crate::Plan;
use blocks::Block;

/// The plan for a terminal of so many columns; without a width lines are as long as they are.
pub fn terminal(plan: &Plan, width: Option<u16>) -> String {
    blocks::terminal(&sections::sections(plan), width)
}

/// The plan as Markdown.
pub fn markdown(plan: &Plan) -> String {
    let title = Block::Title(plan.model.name.clone());
    let blocks: Vec<_> = std::iter::once(title).chain(sections::sections(plan)).collect();
    blocks::markdown(&blocks)
}
