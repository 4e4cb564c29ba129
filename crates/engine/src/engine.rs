//! A model and its cache, ready to run.

use crate::text::{ChatTemplate, Message, StopSet, Tokenizer};
use crate::{EngineError, OpenDevice, Pool, Progress};
use burn::tensor::Tensor;
use kvlab_config::ModelConfig;
use kvlab_core::{Accept, CacheSpec, Capabilities, Chunk, KvCache, SeqId, StepReport, TokenId, Usage};
use kvlab_model::{Decoder, DecoderSpec, Wanted};
use std::sync::Arc;

/// A model with one cache.
pub struct Engine {
    pub(crate) config: ModelConfig,
    pub(crate) decoder: Arc<Decoder>,
    pub(crate) cache: Box<dyn KvCache>,
    pub(crate) tokenizer: Option<Tokenizer>,
    pub(crate) chat: Option<ChatTemplate>,
    pub(crate) stop: StopSet,
    pub(crate) device: OpenDevice,
    pub(crate) threads: usize,
    pub(crate) fingerprint: String,
    /// Identifies what decides about rows beside the spec of the cache: weights, config, number format, adaptations.
    pub(crate) identity: String,
}

impl Engine {
    /// Loads a config on its own.
    ///
    /// # Errors
    /// Whatever is wrong with the config, the files, the device, or their combination.
    pub fn load(config: &ModelConfig, progress: Progress<'_>) -> Result<Self, EngineError> {
        Pool::new().load(config, progress)
    }

    /// The config that it was loaded from.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The model.
    pub fn model(&self) -> &DecoderSpec {
        self.decoder.spec()
    }

    /// Bytes of the weights in memory.
    pub fn weight_bytes(&self) -> u64 {
        self.decoder.weight_bytes()
    }

    /// Identifies the weights.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// What the cache holds.
    pub fn spec(&self) -> &CacheSpec {
        self.cache.spec()
    }

    /// What the cache can do.
    pub fn capabilities(&self) -> Capabilities {
        self.cache.capabilities()
    }

    /// The bytes of the cache now.
    pub fn usage(&self) -> Usage {
        self.cache.usage()
    }

    /// The cache itself.
    pub fn cache(&mut self) -> &mut dyn KvCache {
        self.cache.as_mut()
    }

    /// The model itself; it may be shared with other engines.
    pub fn decoder(&self) -> Arc<Decoder> {
        Arc::clone(&self.decoder)
    }

    /// The device that it runs on.
    pub fn device(&self) -> &OpenDevice {
        &self.device
    }

    /// Threads of the processor.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`EngineError::NoTokenizer`].
    pub fn tokenizer(&self) -> Result<&Tokenizer, EngineError> {
        let tokenizer = self.tokenizer.as_ref();
        tokenizer.ok_or_else(|| EngineError::NoTokenizer(self.config.name.clone()))
    }

    /// A conversation as the text that the model was trained to see, ending where the assistant begins to speak.
    ///
    /// # Errors
    /// [`EngineError::NoChatTemplate`], or what the template raises.
    pub fn chat(&self, messages: &[Message]) -> Result<String, EngineError> {
        let chat = self.chat.as_ref();
        let chat = chat.ok_or_else(|| EngineError::NoChatTemplate(self.config.name.clone()))?;
        Ok(chat.render(messages, true)?)
    }

    /// The most tokens that a sequence can have, and what sets that limit.
    pub fn limit(&self) -> (usize, String) {
        let model = self.model().max_positions();
        let spec = self.cache.spec();
        let full = |l: &kvlab_core::LayerSpec| l.rows_per_sequence >= spec.capacity;
        let stores = self.cache.capabilities().remembers;
        match stores && spec.capacity < model && spec.layers.iter().any(full) {
            true => (spec.capacity, "raise cache.capacity".to_owned()),
            false => (model, "the model's max_position_embeddings".to_owned()),
        }
    }

    /// Checks ids before they reach a tensor.
    pub(crate) fn check_tokens(&self, tokens: &[TokenId]) -> Result<(), EngineError> {
        let vocab = self.model().vocab();
        let bad = tokens.iter().position(|&t| t as usize >= vocab);
        match bad {
            Some(place) => Err(EngineError::Token {
                token: tokens[place],
                place,
                vocab,
            }),
            None => Ok(()),
        }
    }

    /// One forward pass over chunks, all accepted. Logits of the wanted rows, `[rows, vocab]`.
    pub(crate) fn step(
        &mut self,
        chunks: &[(SeqId, &[TokenId])],
        wanted: &[usize],
    ) -> Result<(Tensor<2>, StepReport), EngineError> {
        let batch = chunks.iter().map(|&(seq, tokens)| Chunk { seq, tokens });
        let batch: Vec<_> = batch.collect();
        let tokens: Vec<TokenId> = chunks.iter().flat_map(|(_, tokens)| tokens.iter().copied()).collect();
        let mut step = self.cache.begin(&batch)?;
        let logits = self.decoder.forward(&tokens, step.as_mut(), Wanted::Rows(wanted))?;
        let report = step.commit(Accept::All)?;
        Ok((logits, report))
    }

    /// Logits to the host, rows back to back. It waits for the device.
    pub(crate) fn read(&self, logits: Tensor<2>) -> Result<Vec<f32>, EngineError> {
        let data = logits
            .try_into_data()
            .map_err(|e| EngineError::Execution(format!("{e:?}")))?;
        data.try_to_vec::<f32>()
            .map_err(|e| EngineError::Execution(format!("{e:?}")))
    }
}
