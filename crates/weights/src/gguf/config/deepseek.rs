//! deepseek2: latent attention, and experts. The architecture of DeepSeek V2 and V3.

use serde_json::{Map, Value, json};

use super::{Asked, decoder};
use crate::WeightsError;

/// `expert_gating_func` of V3.
const SIGMOID: usize = 2;

pub(super) fn config(asked: &Asked<'_>) -> Result<Map<String, Value>, WeightsError> {
    let mut config = decoder(asked)?;
    let heads = asked.positive("attention.head_count")?;
    let rope = asked.positive("rope.dimension_count")?;
    // Files made for absorbed attention describe the latent row under the usual keys and the heads under
    // `_mla`; older ones describe the heads under the usual keys.
    let (key_name, key) = match asked.positive_or_none("attention.key_length_mla")? {
        Some(length) => ("attention.key_length_mla", length),
        None => ("attention.key_length", asked.positive("attention.key_length")?),
    };
    let value = match asked.positive_or_none("attention.value_length_mla")? {
        Some(length) => length,
        None => asked.positive("attention.value_length")?,
    };
    let nope = key.checked_sub(rope).filter(|nope| *nope > 0).ok_or_else(|| {
        asked.metadata.bad(
            &asked.key(key_name),
            format!("{key}; it must be more than the {rope} dimensions that rotate"),
        )
    })?;
    let layers = asked.layers()?;
    let v3 = asked.count("expert_gating_func")? == Some(SIGMOID)
        || asked.tensors.iter().any(|t| t.name.ends_with(".exp_probs_b.bias"));
    let mut put = |key: &str, value: Value| config.insert(key.to_owned(), value);
    put("model_type", if v3 { "deepseek_v3" } else { "deepseek_v2" }.into());
    put("hidden_act", "silu".into());
    put("attention_bias", false.into());
    put("num_key_value_heads", heads.into());
    put("head_dim", rope.into());
    put("kv_lora_rank", asked.positive("attention.kv_lora_rank")?.into());
    let q_rank = asked.count("attention.q_lora_rank")?.filter(|r| *r > 0);
    put("q_lora_rank", json!(q_rank));
    put("qk_nope_head_dim", nope.into());
    put("qk_rope_head_dim", rope.into());
    put("v_head_dim", value.into());
    let experts = asked.count("expert_count")?.filter(|n| *n > 0);
    put("n_routed_experts", json!(experts));
    if experts.is_none() {
        put("first_k_dense_replace", layers.into());
        return Ok(config);
    }
    let groups = asked.count("expert_group_count")?.filter(|n| *n > 1);
    put(
        "first_k_dense_replace",
        asked.count("leading_dense_block_count")?.unwrap_or(0).into(),
    );
    put(
        "moe_intermediate_size",
        asked.positive("expert_feed_forward_length")?.into(),
    );
    put("n_shared_experts", json!(asked.count("expert_shared_count")?));
    put("num_experts_per_tok", asked.positive("expert_used_count")?.into());
    put("n_group", json!(groups));
    put(
        "topk_group",
        json!(asked.count("expert_group_used_count")?.filter(|_| groups.is_some())),
    );
    put(
        "topk_method",
        match (v3, groups) {
            (true, _) => "noaux_tc",
            (false, Some(_)) => "group_limited_greedy",
            (false, None) => "greedy",
        }
        .into(),
    );
    put(
        "routed_scaling_factor",
        asked.number("expert_weights_scale")?.unwrap_or(1.0).into(),
    );
    let norm = asked.metadata.flag(&asked.key("expert_weights_norm"))?;
    put("norm_topk_prob", norm.unwrap_or(false).into());
    if v3 {
        put("scoring_func", "sigmoid".into());
        put("rope_interleave", true.into());
    }
    Ok(config)
}
