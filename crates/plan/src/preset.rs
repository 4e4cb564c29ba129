//! Small TOML files that come with kvlab, or of one's own: devices and prices.

use crate::PlanError;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// The version of their format.
pub(crate) const SCHEMA: u32 = 1;

/// The one of that name, or the file of that path.
pub(crate) fn find<T: DeserializeOwned>(
    kind: &'static str,
    name: &str,
    built_in: &[(&str, &str)],
    example: &'static str,
) -> Result<T, PlanError> {
    let path = Path::new(name);
    if path.extension().is_some_and(|end| end == "toml") {
        let text = std::fs::read_to_string(path).map_err(|error| PlanError::Preset {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        return parse(path.to_owned(), &text);
    }
    let found = built_in.iter().find(|(known, _)| *known == name);
    let (name, text) = found.ok_or_else(|| PlanError::Unknown {
        kind,
        name: name.to_owned(),
        known: known(kind, built_in),
        example,
    })?;
    parse(PathBuf::from(name), text)
}

fn known(kind: &str, built_in: &[(&str, &str)]) -> String {
    let mut names: Vec<_> = built_in.iter().map(|(name, _)| *name).collect();
    if kind == "device" {
        names.push("this");
    }
    names.join(", ")
}

fn parse<T: DeserializeOwned>(path: PathBuf, text: &str) -> Result<T, PlanError> {
    let bad = |problem: String| PlanError::Preset {
        path: path.clone(),
        problem,
    };
    let table: toml::Table = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
    match table.get("schema").and_then(toml::Value::as_integer) {
        Some(schema) if schema == i64::from(SCHEMA) => {}
        _ => return Err(bad(format!("must say schema = {SCHEMA}"))),
    }
    toml::from_str(text).map_err(|error| bad(error.to_string()))
}
