//! The cells: each variant crossed with the sweep, resolved and checked.

use std::collections::BTreeMap;

use crate::document::Node;
use crate::edit::{Assignment, apply, covers, dotted};
use crate::experiment::overrides::Axis;
use crate::experiment::{Cell, Fit};
use crate::known::Known;
use crate::model_file::ModelConfig;
use crate::section::{Finding, Findings};
use crate::source::{At, Sources};

/// More cells than this are a mistake in a sweep.
const MAX_CELLS: usize = 1000;

/// A `[[variant]]`, or what stands for it when the file has none.
pub(super) struct Variant {
    /// `None` when the file has no `[[variant]]`.
    pub(super) name: Option<String>,
    pub(super) note: Option<String>,
    /// The tree of its base model file; `None` when that was reported.
    pub(super) base: Option<Node>,
    pub(super) assignments: Vec<Assignment>,
    /// Crossed with the sweep.
    pub(super) swept: bool,
    /// Its `fit`, and where it stands.
    pub(super) fit: Option<(Fit, At)>,
    pub(super) at: At,
}

/// Everything that the cells are made of.
pub(super) struct Plan<'a> {
    pub(super) variants: Vec<Variant>,
    pub(super) axes: Vec<Axis>,
    /// `--set` arguments for every cell; they win.
    pub(super) sets: Vec<Assignment>,
    /// Whether the experiment has one.
    pub(super) budget: bool,
    pub(super) known: &'a Known<'a>,
    pub(super) sources: &'a Sources,
}

