//! What a cache holds, per layer, and the bytes that follow from it. Nothing here allocates.

use crate::{Bytes, CacheError, LayerId, Retention, Visibility};
use serde::{Deserialize, Serialize};

/// What one token stores in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RowSpec {
    /// KV heads that are stored.
    pub heads: usize,
    /// Values of one key.
    pub key: usize,
    /// Where the value comes from.
    pub value: Value,
}

/// Where the value of a row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Stored on its own, so many values a head.
    Own(usize),
    /// The first so many values of the key (MLA: the latent is key and value at once). Nothing is stored.
    PrefixOfKey(usize),
}

impl RowSpec {
    /// Values of one value vector, stored or not.
    pub fn value_dim(&self) -> usize {
        match self.value {
            Value::Own(n) | Value::PrefixOfKey(n) => n,
        }
    }

    /// How many values of a key mean the same kind of thing: its latent and its rotary part, or all of it.
    pub fn key_parts(&self) -> Vec<usize> {
        match self.value {
            Value::PrefixOfKey(n) if 0 < n && n < self.key => vec![n, self.key - n],
            _ => vec![self.key],
        }
    }

    /// Numbers stored for one token in one layer.
    pub fn stored_values(&self) -> usize {
        self.heads * (self.key + self.stored_value_dim())
    }

    /// Values of one value vector that are stored: 0 where it is a prefix of the key.
    pub fn stored_value_dim(&self) -> usize {
        match self.value {
            Value::Own(n) => n,
            Value::PrefixOfKey(_) => 0,
        }
    }
}

/// What a codec costs, for the accounting: bits a value, and bits of metadata (scales, zero points) a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// The codec's name, as in a config.
    pub name: String,
    /// Bits of one stored value.
    pub payload_bits: u32,
    /// Values that share one scale; 0 without metadata.
    pub group: usize,
    /// Bits of metadata for each group.
    pub metadata_bits: u32,
}

impl Format {
    /// A plain number format of so many bits, without metadata.
    pub fn plain(name: &str, payload_bits: u32) -> Self {
        Self {
            name: name.into(),
            payload_bits,
            group: 0,
            metadata_bits: 0,
        }
    }

    /// Bytes of the codes of `values` numbers that are stored together (one head of one row).
    pub fn payload(&self, values: usize) -> Bytes {
        Bytes((values as u64 * u64::from(self.payload_bits)).div_ceil(8))
    }

    /// Bytes of the scales and zero points of `values` numbers that are stored together.
    pub fn metadata(&self, values: usize) -> Bytes {
        if self.group == 0 {
            return Bytes(0);
        }
        Bytes((values.div_ceil(self.group) as u64 * u64::from(self.metadata_bits)).div_ceil(8))
    }
}

/// One layer of a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSpec {
    /// Which layer of the model.
    pub layer: LayerId,
    /// The variant that holds it (`"gqa"`).
    pub variant: String,
    /// The layout of its slots (`"contiguous"`).
    pub layout: String,
    /// Query heads of the layer.
    pub query_heads: usize,
    /// What a token stores.
    pub row: RowSpec,
    /// The model's rule.
    pub visibility: Visibility,
    /// The cache's rule.
    pub retention: Retention,
    /// Number format of the keys.
    pub key: Format,
    /// Number format of the values (unused where the value is a prefix of the key).
    pub value: Format,
    /// Rows allocated for each sequence: its capacity in tokens, or a window and its sinks.
    pub rows_per_sequence: usize,
    /// Slots of a page; 0 where the layout has none.
    pub page_size: usize,
}

impl LayerSpec {
    /// Bytes of the codes of one row.
    pub fn payload_per_row(&self) -> Bytes {
        self.key.payload(self.row.key) * self.row.heads as u64
            + self.value.payload(self.row.stored_value_dim()) * self.row.heads as u64
    }

    /// Bytes of the scales of one row.
    pub fn metadata_per_row(&self) -> Bytes {
        self.key.metadata(self.row.key) * self.row.heads as u64
            + self.value.metadata(self.row.stored_value_dim()) * self.row.heads as u64
    }

    /// Bytes that one more token takes in this layer, as long as no row is dropped; 0 where none is kept.
    pub fn per_token(&self) -> Bytes {
        match self.rows_per_sequence {
            0 => Bytes(0),
            _ => self.payload_per_row() + self.metadata_per_row(),
        }
    }

    /// Rows that a sequence of `tokens` tokens has stored.
    pub fn rows_at(&self, tokens: usize) -> usize {
        let rows = tokens.min(self.rows_per_sequence);
        let (kept, sinks) = match self.retention {
            Retention::All => (None, 0),
            Retention::Window { window, sinks } => (Some(window.get()), sinks),
        };
        let seen = self.visibility.window();
        let window = seen.into_iter().chain(kept).min();
        let (Some(window), true) = (window, self.page_size > 0) else {
            return rows;
        };
        // Whole pages behind the window are released, but for those with sinks.
        let sinks = if seen.is_none() { sinks } else { 0 };
        let behind = rows.saturating_sub(window) / self.page_size;
        rows - behind.saturating_sub(sinks.div_ceil(self.page_size)) * self.page_size
    }
}

/// Whether the output equals that of the model's own attention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exactness {
    /// Up to rounding of the number format.
    #[default]
    Exact,
    /// Not the same function: these are the reasons, each a sentence.
    Lossy(Vec<String>),
}

/// What a cache holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheSpec {
    /// The variant's name; `"a+b"` for a cache that groups several.
    pub variant: String,
    /// Every layer, in the order of the model.
    pub layers: Vec<LayerSpec>,
    /// Tokens that one sequence can have.
    pub capacity: usize,
    /// Sequences that can be open with rows at the same time.
    pub sequences: usize,
    /// Whether the output is that of the model's own attention.
    pub exactness: Exactness,
}

impl CacheSpec {
    /// Bytes that one more token takes in all layers, as long as no row is dropped.
    pub fn per_token(&self) -> Bytes {
        self.layers.iter().map(LayerSpec::per_token).sum()
    }

    /// Bytes in use for one sequence of `tokens` tokens.
    pub fn used_at(&self, tokens: usize) -> Bytes {
        let layers = self.layers.iter();
        layers.map(|l| l.per_token() * l.rows_at(tokens) as u64).sum()
    }

    /// Bytes that the cache allocates when it is built.
    pub fn allocated(&self) -> Bytes {
        let layers = self.layers.iter();
        layers
            .map(|l| l.per_token() * l.rows_per_sequence as u64 * self.sequences as u64)
            .sum()
    }

    /// The spec of a layer.
    ///
    /// # Errors
    /// [`CacheError::UnknownLayer`].
    pub fn layer(&self, layer: LayerId) -> Result<&LayerSpec, CacheError> {
        let found = self.layers.iter().find(|l| l.layer == layer);
        found.ok_or(CacheError::UnknownLayer(layer))
    }
}

#[cfg(test)]
mod tests;
