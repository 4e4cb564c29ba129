//! DeepSeek-V2 and V3 without experts: multi-head latent attention, and otherwise Llama.

use super::names::{LLAMA, Names};
use super::shared::{activation, layer_count, position_count};
use crate::ModelError;
use crate::config::Keys;
use crate::rope::{RopeDefaults, RopePairs, rope};
use crate::spec::{AttentionKind, AttentionPlan, DecoderSpec, LatentPlan, LayerPlan, MlpPlan, NormPlan};
use kvlab_core::Visibility;

static NAMES: Names = LLAMA;

/// DeepSeek-AI, 2024 (arXiv 2405.04434); rotates adjacent pairs.
pub(super) fn deepseek_v2(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let mlp_bias = keys.flag_or("mlp_bias", false)?;
    let mut spec = deepseek("deepseek_v2", keys, RopePairs::Adjacent, 0)?;
    for layer in &mut spec.layers {
        layer.mlp.bias = mlp_bias;
    }
    Ok(spec)
}

/// DeepSeek-AI, 2024 (arXiv 2412.19437); rotates adjacent pairs unless `rope_interleave` is false.
pub(super) fn deepseek_v3(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let pairs = match keys.flag_or("rope_interleave", true)? {
        true => RopePairs::Adjacent,
        false => RopePairs::HalfSplit,
    };
    deepseek("deepseek_v3", keys, pairs, 3)
}

fn deepseek(
    family: &'static str,
    keys: &Keys<'_>,
    pairs: RopePairs,
    first_dense: usize,
) -> Result<DecoderSpec, ModelError> {
    let layers = layer_count(keys, "num_hidden_layers")?;
    refuse_experts(keys, layers, first_dense)?;
    let (nope, rope_dim) = (keys.size("qk_nope_head_dim")?, keys.size("qk_rope_head_dim")?);
    let defaults = RopeDefaults {
        theta: 1e4,
        dim: rope_dim,
        pairs,
    };
    let rope = rope(keys, defaults)?;
    if rope.rotary != rope_dim {
        let problem = "latent attention rotates all of `qk_rope_head_dim`";
        return Err(ModelError::config("partial_rotary_factor", problem));
    }
    let norm = NormPlan::rms(keys.number_or("rms_norm_eps", 1e-6)?);
    let layer = LayerPlan {
        attention: AttentionPlan {
            query_heads: keys.size("num_attention_heads")?,
            kind: AttentionKind::Latent(LatentPlan {
                q_lora_rank: keys.optional_size("q_lora_rank")?,
                kv_lora_rank: keys.size("kv_lora_rank")?,
                nope,
                rope: rope_dim,
                value: keys.size("v_head_dim")?,
                latent_eps: 1e-6,
            }),
            rope: Some(0),
            scale: (rope.softmax_factor() / ((nope + rope_dim) as f64).sqrt()) as f32,
            softcap: None,
            visibility: Visibility::Causal,
            head_norm: None,
            qkv_bias: false,
            output_bias: false,
        },
        mlp: MlpPlan {
            intermediate: keys.size("intermediate_size")?,
            activation: activation(keys, "hidden_act", "silu")?,
            gated: true,
            bias: false,
        },
        norm,
        post_norms: false,
    };
    Ok(DecoderSpec {
        family,
        vocab: keys.size("vocab_size")?,
        hidden: keys.size("hidden_size")?,
        max_positions: position_count(keys, "max_position_embeddings")?,
        learned_positions: false,
        embedding_scale: None,
        ropes: vec![rope],
        layers: vec![layer; layers],
        final_norm: norm,
        tied_head: keys.flag_or("tie_word_embeddings", false)?,
        final_softcap: None,
        names: &NAMES,
    })
}

/// Layers from `first_k_dense_replace` on would be mixtures of experts.
fn refuse_experts(keys: &Keys<'_>, layers: usize, first_dense: usize) -> Result<(), ModelError> {
    let experts = keys.get("n_routed_experts");
    let dense = keys.count_or("first_k_dense_replace", first_dense)?;
    match experts {
        Some(experts) if dense < layers && experts.as_u64() != Some(0) => Err(ModelError::Unsupported {
            key: "n_routed_experts".into(),
            value: experts.to_string(),
            reason: format!(
                "layers {dense} to {} are mixtures of experts, which are not built; only dense layers are",
                layers - 1
            ),
        }),
        _ => Ok(()),
    }
}
