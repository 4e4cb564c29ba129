//! A llama GGUF made from a Hugging Face checkpoint, for tests of the way back.

use std::path::Path;

use serde_json::Value;

use super::names;
use super::write::{Meta, Tensor, write_gguf};
use crate::{Checkpoint, Dtype, WeightsError};

/// Writes a `llama` or `mistral` checkpoint as a GGUF file of architecture `llama`, the way that converters
/// do: rows of Q and K permuted for interleaved rotary embedding, no `output.weight` if the embedding is
/// tied, and the factors of a llama 3 frequency rule as `rope_freqs.weight`. Without a tokenizer.
///
/// Matrices are stored as `dtype`; vectors, and matrices whose rows are not whole blocks, as F32.
///
/// # Errors
/// [`WeightsError::NotAModel`] for another family, and whatever reading and writing give.
pub fn write_llama(from: &Checkpoint, to: &Path, dtype: Dtype) -> Result<(), WeightsError> {
    let (metadata, tensors) = llama(from, dtype)?;
    write_gguf(to, &metadata, &tensors)
}

/// Metadata and tensors of a file.
pub type Written = (Vec<(String, Meta)>, Vec<Tensor>);

/// What [`write_llama`] writes.
///
/// # Errors
/// As [`write_llama`].
pub fn llama(from: &Checkpoint, dtype: Dtype) -> Result<Written, WeightsError> {
    let config = Config { from };
    let model_type = config.get("model_type").and_then(Value::as_str);
    if !matches!(model_type, Some("llama" | "mistral")) {
        return Err(config.refuse(format!("model_type {model_type:?} is not written as llama")));
    }
    let heads = config.size("num_attention_heads")?;
    let kv_heads = config.size("num_key_value_heads")?;
    let hidden = config.size("hidden_size")?;
    let head_dim = config.size("head_dim").unwrap_or(hidden / heads);
    let mut metadata = Vec::new();
    let mut put = |key: &str, value: Meta| metadata.push((key.to_owned(), value));
    put("general.architecture", "llama".into());
    for (key, size) in [
        ("block_count", config.size("num_hidden_layers")?),
        ("context_length", config.size("max_position_embeddings")?),
        ("embedding_length", hidden),
        ("feed_forward_length", config.size("intermediate_size")?),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv_heads),
        ("attention.key_length", head_dim),
        ("attention.value_length", head_dim),
        ("rope.dimension_count", head_dim),
        ("vocab_size", config.size("vocab_size")?),
    ] {
        put(&format!("llama.{key}"), Meta::U32(size as u32));
    }
    if let Ok(window) = config.size("sliding_window") {
        put("llama.attention.sliding_window", Meta::U32(window as u32));
    }
    let eps = config.number(&["rms_norm_eps"]).unwrap_or(1e-6);
    put("llama.attention.layer_norm_rms_epsilon", Meta::F32(eps as f32));
    let theta = config.rope_number("rope_theta").unwrap_or(10000.0);
    put("llama.rope.freq_base", Meta::F32(theta as f32));
    let mut tensors = Vec::new();
    match config.rope_type() {
        None | Some("default") => {}
        Some("llama3") => {
            let factors = config.llama3_factors(theta, head_dim)?;
            let shape = [factors.len()];
            tensors.push(Tensor::encode("rope_freqs.weight", &shape, Dtype::F32, &factors)?);
        }
        Some(rope @ ("linear" | "yarn")) => {
            put("llama.rope.scaling.type", rope.into());
            for (key, name) in [
                ("factor", "factor"),
                ("yarn_beta_fast", "beta_fast"),
                ("yarn_beta_slow", "beta_slow"),
            ] {
                if let Some(x) = config.rope_number(name) {
                    put(&format!("llama.rope.scaling.{key}"), Meta::F32(x as f32));
                }
            }
            if let Some(n) = config.rope_number("original_max_position_embeddings") {
                let key = "llama.rope.scaling.original_context_length";
                put(key, Meta::U32(n as u32));
            }
        }
        Some(other) => return Err(config.refuse(format!("rope_type {other:?}"))),
    }
    for name in from.names() {
        let gguf = names::llama_gguf(name);
        let gguf = gguf.ok_or_else(|| config.refuse(format!("no GGUF name for {name}")))?;
        if gguf == "output.weight" && config.get("tie_word_embeddings") == Some(&true.into()) {
            continue;
        }
        let tensor = from.f32(name)?;
        let rows = tensor.shape.first().copied().unwrap_or(1);
        let data = match names::in_layer(&gguf).map_or("", |place| place.part) {
            "attn_q" => interleave(&tensor.data, rows, heads),
            "attn_k" => interleave(&tensor.data, rows, kv_heads),
            _ => tensor.data,
        };
        let row = tensor.shape.last().copied().unwrap_or(0);
        let fits = tensor.shape.len() > 1 && dtype.bytes(row).is_some();
        let dtype = if fits { dtype } else { Dtype::F32 };
        tensors.push(Tensor::encode(&gguf, &tensor.shape, dtype, &data)?);
    }
    Ok((metadata, tensors))
}

