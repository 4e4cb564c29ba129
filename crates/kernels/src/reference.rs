//! The reference kernel: attention in Burn operations, chunk by chunk.
//!
//! `softmax(mask(softcap(scale * Q K^T))) V`, with the rows in segments that are never put together: scores
//! are computed for each run of stored rows and for the step's own rows, joined for the softmax (they are
//! small), and cut again for the product with each segment's values.

use burn::tensor::{DType, Tensor, TensorData};
use kvlab_core::{Attended, CacheError, EMPTY_LSE, Query, Value};
use kvlab_store::{ChunkRows, Input, Kernel, LayerStore, Problem};
use std::ops::Range;

/// See the module.
pub struct Reference;

/// A score that no softmax gives any weight. Finite, because the arithmetic of infinities differs between GPUs.
const MASKED: f32 = EMPTY_LSE;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _: &Problem) -> Result<(), String> {
        Ok(())
    }

    fn attend(&self, input: &Input<'_>) -> Result<Attended, CacheError> {
        let mut outs = Vec::with_capacity(input.chunks.len());
        let mut lses = Vec::with_capacity(input.chunks.len());
        for chunk in input.chunks {
            let (out, lse) = attend_chunk(input, chunk);
            outs.push(out);
            lses.push(lse);
        }
        Ok(Attended {
            out: join(outs).cast(input.query.q.dtype()),
            lse: input.query.lse.then(|| join(lses)),
        })
    }
}

/// Rows that lie together, as f32.
struct Segment {
    /// `[heads, key dim, rows]`
    keys: Tensor<3>,
    /// `[heads, rows, value dim]`
    values: Tensor<3>,
    positions: Range<usize>,
}

fn segment(input: &Input<'_>, codecs: [&dyn kvlab_store::Codec; 2], rows: &LayerStore, position: usize) -> Segment {
    let keys = codecs[0].decode(&rows.key);
    let values = match input.row.value {
        Value::Own(_) => codecs[1].decode(&rows.value),
        Value::PrefixOfKey(dim) => keys.clone().narrow(2, 0, dim),
    };
    let len = keys.dims()[0];
    Segment {
        keys: keys.permute([1, 2, 0]),
        values: values.swap_dims(0, 1),
        positions: position..position + len,
    }
}

fn segments(input: &Input<'_>, chunk: &ChunkRows) -> Vec<Segment> {
    let past = chunk.past.iter();
    let past = past.map(|&run| segment(input, input.codecs, &input.store.run(run), run.position));
    let fresh = input.fresh.map(|fresh| {
        let rows = fresh.rows.rows(chunk.tokens.start, chunk.tokens.len());
        segment(input, fresh.codecs, &rows, chunk.start)
    });
    past.chain(fresh).collect()
}

