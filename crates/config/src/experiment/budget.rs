//! `budget` and `fit`: all cells at one size, and the knob of each that makes it so.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::CacheConfig;
use crate::section::{Field, Findings};

/// The most bytes that a cell's cache may use: a share of what the model's own cache uses with every row in f16, at the longest
/// text of the workload. (f16 is what serving systems keep rows in where nothing else is asked for.)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// More than 0, at most 100.
    pub percent: f64,
}

impl FromStr for Budget {
    type Err = String;

    /// Reads `25 %`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().strip_suffix('%').map(str::trim_end);
        let percent = number.and_then(|number| number.parse::<f64>().ok());
        match percent.filter(|percent| *percent > 0.0 && *percent <= 100.0) {
            Some(percent) => Ok(Self { percent }),
            None => Err("a share of the full cache above 0 and up to 100 %, such as \"25 %\"".to_owned()),
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.percent)
    }
}

impl Serialize for Budget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Budget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// What of a cell is chosen so that it keeps the budget: always the value that keeps most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fit {
    /// `cache.window`: the longest.
    Window,
    /// `cache.key` and `cache.value`, one number format for both: the one with most bits.
    Codec,
    /// `cache.kv_lora_rank`: the largest.
    Rank,
    /// `cache.num_key_value_heads`: the most.
    Heads,
    /// Nothing, and the cell need not keep the budget: it is there to be compared with.
    Unlimited,
}

impl Fit {
    /// The keys that it sets.
    #[must_use]
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Window => &["cache.window"],
            Self::Codec => &["cache.key", "cache.value"],
            Self::Rank => &["cache.kv_lora_rank"],
            Self::Heads => &["cache.num_key_value_heads"],
            Self::Unlimited => &[],
        }
    }

    /// A key that it would set and that is set already.
    pub(super) fn conflict(self, cache: &CacheConfig) -> Option<&'static str> {
        let set = match self {
            Self::Window => [cache.window.is_some(), false],
            Self::Codec => [cache.key.is_some(), cache.value.is_some()],
            Self::Rank => [cache.kv_lora_rank.is_some(), false],
            Self::Heads => [cache.num_key_value_heads.is_some(), false],
            Self::Unlimited => [false, false],
        };
        self.keys().iter().zip(set).find_map(|(key, set)| set.then_some(*key))
    }
}

pub(super) fn read_budget(field: &Field<'_>, findings: &mut Findings) -> Option<Budget> {
    match field.text(findings)?.parse() {
        Ok(budget) => Some(budget),
        Err(what) => {
            let message = format!("`{}` must be {what}, and is {}", field.path, field.node.describe());
            findings.add(field.at(), message, None);
            None
        }
    }
}

pub(super) fn read_fit(field: &Field<'_>, findings: &mut Findings) -> Option<Fit> {
    let knobs = [
        ("window", Fit::Window),
        ("codec", Fit::Codec),
        ("rank", Fit::Rank),
        ("heads", Fit::Heads),
        ("unlimited", Fit::Unlimited),
    ];
    field.choice(&knobs, &[], findings)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_budget_is_a_share() {
        for text in ["25 %", "25%", " 25.0  % "] {
            assert_eq!(text.parse(), Ok(Budget { percent: 25.0 }), "{text}");
        }
        for text in ["25", "0 %", "-1 %", "101 %", "NaN %", "inf %", "%", "8 KiB"] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
        let budget = Budget { percent: 12.5 };
        assert_eq!(budget.to_string().parse(), Ok(budget));
    }
}
