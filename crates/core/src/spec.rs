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
    /// Whether those are the values of one channel in `group` tokens, and not `group` values of one token.
    pub per_channel: bool,
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
            per_channel: false,
            metadata_bits: 0,
        }
    }

    /// Bytes of the codes of `values` numbers that are stored together (one head of one row).
    pub fn payload(&self, values: usize) -> Bytes {
        Bytes((values as u64 * u64::from(self.payload_bits)).div_ceil(8))
    }

    /// Bytes of the scales and zero points of `rows` vectors of `values` numbers.
    pub fn metadata(&self, values: usize, rows: usize) -> Bytes {
        if self.group == 0 {
            return Bytes(0);
        }
        let bytes = |groups: usize| (groups as u64 * u64::from(self.metadata_bits)).div_ceil(8);
        match self.per_channel {
            true => Bytes(rows.div_ceil(self.group) as u64 * bytes(values)),
            false => Bytes(rows as u64 * bytes(values.div_ceil(self.group))),
        }
    }

    /// Bits of one stored value, with its share of the metadata.
    pub fn bits(&self, values: usize) -> f64 {
        let rows = if self.per_channel { self.group } else { 1 };
        let bytes = self.payload(values) * rows as u64 + self.metadata(values, rows);
        8.0 * bytes.0 as f64 / (values * rows) as f64
    }
}

/// When rows take their stored form, where that is not at once: rows are packed `block` at a time, from position 0
/// on, as soon as `residual` newer ones exist. Until then they are open: kept beside the storage, as they came.
///
/// What is packed depends on the length of the sequence alone, so the same tokens store the same codes in whatever
/// chunks they come; and a query finds the rows as they are when its own row has been added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Rows that are packed together: those that share scales.
    pub block: usize,
    /// Newest rows that stay open.
    pub residual: usize,
    /// Number format of open rows.
    pub open: Format,
}

impl Seal {
    /// How many rows of a sequence of `len` tokens are packed. The others are open.
    pub fn sealed(&self, len: usize) -> usize {
        len.saturating_sub(self.residual) / self.block * self.block
    }

    /// The most open rows of a sequence.
    pub fn room(&self) -> usize {
        self.residual + self.block - 1
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
    /// When rows are packed; `None` is at once.
    pub seal: Option<Seal>,
}

impl LayerSpec {
    /// Bytes of the codes of packed rows.
    pub fn payload(&self, rows: usize) -> Bytes {
        let row = self.key.payload(self.row.key) + self.value.payload(self.row.stored_value_dim());
        row * (rows * self.row.heads) as u64
    }

    /// Bytes of the scales of packed rows.
    pub fn metadata(&self, rows: usize) -> Bytes {
        let head = self.key.metadata(self.row.key, rows) + self.value.metadata(self.row.stored_value_dim(), rows);
        head * self.row.heads as u64
    }

    /// Bytes of packed rows.
    pub fn packed(&self, rows: usize) -> Bytes {
        self.payload(rows) + self.metadata(rows)
    }

    /// Bytes of open rows; see [`Seal`].
    pub fn open(&self, rows: usize) -> Bytes {
        let row = |seal: &Seal| seal.open.payload(self.row.key) + seal.open.payload(self.row.stored_value_dim());
        self.seal.as_ref().map_or(Bytes(0), row) * (rows * self.row.heads) as u64
    }

    /// Rows that take their stored form together.
    pub fn block(&self) -> usize {
        self.seal.as_ref().map_or(1, |seal| seal.block)
    }

    /// Packed rows of a sequence of `len` tokens, as long as none is dropped.
    pub fn sealed(&self, len: usize) -> usize {
        self.seal.as_ref().map_or(len, |seal| seal.sealed(len))
    }

    /// Bytes that one more token takes in this layer, once it is packed and as long as no row is dropped, rounded up;
    /// 0 where none is kept.
    pub fn per_token(&self) -> Bytes {
        match self.rows_per_sequence {
            0 => Bytes(0),
            _ => Bytes(self.packed(self.block()).0.div_ceil(self.block() as u64)),
        }
    }

    /// Bytes in use for one sequence of `tokens` tokens.
    pub fn used_at(&self, tokens: usize) -> Bytes {
        if self.rows_per_sequence == 0 {
            return Bytes(0);
        }
        let open = tokens - self.sealed(tokens);
        self.packed(self.rows_at(tokens).saturating_sub(open)) + self.open(open)
    }

    /// Bytes that are allocated for so many sequences.
    pub fn allocated(&self, sequences: usize) -> Bytes {
        if self.rows_per_sequence == 0 {
            return Bytes(0);
        }
        let open = self.seal.as_ref().map_or(0, Seal::room);
        self.packed(self.rows_per_sequence * sequences) + self.open(open * sequences)
    }

    /// Rows that a sequence of `tokens` tokens has stored, packed or open.
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
        self.layers.iter().map(|l| l.used_at(tokens)).sum()
    }

    /// Bytes that the cache allocates when it is built.
    pub fn allocated(&self) -> Bytes {
        self.layers.iter().map(|l| l.allocated(self.sequences)).sum()
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
