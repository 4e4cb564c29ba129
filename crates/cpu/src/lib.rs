//! What the processor's kernels share: the threads that run them, and the instruction sets that they can use.
//!
//! # What it does not do
//! No arithmetic of attention or linear layers: those are `kvlab-kernels` and `kvlab-model`.

mod isa;
mod pool;

pub use isa::Isa;
pub use pool::{run, set_threads, threads};
