//! Qwen 2 and 3: Llama with biases on queries, keys and values, or with norms on their heads.

use super::llama::llama_like;
use super::shared::WindowRule;
use crate::ModelError;
use crate::config::Keys;
use crate::spec::DecoderSpec;

/// With `use_sliding_window`, layers from `max_window_layers` on have the window.
const WINDOWS: WindowRule = WindowRule {
    on: false,
    window: Some(4096),
    sliding: |keys, layer| Ok(layer >= keys.count_or("max_window_layers", 28)?),
};

/// Yang et al., 2024: queries, keys and values always have a bias, the output never.
pub(super) fn qwen2(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    keys.get("attention_bias");
    let mut spec = llama_like("qwen2", keys, &WINDOWS, 1e4)?;
    for layer in &mut spec.layers {
        layer.attention.qkv_bias = true;
    }
    Ok(spec)
}

/// Yang et al., 2025: an RMS norm over each head of queries and keys. A head has 128 values by default.
pub(super) fn qwen3(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let bias = keys.flag_or("attention_bias", false)?;
    let mut spec = llama_like("qwen3", keys, &WINDOWS, 1e4)?;
    for layer in &mut spec.layers {
        layer.attention.head_norm = Some(layer.norm);
        layer.attention.qkv_bias = bias;
        layer.attention.output_bias = bias;
    }
    Ok(spec)
}
