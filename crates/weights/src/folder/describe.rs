//! What a Hugging Face folder says beside its weights: the tokens that end a text, and the chat template.

use std::path::Path;

use serde_json::{Map, Value};

use super::json;
use crate::WeightsError;

/// `eos_token_id` of `config.json` and of `generation_config.json`, each id once.
pub(super) fn end_tokens(folder: &Path, config: &Map<String, Value>) -> Result<Vec<u32>, WeightsError> {
    let mut ends = Vec::new();
    collect(&folder.join("config.json"), config, &mut ends)?;
    let path = folder.join("generation_config.json");
    if let Some(generation) = json::object_if_there(&path)? {
        collect(&path, &generation, &mut ends)?;
    }
    Ok(ends)
}

fn collect(path: &Path, object: &Map<String, Value>, ends: &mut Vec<u32>) -> Result<(), WeightsError> {
    let ids: &[Value] = match object.get("eos_token_id") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(ids)) => ids,
        Some(id) => std::slice::from_ref(id),
    };
    for id in ids {
        let token = id.as_u64().and_then(|id| u32::try_from(id).ok());
        let token = token.ok_or_else(|| {
            json::bad(
                path,
                format!("eos_token_id: {id} is not a token id; it must be a whole number or a list of them"),
            )
        })?;
        if !ends.contains(&token) {
            ends.push(token);
        }
    }
    Ok(())
}

/// `chat_template.jinja`, else `chat_template` of `tokenizer_config.json`.
pub(super) fn chat_template(folder: &Path) -> Result<Option<String>, WeightsError> {
    let file = folder.join("chat_template.jinja");
    if file.is_file() {
        let bytes = json::read(&file)?;
        let text = String::from_utf8(bytes).map_err(|e| json::bad(&file, e.to_string()))?;
        return Ok(Some(text));
    }
    let path = folder.join("tokenizer_config.json");
    let Some(config) = json::object_if_there(&path)? else {
        return Ok(None);
    };
    match config.get("chat_template") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(named)) => {
            let text = |entry: &Value| Some(entry.get("template")?.as_str()?.to_owned());
            let default = named.iter().find(|e| e.get("name") == Some(&"default".into()));
            Ok(default.or(named.first()).and_then(text))
        }
        Some(_) => Err(json::bad(
            &path,
            "chat_template must be a string or a list of {name, template}".into(),
        )),
    }
}