/// Row `j * half + i` of a head becomes row `2 i + j`.
fn interleave(data: &[f32], rows: usize, heads: usize) -> Vec<f32> {
    let (width, size) = (data.len() / rows, rows / heads);
    let mut out = Vec::with_capacity(data.len());
    for head in 0..heads {
        for row in 0..size {
            let from = head * size + row % 2 * (size / 2) + row / 2;
            out.extend_from_slice(&data[from * width..(from + 1) * width]);
        }
    }
    out
}

/// A Hugging Face config in either spelling: `rope_parameters`, or `rope_theta` and `rope_scaling`.
struct Config<'a> {
    from: &'a Checkpoint,
}

impl Config<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.from.config().get(key).filter(|v| !v.is_null())
    }

    fn number(&self, path: &[&str]) -> Option<f64> {
        let (first, rest) = path.split_first()?;
        let found = rest.iter().try_fold(self.get(first)?, |v, key| v.get(key));
        found?.as_f64()
    }

    fn size(&self, key: &str) -> Result<usize, WeightsError> {
        let size = self.get(key).and_then(Value::as_u64);
        size.map(|size| size as usize)
            .ok_or_else(|| self.refuse(format!("config.json has no whole number {key:?}")))
    }

    fn rope_number(&self, key: &str) -> Option<f64> {
        self.number(&["rope_parameters", key])
            .or_else(|| self.number(&["rope_scaling", key]))
            .or_else(|| self.number(&[key]))
    }

    fn rope_type(&self) -> Option<&str> {
        let rope = self.get("rope_parameters").or_else(|| self.get("rope_scaling"))?;
        rope.get("rope_type").or_else(|| rope.get("type"))?.as_str()
    }

    /// By what each frequency is divided: 1 for short waves, `factor` for long ones, and between for those
    /// between (Llama 3.1).
    fn llama3_factors(&self, theta: f64, head_dim: usize) -> Result<Vec<f32>, WeightsError> {
        let number = |key: &str| {
            self.rope_number(key)
                .ok_or_else(|| self.refuse(format!("llama3 scaling without {key:?}")))
        };
        let (factor, original) = (number("factor")?, number("original_max_position_embeddings")?);
        let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
        let factor_of = |i: usize| {
            let wave = std::f64::consts::TAU * theta.powf(2.0 * i as f64 / head_dim as f64);
            let turns = original / wave;
            if turns > high {
                1.0
            } else if turns < low {
                factor
            } else {
                let smooth = (turns - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        };
        Ok((0..head_dim / 2).map(|i| factor_of(i) as f32).collect())
    }

    fn refuse(&self, problem: String) -> WeightsError {
        WeightsError::NotAModel {
            path: self.from.path().to_owned(),
            problem,
        }
    }
}
