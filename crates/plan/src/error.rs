//! What can go wrong before there is a plan.

use kvlab_config::ConfigErrors;
use kvlab_engine::EngineError;
use std::path::PathBuf;
use thiserror::Error;

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// A model file, or `--set`, with problems.
    #[error(transparent)]
    Config(Box<ConfigErrors>),
    /// Nothing that a plan can be made of.
    #[error("{}: {problem}", path.display())]
    NotAModel {
        /// What was named.
        path: PathBuf,
        /// What is the matter, and what to give.
        problem: String,
    },
    /// A preset or a price table with something wrong.
    #[error("{}: {problem}", path.display())]
    Preset {
        /// The file.
        path: PathBuf,
        /// What is the matter.
        problem: String,
    },
    /// A name that nothing has.
    #[error("there is no {kind} {name:?}; known are {known}, or give a file {example}")]
    Unknown {
        /// What was looked for: `device`, `price table`.
        kind: &'static str,
        /// As it was given.
        name: String,
        /// All that are known.
        known: String,
        /// What a file of one's own would be.
        example: &'static str,
    },
    /// A request that cannot be answered.
    #[error("{0}")]
    Request(String),
    /// From the engine: model, device, cache.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<ConfigErrors> for PlanError {
    fn from(errors: ConfigErrors) -> Self {
        Self::Config(Box::new(errors))
    }
}

impl From<kvlab_weights::WeightsError> for PlanError {
    fn from(error: kvlab_weights::WeightsError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<kvlab_model::ModelError> for PlanError {
    fn from(error: kvlab_model::ModelError) -> Self {
        Self::Engine(error.into())
    }
}
