//! Why there is no page.

use kvlab_core::LayerId;
use kvlab_engine::EngineError;
use thiserror::Error;

/// Why a sentence could not be explained.
#[derive(Debug, Error)]
pub enum ExplainError {
    /// Nothing to read.
    #[error("the text is empty; give a short sentence, for example \"Of Man's first disobedience\"")]
    EmptyText,
    /// More tokens than a page can show.
    #[error(
        "the text is {prompt} tokens, and with {new} generated ones the model reads {fed}; {most} is the most that a \
         page can show: shorten the text, or lower -n"
    )]
    TooLong {
        /// Tokens of the text.
        prompt: usize,
        /// Tokens to generate.
        new: usize,
        /// Tokens that are fed to the model: the last generated one is not.
        fed: usize,
        /// The limit.
        most: usize,
    },
    /// The file asks for no cache.
    #[error(
        "cache.variant = \"none\" keeps no rows, and the page shows that side anyway; leave the variant out, or name \
         another (--set cache.variant=unset)"
    )]
    NoCache,
    /// Rows that are not stored as the model makes them.
    #[error(
        "{layer} stores its {what} as {format}, and the page shows rows in f32; add --set cache.key=f32 --set \
         cache.value=f32"
    )]
    Format {
        /// The layer.
        layer: LayerId,
        /// Keys or values.
        what: &'static str,
        /// The number format.
        format: String,
    },
    /// A layer that the model does not have.
    #[error("--layers names layer {asked}, and the model has {layers} layers, counted from 0")]
    Layer {
        /// As asked.
        asked: usize,
        /// How many there are.
        layers: usize,
    },
    /// A page that is too large to be pleasant.
    #[error(
        "the page would have {} KB, and {} KB is the most: shorten the text, lower -n, or show fewer layers (--layers 0)",
        bytes / 1000,
        most / 1000
    )]
    TooBig {
        /// Of the page.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// Attention that the page has no picture for.
    #[error("{layer} with the cache {variant} cannot be shown: {reason}")]
    Unshown {
        /// The variant.
        variant: String,
        /// The layer.
        layer: LayerId,
        /// Why not.
        reason: &'static str,
    },
    /// The page would show something else than what the model computed.
    #[error(
        "{layer} with the cache {variant}: the {what} recomputed from its rows differs from the model's by {error:.1e}, and \
         {allowed:.0e} is allowed; with weights in f16 or bf16 set model.weights=f32, otherwise please report this"
    )]
    Differs {
        /// The variant.
        variant: String,
        /// The layer.
        layer: LayerId,
        /// What was compared.
        what: &'static str,
        /// The greatest absolute difference.
        error: f64,
        /// The most that is accepted.
        allowed: f64,
    },
    /// From loading or running the model.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// From filling in the page.
    #[error("the page could not be written: {0}")]
    Template(#[from] minijinja::Error),
    /// From writing the data down.
    #[error("the data of the page could not be written: {0}")]
    Json(#[from] serde_json::Error),
}
