//! Overrides: a dotted key and the value it gets, from `--set`, a `[[variant]]` or a `[sweep]`.

use std::sync::Arc;

use crate::document::{Entry, Node, Table, Value, parse, shorten};
use crate::section::Findings;
use crate::source::At;

/// The value that takes a key away.
pub(crate) const UNSET: &str = "unset";

/// One key of a path, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) at: At,
}

/// `path = node`.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// At least one step.
    pub(crate) path: Vec<Step>,
    pub(crate) node: Node,
}

impl Assignment {
    pub(crate) fn dotted(&self) -> String {
        dotted(&self.path)
    }

    /// The place of the last key.
    pub(crate) fn key_at(&self) -> &At {
        self.path.last().map_or(&self.node.at, |step| &step.at)
    }
}

pub(crate) fn dotted(path: &[Step]) -> String {
    path.iter().map(|step| step.name.as_str()).collect::<Vec<_>>().join(".")
}

/// True when an assignment to `path` replaces all that one to `other` sets.
pub(crate) fn covers(path: &[Step], other: &[Step]) -> bool {
    path.len() <= other.len() && path.iter().zip(other).all(|(a, b)| a.name == b.name)
}

/// The text `unset` becomes [`Value::Unset`].
pub(crate) fn with_unset(mut node: Node) -> Node {
    if matches!(&node.value, Value::Text(text) if text == UNSET) {
        node.value = Value::Unset;
    }
    node
}

/// The assignments of `--set` arguments, `dotted.key=value`. The value is TOML, or else a bare text; nothing, or `unset`,
/// takes the key away.
pub(crate) fn read_sets(sets: &[String], findings: &mut Findings) -> Vec<Assignment> {
    sets.iter().filter_map(|set| read_set(set, findings)).collect()
}

fn read_set(set: &str, findings: &mut Findings) -> Option<Assignment> {
    let at = At::Set(Arc::from(set));
    let Some((key, value)) = set.split_once('=') else {
        let help = "write --set dotted.key=value, for example --set cache.variant=swa".to_owned();
        findings.add(&at, "it has no `=`".to_owned(), Some(help));
        return None;
    };
    let Some(path) = read_path(key, &at) else {
        let help = "a dotted key looks like cache.window".to_owned();
        findings.add(&at, format!("`{}` is no dotted key", shorten(key)), Some(help));
        return None;
    };
    let value = value.trim();
    let node = match single(&format!("v = {value}"), &at) {
        _ if value.is_empty() => Node {
            at: at.clone(),
            value: Value::Unset,
        },
        Some(entry) if entry.key == "v" => entry.node,
        _ => Node {
            at: at.clone(),
            value: Value::Text(value.to_owned()),
        },
    };
    Some(Assignment {
        path,
        node: with_unset(node),
    })
}

/// The only entry of a TOML text.
fn single(text: &str, at: &At) -> Option<Entry> {
    match parse(text, &|_| at.clone()).ok()?.value {
        Value::Table(Table(mut entries)) if entries.len() == 1 => entries.pop(),
        _ => None,
    }
}

fn read_path(key: &str, at: &At) -> Option<Vec<Step>> {
    let mut path = Vec::new();
    let mut entry = single(&format!("{} = 0", key.trim()), at)?;
    loop {
        path.push(Step {
            name: entry.key,
            at: at.clone(),
        });
        entry = match entry.node.value {
            Value::Integer(0) => return Some(path),
            Value::Table(Table(mut entries)) => entries.pop()?,
            _ => return None,
        };
    }
}

/// Writes the assignment into a tree: tables on the way are made, a number is the index of a list.
pub(crate) fn apply(root: &mut Node, assignment: &Assignment, findings: &mut Findings) {
    let mut here = root;
    for (depth, step) in assignment.path.iter().enumerate() {
        let so_far = || dotted(assignment.path.get(..depth).unwrap_or_default());
        if matches!(here.value, Value::Unset) {
            *here = Node {
                at: step.at.clone(),
                value: Value::Table(Table::default()),
            };
        }
        let shown = here.describe();
        here = match &mut here.value {
            Value::Table(table) => child(table, step, depth + 1 == assignment.path.len()),
            Value::Array(items) => {
                let count = items.len();
                match step.name.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                    Some(item) => item,
                    None => {
                        let message = format!("`{}` is a list of {count}: it has no `{}`", so_far(), step.name);
                        let help = count.checked_sub(1).map(|last| format!("an index from 0 to {last}"));
                        findings.add(&step.at, message, help);
                        return;
                    }
                }
            }
            _ => {
                let message = format!(
                    "`{}` cannot be set: `{}` is {shown}, not a table",
                    assignment.dotted(),
                    so_far()
                );
                findings.add(&step.at, message, Some(format!("set `{}` as a whole", so_far())));
                return;
            }
        };
    }
    *here = assignment.node.clone();
}

/// The value of a key, which is made if need be. The last step of a path gives the key its place.
fn child<'t>(table: &'t mut Table, step: &Step, last: bool) -> &'t mut Node {
    let found = table.0.iter().position(|entry| entry.key == step.name);
    let index = found.unwrap_or(table.0.len());
    if found.is_none() {
        let node = Node {
            at: step.at.clone(),
            value: Value::Unset,
        };
        table.0.push(Entry {
            key: step.name.clone(),
            key_at: step.at.clone(),
            node,
        });
    }
    let entry = &mut table.0[index];
    if last {
        entry.key_at = step.at.clone();
    }
    &mut entry.node
}
