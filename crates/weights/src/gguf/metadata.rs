//! Typed questions to the metadata of a GGUF file.

use std::path::Path;

use super::read::Header;
use super::value::{Value, elements};
use crate::WeightsError;

/// The metadata of a file, with the prefix of its architecture.
pub(super) struct Metadata<'a> {
    path: &'a Path,
    header: &'a Header<'a>,
}

impl<'a> Metadata<'a> {
    pub(super) fn new(path: &'a Path, header: &'a Header<'a>) -> Self {
        Self { path, header }
    }

    pub(super) fn bad(&self, key: &str, problem: impl Into<String>) -> WeightsError {
        WeightsError::BadKey {
            path: self.path.to_owned(),
            key: key.to_owned(),
            problem: problem.into(),
        }
    }

    pub(super) fn missing(&self, key: &str) -> WeightsError {
        WeightsError::MissingKey {
            path: self.path.to_owned(),
            key: key.to_owned(),
        }
    }

    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// `general.architecture`. Refuses a file that is one part of several.
    pub(super) fn architecture(&self) -> Result<&'a str, WeightsError> {
        if let Some(parts) = self.count("split.count")?.filter(|parts| *parts > 1) {
            return Err(self.bad(
                "split.count",
                format!("this is one of {parts} parts; join them with llama-gguf-split --merge"),
            ));
        }
        let key = "general.architecture";
        self.text(key)?.ok_or_else(|| self.missing(key))
    }

    fn get(&self, key: &str) -> Option<Value<'a>> {
        self.header.values.get(key).copied()
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(self.bad(key, format!("{}, not a string", kind(other)))),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.bad(key, format!("{}, not a bool", kind(other)))),
        }
    }

    /// A whole number that is not negative.
    pub(super) fn count(&self, key: &str) -> Result<Option<usize>, WeightsError> {
        self.get(key).map(|value| self.to_count(key, value)).transpose()
    }

    fn to_count(&self, key: &str, value: Value<'_>) -> Result<usize, WeightsError> {
        let number = match value {
            Value::Unsigned(n) => usize::try_from(n).ok(),
            Value::Signed(n) => usize::try_from(n).ok(),
            other => {
                return Err(self.bad(key, format!("{}, not a whole number", kind(other))));
            }
        };
        number.ok_or_else(|| self.bad(key, format!("{value:?} is out of range")))
    }

    /// A number, an f32 by its shortest decimal form: 1e-5 stays 1e-5.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>, WeightsError> {
        let number = match self.get(key) {
            None => return Ok(None),
            Some(Value::F32(x)) => x.to_string().parse().unwrap_or(f64::from(x)),
            Some(Value::F64(x)) => x,
            Some(Value::Unsigned(n)) => n as f64,
            Some(Value::Signed(n)) => n as f64,
            Some(other) => return Err(self.bad(key, format!("{}, not a number", kind(other)))),
        };
        if !number.is_finite() {
            return Err(self.bad(key, format!("{number} is not finite")));
        }
        Ok(Some(number))
    }

    /// A token id.
    pub(super) fn token(&self, key: &str) -> Result<Option<u32>, WeightsError> {
        let Some(id) = self.count(key)? else {
            return Ok(None);
        };
        let id = u32::try_from(id);
        Ok(Some(
            id.map_err(|_| self.bad(key, "a token id beyond 32 bits".to_owned()))?,
        ))
    }

    /// A count that must be there and not be 0. An array of one count per layer is accepted if all are equal.
    pub(super) fn positive(&self, key: &str) -> Result<usize, WeightsError> {
        self.positive_or_none(key)?.ok_or_else(|| self.missing(key))
    }

    /// As [`Self::positive`], `None` if the key is not there.
    pub(super) fn positive_or_none(&self, key: &str) -> Result<Option<usize>, WeightsError> {
        let count = match self.get(key) {
            Some(Value::List(_)) => self.equal_counts(key)?,
            _ => match self.count(key)? {
                None => return Ok(None),
                Some(count) => count,
            },
        };
        if count == 0 {
            return Err(self.bad(key, "0; it must be at least 1"));
        }
        Ok(Some(count))
    }

    fn equal_counts(&self, key: &str) -> Result<usize, WeightsError> {
        let counts = self.list(key, |value| self.to_count(key, value))?;
        let counts = counts.unwrap_or_default();
        let Some(first) = counts.first() else {
            return Err(self.bad(key, "an empty array"));
        };
        if let Some((layer, other)) = counts.iter().enumerate().find(|(_, n)| *n != first) {
            return Err(self.bad(
                key,
                format!(
                    "{first} in layer 0 and {other} in layer {layer}; a number that differs by layer is not supported"
                ),
            ));
        }
        Ok(*first)
    }

    /// Every element of an array.
    pub(super) fn list<T>(
        &self,
        key: &str,
        element: impl Fn(Value<'a>) -> Result<T, WeightsError>,
    ) -> Result<Option<Vec<T>>, WeightsError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::List(list)) => elements(self.path, self.header.bytes, list)
                .map(|value| element(value?))
                .collect::<Result<_, _>>()
                .map(Some),
            Some(other) => Err(self.bad(key, format!("{}, not an array", kind(other)))),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, WeightsError> {
        self.list(key, |value| match value {
            Value::Text(text) => Ok(text.to_owned()),
            other => Err(self.bad(key, format!("an array of {}, not of strings", kind(other)))),
        })
    }

    pub(super) fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, WeightsError> {
        self.list(key, |value| match value {
            Value::F32(x) => Ok(x),
            Value::F64(x) => Ok(x as f32),
            other => Err(self.bad(key, format!("an array of {}, not of floats", kind(other)))),
        })
    }

    pub(super) fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, WeightsError> {
        self.list(key, |value| {
            let number = match value {
                Value::Unsigned(n) => i32::try_from(n).ok(),
                Value::Signed(n) => i32::try_from(n).ok(),
                _ => None,
            };
            number.ok_or_else(|| self.bad(key, format!("{value:?} is not a whole number of 32 bits")))
        })
    }

    pub(super) fn is_list(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Value::List(_)))
    }

    pub(super) fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, WeightsError> {
        self.list(key, |value| match value {
            Value::Bool(flag) => Ok(flag),
            Value::Unsigned(n) => Ok(n != 0),
            Value::Signed(n) => Ok(n != 0),
            other => Err(self.bad(key, format!("an array of {}, not of bools", kind(other)))),
        })
    }
}

/// What a value is, in words.
fn kind(value: Value<'_>) -> &'static str {
    match value {
        Value::Unsigned(_) | Value::Signed(_) => "a whole number",
        Value::F32(_) | Value::F64(_) => "a float",
        Value::Bool(_) => "a bool",
        Value::Text(_) => "a string",
        Value::List(_) => "an array",
    }
}
