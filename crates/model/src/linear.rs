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

    /// In f32, whatever the format of the weights.
    pub(crate) fn place_f32(self, place: &Place) -> Linear {
        let Matrix { rows, cols, data } = self.weight;
        Linear {
            weight: place.tensor_f32(data, [rows, cols]),
            bias: self.bias.map(|bias| place.tensor_f32(bias, [1, rows])),
        }
    }

    pub(crate) fn place(self, place: &Place) -> Linear {
        Linear {
            weight: place.matrix(self.weight),
            bias: self.bias.map(|bias| place.row(bias)),
        }
    }
}

/// `y = W x + b` on the device.
///
/// `W` is stored as in a file, `[out, in]`, and multiplied from the left. Times in ms for 2048 x 2048 on flex (two
/// busy cores, so only the ratios count): `x` times a stored `[in, out]` / `x` times the view of an `[out, in]` / this.
///
/// | tokens | f32 | f16 | bf16 |
/// |---|---|---|---|
/// | 1 | 4.0 / 3.1 / 3.0 | 9.4 / 5.6 / 5.5 | 3.0 / 33 / 6.3 |
/// | 8 | 6.5 / 20 / 5.6 | 9.6 / 23 / 12 | 7.8 / 42 / 9.4 |
/// | 64 | 27 / 39 / 21 | 24 / 39 / 29 | 35 / 58 / 33 |
///
/// Nothing is transposed at loading, and a tied head shares the embedding's memory.
#[derive(Clone, Debug)]
pub(crate) struct Linear {
    /// `[out, in]`
    weight: Tensor<2>,
    /// `[1, out]`
    bias: Option<Tensor<2>>,
}

impl Linear {
    /// A projection without bias; `weight` is `[out, in]`.
    pub(crate) fn new(weight: Tensor<2>) -> Self {
        Self { weight, bias: None }
    }

    /// `[tokens, in]` to `[tokens, out]`.
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let (tokens, out) = (x.dims()[0], self.weight.dims()[0]);
        let y = self.weight.clone().matmul(x.transpose());
        // One token is contiguous as it is.
        let y = if tokens == 1 {
            y.reshape([1, out])
        } else {
            y.transpose()
        };
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
