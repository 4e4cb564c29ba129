//! Attention weights on the host, as a variant sees them when it turns a model's attention into its own.

use std::sync::Arc;

/// A dense matrix, row-major, f32, `[rows, cols]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Output features.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
    /// `rows * cols` values, row after row.
    pub data: Vec<f32>,
}

impl Matrix {
    /// A matrix of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Self {
            rows,
            cols,
            data: vec![0.0; rows * cols],
        }
    }

    /// Row `i`, `cols` values.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// Row `i`, `cols` values.
    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        &mut self.data[i * self.cols..(i + 1) * self.cols]
    }
}

/// The key and value side of one attention layer. The query and output projections are not touched by any
/// variant so far, and stay with the model.
#[derive(Clone, Debug, PartialEq)]
pub enum AttentionWeights {
    /// Keys and values per head.
    Heads(HeadWeights),
    /// Keys and values expanded from a latent.
    Latent(LatentWeights),
}

/// `k = W_K x + b_K`, `v = W_V x + b_V`, head after head.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadWeights {
    /// KV heads.
    pub heads: usize,
    /// `[heads * key, hidden]`
    pub key: Matrix,
    /// `[heads * value, hidden]`
    pub value: Matrix,
    /// `[heads * key]`
    pub key_bias: Option<Vec<f32>>,
    /// `[heads * value]`
    pub value_bias: Option<Vec<f32>>,
}

/// `c = W_D x`, then per query head `h`: the part of the key that does not rotate is
/// `up_key[h] c`, the value is `up_value[h] c + value_bias[h]`; the part that rotates is `W_R x + b_R`, in
/// `rope_blocks` blocks, and head `h` uses block `h * rope_blocks / query_heads`.
///
/// A bias of the non-rotating key is left out: it shifts all scores of a query alike, and softmax ignores that.
#[derive(Clone, Debug, PartialEq)]
pub struct LatentWeights {
    /// `[rank, hidden]`
    pub down: Matrix,
    /// `[rope_blocks * rope, hidden]`; no rows where nothing rotates.
    pub rope: Matrix,
    /// `[rope_blocks * rope]`
    pub rope_bias: Option<Vec<f32>>,
    /// Blocks in `rope`.
    pub rope_blocks: usize,
    /// `[query_heads * nope, rank]`; no rows where every dimension rotates.
    pub up_key: Matrix,
    /// `[query_heads * value, rank]`
    pub up_value: Matrix,
    /// `[query_heads * value]`
    pub value_bias: Option<Vec<f32>>,
}

/// A change of the key and value weights of one layer.
pub type WeightChange = Arc<dyn Fn(AttentionWeights) -> Result<AttentionWeights, String> + Send + Sync>;

/// What a model does to one of its attention layers so that a variant can hold it.
#[derive(Clone)]
pub enum Adaptation {
    /// Nothing: the rows are those of [`AttentionShape::native_row`](crate::AttentionShape::native_row).
    Keep,
    /// Latent weights, but rows are per-head keys and values: the latent is expanded before it is stored.
    ExpandLatent,
    /// The layer is built from changed weights.
    Weights(WeightChange),
}

impl std::fmt::Debug for Adaptation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keep => "Keep",
            Self::ExpandLatent => "ExpandLatent",
            Self::Weights(_) => "Weights(..)",
        })
    }
}
