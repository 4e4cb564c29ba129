//! Rotary embeddings out of a config, in both spellings.
//!
//! Transformers 5 writes `rope_parameters { rope_type, rope_theta, .. }`, the files of the hub have `rope_theta` and
//! `rope_scaling { rope_type | type, .. }`. Formulas: `modeling_rope_utils.py` of Transformers.

use super::plan::{RopePairs, RopePlan, RopeScaling, yarn_mscale};
use crate::ModelError;
use crate::config::{Keys, finite};
use serde_json::{Map, Value};

/// What a family knows about its rotary embedding, apart from the config.
#[derive(Clone, Copy)]
pub(crate) struct RopeDefaults {
    pub(crate) theta: f64,
    /// Values of a head that turn at `partial_rotary_factor = 1`.
    pub(crate) dim: usize,
    /// `partial_rotary_factor`.
    pub(crate) partial: f64,
    pub(crate) pairs: RopePairs,
}

/// The one rotary embedding of a model.
pub(crate) fn rope(keys: &Keys<'_>, defaults: RopeDefaults) -> Result<RopePlan, ModelError> {
    let table = match (keys.get("rope_parameters"), keys.get("rope_scaling")) {
        (Some(_), Some(_)) => {
            let problem = "both `rope_parameters` and `rope_scaling` are given; keep one";
            return Err(ModelError::config("rope_scaling", problem));
        }
        (Some(table), None) => Some(Table::new("rope_parameters", table)?),
        (None, Some(table)) => Some(Table::new("rope_scaling", table)?),
        (None, None) => None,
    };
    let theta = keys.optional_positive("rope_theta")?.unwrap_or(defaults.theta);
    let partial = keys.optional_positive("partial_rotary_factor")?;
    let partial = partial.unwrap_or(defaults.partial);
    plan(
        table,
        keys,
        RopeDefaults {
            theta,
            partial,
            ..defaults
        },
    )
}

/// One of several tables of a model whose layers differ (`rope_parameters.full_attention`).
pub(crate) fn rope_of_layer_type(
    keys: &Keys<'_>,
    layer_type: &str,
    defaults: RopeDefaults,
) -> Result<Option<RopePlan>, ModelError> {
    let Some(table) = keys.get("rope_parameters").and_then(|t| t.get(layer_type)) else {
        return Ok(None);
    };
    let table = Table::new(&format!("rope_parameters.{layer_type}"), table)?;
    plan(Some(table), keys, defaults).map(Some)
}

fn plan(table: Option<Table<'_>>, keys: &Keys<'_>, defaults: RopeDefaults) -> Result<RopePlan, ModelError> {
    let (mut theta, mut partial) = (defaults.theta, defaults.partial);
    let mut scaling = RopeScaling::Default;
    if let Some(table) = table {
        theta = table.positive("rope_theta")?.unwrap_or(theta);
        partial = table.positive("partial_rotary_factor")?.unwrap_or(partial);
        scaling = table.scaling(keys)?;
    }
    let rotary = (defaults.dim as f64 * partial) as usize;
    if rotary == 0 || rotary % 2 == 1 || rotary > defaults.dim || theta <= 1.0 {
        let problem = format!(
            "{rotary} of {} values of a head would rotate, at theta {theta}: not an even number of them",
            defaults.dim
        );
        return Err(ModelError::config("partial_rotary_factor", problem));
    }
    Ok(RopePlan {
        theta,
        rotary,
        pairs: defaults.pairs,
        scaling,
    })
}

/// `rope_parameters` or `rope_scaling`.
struct Table<'a> {
    name: String,
    map: &'a Map<String, Value>,
}

impl<'a> Table<'a> {
    fn new(name: &str, value: &'a Value) -> Result<Self, ModelError> {
        let map = value.as_object();
        let map = map.ok_or_else(|| ModelError::config(name, format!("{value} is not a table")))?;
        Ok(Self { name: name.into(), map })
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.get(key).map(|v| finite(&self.key(key), v)).transpose()
    }

    fn positive(&self, key: &str) -> Result<Option<f64>, ModelError> {
        match self.number(key)? {
            Some(n) if n <= 0.0 => Err(ModelError::config(self.key(key), format!("{n} is not above 0"))),
            other => Ok(other),
        }
    }

    fn needed(&self, key: &str) -> Result<f64, ModelError> {
        self.positive(key)?
            .ok_or_else(|| ModelError::config(self.key(key), "missing"))
    }

