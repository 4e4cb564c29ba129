//! A conversation in a file: its tokens, and what the cache stores of them, bit for bit.
//!
//! It is a safetensors file. Every plane is a tensor (`layer.3.key.0`), with the positions of its layer's rows
//! (`layer.3.positions`, u64) and all tokens (`tokens`, u32) beside them. The metadata has what decides whether the
//! rows mean the same elsewhere: the version of the format, the model, the spec of the cache.

use crate::{Conversation, Engine, EngineError};
use burn::tensor::{DType, TensorData};
use kvlab_core::{CacheError, CacheSpec, Saved, SavedLayer, SavedPlane, TokenId};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::path::Path;

/// What the metadata calls this kind of file, and its version.
const FORMAT: &str = "kvlab sequence, version 1";

/// Number formats that a file can have.
const DTYPES: [(DType, Dtype); 12] = [
    (DType::F64, Dtype::F64),
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::I64, Dtype::I64),
    (DType::I32, Dtype::I32),
    (DType::I16, Dtype::I16),
    (DType::I8, Dtype::I8),
    (DType::U64, Dtype::U64),
    (DType::U32, Dtype::U32),
    (DType::U16, Dtype::U16),
    (DType::U8, Dtype::U8),
];

impl Engine {
    /// Writes a conversation to a file. One that is there is replaced, once the new one is complete.
    ///
    /// # Errors
    /// [`EngineError::Saved`] where nothing is stored yet or the file cannot be written,
    /// [`CacheError::Unsupported`] by a cache that does not hand out its rows.
    pub fn save(&self, conversation: &Conversation, path: &Path) -> Result<(), EngineError> {
        let refused = |reason: String| refusal(path, reason);
        let seq = conversation
            .seq
            .ok_or_else(|| refused("there is nothing to save yet".into()))?;
        let saved = self.cache.save(seq)?;
        let mut planes = Vec::new();
        for layer in &saved.layers {
            let names = layer.planes.iter().map(|plane| plane.name.as_str());
            planes.push((layer.layer, names.collect::<Vec<_>>()));
        }
        let metadata = HashMap::from([
            ("format".to_owned(), FORMAT.to_owned()),
            ("model".to_owned(), self.identity.clone()),
            ("model_name".to_owned(), self.config.name.clone()),
            ("length".to_owned(), saved.len.to_string()),
            ("spec".to_owned(), json(&saved.spec).map_err(refused)?),
            ("planes".to_owned(), json(&planes).map_err(refused)?),
            ("messages".to_owned(), json(&conversation.messages).map_err(refused)?),
        ]);
        let tensors = tensors(conversation.tokens(), &saved).map_err(refused)?;
        write(path, &tensors, metadata).map_err(refused)
    }

    /// Reads a conversation that was saved, also by another process, into a new sequence of the cache.
    ///
    /// # Errors
    /// [`EngineError::Saved`] for a file that is damaged, or of another model or another kind of cache;
    /// [`CacheError::NoRoom`], [`CacheError::Unsupported`]. Then nothing changed.
    pub fn load_conversation(&mut self, path: &Path) -> Result<Conversation, EngineError> {
        let refused = |reason: String| refusal(path, reason);
        // Before a large file is read in vain.
        self.cache
            .capabilities()
            .save
            .map_err(|reason| CacheError::Unsupported {
                what: "restoring a sequence".into(),
                reason,
            })?;
        let bytes = read(path).map_err(refused)?;
        let file = File::parse(&bytes).map_err(refused)?;
        let (name, model) = (file.text("model_name"), file.text("model"));
        let (name, model) = (name.map_err(refused)?, model.map_err(refused)?);
        if model != self.identity {
            return Err(refused(format!(
                "it is of the model {name} ({}), and this is {} ({}): other weights, another config, or weights in \
                 another number format",
                short(model),
                self.config.name,
                short(&self.identity)
            )));
        }
        let (tokens, saved) = file.contents().map_err(refused)?;
        self.check_tokens(&tokens).map_err(|error| refused(error.to_string()))?;
        let stored = tokens.get(..saved.len).ok_or_else(|| {
            refused(format!(
                "damaged: it has {} tokens, and rows of {}",
                tokens.len(),
                saved.len
            ))
        })?;
        let messages = file.read("messages").map_err(refused)?;
        let seq = self.cache.restore(&saved, stored).map_err(|error| match error {
            CacheError::Saved(reason) => refused(format!("its rows do not fit this cache: {reason}")),
            other => other.into(),
        })?;
        Ok(Conversation {
            seq: Some(seq),
            tokens,
            messages,
        })
    }
}

fn refusal(path: &Path, reason: String) -> EngineError {
    EngineError::Saved {
        path: path.to_owned(),
        reason,
    }
}

/// The start of a hash, for people.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

