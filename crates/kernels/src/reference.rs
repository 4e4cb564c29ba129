//! The reference kernel: attention in Burn operations, chunk by chunk, block of rows by block of rows.
//!
//! `softmax(mask(softcap(scale * Q K^T))) V`, with a running maximum and sum (online softmax; Milakov and
//! Gimelshein 2018), so that packed rows are unpacked a block at a time and never all at once.

use burn::tensor::{DType, Tensor, TensorData};
use kvlab_core::{Attended, Bytes, CacheError, EMPTY_LSE, Value};
use kvlab_store::layout::Run;
use kvlab_store::{Codec, Computed, Form, Input, Kernel, LayerStore, Part, Problem, QueryChunk, codec};
use std::ops::Range;

/// See the module.
pub struct Reference;

/// Rows that are unpacked at a time.
const BLOCK: usize = 1024;

/// A score that no softmax gives any weight. Finite, because the arithmetic of infinities differs between GPUs.
const MASKED: f32 = EMPTY_LSE;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn supports(&self, _: &Problem) -> Result<(), String> {
        Ok(())
    }

    fn attend(&self, input: &Input<'_>) -> Result<Computed, CacheError> {
        let mut outs = Vec::with_capacity(input.chunks.len());
        let mut lses = Vec::with_capacity(input.chunks.len());
        for i in 0..input.chunks.len() {
            let (out, lse) = attend_chunk(input, i);
            outs.push(out);
            lses.push(lse);
        }
        Ok(Computed {
            attended: Attended {
                out: join(outs).cast(input.query.q.dtype()),
                lse: input.query.lse.then(|| join(lses)),
            },
            scratch: scratch(input),
        })
    }
}

/// Rows that are unpacked or joined at a time.
fn scratch(input: &Input<'_>) -> Bytes {
    // A row unpacked, in the planes whose codec does not hold f32 already; and packed, where runs are joined.
    let unpacked = |codecs: [&dyn Codec; 2]| {
        let dims = [input.row.key, input.row.stored_value_dim()];
        let values = codecs.iter().zip(dims).filter(|(c, _)| c.name() != codec::EXACT.name());
        (values.map(|(_, dim)| dim).sum::<usize>() * input.row.heads * size_of::<f32>()) as u64
    };
    let held = |part: &Part<'_>, runs: &[Run]| {
        let rows: usize = runs.iter().map(|run| run.len).sum();
        let joined = if runs.len() > 1 {
            part.store.rows(0, rows).bytes().0
        } else {
            0
        };
        rows as u64 * unpacked(part.codecs) + joined
    };
    let parts = input.parts.iter();
    let most = parts.flat_map(|part| {
        let groups = part.runs.iter().flat_map(|runs| groups(part, runs));
        groups.map(|runs| held(part, &runs))
    });
    Bytes(most.max().unwrap_or(0))
}

/// Rows that are looked at together, as f32.
struct Block {
    /// `[heads, key dim, rows]`
    keys: Tensor<3>,
    /// `[heads, rows, value dim]`
    values: Tensor<3>,
    positions: Vec<Range<usize>>,
}

impl Block {
    /// Rows of some runs, which are put together while they are packed.
    fn new(input: &Input<'_>, part: &Part<'_>, runs: &[Run]) -> Self {
        let packed = LayerStore::join(runs.iter().map(|&run| part.store.run(run)).collect());
        let keys = part.codecs[0].decode(&packed.key);
        let values = match input.row.value {
            Value::Own(_) => part.codecs[1].decode(&packed.value),
            Value::PrefixOfKey(dim) => keys.clone().narrow(2, 0, dim),
        };
        Self {
            keys: keys.permute([1, 2, 0]),
            values: values.swap_dims(0, 1),
            positions: runs.iter().map(|run| run.position..run.position + run.len).collect(),
        }
    }

    fn rows(&self) -> usize {
        self.positions.iter().map(ExactSizeIterator::len).sum()
    }
}

/// Runs, cut and gathered so that each group has at most [`BLOCK`] rows, in blocks that the codec packs together.
fn groups(part: &Part<'_>, runs: &[Run]) -> Vec<Vec<Run>> {
    let together = part.codecs.iter().map(|codec| codec.block()).max().unwrap_or(1);
    let most = (BLOCK / together).max(1) * together;
    let mut groups: Vec<Vec<Run>> = Vec::new();
    let mut room = 0;
    for &run in runs {
        let mut rest = Some(run);
        while let Some(run) = rest {
            if room == 0 {
                groups.push(Vec::new());
                room = most;
            }
            let cut = run.position + room.min(run.len);
            if let (Some(group), Some(part)) = (groups.last_mut(), run.until(cut)) {
                group.push(part);
                room -= part.len;
            }
            rest = run.from(cut);
        }
    }
    groups
}

/// Softmax so far, `[query heads, tokens, 1]` and `[heads, group * tokens, value dim]`.
struct State {
    max: Tensor<3>,
    sum: Tensor<3>,
    out: Tensor<3>,
}

