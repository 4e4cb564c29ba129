//! Runs an experiment, and keeps what came of it.

use crate::environment::Environment;
use crate::journal::{self, Journal};
use crate::report::{self, Report};
use crate::session::Session;
use crate::{LabError, Progress, Rates, Record, Row, budget, passage, quality, recall, row, speed};
use kvlab_config::Experiment;
use kvlab_core::CacheSpec;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// How to run a comparison.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The folder that runs go into; each has a folder of its own in it.
    pub runs: PathBuf,
    /// Whether to measure again what the records hold already.
    pub fresh: bool,
    /// Whether to measure what the machine can do at most, once a run, for the fractions in [`Work`](crate::Work). It takes
    /// two seconds, and a gigabyte of memory at most.
    pub probe: bool,
    /// The commit that kvlab was built from, for the records.
    pub commit: Option<String>,
    /// The command that runs the comparison again, for the report.
    pub command: Option<String>,
}

impl Default for CompareOptions {
    /// Into `runs`, going on with what is there.
    fn default() -> Self {
        Self {
            runs: PathBuf::from("runs"),
            fresh: false,
            probe: false,
            commit: None,
            command: None,
        }
    }
}

/// What came of an experiment.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The folder with its files.
    pub folder: PathBuf,
    /// The experiment.
    pub experiment: Experiment,
    /// What it was measured on.
    pub environment: Environment,
    /// The command that runs it again.
    pub command: Option<String>,
    /// One for each cell, in the order of the experiment.
    pub rows: Vec<Row>,
    /// Everything that was measured, in the order in which it was.
    pub records: Vec<Record>,
}

const ENVIRONMENT: &str = "environment.json";
const RESOLVED: &str = "resolved.toml";
const COMMAND: &str = "command.txt";

impl Comparison {
    /// The table for a terminal of so many columns (`None`: as wide as it needs), with its footnotes.
    pub fn table(&self, width: Option<u16>) -> String {
        report::terminal(&self.rows, width)
    }

    /// The report (`report.md`).
    ///
    /// # Errors
    /// [`LabError::Write`].
    pub fn markdown(&self) -> Result<String, LabError> {
        report::markdown(&Report::new(&[self]))
    }

    /// Reads a run back from its folder: what `compare` measured into it, finished or not. Nothing there is changed.
    ///
    /// # Errors
    /// [`LabError`]: no folder of a run, or files in it that cannot be read.
    pub fn load(folder: &Path) -> Result<Self, LabError> {
        let text = |name: &str| {
            let path = folder.join(name);
            match fs::read_to_string(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(LabError::NoRun {
                    folder: folder.to_owned(),
                    missing: path,
                }),
                other => other.map_err(LabError::io(path)),
            }
        };
        let resolved = text(RESOLVED)?;
        let experiment: Experiment = toml::from_str(&resolved).map_err(|error| LabError::Records {
            path: folder.join(RESOLVED),
            line: error
                .span()
                .map_or(1, |span| 1 + resolved[..span.start].matches('\n').count()),
            reason: error.message().to_owned(),
        })?;
        let environment = read_environment(&folder.join(ENVIRONMENT), &text(ENVIRONMENT)?)?;
        let records = journal::read(&folder.join(journal::FILE), text(journal::FILE)?.as_bytes())?;
        let rows = experiment.cells().iter().map(|cell| {
            // A cell that failed was tried again if anything came after it.
            let last = records.iter().rev().find(|record| record.cell() == cell.name);
            let error = match last {
                Some(Record::Failure(failure)) => Some(failure.error.clone()),
                _ => None,
            };
            row::from_records(&experiment, cell, &records, error, environment.rates.as_ref())
        });
        Ok(Self {
            rows: rows.collect(),
            folder: folder.to_owned(),
            environment,
            command: text(COMMAND).ok().map(|command| command.trim_end().to_owned()),
            records,
            experiment,
        })
    }

    /// What the cache of a cell holds; `None` if it was never loaded.
    pub(crate) fn spec(&self, cell: &str) -> Option<&CacheSpec> {
        self.records.iter().find_map(|record| match record {
            Record::Cell(r) if r.cell == cell => Some(&r.spec),
            _ => None,
        })
    }

