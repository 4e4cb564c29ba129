//! A projection on the host, while weights are being changed.

use crate::ModelError;
use crate::linear::{Linear, Weight};
use crate::place::Place;
use kvlab_core::Matrix;
use kvlab_weights::{Dtype, blocks};
use std::ops::Range;

/// `y = W x + b` on the host; `W` is `[out, in]`.
#[derive(Clone, Debug)]
pub(crate) struct HostLinear {
    pub(crate) weight: HostWeight,
    pub(crate) bias: Option<Vec<f32>>,
}

/// A weight on the host. Its rows can be reordered either way; all else is done in f32.
#[derive(Clone, Debug)]
pub(crate) enum HostWeight {
    Dense(Matrix),
    Packed(PackedRows),
}

/// Rows as a file has them, each in whole blocks.
#[derive(Clone, Debug)]
pub(crate) struct PackedRows {
    pub(crate) dtype: Dtype,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) bytes: Vec<u8>,
}

impl HostLinear {
    pub(crate) fn dense(weight: Matrix, bias: Option<Vec<f32>>) -> Self {
        Self {
            weight: HostWeight::Dense(weight),
            bias,
        }
    }

    /// Some of its outputs.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Self {
        self.reordered(rows)
    }

    /// Its outputs in another order.
    pub(crate) fn reordered(&self, order: impl IntoIterator<Item = usize>) -> Self {
        let order: Vec<usize> = order.into_iter().collect();
        Self {
            weight: self.weight.reordered(&order),
            bias: self.bias.as_ref().map(|b| order.iter().map(|&row| b[row]).collect()),
        }
    }

    /// In f32, whatever the format of the weights.
    pub(crate) fn place_f32(self, place: &Place) -> Result<Linear, ModelError> {
        let Matrix { rows, cols, data } = self.weight.into_matrix()?;
        Ok(Linear::new(
            Weight::Tensor(place.tensor_f32(data, [rows, cols])),
            self.bias.map(|bias| place.tensor_f32(bias, [1, rows])),
        ))
    }

    pub(crate) fn place(self, place: &Place) -> Result<Linear, ModelError> {
        let bias = self.bias.map(|bias| place.row(bias));
        Ok(Linear::new(self.weight.place(place)?, bias))
    }
}

impl HostWeight {
    /// Outputs.
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Dense(matrix) => matrix.rows,
            Self::Packed(packed) => packed.rows,
        }
    }

    fn reordered(&self, order: &[usize]) -> Self {
        match self {
            Self::Dense(matrix) => Self::Dense(Matrix {
                rows: order.len(),
                cols: matrix.cols,
                data: order.iter().flat_map(|&row| matrix.row(row)).copied().collect(),
            }),
            Self::Packed(packed) => {
                let each = packed.bytes.len() / packed.rows.max(1);
                let row = |row: usize| &packed.bytes[row * each..(row + 1) * each];
                Self::Packed(PackedRows {
                    rows: order.len(),
                    bytes: order.iter().flat_map(|&r| row(r)).copied().collect(),
                    ..*packed
                })
            }
        }
    }

    /// Its numbers in f32.
    pub(crate) fn into_matrix(self) -> Result<Matrix, ModelError> {
        match self {
            Self::Dense(matrix) => Ok(matrix),
            Self::Packed(packed) => {
                let mut matrix = Matrix::zeros(packed.rows, packed.cols);
                blocks::dequantize(packed.dtype, &packed.bytes, &mut matrix.data)?;
                Ok(matrix)
            }
        }
    }

    pub(crate) fn place(self, place: &Place) -> Result<Weight, ModelError> {
        match self {
            Self::Dense(matrix) => Ok(Weight::Tensor(place.matrix(matrix))),
            Self::Packed(packed) => place.packed(&packed),
        }
    }
}
