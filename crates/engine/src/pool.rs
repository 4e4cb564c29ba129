//! Loads models, and keeps their weights for the next config that wants the same.

use crate::text::{ChatTemplate, GgufVocab, StopSet, Tokenizer};
use crate::{CachePlan, Engine, EngineError, OpenDevice, device, free_memory, hub, registry};
use burn::tensor::{DType, Device};
use kvlab_config::{MatmulPrecision, ModelConfig, ModelOrigin, ModelSource, Tokenizer as Named, Weights};
use kvlab_core::{Adaptation, Bytes};
use kvlab_model::{BuildOptions, Decoder, DecoderSpec, Precision};
use kvlab_weights::{Checkpoint, GgufTokenizer, TokenizerSource};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far a load is: tensors read, and their total.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// What a config's model is, before any weight is read.
pub struct Origin {
    checkpoint: Option<Checkpoint>,
    seed: u64,
    /// The decoder.
    pub spec: DecoderSpec,
    /// Identifies the model: a hash over its config, the file's header and samples of the weights, or the seed and the
    /// geometry.
    pub fingerprint: String,
    /// Bytes of the model's files; 0 for random weights.
    pub file_bytes: u64,
}

impl Origin {
    /// Opens the file that a config names and reads its header.
    ///
    /// # Errors
    /// Whatever is wrong with the file, or a model that is not supported.
    pub fn open(source: &ModelSource) -> Result<Self, EngineError> {
        let path = match &source.origin {
            ModelOrigin::Path(path) => path.clone(),
            ModelOrigin::Hub(repository) => hub::fetch(repository)?,
            ModelOrigin::Random { geometry, seed } => {
                return Ok(Self {
                    checkpoint: None,
                    seed: *seed,
                    spec: DecoderSpec::from_config(geometry)?,
                    fingerprint: format!("random, seed {seed}, geometry {}", &hash(&sorted(geometry))[..16]),
                    file_bytes: 0,
                });
            }
        };
        let checkpoint = Checkpoint::open(&path)?;
        Ok(Self {
            spec: DecoderSpec::from_config(checkpoint.config())?,
            fingerprint: checkpoint.fingerprint(),
            file_bytes: checkpoint.file_bytes(),
            checkpoint: Some(checkpoint),
            seed: 0,
        })
    }

    fn tokenizer(&self, named: Option<&Named>) -> Result<Option<Tokenizer>, EngineError> {
        match named {
            Some(Named::Bytes) => return Ok(Some(Tokenizer::bytes())),
            Some(Named::File(path)) => return Ok(Some(Tokenizer::from_file(path)?)),
            None => {}
        }
        let source = self.checkpoint.as_ref().map(Checkpoint::tokenizer);
        Ok(match source {
            Some(TokenizerSource::Json(path)) => Some(Tokenizer::from_file(&path)?),
            Some(TokenizerSource::Gguf(vocab)) => Some(Tokenizer::from_gguf(&vocabulary(vocab))?),
            // A vocabulary of 256 without a tokenizer is a byte-level model.
            Some(TokenizerSource::None) | None => (self.spec.vocab() == 256).then(Tokenizer::bytes),
        })
    }

    fn chat_template(&self, tokenizer: Option<&Tokenizer>) -> Result<Option<ChatTemplate>, EngineError> {
        let source = self.checkpoint.as_ref().and_then(Checkpoint::chat_template);
        let Some((source, tokenizer)) = source.zip(tokenizer) else {
            return Ok(None);
        };
        let bos = tokenizer.special_text(tokenizer.bos());
        let eos = tokenizer.special_text(tokenizer.eos());
        Ok(Some(ChatTemplate::new(&source, &bos, &eos)?))
    }

    fn stop(&self, tokenizer: Option<&Tokenizer>) -> StopSet {
        let mut stop = StopSet::new(self.checkpoint.iter().flat_map(Checkpoint::end_tokens));
        stop.extend(tokenizer.into_iter().flat_map(Tokenizer::end_ids));
        stop
    }

    fn decoder(&self, options: &BuildOptions, progress: Progress<'_>) -> Result<Decoder, EngineError> {
        let spec = self.spec.clone();
        if self.checkpoint.is_none() {
            // No file says how large they are, and a system without memory ends any process.
            let needed = Bytes(spec.parameters().saturating_mul(options.dtype.size() as u64));
            let on_host = options.device == Device::flex();
            if let Some(available) = free_memory().filter(|free| on_host && *free < needed) {
                return Err(EngineError::WeightsMemory { needed, available });
            }
        }
        Ok(match &self.checkpoint {
            Some(checkpoint) => Decoder::load(spec, checkpoint, options, progress)?,
            None => Decoder::random(spec, self.seed, options)?,
        })
    }
}