impl State {
    /// Both parts brought to the larger of their maxima.
    fn merge(self, other: Self) -> Self {
        let shape = self.out.dims();
        let max = self.max.clone().max_pair(other.max.clone());
        let (a, b) = ((self.max - max.clone()).exp(), (other.max - max.clone()).exp());
        let rows = |w: &Tensor<3>| w.clone().reshape([shape[0], shape[1], 1]);
        Self {
            out: self.out * rows(&a) + other.out * rows(&b),
            sum: self.sum * a + other.sum * b,
            max,
        }
    }
}

/// Output `[tokens, query heads, value dim]` and log-sum-exp `[tokens, query heads]` of one chunk, in f32.
fn attend_chunk(input: &Input<'_>, i: usize) -> (Tensor<3>, Tensor<2>) {
    let chunk = &input.chunks[i];
    let [_, query_heads, key_dim] = input.query.q.dims();
    let (heads, tokens, value_dim) = (input.row.heads, chunk.tokens.len(), input.row.value_dim());
    let device = input.query.q.device();
    // All queries that share a KV head meet its rows in one product: [heads, group * tokens, key dim].
    let q = input
        .query
        .q
        .clone()
        .cast(DType::F32)
        .narrow(0, chunk.tokens.start, tokens);
    let q = q
        .swap_dims(0, 1)
        .reshape([heads, query_heads / heads * tokens, key_dim]);

    let parts = input.parts.iter().flat_map(|part| {
        let groups = groups(part, &part.runs[i]).into_iter();
        let q = &q;
        groups.map(move |runs| attend_block(input, part.form, chunk, q, Block::new(input, part, &runs)))
    });
    let mut state = parts.reduce(State::merge);
    if let Some(sinks) = &input.query.sinks {
        // A learned sink is one more score in the softmax, without a value.
        let sink = State {
            max: sinks
                .clone()
                .cast(DType::F32)
                .reshape([query_heads, 1, 1])
                .expand([query_heads, tokens, 1]),
            sum: Tensor::ones([query_heads, tokens, 1], (&device, DType::F32)),
            out: Tensor::zeros([heads, query_heads / heads * tokens, value_dim], (&device, DType::F32)),
        };
        state = Some(match state {
            Some(state) => state.merge(sink),
            None => sink,
        });
    }
    let Some(State { max, sum, out }) = state else {
        let out = Tensor::zeros([tokens, query_heads, value_dim], (&device, DType::F32));
        let lse = Tensor::full([tokens, query_heads], EMPTY_LSE, (&device, DType::F32));
        return (out, lse);
    };
    let mut out = out.reshape([query_heads, tokens, value_dim]) / sum.clone();
    if !input.nobody_is_blind() {
        // Where every row is masked, all scores are alike, and all rows would weigh the same.
        out = out * max.clone().greater_elem(MASKED / 2.0).float().cast(DType::F32);
    }
    let lse = (max + sum.log()).reshape([query_heads, tokens]).swap_dims(0, 1);
    (out.swap_dims(0, 1), lse)
}

fn attend_block(input: &Input<'_>, form: Form, chunk: &QueryChunk, q: &Tensor<3>, block: Block) -> State {
    let (tokens, rows) = (chunk.tokens.len(), block.rows());
    let [heads, queries, _] = q.dims();
    let query_heads = heads * queries / tokens;
    let scores = q.clone().matmul(block.keys) * input.query.scale;
    let mut scores = scores.reshape([query_heads, tokens, rows]);
    if let Some(cap) = input.query.softcap {
        scores = (scores / cap).tanh() * cap;
    }
    if let Some(bias) = mask(input, form, chunk, &block.positions) {
        let bias = TensorData::new(bias, [1, tokens, rows]);
        scores = scores + Tensor::from_data(bias, (&q.device(), DType::F32));
    }
    let max = scores.clone().max_dim(2);
    let weights = (scores - max.clone()).exp();
    State {
        sum: weights.clone().sum_dim(2),
        out: weights.reshape([heads, queries, rows]).matmul(block.values),
        max,
    }
}

/// `[tokens, rows]`: 0 where the query sees the row, [`MASKED`] elsewhere. `None` if every query sees every row.
fn mask(input: &Input<'_>, form: Form, chunk: &QueryChunk, positions: &[Range<usize>]) -> Option<Vec<f32>> {
    let queries = chunk.start..chunk.start + chunk.tokens.len();
    let sees = |query, row| input.sees(form, chunk.start, query, row);
    // A row that the first and the last query see is seen by those between: a window moves with its query, and rows
    // are packed once.
    let sees_all = |query: usize| {
        let mut rows = positions.iter().cloned().flatten();
        rows.all(|row| sees(query, row))
    };
    if sees_all(queries.start) && sees_all(queries.end - 1) {
        return None;
    }
    let bias = queries.flat_map(|query| {
        let rows = positions.iter().cloned().flatten();
        rows.map(move |row| if sees(query, row) { 0.0 } else { MASKED })
    });
    Some(bias.collect())
}

fn join<const D: usize>(mut parts: Vec<Tensor<D>>) -> Tensor<D> {
    match parts.len() {
        1 => parts.remove(0),
        _ => Tensor::cat(parts, 0),
    }
}
