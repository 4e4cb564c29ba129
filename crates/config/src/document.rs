//! The tree of a TOML text, in which every node knows where it was written.

use std::fmt::Write;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::source::At;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: At,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    /// An integer of more than 64 bits, as written.
    HugeInteger(String),
    Float(f64),
    Boolean(bool),
    Datetime(String),
    Array(Vec<Node>),
    Table(Table),
    /// A key that an override took away: it counts as absent.
    Unset,
}

/// The entries of a table in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(pub(crate) Vec<Entry>);

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_at: At,
    pub(crate) node: Node,
}

impl Table {
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }
}

/// A syntax error: its message, and its bytes in the text.
pub(crate) type SyntaxError = (String, Range<usize>);

/// The tree of `text`; `at` turns bytes of the text into a place.
pub(crate) fn parse(text: &str, at: &dyn Fn(Range<usize>) -> At) -> Result<Node, SyntaxError> {
    match DeTable::parse(text) {
        Ok(table) => Ok(Node {
            at: at(0..0),
            value: Value::Table(convert_table(table.into_inner(), at)),
        }),
        Err(error) => Err((error.message().replace('\n', ", "), error.span().unwrap_or(0..0))),
    }
}

// Recursion is bounded: the parser refuses a nesting deeper than 80.
fn convert_table(table: DeTable<'_>, at: &dyn Fn(Range<usize>) -> At) -> Table {
    let entry = |(key, value): (Spanned<DeString<'_>>, _)| Entry {
        key_at: at(key.span()),
        key: key.into_inner().into_owned(),
        node: convert(value, at),
    };
    Table(table.into_iter().map(entry).collect())
}

fn convert(node: Spanned<DeValue<'_>>, at: &dyn Fn(Range<usize>) -> At) -> Node {
    let place = at(node.span());
    let value = match node.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) => Value::Integer(value),
            Err(_) => Value::HugeInteger(integer.as_str().to_owned()),
        },
        // The grammar of a TOML float, its underscores removed, is a part of Rust's.
        DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(boolean) => Value::Boolean(boolean),
        DeValue::Datetime(datetime) => Value::Datetime(datetime.to_string()),
        DeValue::Array(array) => Value::Array(array.into_iter().map(|item| convert(item, at)).collect()),
        DeValue::Table(table) => Value::Table(convert_table(table, at)),
    };
    Node { at: place, value }
}

impl Node {
    /// The value on one line, for messages and names of cells: texts without quotes.
    pub(crate) fn show(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match &self.value {
            Value::Text(text) | Value::HugeInteger(text) | Value::Datetime(text) => out.push_str(text),
            Value::Integer(value) => out.push_str(&value.to_string()),
            Value::Float(value) => {
                // `{:?}` keeps the point of 1.0. Writing to a String cannot fail.
                let _ = write!(out, "{value:?}");
            }
            Value::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
            Value::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    item.write(out);
                }
                out.push(']');
            }
            Value::Table(table) => {
                out.push('{');
                for (index, entry) in table.0.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    out.push_str(&entry.key);
                    out.push('=');
                    entry.node.write(out);
                }
                out.push('}');
            }
            Value::Unset => out.push_str("unset"),
        }
    }

    /// What the node is, for a message: `the text "abc"`.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Text(text) => format!("the text \"{}\"", shorten(text)),
            Value::Datetime(text) => format!("the date {text}"),
            Value::Array(items) => format!("a list of {}", items.len()),
            Value::Table(_) => "a table".to_owned(),
            _ => shorten(&self.show()),
        }
    }

    /// The node as a plain TOML value; the datetimes of a config are its texts.
    pub(crate) fn to_toml(&self) -> Option<toml::Value> {
        Some(match &self.value {
            Value::Text(text) | Value::Datetime(text) => toml::Value::String(text.clone()),
            Value::Integer(value) => toml::Value::Integer(*value),
            Value::Float(value) => toml::Value::Float(*value),
            Value::Boolean(value) => toml::Value::Boolean(*value),
            Value::Array(items) => toml::Value::Array(items.iter().filter_map(Self::to_toml).collect()),
            Value::Table(table) => {
                let entries = table
                    .0
                    .iter()
                    .filter_map(|entry| Some((entry.key.clone(), entry.node.to_toml()?)));
                toml::Value::Table(entries.collect())
            }
            Value::HugeInteger(_) | Value::Unset => return None,
        })
    }
}

/// The start of a text that a person typed, short enough for a message, on one line.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}
