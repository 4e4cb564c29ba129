//! The halves of a layer on the processor, on slices instead of tensors.
//!
//! A decoder that makes one token spends as long on small tensors between its products (their making, shapes and memory) as
//! on its attention. Here the norms, products, gates and sums of a layer work in room that all layers of a pass share, and
//! tensors are made of what the cache is given. Every number is the one that the tensors give.
//!
//! It takes what most families have: packed weights, RMS norms, heads, a gate with SiLU. For the rest there is
//! [`Block::forward`]'s other way.

use crate::ModelError;
use crate::attention::{Call, HeadAttention, Kind};
use crate::decoder::Block;
use crate::linear::Linear;
use crate::mlp::FeedForward;
use crate::norm::Norm;
use crate::spec::Activation;
use burn::tensor::{Device, Tensor, TensorData};
use kvlab_core::Rows;
use kvlab_linear::Packed;

/// Memory for the numbers between products: every layer of a pass needs as much.
#[derive(Debug, Default)]
pub(crate) struct Room {
    normed: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    out: Vec<f32>,
}

/// As many numbers as asked for, whatever they are.
fn sized(room: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if room.len() < len {
        room.resize(len, 0.0);
    }
    &mut room[..len]
}

/// `y = W x + b` with a packed weight.
struct Product<'a> {
    weight: &'a Packed,
    bias: Option<TensorData>,
}

impl<'a> Product<'a> {
    fn of(linear: &'a Linear) -> Option<Self> {
        let (weight, bias) = linear.packed()?;
        Some(Self {
            weight,
            bias: bias.map(Tensor::to_data),
        })
    }

    fn new_output(&self, tokens: usize) -> Vec<f32> {
        vec![0.0; tokens * self.weight.rows()]
    }
}

/// Products of the same input.
fn apply<const N: usize>(products: [&Product<'_>; N], x: &[f32], mut outputs: [&mut [f32]; N]) {
    let done = kvlab_linear::apply(&products.map(|product| product.weight), x, &mut outputs);
    // The shapes of a decoder were checked when it was built.
    debug_assert_eq!(done, Ok(()));
    for (product, out) in products.into_iter().zip(outputs) {
        if let Some(bias) = &product.bias {
            let bias: &[f32] = bias.as_slice().unwrap_or_default();
            for out in out.chunks_exact_mut(product.weight.rows()) {
                out.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
            }
        }
    }
}

/// What is done with the output of a half before it is added to the residual stream.
struct Branch<'a> {
    norm: Option<&'a Norm>,
    scale: Option<f32>,
}

impl<'a> Branch<'a> {
    fn of(block: &'a Block, which: usize) -> Option<Self> {
        let norm = block.post_norms.as_ref().map(|norms| &norms[which]);
        norm.is_none_or(Norm::is_on_host).then_some(Self {
            norm,
            scale: block.branch_scale,
        })
    }

    /// Adds `y` to `x`; `other` is room for as many numbers.
    fn add(&self, x: &mut [f32], y: &mut [f32], other: &mut Vec<f32>) {
        let y = match self.norm {
            Some(norm) => {
                let normed = sized(other, y.len());
                norm.on_host(y, normed);
                normed
            }
            None => y,
        };
        if let Some(scale) = self.scale {
            y.iter_mut().for_each(|y| *y *= scale);
        }
        kvlab_linear::add(x, y);
    }
}

/// The attention of a layer.
pub(crate) struct AttentionHalf<'a> {
    norm: &'a Norm,
    heads: &'a HeadAttention,
    query: Product<'a>,
    key: Product<'a>,
    value: Product<'a>,
    output: Product<'a>,
    branch: Branch<'a>,
}

impl<'a> AttentionHalf<'a> {
    pub(crate) fn of(block: &'a Block) -> Option<Self> {
        let attention = &block.attention;
        let Kind::Heads(heads) = &attention.kind else {
            return None;
        };
        let norms = [
            Some(&block.attention_norm),
            heads.query_norm.as_ref(),
            heads.key_norm.as_ref(),
        ];
        if !norms.into_iter().flatten().all(Norm::is_on_host) {
            return None;
        }
        Some(Self {
            norm: &block.attention_norm,
            heads,
            query: Product::of(&heads.query)?,
            key: Product::of(&heads.key)?,
            value: Product::of(&heads.value)?,
            output: Product::of(&attention.output)?,
            branch: Branch::of(block, 0)?,
        })
    }

