//! What a model refuses, with the names and numbers.

use kvlab_core::{CacheError, LayerId};
use thiserror::Error;

/// Why a model could not be described, loaded or run.
#[derive(Debug, Error)]
pub enum ModelError {
    /// No family of this name.
    #[error("model_type `{model_type}` is not supported; supported are {}", .supported.join(", "))]
    UnknownFamily {
        /// What the config says.
        model_type: String,
        /// What the registry holds, in its order.
        supported: Vec<&'static str>,
    },
    /// A key of the model's `config.json` is missing or has a value that cannot be right.
    #[error("config key `{key}`: {problem}")]
    Config {
        /// Its name; dotted inside a table.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A key of the model's `config.json` asks for something that is not built.
    #[error("config key `{key}` = {value} changes the model in a way that is not supported: {reason}")]
    Unsupported {
        /// Its name.
        key: String,
        /// Its value, as JSON.
        value: String,
        /// What is supported.
        reason: String,
    },
    /// The file has no such tensor.
    #[error("the weights have no tensor `{name}`: {why}")]
    MissingTensor {
        /// Its Hugging Face name.
        name: String,
        /// What needs it.
        why: String,
    },
    /// A tensor has another shape than the config implies.
    #[error("tensor `{name}` has shape {got:?}, the config implies {expected:?}")]
    TensorShape {
        /// Its Hugging Face name.
        name: String,
        /// From the config.
        expected: Vec<usize>,
        /// In the file.
        got: Vec<usize>,
    },
    /// The file holds tensors that this model never reads: it is probably another model.
    #[error(
        "the weights hold {} tensors that a `{family}` model with this config never uses: {}; allow unused tensors to load it anyway",
        .names.len(), shown(.names)
    )]
    UnusedTensors {
        /// The family that was loaded.
        family: &'static str,
        /// Their names, sorted.
        names: Vec<String>,
    },
    /// The weights file could not be read.
    #[error(transparent)]
    Weights(#[from] kvlab_weights::WeightsError),
    /// A packed weight whose bytes do not fit its shape.
    #[error(transparent)]
    Linear(#[from] kvlab_linear::LinearError),
    /// A number format that weights cannot have here.
    #[error("weights in {0} are not supported; choose f32, f16 or bf16")]
    Dtype(String),
    /// The list of adaptations does not fit the model.
    #[error("{got} adaptations for {layers} layers; give one for each layer, or none")]
    Adaptations {
        /// Layers of the model.
        layers: usize,
        /// Adaptations given.
        got: usize,
    },
    /// A layer cannot be changed as asked.
    #[error("{layer} cannot be adapted: {reason}")]
    Adaptation {
        /// The layer concerned.
        layer: LayerId,
        /// Why not.
        reason: String,
    },
    /// A token that the vocabulary does not have.
    #[error("token {token} at index {index} is outside of the vocabulary of {vocab}")]
    Token {
        /// The token.
        token: u32,
        /// Its place in the step.
        index: usize,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// A position that the model has no embedding for.
    #[error("position {position} is beyond the model's {most} positions (max_position_embeddings)")]
    Position {
        /// The position.
        position: usize,
        /// `max_position_embeddings`.
        most: usize,
    },
    /// Tokens and step do not belong together.
    #[error("{tokens} tokens for a step of {positions} positions")]
    Length {
        /// Tokens handed over.
        tokens: usize,
        /// Tokens of the step.
        positions: usize,
    },
    /// A row of logits was asked for that the step does not have.
    #[error("logits of row {row} asked for, but the step has {tokens} tokens")]
    Wanted {
        /// The row.
        row: usize,
        /// Tokens of the step.
        tokens: usize,
    },
    /// The cache refused.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The device could not hand back what was computed.
    #[error("reading from the device failed: {0}")]
    Device(String),
}

impl ModelError {
    pub(crate) fn config(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Config {
            key: key.into(),
            problem: problem.into(),
        }
    }
}

/// The first few names of a long list.
fn shown(names: &[String]) -> String {
    const MOST: usize = 12;
    let mut text = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text += &format!(" and {} more", names.len() - MOST);
    }
    text
}
