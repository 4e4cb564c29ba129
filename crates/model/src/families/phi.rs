//! Phi 3 (Abdin et al., 2024): Llama with fused projections, heads of which a part may turn, and maybe a window.

use super::llama::llama_like;
use super::names::{AttentionNames, LLAMA, Names};
use super::shared::WindowRule;
use crate::ModelError;
use crate::config::Keys;
use crate::rope::RopeScaling;
use crate::spec::{DecoderSpec, NormPlan};

static NAMES: Names = Names {
    attention: AttentionNames::Fused("self_attn.qkv_proj"),
    gate: "",
    up: "mlp.gate_up_proj",
    ..LLAMA
};

/// The spec of a `phi3` config; every layer has the window, if there is one.
pub(super) fn phi3(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let rule = WindowRule {
        on: true,
        window: None,
        sliding: |_, _| Ok(true),
    };
    let mut spec = llama_like("phi3", keys, &rule, 1e4)?;
    // Old files call `longrope` "su" or "yarn" here, so no other name can be taken at its word.
    if spec.ropes.iter().any(|rope| rope.scaling != RopeScaling::Default) {
        return Err(ModelError::Unsupported {
            key: "rope_scaling".into(),
            value: keys
                .get("rope_scaling")
                .or(keys.get("rope_parameters"))
                .map_or("null".into(), ToString::to_string),
            reason: "phi3 has rope types default and longrope, and longrope is not built".into(),
        });
    }
    let norm = NormPlan::rms(keys.number_or("rms_norm_eps", 1e-5)?);
    spec.final_norm = norm;
    for layer in &mut spec.layers {
        layer.norm = norm;
    }
    spec.names = &NAMES;
    Ok(spec)
}
