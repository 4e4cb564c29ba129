//! Multi-head attention: a key and a value for every query head.
//!
//! On weights with fewer KV heads (GQA, MQA) each stored row is repeated for all the query heads that share
//! it: exact, and the most memory that any cache of the model can take. On latent weights (MLA) the latent is
//! expanded to the keys and values of all heads before they are stored: exact too, and what MLA saves.
//!
//! What it does not do: anything lossy.

use burn::tensor::Tensor;
use kvlab_core::{Adaptation, AttentionShape, Exactness, KvCache, LayerSpec, Retention, Rows};
use kvlab_store::{BuildError, Fit, Options, Plan, Variant};

/// The variant `mha`.
pub struct Mha;

impl Variant for Mha {
    fn name(&self) -> &'static str {
        "mha"
    }

    fn summary(&self) -> &'static str {
        "a key and a value for every query head"
    }

    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    fn fit(&self, shape: &AttentionShape, _: &Options) -> Result<Fit, String> {
        Ok(Fit {
            row: shape.expanded_row(),
            retention: Retention::All,
            adaptation: match shape.latent {
                Some(_) => Adaptation::ExpandLatent,
                None => Adaptation::Keep,
            },
            exactness: Exactness::Exact,
        })
    }

    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError> {
        Ok(Box::new(plan.store(self.name(), repeat_heads)?))
    }
}

/// `[tokens, kv heads, dim]` to `[tokens, query heads, dim]`: head `h` gets the row of KV head `h / group`.
fn repeat_heads(spec: &LayerSpec, rows: Rows) -> Rows {
    Rows {
        key: repeat(rows.key, spec.row.heads),
        value: rows.value.map(|value| repeat(value, spec.row.heads)),
    }
}

fn repeat(rows: Tensor<3>, heads: usize) -> Tensor<3> {
    let [tokens, from, dim] = rows.dims();
    if from == heads {
        return rows;
    }
    let group = heads / from;
    let wide = rows.unsqueeze_dim::<4>(2).expand([tokens, from, group, dim]);
    wide.reshape([tokens, heads, dim])
}
