//! Multi-head latent attention (MLA; DeepSeek-V2, 2024): one compressed row for the keys and values of all heads.
//!
//! A row is `[latent | rotated key]`, stored once: the value is a prefix of the key. On latent weights this is
//! the model's own attention. The model absorbs `W_UK` into the query and applies `W_UV` to the output, so
//! that the cache never sees an expanded key.
//!
//! On ordinary weights the variant factorises: the part of each key that rotates cannot be compressed by a
//! fixed matrix, and is kept whole as the decoupled part; what is left of the keys, and the values, become
//! one low-rank product ([`factorise`]). At full rank this is exact.
//!
//! What it does not do: it looks at the weights only. A factorisation weighted by activations would lose less.

mod factorise;

pub use factorise::factorise;

use kvlab_core::{Adaptation, AttentionShape, AttentionWeights, Exactness, KvCache, Retention, RowSpec, Value};
use kvlab_store::{BuildError, Fit, Options, Plan, Variant};
use std::sync::Arc;

/// The variant `mla`, with the option `kv_lora_rank`.
pub struct Mla;

const RANK: &str = "kv_lora_rank";

impl Variant for Mla {
    fn name(&self) -> &'static str {
        "mla"
    }

    fn summary(&self) -> &'static str {
        "one compressed row for the keys and values of all heads"
    }

    fn options(&self) -> &'static [&'static str] {
        &[RANK]
    }

    fn fit(&self, shape: &AttentionShape, options: &Options) -> Result<Fit, String> {
        let rank = options.positive(RANK)?;
        let keep = Fit {
            row: shape.native_row(),
            retention: Retention::All,
            adaptation: Adaptation::Keep,
            exactness: Exactness::Exact,
        };
        // The stack of projections has no more ranks than either of its sides.
        let full = shape
            .hidden
            .min(shape.kv_heads * (shape.key - shape.rotary + shape.value));
        match (shape.latent, rank) {
            (Some(latent), Some(rank)) if rank != latent.rank => Err(format!(
                "the model's latent has {} values; compressing it further to {RANK} = {rank} is not built",
                latent.rank
            )),
            (Some(_), _) => Ok(keep),
            (None, None) => Err(format!(
                "the model has no latent of its own; say its size with cache.{RANK} ({full} is exact)"
            )),
            (None, Some(rank)) if rank > full => Err(format!("{RANK} = {rank} is more than the full rank of {full}")),
            (None, Some(rank)) => {
                let reason = format!("keys and values factorised to rank {rank} of {full}, without training");
                let rope = shape.kv_heads * shape.rotary;
                let shape = shape.clone();
                let change = move |weights| match weights {
                    AttentionWeights::Heads(w) => factorise(&shape, &w, rank).map(AttentionWeights::Latent),
                    latent @ AttentionWeights::Latent(_) => Ok(latent),
                };
                Ok(Fit {
                    row: RowSpec {
                        heads: 1,
                        key: rank + rope,
                        value: Value::PrefixOfKey(rank),
                    },
                    adaptation: Adaptation::Weights(Arc::new(change)),
                    exactness: match rank == full {
                        true => Exactness::Exact,
                        false => Exactness::Lossy(vec![reason]),
                    },
                    ..keep
                })
            }
        }
    }

    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError> {
        Ok(Box::new(plan.store(self.name(), |_, rows| rows)?))
    }
}
