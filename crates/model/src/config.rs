//! Typed reading of a Hugging Face `config.json`, and the keys that must not be overlooked.

use crate::ModelError;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// No size of a model is larger: products of two stay far from overflow.
const MOST: usize = 1 << 30;

/// A `config.json`, and which of its keys a family has looked at.
pub(crate) struct Keys<'a> {
    map: &'a Map<String, Value>,
    taken: RefCell<BTreeSet<String>>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>) -> Self {
        Self {
            map,
            taken: RefCell::default(),
        }
    }

    /// The value of a key; `None` where it is missing or null.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.taken.borrow_mut().insert(key.to_owned());
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// Whether a key is there at all, be it null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// A size that must be there, 1 or more.
    pub(crate) fn size(&self, key: &str) -> Result<usize, ModelError> {
        self.optional_size(key)?
            .ok_or_else(|| ModelError::config(key, "missing, and the model cannot be built without it"))
    }

    /// A size, 1 or more, or a default.
    pub(crate) fn size_or(&self, key: &str, default: usize) -> Result<usize, ModelError> {
        Ok(self.optional_size(key)?.unwrap_or(default))
    }

    /// A size, 1 or more, if it is there.
    pub(crate) fn optional_size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(n) if n > 0 && n <= MOST => Ok(Some(n)),
            _ => Err(ModelError::config(
                key,
                format!("{value} is not a whole number from 1 to {MOST}"),
            )),
        }
    }

    /// A count that may be 0, or a default.
    pub(crate) fn count_or(&self, key: &str, default: usize) -> Result<usize, ModelError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
                Some(n) => Ok(n),
                None => Err(ModelError::config(key, format!("{value} is not a whole number"))),
            },
        }
    }

    /// A finite number, or a default.
    pub(crate) fn number_or(&self, key: &str, default: f64) -> Result<f64, ModelError> {
        Ok(self.optional_number(key)?.unwrap_or(default))
    }

    /// A finite number, if it is there.
    pub(crate) fn optional_number(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.get(key).map(|value| finite(key, value)).transpose()
    }

    /// A number above 0, if it is there.
    pub(crate) fn optional_positive(&self, key: &str) -> Result<Option<f64>, ModelError> {
        match self.optional_number(key)? {
            Some(n) if n <= 0.0 => Err(ModelError::config(key, format!("{n} is not above 0"))),
            other => Ok(other),
        }
    }

    /// True or false, or a default.
    pub(crate) fn flag_or(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| ModelError::config(key, format!("{value} is neither true nor false"))),
        }
    }

    /// A text, if it is there.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, ModelError> {
        let text = |value: &'a Value| {
            value
                .as_str()
                .ok_or_else(|| ModelError::config(key, format!("{value} is not a text")))
        };
        self.get(key).map(text).transpose()
    }

    /// Refuses every key that is known to change a model, that the family did not look at, and that is not at
    /// its neutral value. Keys that nobody has heard of pass: most are bookkeeping of a training framework.
    pub(crate) fn refuse_overlooked(&self) -> Result<(), ModelError> {
        let taken = self.taken.borrow();
        for (key, neutral) in CHANGES_THE_MODEL {
            let Some(value) = self.map.get(*key).filter(|_| !taken.contains(*key)) else {
                continue;
            };
            if !neutral.holds(value) {
                return Err(ModelError::Unsupported {
                    key: (*key).into(),
                    value: value.to_string(),
                    reason: format!("this family has {neutral} here"),
                });
            }
        }
        Ok(())
    }
}

/// A finite number.
pub(crate) fn finite(key: &str, value: &Value) -> Result<f64, ModelError> {
    match value.as_f64().filter(|n| n.is_finite()) {
        Some(n) => Ok(n),
        None => Err(ModelError::config(key, format!("{value} is not a number"))),
    }
}

/// The value at which a key changes nothing; null always is.
enum Neutral {
    Null,
    False,
    True,
    /// A number, or null, false or an empty list.
    Number(f64),
    /// `layer_types` without anything but full attention.
    FullAttention,
}

impl Neutral {
    fn holds(&self, value: &Value) -> bool {
        let empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        empty
            || match self {
                Self::Null => false,
                Self::False => value == &Value::Bool(false),
                Self::True => value == &Value::Bool(true),
                Self::Number(n) => value.as_f64() == Some(*n) || value == &Value::Bool(false),
                Self::FullAttention => value
                    .as_array()
                    .is_some_and(|l| l.iter().all(|t| t == "full_attention")),
            }
    }
}

impl std::fmt::Display for Neutral {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("nothing"),
            Self::False => f.write_str("false"),
            Self::True => f.write_str("true"),
            Self::Number(n) => write!(f, "{n}"),
            Self::FullAttention => f.write_str("full attention in every layer"),
        }
    }
}

/// Keys of decoder configs that change what the model computes. A family takes those it implements.
const CHANGES_THE_MODEL: &[(&str, Neutral)] = &[
    ("activation_function", Neutral::Null),
    ("add_cross_attention", Neutral::False),
    ("alibi", Neutral::False),
    ("attention_bias", Neutral::False),
    ("attention_multiplier", Neutral::Null),
    ("attn_logit_softcapping", Neutral::Null),
    ("clip_qkv", Neutral::Null),
    ("dim_model_base", Neutral::Null),
    ("embedding_multiplier", Neutral::Number(1.0)),
    ("final_logit_softcapping", Neutral::Null),
    ("hidden_act", Neutral::Null),
    ("hidden_activation", Neutral::Null),
    ("is_encoder_decoder", Neutral::False),
    ("kv_lora_rank", Neutral::Null),
    ("layer_types", Neutral::FullAttention),
    ("logit_scale", Neutral::Number(1.0)),
    ("logits_scaling", Neutral::Number(1.0)),
    ("mlp_bias", Neutral::False),
    ("moe_layers_enum", Neutral::Null),
    ("multi_query", Neutral::False),
    ("n_routed_experts", Neutral::Number(0.0)),
    ("no_rope_layer_interval", Neutral::Null),
    ("no_rope_layers", Neutral::Null),
    ("num_experts", Neutral::Number(0.0)),
    ("num_local_experts", Neutral::Number(0.0)),
    ("parallel_attn", Neutral::False),
    ("partial_rotary_factor", Neutral::Number(1.0)),
    ("qk_layernorm", Neutral::False),
    ("quantization_config", Neutral::Null),
    ("query_pre_attn_scalar", Neutral::Null),
    ("residual_multiplier", Neutral::Number(1.0)),
    ("rope_interleave", Neutral::False),
    ("rope_interleaved", Neutral::False),
    ("rope_local_base_freq", Neutral::Null),
    ("rope_parameters", Neutral::Null),
    ("rope_scaling", Neutral::Null),
    ("rotary_emb_base", Neutral::Null),
    ("rotary_pct", Neutral::Number(1.0)),
    ("scale_attn_by_inverse_layer_idx", Neutral::False),
    ("scale_attn_weights", Neutral::True),
    ("scale_depth", Neutral::Null),
    ("scale_emb", Neutral::Number(1.0)),
    ("sliding_window", Neutral::Null),
    ("swiglu_alpha", Neutral::Null),
    ("swiglu_limit", Neutral::Null),
    ("use_bidirectional_attention", Neutral::False),
    ("use_parallel_residual", Neutral::False),
    ("use_qk_norm", Neutral::False),
    ("use_sliding_window", Neutral::False),
];
