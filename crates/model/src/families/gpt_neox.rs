//! GPT-NeoX (Black et al., 2022; Pythia): layer norms with bias, heads of which a part turns, and both halves of a layer
//! side by side.

use super::names::{AttentionNames, LLAMA, Names};
use super::shared::{activation, even_head_dim, layer_count, position_count};
use crate::ModelError;
use crate::config::Keys;
use crate::rope::{RopeDefaults, RopePairs, rope};
use crate::spec::{AttentionKind, AttentionPlan, DecoderSpec, FeedForwardPlan, LayerPlan, MlpPlan, NormKind, NormPlan};
use kvlab_core::Visibility;

static NAMES: Names = Names {
    base: "gpt_neox.",
    embedding: "gpt_neox.embed_in",
    layer: "gpt_neox.layers.",
    attention: AttentionNames::FusedByHead("attention.query_key_value"),
    output: "attention.dense",
    up: "mlp.dense_h_to_4h",
    down: "mlp.dense_4h_to_h",
    final_norm: "gpt_neox.final_layer_norm",
    head: "embed_out",
    buffers: &[".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"],
    ..LLAMA
};

/// The spec of a `gpt_neox` config.
pub(super) fn gpt_neox(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let hidden = keys.size("hidden_size")?;
    let query_heads = keys.size("num_attention_heads")?;
    let head_dim = even_head_dim(hidden, query_heads, "num_attention_heads")?;
    let bias = keys.flag_or("attention_bias", true)?;
    let norm = NormPlan {
        kind: NormKind::Layer,
        eps: keys.number_or("layer_norm_eps", 1e-5)?,
    };
    let mlp = MlpPlan {
        intermediate: keys.size("intermediate_size")?,
        activation: activation(keys, "hidden_act", "gelu")?,
        gated: false,
        bias: true,
    };
    let defaults = RopeDefaults {
        theta: old_name(keys, "rotary_emb_base", "rope_theta")?.unwrap_or(1e4),
        dim: head_dim,
        partial: old_name(keys, "rotary_pct", "partial_rotary_factor")?.unwrap_or(0.25),
        pairs: RopePairs::HalfSplit,
    };
    let layer = LayerPlan {
        attention: AttentionPlan {
            query_heads,
            kind: AttentionKind::Heads {
                kv_heads: query_heads,
                head_dim,
            },
            rope: Some(0),
            scale: (head_dim as f32).sqrt().recip(),
            softcap: None,
            visibility: Visibility::Causal,
            head_norm: None,
            qkv_bias: bias,
            output_bias: bias,
            sinks: false,
        },
        mlp: FeedForwardPlan::Dense(mlp),
        norm,
        post_norms: false,
        parallel: keys.flag_or("use_parallel_residual", true)?,
        branch_scale: None,
    };
    Ok(DecoderSpec {
        family: "gpt_neox",
        vocab: keys.size("vocab_size")?,
        hidden,
        max_positions: position_count(keys, "max_position_embeddings")?,
        learned_positions: false,
        embedding_scale: None,
        ropes: vec![rope(keys, defaults)?],
        layers: vec![layer; layer_count(keys, "num_hidden_layers")?],
        final_norm: norm,
        head_scale: None,
        tied_head: keys.flag_or("tie_word_embeddings", false)?,
        final_softcap: None,
        names: &NAMES,
    })
}

/// A number under the name that this family had for it; under its newer name, if both are there, it must be the same.
fn old_name(keys: &Keys<'_>, old: &str, new: &str) -> Result<Option<f64>, ModelError> {
    match (keys.optional_positive(old)?, keys.optional_positive(new)?) {
        (Some(a), Some(b)) if a != b => Err(ModelError::config(old, format!("{a}, but `{new}` is {b}"))),
        (number, _) => Ok(number),
    }
}
