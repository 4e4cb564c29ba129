//! JSON files that must hold an object.

use std::path::Path;

use serde_json::{Map, Value};

use crate::WeightsError;

pub(super) fn read(path: &Path) -> Result<Vec<u8>, WeightsError> {
    std::fs::read(path).map_err(|source| WeightsError::Io {
        path: path.to_owned(),
        source,
    })
}

pub(super) fn object(path: &Path, bytes: &[u8]) -> Result<Map<String, Value>, WeightsError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(bad(path, format!("must be a JSON object, and is {}", kind(&other)))),
        Err(e) => Err(bad(path, format!("not JSON: {e}"))),
    }
}

/// The object in a file that need not be there.
pub(super) fn object_if_there(path: &Path) -> Result<Option<Map<String, Value>>, WeightsError> {
    if !path.is_file() {
        return Ok(None);
    }
    object(path, &read(path)?).map(Some)
}

pub(super) fn bad(path: &Path, problem: String) -> WeightsError {
    WeightsError::Json {
        path: path.to_owned(),
        problem,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
