//! What a step computes and reads: FLOPs and bytes.
//!
//! * **Matrices**: 2 x parameters a token: a multiplication and an addition each (Kaplan et al., 2020, section 2.1). Of experts
//!   the chosen ones count. The head counts once a step and request: nobody wants the logits of a prompt's other tokens.
//! * **Attention**: for each query head and each row it sees, 2 x (values of a key + values of a value). In decoding over a
//!   latent cache these are the latent and its rotary part (the keys are absorbed into the query); a prompt is computed with
//!   expanded heads.
//! * **Bytes**: the weights once a step, and the rows that the cache has in use, each once. Rows are counted by
//!   [`CacheSpec::used_at`], as everywhere.
//!
//! What it leaves out: softmax, norms, activations and everything else without a matrix; the traffic of activations; weights that
//! are read again because a prompt is computed in chunks; unpacking of rows and weights; and what variants change in the size of
//! the projections of keys and values.

use crate::weights::{Parameters, experts};
use kvlab_core::{CacheSpec, LayerSpec, Retention};
use kvlab_model::DecoderSpec;

/// What one step computes and reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Operations.
    pub flops: f64,
    /// Bytes of weights and rows.
    pub bytes: f64,
}

/// A model whose steps are counted.
pub struct Steps<'a> {
    model: &'a DecoderSpec,
    parameters: Parameters,
    /// Bytes of one parameter.
    weight_bytes: f64,
}

impl<'a> Steps<'a> {
    /// With weights of so many bytes altogether.
    pub fn new(model: &'a DecoderSpec, weights: kvlab_core::Bytes) -> Self {
        let parameters = Parameters::of(model);
        Self {
            model,
            parameters,
            weight_bytes: weights.0 as f64 / parameters.total as f64,
        }
    }

    /// One prompt of `new` tokens behind `past` rows that are stored already.
    pub fn prefill(&self, spec: &CacheSpec, past: usize, new: usize) -> Work {
        let p = &self.parameters;
        let matrices = 2.0 * (p.multiplied as f64 * new as f64 + p.head as f64);
        let attention = |(i, layer): (usize, &LayerSpec)| {
            let shape = self.model.attention(i);
            let seen = seen_until(layer, past + new) - seen_until(layer, past);
            2.0 * (shape.query_heads * (shape.key + shape.value)) as f64 * seen
        };
        Work {
            flops: matrices + spec.layers.iter().enumerate().map(attention).sum::<f64>(),
            bytes: self.weights(new) + spec.used_at(past + new).0 as f64,
        }
    }

    /// One token for each of `requests` requests, each with `depth` rows.
    pub fn decode(&self, spec: &CacheSpec, depth: usize, requests: usize) -> Work {
        let p = &self.parameters;
        let attention = |layer: &LayerSpec| {
            let seen = seen_until(layer, depth + 1) - seen_until(layer, depth);
            2.0 * (layer.query_heads * (layer.row.key + layer.row.value_dim())) as f64 * seen
        };
        let one = 2.0 * (p.multiplied + p.head) as f64 + spec.layers.iter().map(attention).sum::<f64>();
        Work {
            flops: requests as f64 * one,
            bytes: self.weights(requests) + requests as f64 * spec.used_at(depth).0 as f64,
        }
    }

    fn weights(&self, tokens: usize) -> f64 {
        self.weight_bytes * self.parameters.read(tokens, experts(self.model))
    }
}

/// Rows that the first `tokens` queries of a sequence see, added up.
fn seen_until(layer: &LayerSpec, tokens: usize) -> f64 {
    let kept = match layer.retention {
        Retention::All => None,
        Retention::Window { window, sinks } => Some(window.get().saturating_add(sinks)),
    };
    let most = layer
        .visibility
        .window()
        .into_iter()
        .chain(kept)
        .min()
        .unwrap_or(usize::MAX);
    let growing = tokens.min(most) as f64;
    growing * (growing + 1.0) / 2.0 + (tokens as f64 - growing) * most as f64
}
