//! Gemma 2 and 3: norms of `1 + w` before and after both halves of a layer, scaled embeddings, layers with a window.

use super::names::{LLAMA, Names};
use super::shared::{LayerKind, WindowRule, activation, heads, layer_count, layer_kinds, position_count};
use crate::ModelError;
use crate::config::Keys;
use crate::rope::{RopeDefaults, RopePairs, RopePlan, RopeScaling, rope, rope_of_layer_type};
use crate::spec::{AttentionPlan, DecoderSpec, FeedForwardPlan, LayerPlan, MlpPlan, NormKind, NormPlan};

static NAMES: Names = Names {
    post_attention_norm: "post_attention_layernorm",
    mlp_norm: "pre_feedforward_layernorm",
    post_mlp_norm: "post_feedforward_layernorm",
    ..LLAMA
};

/// Gemma Team, 2024: every other layer has a window, scores and logits are soft-capped.
pub(super) fn gemma2(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let rule = WindowRule {
        on: true,
        window: Some(4096),
        sliding: |_, layer| Ok(layer % 2 == 0),
    };
    let mut spec = gemma_like("gemma2", keys, &rule, false)?;
    spec.ropes = vec![rope(keys, rope_defaults(&spec, 1e4))?];
    Ok(spec)
}

/// Gemma Team, 2025: five layers with a window for one without, each kind with its own rotary embedding, and norms on
/// the heads of queries and keys.
pub(super) fn gemma3(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let rule = WindowRule {
        on: true,
        window: Some(4096),
        sliding: |keys, layer| {
            let old = keys.size_or("sliding_window_pattern", 6)?;
            Ok((layer + 1) % keys.size_or("_sliding_window_pattern", old)? != 0)
        },
    };
    let mut spec = gemma_like("gemma3_text", keys, &rule, true)?;
    for layer in &mut spec.layers {
        layer.attention.head_norm = Some(layer.norm);
    }
    spec.ropes = gemma3_ropes(keys, &spec)?;
    Ok(spec)
}

/// `[full, sliding]`. The sliding layers are never stretched unless `rope_parameters` says so.
fn gemma3_ropes(keys: &Keys<'_>, spec: &DecoderSpec) -> Result<Vec<RopePlan>, ModelError> {
    let (full, sliding) = (rope_defaults(spec, 1e6), rope_defaults(spec, 1e4));
    let by_type = |layer_type, defaults| rope_of_layer_type(keys, layer_type, defaults);
    let tables = (by_type("full_attention", full)?, by_type("sliding_attention", sliding)?);
    match tables {
        (Some(full), Some(sliding)) => Ok(vec![full, sliding]),
        (None, None) => {
            let full = rope(keys, full)?;
            let theta = keys.optional_positive("rope_local_base_freq")?.unwrap_or(sliding.theta);
            let sliding = RopePlan {
                theta,
                scaling: RopeScaling::Default,
                ..full.clone()
            };
            Ok(vec![full, sliding])
        }
        _ => {
            let problem = "needs both `full_attention` and `sliding_attention`";
            Err(ModelError::config("rope_parameters", problem))
        }
    }
}

fn rope_defaults(spec: &DecoderSpec, theta: f64) -> RopeDefaults {
    RopeDefaults {
        theta,
        dim: spec.layers.first().map_or(0, |l| l.attention.key()),
        partial: 1.0,
        pairs: RopePairs::HalfSplit,
    }
}

/// What the two have in common; without ropes. With two of them, sliding layers use the second.
fn gemma_like(
    family: &'static str,
    keys: &Keys<'_>,
    windows: &WindowRule,
    two_ropes: bool,
) -> Result<DecoderSpec, ModelError> {
    let hidden = keys.size("hidden_size")?;
    let (query_heads, kind) = heads(keys, hidden, Some(256))?;
    let bias = keys.flag_or("attention_bias", false)?;
    keys.get("hidden_act"); // of Gemma 1; replaced by `hidden_activation`
    let softcap = |key| keys.optional_positive(key).map(|c| c.map(|c| c as f32));
    let (attention_softcap, final_softcap) = (softcap("attn_logit_softcapping")?, softcap("final_logit_softcapping")?);
    let scalar = keys.optional_positive("query_pre_attn_scalar")?.unwrap_or(256.0);
    let norm = NormPlan {
        kind: NormKind::RmsPlusOne,
        eps: keys.number_or("rms_norm_eps", 1e-6)?,
    };
    let mlp = MlpPlan {
        intermediate: keys.size("intermediate_size")?,
        activation: activation(keys, "hidden_activation", "gelu_pytorch_tanh")?,
        gated: true,
        bias: false,
    };
    let layer = |kind_of_layer: LayerKind| LayerPlan {
        attention: AttentionPlan {
            query_heads,
            kind,
            rope: Some(usize::from(kind_of_layer.sliding && two_ropes)),
            scale: scalar.sqrt().recip() as f32,
            softcap: attention_softcap,
            visibility: kind_of_layer.visibility,
            head_norm: None,
            qkv_bias: bias,
            output_bias: bias,
            sinks: false,
        },
        mlp: FeedForwardPlan::Dense(mlp),
        norm,
        post_norms: true,
        parallel: false,
        branch_scale: None,
    };
    let layers = layer_count(keys, "num_hidden_layers")?;
    Ok(DecoderSpec {
        family,
        vocab: keys.size("vocab_size")?,
        hidden,
        max_positions: position_count(keys, "max_position_embeddings")?,
        learned_positions: false,
        embedding_scale: Some((hidden as f32).sqrt()),
        ropes: Vec::new(),
        layers: layer_kinds(keys, layers, windows)?.into_iter().map(layer).collect(),
        final_norm: norm,
        head_scale: None,
        tied_head: keys.flag_or("tie_word_embeddings", true)?,
        final_softcap,
        names: &NAMES,
    })
}
