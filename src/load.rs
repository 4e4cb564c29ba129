//! From the model file that a command names to an engine.

use crate::Model;
use crate::failure::Failure;
use crate::progress::Bar;
use kvlab_config::ModelConfig;
use kvlab_engine::{Engine, Pool, registry};

/// Reads and checks a model file.
pub fn config(model: &Model) -> Result<ModelConfig, Failure> {
    Ok(registry::with_known(|known| {
        ModelConfig::load(&model.file, &model.sets, known)
    })?)
}

/// Loads what it says, with a bar.
pub fn engine(config: &ModelConfig) -> Result<Engine, Failure> {
    let bar = Bar::new();
    let what = format!("loading {}", config.name);
    Ok(Pool::new().load(config, &mut |done, total| bar.at(&what, done, total))?)
}
