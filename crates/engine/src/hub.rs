//! Models from the Hugging Face hub, by the `hf-hub` crate and in its cache folder.

use crate::EngineError;
use hf_hub::api::sync::ApiBuilder;
use std::path::PathBuf;

const OPTIONAL: [&str; 4] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];

/// Downloads what a model needs (or finds it downloaded) and returns its folder.
///
/// # Errors
/// [`EngineError::Hub`]: no network, no such repository, or no safetensors in it.
pub fn fetch(repository: &str) -> Result<PathBuf, EngineError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| EngineError::Hub {
        repository: repository.to_owned(),
        reason: format!(
            "{what} could not be had ({error}); check the name and the network, or download the model and give its folder as model.path"
        ),
    };
    let api = ApiBuilder::from_env().with_progress(false).build();
    let repo = api.map_err(|e| failed("the hub", &e))?.model(repository.to_owned());
    let config = repo.get("config.json").map_err(|e| failed("config.json", &e))?;
    for name in OPTIONAL {
        // A model may lack any of these.
        let _ = repo.get(name);
    }
    if let Err(single) = repo.get("model.safetensors") {
        let index = repo.get("model.safetensors.index.json");
        let index = index.map_err(|_| failed("model.safetensors", &single))?;
        for shard in shards(&index).map_err(|e| failed("its index", &e))? {
            repo.get(&shard).map_err(|e| failed(&shard, &e))?;
        }
    }
    Ok(config.parent().map(PathBuf::from).unwrap_or_default())
}

/// Downloads the `config.json` of a model, and nothing else (or finds it downloaded).
///
/// # Errors
/// [`EngineError::Hub`]: no network, or no such repository.
pub fn fetch_config(repository: &str) -> Result<PathBuf, EngineError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| EngineError::Hub {
        repository: repository.to_owned(),
        reason: format!(
            "{what} could not be had ({error}); check the name and the network, or download config.json and give its path"
        ),
    };
    let api = ApiBuilder::from_env().with_progress(false).build();
    let repo = api.map_err(|e| failed("the hub", &e))?.model(repository.to_owned());
    repo.get("config.json").map_err(|e| failed("config.json", &e))
}

/// The files that an index names, each once.
fn shards(index: &std::path::Path) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(index).map_err(|e| e.to_string())?;
    let index: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let map = index["weight_map"].as_object().ok_or("it has no weight_map")?;
    let mut shards: Vec<String> = map.values().filter_map(|v| v.as_str().map(str::to_owned)).collect();
    shards.sort_unstable();
    shards.dedup();
    Ok(shards)
}
