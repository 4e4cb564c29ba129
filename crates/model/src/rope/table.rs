//! The cosines and sines of every position, and the rotation itself.

use super::plan::RopePlan;
use crate::ModelError;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};

/// cos and sin, `[max_positions, rotary / 2]`, f32, computed in f64 once.
#[derive(Clone, Debug)]
pub(crate) struct RopeTable {
    cos: Tensor<2>,
    sin: Tensor<2>,
}

impl RopeTable {
    pub(crate) fn new(
        plan: &RopePlan,
        divisors: Option<&[f32]>,
        positions: usize,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let (frequencies, factor) = (plan.frequencies(divisors)?, plan.attention_factor());
        let table = |f: fn(f64) -> f64| {
            let row = |p: usize| frequencies.iter().map(move |w| (f(p as f64 * w) * factor) as f32);
            let data: Vec<f32> = (0..positions).flat_map(row).collect();
            Tensor::from_data(
                TensorData::new(data, [positions, frequencies.len()]),
                (device, DType::F32),
            )
        };
        Ok(Self {
            cos: table(f64::cos),
            sin: table(f64::sin),
        })
    }

    /// The rotation of the tokens at `positions`, `[tokens]`.
    pub(crate) fn at(&self, positions: &Tensor<1, Int>) -> Rotation {
        let at = |table: &Tensor<2>| table.clone().select(0, positions.clone());
        let (cos, sin) = (at(&self.cos), at(&self.sin));
        let host = kvlab_core::is_processor(&positions.device()).then(|| [cos.to_data(), sin.to_data()]);
        Rotation {
            cos: cos.unsqueeze_dim(1),
            sin: sin.unsqueeze_dim(1),
            host,
        }
    }
}

/// cos and sin of the tokens of one step, `[tokens, 1, rotary / 2]`: shared by all layers with the same rope.
#[derive(Clone, Debug)]
pub(crate) struct Rotation {
    cos: Tensor<3>,
    sin: Tensor<3>,
    /// Both once more, for one pass on the processor.
    host: Option<[TensorData; 2]>,
}

impl Rotation {
    /// Turns the first `rotary` values of each head of `x`, `[tokens, heads, dim]`, half-split; f32 in and out.
    pub(crate) fn apply(&self, x: Tensor<3>) -> Tensor<3> {
        let [tokens, heads, dim] = x.dims();
        let half = self.cos.dims()[2];
        if self.host.is_some() {
            let (device, mut x) = (x.device(), x.into_data());
            let numbers: &mut [f32] = x.as_mut_slice().unwrap_or_default();
            debug_assert_eq!(numbers.len(), tokens * heads * dim);
            self.on_host(numbers, dim);
            return Tensor::from_data(x, &device);
        }
        let part = |from: usize, to: usize| x.clone().slice([0..tokens, 0..heads, from..to]);
        let (a, b) = (part(0, half), part(half, 2 * half));
        let turned_a = a.clone() * self.cos.clone() - b.clone() * self.sin.clone();
        let turned_b = b * self.cos.clone() + a * self.sin.clone();
        let mut parts = vec![turned_a, turned_b];
        if 2 * half < dim {
            parts.push(part(2 * half, dim));
        }
        Tensor::cat(parts, 2)
    }

    /// [`apply`](Self::apply) on the numbers themselves, if they are on the processor, as the step is then.
    pub(crate) fn on_host(&self, x: &mut [f32], dim: usize) {
        if let Some(tables) = &self.host {
            let [cos, sin] = tables.each_ref().map(|table| table.as_slice().unwrap_or_default());
            kvlab_linear::rotate(x, dim, self.cos.dims()[2], cos, sin);
        }
    }
}
