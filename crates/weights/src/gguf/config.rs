//! GGUF metadata, translated to the keys of a Hugging Face `config.json` (spelled as on the hub: `rope_theta`
//! and `rope_scaling`).
//!
//! What GGUF does not store is filled in as llama.cpp fills it in, since that is what the file was made for:
//! - `tie_word_embeddings` is true when there is no `output.weight`; `vocab_size` is the height of the
//!   embedding.
//! - gemma2, gemma3: `query_pre_attn_scalar` is `head_dim`, except in the 27B models (46 and 62 layers), where
//!   it is `hidden_size / num_attention_heads`.
//! - deepseek2: `mscale` is taken to be `mscale_all_dim`, and `deepseek_v3` is told from `deepseek_v2` by its
//!   sigmoid gate.
//! - qwen2, qwen3: no sliding window.
//!
//! A llama 3 frequency rule is not in the metadata at all: the factors are the tensor `rope_freqs.weight`.

mod deepseek;
mod gemma;
mod rope;

use serde_json::{Map, Value, json};

use super::metadata::Metadata;
use super::table::RawTensor;
use crate::WeightsError;

/// Architectures that can be read.
pub const ARCHITECTURES: [&str; 7] = ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "gpt2", "deepseek2"];

/// What the translations of all architectures look at.
struct Asked<'a> {
    metadata: &'a Metadata<'a>,
    architecture: &'a str,
    tensors: &'a [RawTensor<'a>],
}

impl Asked<'_> {
    /// The full name of a key of the architecture.
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn has(&self, tensor: &str) -> bool {
        self.tensors.iter().any(|t| t.name == tensor)
    }

    fn positive(&self, name: &str) -> Result<usize, WeightsError> {
        self.metadata.positive(&self.key(name))
    }

    fn positive_or_none(&self, name: &str) -> Result<Option<usize>, WeightsError> {
        self.metadata.positive_or_none(&self.key(name))
    }

    fn count(&self, name: &str) -> Result<Option<usize>, WeightsError> {
        self.metadata.count(&self.key(name))
    }

    fn number(&self, name: &str) -> Result<Option<f64>, WeightsError> {
        self.metadata.number(&self.key(name))
    }

    /// Layers. Each has a tensor at least, so that a number from a damaged file cannot make lists long.
    fn layers(&self) -> Result<usize, WeightsError> {
        let layers = self.positive("block_count")?;
        if layers > self.tensors.len() {
            return Err(self.metadata.bad(
                &self.key("block_count"),
                format!("{layers} layers in {} tensors", self.tensors.len()),
            ));
        }
        Ok(layers)
    }

    fn vocab_size(&self) -> Result<usize, WeightsError> {
        let name = "token_embd.weight";
        let embedding = self.tensors.iter().find(|t| t.name == name);
        let embedding = embedding.ok_or_else(|| WeightsError::NoTensor {
            path: self.metadata.path().to_owned(),
            tensor: name.to_owned(),
        })?;
        match embedding.shape[..] {
            [vocab, _] => Ok(vocab),
            _ => Err(WeightsError::BadTensor {
                path: self.metadata.path().to_owned(),
                tensor: name.to_owned(),
                problem: format!("shape {:?}; it must have two dimensions", embedding.shape),
            }),
        }
    }
}

