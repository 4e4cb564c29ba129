//! A Hugging Face folder: `config.json`, safetensors, and what stands beside them.

mod describe;
mod json;
mod shards;

use std::path::Path;

use crate::WeightsError;
use crate::checkpoint::{Parts, TokenizerSource};

pub(crate) fn open(path: &Path) -> Result<Parts, WeightsError> {
    let config_path = path.join("config.json");
    if !config_path.is_file() {
        return Err(no_config(path));
    }
    let described_by = json::read(&config_path)?;
    let config = json::object(&config_path, &described_by)?;
    let tensors = shards::open(path)?;
    let tokenizer = path.join("tokenizer.json");
    Ok(Parts {
        end_tokens: describe::end_tokens(path, &config)?,
        chat_template: describe::chat_template(path)?,
        tokenizer: if tokenizer.is_file() {
            TokenizerSource::Json(tokenizer)
        } else {
            TokenizerSource::None
        },
        config,
        files: tensors.files,
        entries: tensors.entries,
        described_by,
    })
}

fn no_config(path: &Path) -> WeightsError {
    let gguf = std::fs::read_dir(path).ok().and_then(|entries| {
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        names.sort();
        names
            .into_iter()
            .find(|name| name.extension().is_some_and(|ext| ext == "gguf"))
    });
    WeightsError::NotAModel {
        path: path.to_owned(),
        problem: match gguf {
            Some(file) => format!(
                "a folder without config.json; it holds a GGUF file, give that: {}",
                file.display()
            ),
            None => "a folder without config.json; a Hugging Face folder has config.json and model.safetensors".into(),
        },
    }
}