    /// `rope_type`, or `type` as it was called before.
    fn rope_type(&self) -> Result<&'a str, ModelError> {
        let name = |key| match self.get(key) {
            Some(Value::String(name)) => Ok(Some(name.as_str())),
            Some(other) => Err(ModelError::config(self.key(key), format!("{other} is not a text"))),
            None => Ok(None),
        };
        match (name("rope_type")?, name("type")?) {
            (Some(new), Some(old)) if new != old => Err(ModelError::config(
                self.key("type"),
                format!("`{old}`, but `rope_type` is `{new}`"),
            )),
            (Some(name), _) | (None, Some(name)) => Ok(name),
            (None, None) if self.get("factor").is_some() => Err(ModelError::config(
                self.key("rope_type"),
                "missing, with a `factor` that needs it",
            )),
            (None, None) => Ok("default"),
        }
    }

    fn scaling(&self, keys: &Keys<'_>) -> Result<RopeScaling, ModelError> {
        let name = self.rope_type()?;
        let (known, scaling): (&[&str], _) = match name {
            "default" => (&[], RopeScaling::Default),
            "linear" => (
                &["factor", "original_max_position_embeddings"],
                RopeScaling::Linear {
                    factor: self.needed("factor")?,
                },
            ),
            "llama3" if self.get("factor").is_none() => (&[], RopeScaling::FromFile),
            "llama3" => (
                &[
                    "factor",
                    "low_freq_factor",
                    "high_freq_factor",
                    "original_max_position_embeddings",
                ],
                self.llama3()?,
            ),
            "yarn" => (YARN_KEYS, self.yarn(keys)?),
            _ => {
                return Err(ModelError::Unsupported {
                    key: self.key("rope_type"),
                    value: format!("\"{name}\""),
                    reason: "supported are default, linear, llama3 and yarn".into(),
                });
            }
        };
        let always = ["rope_type", "type", "rope_theta", "partial_rotary_factor"];
        let passes = |key: &str| always.contains(&key) || known.contains(&key);
        match self.map.iter().find(|(key, value)| !value.is_null() && !passes(key)) {
            None => Ok(scaling),
            Some((key, value)) => Err(ModelError::Unsupported {
                key: self.key(key),
                value: value.to_string(),
                reason: format!("rope type `{name}` is built without it"),
            }),
        }
    }

    fn llama3(&self) -> Result<RopeScaling, ModelError> {
        let (low, high) = (self.needed("low_freq_factor")?, self.needed("high_freq_factor")?);
        if low >= high {
            let problem = format!("{high} is not above low_freq_factor {low}");
            return Err(ModelError::config(self.key("high_freq_factor"), problem));
        }
        Ok(RopeScaling::Llama3 {
            factor: self.needed("factor")?,
            low,
            high,
            original: self.needed("original_max_position_embeddings")?,
        })
    }

    fn yarn(&self, keys: &Keys<'_>) -> Result<RopeScaling, ModelError> {
        let most = keys.size("max_position_embeddings")? as f64;
        let original = self.positive("original_max_position_embeddings")?.unwrap_or(most);
        let factor = self.positive("factor")?.unwrap_or(most / original);
        let mscale = self.number("mscale")?.filter(|&m| m != 0.0);
        let mscale_all_dim = self.number("mscale_all_dim")?.filter(|&m| m != 0.0);
        let attention_factor = match (self.positive("attention_factor")?, mscale, mscale_all_dim) {
            (Some(factor), ..) => factor,
            (None, Some(m), Some(all)) => yarn_mscale(factor, m) / yarn_mscale(factor, all),
            (None, ..) => yarn_mscale(factor, 1.0),
        };
        let truncate = match self.get("truncate") {
            None | Some(Value::Bool(true)) => true,
            Some(Value::Bool(false)) => false,
            Some(other) => {
                return Err(ModelError::config(
                    self.key("truncate"),
                    format!("{other} is neither true nor false"),
                ));
            }
        };
        Ok(RopeScaling::Yarn {
            factor,
            original,
            beta_fast: self.positive("beta_fast")?.unwrap_or(32.0),
            beta_slow: self.positive("beta_slow")?.unwrap_or(1.0),
            truncate,
            attention_factor,
            mscale_all_dim,
        })
    }
}

/// `finetuned` says where a model comes from.
const YARN_KEYS: &[&str] = &[
    "factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "finetuned",
];