/// The config of the model in that file.
pub(super) fn translate(
    architecture: &str,
    metadata: &Metadata<'_>,
    tensors: &[RawTensor<'_>],
) -> Result<Map<String, Value>, WeightsError> {
    let asked = Asked {
        metadata,
        architecture,
        tensors,
    };
    let mut config = match architecture {
        "llama" => llama(&asked)?,
        "qwen2" | "qwen3" => qwen(&asked)?,
        "gemma2" | "gemma3" => gemma::config(&asked)?,
        "gpt2" => gpt2(&asked)?,
        "deepseek2" => deepseek::config(&asked)?,
        other => {
            return Err(WeightsError::UnknownArchitecture {
                path: metadata.path().to_owned(),
                name: other.to_owned(),
                known: ARCHITECTURES.to_vec(),
            });
        }
    };
    let tied = !asked.has("output.weight");
    config.insert("tie_word_embeddings".into(), tied.into());
    config.insert("vocab_size".into(), asked.vocab_size()?.into());
    for (name, key) in [
        ("bos_token_id", "bos"),
        ("eos_token_id", "eos"),
        ("pad_token_id", "padding"),
    ] {
        let id = metadata.token(&format!("tokenizer.ggml.{key}_token_id"))?;
        config.insert(name.into(), json!(id.filter(|id| *id != u32::MAX)));
    }
    Ok(config)
}

/// The keys that every family with rotary embedding and RMS norms has.
fn decoder(asked: &Asked<'_>) -> Result<Map<String, Value>, WeightsError> {
    let heads = asked.positive("attention.head_count")?;
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| config.insert(key.to_owned(), value);
    put("hidden_size", asked.positive("embedding_length")?.into());
    put("num_hidden_layers", asked.layers()?.into());
    put("num_attention_heads", heads.into());
    put(
        "num_key_value_heads",
        asked
            .positive_or_none("attention.head_count_kv")?
            .unwrap_or(heads)
            .into(),
    );
    put("intermediate_size", asked.positive("feed_forward_length")?.into());
    put("max_position_embeddings", asked.positive("context_length")?.into());
    let eps = "attention.layer_norm_rms_epsilon";
    let eps = asked
        .number(eps)?
        .ok_or_else(|| asked.metadata.missing(&asked.key(eps)))?;
    put("rms_norm_eps", eps.into());
    let theta = asked.number("rope.freq_base")?.unwrap_or(10000.0);
    put("rope_theta", theta.into());
    put("rope_scaling", rope::scaling(asked)?);
    Ok(config)
}

/// `head_dim`, and `partial_rotary_factor` if not all of a head rotates.
fn heads(asked: &Asked<'_>, config: &mut Map<String, Value>) -> Result<usize, WeightsError> {
    let hidden = asked.positive("embedding_length")?;
    let heads = asked.positive("attention.head_count")?;
    let head_dim = match asked.positive_or_none("attention.key_length")? {
        Some(length) => length,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            return Err(asked.metadata.bad(
                &asked.key("attention.head_count"),
                format!(
                    "embedding_length {hidden} is no multiple of {heads} heads, and there is no attention.key_length"
                ),
            ));
        }
    };
    let value = asked.positive_or_none("attention.value_length")?;
    if let Some(value) = value.filter(|value| *value != head_dim) {
        return Err(asked.metadata.bad(
            &asked.key("attention.value_length"),
            format!("{value}, and the keys have {head_dim}; they must be equal"),
        ));
    }
    let rotary = asked.positive_or_none("rope.dimension_count")?;
    match rotary.unwrap_or(head_dim) {
        all if all == head_dim => {}
        part if part < head_dim && part.is_multiple_of(2) => {
            let factor = part as f64 / head_dim as f64;
            config.insert("partial_rotary_factor".into(), factor.into());
        }
        bad => {
            return Err(asked.metadata.bad(
                &asked.key("rope.dimension_count"),
                format!("{bad} of {head_dim} dimensions; it must be even and no more than a head has"),
            ));
        }
    }
    config.insert("head_dim".into(), head_dim.into());
    Ok(head_dim)
}

/// llama, and mistral: the same architecture with a window.
fn llama(asked: &Asked<'_>) -> Result<Map<String, Value>, WeightsError> {
    if let Some(experts) = asked.count("expert_count")?.filter(|experts| *experts > 0) {
        return Err(asked.metadata.bad(
            &asked.key("expert_count"),
            format!("{experts}; llama with experts (Mixtral) is not supported"),
        ));
    }
    let mut config = decoder(asked)?;
    heads(asked, &mut config)?;
    let window = asked.count("attention.sliding_window")?.filter(|w| *w > 0);
    let model_type = if window.is_some() { "mistral" } else { "llama" };
    config.insert("model_type".into(), model_type.into());
    config.insert("hidden_act".into(), "silu".into());
    config.insert("sliding_window".into(), json!(window));
    let bias = asked.has("blk.0.attn_q.bias");
    config.insert("attention_bias".into(), bias.into());
    config.insert("mlp_bias".into(), asked.has("blk.0.ffn_up.bias").into());
    Ok(config)
}

fn qwen(asked: &Asked<'_>) -> Result<Map<String, Value>, WeightsError> {
    let mut config = decoder(asked)?;
    heads(asked, &mut config)?;
    config.insert("model_type".into(), asked.architecture.into());
    config.insert("hidden_act".into(), "silu".into());
    config.insert("sliding_window".into(), Value::Null);
    config.insert("use_sliding_window".into(), false.into());
    if asked.architecture == "qwen3" {
        config.insert("attention_bias".into(), asked.has("blk.0.attn_q.bias").into());
    }
    Ok(config)
}

fn gpt2(asked: &Asked<'_>) -> Result<Map<String, Value>, WeightsError> {
    let hidden = asked.positive("embedding_length")?;
    let eps = asked.number("attention.layer_norm_epsilon")?.unwrap_or(1e-5);
    let config = json!({
        "model_type": "gpt2",
        "n_embd": hidden,
        "n_layer": asked.layers()?,
        "n_head": asked.positive("attention.head_count")?,
        "n_positions": asked.positive("context_length")?,
        "n_inner": asked.positive_or_none("feed_forward_length")?.unwrap_or(4 * hidden),
        "layer_norm_epsilon": eps,
        "activation_function": "gelu_new",
    });
    match config {
        Value::Object(config) => Ok(config),
        _ => Ok(Map::new()),
    }
}
