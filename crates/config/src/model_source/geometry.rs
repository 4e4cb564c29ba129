//! `[model.geometry]`: a free table, kept as JSON.

use crate::document::{Node, Table, Value};
use crate::section::{Field, Findings};

/// `None`, and a finding, when it is no table that JSON can hold.
pub(super) fn read_geometry(
    field: &Field<'_>,
    findings: &mut Findings,
) -> Option<serde_json::Map<String, serde_json::Value>> {
    let before = findings.0.len();
    match json(field.node, &field.path, findings) {
        Some(serde_json::Value::Object(geometry)) if !geometry.is_empty() => return Some(geometry),
        // A number that JSON cannot hold has been reported.
        _ if findings.0.len() > before => {}
        Some(serde_json::Value::Object(_)) => findings.add(
            field.key_at,
            format!("`{}` is empty", field.path),
            Some("it holds the keys of a Hugging Face config.json: model_type, hidden_size, ...".to_owned()),
        ),
        _ => {
            let message = format!("`{}` must be a table, and is {}", field.path, field.node.describe());
            findings.add(field.at(), message, None);
        }
    }
    None
}

/// The node as JSON, without what an override took away.
fn json(node: &Node, path: &str, findings: &mut Findings) -> Option<serde_json::Value> {
    use serde_json::Value as Json;
    Some(match &node.value {
        Value::Text(text) => Json::from(text.as_str()),
        Value::Integer(value) => Json::from(*value),
        Value::Boolean(value) => Json::from(*value),
        Value::Float(value) if value.is_finite() => Json::from(*value),
        Value::Array(items) => {
            let item = |(index, item)| json(item, &format!("{path}.{index}"), findings);
            Json::Array(items.iter().enumerate().filter_map(item).collect())
        }
        Value::Table(Table(entries)) => Json::Object(
            entries
                .iter()
                .filter_map(|entry| {
                    Some((
                        entry.key.clone(),
                        json(&entry.node, &format!("{path}.{}", entry.key), findings)?,
                    ))
                })
                .collect(),
        ),
        Value::Unset => return None,
        Value::Float(_) | Value::HugeInteger(_) | Value::Datetime(_) => {
            let message = format!("`{path}` is {}, which a config.json cannot hold", node.describe());
            findings.add(&node.at, message, None);
            return None;
        }
    })
}
