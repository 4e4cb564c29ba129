//! A tensor's description, and a tensor unpacked to f32 in host memory.

use crate::Dtype;

/// What a model file says about one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The Hugging Face name.
    pub name: String,
    /// Row-major, outermost dimension first, in the Hugging Face layout (`[out, in]` for a linear layer).
    pub shape: Vec<usize>,
    /// How the numbers are stored in the file.
    pub dtype: Dtype,
}

impl TensorInfo {
    /// How many numbers the tensor has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A tensor in host memory, unpacked to f32.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTensor {
    /// Row-major, outermost dimension first, in the Hugging Face layout.
    pub shape: Vec<usize>,
    /// The numbers, `shape.iter().product()` of them.
    pub data: Vec<f32>,
}
