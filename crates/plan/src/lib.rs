//! What a cache will cost, before anything runs: bytes, requests, times and prices.
//!
//! A [`Subject`] is a model by its config or header alone; [`plan`] answers a [`Question`] about it. Every byte of a cache comes
//! from [`kvlab_core::CacheSpec`], through the planner that builds caches: what is planned is what would be allocated.
//! Times are a roofline ([`Times`], [`work`]): the least that a device can take. Prices are a table ([`Prices`]).
//!
//! # Why this shape
//! A formula of its own for each variant, as calculators on the web have it, drifts away from what is allocated: scales, zero
//! points, windows and pages are forgotten. So there is none here; what a test compares with is written out in the test.
//!
//! # What it does not do
//! It loads no weights and runs no model. It knows one device at a time: no tensor or pipeline parallelism, no offloading. It knows
//! nothing of activations, workspaces and drivers: keep some memory for them ([`Question::reserve`]).

mod answer;
mod caches;
mod cells;
mod device;
mod error;
mod fit;
mod plan;
mod preset;
mod price;
pub mod show;
mod subject;
mod weights;
pub mod work;

/// The measurement behind [`Device::this`], for whoever wants to know what share of a machine was used.
pub mod probe {
    pub use kvlab_cpu::{Probe, probe};
}

pub use answer::{Against, Cache, Cell, Chosen, Facts, Model, Outcome, Plan, Times, Weights};
pub use device::{DEVICES, Device, Tflops};
pub use error::PlanError;
pub use fit::{Fit, Memory};
pub use plan::{Question, plan};
pub use price::{Conversation, Cost, PRICES, PerMillion, Prices, Tokens};
pub use subject::Subject;
pub use weights::{Parameters, Precision, Stored};

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;
