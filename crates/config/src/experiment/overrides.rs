//! What `[[variant]]` tables and `[sweep]` change: dotted or nested keys, as one list of assignments.

use crate::document::{Node, Table, Value, shorten};
use crate::edit::{Assignment, Step, covers, dotted, with_unset};
use crate::nearest::suggest;
use crate::section::Findings;
use crate::source::At;

/// The tables of a model file that a cell may change.
pub(super) const TABLES: [&str; 4] = ["model", "cache", "backend", "generate"];

/// One swept key and its values.
pub(super) struct Axis {
    pub(super) path: Vec<Step>,
    /// At least one, none twice.
    pub(super) values: Vec<Node>,
}

/// True for tables that are merged key by key; any other table is a value, which is replaced as a whole.
fn is_merged(path: &[Step]) -> bool {
    match path {
        [table] => TABLES.contains(&table.name.as_str()),
        [table, key] => table.name == "model" && key.name == "geometry",
        _ => false,
    }
}

/// True when the path starts with a table that a cell may change.
pub(super) fn is_cell_key(path: &[Step]) -> bool {
    path.first().is_some_and(|step| TABLES.contains(&step.name.as_str()))
}

/// `prefix` and the steps of a key, which may be dotted; `None`, and a finding, when it leads nowhere.
fn extend(prefix: &[Step], key: &str, at: &At, findings: &mut Findings) -> Option<Vec<Step>> {
    let steps = key.split('.').map(|name| Step {
        name: name.trim().to_owned(),
        at: at.clone(),
    });
    let path: Vec<Step> = prefix.iter().cloned().chain(steps).collect();
    let message = match path.first() {
        _ if path.iter().any(|step| step.name.is_empty()) => format!("`{}` is no dotted key", shorten(key)),
        Some(first) if !is_cell_key(&path) => {
            let help = suggest(&first.name, &TABLES);
            findings.add(
                at,
                format!("`{}` is no key that a cell can change", shorten(&dotted(&path))),
                Some(help),
            );
            return None;
        }
        _ => return Some(path),
    };
    findings.add(at, message, Some("a dotted key looks like \"cache.window\"".to_owned()));
    None
}

/// The assignments in a table of dotted or nested keys, such as `set`.
pub(super) fn assignments(table: &Table, findings: &mut Findings) -> Vec<Assignment> {
    let mut out = Vec::new();
    flatten(table, &[], is_merged, findings, &mut |path, node, findings| {
        if is_merged(&path) && !matches!(node.value, Value::Unset) {
            let message = format!("`{}` must be a table, and is {}", dotted(&path), node.describe());
            findings.add(&node.at, message, None);
        } else {
            out.push(Assignment { path, node });
        }
    });
    out
}

/// The leaves of a table of dotted or nested keys, unjudged.
pub(super) fn paths(table: &Table, findings: &mut Findings) -> Vec<Assignment> {
    let mut out = Vec::new();
    flatten(table, &[], is_merged, findings, &mut |path, node, _| {
        out.push(Assignment { path, node })
    });
    out
}

/// The axes in `[sweep]`, in the order of the file.
pub(super) fn axes(table: &Table, findings: &mut Findings) -> Vec<Axis> {
    let mut axes = Vec::new();
    flatten(table, &[], |_| true, findings, &mut |path, node, findings| {
        axes.extend(axis(path, node, findings))
    });
    axes
}

/// One axis; `None`, and a finding, when its value is no list.
pub(super) fn axis(path: Vec<Step>, node: Node, findings: &mut Findings) -> Option<Axis> {
    let key = dotted(&path);
    let shown = node.describe();
    match node.value {
        Value::Array(values) if !values.is_empty() => {
            let mut kept: Vec<Node> = Vec::new();
            let mut names: Vec<String> = Vec::new();
            for value in values.into_iter().map(with_unset) {
                let name = value.show();
                if names.contains(&name) {
                    let message = format!("`{key}` sweeps over {} twice", value.describe());
                    findings.add(&value.at, message, Some("name each value once".to_owned()));
                } else {
                    names.push(name);
                    kept.push(value);
                }
            }
            Some(Axis { path, values: kept })
        }
        _ => {
            let message = format!("`{key}` must be a list of values to sweep over, and is {shown}");
            findings.add(
                &node.at,
                message,
                Some("for example \"cache.key\" = [\"f32\", \"f16\"]".to_owned()),
            );
            None
        }
    }
}

type Leaf<'f> = dyn FnMut(Vec<Step>, Node, &mut Findings) + 'f;

/// Calls `leaf` for every value that is not a table into which `descend` leads.
fn flatten(table: &Table, prefix: &[Step], descend: fn(&[Step]) -> bool, findings: &mut Findings, leaf: &mut Leaf<'_>) {
    for entry in &table.0 {
        let Some(path) = extend(prefix, &entry.key, &entry.key_at, findings) else {
            continue;
        };
        match &entry.node.value {
            Value::Table(inner) if descend(&path) => flatten(inner, &path, descend, findings, leaf),
            _ => leaf(path, with_unset(entry.node.clone()), findings),
        }
    }
}

/// A finding for each assignment that undoes an earlier one, or part of it.
pub(super) fn refuse_repeats(assignments: &[Assignment], what: &str, findings: &mut Findings) {
    for (index, later) in assignments.iter().enumerate() {
        let earlier = assignments.iter().take(index);
        if earlier.into_iter().any(|earlier| covers(&later.path, &earlier.path)) {
            let message = format!("{what} sets `{}` twice", later.dotted());
            findings.add(later.key_at(), message, Some("keep one of them".to_owned()));
        }
    }
}
