//! Grouped-query attention (GQA) and multi-query attention (MQA, one KV head): query heads share keys and values.
//!
//! On weights that are grouped already, this is the model's own attention. Asked for fewer KV heads than the
//! weights have, it mean-pools the key and value projections of the heads that come together (Ainslie et al.
//! 2023, section 2.1). That paper then trains on; without training the pooled model is another function, and
//! the cache says that it is lossy.
//!
//! What it does not do: more KV heads than the weights have (that is `mha`), and latent weights.

use kvlab_core::{
    Adaptation, AttentionShape, AttentionWeights, Exactness, HeadWeights, KvCache, Matrix, Retention, RowSpec, Value,
};
use kvlab_store::{BuildError, Fit, Options, Plan, Variant};
use std::sync::Arc;

/// The variant `gqa`, with the option `num_key_value_heads`.
pub struct Gqa;

/// The variant `mqa`: `gqa` with one KV head.
pub struct Mqa;

const HEADS: &str = "num_key_value_heads";

impl Variant for Gqa {
    fn name(&self) -> &'static str {
        "gqa"
    }

    fn summary(&self) -> &'static str {
        "query heads share keys and values in groups"
    }

    fn options(&self) -> &'static [&'static str] {
        &[HEADS]
    }

    fn fit(&self, shape: &AttentionShape, options: &Options) -> Result<Fit, String> {
        let heads = match options.positive(HEADS)? {
            Some(heads) => heads,
            None if shape.latent.is_none() && shape.kv_heads < shape.query_heads => shape.kv_heads,
            None => {
                return Err(format!(
                    "the model has {} KV heads for {} query heads; say to how many they are pooled with cache.{HEADS}",
                    shape.kv_heads, shape.query_heads
                ));
            }
        };
        fit(shape, heads)
    }

    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError> {
        Ok(Box::new(plan.store(self.name(), |_, rows| rows)?))
    }
}

impl Variant for Mqa {
    fn name(&self) -> &'static str {
        "mqa"
    }

    fn summary(&self) -> &'static str {
        "all query heads share one key and one value"
    }

    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    fn fit(&self, shape: &AttentionShape, _: &Options) -> Result<Fit, String> {
        fit(shape, 1)
    }

    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError> {
        Ok(Box::new(plan.store(self.name(), |_, rows| rows)?))
    }
}

fn fit(shape: &AttentionShape, heads: usize) -> Result<Fit, String> {
    if shape.latent.is_some() {
        return Err(
            "the model's attention is latent (MLA): its keys and values have no heads to pool; use mla or mha".into(),
        );
    }
    if heads > shape.kv_heads || !shape.kv_heads.is_multiple_of(heads) {
        return Err(format!(
            "{HEADS} = {heads} does not divide the model's {} KV heads",
            shape.kv_heads
        ));
    }
    let row = RowSpec {
        heads,
        key: shape.key,
        value: Value::Own(shape.value),
    };
    let (adaptation, exactness) = if heads == shape.kv_heads {
        (Adaptation::Keep, Exactness::Exact)
    } else {
        let reason = format!("{} KV heads mean-pooled to {heads}, without training", shape.kv_heads);
        let pool = move |weights| match weights {
            AttentionWeights::Heads(w) => Ok(AttentionWeights::Heads(pool(&w, heads))),
            AttentionWeights::Latent(_) => Err("latent weights have no heads to pool".into()),
        };
        (Adaptation::Weights(Arc::new(pool)), Exactness::Lossy(vec![reason]))
    };
    Ok(Fit {
        row,
        retention: Retention::All,
        adaptation,
        exactness,
    })
}

/// The mean of the projections of each group of heads.
fn pool(weights: &HeadWeights, heads: usize) -> HeadWeights {
    HeadWeights {
        heads,
        key: pool_rows(&weights.key, weights.heads, heads),
        value: pool_rows(&weights.value, weights.heads, heads),
        key_bias: pool_bias(weights.key_bias.as_deref(), weights.heads, heads),
        value_bias: pool_bias(weights.value_bias.as_deref(), weights.heads, heads),
    }
}

fn pool_rows(matrix: &Matrix, from: usize, to: usize) -> Matrix {
    let dim = matrix.rows / from;
    let group = from / to;
    let mut pooled = Matrix::zeros(to * dim, matrix.cols);
    for head in 0..from {
        for i in 0..dim {
            let source = matrix.row(head * dim + i);
            let target = pooled.row_mut(head / group * dim + i);
            for (t, s) in target.iter_mut().zip(source) {
                *t += s / group as f32;
            }
        }
    }
    pooled
}

fn pool_bias(bias: Option<&[f32]>, from: usize, to: usize) -> Option<Vec<f32>> {
    let column = bias.map(|bias| Matrix {
        rows: bias.len(),
        cols: 1,
        data: bias.to_vec(),
    });
    column.map(|column| pool_rows(&column, from, to).data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooling_is_the_mean_of_each_group() {
        let matrix = Matrix {
            rows: 4,
            cols: 1,
            data: vec![1.0, 3.0, 10.0, 30.0],
        };
        assert_eq!(pool_rows(&matrix, 4, 2).data, [2.0, 20.0]);
        // Two heads of two values each: head 0 = (1, 3), head 1 = (10, 30).
        assert_eq!(pool_rows(&matrix, 2, 1).data, [5.5, 16.5]);
    }

    #[test]
    fn equal_heads_pool_to_themselves() {
        let weights = HeadWeights {
            heads: 2,
            key: Matrix {
                rows: 2,
                cols: 2,
                data: vec![1.0, 2.0, 1.0, 2.0],
            },
            value: Matrix {
                rows: 2,
                cols: 2,
                data: vec![3.0, 4.0, 3.0, 4.0],
            },
            key_bias: Some(vec![5.0, 5.0]),
            value_bias: None,
        };
        let pooled = pool(&weights, 1);
        assert_eq!(pooled.key.data, [1.0, 2.0]);
        assert_eq!(pooled.value.data, [3.0, 4.0]);
        assert_eq!(pooled.key_bias, Some(vec![5.0]));
    }
}
