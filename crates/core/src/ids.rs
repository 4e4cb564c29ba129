//! Newtypes for the numbers that must not be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A token of the vocabulary.
pub type TokenId = u32;

/// A layer of the model, counted from 0 over all layers (also inside a group of a hybrid cache).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LayerId(pub usize);

/// A sequence that is open in one cache. Never reused within the life of that cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqId(pub u64);

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer {}", self.0)
    }
}

impl fmt::Display for SeqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {}", self.0)
    }
}
