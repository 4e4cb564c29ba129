//! `[cache]`: the variant, its layout, its size and its number formats.

mod codec;
mod read;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
pub use codec::{Axis, CodecSpec};

/// The cache of a config. What is `None` was left out, and the engine chooses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheConfig {
    /// A name of the registry; `None` is the model's own attention, layer by layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// A name of the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Tokens, or bytes of the whole cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Sequences that are held at once, at least 1.
    #[serde(default = "default_sequences")]
    pub sequences: usize,
    /// Format of the keys. `None` is [`CodecSpec::exact`]: nothing lossy happens unless the file asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<CodecSpec>,
    /// Format of the values; as `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<CodecSpec>,
    /// Newest rows that are kept in full precision. `None` is 0: but for a group along the channel that is not complete
    /// yet, every row is packed at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual: Option<usize>,
    /// For variants that take it: KV heads per layer, at least 1. Lossy when the model has more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_key_value_heads: Option<usize>,
    /// For variants that take it: newest tokens that are kept, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// For variants that take it: first tokens that are kept; 0 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sinks: Option<usize>,
    /// For variants that take it: numbers per latent row, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_lora_rank: Option<usize>,
    /// Tokens per prefill step, at least 1.
    #[serde(default = "default_prefill_chunk")]
    pub prefill_chunk: usize,
    /// Overrides for some layers; no layer is in two of them.
    #[serde(default, rename = "layer", skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerOverride>,
    /// Options that the variant or the layout takes and that have no field here, unchecked.
    #[serde(flatten)]
    pub options: BTreeMap<String, toml::Value>,
}

/// `[[cache.layer]]`: another format for some layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerOverride {
    /// Indices of layers from 0, at least one, none twice. Whether the model has them is for the engine to say.
    pub layers: Vec<usize>,
    /// Format of the keys in these layers; `None` is that of `[cache]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<CodecSpec>,
    /// Format of the values in these layers; `None` is that of `[cache]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<CodecSpec>,
}

fn default_sequences() -> usize {
    1
}

fn default_prefill_chunk() -> usize {
    512
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            variant: None,
            layout: None,
            capacity: None,
            sequences: default_sequences(),
            key: None,
            value: None,
            residual: None,
            num_key_value_heads: None,
            window: None,
            sinks: None,
            kv_lora_rank: None,
            prefill_chunk: default_prefill_chunk(),
            layers: Vec::new(),
            options: BTreeMap::new(),
        }
    }
}

impl CacheConfig {
    /// The format of the keys of a layer: its override, else that of the cache, else [`CodecSpec::exact`].
    #[must_use]
    pub fn key_codec(&self, layer: usize) -> CodecSpec {
        let own = self.layer(layer).and_then(|layer| layer.key.as_ref());
        own.or(self.key.as_ref()).cloned().unwrap_or_else(CodecSpec::exact)
    }

    /// The format of the values of a layer; as [`key_codec`](Self::key_codec).
    #[must_use]
    pub fn value_codec(&self, layer: usize) -> CodecSpec {
        let own = self.layer(layer).and_then(|layer| layer.value.as_ref());
        own.or(self.value.as_ref()).cloned().unwrap_or_else(CodecSpec::exact)
    }

    fn layer(&self, layer: usize) -> Option<&LayerOverride> {
        self.layers.iter().find(|entry| entry.layers.contains(&layer))
    }
}
