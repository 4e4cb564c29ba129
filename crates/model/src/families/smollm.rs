//! SmolLM 3 (Bakouch et al., 2025): Llama of which some layers have no rotary embedding (Yang et al., "RoPE to NoPE and
//! back again", 2025).

use super::llama::{llama_like, read_biases};
use super::shared::WindowRule;
use crate::ModelError;
use crate::config::Keys;
use crate::spec::DecoderSpec;

/// The spec of a `smollm3` config. With `use_sliding_window`, layers that do not rotate have the window.
pub(super) fn smollm3(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let rule = WindowRule {
        on: false,
        window: None,
        sliding: |keys, layer| Ok(!rotates(keys, layer)?),
    };
    let mut spec = llama_like("smollm3", keys, &rule, 2e6)?;
    read_biases(keys, &mut spec)?;
    for (layer, plan) in spec.layers.iter_mut().enumerate() {
        if !rotates(keys, layer)? {
            plan.attention.rope = None;
        }
    }
    spec.tied_head = keys.flag_or("tie_word_embeddings", true)?;
    Ok(spec)
}

/// By `no_rope_layers`, where 1 is a layer that rotates, or else every one but the last of `no_rope_layer_interval`.
fn rotates(keys: &Keys<'_>, layer: usize) -> Result<bool, ModelError> {
    let interval = keys.size_or("no_rope_layer_interval", 4)?;
    let Some(list) = keys.get("no_rope_layers") else {
        return Ok(!(layer + 1).is_multiple_of(interval));
    };
    match list.get(layer).and_then(serde_json::Value::as_u64) {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => {
            let problem = format!("needs a 0 or a 1 for layer {layer}, and has {list}");
            Err(ModelError::config("no_rope_layers", problem))
        }
    }
}
