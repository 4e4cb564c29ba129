//! The JSON schema of a cache's spec. `kvlab-core` knows nothing of schemas, so its types are mirrored here; a test validates the
//! records of real runs against the schema.
#![expect(dead_code, reason = "only the shapes are used")]

use schemars::JsonSchema;

/// What a cache holds.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct CacheSpec {
    /// The variant's name; `"a+b"` for a cache that groups several.
    variant: String,
    /// Every layer, in the order of the model.
    layers: Vec<LayerSpec>,
    /// Tokens that one sequence can have.
    capacity: usize,
    /// Sequences that can be open with rows at the same time.
    sequences: usize,
    exactness: Exactness,
}

/// Whether the output is that of the model's own attention, or why it is not.
#[derive(JsonSchema)]
enum Exactness {
    Exact,
    Lossy(Vec<String>),
}

/// One layer of a cache.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct LayerSpec {
    /// Which layer of the model, from 0.
    layer: usize,
    variant: String,
    layout: String,
    query_heads: usize,
    row: RowSpec,
    visibility: Visibility,
    retention: Retention,
    key: Format,
    value: Format,
    /// Rows allocated for each sequence.
    rows_per_sequence: usize,
    /// Slots of a page; 0 where the layout has none.
    page_size: usize,
    /// When rows are packed; null is at once.
    seal: Option<Seal>,
}

/// What one token stores in one layer.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RowSpec {
    heads: usize,
    key: usize,
    value: Value,
}

/// Values of a value vector, and whether they are stored apart from the key.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum Value {
    Own(usize),
    PrefixOfKey(usize),
}

/// Which rows a query may see.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum Visibility {
    Causal,
    Window(std::num::NonZeroUsize),
}

/// Which rows a cache keeps.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum Retention {
    All,
    Window {
        window: std::num::NonZeroUsize,
        sinks: usize,
    },
}

/// Bits of a codec.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Format {
    name: String,
    payload_bits: u32,
    /// Values that share one scale; 0 without metadata.
    group: usize,
    per_channel: bool,
    metadata_bits: u32,
}

/// Rows that are packed together, and newest rows that stay as they came.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Seal {
    block: usize,
    residual: usize,
    open: Format,
}
