//! The parts that caches are made of, and the cache that puts them together.
//!
//! A cache is a short recipe over independent parts: row geometry x [`Layout`] x [`Codec`] (keys and values
//! apart) x retention x [`Kernel`]. [`StoredCache`] combines them and keeps the contract of `kvlab-core`; a
//! [`Variant`] picks them for a model, and says how the model's weights become its own.
//!
//! # Why this shape
//! A step holds its new rows, already encoded, outside the storage until `commit` writes the accepted ones.
//! So nothing can be evicted too early, an abandoned step has nothing to undo, and partial acceptance is a
//! shorter write. The price is that the rows of one chunk exist beside the storage for the time of the step;
//! [`Usage::peak`](kvlab_core::Usage::peak) counts them.
//!
//! # What it does not do
//! No attention arithmetic (that is `kvlab-kernels`), no knowledge of models or files.

mod cache;
pub mod codec;
mod grouped;
mod kernel;
pub mod layout;
mod none;
mod open;
mod plane;
mod step;
mod variant;

pub use cache::{Adopt, Parts, StoredCache};
pub use codec::Codec;
pub use grouped::Grouped;
pub use kernel::{Computed, Form, Input, Kernel, Part, Problem, QueryChunk};
pub use layout::{Layout, Run};
pub use none::None as NoCache;
pub use plane::{LayerStore, Plane};
pub use variant::{BuildError, Fit, LayerPlan, Options, Plan, Variant};
