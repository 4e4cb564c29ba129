//! From a config to a running model: device, weights, cache, tokenizer, generation.
//!
//! The one crate that knows every variant ([`registry`]). [`Engine`] holds a model and one cache; a [`Pool`]
//! builds engines that share weights, so that one set of weights can be run through every cache it can take.
//!
//! # What it does not do
//! No experiments and no reports (`kvlab-lab`), no server, no scheduler that admits requests while others run.

mod batch;
pub mod combinations;
mod conversation;
mod device;
mod engine;
mod error;
mod generate;
mod hub;
mod layers;
mod measure;
mod plan;
mod pool;
pub mod registry;
mod samples;
mod saved;
mod score;
pub mod text;

pub use conversation::Conversation;
pub use device::{OpenDevice, cpu_name, devices};
pub use engine::Engine;
pub use error::EngineError;
pub use generate::{Event, Finish, Generation, Request};
pub use hub::fetch_config as hub_config;
pub use layers::{LayerDistance, Trace};
pub use measure::{Filled, Measured, Work};
pub use plan::{CachePlan, free_memory};
pub use pool::{Origin, Pool, Progress};
pub use samples::Samples;
