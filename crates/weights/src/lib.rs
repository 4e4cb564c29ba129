//! Weights from safetensors and GGUF files.
//!
//! [`Checkpoint`] opens a model, a Hugging Face folder or one GGUF file, and shows both in one
//! language: the keys of the Hugging Face `config.json`, the Hugging Face tensor names, and row-major
//! shapes in the Hugging Face layout. Whatever a GGUF converter did to a tensor (rows of Q and K
//! permuted, one added to a norm, a matrix transposed, experts stacked) is undone here, so that a
//! model is written once, against the Hugging Face convention.
//!
//! Why this shape: a file is mapped, and a tensor is unpacked only when asked for, one at a time, so
//! that a model can put each onto its device before it reads the next. The header is checked in full
//! when the file is opened: every count, length and offset is compared with the size of the file before
//! anything is allocated, and what is wrong is an error that names the file, the tensor and the numbers.
//!
//! What it does not do: it knows no tensor library, runs no tokenizer (it hands over its data), fetches
//! nothing from the network, and reads no pickle. It writes only the small GGUF files of tests
//! ([`gguf::write`]).

pub mod blocks;
mod checkpoint;
mod dtype;
mod error;
mod fingerprint;
mod folder;
pub mod gguf;
mod mapped;
mod source;
mod tensor;

pub use checkpoint::{Checkpoint, TokenizerSource};
pub use dtype::Dtype;
pub use error::WeightsError;
pub use gguf::tokenizer::GgufTokenizer;
pub use tensor::{HostTensor, TensorInfo};
