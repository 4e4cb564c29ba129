//! Attention whose keys and values are expanded from a latent (MLA; DeepSeek-V2, 2024, section 2.1).
//!
//! With `c` the latent of a row and `r` its rotated part, the key of head `h` is `[W_UK[h] c | r[block of h]]` and its
//! value `W_UV[h] c`. The products with `W_UK` and `W_UV` can be taken on the other side: then a row is `[c | r]`, the
//! query of head `h` is `[W_UK[h]^T q_nope | q_rope in the block of h]`, and what comes back is a latent that `W_UV[h]`
//! expands.

use super::{Call, LatentMode, norm_and_rotate};
use crate::ModelError;
use crate::linear::Linear;
use crate::norm::Norm;
use burn::tensor::activation::sigmoid;
use burn::tensor::{DType, Int, Tensor};
use kvlab_core::{Attended, CacheError, Rows, Span};

/// Latent attention, native or made from ordinary attention.
#[derive(Clone, Debug)]
pub(crate) struct LatentAttention {
    pub(crate) sizes: LatentSizes,
    /// `[hidden]` to heads of `[nope | rope]`.
    pub(crate) query: QueryProjection,
    /// Over the part of each query head that turns; only where all of it does.
    pub(crate) query_norm: Option<Norm>,
    /// Over each block of `rope`; only where all of the key turns.
    pub(crate) key_norm: Option<Norm>,
    /// `[hidden]` to `[rank]`.
    pub(crate) down: Linear,
    pub(crate) latent_norm: Option<Norm>,
    /// `[hidden]` to `rope_blocks` blocks of `[rope]`; `None` where nothing turns.
    pub(crate) rope: Option<Linear>,
    /// `W_UK`, `[heads, nope, rank]`; `None` where all of the key turns.
    pub(crate) up_key: Option<Tensor<3>>,
    /// `W_UV` transposed, `[heads, rank, value]`.
    pub(crate) up_value: Tensor<3>,
    /// `[1, heads, value]`
    pub(crate) value_bias: Option<Tensor<3>>,
    /// The block that each head uses, `[heads]`.
    pub(crate) block_of_head: Tensor<1, Int>,
    /// 1 where a head uses a block, `[1, heads, rope_blocks, 1]`; `None` where there is one block at most.
    pub(crate) uses_block: Option<Tensor<4>>,
    /// Whether rows are keys and values per head instead of latents.
    pub(crate) store_expanded: bool,
}

/// The sizes of latent attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatentSizes {
    pub(crate) heads: usize,
    pub(crate) rank: usize,
    pub(crate) nope: usize,
    /// Of one block.
    pub(crate) rope: usize,
    pub(crate) rope_blocks: usize,
    pub(crate) value: usize,
}

impl LatentSizes {
    /// Whether fresh rows should be expanded in a chunk of `chunk` tokens.
    ///
    /// Multiplications for `t` tokens, per head, without what both ways have in common (queries are absorbed and
    /// values expanded for older rows either way): absorbed, `t^2 / 2` scores of `rank + rope` and as many values of
    /// `rank`; expanded, `t^2 / 2` scores of `nope + rope` and values of `value`, and the expansion, `t rank (nope +
    /// value)`. So expanding pays from `t (2 rank - nope - value) > 2 rank (nope + value)` on.
    fn expanding_pays(&self, chunk: usize) -> bool {
        let expanded = self.nope + self.value;
        let saved = (2 * self.rank).saturating_sub(expanded);
        chunk.saturating_mul(saved) > 2 * self.rank * expanded
    }
}

/// The projection of the queries, in one or two steps.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
pub(crate) enum QueryProjection {
    Full(Linear),
    LowRank { down: Linear, norm: Norm, up: Linear },
}

/// A query head in its two parts, `[tokens, heads, nope]` and `[tokens, heads, rope]`, the latter turned.
struct QueryParts {
    nope: Option<Tensor<3>>,
    rope: Option<Tensor<3>>,
}

/// What is computed of a row: `[tokens, rank]` and `[tokens, rope_blocks, rope]`.
struct RowParts {
    latent: Tensor<2>,
    rope: Option<Tensor<3>>,
}

