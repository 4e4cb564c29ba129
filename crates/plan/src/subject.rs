//! What is planned for: the geometry of a model, its cache as a file wants it, and its weights as a header lists them.

use crate::PlanError;
use crate::weights::{Precision, Stored};
use kvlab_config::{CacheConfig, ModelConfig, ModelOrigin, Weights};
use kvlab_engine::{hub_config, registry};
use kvlab_model::DecoderSpec;
use kvlab_weights::Checkpoint;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// No `config.json` of a model is larger.
const CONFIG_BYTES: u64 = 16 << 20;

/// Says of a config how its weights were packed. It does not change the geometry.
const QUANTISED: &str = "quantization_config";

/// A model as far as a plan needs it. No weight was read.
pub struct Subject {
    /// The name of the model file, or of the folder or file.
    pub name: String,
    /// Layers and their sizes.
    pub model: DecoderSpec,
    /// `[cache]` of the model file with its overrides; empty without one.
    pub cache: CacheConfig,
    /// The tensors that a header lists, where there was one.
    pub stored: Option<Stored>,
    /// The precision that the file declares for the weights, where they are not stored.
    pub declared: Option<Precision>,
    /// What a reader should know about where the figures come from.
    pub notes: Vec<String>,
}

impl Subject {
    /// Opens a model file (`.toml`), a Hugging Face folder or its `config.json`, a GGUF file, or `hf:owner/name` (of which only
    /// `config.json` is fetched). `sets` are `--set` arguments; what is not a model file takes those of `[cache]`.
    ///
    /// # Errors
    /// What is wrong with the file or the overrides, or a model that is not supported.
    pub fn open(model: &str, sets: &[String]) -> Result<Self, PlanError> {
        let path = Path::new(model);
        if path.extension().is_some_and(|end| end == "toml") {
            let config = registry::with_known(|known| ModelConfig::load(path, sets, known))?;
            let declared = match config.model.weights {
                Weights::Native => None,
                Weights::F32 => Some(Precision::Fp32),
                Weights::F16 | Weights::Bf16 => Some(Precision::Fp16),
            };
            let mut subject = Self::of_origin(&config.model.origin)?;
            if declared.is_some() {
                (subject.declared, subject.stored) = (declared, None);
            }
            return Ok(Self {
                name: config.name,
                cache: config.cache,
                ..subject
            });
        }
        let elsewhere = |set: &&String| {
            let key = set.split('=').next().unwrap_or_default().trim();
            key != "cache" && !key.starts_with("cache.")
        };
        if let Some(set) = sets.iter().find(elsewhere) {
            return Err(PlanError::Request(format!(
                "--set {set}: {model} is no model file (.toml), and only keys of `[cache]` can be set beside it, such as \
                 cache.variant=swa"
            )));
        }
        let origin = match model.strip_prefix("hf:") {
            Some(repository) => ModelOrigin::Hub(repository.to_owned()),
            None => ModelOrigin::Path(path.to_owned()),
        };
        let text = "schema = 1\nname = \"model\"\n[model]\npath = \"model.gguf\"\n";
        let overrides = registry::with_known(|known| ModelConfig::parse(text, "--set", Path::new("."), sets, known))?;
        Ok(Self {
            name: name(path),
            cache: overrides.cache,
            ..Self::of_origin(&origin)?
        })
    }

