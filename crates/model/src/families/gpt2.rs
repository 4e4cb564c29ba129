//! GPT-2 (Radford et al., 2019): layer norms with bias, learned positions, one head of keys for each of queries.

use super::names::{AttentionNames, LLAMA, Names};
use super::shared::{activation, even_head_dim, layer_count, position_count};
use crate::ModelError;
use crate::config::Keys;
use crate::spec::{AttentionKind, AttentionPlan, DecoderSpec, FeedForwardPlan, LayerPlan, MlpPlan, NormKind, NormPlan};
use kvlab_core::Visibility;

static NAMES: Names = GPT2;

/// The names that GPT-2 introduced.
pub(super) const GPT2: Names = Names {
    base: "transformer.",
    embedding: "transformer.wte",
    positions: "transformer.wpe",
    layer: "transformer.h.",
    attention_norm: "ln_1",
    mlp_norm: "ln_2",
    attention: AttentionNames::Fused("attn.c_attn"),
    output: "attn.c_proj",
    up: "mlp.c_fc",
    down: "mlp.c_proj",
    final_norm: "transformer.ln_f",
    matrices_in_out: true,
    buffers: &[".attn.bias", ".attn.masked_bias"], // the causal mask, and the number it masks with
    ..LLAMA
};

/// The spec of a `gpt2` config.
pub(super) fn gpt2(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let mut spec = gpt2_like("gpt2", keys, "gelu_new", &NAMES)?;
    if keys.flag_or("scale_attn_by_inverse_layer_idx", false)? {
        for (layer, plan) in spec.layers.iter_mut().enumerate() {
            plan.attention.scale /= (layer + 1) as f32;
        }
    }
    Ok(spec)
}

/// A decoder with the structure of GPT-2.
pub(super) fn gpt2_like(
    family: &'static str,
    keys: &Keys<'_>,
    default_activation: &'static str,
    names: &'static Names,
) -> Result<DecoderSpec, ModelError> {
    let (hidden, query_heads) = (keys.size("n_embd")?, keys.size("n_head")?);
    let head_dim = even_head_dim(hidden, query_heads, "n_head")?;
    let norm = NormPlan {
        kind: NormKind::Layer,
        eps: keys.number_or("layer_norm_epsilon", 1e-5)?,
    };
    let mlp = MlpPlan {
        intermediate: keys.size_or("n_inner", 4 * hidden)?,
        activation: activation(keys, "activation_function", default_activation)?,
        gated: false,
        bias: true,
    };
    let scaled = keys.flag_or("scale_attn_weights", true)?;
    let layer = LayerPlan {
        attention: AttentionPlan {
            query_heads,
            kind: AttentionKind::Heads {
                kv_heads: query_heads,
                head_dim,
            },
            rope: None,
            scale: if scaled { (head_dim as f32).sqrt().recip() } else { 1.0 },
            softcap: None,
            visibility: Visibility::Causal,
            head_norm: None,
            qkv_bias: true,
            output_bias: true,
            sinks: false,
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
        max_positions: position_count(keys, "n_positions")?,
        learned_positions: true,
        embedding_scale: None,
        ropes: Vec::new(),
        layers: vec![layer; layer_count(keys, "n_layer")?],
        final_norm: norm,
        head_scale: None,
        tied_head: keys.flag_or("tie_word_embeddings", true)?,
        final_softcap: None,
        names,
    })
}
