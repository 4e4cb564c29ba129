//! What a report is about: the cells of one run, or of several side by side.

use super::figure::Style;
use crate::{Comparison, Row};
use kvlab_core::CacheSpec;
use std::path::{Component, Path};

/// One run, or several.
pub(crate) struct Report<'a> {
    /// Each with a label that no other has.
    pub(crate) runs: Vec<(String, &'a Comparison)>,
    /// All cells. Of several runs: cells of one name stand together, and their names begin with the run's label.
    pub(crate) rows: Vec<Row>,
    /// What figures and answers need to know of each row.
    pub(crate) facts: Vec<Facts>,
    /// Cells that can be chosen among: those of one model in one run.
    pub(crate) groups: Vec<String>,
}

/// What figures and answers need to know of a row.
pub(crate) struct Facts {
    /// Its group.
    pub(crate) group: usize,
    /// What its cache holds; `None` if it was never loaded.
    pub(crate) spec: Option<CacheSpec>,
    /// Whether it keeps rows.
    pub(crate) remembers: bool,
    pub(crate) failed: bool,
    /// Bytes that the cache holds of a sequence of [`Report::at`] tokens, over those tokens.
    pub(crate) bytes_per_token: Option<f64>,
    /// Mean KL divergence, nats. (Its interval is in the row.)
    pub(crate) kl: Option<f64>,
    pub(crate) style: Style,
}

impl<'a> Report<'a> {
    pub(crate) fn new(comparisons: &[&'a Comparison]) -> Self {
        let folders: Vec<&Path> = comparisons.iter().map(|c| c.folder.as_path()).collect();
        let labels = labels(&folders);
        let runs: Vec<(String, &Comparison)> = labels.into_iter().zip(comparisons.iter().copied()).collect();
        let mut report = Self {
            runs,
            rows: Vec::new(),
            facts: Vec::new(),
            groups: Vec::new(),
        };
        for (run, row) in in_order(comparisons) {
            report.add(run, row);
        }
        report
    }

    fn add(&mut self, run: usize, row: &Row) {
        let (label, comparison) = &self.runs[run];
        let several = self.runs.len() > 1;
        let named = |name: &str| {
            if several {
                format!("{label}: {name}")
            } else {
                name.to_owned()
            }
        };
        let group = named(&row.model);
        let group = self.groups.iter().position(|known| *known == group).unwrap_or_else(|| {
            self.groups.push(group);
            self.groups.len() - 1
        });
        let spec = comparison.spec(&row.cell).cloned();
        let remembers = spec
            .as_ref()
            .is_some_and(|spec| spec.layers.iter().any(|layer| layer.rows_per_sequence > 0));
        let kept = self.facts.iter().filter(|facts| facts.remembers).count();
        let tokens = length(comparison, row);
        self.facts.push(Facts {
            group,
            remembers,
            failed: row.error.is_some(),
            bytes_per_token: spec
                .as_ref()
                .zip(tokens)
                .map(|(spec, tokens)| spec.used_at(tokens).0 as f64 / tokens.max(1) as f64),
            spec,
            kl: row.quality.as_ref().map(|quality| quality.kl_mean),
            style: if remembers {
                Style::nth(kept)
            } else {
                Style::without_cache(self.facts.len() - kept)
            },
        });
        self.rows.push(Row {
            cell: named(&row.cell),
            ..row.clone()
        });
    }

    /// Whether several runs stand side by side.
    pub(crate) fn is_several(&self) -> bool {
        self.runs.len() > 1
    }

    /// The lengths at which bytes a token are counted, over all cells, ascending: where quality was measured, so that both belong
    /// to the same text.
    pub(crate) fn at(&self) -> Vec<usize> {
        let lengths = self
            .runs
            .iter()
            .flat_map(|(_, comparison)| comparison.rows.iter().map(|row| length(comparison, row)));
        let mut lengths: Vec<usize> = lengths.flatten().collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// ` of a text of 192 tokens`, or nothing without a length.
    pub(crate) fn at_length(&self) -> String {
        match self.at().as_slice() {
            [] => String::new(),
            [one] => format!(" of a text of {one} tokens"),
            [first, .., last] => format!(" of texts of {first} to {last} tokens"),
        }
    }

    /// The longest text of all measurements, tokens.
    pub(crate) fn longest(&self) -> usize {
        let runs = self.runs.iter().map(|(_, comparison)| {
            let experiment = &comparison.experiment;
            let workload = &experiment.workload;
            let window = if experiment.measure.quality { workload.window } else { 0 };
            let prompt = workload
                .prompts
                .iter()
                .max()
                .map_or(0, |prompt| prompt + workload.new_tokens);
            window.max(if experiment.measure.speed { prompt } else { 0 })
        });
        runs.max().unwrap_or(0)
    }
}

/// The length at which the bytes of a cell are counted.
fn length(comparison: &Comparison, row: &Row) -> Option<usize> {
    let window = comparison.experiment.workload.window;
    let quality = comparison.experiment.measure.quality.then_some(window);
    quality.or(row.memory.map(|memory| memory.tokens))
}

/// The rows of all runs, in the order of the first run that has a cell of the name.
fn in_order<'a>(comparisons: &[&'a Comparison]) -> Vec<(usize, &'a Row)> {
    let mut names: Vec<&str> = Vec::new();
    for row in comparisons.iter().flat_map(|comparison| &comparison.rows) {
        if !names.contains(&row.cell.as_str()) {
            names.push(&row.cell);
        }
    }
    let mut rows = Vec::new();
    for name in names {
        for (run, comparison) in comparisons.iter().enumerate() {
            rows.extend(
                comparison
                    .rows
                    .iter()
                    .filter(|row| row.cell == name)
                    .map(|row| (run, row)),
            );
        }
    }
    rows
}

/// A label for each folder: its name if no other has it, else the nearest of the folders above it that tells them apart, else
/// the whole path, and for one that is given twice its number.
fn labels(folders: &[&Path]) -> Vec<String> {
    let parts: Vec<Vec<String>> = folders
        .iter()
        .map(|folder| {
            let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
            let names = whole.components().rev().filter_map(|component| match component {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            });
            names.collect()
        })
        .collect();
    let deepest = parts.iter().map(Vec::len).max().unwrap_or(0);
    for depth in 0..deepest {
        let names: Vec<&str> = parts
            .iter()
            .map(|parts| parts.get(depth).map_or("", String::as_str))
            .collect();
        if names
            .iter()
            .enumerate()
            .all(|(i, name)| !name.is_empty() && !names[..i].contains(name))
        {
            return names.into_iter().map(str::to_owned).collect();
        }
    }
    let whole: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let twice = |i: usize| whole[..i].contains(&whole[i]) || whole[i + 1..].contains(&whole[i]);
    (0..whole.len())
        .map(|i| {
            if twice(i) {
                format!("{} ({})", whole[i], i + 1)
            } else {
                whole[i].clone()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_tell_runs_apart() {
        let of = |folders: &[&str]| labels(&folders.iter().map(Path::new).collect::<Vec<_>>());
        assert_eq!(of(&["/x/runs/a-1", "/x/runs/b-2"]), ["a-1", "b-2"]);
        assert_eq!(of(&["/old/runs/a-1", "/new/runs/a-1"]), ["old", "new"]);
        assert_eq!(of(&["/only/a-1"]), ["a-1"]);
        assert_eq!(of(&["/x/a/p", "/x/b/p", "/y/b/q"]), ["/x/a/p", "/x/b/p", "/y/b/q"]);
        assert_eq!(of(&["/x/a", "/x/a"]), ["/x/a (1)", "/x/a (2)"]);
    }
}
