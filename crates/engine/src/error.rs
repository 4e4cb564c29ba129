//! What can go wrong between a config and its output.

use crate::text::TextError;
use kvlab_core::{Bytes, CacheError};
use kvlab_model::ModelError;
use kvlab_store::BuildError;
use kvlab_weights::WeightsError;
use std::path::PathBuf;
use thiserror::Error;

/// Why a config could not be loaded or run.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The device that the config names is not there, or was not compiled in.
    #[error("device {device}: {reason}")]
    Device {
        /// As in the config.
        device: String,
        /// What is the matter, and what to do.
        reason: String,
    },
    /// A variant does not fit a layer of the model.
    #[error("cache variant {variant} does not fit {layer} of the model: {reason}")]
    Variant {
        /// As in the config.
        variant: String,
        /// The layer.
        layer: kvlab_core::LayerId,
        /// Why not.
        reason: String,
    },
    /// A setting that cannot work with this model.
    #[error("{0}")]
    Setting(String),
    /// More memory than there is.
    #[error(
        "the cache needs {needed} and this machine has {available} free; lower cache.capacity ({capacity} tokens x {sequences} sequences now)"
    )]
    Memory {
        /// Bytes that the cache would allocate.
        needed: Bytes,
        /// Bytes that are free.
        available: Bytes,
        /// Tokens of a sequence.
        capacity: usize,
        /// Sequences.
        sequences: usize,
    },
    /// Weights that are drawn, and for which there is no memory.
    #[error(
        "the weights of [model.geometry] need {needed} and this machine has {available} free; make the geometry smaller, or ask \
         `kvlab plan` or `kvlab inspect`, which allocate nothing"
    )]
    WeightsMemory {
        /// Bytes of the weights.
        needed: Bytes,
        /// Bytes that are free.
        available: Bytes,
    },
    /// A prompt and its answer do not fit.
    #[error("{prompt} prompt tokens and {new} new ones are {} tokens, and {limit} is the most: {what}", prompt + new)]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens to generate.
        new: usize,
        /// The most that fits.
        limit: usize,
        /// What sets the limit, and how to raise it.
        what: String,
    },
    /// Nothing to begin with.
    #[error("the prompt is empty, and the model has no begin-of-text token to start from; give at least one token")]
    EmptyPrompt,
    /// Several samples of what has one outcome.
    #[error(
        "all {0} samples would be the same at temperature 0; raise generate.temperature (for example to 0.8), or ask \
         for one"
    )]
    SameSamples(usize),
    /// A token that the model does not have.
    #[error("token {token} at place {place} is beyond the vocabulary of {vocab} tokens")]
    Token {
        /// The id.
        token: u32,
        /// Its place in the list.
        place: usize,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// The model brings no tokenizer.
    #[error("{0} has no tokenizer; name one with model.tokenizer = \"path/to/tokenizer.json\" or \"bytes\"")]
    NoTokenizer(String),
    /// The model brings no chat template.
    #[error("{0} has no chat template")]
    NoChatTemplate(String),
    /// A model from the Hugging Face hub could not be had.
    #[error("hf:{repository}: {reason}")]
    Hub {
        /// `owner/name`.
        repository: String,
        /// What is the matter, and what to do.
        reason: String,
    },
    /// A file of the tokenizer.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is the matter.
        reason: String,
    },
    /// A conversation that could not be saved or restored.
    #[error("{}: {reason}", path.display())]
    Saved {
        /// The file.
        path: PathBuf,
        /// What is the matter.
        reason: String,
    },
    /// The device failed while it worked.
    #[error("the device failed: {0}")]
    Execution(String),
    /// Not a number, where one should be.
    #[error("the logits of position {position} hold NaN or infinite values; cache {cache}")]
    NotFinite {
        /// Position of the token.
        position: usize,
        /// The variant that ran.
        cache: String,
    },
    /// From the cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// From building the cache.
    #[error("cache: {0}")]
    Build(#[from] BuildError),
    /// From the model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// From the weights.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// From tokenizer, template or sampler.
    #[error(transparent)]
    Text(#[from] TextError),
}
