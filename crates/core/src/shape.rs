//! What one attention layer of a model looks like to somebody who wants to cache it.

use crate::{RowSpec, Value, Visibility};
use serde::{Deserialize, Serialize};

/// One attention layer of a model: sizes only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionShape {
    /// Width of the hidden state that keys and values are projected from.
    pub hidden: usize,
    /// Query heads.
    pub query_heads: usize,
    /// Key and value heads of the weights as stored (`num_key_value_heads`); for latent attention the
    /// number of heads that the latent expands to.
    pub kv_heads: usize,
    /// Values of one head's key (`head_dim`; nope + rope for latent attention).
    pub key: usize,
    /// Values of one head's value.
    pub value: usize,
    /// How many of `key` are rotated by position. 0 without rotary embedding.
    pub rotary: usize,
    /// The latent, for MLA weights.
    pub latent: Option<LatentShape>,
    /// Which rows a query may see.
    pub visibility: Visibility,
}

/// Multi-head latent attention (DeepSeek-V2, 2024, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatentShape {
    /// `kv_lora_rank`: size of the compressed latent, from which keys and values are expanded.
    pub rank: usize,
    /// Size of the decoupled rotated key, stored once for all heads (`qk_rope_head_dim`, or several heads'
    /// worth of it where ordinary attention was factorised).
    pub rope: usize,
}

impl AttentionShape {
    /// The row that this layer's own attention stores: a latent for MLA, keys and values of the KV heads otherwise.
    pub fn native_row(&self) -> RowSpec {
        match self.latent {
            Some(latent) => RowSpec {
                heads: 1,
                key: latent.rank + latent.rope,
                value: Value::PrefixOfKey(latent.rank),
            },
            None => RowSpec {
                heads: self.kv_heads,
                key: self.key,
                value: Value::Own(self.value),
            },
        }
    }

    /// The row with a key and a value for every query head: multi-head attention.
    pub fn expanded_row(&self) -> RowSpec {
        RowSpec {
            heads: self.query_heads,
            key: self.key,
            value: Value::Own(self.value),
        }
    }
}
