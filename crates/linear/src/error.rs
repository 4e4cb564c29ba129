//! What can be wrong with a weight or a call.

use crate::Format;

/// A weight or a call that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinearError {
    /// The bytes of a weight are not those of its shape.
    #[error("{got} bytes for {rows} rows of {cols} numbers in {format}")]
    Bytes {
        /// Its format.
        format: Format,
        /// Outputs.
        rows: usize,
        /// Inputs.
        cols: usize,
        /// Bytes given.
        got: usize,
    },
    /// Weights that are applied together must have the same inputs.
    #[error("inputs of {got} numbers for a weight of {cols}")]
    Inputs {
        /// Inputs of the weight.
        cols: usize,
        /// Numbers given, or inputs of the first weight.
        got: usize,
    },
    /// Room for another number of outputs than there are.
    #[error("room for {got} outputs, {expected} expected")]
    Outputs {
        /// Rows times outputs.
        expected: usize,
        /// Room given.
        got: usize,
    },
    /// A row that the weight does not have.
    #[error("row {row} of a weight of {rows}")]
    Row {
        /// The row.
        row: usize,
        /// Outputs of the weight.
        rows: usize,
    },
}
