//! What the processor's kernels share: the threads that run them, the instruction sets that they can use, products of matrices in
//! tile registers, and a measurement of what the machine can do at most.
//!
//! # What it does not do
//! No attention and no linear layers: those are `kvlab-kernels` and `kvlab-linear`.

#[cfg(target_arch = "x86_64")]
mod amx;
mod half;
mod isa;
mod pool;
mod probe;
#[cfg(target_arch = "x86_64")]
pub mod tiles;

pub use half::f16_to_f32;
pub use isa::Isa;
pub use pool::{for_each, run, set_threads, threads};
pub use probe::{Probe, probe};