    fn of_origin(origin: &ModelOrigin) -> Result<Self, PlanError> {
        match origin {
            ModelOrigin::Random { geometry, .. } => Self::of_config(geometry.clone()),
            ModelOrigin::Hub(repository) => Self::of_file(&hub_config(repository)?),
            ModelOrigin::Path(path) if path.is_dir() && !has_weights(path) => {
                let mut subject = Self::of_file(&path.join("config.json"))?;
                subject
                    .notes
                    .push("the folder has no safetensors: parameters are counted from config.json".into());
                Ok(subject)
            }
            ModelOrigin::Path(path) if path.extension().is_some_and(|end| end == "json") => Self::of_file(path),
            ModelOrigin::Path(path) if !path.exists() => Err(PlanError::NotAModel {
                path: path.clone(),
                problem:
                    "not found; give a model file (.toml), a Hugging Face folder or its config.json, a .gguf file, or \
                          hf:owner/name"
                        .into(),
            }),
            ModelOrigin::Path(path) => {
                let checkpoint = Checkpoint::open(path)?;
                let mut subject = Self::of_config(checkpoint.config().clone())?;
                subject.stored = Stored::of(&checkpoint);
                if subject.stored.is_none() {
                    let note = "the header lists number formats of unknown size: weights are counted from the geometry";
                    subject.notes.push(note.into());
                }
                Ok(subject)
            }
        }
    }

    fn of_file(path: &Path) -> Result<Self, PlanError> {
        let bad = |problem: String| PlanError::NotAModel {
            path: path.to_owned(),
            problem,
        };
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(CONFIG_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|error| bad(format!("{error}; give a Hugging Face folder or its config.json")))?;
        if bytes.len() as u64 > CONFIG_BYTES {
            return Err(bad(format!(
                "larger than {CONFIG_BYTES} bytes, which no config.json is"
            )));
        }
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(config)) => Self::of_config(config),
            Ok(_) => Err(bad("must be a JSON object, as the config.json of a model is".into())),
            Err(error) => Err(bad(format!("not JSON: {error}"))),
        }
    }

    fn of_config(mut config: Map<String, Value>) -> Result<Self, PlanError> {
        let mut notes = Vec::new();
        if config.remove(QUANTISED).is_some_and(|value| !value.is_null()) {
            let note = format!(
                "{QUANTISED} is left out: parameters are counted from the geometry; say with --weights what they take"
            );
            notes.push(note);
        }
        let declared = ["dtype", "torch_dtype"]
            .iter()
            .find_map(|key| config.get(*key)?.as_str());
        let model = DecoderSpec::from_config(&config)?;
        plausible(&model)?;
        Ok(Self {
            name: String::new(),
            model,
            cache: CacheConfig::default(),
            stored: None,
            declared: declared.and_then(|text| match text.trim_start_matches("torch.") {
                "float32" => Some(Precision::Fp32),
                "float16" | "bfloat16" => Some(Precision::Fp16),
                _ => None,
            }),
            notes,
        })
    }
}

/// Sizes far beyond any model are refused: products of them would not fit into the numbers that count bytes.
fn plausible(model: &DecoderSpec) -> Result<(), PlanError> {
    const HEADS: usize = 1 << 16;
    const PARAMETERS: u64 = 1_000_000_000_000_000;
    for layer in 0..model.layers() {
        let shape = model.attention(layer);
        let latent = shape.latent.map_or(0, |latent| latent.rank.max(latent.rope));
        let most = [shape.query_heads, shape.kv_heads, shape.key, shape.value, latent]
            .into_iter()
            .max();
        if let Some(most) = most.filter(|most| *most > HEADS) {
            let what = format!(
                "layer {layer} has heads, or values of a head, of which there are {most}; at most {HEADS} can be planned"
            );
            return Err(PlanError::Request(what));
        }
    }
    let sizes = model.tensors().into_iter().map(|tensor| tensor.values() as u64);
    let parameters = sizes.fold(0_u64, u64::saturating_add);
    match parameters > PARAMETERS {
        true => Err(PlanError::Request(format!(
            "{parameters} parameters; at most {PARAMETERS} can be planned"
        ))),
        false => Ok(()),
    }
}

/// A `config.json` is named after its folder.
fn name(path: &Path) -> String {
    let named = match path.file_name().is_some_and(|name| name == "config.json") {
        true => path.parent().and_then(Path::file_name),
        false => path.file_name(),
    };
    named
        .or(path.file_name())
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

fn has_weights(folder: &Path) -> bool {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut ends = files.filter_map(|file| file.path().extension().map(|end| end.to_owned()));
    ends.any(|end| end == "safetensors")
}