impl LatentAttention {
    /// `[tokens, hidden]` to `[tokens, heads, value]`.
    pub(crate) fn forward(&self, x: Tensor<2>, mut call: Call<'_, '_>) -> Result<Tensor<3>, ModelError> {
        let q = self.query_parts(x.clone(), &call);
        let rows = self.row_parts(x, &call);
        if self.store_expanded {
            let query = call.query(q.joined());
            return Ok(call.step.extend_attend(call.layer, self.expanded(&rows), query)?.out);
        }
        // How much of a softmax its sinks take shows in the whole of it only: neither in one of two parts, nor where a
        // bias of the values is added at the end.
        let sinks = call.sinks.take();
        let absorbed = self.absorbed(&q);
        let expand = match call.mode {
            LatentMode::Absorbed => false,
            LatentMode::Expanded => true,
            LatentMode::Auto => self.sizes.expanding_pays(call.chunk),
        };
        if !expand {
            let mut query = call.query(absorbed);
            query.lse = sinks.is_some();
            let mut whole = call.step.extend_attend(call.layer, self.stored(&rows), query)?;
            whole.out = self.expand_values(whole.out);
            return less_sinks(whole, sinks);
        }
        call.step.extend(call.layer, self.stored(&rows))?;
        let mut fresh = call.query(q.joined());
        let mut past = call.query(absorbed);
        (fresh.lse, past.lse, past.span) = (true, true, Span::Past);
        let fresh = call.step.attend_fresh(call.layer, self.expanded(&rows), fresh)?;
        let mut past = call.step.attend(call.layer, past)?;
        past.out = self.expand_values(past.out);
        less_sinks(merge(past, fresh)?, sinks)
    }

    fn query_parts(&self, x: Tensor<2>, call: &Call<'_, '_>) -> QueryParts {
        let LatentSizes { heads, nope, rope, .. } = self.sizes;
        let q = match &self.query {
            QueryProjection::Full(query) => query.heads(x, heads),
            QueryProjection::LowRank { down, norm, up } => {
                let dtype = x.dtype();
                up.heads(norm.forward(down.forward(x)).cast(dtype), heads)
            }
        };
        let part = |from: usize, size: usize| (size > 0).then(|| q.clone().narrow(2, from, size));
        let turned = part(nope, rope).map(|q| norm_and_rotate(q, self.query_norm.as_ref(), call.rotation));
        QueryParts {
            nope: part(0, nope),
            rope: turned,
        }
    }

    fn row_parts(&self, x: Tensor<2>, call: &Call<'_, '_>) -> RowParts {
        let dtype = x.dtype();
        let rope = self.rope.as_ref().map(|rope| {
            let blocks = rope.heads(x.clone(), self.sizes.rope_blocks);
            norm_and_rotate(blocks, self.key_norm.as_ref(), call.rotation)
        });
        let latent = self.down.forward(x);
        let latent = match &self.latent_norm {
            Some(norm) => norm.forward(latent).cast(dtype),
            None => latent,
        };
        RowParts { latent, rope }
    }

    /// A row as it is stored: `[tokens, 1, rank + rope_blocks * rope]`.
    fn stored(&self, rows: &RowParts) -> Rows {
        let LatentSizes { rope, rope_blocks, .. } = self.sizes;
        let tokens = rows.latent.dims()[0];
        let mut parts = vec![rows.latent.clone()];
        parts.extend(rows.rope.clone().map(|r| r.reshape([tokens, rope_blocks * rope])));
        Rows {
            key: Tensor::cat(parts, 1).unsqueeze_dim(1),
            value: None,
        }
    }

    /// A row as a key and a value for every head.
    fn expanded(&self, rows: &RowParts) -> Rows {
        // `[1, tokens, rank]` times `[heads, rank, ..]`.
        let latent = || rows.latent.clone().unsqueeze_dim::<3>(0);
        let nope = self
            .up_key
            .as_ref()
            .map(|up| latent().matmul(up.clone().swap_dims(1, 2)).swap_dims(0, 1));
        let rope = rows
            .rope
            .as_ref()
            .map(|r| r.clone().select(1, self.block_of_head.clone()));
        let value = latent().matmul(self.up_value.clone()).swap_dims(0, 1);
        Rows {
            key: Tensor::cat(nope.into_iter().chain(rope).collect(), 2),
            value: Some(self.with_value_bias(value)),
        }
    }

