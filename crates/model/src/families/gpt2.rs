//! GPT-2 (Radford et al., 2019): layer norms with bias, learned positions, one head of keys for each of queries.

use super::names::{AttentionNames, LLAMA, Names};
use super::shared::{activation, layer_count, position_count};
use crate::ModelError;
use crate::config::Keys;
use crate::spec::{AttentionKind, AttentionPlan, DecoderSpec, LayerPlan, MlpPlan, NormKind, NormPlan};
use kvlab_core::Visibility;

static NAMES: Names = Names {
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
    let (hidden, query_heads) = (keys.size("n_embd")?, keys.size("n_head")?);
    if !hidden.is_multiple_of(query_heads) {
        let problem = format!("n_embd {hidden} is not a multiple of {query_heads} heads");
        return Err(ModelError::config("n_head", problem));
    }
    let head_dim = hidden / query_heads;
    let norm = NormPlan {
        kind: NormKind::Layer,
        eps: keys.number_or("layer_norm_epsilon", 1e-5)?,
    };
    let mlp = MlpPlan {
        intermediate: keys.size_or("n_inner", 4 * hidden)?,
        activation: activation(keys, "activation_function", "gelu_new")?,
        gated: false,
        bias: true,
    };
    let scaled = keys.flag_or("scale_attn_weights", true)?;
    let by_layer = keys.flag_or("scale_attn_by_inverse_layer_idx", false)?;
    let scale = |layer: usize| {
        let scale = if scaled { (head_dim as f32).sqrt().recip() } else { 1.0 };
        if by_layer { scale / (layer + 1) as f32 } else { scale }
    };
    let layer = |layer: usize| LayerPlan {
        attention: AttentionPlan {
            query_heads,
            kind: AttentionKind::Heads {
                kv_heads: query_heads,
                head_dim,
            },
            rope: None,
            scale: scale(layer),
            softcap: None,
            visibility: Visibility::Causal,
            head_norm: None,
            qkv_bias: true,
            output_bias: true,
        },
        mlp,
        norm,
        post_norms: false,
    };
    Ok(DecoderSpec {
        family: "gpt2",
        vocab: keys.size("vocab_size")?,
        hidden,
        max_positions: position_count(keys, "n_positions")?,
        learned_positions: true,
        embedding_scale: None,
        ropes: Vec::new(),
        layers: (0..layer_count(keys, "n_layer")?).map(layer).collect(),
        final_norm: norm,
        tied_head: keys.flag_or("tie_word_embeddings", true)?,
        final_softcap: None,
        names: &NAMES,
    })
}