    /// `x`, `[tokens, hidden]` in f32, and what the attention adds to it.
    pub(crate) fn forward(&self, x: Tensor<2>, call: Call<'_, '_>, room: &mut Room) -> Result<Tensor<2>, ModelError> {
        let ([tokens, hidden], device) = (x.dims(), x.device());
        let mut x = x.into_data();
        let x_numbers: &mut [f32] = x.as_mut_slice().unwrap_or_default();
        let normed = sized(&mut room.normed, tokens * hidden);
        self.norm.on_host(x_numbers, normed);
        let [mut q, mut k, mut v] = [&self.query, &self.key, &self.value].map(|product| product.new_output(tokens));
        apply([&self.query, &self.key, &self.value], normed, [&mut q, &mut k, &mut v]);
        let heads = |mut numbers: Vec<f32>, heads: usize, norm: Option<&Norm>, turned: bool| {
            let dim = numbers.len() / (tokens * heads).max(1);
            if let Some(norm) = norm {
                let before = numbers.clone();
                norm.on_host(&before, &mut numbers);
            }
            if let Some(rotation) = call.rotation.filter(|_| turned) {
                rotation.on_host(&mut numbers, dim);
            }
            tensor(numbers, [tokens, heads, dim], &device)
        };
        let q = heads(q, self.heads.query_heads, self.heads.query_norm.as_ref(), true);
        let rows = Rows {
            key: heads(k, self.heads.kv_heads, self.heads.key_norm.as_ref(), true),
            value: Some(heads(v, self.heads.kv_heads, None, false)),
        };
        let query = call.query(q);
        let attended = call.step.extend_attend(call.layer, rows, query)?.out.into_data();
        let out = sized(&mut room.out, tokens * hidden);
        apply([&self.output], attended.as_slice().unwrap_or_default(), [out]);
        self.branch.add(x_numbers, out, &mut room.normed);
        Ok(Tensor::from_data(x, &device))
    }
}

/// The feed-forward network of a layer.
pub(crate) struct FeedForwardHalf<'a> {
    norm: &'a Norm,
    gate: Product<'a>,
    up: Product<'a>,
    down: Product<'a>,
    branch: Branch<'a>,
}

impl<'a> FeedForwardHalf<'a> {
    pub(crate) fn of(block: &'a Block) -> Option<Self> {
        let FeedForward::Dense(mlp) = &block.mlp else {
            return None;
        };
        let gate = mlp.gate.as_ref().filter(|_| mlp.activation == Activation::Silu)?;
        if !block.mlp_norm.is_on_host() {
            return None;
        }
        Some(Self {
            norm: &block.mlp_norm,
            gate: Product::of(gate)?,
            up: Product::of(&mlp.up)?,
            down: Product::of(&mlp.down)?,
            branch: Branch::of(block, 1)?,
        })
    }

    /// `x`, `[tokens, hidden]` in f32, and what the network adds to it.
    pub(crate) fn forward(&self, x: Tensor<2>, room: &mut Room) -> Tensor<2> {
        let ([tokens, hidden], device) = (x.dims(), x.device());
        let mut x = x.into_data();
        let numbers: &mut [f32] = x.as_mut_slice().unwrap_or_default();
        let normed = sized(&mut room.normed, tokens * hidden);
        self.norm.on_host(numbers, normed);
        let inner = tokens * self.up.weight.rows();
        let (gate, up) = (sized(&mut room.gate, inner), sized(&mut room.up, inner));
        apply([&self.gate, &self.up], normed, [gate, up]);
        kvlab_linear::silu_product(gate, up);
        let out = sized(&mut room.out, tokens * hidden);
        apply([&self.down], gate, [out]);
        self.branch.add(numbers, out, &mut room.normed);
        Tensor::from_data(x, &device)
    }
}

fn tensor<const D: usize>(numbers: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(numbers, shape), device)
}
