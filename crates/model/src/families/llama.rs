//! Llama and Mistral: RMS norms, rotary embedding, grouped queries, a gated feed-forward network.

use super::names::{LLAMA, Names};
use super::shared::{LayerKind, WindowRule, activation, heads, layer_count, layer_kinds, position_count};
use crate::ModelError;
use crate::config::Keys;
use crate::rope::{RopeDefaults, RopePairs, rope};
use crate::spec::{AttentionPlan, DecoderSpec, FeedForwardPlan, LayerPlan, MlpPlan, NormPlan};

static NAMES: Names = LLAMA;

/// Touvron et al., 2023; every layer sees everything.
pub(super) fn llama(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let rule = WindowRule {
        on: false,
        window: None,
        sliding: |_, _| Ok(false),
    };
    let mut spec = llama_like("llama", keys, &rule, 1e4)?;
    read_biases(keys, &mut spec)?;
    Ok(spec)
}

/// `attention_bias` and `mlp_bias`, which are for all projections of the two.
pub(super) fn read_biases(keys: &Keys<'_>, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    let bias = keys.flag_or("attention_bias", false)?;
    let mlp_bias = keys.flag_or("mlp_bias", false)?;
    for layer in &mut spec.layers {
        layer.attention.qkv_bias = bias;
        layer.attention.output_bias = bias;
        layer.set_mlp_bias(mlp_bias);
    }
    Ok(())
}

/// Jiang et al., 2023; a window in every layer, unless `sliding_window` is null.
pub(super) fn mistral(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let rule = WindowRule {
        on: true,
        window: Some(4096),
        sliding: |_, _| Ok(true),
    };
    llama_like("mistral", keys, &rule, 1e4)
}

/// A decoder with the structure of Llama, without biases.
pub(super) fn llama_like(
    family: &'static str,
    keys: &Keys<'_>,
    windows: &WindowRule,
    theta: f64,
) -> Result<DecoderSpec, ModelError> {
    let hidden = keys.size("hidden_size")?;
    let (query_heads, kind) = heads(keys, hidden, None)?;
    let layers = layer_count(keys, "num_hidden_layers")?;
    let mlp = MlpPlan {
        intermediate: keys.size("intermediate_size")?,
        activation: activation(keys, "hidden_act", "silu")?,
        gated: true,
        bias: false,
    };
    let norm = NormPlan::rms(keys.number_or("rms_norm_eps", 1e-6)?);
    let mut attention = AttentionPlan {
        query_heads,
        kind,
        rope: Some(0),
        scale: 0.0,
        softcap: None,
        visibility: kvlab_core::Visibility::Causal,
        head_norm: None,
        qkv_bias: false,
        output_bias: false,
        sinks: false,
    };
    attention.scale = (attention.key() as f32).sqrt().recip();
    let defaults = RopeDefaults {
        theta,
        dim: attention.key(),
        partial: 1.0,
        pairs: RopePairs::HalfSplit,
    };
    let layer = |kind_of_layer: LayerKind| LayerPlan {
        attention: AttentionPlan {
            visibility: kind_of_layer.visibility,
            ..attention.clone()
        },
        mlp: FeedForwardPlan::Dense(mlp),
        norm,
        post_norms: false,
        parallel: false,
        branch_scale: None,
    };
    Ok(DecoderSpec {
        family,
        vocab: keys.size("vocab_size")?,
        hidden,
        max_positions: position_count(keys, "max_position_embeddings")?,
        learned_positions: false,
        embedding_scale: None,
        ropes: vec![rope(keys, defaults)?],
        layers: layer_kinds(keys, layers, windows)?.into_iter().map(layer).collect(),
        final_norm: norm,
        head_scale: None,
        tied_head: keys.flag_or("tie_word_embeddings", false)?,
        final_softcap: None,
        names: &NAMES,
    })
}
