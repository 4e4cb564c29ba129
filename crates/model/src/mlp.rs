//! The feed-forward network of a layer.

use crate::linear::Linear;
use crate::spec::Activation;
use burn::tensor::{Tensor, activation};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

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
            Some(gate) => self.activation.apply(gate.forward(x.clone())) * self.up.forward(x),
            None => self.activation.apply(self.up.forward(x)),
        };
        self.down.forward(inner)
    }
}

impl Activation {
    fn apply(self, x: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Silu => activation::silu(x),
            Self::Gelu => activation::gelu(x),
            Self::GeluTanh => gelu_tanh(x),
        }
    }
}

/// Burn's own takes `x^3` by `powf`, which has no value for a negative base on some GPUs.
fn gelu_tanh(x: Tensor<2>) -> Tensor<2> {
    let cube = x.clone() * x.clone() * x.clone();
    let inner = (x.clone() + cube * 0.044715) * (FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
    x * (inner.tanh() + 1.0) * 0.5
}
