//! What can be wrong with a model on disk. Every message names the file, and says what to do.

use std::path::PathBuf;

/// Why weights could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// Nothing is at that path.
    #[error(
        "{path}: no such file or folder; `path` must name a .gguf file or a Hugging Face folder (config.json and model.safetensors)"
    )]
    NotFound {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file that could not be read or written.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The path exists, and is not a model.
    #[error("{path}: {problem}")]
    NotAModel {
        /// The file or folder.
        path: PathBuf,
        /// What is missing or wrong, and what to do.
        problem: String,
    },
    /// A JSON file that does not hold what it should.
    #[error("{path}: {problem}")]
    Json {
        /// The JSON file.
        path: PathBuf,
        /// What is wrong, with line and column where known.
        problem: String,
    },
    /// A weight file that is cut, damaged or hostile.
    #[error("{path}: damaged file, at byte {offset}: {problem}")]
    Damaged {
        /// The weight file.
        path: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong there, with numbers.
        problem: String,
    },
    /// The shard index names a file that is not there.
    #[error("{shard}: missing, though {index} lists it for {tensor:?}; fetch that shard again")]
    MissingShard {
        /// The index file.
        index: PathBuf,
        /// The shard that is missing.
        shard: PathBuf,
        /// The first tensor listed for it.
        tensor: String,
    },
    /// The shard index lists a tensor for a file that does not hold it.
    #[error("{shard}: holds no tensor {tensor:?}, though {index} lists it there")]
    NotInShard {
        /// The index file.
        index: PathBuf,
        /// The shard that should hold the tensor.
        shard: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// GGUF metadata lacks a key.
    #[error("{path}: the GGUF metadata has no {key:?}")]
    MissingKey {
        /// The GGUF file.
        path: PathBuf,
        /// The full name of the key.
        key: String,
    },
    /// A GGUF metadata value that cannot be used.
    #[error("{path}: GGUF metadata {key:?}: {problem}")]
    BadKey {
        /// The GGUF file.
        path: PathBuf,
        /// The full name of the key.
        key: String,
        /// What is wrong with its value.
        problem: String,
    },
    /// A GGUF file of an architecture whose names and layout are not known here.
    #[error("{path}: unknown GGUF architecture {name:?}; known are {}", known.join(", "))]
    UnknownArchitecture {
        /// The GGUF file.
        path: PathBuf,
        /// Its `general.architecture`.
        name: String,
        /// The architectures that can be read.
        known: Vec<&'static str>,
    },
    /// The model has no tensor of that name.
    #[error("{path}: no tensor {tensor:?}")]
    NoTensor {
        /// The model.
        path: PathBuf,
        /// The Hugging Face name.
        tensor: String,
    },
    /// Two tensors of one name.
    #[error("{path}: two tensors are named {tensor:?}")]
    DuplicateTensor {
        /// The model.
        path: PathBuf,
        /// The name.
        tensor: String,
    },
    /// A tensor whose shape, size or place is impossible.
    #[error("{path}: tensor {tensor:?}: {problem}")]
    BadTensor {
        /// The weight file.
        path: PathBuf,
        /// The tensor, by the name that it has in the file.
        tensor: String,
        /// What is wrong, with numbers.
        problem: String,
    },
    /// A number format that is not unpacked here.
    #[error("{path}: tensor {tensor:?} is {dtype}, which is not supported; supported are {}", known.join(", "))]
    UnsupportedDtype {
        /// The weight file.
        path: PathBuf,
        /// The tensor, by the name that it has in the file.
        tensor: String,
        /// Its number format.
        dtype: String,
        /// The formats that can be read from such a file.
        known: Vec<&'static str>,
    },
    /// Lengths that do not fit together, given to [`crate::blocks`].
    #[error("{values} values of {dtype} do not take {bytes} bytes")]
    BlockLength {
        /// The number format.
        dtype: crate::Dtype,
        /// Bytes given.
        bytes: usize,
        /// Values given.
        values: usize,
    },
}
