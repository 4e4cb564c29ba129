//! The options of a codec, as a config writes them, and the name that says which of them differ from the default.

use crate::Options;
use serde_json::Value;

/// What a config says about one codec. Whatever is read from it and is not the default becomes part of the
/// codec's name, so that two codecs with one name store the same bits.
pub struct Settings<'a> {
    name: &'static str,
    options: &'a Options,
    differing: Vec<String>,
}

impl<'a> Settings<'a> {
    /// # Errors
    /// An option that the codec does not have.
    pub(super) fn new(name: &'static str, known: &[&str], options: &'a Options) -> Result<Self, String> {
        match options.0.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) if known.is_empty() => Err(format!("{name} has no options, and got {key}")),
            Some(key) => Err(format!("{name} has no option {key}; it has {}", known.join(", "))),
            None => Ok(Self {
                name,
                options,
                differing: Vec::new(),
            }),
        }
    }

    fn get(&mut self, key: &str, default: &Value) -> Option<&'a Value> {
        let value = self.options.0.get(key)?;
        if value != default {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.differing.push(format!("{key}={text}"));
        }
        Some(value)
    }

    /// A whole number of at least 1, if there.
    pub(super) fn count_if_any(&mut self, key: &str) -> Result<Option<usize>, String> {
        match self.get(key, &Value::Null) {
            Some(_) => self.options.positive(key).map_err(|e| e.replacen("cache.", "", 1)),
            None => Ok(None),
        }
    }

    /// A whole number of at least 1.
    pub(super) fn count(&mut self, key: &str, default: usize) -> Result<usize, String> {
        match self.get(key, &default.into()) {
            Some(_) => {
                let count = self.options.positive(key).map_err(|e| e.replacen("cache.", "", 1))?;
                Ok(count.unwrap_or(default))
            }
            None => Ok(default),
        }
    }

    /// `true` or `false`; `false` if left out.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool, String> {
        match self.get(key, &false.into()) {
            Some(value) => value
                .as_bool()
                .ok_or_else(|| format!("{key} must be true or false, not {value}")),
            None => Ok(false),
        }
    }

    /// One of the words.
    pub(super) fn word(
        &mut self,
        key: &str,
        default: &'static str,
        known: &[&'static str],
    ) -> Result<&'static str, String> {
        let Some(value) = self.get(key, &default.into()) else {
            return Ok(default);
        };
        let found = known.iter().find(|word| value.as_str() == Some(word));
        found
            .copied()
            .ok_or_else(|| format!("{key} must be one of {}, not {value}", known.join(", ")))
    }

    /// Whether groups lie along the channel: one scale for each channel of `group` tokens.
    pub(super) fn per_channel(&mut self) -> Result<bool, String> {
        Ok(self.word("axis", "token", &["token", "channel"])? == "channel")
    }

    /// The codec's name with what was read and differs: `int4(group=16,rotate=true)`. Leaked: codecs live as long as
    /// the process, and are made once for each set of options.
    pub(super) fn label(&self) -> &'static str {
        match self.differing.is_empty() {
            true => self.name,
            false => format!("{}({})", self.name, self.differing.join(",")).leak(),
        }
    }
}
