//! Attention with keys and values projected per KV head: multi-head, grouped-query and multi-query.

use super::{Call, norm_and_rotate};
use crate::ModelError;
use crate::linear::Linear;
use crate::norm::Norm;
use burn::tensor::Tensor;
use kvlab_core::Rows;

/// Query heads share KV heads, `query_heads / kv_heads` each.
#[derive(Clone, Debug)]
pub(crate) struct HeadAttention {
    pub(crate) query_heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) query_norm: Option<Norm>,
    pub(crate) key_norm: Option<Norm>,
}

impl HeadAttention {
    /// `[tokens, hidden]` to `[tokens, query_heads, head_dim]`.
    pub(crate) fn forward(&self, x: Tensor<2>, call: Call<'_, '_>) -> Result<Tensor<3>, ModelError> {
        let [q, k, v] = Linear::together([&self.query, &self.key, &self.value], x);
        let q = Linear::split(q, self.query_heads);
        let [k, v] = [k, v].map(|rows| Linear::split(rows, self.kv_heads));
        let query = call.query(norm_and_rotate(q, self.query_norm.as_ref(), call.rotation));
        let rows = Rows {
            key: norm_and_rotate(k, self.key_norm.as_ref(), call.rotation),
            value: Some(v),
        };
        Ok(call.step.extend_attend(call.layer, rows, query)?.out)
    }
}
