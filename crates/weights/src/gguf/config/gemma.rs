//! gemma2 and gemma3: layers with a window between layers that see everything.

use serde_json::{Map, Value, json};

use super::{Asked, decoder, heads};
use crate::WeightsError;

pub(super) fn config(asked: &Asked<'_>) -> Result<Map<String, Value>, WeightsError> {
    let gemma3 = asked.architecture == "gemma3";
    let mut config = decoder(asked)?;
    let head_dim = heads(asked, &mut config)?;
    let layers = asked.layers()?;
    let window = match asked.count("attention.sliding_window")? {
        Some(window) => Some(window).filter(|window| *window > 0),
        None if gemma3 => None,
        None => Some(4096),
    };
    let windowed = windowed(asked, layers)?;
    let layer_types = windowed.into_iter().map(|windowed| {
        Value::from(if windowed && window.is_some() {
            "sliding_attention"
        } else {
            "full_attention"
        })
    });
    // Where gemma2 files are silent, these are the numbers of every gemma2.
    let (attention_cap, final_cap) = if gemma3 { (None, None) } else { (Some(50.0), Some(30.0)) };
    let mut put = |key: &str, value: Value| config.insert(key.to_owned(), value);
    put("layer_types", Value::Array(layer_types.collect()));
    put("sliding_window", json!(window));
    put(
        "attn_logit_softcapping",
        json!(asked.number("attn_logit_softcapping")?.or(attention_cap)),
    );
    put(
        "final_logit_softcapping",
        json!(asked.number("final_logit_softcapping")?.or(final_cap)),
    );
    put("query_pre_attn_scalar", query_scalar(asked, layers, head_dim)?.into());
    put("hidden_activation", "gelu_pytorch_tanh".into());
    put("attention_bias", false.into());
    if gemma3 {
        put("model_type", "gemma3_text".into());
        let local = asked.number("rope.freq_base_swa")?.unwrap_or(10000.0);
        put("rope_local_base_freq", local.into());
    } else {
        put("model_type", "gemma2".into());
    }
    Ok(config)
}

/// Which layers have a window. One in six sees everything in gemma3, every second one in gemma2.
fn windowed(asked: &Asked<'_>, layers: usize) -> Result<Vec<bool>, WeightsError> {
    let name = "attention.sliding_window_pattern";
    let key = asked.key(name);
    if asked.metadata.is_list(&key) {
        let flags = asked.metadata.flags(&key)?.unwrap_or_default();
        if flags.len() != layers {
            return Err(asked
                .metadata
                .bad(&key, format!("{} entries for {layers} layers", flags.len())));
        }
        return Ok(flags);
    }
    let own = if asked.architecture == "gemma3" { 6 } else { 2 };
    let period = asked.positive_or_none(name)?.unwrap_or(own);
    Ok((1..=layers).map(|layer| !layer.is_multiple_of(period)).collect())
}

/// Scores are multiplied by one over the square root of this.
fn query_scalar(asked: &Asked<'_>, layers: usize, head_dim: usize) -> Result<f64, WeightsError> {
    if let Some(scale) = asked.number("attention.scale")?.filter(|s| *s > 0.0) {
        return Ok(1.0 / (scale * scale));
    }
    let of_27b = if asked.architecture == "gemma3" { 62 } else { 46 };
    if layers == of_27b {
        let heads = asked.positive("attention.head_count")?;
        return Ok((asked.positive("embedding_length")? / heads) as f64);
    }
    Ok(head_dim as f64)
}
