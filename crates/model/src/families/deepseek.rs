//! DeepSeek-V2 and V3: multi-head latent attention, and experts in all layers but the first few.

use super::names::{LLAMA, Names};
use super::shared::{activation, expert_counts, layer_count, position_count};
use crate::ModelError;
use crate::config::Keys;
use crate::rope::{RopeDefaults, RopePairs, rope};
use crate::spec::{
    AttentionKind, AttentionPlan, DecoderSpec, ExpertsPlan, FeedForwardPlan, GroupPlan, LatentPlan, LayerPlan, MlpPlan,
    NormPlan, Routing, Scoring,
};
use kvlab_core::Visibility;

static NAMES: Names = LLAMA;

/// DeepSeek-AI, 2024 (arXiv 2405.04434); rotates adjacent pairs.
pub(super) fn deepseek_v2(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let mut spec = latent_decoder("deepseek_v2", keys, RopePairs::Adjacent, 1e-6)?;
    add_experts(keys, &mut spec, &V2)?;
    let mlp_bias = keys.flag_or("mlp_bias", false)?;
    for layer in &mut spec.layers {
        layer.set_mlp_bias(mlp_bias);
    }
    Ok(spec)
}

/// DeepSeek-AI, 2024 (arXiv 2412.19437); rotates adjacent pairs unless `rope_interleave` is false.
pub(super) fn deepseek_v3(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let pairs = match keys.flag_or("rope_interleave", true)? {
        true => RopePairs::Adjacent,
        false => RopePairs::HalfSplit,
    };
    let mut spec = latent_decoder("deepseek_v3", keys, pairs, 1e-6)?;
    add_experts(keys, &mut spec, &V3)?;
    Ok(spec)
}

/// What the two take where the config does not say, and how they choose experts.
struct Generation {
    first_dense: usize,
    shared: usize,
    scoring_name: &'static str,
    routing: fn(&Keys<'_>) -> Result<Routing, ModelError>,
}

const V2: Generation = Generation {
    first_dense: 0,
    shared: 2,
    scoring_name: "softmax",
    routing: v2_routing,
};

const V3: Generation = Generation {
    first_dense: 3,
    shared: 1,
    scoring_name: "sigmoid",
    routing: v3_routing,
};

/// A decoder with latent attention, and otherwise the structure of Llama.
pub(super) fn latent_decoder(
    family: &'static str,
    keys: &Keys<'_>,
    pairs: RopePairs,
    eps: f64,
) -> Result<DecoderSpec, ModelError> {
    let layers = layer_count(keys, "num_hidden_layers")?;
    let (hidden, query_heads) = (keys.size("hidden_size")?, keys.size("num_attention_heads")?);
    let (nope, rope_dim) = (keys.size("qk_nope_head_dim")?, keys.size("qk_rope_head_dim")?);
    let defaults = RopeDefaults {
        theta: 1e4,
        dim: rope_dim,
        partial: 1.0,
        pairs,
    };
    let rope = rope(keys, defaults)?;
    if rope.rotary != rope_dim {
        let problem = "latent attention rotates all of `qk_rope_head_dim`";
        return Err(ModelError::config("partial_rotary_factor", problem));
    }
    let norm = NormPlan::rms(keys.number_or("rms_norm_eps", eps)?);
    let layer = LayerPlan {
        attention: AttentionPlan {
            query_heads,
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
            sinks: false,
        },
        mlp: FeedForwardPlan::Dense(MlpPlan {
            intermediate: keys.size("intermediate_size")?,
            activation: activation(keys, "hidden_act", "silu")?,
            gated: true,
            bias: false,
        }),
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
        ropes: vec![rope],
        layers: vec![layer; layers],
        final_norm: norm,
        head_scale: None,
        tied_head: keys.flag_or("tie_word_embeddings", false)?,
        final_softcap: None,
        names: &NAMES,
    })
}

