//! Reading an experiment file, its base files and its cells.

use std::path::Path;

use crate::SCHEMA;
use crate::document::{Entry, Node, Table, Value};
use crate::edit::{Assignment, apply, covers, read_sets};
use crate::experiment::budget::read_budget;
use crate::experiment::cells::{Plan, Variant};
use crate::experiment::overrides::{Axis, axes, axis, is_cell_key, paths};
use crate::experiment::variants::read_variants;
use crate::experiment::{Experiment, Measure, ReportConfig, Workload};
use crate::known::Known;
use crate::model_file::{errors, open, read_schema, tree};
use crate::problem::ConfigErrors;
use crate::section::{Field, Findings, Section};
use crate::source::{Source, Sources};

const REPEATS: usize = 3;

impl Experiment {
    /// Reads an experiment file and the base files it names, and resolves every cell. `sets` are `--set` arguments as in
    /// [`ModelConfig::load`](crate::ModelConfig::load): those that start with `model`, `cache`, `backend` or `generate` change every cell after its
    /// variant and sweep; any other changes the experiment, such as `repeats=1` or `sweep.cache.key=["f16"]`.
    ///
    /// # Errors
    /// Every problem of the file, of its base files, of `sets` and of every cell at once.
    pub fn load(path: &Path, sets: &[String], known: &Known<'_>) -> Result<Self, ConfigErrors> {
        let (name, dir, text) = open(path)?;
        Self::parse(&text, &name, dir, sets, known)
    }

    /// Reads the text of an experiment file. `origin_name` is what errors call it, `base_dir` is where its relative paths
    /// start; those of `sets` start at the current folder.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(
        text: &str,
        origin_name: &str,
        base_dir: &Path,
        sets: &[String],
        known: &Known<'_>,
    ) -> Result<Self, ConfigErrors> {
        let mut sources = Sources::default();
        let source = sources.add(Source::new(origin_name.to_owned(), base_dir, text.to_owned(), None));
        let mut findings = Findings::default();
        let sets = Sets::sort(read_sets(sets, &mut findings), &mut findings);
        let mut experiment = None;
        if let Some(mut root) = tree(&sources, source, &mut findings) {
            for set in &sets.experiment {
                apply(&mut root, set, &mut findings);
            }
            experiment = read(&root, sets, known, &mut sources, &mut findings);
        }
        match experiment {
            Some(experiment) if findings.0.is_empty() => Ok(experiment),
            _ => Err(errors(findings, &sources)),
        }
    }
}

/// `--set` arguments by what they change.
struct Sets {
    experiment: Vec<Assignment>,
    cells: Vec<Assignment>,
    sweep: Vec<Assignment>,
}

impl Sets {
    fn sort(all: Vec<Assignment>, findings: &mut Findings) -> Self {
        let (cells, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|set| is_cell_key(&set.path));
        let of_sweep =
            |set: &Assignment| set.path.len() > 1 && set.path.first().is_some_and(|step| step.name == "sweep");
        let (sweep, experiment): (Vec<_>, Vec<_>) = others.into_iter().partition(of_sweep);
        // `sweep."cache.key"` and `sweep.cache.key` are the same axis.
        let sweep = sweep.into_iter().filter_map(|set| {
            let key = set
                .path
                .iter()
                .skip(1)
                .map(|step| step.name.as_str())
                .collect::<Vec<_>>()
                .join(".");
            let entry = Entry {
                key,
                key_at: set.key_at().clone(),
                node: set.node,
            };
            let mut one = paths(&Table(vec![entry]), findings);
            one.pop()
        });
        Self {
            sweep: sweep.collect(),
            experiment,
            cells,
        }
    }
}

fn read(
    root: &Node,
    sets: Sets,
    known: &Known<'_>,
    sources: &mut Sources,
    findings: &mut Findings,
) -> Option<Experiment> {
    let mut section = Section::new("", root, findings);
    read_schema(&mut section, findings)?;
    let name = section.require("name", "name = \"my-experiment\"", findings);
    let name = name.and_then(|field| field.file_name(findings));
    let repeats = section.take("repeats").and_then(|field| field.whole(1, findings));
    let seed = section.take("seed").and_then(|field| field.seed(findings));
    let budget = section.take("budget");
    let budget = budget.and_then(|field| read_budget(&field, findings));
    let workload = Workload::read(section.section("workload", findings), sources, findings);
    let asks = workload.as_ref().is_some_and(|workload| !workload.recall.is_empty());
    let measure = Measure::read(section.section("measure", findings), asks, findings);
    let report = ReportConfig::read(section.section("report", findings), findings);

    let axes = read_axes(section.take("sweep"), sets.sweep, findings);
    let base = section.take("base");
    let variants = read_variants(&mut section, base.as_ref(), sources, findings);
    refuse_idle_sweep(&variants, &axes, findings);
    let sets = sets.cells;
    let cells = Plan {
        variants,
        axes,
        sets,
        budget: budget.is_some(),
        known,
        sources,
    }
    .cells(findings);
    section.finish(findings);
    Some(Experiment {
        schema: SCHEMA,
        name: name?.to_owned(),
        repeats: repeats.unwrap_or(REPEATS),
        seed: seed.unwrap_or(0),
        budget,
        workload: workload?,
        measure,
        report,
        cells,
    })
}

fn read_axes(field: Option<Field<'_>>, sets: Vec<Assignment>, findings: &mut Findings) -> Vec<Axis> {
    let mut found = match field.as_ref().map(|field| &field.node.value) {
        Some(Value::Table(table)) => axes(table, findings),
        _ => {
            if let Some(field) = field {
                Section::new(&field.path, field.node, findings).finish(findings);
            }
            Vec::new()
        }
    };
    for set in sets {
        let place = found
            .iter()
            .position(|axis| covers(&axis.path, &set.path) && covers(&set.path, &axis.path));
        let axis = match set.node.value {
            Value::Unset => None,
            _ => axis(set.path, set.node, findings),
        };
        match (place, axis) {
            (Some(place), Some(axis)) => found[place] = axis,
            (Some(place), None) => drop(found.remove(place)),
            (None, axis) => found.extend(axis),
        }
    }
    found
}

/// A sweep that crosses nothing, and a variant that leaves a sweep which is not there.
fn refuse_idle_sweep(variants: &[Variant], axes: &[Axis], findings: &mut Findings) {
    let help = || Some("remove one of them".to_owned());
    let idle = !variants.is_empty() && variants.iter().all(|variant| !variant.swept);
    if let (true, Some(step)) = (idle, axes.first().and_then(|axis| axis.path.last())) {
        findings.add(
            &step.at,
            "`[sweep]` has no effect: every variant says `sweep = false`".to_owned(),
            help(),
        );
    }
    for variant in variants.iter().filter(|variant| !variant.swept && axes.is_empty()) {
        findings.add(
            &variant.at,
            "`sweep = false` has no effect: the file has no `[sweep]`".to_owned(),
            help(),
        );
    }
}
