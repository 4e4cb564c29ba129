//! The TOML schema of model files and experiment files, and the check that reports every problem of a file at once.
//!
//! A model file decides everything about one load: weights, cache, device. An experiment file names a base model file, a
//! workload and the cells to compare. Both become plain data here ([`ModelConfig`], [`Experiment`]); nothing is opened but the
//! TOML files themselves.
//!
//! # Why this shape
//!
//! `serde` stops at the first problem of a file, so a person with three mistakes runs three times. Here the text becomes a
//! small tree whose every node knows where it was written (a file and bytes, or a `--set` argument); overrides edit that tree;
//! one reader walks it and collects problems instead of returning. What was turned down: `#[serde(deny_unknown_fields)]` with
//! `Spanned` fields, because it can neither go on after an error nor say "this key has no effect with variant `gqa`".
//!
//! The crate does not know which variants, layouts and codecs exist. The engine's registry says so in [`Known`], with the
//! option keys each one takes; a new variant needs no change here. An option that this crate has no field for arrives in
//! `options`, unchecked, for the variant itself to read.
//!
//! # What it does not do
//!
//! It loads no weights and checks no `[model.geometry]` (the model crate does), looks at no device, and does not test whether
//! the files that a config names exist.

mod backend;
mod cache;
mod capacity;
mod device;
mod document;
mod edit;
mod experiment;
mod generate;
mod known;
mod model_file;
mod model_source;
mod nearest;
mod options;
mod problem;
mod section;
mod source;

pub use backend::{BackendConfig, MatmulPrecision};
pub use cache::{Axis, CacheConfig, CodecSpec, LayerOverride};
pub use capacity::{Capacity, CapacityError};
pub use device::{Device, DeviceError};
pub use experiment::{
    Budget, Cell, ConversationWorkload, Experiment, Fit, Measure, MixWorkload, RecallKind, RecallStyle, RecallTask,
    ReportConfig, Workload, WorkloadKind,
};
pub use generate::GenerateConfig;
pub use known::{CodecInfo, Known, LayoutInfo, VariantInfo};
pub use model_file::ModelConfig;
pub use model_source::{ModelOrigin, ModelSource, Tokenizer, Weights};
pub use problem::{ConfigErrors, Problem};
pub use toml::ser::Error as ToTomlError;

/// The version of the schema that this crate reads and writes.
pub const SCHEMA: u32 = 1;