    /// The cells that failed, with the reason of each.
    pub fn failed(&self) -> Vec<(&str, &str)> {
        let rows = self.rows.iter();
        rows.filter_map(|row| Some((row.cell.as_str(), row.error.as_deref()?)))
            .collect()
    }
}

/// Writes the report of a run, or of several side by side, into a folder: `report.html`, `report.md`, `results.csv`,
/// `layers.csv`, `records.parquet`, `figures/*.svg` and `tables/*`.
///
/// # Errors
/// [`LabError`]: files that cannot be written.
pub fn write_report(runs: &[&Comparison], out: &Path) -> Result<(), LabError> {
    report::write(&Report::new(runs), out)
}

/// Runs every cell of an experiment, and writes `resolved.toml`, `environment.json`, `command.txt`, `records.jsonl` and the files
/// of [`write_report`] into `<runs>/<name>-<hash of the resolved config>`. What the records there hold already is not measured
/// again, except for cells that failed.
///
/// # Errors
/// [`LabError`]: files that cannot be read or written, and records that were measured on something else. What goes
/// wrong in a cell is a row with an `error`.
pub fn compare(
    experiment: &Experiment,
    options: &CompareOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Comparison, LabError> {
    let (experiment, refused) = budget::apply(experiment);
    let experiment = &experiment;
    let resolved = experiment.to_toml()?;
    let text = passage::read(&experiment.workload)?;
    let folder = options
        .runs
        .join(format!("{}-{}", experiment.name, short_hash(&resolved)));
    fs::create_dir_all(&folder).map_err(LabError::io(&folder))?;
    let journal = Journal::open(&folder, options.fresh)?;
    let environment = Environment::of(experiment, &text, options.commit.clone());
    let mut session = Session::new(experiment, text, journal, progress);
    let mut environment = settle(environment, &folder, &session)?;
    write(&folder, RESOLVED, &resolved)?;
    for (cell, reason) in refused {
        session.fail(&cell, reason)?;
    }
    quality::measure(&mut session)?;
    if experiment.measure.recall {
        recall::measure(&mut session)?;
    }
    if experiment.measure.speed {
        speed::measure(&mut session)?;
    }
    // Afterwards: its memory would count into the peak of the process.
    if options.probe && environment.rates.is_none() && experiment.measure.speed {
        environment.rates = Some(Rates::measure());
        write_environment(&folder, &environment)?;
    }
    let comparison = Comparison {
        experiment: experiment.clone(),
        rows: session.rows(environment.rates.as_ref()),
        environment,
        command: options.command.clone(),
        records: session.into_records(),
        folder,
    };
    if let Some(command) = &comparison.command {
        write(&comparison.folder, COMMAND, &format!("{command}\n"))?;
    }
    write_report(&[&comparison], &comparison.folder)?;
    Ok(comparison)
}

fn read_environment(path: &Path, text: &str) -> Result<Environment, LabError> {
    serde_json::from_str(text).map_err(|error| LabError::Records {
        path: path.to_owned(),
        line: error.line(),
        reason: error.to_string(),
    })
}

/// The environment that all records come from: written by the first run, and required to be the same by any that adds
/// to them.
fn settle(now: Environment, folder: &Path, session: &Session<'_>) -> Result<Environment, LabError> {
    if session.is_empty() {
        write_environment(folder, &now)?;
        return Ok(now);
    }
    let path = folder.join(ENVIRONMENT);
    let text = fs::read_to_string(&path).map_err(LabError::io(&path))?;
    let then = read_environment(&path, &text)?;
    match then.difference(&now) {
        Some(what) if !session.complete() => Err(LabError::Changed {
            folder: folder.to_owned(),
            what,
        }),
        _ => Ok(then),
    }
}

fn write_environment(folder: &Path, environment: &Environment) -> Result<(), LabError> {
    let text = serde_json::to_string_pretty(environment).map_err(|e| LabError::Write {
        what: ENVIRONMENT,
        reason: e.to_string(),
    })?;
    write(folder, ENVIRONMENT, &(text + "\n"))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), LabError> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(LabError::io(&path))
}

/// The first 8 hexadecimal digits of the SHA-256 of a text.
fn short_hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
