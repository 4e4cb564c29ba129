//! `[[workload.recall]]`: what is hidden in the text and asked for at its end, in the manner of RULER (Hsieh et al., 2024).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiment::workload::read_sizes;
use crate::section::{Field, Findings, Section};

/// One task, asked at every length and depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallTask {
    /// What is hidden.
    pub kind: RecallKind,
    /// How many: needles, or steps from one variable to the next. 1 for a single needle.
    pub count: usize,
    /// How it is said.
    pub style: RecallStyle,
    /// Tokens of a context with its question, each at least 1, none twice.
    pub lengths: Vec<usize>,
    /// Where the needle stands, % of the context before the question, 0 to 100, none twice.
    pub depths: Vec<f64>,
    /// Questions at each length and depth, at least 1. The n-th one hides the same at every depth.
    pub trials: usize,
}

/// What is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecallKind {
    /// One fact, which is asked for.
    Needle,
    /// Several facts of one kind, one of which is asked for.
    Needles,
    /// A variable that is set to another, and so on: what is the value of the last?
    Variables,
}

/// How it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecallStyle {
    /// In English sentences.
    Words,
    /// In pairs of characters that the text does not have, for models that can do no more than to say what followed a
    /// character: a variable is then asked for step by step.
    Symbols,
}

impl fmt::Display for RecallTask {
    /// The name of the task in tables: `needle`, `needles 4`, `variables 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RecallKind::Needle => write!(f, "needle"),
            RecallKind::Needles => write!(f, "needles {}", self.count),
            RecallKind::Variables => write!(f, "variables {}", self.count),
        }
    }
}

const LENGTHS: [usize; 1] = [512];
const DEPTHS: [f64; 5] = [0.0, 25.0, 50.0, 75.0, 100.0];
const TRIALS: usize = 3;
/// More needles than this have no names.
const MOST: usize = 12;

/// All tasks of a workload.
pub(super) fn read_recall(field: Option<Field<'_>>, findings: &mut Findings) -> Vec<RecallTask> {
    let mut tasks: Vec<RecallTask> = Vec::new();
    let Some(field) = field else { return tasks };
    for item in field.list("`[[workload.recall]]` tables", findings) {
        let Some(task) = RecallTask::read(Section::new(&item.path, item.node, findings), findings) else {
            continue;
        };
        let name = task.to_string();
        if tasks.iter().any(|other| other.to_string() == name) {
            let help = "give one task all lengths and depths".to_owned();
            findings.add(item.at(), format!("two recall tasks are `{name}`"), Some(help));
        }
        tasks.push(task);
    }
    tasks
}

impl RecallTask {
    fn read(mut section: Section<'_>, findings: &mut Findings) -> Option<Self> {
        let kinds = [
            ("needle", RecallKind::Needle),
            ("needles", RecallKind::Needles),
            ("variables", RecallKind::Variables),
        ];
        let kind = section.require("kind", "kind = \"needle\"", findings);
        let kind = kind.and_then(|field| field.choice(&kinds, &[], findings));
        let styles = [("words", RecallStyle::Words), ("symbols", RecallStyle::Symbols)];
        let style = section.take("style");
        let style = style.and_then(|field| field.choice(&styles, &[], findings));
        let lengths = section.take("lengths");
        let lengths = lengths.map(|field| read_sizes(&field, "lengths of contexts in tokens", findings));
        let depths = section.take("depths").map(|field| read_depths(&field, findings));
        let trials = section.take("trials").and_then(|field| field.whole(1, findings));
        let count = match kind {
            Some(RecallKind::Needles) => read_count(&mut section, "needles", 2, 4, findings),
            Some(RecallKind::Variables) => read_count(&mut section, "hops", 1, 2, findings),
            _ => 1,
        };
        section.finish(findings);
        Some(Self {
            kind: kind?,
            count,
            style: style.unwrap_or(RecallStyle::Words),
            lengths: lengths.unwrap_or_else(|| LENGTHS.to_vec()),
            depths: depths.unwrap_or_else(|| DEPTHS.to_vec()),
            trials: trials.unwrap_or(TRIALS),
        })
    }
}

fn read_count(section: &mut Section<'_>, key: &str, min: usize, default: usize, findings: &mut Findings) -> usize {
    let Some(field) = section.take(key) else { return default };
    let Some(count) = field.whole(min, findings) else {
        return default;
    };
    if count > MOST {
        let message = format!("`{}` is {count}, and {MOST} is the most", field.path);
        findings.add(field.at(), message, None);
    }
    count
}

fn read_depths(field: &Field<'_>, findings: &mut Findings) -> Vec<f64> {
    let mut depths: Vec<f64> = Vec::new();
    for item in field.list("depths in % of the context", findings) {
        let within = |depth: f64| (0.0..=100.0).contains(&depth);
        let Some(depth) = item.number("a depth from 0 to 100 %", within, findings) else {
            continue;
        };
        if depths.contains(&depth) {
            findings.add(item.at(), format!("`{}` has the depth {depth} twice", field.path), None);
        }
        depths.push(depth);
    }
    depths
}
