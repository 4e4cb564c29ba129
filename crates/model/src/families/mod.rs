//! The registry of decoder families: a family is one file here and one line in [`FAMILIES`].

mod deepseek;
mod gemma;
mod gpt2;
mod gpt_bigcode;
mod gpt_neox;
mod gpt_oss;
mod llama;
mod minicpm;
mod names;
mod phi;
mod qwen;
mod shared;
mod smollm;

pub(crate) use names::LATENT;
pub use names::{AttentionNames, ExpertNames, ExpertStorage, Names};

use crate::config::Keys;
use crate::{DecoderSpec, ModelError};
use serde_json::{Map, Value};

/// Decoders that read the same config keys and have the same weight names.
pub(crate) struct Family {
    /// The `model_type` it answers to.
    pub(crate) model_type: &'static str,
    /// What its config means. Keys that change the model and that it does not look at are refused by the caller.
    pub(crate) spec: fn(&Keys<'_>) -> Result<DecoderSpec, ModelError>,
}

const fn family(model_type: &'static str, spec: fn(&Keys<'_>) -> Result<DecoderSpec, ModelError>) -> Family {
    Family { model_type, spec }
}

/// Every family.
pub(crate) const FAMILIES: &[Family] = &[
    family("llama", llama::llama),
    family("mistral", llama::mistral),
    family("gpt2", gpt2::gpt2),
    family("qwen2", qwen::qwen2),
    family("qwen3", qwen::qwen3),
    family("gemma2", gemma::gemma2),
    family("gemma3_text", gemma::gemma3),
    family("deepseek_v2", deepseek::deepseek_v2),
    family("deepseek_v3", deepseek::deepseek_v3),
    family("gpt_neox", gpt_neox::gpt_neox),
    family("gpt_bigcode", gpt_bigcode::gpt_bigcode),
    family("phi3", phi::phi3),
    family("smollm3", smollm::smollm3),
    family("minicpm3", minicpm::minicpm3),
    family("gpt_oss", gpt_oss::gpt_oss),
];

/// The `model_type`s that can be loaded.
pub fn supported_families() -> Vec<&'static str> {
    FAMILIES.iter().map(|f| f.model_type).collect()
}

impl DecoderSpec {
    /// The decoder that a Hugging Face `config.json` describes.
    ///
    /// # Errors
    /// [`ModelError::UnknownFamily`], [`ModelError::Config`] for a key that is missing or wrong,
    /// [`ModelError::Unsupported`] for one that changes the model in a way that is not built.
    pub fn from_config(config: &Map<String, Value>) -> Result<Self, ModelError> {
        let keys = Keys::new(config);
        let Some(model_type) = keys.text("model_type")? else {
            return Err(ModelError::config("model_type", "missing"));
        };
        let Some(family) = FAMILIES.iter().find(|f| f.model_type == model_type) else {
            return Err(ModelError::UnknownFamily {
                model_type: model_type.into(),
                supported: supported_families(),
            });
        };
        let spec = (family.spec)(&keys)?;
        keys.refuse_overlooked()?;
        Ok(spec)
    }
}
