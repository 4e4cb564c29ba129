//! The words of the page, one table for each language.

use crate::ExplainError;
use serde_json::{Map, Value};

/// The tables, by the code of their language.
pub(super) const TABLES: [(&str, &str); 2] = [("en", include_str!("en.json")), ("ja", include_str!("ja.json"))];

/// All tables as one JSON object.
pub(super) fn all() -> Result<String, ExplainError> {
    let mut all = Map::new();
    for (language, table) in TABLES {
        all.insert(language.to_owned(), serde_json::from_str::<Value>(table)?);
    }
    Ok(serde_json::to_string(&all)?)
}