/// Experts in the layers from `first_k_dense_replace` on, if there are any.
fn add_experts(keys: &Keys<'_>, spec: &mut DecoderSpec, generation: &Generation) -> Result<(), ModelError> {
    let experts = keys.get("n_routed_experts");
    let layers = spec.layers();
    let first = keys.count_or("first_k_dense_replace", generation.first_dense)?;
    if first >= layers || experts.is_none_or(|n| n.as_u64() == Some(0)) {
        return Ok(());
    }
    only(keys, "scoring_func", &[generation.scoring_name])?;
    let every = keys.size_or("moe_layer_freq", 1)?;
    if every != 1 {
        return Err(ModelError::Unsupported {
            key: "moe_layer_freq".into(),
            value: every.to_string(),
            reason: "supported is 1: experts in every layer from first_k_dense_replace on".into(),
        });
    }
    let (count, chosen) = expert_counts(keys, "n_routed_experts", "num_experts_per_tok", layers)?;
    let routing = (generation.routing)(keys)?;
    if let Some(groups) = routing.groups {
        check_groups(groups, count, chosen)?;
    }
    let expert = MlpPlan {
        intermediate: keys.size("moe_intermediate_size")?,
        activation: activation(keys, "hidden_act", "silu")?,
        gated: true,
        bias: false,
    };
    // DeepSeek's own code has a null for none.
    let by_default = if keys.has("n_shared_experts") {
        0
    } else {
        generation.shared
    };
    let shared = keys.count_or("n_shared_experts", by_default)?;
    let shared = (shared > 0).then(|| MlpPlan {
        intermediate: expert.intermediate.saturating_mul(shared),
        ..expert
    });
    let plan = FeedForwardPlan::Experts(ExpertsPlan {
        count,
        chosen,
        routing,
        router_bias: false,
        expert,
        shared,
    });
    spec.layers.iter_mut().skip(first).for_each(|layer| layer.mlp = plan);
    Ok(())
}

fn v2_routing(keys: &Keys<'_>) -> Result<Routing, ModelError> {
    let grouped = only(keys, "topk_method", &["greedy", "group_limited_greedy"])? == Some("group_limited_greedy");
    let groups = grouped.then(|| {
        Ok::<_, ModelError>(GroupPlan {
            count: keys.size("n_group")?,
            chosen: keys.size("topk_group")?,
            best: 1,
        })
    });
    let factor = factor(keys, 1.0)?;
    let normalised = keys.flag_or("norm_topk_prob", false)?;
    if normalised && factor != 1.0 {
        return Err(ModelError::Unsupported {
            key: "norm_topk_prob".into(),
            value: "true".into(),
            reason:
                "supported with a routed_scaling_factor of 1 only: DeepSeek's own code leaves the factor out then, \
                     and others do not"
                    .into(),
        });
    }
    Ok(Routing {
        scoring: Scoring::Softmax,
        groups: groups.transpose()?,
        normalised,
        factor,
    })
}

fn v3_routing(keys: &Keys<'_>) -> Result<Routing, ModelError> {
    only(keys, "topk_method", &["noaux_tc"])?;
    Ok(Routing {
        scoring: Scoring::CorrectedSigmoid,
        groups: Some(GroupPlan {
            count: keys.size_or("n_group", 8)?,
            chosen: keys.size_or("topk_group", 4)?,
            best: 2,
        }),
        normalised: keys.flag_or("norm_topk_prob", true)?,
        factor: factor(keys, 2.5)?,
    })
}

fn factor(keys: &Keys<'_>, default: f64) -> Result<f32, ModelError> {
    Ok(keys.optional_positive("routed_scaling_factor")?.unwrap_or(default) as f32)
}

/// Whether enough experts are left in the groups that are chosen.
fn check_groups(groups: GroupPlan, count: usize, chosen: usize) -> Result<(), ModelError> {
    let size = count / groups.count;
    let fits = count.is_multiple_of(groups.count)
        && groups.chosen <= groups.count
        && groups.best <= size
        && chosen <= groups.chosen * size;
    if fits {
        return Ok(());
    }
    let problem = format!(
        "{count} experts cannot be split into {} groups of at least {} each, {} of which have {chosen} to choose",
        groups.count, groups.best, groups.chosen
    );
    Err(ModelError::config("n_group", problem))
}

/// The text under `key`, which must be one of a few.
fn only<'a>(keys: &Keys<'a>, key: &str, names: &[&str]) -> Result<Option<&'a str>, ModelError> {
    match keys.text(key)? {
        Some(other) if !names.contains(&other) => Err(ModelError::Unsupported {
            key: key.into(),
            value: format!("\"{other}\""),
            reason: format!("supported here: {}", names.join(", ")),
        }),
        text => Ok(text),
    }
}
