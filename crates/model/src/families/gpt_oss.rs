//! gpt-oss (OpenAI, 2025): sinks in every softmax, a window in every other layer, experts with a clamped activation.

use super::llama::llama_like;
use super::names::{ExpertNames, ExpertStorage, LLAMA, Names};
use super::shared::{WindowRule, expert_counts};
use crate::ModelError;
use crate::config::Keys;
use crate::spec::{Activation, DecoderSpec, ExpertsPlan, FeedForwardPlan, MlpPlan, NormPlan, Routing, Scoring};

static NAMES: Names = Names {
    experts: ExpertNames {
        router: "mlp.router",
        storage: ExpertStorage::Stacked {
            gate_up: "mlp.experts.gate_up_proj",
            down: "mlp.experts.down_proj",
            bias: "_bias",
        },
        ..LLAMA.experts
    },
    ..LLAMA
};

/// The spec of a `gpt_oss` config.
pub(super) fn gpt_oss(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let rule = WindowRule {
        on: true,
        window: Some(128),
        sliding: |_, layer| Ok(layer % 2 == 0),
    };
    // Its defaults are those of one model, yarn by 32 among them: a config that leaves them out is not to be trusted.
    keys.size("head_dim")?;
    keys.size("num_key_value_heads")?;
    if keys.get("rope_parameters").or(keys.get("rope_scaling")).is_none() {
        return Err(ModelError::config(
            "rope_parameters",
            "missing, and so is `rope_scaling`",
        ));
    }
    let mut spec = llama_like("gpt_oss", keys, &rule, 150_000.0)?;
    if spec.layers.iter().any(|l| {
        l.attention
            .rope
            .is_some_and(|r| spec.ropes[r].rotary != l.attention.key())
    }) {
        return Err(ModelError::config(
            "partial_rotary_factor",
            "all of a head rotates in gpt_oss",
        ));
    }
    let experts = FeedForwardPlan::Experts(experts(keys, spec.layers())?);
    let bias = keys.flag_or("attention_bias", true)?;
    let norm = NormPlan::rms(keys.number_or("rms_norm_eps", 1e-5)?);
    for layer in &mut spec.layers {
        layer.mlp = experts;
        layer.norm = norm;
        layer.attention.sinks = true;
        layer.attention.qkv_bias = bias;
        layer.attention.output_bias = bias;
    }
    spec.final_norm = norm;
    spec.names = &NAMES;
    Ok(spec)
}

fn experts(keys: &Keys<'_>, layers: usize) -> Result<ExpertsPlan, ModelError> {
    match keys.text("hidden_act")? {
        None | Some("silu") => {}
        Some(other) => {
            return Err(ModelError::Unsupported {
                key: "hidden_act".into(),
                value: format!("\"{other}\""),
                reason: "the experts of gpt_oss have an activation of their own, for which the key says silu".into(),
            });
        }
    }
    let (count, chosen) = expert_counts(keys, "num_local_experts", "num_experts_per_tok", layers)?;
    if keys.size_or("experts_per_token", chosen)? != chosen {
        return Err(ModelError::config(
            "experts_per_token",
            format!("not {chosen}, as `num_experts_per_tok` is"),
        ));
    }
    Ok(ExpertsPlan {
        count,
        chosen,
        routing: Routing {
            scoring: Scoring::SoftmaxOfChosen,
            groups: None,
            normalised: false,
            factor: 1.0,
        },
        router_bias: true,
        expert: MlpPlan {
            intermediate: keys.size("intermediate_size")?,
            activation: Activation::ClampedSwish {
                alpha: keys.optional_positive("swiglu_alpha")?.unwrap_or(1.702) as f32,
                limit: keys.optional_positive("swiglu_limit")?.unwrap_or(7.0) as f32,
            },
            gated: true,
            bias: true,
        },
        shared: None,
    })
}
