//! What the configs of several families have in common.

use crate::ModelError;
use crate::config::Keys;
use crate::spec::{Activation, AttentionKind};
use kvlab_core::Visibility;
use std::num::NonZeroUsize;

/// `num_hidden_layers`, within reason: a plan is made for each.
pub(crate) fn layer_count(keys: &Keys<'_>, key: &str) -> Result<usize, ModelError> {
    most(key, keys.size(key)?, 4096)
}

/// `max_position_embeddings`, within reason: tables are made of so many rows.
pub(crate) fn position_count(keys: &Keys<'_>, key: &str) -> Result<usize, ModelError> {
    most(key, keys.size(key)?, 1 << 24)
}

fn most(key: &str, n: usize, most: usize) -> Result<usize, ModelError> {
    if n > most {
        return Err(ModelError::config(
            key,
            format!("{n} is more than {most}, the most that is supported"),
        ));
    }
    Ok(n)
}

/// `num_attention_heads`, and the KV heads and head size that go with it.
pub(crate) fn heads(
    keys: &Keys<'_>,
    hidden: usize,
    head_dim: Option<usize>,
) -> Result<(usize, AttentionKind), ModelError> {
    let query_heads = keys.size("num_attention_heads")?;
    let kv_heads = keys.size_or("num_key_value_heads", query_heads)?;
    if !query_heads.is_multiple_of(kv_heads) {
        let problem = format!("{kv_heads} KV heads cannot be shared evenly by {query_heads} query heads");
        return Err(ModelError::config("num_key_value_heads", problem));
    }
    let head_dim = match keys.optional_size("head_dim")?.or(head_dim) {
        Some(head_dim) => head_dim,
        None if hidden.is_multiple_of(query_heads) => hidden / query_heads,
        None => {
            let problem = format!("missing, and hidden_size {hidden} is not a multiple of {query_heads} heads");
            return Err(ModelError::config("head_dim", problem));
        }
    };
    Ok((query_heads, AttentionKind::Heads { kv_heads, head_dim }))
}

/// How many experts each of `layers` layers has, within reason, and how many a token goes to.
pub(crate) fn expert_counts(
    keys: &Keys<'_>,
    all: &str,
    chosen: &str,
    layers: usize,
) -> Result<(usize, usize), ModelError> {
    let count = most(all, keys.size(all)?, (1 << 17) / layers.max(1))?;
    Ok((count, most(chosen, keys.size(chosen)?, count)?))
}

/// The size of a head of families that have no key for it.
pub(crate) fn even_head_dim(hidden: usize, heads: usize, key: &str) -> Result<usize, ModelError> {
    if !hidden.is_multiple_of(heads) {
        let problem = format!("a hidden size of {hidden} is not a multiple of {heads} heads");
        return Err(ModelError::config(key, problem));
    }
    Ok(hidden / heads)
}

/// The activation under `key`, by its Hugging Face name.
pub(crate) fn activation(keys: &Keys<'_>, key: &str, default: &'static str) -> Result<Activation, ModelError> {
    match keys.text(key)?.unwrap_or(default) {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(Activation::GeluTanh),
        other => Err(ModelError::Unsupported {
            key: key.into(),
            value: format!("\"{other}\""),
            reason: "supported are silu, gelu, gelu_new and gelu_pytorch_tanh".into(),
        }),
    }
}

/// How a family says which layers have a window.
pub(crate) struct WindowRule {
    /// `use_sliding_window` where the config does not say.
    pub(crate) on: bool,
    /// `sliding_window` where the config does not say. An explicit null is no window.
    pub(crate) window: Option<usize>,
    /// Which layers have it, if there is a window and no `layer_types`.
    pub(crate) sliding: fn(&Keys<'_>, usize) -> Result<bool, ModelError>,
}

/// A layer, as far as windows go.
#[derive(Clone, Copy)]
pub(crate) struct LayerKind {
    /// Whether it is a `sliding_attention` layer, also where the window is switched off.
    pub(crate) sliding: bool,
    pub(crate) visibility: Visibility,
}

/// The kind of every layer, from `layer_types`, `sliding_window` and `use_sliding_window`.
///
/// `use_sliding_window: false` switches the window off in every family, also in those where Hugging Face does not
/// read the key: whoever wrote it meant it.
pub(crate) fn layer_kinds(keys: &Keys<'_>, layers: usize, rule: &WindowRule) -> Result<Vec<LayerKind>, ModelError> {
    let default = if keys.has("sliding_window") { None } else { rule.window };
    let stated = keys.optional_size("sliding_window")?.or(default);
    let off = !keys.flag_or("use_sliding_window", rule.on)?;
    let window = stated.filter(|_| !off).and_then(NonZeroUsize::new);
    let listed = listed_as_sliding(keys, layers)?;
    let kind = |layer: usize| {
        let sliding = match &listed {
            Some(listed) => listed[layer],
            None => (rule.sliding)(keys, layer)?,
        };
        let visibility = match (sliding, window) {
            (true, Some(window)) => Visibility::Window(window),
            (true, None) if listed.is_some() && !off => {
                let problem = format!("null, but layer {layer} is a sliding_attention layer");
                return Err(ModelError::config("sliding_window", problem));
            }
            _ => Visibility::Causal,
        };
        Ok(LayerKind { sliding, visibility })
    };
    (0..layers).map(kind).collect()
}

/// `layer_types`, if there is one: whether each layer is a sliding one.
fn listed_as_sliding(keys: &Keys<'_>, layers: usize) -> Result<Option<Vec<bool>>, ModelError> {
    let Some(types) = keys.get("layer_types") else {
        return Ok(None);
    };
    let types = types.as_array().map(Vec::as_slice).unwrap_or_default();
    if types.len() != layers {
        let problem = format!("a list of {} for {layers} layers", types.len());
        return Err(ModelError::config("layer_types", problem));
    }
    let sliding = |value: &serde_json::Value| match value.as_str() {
        Some("full_attention") => Ok(false),
        Some("sliding_attention") => Ok(true),
        _ => Err(ModelError::Unsupported {
            key: "layer_types".into(),
            value: value.to_string(),
            reason: "supported are full_attention and sliding_attention".into(),
        }),
    };
    types.iter().map(sliding).collect::<Result<_, _>>().map(Some)
}
