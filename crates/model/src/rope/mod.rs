//! Rotary position embeddings: the plan, how a config says it, and the tables.

mod config;
mod plan;
mod table;

pub use plan::{RopePairs, RopePlan, RopeScaling};

pub(crate) use config::{RopeDefaults, rope, rope_of_layer_type};
pub(crate) use table::{RopeTable, Rotation};

/// The tensor that GGUF files of Llama 3 have instead of scaling parameters.
pub(crate) const DIVISORS: &str = "rope_freqs.weight";
