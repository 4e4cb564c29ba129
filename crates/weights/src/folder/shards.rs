//! The safetensors of a folder: one file, or shards that an index names.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::Dtype as Stored;
use serde_json::Value;

use super::json;
use crate::mapped::MappedFile;
use crate::source::{Entry, Source};
use crate::{Dtype, TensorInfo, WeightsError};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

pub(super) struct Tensors {
    pub(super) files: Vec<MappedFile>,
    pub(super) entries: Vec<Entry>,
}

pub(super) fn open(folder: &Path) -> Result<Tensors, WeightsError> {
    let mut tensors = Tensors {
        files: Vec::new(),
        entries: Vec::new(),
    };
    if folder.join(SINGLE).is_file() {
        add(&folder.join(SINGLE), &mut tensors)?;
    } else if folder.join(INDEX).is_file() {
        add_shards(folder, &mut tensors)?;
    } else {
        let pickle =
            folder.join("pytorch_model.bin").is_file() || folder.join("pytorch_model.bin.index.json").is_file();
        return Err(WeightsError::NotAModel {
            path: folder.to_owned(),
            problem: if pickle {
                format!("only pytorch_model.bin, which is not read (a pickle can run code); convert it to {SINGLE}")
            } else {
                format!("neither {SINGLE} nor {INDEX}; fetch the weights too")
            },
        });
    }
    Ok(tensors)
}

/// Only the shards that the index names, and of each only the tensors that it lists there.
fn add_shards(folder: &Path, tensors: &mut Tensors) -> Result<(), WeightsError> {
    let index = folder.join(INDEX);
    let object = json::object(&index, &json::read(&index)?)?;
    let Some(Value::Object(weight_map)) = object.get("weight_map") else {
        return Err(json::bad(&index, "has no object \"weight_map\"".into()));
    };
    let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (tensor, shard) in weight_map {
        let Some(shard) = shard.as_str() else {
            return Err(json::bad(&index, format!("weight_map[{tensor:?}] is not a file name")));
        };
        if shard.is_empty() || shard.contains(['/', '\\']) || shard.starts_with("..") {
            return Err(json::bad(
                &index,
                format!("weight_map[{tensor:?}] is {shard:?}, not a file name in this folder"),
            ));
        }
        shards.entry(shard).or_default().push(tensor);
    }
    for (shard, listed) in shards {
        let path = folder.join(shard);
        if !path.is_file() {
            return Err(WeightsError::MissingShard {
                index,
                shard: path,
                tensor: listed.first().copied().unwrap_or_default().to_owned(),
            });
        }
        let first = tensors.entries.len();
        add(&path, tensors)?;
        let found = tensors.entries.split_off(first);
        let mut by_name: BTreeMap<&str, &Entry> = BTreeMap::new();
        for entry in &found {
            by_name.insert(&entry.info.name, entry);
        }
        if let Some(absent) = listed.iter().find(|name| !by_name.contains_key(*name)) {
            return Err(WeightsError::NotInShard {
                index,
                shard: path,
                tensor: (*absent).to_owned(),
            });
        }
        let listed: std::collections::HashSet<&str> = listed.into_iter().collect();
        let kept = found
            .into_iter()
            .filter(|entry| listed.contains(entry.info.name.as_str()));
        tensors.entries.extend(kept);
    }
    Ok(())
}

fn add(path: &Path, tensors: &mut Tensors) -> Result<(), WeightsError> {
    let mut file = MappedFile::open(path)?;
    let bytes = file.bytes();
    let damaged = |problem: String| WeightsError::Damaged {
        path: path.to_owned(),
        offset: 0,
        problem: format!("{problem}; it is cut or no safetensors file: fetch it again"),
    };
    let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(e.to_string()))?;
    let data_start = 8 + header;
    let index = tensors.files.len();
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else {
            continue;
        };
        let (start, end) = info.data_offsets;
        if end > bytes.len() - data_start || start > end {
            return Err(damaged(format!(
                "tensor {name:?} has bytes {start} to {end} of {}",
                bytes.len() - data_start
            )));
        }
        let range = data_start + start..data_start + end;
        tensors.entries.push(Entry {
            info: TensorInfo {
                name: name.clone(),
                shape: info.shape.clone(),
                dtype: dtype(info.dtype),
            },
            stored_as: name,
            source: Source::Plain { file: index, range },
        });
    }
    file.data_start = data_start;
    tensors.files.push(file);
    Ok(())
}

/// Floats are read; anything else is listed by name and refused when it is asked for.
fn dtype(stored: Stored) -> Dtype {
    match stored {
        Stored::F64 => Dtype::F64,
        Stored::F32 => Dtype::F32,
        Stored::F16 => Dtype::F16,
        Stored::BF16 => Dtype::BF16,
        other => Dtype::Other(match other {
            Stored::BOOL => "BOOL",
            Stored::U8 => "U8",
            Stored::I8 => "I8",
            Stored::I16 => "I16",
            Stored::U16 => "U16",
            Stored::I32 => "I32",
            Stored::U32 => "U32",
            Stored::I64 => "I64",
            Stored::U64 => "U64",
            Stored::F8_E4M3 => "F8_E4M3",
            Stored::F8_E5M2 => "F8_E5M2",
            Stored::F8_E8M0 => "F8_E8M0",
            Stored::F4 => "F4",
            _ => "of an unknown format",
        }),
    }
}
