//! Reading one table: its keys with their types, and what remains as unknown.

use crate::document::{Node, Table, Value, shorten};
use crate::nearest::{nearest, suggest};
use crate::source::At;

/// A problem before its place is turned into a line and a column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) at: At,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// The problems found so far.
#[derive(Debug, Default)]
pub(crate) struct Findings(pub(crate) Vec<Finding>);

impl Findings {
    pub(crate) fn add(&mut self, at: &At, message: String, help: Option<String>) {
        self.0.push(Finding {
            at: at.clone(),
            message,
            help,
        });
    }
}

/// A table that is being read.
pub(crate) struct Section<'t> {
    /// Dotted; empty for the whole file.
    path: String,
    at: &'t At,
    table: Option<&'t Table>,
    /// Every key that was asked for: the known ones.
    known: Vec<String>,
}

/// A key that is present.
pub(crate) struct Field<'t> {
    /// Dotted: `cache.window`.
    pub(crate) path: String,
    pub(crate) key_at: &'t At,
    pub(crate) node: &'t Node,
}

impl<'t> Section<'t> {
    /// The table of a node; a finding, and an empty section, when it is none.
    pub(crate) fn new(path: &str, node: &'t Node, findings: &mut Findings) -> Self {
        let table = match &node.value {
            Value::Table(table) => Some(table),
            Value::Unset => None,
            _ => {
                let message = format!("`{path}` must be a table, and is {}", node.describe());
                findings.add(&node.at, message, None);
                None
            }
        };
        Self {
            path: path.to_owned(),
            at: &node.at,
            table,
            known: Vec::new(),
        }
    }

    /// The place of the table, for what is missing in it.
    pub(crate) fn at(&self) -> &'t At {
        self.at
    }

    /// The dotted path of a key of this table.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The key, if it is present. Asking makes it known.
    pub(crate) fn take(&mut self, key: &str) -> Option<Field<'t>> {
        self.known.push(key.to_owned());
        let entry = self.table?.entry(key)?;
        if matches!(entry.node.value, Value::Unset) {
            return None;
        }
        Some(Field {
            path: self.path_of(key),
            key_at: &entry.key_at,
            node: &entry.node,
        })
    }

    /// The key, or a finding that it is missing; `example` is what could stand there.
    pub(crate) fn require(&mut self, key: &str, example: &str, findings: &mut Findings) -> Option<Field<'t>> {
        let field = self.take(key);
        if field.is_none() {
            findings.add(
                self.at,
                format!("`{}` is missing", self.path_of(key)),
                Some(format!("for example {example}")),
            );
        }
        field
    }

    /// The table of a key; an empty one when it is absent.
    pub(crate) fn section(&mut self, key: &str, findings: &mut Findings) -> Section<'t> {
        let path = self.path_of(key);
        match self.take(key) {
            Some(field) => Section::new(&path, field.node, findings),
            None => Section {
                path,
                at: self.at,
                table: None,
                known: Vec::new(),
            },
        }
    }

    /// True when nothing is written in the table.
    pub(crate) fn is_absent(&self) -> bool {
        self.table.is_none()
    }

    /// A finding for every key that nobody asked for.
    pub(crate) fn finish(self, findings: &mut Findings) {
        self.finish_with(&[], findings);
    }

    /// As [`finish`](Self::finish); `reserved` are keys that are planned: name, what they are.
    pub(crate) fn finish_with(self, reserved: &[(&str, &str)], findings: &mut Findings) {
        let known: Vec<&str> = self.known.iter().map(String::as_str).collect();
        let strangers = self.table.into_iter().flat_map(|table| &table.0);
        for entry in strangers.filter(|entry| !known.contains(&entry.key.as_str())) {
            let path = self.path_of(&shorten(&entry.key));
            let (message, help) = match reserved.iter().find(|(name, _)| *name == entry.key) {
                Some((_, what)) => (
                    format!("`{path}` is not built yet: {what}"),
                    "remove the key".to_owned(),
                ),
                None => (format!("unknown key `{path}`"), suggest(&entry.key, &known)),
            };
            findings.add(&entry.key_at, message, Some(help));
        }
    }
}

