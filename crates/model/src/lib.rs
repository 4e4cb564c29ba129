//! Decoder families written against a [`Step`](kvlab_core::Step).
//!
//! There is one decoder, [`Decoder`]. What distinguishes Llama from Gemma or DeepSeek is data, a [`DecoderSpec`]: kinds
//! of norms and where they are, the activation, biases, positions, which rows each layer sees, where keys and values
//! come from. A family is a function from a `config.json` to a spec, a table of weight names, and one line in
//! the registry (`families/mod.rs`).
//!
//! # Why this shape
//! Separate model files per family repeat the same forward pass with small differences, and a change to the cache
//! interface has to be made in each. Here it is written once and reads like the papers; a family that needs a new
//! kind of part adds a value to the spec.
//!
//! The model gives its query and its new rows to a step and gets the attention output back. It knows no cache, no
//! layout and no number format of one. Multi-head latent attention is no exception: its rows are latents, and
//! the products with `W_UK` and `W_UV` stay here.
//!
//! A variant may change the key and value weights of a layer before it is built ([`kvlab_core::Adaptation`]): fewer
//! KV heads, or a latent in place of them.
//!
//! # What it does not do
//! No tokenizer, no sampling, no loop: that is `kvlab-engine`. Experts are chosen on the host, which waits for the
//! device once in each layer that has them. Nothing that changes what a model computes is ignored: what is not built is
//! refused by name.

mod attention;
mod check;
mod config;
mod decoder;
mod error;
mod experts;
mod families;
mod host;
mod linear;
mod load;
mod mlp;
mod norm;
mod place;
mod rope;
mod slices;
mod source;
mod spec;
mod tensors;

pub use attention::LatentMode;
pub use decoder::{BuildOptions, Decoder, LayerOutput, Probe, Stage, Wanted};
pub use error::ModelError;
pub use families::{AttentionNames, ExpertNames, ExpertStorage, Names, supported_families};
pub use kvlab_linear::Precision;
pub use rope::{RopePairs, RopePlan, RopeScaling};
pub use spec::{
    Activation, AttentionKind, AttentionPlan, DecoderSpec, ExpertsPlan, FeedForwardPlan, GroupPlan, LatentPlan,
    LayerPlan, MlpPlan, NormKind, NormPlan, Routing, Scoring,
};
pub use tensors::{Role, TensorPlan};

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;
