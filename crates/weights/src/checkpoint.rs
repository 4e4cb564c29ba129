//! An opened model: one view of a Hugging Face folder and of a GGUF file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::mapped::MappedFile;
use crate::source::Entry;
use crate::{GgufTokenizer, HostTensor, TensorInfo, WeightsError, fingerprint, folder, gguf};

/// Where the tokenizer of a model is.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // one lives per model
pub enum TokenizerSource {
    /// A `tokenizer.json` beside the weights.
    Json(PathBuf),
    /// The vocabulary and merges in a GGUF file.
    Gguf(GgufTokenizer),
    /// The model brings none (a byte model, a random fixture).
    None,
}

/// An opened model. Its files are mapped, and a tensor is unpacked when it is asked for.
pub struct Checkpoint {
    path: PathBuf,
    parts: Parts,
    by_name: HashMap<String, usize>,
}

/// What a reader of one kind of model hands over.
pub(crate) struct Parts {
    pub(crate) config: Map<String, Value>,
    pub(crate) files: Vec<MappedFile>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) tokenizer: TokenizerSource,
    pub(crate) chat_template: Option<String>,
    pub(crate) end_tokens: Vec<u32>,
    /// What the fingerprint covers beside the weight files (`config.json`).
    pub(crate) described_by: Vec<u8>,
}

impl Checkpoint {
    /// Opens a model: a folder is a Hugging Face model, a file is GGUF.
    ///
    /// Reads and checks the whole header; no tensor data.
    ///
    /// # Errors
    /// Whatever is wrong with the path, the config or the header; see [`WeightsError`].
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let parts = if path.is_dir() {
            folder::open(path)?
        } else if !path.exists() {
            return Err(WeightsError::NotFound { path: path.to_owned() });
        } else if is_gguf(path)? {
            gguf::open(path)?
        } else {
            return Err(not_a_model(path));
        };
        let mut by_name = HashMap::with_capacity(parts.entries.len());
        for (index, entry) in parts.entries.iter().enumerate() {
            if by_name.insert(entry.info.name.clone(), index).is_some() {
                return Err(WeightsError::DuplicateTensor {
                    path: path.to_owned(),
                    tensor: entry.info.name.clone(),
                });
            }
        }
        Ok(Self {
            path: path.to_owned(),
            parts,
            by_name,
        })
    }

    /// The path it was opened from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The Hugging Face `config.json`, as it is. For a GGUF file, its metadata under the names that the
    /// `config.json` of that architecture has (see [`gguf::config`]).
    pub fn config(&self) -> &Map<String, Value> {
        &self.parts.config
    }

    /// Hugging Face names of all tensors, in the order of the file. A GGUF tensor whose Hugging Face name
    /// is not known keeps its own (`rope_freqs.weight`).
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.entries.iter().map(|entry| entry.info.name.as_str())
    }

    /// Name, shape and number format of a tensor, or `None` if the model has none of that name.
    pub fn info(&self, name: &str) -> Option<TensorInfo> {
        self.entry(name).map(|entry| entry.info.clone())
    }

    /// A tensor, unpacked to f32, in the Hugging Face layout.
    ///
    /// # Errors
    /// [`WeightsError::NoTensor`], [`WeightsError::UnsupportedDtype`], or
    /// [`WeightsError::BadTensor`] if the layout cannot be undone.
    pub fn f32(&self, name: &str) -> Result<HostTensor, WeightsError> {
        let entry = self.entry(name).ok_or_else(|| WeightsError::NoTensor {
            path: self.path.clone(),
            tensor: name.to_owned(),
        })?;
        entry.f32(&self.parts.files)
    }

    /// A tensor as it is packed in the file, in the Hugging Face layout, for weights that stay packed: rows
    /// of [`TensorInfo::dtype`] blocks, back to back. Q and K of a llama GGUF have their rows put in order
    /// (a copy); others borrow from the file. `None` if the name is unknown, or if the layout cannot be had
    /// without unpacking (norms of gemma, matrices of gpt2, a `kv_b_proj` in two parts).
    pub fn packed(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.entry(name)?.packed(&self.parts.files)
    }

    /// Takes a tensor's part of the file out of the process's memory, for those who have made something else of it: a
    /// model is not held twice while it is loaded. It can be read again.
    pub fn release(&self, name: &str) {
        if let Some(entry) = self.entry(name) {
            entry.release(&self.parts.files);
        }
    }

    /// Where the tokenizer is.
    pub fn tokenizer(&self) -> TokenizerSource {
        self.parts.tokenizer.clone()
    }

    /// The chat template (Jinja): `chat_template.jinja`, else `chat_template` of
    /// `tokenizer_config.json` (of a list, the one named `default`, else the first), or
    /// `tokenizer.chat_template` of a GGUF file.
    pub fn chat_template(&self) -> Option<String> {
        self.parts.chat_template.clone()
    }

    /// Token ids that end a text, each once: `eos_token_id` of `config.json` and of
    /// `generation_config.json`, or the `eos`, `eot` and `eom` ids of a GGUF file.
    pub fn end_tokens(&self) -> Vec<u32> {
        self.parts.end_tokens.clone()
    }

    /// A hash that changes when the model does: 64 hexadecimal digits of SHA-256.
    ///
    /// It covers the config, and of every weight file its size, its whole header and 64 samples of 4 KiB
    /// spread evenly over the tensor data. It does not read every byte, and neither file names nor paths
    /// enter it.
    pub fn fingerprint(&self) -> String {
        fingerprint::of(&self.parts.described_by, &self.parts.files)
    }

    /// Bytes of the weight files together.
    pub fn file_bytes(&self) -> u64 {
        let files = self.parts.files.iter();
        files.map(|file| file.bytes().len() as u64).sum()
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.parts.entries.get(*self.by_name.get(name)?)
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint")
            .field("path", &self.path)
            .field("tensors", &self.parts.entries.len())
            .finish_non_exhaustive()
    }
}

fn is_gguf(path: &Path) -> Result<bool, WeightsError> {
    if path.extension().is_some_and(|ext| ext == "gguf") {
        return Ok(true);
    }
    let io = |source| WeightsError::Io {
        path: path.to_owned(),
        source,
    };
    let mut start = Vec::with_capacity(4);
    let file = File::open(path).map_err(io)?;
    file.take(4).read_to_end(&mut start).map_err(io)?;
    Ok(start == gguf::MAGIC)
}

fn not_a_model(path: &Path) -> WeightsError {
    let problem = if path.extension().is_some_and(|ext| ext == "safetensors") {
        "a safetensors file alone is not a model; give the folder that holds it and its config.json"
    } else {
        "neither a folder nor a GGUF file (it does not begin with \"GGUF\")"
    };
    WeightsError::NotAModel {
        path: path.to_owned(),
        problem: problem.into(),
    }
}