/// Output `[tokens, query heads, value dim]` and log-sum-exp `[tokens, query heads]` of one chunk, in f32.
fn attend_chunk(input: &Input<'_>, chunk: &ChunkRows) -> (Tensor<3>, Tensor<2>) {
    let Query { q, .. } = &input.query;
    let [_, query_heads, key_dim] = q.dims();
    let (heads, tokens) = (input.row.heads, chunk.tokens.len());
    let group = query_heads / heads;
    let device = q.device();
    let segments = segments(input, chunk);
    if segments.is_empty() {
        let out = Tensor::zeros([tokens, query_heads, input.row.value_dim()], (&device, DType::F32));
        // Learned sinks take part in every softmax, also in one without rows.
        let lse = match &input.query.sinks {
            Some(sinks) => sinks.clone().cast(DType::F32).reshape([1, query_heads]).expand([tokens, query_heads]),
            None => Tensor::full([tokens, query_heads], EMPTY_LSE, (&device, DType::F32)),
        };
        return (out, lse);
    }

    // All queries that share a KV head meet its rows in one product: [heads, group * tokens, key dim].
    let q = q.clone().cast(DType::F32).narrow(0, chunk.tokens.start, tokens);
    let q = q.swap_dims(0, 1).reshape([heads, group * tokens, key_dim]);
    let scores = segments.iter().map(|s| q.clone().matmul(s.keys.clone()));
    let scores = Tensor::cat(scores.collect(), 2);
    let rows: usize = segments.iter().map(|s| s.positions.len()).sum();
    let mut scores = scores.reshape([query_heads, tokens, rows]) * input.query.scale;
    if let Some(cap) = input.query.softcap {
        scores = (scores / cap).tanh() * cap;
    }
    let mask = mask(input, chunk, &segments);
    if let Some(mask) = &mask {
        let bias = TensorData::new(mask.bias.clone(), [1, tokens, rows]);
        scores = scores + Tensor::from_data(bias, (&device, DType::F32));
    }

    let sinks = input.query.sinks.clone();
    let sinks = sinks.map(|sinks| sinks.cast(DType::F32).reshape([query_heads, 1, 1]));
    let mut max = scores.clone().max_dim(2);
    if let Some(sinks) = &sinks {
        max = max.max_pair(sinks.clone().expand([query_heads, tokens, 1]));
    }
    let mut weights = (scores - max.clone()).exp();
    let blind = mask.filter(|mask| mask.blind && !input.nobody_is_blind());
    if let Some(mask) = &blind {
        // A query that sees nothing has every score at the mask's value, and would weigh all rows alike.
        let keep = mask.bias.iter().map(|&b| if b == 0.0 { 1.0_f32 } else { 0.0 });
        let keep = TensorData::new(keep.collect::<Vec<_>>(), [1, tokens, rows]);
        weights = weights * Tensor::from_data(keep, (&device, DType::F32));
    }
    let mut sum = weights.clone().sum_dim(2);
    if let Some(sinks) = sinks {
        sum = sum + (sinks - max.clone()).exp();
    }
    let weights = weights.reshape([heads, group * tokens, rows]);
    let mut offset = 0;
    let parts = segments.into_iter().map(|s| {
        let len = s.positions.len();
        let part = weights.clone().narrow(2, offset, len).matmul(s.values);
        offset += len;
        part
    });
    let out = parts.reduce(|a, b| a + b);
    let out = out.unwrap_or_else(|| Tensor::zeros([heads, group * tokens, input.row.value_dim()], &device));
    let out = out.reshape([query_heads, tokens, input.row.value_dim()]);
    // A sum of nothing is 0; its output is 0 whatever it is divided by.
    let out = (out / sum.clone().clamp_min(f32::MIN_POSITIVE)).swap_dims(0, 1);
    let lse = max + sum.clamp_min(f32::MIN_POSITIVE).log();
    let lse = lse.reshape([query_heads, tokens]).swap_dims(0, 1);
    let lse = match blind {
        // log(0) was clamped; what is left must not outweigh anything.
        Some(_) => lse.clamp_min(EMPTY_LSE),
        None => lse,
    };
    (out, lse)
}

struct Mask {
    /// `[tokens, rows]`: 0 where the query sees the row, [`MASKED`] elsewhere.
    bias: Vec<f32>,
    /// Whether some query sees no row at all.
    blind: bool,
}

/// `None` if every query of the chunk sees every row.
fn mask(input: &Input<'_>, chunk: &ChunkRows, segments: &[Segment]) -> Option<Mask> {
    let queries = chunk.start..chunk.start + chunk.tokens.len();
    let rows: Vec<usize> = segments.iter().flat_map(|s| s.positions.clone()).collect();
    // By position, what a query sees is the sinks and one interval that ends at the query: the earliest
    // query sees the last row, and the latest one the others, only if all see all.
    let all = |query: usize| rows.iter().all(|&row| input.sees(query, row));
    if all(queries.start) && all(queries.end - 1) {
        return None;
    }
    let mut bias = Vec::with_capacity(queries.len() * rows.len());
    let mut blind = false;
    for query in queries {
        let before = bias.len();
        bias.extend(rows.iter().map(|&row| match input.sees(query, row) {
            true => 0.0,
            false => MASKED,
        }));
        blind |= bias[before..].iter().all(|&b| b != 0.0);
    }
    Some(Mask { bias, blind })
}

fn join<const D: usize>(mut parts: Vec<Tensor<D>>) -> Tensor<D> {
    match parts.len() {
        1 => parts.remove(0),
        _ => Tensor::cat(parts, 0),
    }
}
