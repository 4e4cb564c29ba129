//! GPT-BigCode (SantaCoder; Allal et al., 2023): GPT-2 with one head of keys and values for all heads of queries.

use super::gpt2::{GPT2, gpt2_like};
use super::names::{AttentionNames, Names};
use crate::ModelError;
use crate::config::Keys;
use crate::spec::{AttentionKind, DecoderSpec};

const NAMES: Names = Names {
    matrices_in_out: false,
    ..GPT2
};

static MULTI_QUERY: Names = NAMES;

static MULTI_HEAD: Names = Names {
    attention: AttentionNames::FusedByHead("attn.c_attn"),
    ..NAMES
};

/// The spec of a `gpt_bigcode` config.
pub(super) fn gpt_bigcode(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let multi_query = keys.flag_or("multi_query", true)?;
    let names = if multi_query { &MULTI_QUERY } else { &MULTI_HEAD };
    let mut spec = gpt2_like("gpt_bigcode", keys, "gelu_pytorch_tanh", names)?;
    for layer in &mut spec.layers {
        if let AttentionKind::Heads { kv_heads, .. } = &mut layer.attention.kind {
            *kv_heads = if multi_query { 1 } else { *kv_heads };
            let stated = keys.size_or("num_key_value_heads", *kv_heads)?;
            if stated != *kv_heads {
                let problem = format!("{stated}, but with multi_query = {multi_query} there are {kv_heads}");
                return Err(ModelError::config("num_key_value_heads", problem));
            }
        }
    }
    Ok(spec)
}
