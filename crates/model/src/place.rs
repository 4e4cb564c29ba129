//! Where weights are put, and in what number format.

use burn::tensor::{DType, Device, Tensor, TensorData};
use kvlab_core::Matrix;
use std::cell::Cell;

/// A device and the number format of weights on it. Counts the bytes that it was given.
pub(crate) struct Place {
    pub(crate) device: Device,
    pub(crate) dtype: DType,
    bytes: Cell<u64>,
}

impl Place {
    pub(crate) fn new(device: Device, dtype: DType) -> Self {
        Self {
            device,
            dtype,
            bytes: Cell::new(0),
        }
    }

    /// Bytes of all tensors so far.
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
        self.bytes.set(self.bytes.get() + (data.len() * dtype.size()) as u64);
        Tensor::from_data(TensorData::new(data, shape), (&self.device, dtype))
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
}
