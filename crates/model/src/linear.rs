//! A projection: on the host while weights are being changed, on the device when the model runs.

use crate::place::Place;
use burn::tensor::Tensor;
use kvlab_core::Matrix;
use std::ops::Range;

/// `y = W x + b` on the host; `W` is `[out, in]`.
#[derive(Clone, Debug)]
pub(crate) struct HostLinear {
    pub(crate) weight: Matrix,
    pub(crate) bias: Option<Vec<f32>>,
}

impl HostLinear {
    /// Some of its outputs.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Self {
        self.reordered(rows)
    }

    /// Its outputs in another order.
    pub(crate) fn reordered(&self, order: impl IntoIterator<Item = usize>) -> Self {
        let order: Vec<usize> = order.into_iter().collect();
        let data = order.iter().flat_map(|&row| self.weight.row(row)).copied().collect();
        Self {
            weight: Matrix {
                rows: order.len(),
                cols: self.weight.cols,
                data,
            },
            bias: self.bias.as_ref().map(|b| order.iter().map(|&row| b[row]).collect()),
        }
    }

    pub(crate) fn place(self, place: &Place) -> Linear {
        Linear {
            weight: place.matrix(self.weight),
            bias: self.bias.map(|bias| place.row(bias)),
        }
    }
}

/// `y = x W + b` on the device.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    /// `[in, out]`
    weight: Tensor<2>,
    /// `[1, out]`
    bias: Option<Tensor<2>>,
}

impl Linear {
    /// `[tokens, in]` to `[tokens, out]`.
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let y = x.matmul(self.weight.clone());
        match &self.bias {
            Some(bias) => y + bias.clone(),
            None => y,
        }
    }

    /// The same, split into heads: `[tokens, heads, out / heads]`.
    pub(crate) fn heads(&self, x: Tensor<2>, heads: usize) -> Tensor<3> {
        let tokens = x.dims()[0];
        let y = self.forward(x);
        let dim = y.dims()[1] / heads;
        y.reshape([tokens, heads, dim])
    }
}
