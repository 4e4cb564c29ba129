//! Where weights are put, and in what number format.

use crate::host::PackedRows;
use crate::linear::Weight;
use crate::{BuildOptions, ModelError};
use burn::tensor::{DType, Device, Tensor, TensorData};
use kvlab_core::Matrix;
use kvlab_linear::{Format, Packed, Precision};
use kvlab_weights::Dtype;
use std::cell::Cell;
use std::sync::Arc;

/// A device and the number format of weights on it. Counts the bytes that it was given.
pub(crate) struct Place {
    pub(crate) device: Device,
    pub(crate) dtype: DType,
    precision: Precision,
    bytes: Cell<u64>,
}

impl Place {
    pub(crate) fn new(options: &BuildOptions) -> Self {
        Self {
            device: options.device.clone(),
            dtype: options.dtype,
            precision: options.precision,
            bytes: Cell::new(0),
        }
    }

    /// Bytes of all weights so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// A tensor in the format of the weights.
    pub(crate) fn tensor<const D: usize>(&self, data: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
        self.put(data, shape, self.dtype)
    }

    /// A tensor in f32, whatever the format of the weights (norms).
    pub(crate) fn tensor_f32<const D: usize>(&self, data: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
        self.put(data, shape, DType::F32)
    }

    fn put<const D: usize>(&self, data: Vec<f32>, shape: [usize; D], dtype: DType) -> Tensor<D> {
        self.count(data.len() * dtype.size());
        Tensor::from_data(TensorData::new(data, shape), (&self.device, dtype))
    }

    fn count(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// `[1, n]`.
    pub(crate) fn row(&self, data: Vec<f32>) -> Tensor<2> {
        let n = data.len();
        self.tensor(data, [1, n])
    }

    /// `[rows, cols]`.
    pub(crate) fn matrix(&self, matrix: Matrix) -> Tensor<2> {
        let Matrix { rows, cols, data } = matrix;
        self.tensor(data, [rows, cols])
    }

    /// Rows of a file, as they are; the processor is the place.
    pub(crate) fn packed(&self, rows: &PackedRows) -> Result<Weight, ModelError> {
        let format = format(rows.dtype).ok_or_else(|| ModelError::Dtype(rows.dtype.to_string()))?;
        let packed = Packed::new(format, rows.rows, rows.cols, &rows.bytes)?;
        self.count(packed.bytes());
        Ok(Weight::Packed(Arc::new(packed.with_precision(self.precision))))
    }
}

/// The formats that have kernels of their own. Numbers that are in f32 already go to Burn.
pub(crate) fn format(dtype: Dtype) -> Option<Format> {
    Some(match dtype {
        Dtype::F16 => Format::F16,
        Dtype::BF16 => Format::BF16,
        Dtype::Q4_0 => Format::Q4_0,
        Dtype::Q4_1 => Format::Q4_1,
        Dtype::Q5_0 => Format::Q5_0,
        Dtype::Q5_1 => Format::Q5_1,
        Dtype::Q8_0 => Format::Q8_0,
        Dtype::Q4K => Format::Q4_K,
        Dtype::Q5K => Format::Q5_K,
        Dtype::Q6K => Format::Q6_K,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A format without one would be widened to f32, unseen: several times the memory, a fraction of the pace.
    #[test]
    fn all_formats_but_plain_f32_and_f64_have_kernels() {
        for dtype in Dtype::READABLE {
            let plain = matches!(dtype, Dtype::F32 | Dtype::F64);
            let kernel = format(dtype);
            assert_eq!(kernel.is_none(), plain, "{dtype}");
            if let Some(kernel) = kernel {
                assert_eq!(
                    (kernel.to_string(), kernel.block()),
                    (dtype.name().into(), dtype.block().unwrap_or_default())
                );
            }
        }
    }
}
