//! Where the numbers of a decoder come from: a file, or a seeded generator.

mod checkpoint;
mod random;

pub(crate) use checkpoint::CheckpointSource;
pub(crate) use random::RandomSource;

use crate::ModelError;
use crate::host::PackedRows;
use crate::tensors::TensorPlan;

/// Hands out the tensors of a decoder, one at a time.
pub(crate) trait Source {
    /// The numbers of a tensor, row-major in the shape of the plan.
    fn read(&mut self, plan: &TensorPlan) -> Result<Vec<f32>, ModelError>;

    /// The rows of a matrix as the source has them, if there are kernels for their format.
    fn packed(&mut self, plan: &TensorPlan) -> Result<Option<PackedRows>, ModelError>;

    /// What the rotary frequencies are divided by, if the file says so.
    fn rope_divisors(&mut self, pairs: usize) -> Result<Option<Vec<f32>>, ModelError>;
}
