//! Normalisation over the last dimension, always in f32.

use crate::place::Place;
use crate::spec::{NormKind, NormPlan};
use burn::tensor::{DType, Tensor, TensorData, module};

/// A norm on the device.
#[derive(Clone, Debug)]
pub(crate) struct Norm {
    plan: NormPlan,
    /// `[size]`, f32; with the one of `1 + w` already added.
    weight: Tensor<1>,
    bias: Option<Tensor<1>>,
    /// The weight once more, for one pass on the processor.
    host: Option<Vec<f32>>,
}

impl Norm {
    pub(crate) fn new(plan: NormPlan, mut weight: Vec<f32>, bias: Option<Vec<f32>>, place: &Place) -> Self {
        if plan.kind == NormKind::RmsPlusOne {
            weight.iter_mut().for_each(|w| *w += 1.0);
        }
        let put = |data: Vec<f32>| {
            let n = data.len();
            place.tensor_f32(data, [n])
        };
        let host = (kvlab_core::is_processor(&place.device) && plan.kind != NormKind::Layer).then(|| weight.clone());
        Self {
            plan,
            host,
            weight: put(weight),
            bias: bias.map(put),
        }
    }

    /// Whether [`on_host`](Self::on_host) does it: an RMS norm on the processor.
    pub(crate) fn is_on_host(&self) -> bool {
        self.host.is_some()
    }

    /// Rows of `size` numbers to as many.
    pub(crate) fn on_host(&self, x: &[f32], out: &mut [f32]) {
        kvlab_linear::rms_norm(x, self.host.as_deref().unwrap_or_default(), self.plan.eps as f32, out);
    }

    /// `[.., size]` to the same shape, in f32.
    pub(crate) fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let x = x.cast(DType::F32);
        if self.is_on_host() {
            let shape = x.shape();
            let (device, x) = (x.device(), x.into_data());
            let x: &[f32] = x.as_slice().unwrap_or_default();
            let mut out = vec![0.0; x.len()];
            self.on_host(x, &mut out);
            return Tensor::from_data(TensorData::new(out, shape), &device);
        }
        match self.plan.kind {
            NormKind::Layer => module::layer_norm(x, self.weight.clone(), self.bias.clone(), self.plan.eps),
            NormKind::Rms | NormKind::RmsPlusOne => {
                let mean_square = (x.clone() * x.clone()).mean_dim(D - 1);
                let rms = (mean_square + self.plan.eps).sqrt();
                x / rms * self.weight.clone().unsqueeze()
            }
        }
    }
}
