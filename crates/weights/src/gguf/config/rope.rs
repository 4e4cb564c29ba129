//! How rotary frequencies are stretched: `rope_scaling` of a Hugging Face config.

use serde_json::{Map, Value, json};

use super::Asked;
use crate::WeightsError;

/// `null`, or an object with `rope_type` and its numbers.
pub(super) fn scaling(asked: &Asked<'_>) -> Result<Value, WeightsError> {
    let key = asked.key("rope.scaling.type");
    let old = asked.number("rope.scale_linear")?.filter(|f| *f != 1.0);
    match (asked.metadata.text(&key)?, old) {
        (None, Some(factor)) => Ok(json!({ "rope_type": "linear", "factor": factor })),
        (None | Some("none"), _) => Ok(Value::Null),
        (Some("linear"), _) => Ok(json!({ "rope_type": "linear", "factor": factor(asked)? })),
        (Some("yarn"), _) => yarn(asked),
        (Some(other), _) => Err(asked
            .metadata
            .bad(&key, format!("{other:?} is not supported; none, linear and yarn are"))),
    }
}

fn factor(asked: &Asked<'_>) -> Result<f64, WeightsError> {
    let key = "rope.scaling.factor";
    let factor = asked
        .number(key)?
        .ok_or_else(|| asked.metadata.missing(&asked.key(key)))?;
    if factor <= 0.0 {
        return Err(asked
            .metadata
            .bad(&asked.key(key), format!("{factor}; it must be above 0")));
    }
    Ok(factor)
}

fn yarn(asked: &Asked<'_>) -> Result<Value, WeightsError> {
    // llama.cpp multiplies these into a magnitude of its own; Hugging Face has no key that means the same.
    for name in ["yarn_attn_factor", "yarn_ext_factor", "attn_factor"] {
        let name = format!("rope.scaling.{name}");
        if let Some(other) = asked.number(&name)?.filter(|x| *x != 1.0) {
            return Err(asked
                .metadata
                .bad(&asked.key(&name), format!("{other}; only 1 is supported")));
        }
    }
    let mut scaling = Map::new();
    scaling.insert("rope_type".into(), "yarn".into());
    scaling.insert("factor".into(), factor(asked)?.into());
    if let Some(length) = asked.positive_or_none("rope.scaling.original_context_length")? {
        scaling.insert("original_max_position_embeddings".into(), length.into());
    }
    for name in ["beta_fast", "beta_slow"] {
        if let Some(beta) = asked.number(&format!("rope.scaling.yarn_{name}"))? {
            scaling.insert(name.into(), beta.into());
        }
    }
    // For deepseek2 the file has 0.1 times mscale_all_dim, and llama.cpp takes mscale to be the same.
    if let Some(multiplier) = asked.number("rope.scaling.yarn_log_multiplier")? {
        let mscale = (multiplier * 10.0 * 1e6).round() / 1e6;
        scaling.insert("mscale".into(), mscale.into());
        scaling.insert("mscale_all_dim".into(), mscale.into());
    }
    Ok(Value::Object(scaling))
}