fn json(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// What is written, by name.
fn tensors(tokens: &[TokenId], saved: &Saved) -> Result<Vec<(String, TensorData)>, String> {
    let mut tensors = vec![("tokens".to_owned(), TensorData::new(tokens.to_vec(), [tokens.len()]))];
    for layer in &saved.layers {
        let positions: Vec<u64> = layer.positions.iter().map(|&position| position as u64).collect();
        let rows = positions.len();
        tensors.push((positions_of(layer), TensorData::new(positions, [rows])));
        let planes = layer.planes.iter();
        tensors.extend(planes.map(|plane| (plane_of(layer, &plane.name), plane.data.clone())));
    }
    Ok(tensors)
}

fn positions_of(layer: &SavedLayer) -> String {
    format!("layer.{}.positions", layer.layer.0)
}

fn plane_of(layer: &SavedLayer, plane: &str) -> String {
    format!("layer.{}.{plane}", layer.layer.0)
}

/// Writes to a file beside it, which takes its place when it is complete.
fn write(path: &Path, tensors: &[(String, TensorData)], metadata: HashMap<String, String>) -> Result<(), String> {
    let views = tensors.iter().map(|(name, data)| {
        let known = DTYPES.iter().find(|(ours, _)| *ours == data.dtype());
        let (_, dtype) = known.ok_or_else(|| format!("{name} has numbers of {}", data.dtype().name()))?;
        let view = TensorView::new(*dtype, data.shape().to_vec(), data.as_bytes());
        Ok((name.as_str(), view.map_err(|error| format!("{name}: {error}"))?))
    });
    let views = views.collect::<Result<Vec<_>, String>>()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")));
    let file = file.map_err(|error| format!("cannot be written: {error}"))?;
    safetensors::serialize_to_file(views, Some(metadata), file.path()).map_err(|error| error.to_string())?;
    let synced = file.as_file().sync_all();
    synced.map_err(|error| format!("cannot be written: {error}"))?;
    let persisted = file.persist(path);
    persisted.map_err(|error| format!("cannot be written: {}", error.error))?;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| format!("cannot be read: {error}");
    if !std::fs::metadata(path).map_err(wrong)?.is_file() {
        return Err("is not a file".into());
    }
    std::fs::read(path).map_err(wrong)
}

/// A file that was read, its header understood.
struct File<'a> {
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

impl<'a> File<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let damaged = |error| format!("damaged or cut short, or no saved sequence: {error}");
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        match metadata.get("format").map(String::as_str) {
            Some(FORMAT) => {}
            Some(other) => return Err(format!("its format is {other:?}, and this kvlab reads {FORMAT:?}")),
            None => return Err("is a safetensors file, and holds no saved sequence".into()),
        }
        Ok(Self {
            tensors: SafeTensors::deserialize(bytes).map_err(damaged)?,
            metadata,
        })
    }

    fn text(&self, key: &str) -> Result<&str, String> {
        let text = self.metadata.get(key).map(String::as_str);
        text.ok_or_else(|| format!("damaged: its header has no {key:?}"))
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Result<T, String> {
        serde_json::from_str(self.text(key)?).map_err(|error| format!("damaged: {key:?} of its header: {error}"))
    }

    /// The tokens, and the rows.
    fn contents(&self) -> Result<(Vec<TokenId>, Saved), String> {
        let tokens = self.list("tokens", Dtype::U32, |word: [u8; 4]| u32::from_le_bytes(word))?;
        let spec: CacheSpec = self.read("spec")?;
        let planes: Vec<(_, Vec<String>)> = self.read("planes")?;
        let mut layers = Vec::new();
        for (layer, names) in planes {
            let mut saved = SavedLayer {
                layer,
                positions: Vec::new(),
                planes: Vec::new(),
            };
            let positions = self.list(&positions_of(&saved), Dtype::U64, u64::from_le_bytes)?;
            let positions = positions.into_iter().map(usize::try_from).collect::<Result<_, _>>();
            saved.positions = positions.map_err(|_| format!("damaged: the positions of {layer}"))?;
            for name in names {
                let data = self.tensor(&plane_of(&saved, &name))?;
                saved.planes.push(SavedPlane { name, data });
            }
            layers.push(saved);
        }
        let len = self.read("length")?;
        Ok((tokens, Saved { spec, len, layers }))
    }

    fn view(&self, name: &str) -> Result<TensorView<'a>, String> {
        let found = self.tensors.tensor(name);
        found.map_err(|_| format!("damaged: the tensor {name:?} is missing"))
    }

    fn tensor(&self, name: &str) -> Result<TensorData, String> {
        let view = self.view(name)?;
        let known = DTYPES.iter().find(|(_, theirs)| *theirs == view.dtype());
        let (dtype, _) = known.ok_or_else(|| format!("damaged: {name} has numbers of {}", view.dtype()))?;
        let data = TensorData::try_from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), *dtype);
        data.map_err(|error| format!("damaged: {name}: {error:?}"))
    }

    /// A list of whole numbers of `N` bytes.
    fn list<const N: usize, T>(&self, name: &str, dtype: Dtype, number: fn([u8; N]) -> T) -> Result<Vec<T>, String> {
        let view = self.view(name)?;
        if view.dtype() != dtype || view.shape().len() != 1 {
            return Err(format!("damaged: {name} is {} {:?}", view.dtype(), view.shape()));
        }
        let (words, _) = view.data().as_chunks::<N>();
        Ok(words.iter().map(|&word| number(word)).collect())
    }
}