impl Plan<'_> {
    /// The cells that are right; all that is wrong is in the findings, once for all cells that share it.
    pub(super) fn cells(&self, findings: &mut Findings) -> Vec<Cell> {
        self.refuse_conflicts(findings);
        let Some(crossings) = self.crossings(findings) else {
            return Vec::new();
        };
        let mut cells = Vec::new();
        let mut names: BTreeMap<String, &Option<String>> = BTreeMap::new();
        let mut shared: BTreeMap<Finding, Vec<String>> = BTreeMap::new();
        for variant in &self.variants {
            let single = vec![Vec::new()];
            for crossing in if variant.swept { &crossings } else { &single } {
                let name = name(variant, crossing);
                // Two variants of one name were reported when they were read.
                if names
                    .insert(name.clone(), &variant.name)
                    .is_some_and(|other| *other != variant.name)
                {
                    let help = "cells are told apart by variant and swept values".to_owned();
                    findings.add(&variant.at, format!("two cells are called `{name}`"), Some(help));
                }
                let mut own = Findings::default();
                let config = self.resolve(variant, crossing, &mut own);
                if let (Some((fit, at)), Some(config)) = (&variant.fit, &config) {
                    self.refuse_fit(*fit, at, config, &mut own);
                }
                for finding in own.0 {
                    shared.entry(finding).or_default().push(name.clone());
                }
                cells.extend(config.map(|config| Cell {
                    name,
                    note: variant.note.clone(),
                    fit: variant.fit.as_ref().map(|(fit, _)| *fit),
                    config,
                }));
            }
        }
        findings.0.extend(
            shared
                .into_iter()
                .map(|(finding, cells)| in_cells(finding, &cells, names.len())),
        );
        cells
    }

    /// A `fit` without a budget, and one whose key is set.
    fn refuse_fit(&self, fit: Fit, at: &At, config: &ModelConfig, findings: &mut Findings) {
        if !self.budget {
            let help = "write `budget = \"25 %\"` at the top of the file".to_owned();
            findings.add(at, "`fit` has no effect without a `budget`".to_owned(), Some(help));
        } else if let Some(key) = fit.conflict(&config.cache) {
            let message = format!("`fit` chooses `{key}`, which is set");
            findings.add(
                at,
                message,
                Some(format!("take away one of them: \"{key}\" = \"unset\"")),
            );
        }
    }

    fn resolve(&self, variant: &Variant, crossing: &[Assignment], findings: &mut Findings) -> Option<ModelConfig> {
        let mut root = variant.base.clone()?;
        for assignment in variant.assignments.iter().chain(crossing).chain(&self.sets) {
            apply(&mut root, assignment, findings);
        }
        ModelConfig::read(&root, self.known, self.sources, findings)
    }

    /// Every combination of swept values, the last key fastest; one empty combination without a sweep.
    fn crossings(&self, findings: &mut Findings) -> Option<Vec<Vec<Assignment>>> {
        let count = self
            .axes
            .iter()
            .try_fold(1_usize, |count, axis| count.checked_mul(axis.values.len()));
        let swept = self.variants.iter().filter(|variant| variant.swept).count();
        let total = count
            .and_then(|count| count.checked_mul(swept))
            .and_then(|total| total.checked_add(self.variants.len() - swept));
        if total.is_none_or(|total| total > MAX_CELLS) {
            let at = self.axes.first().and_then(|axis| axis.path.last()).map(|step| &step.at);
            let at = at.or(self.variants.first().map(|variant| &variant.at))?;
            let number = total.map_or("more than 2^64".to_owned(), |total| total.to_string());
            findings.add(
                at,
                format!("the experiment has {number} cells, and at most {MAX_CELLS} are run"),
                None,
            );
            return None;
        }
        let mut crossings = vec![Vec::new()];
        for axis in &self.axes {
            let extend = |crossing: Vec<Assignment>| {
                axis.values.iter().map(move |node| {
                    let mut longer = crossing.clone();
                    longer.push(Assignment {
                        path: axis.path.clone(),
                        node: node.clone(),
                    });
                    longer
                })
            };
            crossings = crossings.into_iter().flat_map(extend).collect();
        }
        Some(crossings)
    }

    /// A key that the sweep or a `--set` would overwrite in silence is a finding.
    fn refuse_conflicts(&self, findings: &mut Findings) {
        for (index, axis) in self.axes.iter().enumerate() {
            let key = dotted(&axis.path);
            let at = axis.path.last().map(|step| &step.at);
            let earlier = self.axes.iter().take(index);
            if let (Some(at), true) = (at, earlier.into_iter().any(|earlier| covers(&axis.path, &earlier.path))) {
                findings.add(
                    at,
                    format!("`{key}` is swept twice"),
                    Some("keep one of them".to_owned()),
                );
            }
            for variant in self.variants.iter().filter(|variant| variant.swept) {
                for set in variant.assignments.iter().filter(|set| covers(&axis.path, &set.path)) {
                    let message = format!("`{}` has no effect: `[sweep]` sets `{key}` in every cell", set.dotted());
                    let help = "remove one of them, or write `sweep = false` in the variant".to_owned();
                    findings.add(set.key_at(), message, Some(help));
                }
            }
            for set in self.sets.iter().filter(|set| covers(&set.path, &axis.path)) {
                let message = format!("`{}` is varied by `[sweep]`: its cells would be equal", set.dotted());
                findings.add(
                    set.key_at(),
                    message,
                    Some(format!("change the sweep: --set 'sweep.{key}=[...]'")),
                );
            }
        }
    }
}

fn name(variant: &Variant, crossing: &[Assignment]) -> String {
    let values = crossing
        .iter()
        .map(|set| format!("{}={}", set.dotted(), set.node.show()));
    let parts: Vec<String> = variant.name.iter().cloned().chain(values).collect();
    if parts.is_empty() {
        "base".to_owned()
    } else {
        parts.join(" ")
    }
}

/// The finding with the cells that have it, unless all have.
fn in_cells(mut finding: Finding, cells: &[String], total: usize) -> Finding {
    const SHOWN: usize = 3;
    if cells.len() < total {
        let shown: Vec<String> = cells.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        let more = cells.len().saturating_sub(SHOWN);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let plural = if cells.len() > 1 { "s" } else { "" };
        let help = finding.help.map(|help| format!("{help}; ")).unwrap_or_default();
        finding.help = Some(format!("{help}in cell{plural} {}{more}", shown.join(", ")));
    }
    finding
}
