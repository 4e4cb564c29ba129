//! What a plan says: plain data, which is its JSON.

use crate::device::Device;
use crate::fit::{Fit, Memory};
use crate::price::Cost;
use crate::weights::{Parameters, Precision, Stored};
use kvlab_core::Bytes;
use serde::{Serialize, Serializer};

/// Everything that is known before anything runs.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Version of this format.
    pub schema: u32,
    /// The model.
    pub model: Model,
    /// Its weights.
    pub weights: Weights,
    /// Tokens of a request.
    pub context_tokens: usize,
    /// Requests at the same time.
    pub requests: usize,
    /// The cache that the verdict is about.
    pub chosen: Chosen,
    /// Every variant.
    pub caches: Vec<Cache>,
    /// The memory, if there is one to fit into.
    pub memory: Option<Memory>,
    /// What it runs on.
    pub device: Option<Device>,
    /// Bytes a token against another model.
    pub against: Option<Against>,
    /// What a conversation costs.
    pub cost: Option<Cost>,
    /// TTFT of the last turn of that conversation, without and with its prefix cached.
    pub last_turn_ttft_ms: Option<[f64; 2]>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// The model of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// `model_type`.
    pub family: String,
    /// Layers.
    pub layers: usize,
    /// `max_position_embeddings`.
    pub max_positions: usize,
    /// Its parameters.
    pub parameters: Parameters,
}

/// The weights of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Weights {
    /// Bytes in each precision.
    #[serde(serialize_with = "by_name")]
    pub precisions: Vec<(Precision, Bytes)>,
    /// What a header lists.
    pub stored: Option<Stored>,
    /// The precision that is taken off a budget; `None` is as stored.
    pub counted: Option<Precision>,
    /// Its bytes.
    pub counted_bytes: Bytes,
}

/// A cell of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chosen {
    /// Of [`Cache::variant`].
    pub variant: String,
    /// Of [`Cell::codec`].
    pub codec: String,
}

/// A variant.
#[derive(Clone, Debug, Serialize)]
pub struct Cache {
    /// Its name, with its options.
    pub variant: String,
    /// Whether it is the model's own attention.
    pub own: bool,
    /// Why the output is not that of the model's own attention, apart from number formats; empty where it is.
    pub lossy: Vec<String>,
    /// One a number format.
    pub cells: Vec<Cell>,
}

/// A variant in a number format.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The number format.
    pub codec: String,
    /// What it costs, or why it cannot be.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What becomes of a cell.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// What it costs.
    Planned(Box<Facts>),
    /// It cannot be built: why not.
    Refused(String),
}

/// What a cache costs.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// Why its numbers are not those of 16 bits or more; empty where they are.
    pub lossy: Vec<String>,
    /// Bytes that one more token takes in all layers, as long as no row is dropped.
    pub bytes_per_token: Bytes,
    /// The same, layer by layer.
    pub bytes_per_token_by_layer: Vec<Bytes>,
    /// Layers that are alike: how many, what they are, bytes a token of one of them. Not for programs, which have every layer.
    #[serde(skip)]
    pub kinds: Vec<(usize, String, Bytes)>,
    /// Bytes in use for one request of the wanted context.
    pub bytes_at_context: Bytes,
    /// What fits.
    pub fit: Option<Fit>,
    /// How long it takes at best.
    pub times: Option<Times>,
}

/// The least time that a device can take: the longer of computing and reading, with nothing else in the way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Milliseconds to the first token of a prompt of the wanted context; `None` where the device's FLOP/s are not known.
    pub ttft_ms: Option<f64>,
    /// Whether memory sets it.
    pub ttft_by_memory: bool,
    /// Milliseconds from token to token behind the wanted context, for all wanted requests together.
    pub itl_ms: f64,
    /// Whether memory sets it.
    pub itl_by_memory: bool,
    /// Tokens a second with as many requests as fit; `None` without a memory, where none fits, or where the device's FLOP/s are not
    /// known.
    pub most_tokens_per_second: Option<f64>,
}

/// Bytes a token against the own cache of another model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// The other model.
    pub name: String,
    /// Number format of its cache.
    pub codec: String,
    /// Bytes that a token takes there.
    pub bytes_per_token: Bytes,
    /// Number formats of this model's own cache, and by how many per cent a token takes less (negative: more).
    #[serde(serialize_with = "by_name")]
    pub percent_less: Vec<(String, f64)>,
}

/// Pairs as an object whose keys are the names.
pub(crate) fn by_name<N: Serialize, V: Serialize, S: Serializer>(
    pairs: &[(N, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

impl Weights {
    /// The precision that decides how fast they are multiplied: that which is counted, or of stored ones FP32 if most have more than
    /// 16 bits.
    pub fn multiplied(&self) -> Precision {
        let wide = |stored: &Stored| stored.bytes.0 > 3 * stored.values;
        let stored = match self.stored.as_ref().is_some_and(wide) {
            true => Precision::Fp32,
            false => Precision::Fp16,
        };
        self.counted.unwrap_or(stored)
    }
}

impl Plan {
    /// The cell that the verdict is about.
    pub fn chosen(&self) -> Option<&Facts> {
        let cache = self.caches.iter().find(|cache| cache.variant == self.chosen.variant)?;
        cache.cells.iter().find(|cell| cell.codec == self.chosen.codec)?.facts()
    }
}

impl Cell {
    /// What it costs, if it can be built.
    pub fn facts(&self) -> Option<&Facts> {
        match &self.outcome {
            Outcome::Planned(facts) => Some(facts),
            Outcome::Refused(_) => None,
        }
    }
}
