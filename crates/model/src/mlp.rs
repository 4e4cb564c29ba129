//! The feed-forward network of a layer.

use crate::ModelError;
use crate::experts::Experts;
use crate::linear::Linear;
use crate::spec::Activation;
use burn::tensor::{DType, Tensor, activation};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// What a layer does after its attention.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
pub(crate) enum FeedForward {
    Dense(Mlp),
    Experts(Experts),
}

impl FeedForward {
    /// `[tokens, hidden]` to the same.
    pub(crate) fn forward(&self, x: Tensor<2>) -> Result<Tensor<2>, ModelError> {
        match self {
            Self::Dense(mlp) => Ok(mlp.forward(x)),
            Self::Experts(experts) => experts.forward(x),
        }
    }
}

/// `down(act(gate x) * up x)`, or `down(act(up x))` without a gate.
#[derive(Clone, Debug)]
pub(crate) struct Mlp {
    pub(crate) activation: Activation,
    pub(crate) gate: Option<Linear>,
    pub(crate) up: Linear,
    pub(crate) down: Linear,
}

impl Mlp {
    /// `[tokens, hidden]` to the same.
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let inner = match &self.gate {
            Some(gate) => {
                let [gate, up] = Linear::together([gate, &self.up], x);
                self.activation.gated(gate, up)
            }
            None => self.activation.apply(self.up.forward(x)),
        };
        self.down.forward(inner)
    }
}

impl Activation {
    /// `act(gate) * up`.
    fn gated(self, gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
        let device = gate.device();
        if self == Self::Silu && gate.dtype() == DType::F32 && kvlab_core::is_processor(&device) {
            let (mut gate, up) = (gate.into_data(), up.into_data());
            kvlab_linear::silu_product(
                gate.as_mut_slice().unwrap_or_default(),
                up.as_slice().unwrap_or_default(),
            );
            return Tensor::from_data(gate, &device);
        }
        self.apply(gate) * self.beside_gate(up)
    }

    fn apply(self, x: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Silu => activation::silu(x),
            Self::Gelu => activation::gelu(x),
            Self::GeluTanh => gelu_tanh(x),
            Self::ClampedSwish { alpha, limit } => {
                let x = x.clamp_max(limit);
                x.clone() * activation::sigmoid(x * alpha)
            }
        }
    }

    /// What the activated gate is multiplied with.
    fn beside_gate(self, up: Tensor<2>) -> Tensor<2> {
        match self {
            Self::ClampedSwish { limit, .. } => up.clamp(-limit, limit) + 1.0,
            Self::Silu | Self::Gelu | Self::GeluTanh => up,
        }
    }
}

/// Burn's own takes `x^3` by `powf`, which has no value for a negative base on some GPUs.
fn gelu_tanh(x: Tensor<2>) -> Tensor<2> {
    let cube = x.clone() * x.clone() * x.clone();
    let inner = (x.clone() + cube * 0.044715) * (FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
    x * (inner.tanh() + 1.0) * 0.5
}
