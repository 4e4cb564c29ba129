//! `[model]`: which weights, from where, in which format.

mod geometry;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use geometry::read_geometry;

use crate::section::{Field, Findings, Section};
use crate::source::Sources;

/// The model of a config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct ModelSource {
    /// Where the weights come from.
    pub origin: ModelOrigin,
    /// The number format in which the weights are held.
    pub weights: Weights,
    /// Allow tensors in the file that the model does not use.
    pub allow_unused: bool,
    /// Instead of the tokenizer that comes with the model.
    pub tokenizer: Option<Tokenizer>,
}

/// Where weights come from.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelOrigin {
    /// A `.gguf` file or a Hugging Face folder; absolute.
    Path(PathBuf),
    /// A Hugging Face repository, `owner/name`; written `hf:owner/name`.
    Hub(String),
    /// Random weights.
    Random {
        /// The keys of the Hugging Face `config.json`, not checked here.
        geometry: serde_json::Map<String, serde_json::Value>,
        /// Seed of the weights.
        seed: u64,
    },
}

/// The number format in which weights are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// As stored.
    #[default]
    Native,
    /// 32-bit floats.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// bfloat16.
    Bf16,
}

/// A tokenizer named by the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// One token per byte; written `bytes`.
    Bytes,
    /// A `tokenizer.json`; absolute.
    File(PathBuf),
}

const WEIGHTS: [(&str, Weights); 4] = [
    ("native", Weights::Native),
    ("f32", Weights::F32),
    ("f16", Weights::F16),
    ("bf16", Weights::Bf16),
];
const WEIGHTS_RESERVED: [&str; 2] = ["q8_0", "q4_0"];
const HUB: &str = "hf:";
const BYTES: &str = "bytes";

impl ModelSource {
    /// `None` when the origin is not clear, which is then a finding.
    pub(crate) fn read(mut section: Section<'_>, sources: &Sources, findings: &mut Findings) -> Option<Self> {
        let path = section.take("path");
        let geometry = section.take("geometry");
        let seed = section.take("seed");
        let allow_unused = section.take("allow_unused");
        let weights = section
            .take("weights")
            .and_then(|field| field.choice(&WEIGHTS, &WEIGHTS_RESERVED, findings));
        let tokenizer = section.take("tokenizer").and_then(|field| {
            let text = field.text(findings)?;
            Some(if text == BYTES {
                Tokenizer::Bytes
            } else {
                Tokenizer::File(sources.resolve(field.at(), text))
            })
        });
        let seed_value = seed.as_ref().and_then(|field| field.seed(findings));
        let allow_unused_value = allow_unused.as_ref().and_then(|field| field.boolean(findings));
        let origin = match (path, geometry) {
            (Some(path), Some(geometry)) => {
                findings.add(
                    geometry.key_at,
                    format!("`{}` and `{}` are both given", path.path, geometry.path),
                    Some("keep `path` for stored weights, or `geometry` for random ones".to_owned()),
                );
                None
            }
            (None, None) => {
                findings.add(
                    section.at(),
                    "the model is missing: neither `model.path` nor `[model.geometry]` is given".to_owned(),
                    Some("for example path = \"model.gguf\", a Hugging Face folder, or \"hf:owner/name\"".to_owned()),
                );
                None
            }
            (Some(path), None) => {
                if let Some(seed) = seed {
                    no_effect(
                        &seed,
                        "`model.path` brings its own weights; a seed belongs to `[model.geometry]`",
                        findings,
                    );
                }
                read_path(&path, sources, findings)
            }
            (None, Some(geometry)) => {
                if let Some(allow_unused) = allow_unused {
                    no_effect(
                        &allow_unused,
                        "random weights come from no file; it belongs to `model.path`",
                        findings,
                    );
                }
                let geometry = read_geometry(&geometry, findings);
                geometry.map(|geometry| ModelOrigin::Random {
                    geometry,
                    seed: seed_value.unwrap_or(0),
                })
            }
        };
        section.finish(findings);
        Some(Self {
            origin: origin?,
            weights: weights.unwrap_or_default(),
            allow_unused: allow_unused_value.unwrap_or(false),
            tokenizer,
        })
    }
}

fn no_effect(field: &Field<'_>, why: &str, findings: &mut Findings) {
    findings.add(
        field.key_at,
        format!("`{}` has no effect: {why}", field.path),
        Some("remove the key".to_owned()),
    );
}

fn read_path(field: &Field<'_>, sources: &Sources, findings: &mut Findings) -> Option<ModelOrigin> {
    let text = field.text(findings)?;
    let Some(repository) = text.strip_prefix(HUB) else {
        return Some(ModelOrigin::Path(sources.resolve(field.at(), text)));
    };
    if is_repository(repository) {
        return Some(ModelOrigin::Hub(repository.to_owned()));
    }
    let message = format!("`{}` is \"{text}\", which names no Hugging Face repository", field.path);
    findings.add(field.at(), message, Some("write \"hf:owner/name\"".to_owned()));
    None
}

fn is_repository(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    };
    text.split_once('/')
        .is_some_and(|(owner, name)| part(owner) && part(name))
}

/// The table as it stands in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    #[serde(default)]
    weights: Weights,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow_unused: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokenizer: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    geometry: Option<serde_json::Map<String, serde_json::Value>>,
}

impl From<ModelSource> for Written {
    fn from(model: ModelSource) -> Self {
        let tokenizer = model.tokenizer.map(|tokenizer| match tokenizer {
            Tokenizer::Bytes => PathBuf::from(BYTES),
            Tokenizer::File(path) => path,
        });
        let written = Self {
            path: None,
            weights: model.weights,
            seed: None,
            allow_unused: Some(model.allow_unused),
            tokenizer,
            geometry: None,
        };
        match model.origin {
            ModelOrigin::Path(path) => Self {
                path: Some(path),
                ..written
            },
            ModelOrigin::Hub(name) => Self {
                path: Some(PathBuf::from(format!("{HUB}{name}"))),
                ..written
            },
            ModelOrigin::Random { geometry, seed } => Self {
                geometry: Some(geometry),
                seed: Some(seed),
                allow_unused: None,
                ..written
            },
        }
    }
}

impl TryFrom<Written> for ModelSource {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let origin = match (written.path, written.geometry) {
            (Some(path), None) => match path.to_str().and_then(|path| path.strip_prefix(HUB)) {
                Some(name) => ModelOrigin::Hub(name.to_owned()),
                None => ModelOrigin::Path(path),
            },
            (None, Some(geometry)) => ModelOrigin::Random {
                geometry,
                seed: written.seed.unwrap_or(0),
            },
            _ => return Err("one of `path` and `geometry` must be given"),
        };
        let tokenizer = written.tokenizer.map(|path| match path == Path::new(BYTES) {
            true => Tokenizer::Bytes,
            false => Tokenizer::File(path),
        });
        Ok(Self {
            origin,
            weights: written.weights,
            allow_unused: written.allow_unused.unwrap_or(false),
            tokenizer,
        })
    }
}
