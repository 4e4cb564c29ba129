//! What the GGUF converter did to each tensor, said as a [`Source`] that undoes it.

use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};

use super::names::{self, InLayer};
use super::table::RawTensor;
use crate::source::{Entry, Source};
use crate::{TensorInfo, WeightsError};

/// A model with more experts than this in one layer is taken for a damaged file.
const MAX_EXPERTS: usize = 4096;
/// A GGUF model is one file.
const FILE: usize = 0;

/// Every tensor, by its Hugging Face name and in the Hugging Face layout, in the order of the file.
pub(super) fn entries(
    path: &Path,
    architecture: &str,
    config: &Map<String, Value>,
    tensors: &[RawTensor<'_>],
) -> Result<Vec<Entry>, WeightsError> {
    let model = Model {
        path,
        architecture,
        config,
        tensors,
    };
    let mut entries = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        model.push(tensor, &mut entries)?;
    }
    Ok(entries)
}

struct Model<'a> {
    path: &'a Path,
    architecture: &'a str,
    config: &'a Map<String, Value>,
    tensors: &'a [RawTensor<'a>],
}

impl Model<'_> {
    fn push(&self, tensor: &RawTensor<'_>, entries: &mut Vec<Entry>) -> Result<(), WeightsError> {
        if let Some(place) = names::in_layer(tensor.name)
            && self.architecture == "deepseek2"
        {
            if place.part.ends_with("_exps") && place.suffix == "weight" {
                return self.push_experts(tensor, &place, entries);
            }
            if matches!(place.part, "attn_k_b" | "attn_v_b") && !self.has_whole_kv_b(&place) {
                // The key part brings the value part along.
                if place.part == "attn_k_b" {
                    entries.push(self.joined_kv_b(tensor, &place)?);
                } else {
                    self.partner(tensor, &place, "attn_k_b")?;
                }
                return Ok(());
            }
        }
        let name = names::hugging_face(self.architecture, tensor.name);
        let name = name.unwrap_or_else(|| tensor.name.to_owned());
        let (shape, source) = self.source(tensor)?;
        entries.push(entry(tensor, name, shape, source));
        Ok(())
    }

    fn source(&self, tensor: &RawTensor<'_>) -> Result<(Vec<usize>, Source), WeightsError> {
        let (file, range) = (FILE, tensor.range.clone());
        let shape = tensor.shape.clone();
        let part = names::in_layer(tensor.name).map_or("", |place| place.part);
        let source = match (self.architecture, part) {
            ("llama", "attn_q" | "attn_k") => {
                let key = if part == "attn_q" {
                    "num_attention_heads"
                } else {
                    "num_key_value_heads"
                };
                let heads = self.size(key)?;
                let rows = shape.first().copied().unwrap_or(0);
                if !heads.checked_mul(2).is_some_and(|n| rows.is_multiple_of(n)) {
                    return Err(self.bad(tensor, format!("{rows} rows are not {heads} heads of an even size")));
                }
                Source::InterleavedRows { file, range, heads }
            }
            ("gemma2" | "gemma3", _) if tensor.name.ends_with("norm.weight") => Source::PlusOne { file, range },
            ("gpt2", "attn_qkv" | "attn_output" | "ffn_up" | "ffn_down") if shape.len() == 2 => {
                let transposed = vec![shape[1], shape[0]];
                return Ok((transposed, Source::Transposed { file, range }));
            }
            _ => Source::Plain { file, range },
        };
        Ok((shape, source))
    }

    /// One entry per expert: they are stacked in the outermost dimension.
    fn push_experts(
        &self,
        tensor: &RawTensor<'_>,
        place: &InLayer<'_>,
        entries: &mut Vec<Entry>,
    ) -> Result<(), WeightsError> {
        let experts = self.size("n_routed_experts")?;
        let [stacked, rows, columns] = tensor.shape[..] else {
            return Err(self.bad(
                tensor,
                format!("shape {:?}; it must have three dimensions", tensor.shape),
            ));
        };
        if stacked != experts || experts > MAX_EXPERTS {
            return Err(self.bad(tensor, format!("{stacked} experts, and expert_count is {experts}")));
        }
        // Whole rows, since a row is whole blocks.
        let size = tensor.range.len() / experts;
        for expert in 0..experts {
            let Some(name) = names::expert(place, expert) else {
                let plain = Source::Plain {
                    file: FILE,
                    range: tensor.range.clone(),
                };
                let shape = tensor.shape.clone();
                entries.push(entry(tensor, tensor.name.to_owned(), shape, plain));
                return Ok(());
            };
            let start = tensor.range.start + expert * size;
            let source = Source::Plain {
                file: FILE,
                range: start..start + size,
            };
            entries.push(entry(tensor, name, vec![rows, columns], source));
        }
        Ok(())
    }

    fn has_whole_kv_b(&self, place: &InLayer<'_>) -> bool {
        let whole = format!("blk.{}.attn_kv_b.{}", place.layer, place.suffix);
        self.tensors.iter().any(|t| t.name == whole)
    }

    /// The other half of a `kv_b_proj` in two parts.
    fn partner(&self, tensor: &RawTensor<'_>, place: &InLayer<'_>, part: &str) -> Result<&RawTensor<'_>, WeightsError> {
        let name = format!("blk.{}.{part}.{}", place.layer, place.suffix);
        let found = self.tensors.iter().find(|t| t.name == name);
        found.ok_or_else(|| self.bad(tensor, format!("there is no {name} beside it")))
    }

    fn joined_kv_b(&self, key: &RawTensor<'_>, place: &InLayer<'_>) -> Result<Entry, WeightsError> {
        let value = self.partner(key, place, "attn_v_b")?;
        let heads = self.size("num_attention_heads")?;
        let latent = self.size("kv_lora_rank")?;
        let nope = self.size("qk_nope_head_dim")?;
        let value_dim = self.size("v_head_dim")?;
        for (tensor, want) in [(key, [heads, latent, nope]), (value, [heads, value_dim, latent])] {
            if tensor.shape != want {
                return Err(self.bad(tensor, format!("shape {:?}; it must be {want:?}", tensor.shape)));
            }
        }
        let range = |t: &RawTensor<'_>| -> Range<usize> { t.range.clone() };
        let source = Source::SplitKvB {
            file: FILE,
            key: range(key),
            value: range(value),
            value_dtype: value.dtype,
            heads,
            nope,
        };
        let name = format!("model.layers.{}.self_attn.kv_b_proj.{}", place.layer, place.suffix);
        let shape = vec![heads * (nope + value_dim), latent];
        Ok(entry(key, name, shape, source))
    }

    /// A number of the translated config.
    fn size(&self, key: &str) -> Result<usize, WeightsError> {
        let size = self.config.get(key).and_then(Value::as_u64);
        size.and_then(|size| usize::try_from(size).ok())
            .filter(|size| *size > 0)
            .ok_or_else(|| WeightsError::MissingKey {
                path: self.path.to_owned(),
                key: key.to_owned(),
            })
    }

    fn bad(&self, tensor: &RawTensor<'_>, problem: String) -> WeightsError {
        WeightsError::BadTensor {
            path: self.path.to_owned(),
            tensor: tensor.name.to_owned(),
            problem,
        }
    }
}

fn entry(tensor: &RawTensor<'_>, name: String, shape: Vec<usize>, source: Source) -> Entry {
    Entry {
        info: TensorInfo {
            name,
            shape,
            dtype: tensor.dtype,
        },
        stored_as: tensor.name.to_owned(),
        source,
    }
}