impl<'t> Field<'t> {
    /// The place of the value.
    pub(crate) fn at(&self) -> &'t At {
        &self.node.at
    }

    fn must_be(&self, what: &str, findings: &mut Findings) {
        let message = format!("`{}` must be {what}, and is {}", self.path, self.node.describe());
        findings.add(self.at(), message, None);
    }

    /// A whole number of at least `min`.
    pub(crate) fn whole(&self, min: usize, findings: &mut Findings) -> Option<usize> {
        let value = match &self.node.value {
            Value::Integer(value) => usize::try_from(*value).ok().filter(|value| *value >= min),
            _ => None,
        };
        if value.is_none() {
            self.must_be(&format!("a whole number of at least {min}"), findings);
        }
        value
    }

    /// A seed: a whole number from 0 to 2^63 - 1.
    pub(crate) fn seed(&self, findings: &mut Findings) -> Option<u64> {
        let value = match &self.node.value {
            Value::Integer(value) => u64::try_from(*value).ok(),
            _ => None,
        };
        if value.is_none() {
            self.must_be("a whole number from 0 to 2^63 - 1", findings);
        }
        value
    }

    /// A finite number that `allowed` accepts; an integer is one too.
    pub(crate) fn number(&self, what: &str, allowed: impl Fn(f64) -> bool, findings: &mut Findings) -> Option<f64> {
        let value = match &self.node.value {
            Value::Float(value) => Some(*value),
            // Exact below 2^53, and no setting is near that.
            Value::Integer(value) => Some(*value as f64),
            _ => None,
        };
        let value = value.filter(|value| value.is_finite() && allowed(*value));
        if value.is_none() {
            self.must_be(what, findings);
        }
        value
    }

    pub(crate) fn boolean(&self, findings: &mut Findings) -> Option<bool> {
        if let Value::Boolean(value) = self.node.value {
            return Some(value);
        }
        self.must_be("true or false", findings);
        None
    }

    /// A text that is not empty.
    pub(crate) fn text(&self, findings: &mut Findings) -> Option<&'t str> {
        match &self.node.value {
            Value::Text(text) if text.trim().is_empty() => {
                findings.add(self.at(), format!("`{}` is empty", self.path), None);
                None
            }
            Value::Text(text) => Some(text),
            _ => {
                self.must_be("a text", findings);
                None
            }
        }
    }

    /// The items of a list that is not empty, each a field with its index in the path.
    pub(crate) fn list(&self, what: &str, findings: &mut Findings) -> Vec<Field<'t>> {
        match &self.node.value {
            Value::Array(items) if !items.is_empty() => {
                let item = |(index, node): (usize, &'t Node)| Field {
                    path: format!("{}.{index}", self.path),
                    key_at: &node.at,
                    node,
                };
                items.iter().enumerate().map(item).collect()
            }
            Value::Array(_) => {
                findings.add(
                    self.at(),
                    format!("`{}` is an empty list: it must have {what}", self.path),
                    None,
                );
                Vec::new()
            }
            _ => {
                self.must_be(&format!("a list of {what}"), findings);
                Vec::new()
            }
        }
    }

    /// A name that files and folders can be called: letters, digits, `.`, `_`, `-`.
    pub(crate) fn file_name(&self, findings: &mut Findings) -> Option<&'t str> {
        let text = self.text(findings)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if text.len() <= 100 && !text.starts_with(['.', '-']) && text.chars().all(plain) {
            return Some(text);
        }
        findings.add(
            self.at(),
            format!(
                "`{}` must be usable as a folder name, and is \"{}\"",
                self.path,
                shorten(text)
            ),
            Some("letters, digits, `_`, and after the first also `-` and `.`; at most 100 characters".to_owned()),
        );
        None
    }

    /// One of the named values. `reserved` are names that are planned.
    pub(crate) fn choice<T: Copy>(
        &self,
        choices: &[(&str, T)],
        reserved: &[&str],
        findings: &mut Findings,
    ) -> Option<T> {
        let text = self.text(findings)?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*value);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let shown = shorten(text);
        let message = if reserved.contains(&text) {
            format!("`{}` = \"{shown}\" is not built yet", self.path)
        } else {
            format!("`{}` is \"{shown}\", which is not known", self.path)
        };
        let near = nearest(text, names.iter().copied()).filter(|_| !reserved.contains(&text));
        let near = near.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
        findings.add(self.at(), message, Some(format!("{near}one of: {}", names.join(", "))));
        None
    }
}
