//! A cache for tests: one sequence, rows as they came, attention in plain Burn operations.

use crate::DecoderSpec;
use burn::tensor::{Bool, Device, Int, Tensor, TensorData, activation::softmax};
use kvlab_core::{Accept, Attended, CacheError, EMPTY_LSE, LayerId, Query, Rows, Span, Step, StepReport, Visibility};

pub(super) struct Memory {
    layers: Vec<Option<Rows>>,
    visibility: Vec<Visibility>,
    /// Of a value, where it is a prefix of the key.
    prefix: Vec<usize>,
    len: usize,
}

pub(super) struct MemoryStep<'a> {
    memory: &'a mut Memory,
    positions: Tensor<1, Int>,
    fresh: Vec<Option<Rows>>,
    count: usize,
}

impl Memory {
    pub(super) fn new(spec: &DecoderSpec) -> Self {
        let shapes = || (0..spec.layers()).map(|layer| spec.attention(layer));
        Self {
            layers: vec![None; spec.layers()],
            visibility: shapes().map(|s| s.visibility).collect(),
            prefix: shapes().map(|s| s.native_row().value_dim()).collect(),
            len: 0,
        }
    }

    /// Says that the values of latent rows are so many first values of the key.
    pub(super) fn with_prefix(mut self, prefix: usize) -> Self {
        self.prefix.iter_mut().for_each(|p| *p = prefix);
        self
    }

    pub(super) fn begin(&mut self, count: usize) -> MemoryStep<'_> {
        let positions: Vec<i64> = (self.len..self.len + count).map(|p| p as i64).collect();
        MemoryStep {
            positions: Tensor::from_data(TensorData::new(positions, [count]), &Device::flex()),
            fresh: vec![None; self.layers.len()],
            memory: self,
            count,
        }
    }

    pub(super) fn rows(&self, layer: usize) -> Rows {
        self.layers[layer].clone().unwrap()
    }
}

impl MemoryStep<'_> {
    /// Keeps the rows.
    pub(super) fn keep(self) {
        self.memory.len += self.count;
        for (old, new) in self.memory.layers.iter_mut().zip(self.fresh) {
            *old = Some(joined(old.take(), new.expect("every layer was extended")));
        }
    }
}

fn joined(old: Option<Rows>, new: Rows) -> Rows {
    let Some(old) = old else { return new };
    let value = old.value.zip(new.value).map(|(a, b)| Tensor::cat(vec![a, b], 0));
    Rows {
        key: Tensor::cat(vec![old.key, new.key], 0),
        value,
    }
}

impl Step for MemoryStep<'_> {
    fn positions(&self) -> &Tensor<1, Int> {
        &self.positions
    }

    fn extend(&mut self, layer: LayerId, rows: Rows) -> Result<(), CacheError> {
        assert!(self.fresh[layer.0].replace(rows).is_none(), "{layer} extended twice");
        Ok(())
    }

    fn attend(&mut self, layer: LayerId, query: Query) -> Result<Attended, CacheError> {
        let fresh = self.fresh[layer.0].clone().expect("extend comes first");
        let past = self.memory.layers[layer.0].clone();
        let rows = match query.span {
            Span::All => Some(joined(past, fresh)),
            Span::Past => past,
        };
        let value = self.memory.prefix[layer.0];
        Ok(self.attention(layer, rows, query, 0, value))
    }

    fn attend_fresh(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError> {
        Ok(self.attention(layer, Some(rows), query, self.memory.len, 0))
    }

    fn ready(&self) -> Result<(), CacheError> {
        Ok(())
    }

    fn commit(self: Box<Self>, _: Accept) -> Result<StepReport, CacheError> {
        self.keep();
        Ok(StepReport::default())
    }
}

impl MemoryStep<'_> {
    /// Over `rows`, the first of which is at position `first`.
    fn attention(&self, layer: LayerId, rows: Option<Rows>, query: Query, first: usize, prefix: usize) -> Attended {
        let [tokens, heads, _] = query.q.dims();
        let device = query.q.device();
        let Some(rows) = rows else {
            return Attended {
                out: Tensor::zeros([tokens, heads, prefix], &device),
                lse: Some(Tensor::full([tokens, heads], EMPTY_LSE, &device)),
            };
        };
        let value = rows.value.unwrap_or_else(|| rows.key.clone().narrow(2, 0, prefix));
        let count = rows.key.dims()[0];
        let visible = |p: usize, j: usize| self.memory.visibility[layer.0].sees(p, j);
        let hidden: Vec<bool> = (0..tokens)
            .flat_map(|t| (0..count).map(move |j| (t, j)))
            .map(|(t, j)| !visible(self.memory.len + t, first + j))
            .collect();
        let hidden = Tensor::<2, Bool>::from_data(TensorData::new(hidden, [tokens, count]), &device);
        // [heads, tokens, dim]
        let per_head = |x: Tensor<3>| {
            let [n, kv, d] = x.dims();
            x.unsqueeze_dim::<4>(2)
                .repeat_dim(2, heads / kv)
                .reshape([n, heads, d])
                .swap_dims(0, 1)
        };
        let mut scores = query.q.swap_dims(0, 1).matmul(per_head(rows.key).swap_dims(1, 2)) * query.scale;
        if let Some(cap) = query.softcap {
            scores = (scores / cap).tanh() * cap;
        }
        let hidden = hidden.unsqueeze_dim::<3>(0).repeat_dim(0, heads);
        let mut scores = scores.mask_fill(hidden, EMPTY_LSE);
        if let Some(sinks) = query.sinks {
            // One more row, without a value.
            let sinks = sinks.cast(scores.dtype()).reshape([heads, 1, 1]).repeat_dim(1, tokens);
            scores = Tensor::cat(vec![scores, sinks], 2);
        }
        let max = scores.clone().max_dim(2);
        let lse = ((scores.clone() - max.clone()).exp().sum_dim(2).log() + max).squeeze_dim::<2>(2);
        let weights = softmax(scores, 2).narrow(2, 0, count);
        Attended {
            out: weights.matmul(per_head(value)).swap_dims(0, 1),
            lse: Some(lse.swap_dims(0, 1)),
        }
    }
}