    /// The queries in the space of stored rows: `[tokens, heads, rank + rope_blocks * rope]`.
    fn absorbed(&self, q: &QueryParts) -> Tensor<3> {
        let LatentSizes {
            heads,
            rank,
            rope,
            rope_blocks,
            ..
        } = self.sizes;
        let latent = match (&q.nope, &self.up_key) {
            (Some(nope), Some(up)) => Some(nope.clone().swap_dims(0, 1).matmul(up.clone()).swap_dims(0, 1)),
            // Nothing of the key comes from the latent.
            _ => q.rope.as_ref().map(|r| {
                let options = (&r.device(), r.dtype());
                Tensor::zeros([r.dims()[0], heads, rank], options)
            }),
        };
        let blocks = q.rope.clone().map(|r| {
            let Some(uses_block) = self.uses_block.clone() else {
                return r;
            };
            let tokens = r.dims()[0];
            (r.unsqueeze_dim::<4>(2) * uses_block).reshape([tokens, heads, rope_blocks * rope])
        });
        Tensor::cat(latent.into_iter().chain(blocks).collect(), 2)
    }

    /// `[tokens, heads, rank]` to `[tokens, heads, value]`.
    fn expand_values(&self, out: Tensor<3>) -> Tensor<3> {
        let out = out.cast(self.up_value.dtype());
        self.with_value_bias(out.swap_dims(0, 1).matmul(self.up_value.clone()).swap_dims(0, 1))
    }

    /// Weights of attention add up to 1 (sinks come later), so a bias of the values passes through it unchanged.
    fn with_value_bias(&self, value: Tensor<3>) -> Tensor<3> {
        match &self.value_bias {
            Some(bias) => value + bias.clone(),
            None => value,
        }
    }
}

impl QueryParts {
    /// `[tokens, heads, nope + rope]`.
    fn joined(&self) -> Tensor<3> {
        Tensor::cat(self.nope.iter().chain(&self.rope).cloned().collect(), 2)
    }
}

/// Attention over the older and the fresh rows together, in f32.
fn merge(past: Attended, fresh: Attended) -> Result<Attended, ModelError> {
    let f32 = |part: Attended| Attended {
        out: part.out.cast(DType::F32),
        lse: part.lse.map(|lse| lse.cast(DType::F32)),
    };
    f32(past)
        .merge(f32(fresh))
        .ok_or_else(|| no_lse("latent attention in expanded form"))
}

/// The output, without what the sinks take of the softmax: `exp(sink) / (exp(sink) + exp(lse))`.
fn less_sinks(attended: Attended, sinks: Option<&Tensor<1>>) -> Result<Tensor<3>, ModelError> {
    let Some(sinks) = sinks else {
        return Ok(attended.out);
    };
    let lse = attended.lse.ok_or_else(|| no_lse("latent attention with sinks"))?;
    let share = sigmoid(lse.cast(DType::F32) - sinks.clone().unsqueeze());
    Ok(attended.out.cast(DType::F32) * share.unsqueeze_dim(2))
}

fn no_lse(what: &str) -> ModelError {
    ModelError::Cache(CacheError::Unsupported {
        what: what.into(),
        reason: "it was asked for the log-sum-exp and left it out".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::LatentSizes;

    /// DeepSeek-V2 and V3: 512 latent, 128 + 64 a key, 128 a value.
    #[test]
    fn expanding_pays_from_342_tokens_on() {
        let sizes = LatentSizes {
            heads: 128,
            rank: 512,
            nope: 128,
            rope: 64,
            rope_blocks: 1,
            value: 128,
        };
        assert!(!sizes.expanding_pays(1) && !sizes.expanding_pays(341));
        assert!(sizes.expanding_pays(342) && sizes.expanding_pays(8192));
    }
}
