//! Tables, figures and files for people and for programs. Everything here is made of rows and records.

mod about;
mod answer;
mod columns;
mod csv_files;
mod figure;
mod markdown;
mod number;
mod page;
mod samples;
mod side_by_side;
mod tables;
mod terminal;
mod workload_tables;
mod write;

pub(crate) use markdown::markdown;
pub(crate) use side_by_side::{Facts, Report};
pub(crate) use terminal::terminal;
pub(crate) use write::write;

use crate::Row;

/// What makes a row need a footnote.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Lossy,
    Failed,
    Unpredicted,
}

impl Mark {
    const ALL: [Self; 3] = [Self::Lossy, Self::Failed, Self::Unpredicted];

    fn sign(self) -> char {
        match self {
            Self::Lossy => '~',
            Self::Failed => '!',
            Self::Unpredicted => '*',
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Lossy => "lossy: not the model's own attention",
            Self::Failed => "failed",
            Self::Unpredicted => "the bytes in use are not those that the spec predicts",
        }
    }

    /// What there is to say about a row, a sentence each.
    fn reasons(self, row: &Row) -> Vec<String> {
        match self {
            Self::Lossy => row.lossy.clone(),
            Self::Failed => row.error.iter().cloned().collect(),
            Self::Unpredicted => {
                let wrong = row.memory.iter().filter(|memory| !memory.as_predicted());
                wrong
                    .map(|m| format!("{} B predicted, {} B in use", m.used_predicted, m.used_measured))
                    .collect()
            }
        }
    }
}

/// The signs of a row, each at most once.
fn signs(row: &Row) -> String {
    let marks = Mark::ALL.into_iter().filter(|mark| !mark.reasons(row).is_empty());
    marks.map(Mark::sign).collect()
}

/// A reason, and the cells that share it.
type Shared<'a> = (String, Vec<&'a str>);

/// The footnotes of some rows, by mark.
fn footnotes(rows: &[Row]) -> Vec<(Mark, Vec<Shared<'_>>)> {
    let mut notes = Vec::new();
    for mark in Mark::ALL {
        let mut reasons: Vec<Shared<'_>> = Vec::new();
        for row in rows {
            for reason in mark.reasons(row) {
                match reasons.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, cells)) => cells.push(&row.cell),
                    None => reasons.push((reason, vec![&row.cell])),
                }
            }
        }
        if !reasons.is_empty() {
            notes.push((mark, reasons));
        }
    }
    notes
}

/// The notes of the experiment file, each with the cells that share it.
fn notes(rows: &[Row]) -> Vec<(&str, Vec<&str>)> {
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        let Some(note) = row.note.as_deref() else { continue };
        match notes.iter_mut().find(|(known, _)| *known == note) {
            Some((_, cells)) => cells.push(&row.cell),
            None => notes.push((note, vec![&row.cell])),
        }
    }
    notes
}

#[cfg(test)]
mod tests;