fn vocabulary(v: GgufTokenizer) -> GgufVocab {
    GgufVocab {
        model: v.model,
        pre: v.pre,
        tokens: v.tokens,
        scores: v.scores,
        token_types: v.token_types,
        merges: v.merges,
        bos: v.bos,
        eos: v.eos,
        unk: v.unk,
        add_bos: v.add_bos,
        add_space_prefix: v.add_space_prefix,
    }
}

/// Builds engines. Those with the same weights, on the same device and unchanged by their variants, share them.
#[derive(Default)]
pub struct Pool {
    decoders: BTreeMap<String, Arc<Decoder>>,
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// Loads a model and builds its cache.
    ///
    /// # Errors
    /// Whatever is wrong with the config, the files, the device, or their combination.
    pub fn load(&mut self, config: &ModelConfig, progress: Progress<'_>) -> Result<Engine, EngineError> {
        let threads = device::set_threads(config.backend.threads)?;
        let device = OpenDevice::open(config.backend.device)?;
        let dtype = dtype(config.model.weights, &device)?;
        let origin = Origin::open(&config.model)?;
        let plan = CachePlan::new(&origin.spec, &config.cache, &device.device)?;
        let tokenizer = origin.tokenizer(config.model.tokenizer.as_ref())?;
        // The cache first: it can be refused for lack of memory, and weights take long to read.
        let cache = plan.build()?;
        let key = key(config, &origin, &plan.adaptations);
        let identity = identity(config, &origin, dtype, &plan.adaptations);
        let decoder = match self.decoders.get(&key) {
            Some(decoder) => Arc::clone(decoder),
            None => {
                let options = BuildOptions {
                    device: device.device.clone(),
                    dtype,
                    adaptations: plan.adaptations,
                    packed: config.model.weights == Weights::Native,
                    precision: precision(config.backend.matmul_precision),
                    allow_unused: config.model.allow_unused,
                };
                let decoder = Arc::new(origin.decoder(&options, progress)?);
                self.decoders.insert(key, Arc::clone(&decoder));
                decoder
            }
        };
        Ok(Engine {
            chat: origin.chat_template(tokenizer.as_ref())?,
            stop: origin.stop(tokenizer.as_ref()),
            fingerprint: origin.fingerprint,
            identity,
            config: config.clone(),
            decoder,
            cache,
            tokenizer,
            device,
            threads,
        })
    }
}

/// SHA-256 in hexadecimal digits.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A geometry in the order of its keys, however the file has them.
fn sorted(geometry: &serde_json::Map<String, serde_json::Value>) -> String {
    let sorted: BTreeMap<_, _> = geometry.iter().collect();
    format!("{sorted:?}")
}

/// What decides, beside the spec of a cache, about the rows that a model makes of tokens. Layout and device do not.
fn identity(config: &ModelConfig, origin: &Origin, dtype: DType, adaptations: &[Adaptation]) -> String {
    let variant = config.cache.variant.as_deref().and_then(registry::variant);
    let taken = variant.map_or(&[][..], |variant| variant.options());
    let options = config
        .cache
        .options
        .iter()
        .filter(|(name, _)| taken.contains(&name.as_str()));
    let options: Vec<_> = options.collect();
    hash(&format!("{} {dtype:?} {adaptations:?} {options:?}", origin.fingerprint))
}

/// What decides about the weights in memory.
fn key(config: &ModelConfig, origin: &Origin, adaptations: &[Adaptation]) -> String {
    let unchanged = adaptations.iter().all(|a| matches!(a, Adaptation::Keep));
    let changed_by = (!unchanged).then(|| {
        let cache = &config.cache;
        format!(
            "{:?} {:?} {:?} {:?} {:?} {:?}",
            cache.variant, cache.num_key_value_heads, cache.window, cache.sinks, cache.kv_lora_rank, cache.options
        )
    });
    format!(
        "{:?} {:?} {} {} {:?} {changed_by:?}",
        config.model.origin,
        config.model.weights,
        origin.fingerprint,
        config.backend.device,
        config.backend.matmul_precision
    )
}

fn precision(named: MatmulPrecision) -> Precision {
    match named {
        MatmulPrecision::Highest => Precision::Highest,
        MatmulPrecision::High => Precision::High,
        MatmulPrecision::Medium => Precision::Medium,
    }
}

fn dtype(weights: Weights, device: &OpenDevice) -> Result<DType, EngineError> {
    let (dtype, name) = match weights {
        // Weights that stay packed are multiplied with f32, and where they do not, they become f32.
        Weights::Native | Weights::F32 => (DType::F32, "f32"),
        Weights::F16 => (DType::F16, "f16"),
        Weights::Bf16 => (DType::BF16, "bf16"),
    };
    if device.device.supports_dtype(dtype) {
        return Ok(dtype);
    }
    Err(EngineError::Device {
        device: device.name.to_string(),
        reason: format!(
            "{} has no {name} numbers; set model.weights = \"f32\"",
            device.description
        ),
    })
}
