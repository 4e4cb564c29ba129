//! What a cache can refuse, with the numbers.

use crate::{LayerId, SeqId};
use thiserror::Error;

/// Why a cache refused. A refused call changed nothing.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CacheError {
    /// The storage is too small for this step or fork.
    #[error(
        "no room in the {what}: {needed} needed, {free} free; raise `cache.capacity` or `cache.sequences`, or feed less"
    )]
    NoRoom {
        /// Which storage, and in what unit (`"contiguous cache, rows"`).
        what: String,
        /// Needed, in that unit.
        needed: usize,
        /// Free, in that unit.
        free: usize,
    },
    /// The sequence was never opened in this cache, or was closed.
    #[error("{0} is not open in this cache")]
    UnknownSequence(SeqId),
    /// A step cannot hold the same sequence twice.
    #[error("{0} appears twice in one step")]
    DuplicateSequence(SeqId),
    /// A chunk must hold at least one token.
    #[error("the chunk for {0} is empty; a step needs at least one token for each of its sequences")]
    EmptyChunk(SeqId),
    /// The cache has no such layer.
    #[error("{0} is not one of this cache's layers")]
    UnknownLayer(LayerId),
    /// The model called the step in an order that cannot be right.
    #[error("{layer}: {what}")]
    Order {
        /// The layer concerned.
        layer: LayerId,
        /// What was done, and what was expected.
        what: &'static str,
    },
    /// A tensor has another shape than the spec says.
    #[error("{layer}: {what} has shape {got:?}, the cache expects {expected:?}")]
    Shape {
        /// The layer concerned.
        layer: LayerId,
        /// Which tensor.
        what: &'static str,
        /// What the spec asks for.
        expected: Vec<usize>,
        /// What was handed over.
        got: Vec<usize>,
    },
    /// Something that `capabilities()` rules out, or no kernel supports.
    #[error("{what} is not supported by this cache: {reason}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why not.
        reason: String,
    },
    /// Saved rows that this cache cannot take.
    #[error("these saved rows do not fit this cache: {0}")]
    Saved(String),
    /// A length beyond what the sequence holds, or more accepted tokens than the chunk had.
    #[error("{what}: {asked} asked, at most {most} possible")]
    OutOfRange {
        /// What the numbers count.
        what: &'static str,
        /// Asked for.
        asked: usize,
        /// Largest allowed.
        most: usize,
    },
}
