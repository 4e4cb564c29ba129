//! The decoder: embedding, layers, norm, head.

use crate::attention::{Attention, Call, Context, LatentMode};
use crate::linear::{Linear, Weight};
use crate::load::build;
use crate::mlp::FeedForward;
use crate::norm::Norm;
use crate::rope::{RopeTable, Rotation};
use crate::slices::{AttentionHalf, FeedForwardHalf, Room};
use crate::source::{CheckpointSource, RandomSource};
use crate::{DecoderSpec, ModelError};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use kvlab_core::{Adaptation, LayerId, Step, TokenId};
use kvlab_linear::Precision;
use kvlab_weights::Checkpoint;

/// Where and how to build a decoder.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The device of all weights and activations.
    pub device: Device,
    /// Number format of weights and activations: f32, f16 or bf16. Norms, rotations, the residual stream and logits
    /// are f32 in any case.
    pub dtype: DType,
    /// What a variant does to the attention of each layer; empty for nothing at all.
    pub adaptations: Vec<Adaptation>,
    /// On the processor and with activations in f32: keep weights in the format of the file where there are kernels
    /// for it (F16, BF16, and all quantised ones) and nothing but the order of their rows changes.
    pub packed: bool,
    /// How closely prompts are multiplied with packed weights.
    pub precision: Precision,
    /// Load a file even if it holds tensors that this model never reads.
    pub allow_unused: bool,
}

impl BuildOptions {
    /// f32 on `device`, as the weights are.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            dtype: DType::F32,
            adaptations: Vec::new(),
            packed: false,
            precision: Precision::default(),
            allow_unused: false,
        }
    }
}

/// Of which tokens of a step the logits are wanted.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// Of all.
    All,
    /// Of those at these places in the step, in this order. A prefill needs the last of each chunk only, and none of a
    /// chunk that more will follow.
    Rows(&'a [usize]),
}

/// A point of the forward pass, for [`Decoder::forward_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// After the embedding, scaled and with positions.
    Embedding,
    /// After a layer.
    Layer(LayerId),
    /// After the norm before the head; wanted rows only.
    FinalNorm,
}

/// The hidden state at one point of the forward pass.
#[derive(Clone, Copy, Debug)]
pub struct LayerOutput<'a> {
    /// Where.
    pub stage: Stage,
    /// `[tokens, hidden]`, f32.
    pub hidden: &'a Tensor<2>,
}

/// Looks into the layers of a forward pass, for [`Decoder::forward_probed`].
pub trait Probe {
    /// The hidden state that a layer is about to work on, `[tokens, hidden]`, f32. What is returned takes its place.
    fn input(&mut self, layer: LayerId, hidden: Tensor<2>) -> Tensor<2>;

    /// The output of a layer's attention after its output projection, `[tokens, hidden]`, in the number format of the
    /// activations, before a norm or a scale that may follow. In these coordinates every variant of the attention can be
    /// compared with every other.
    fn attended(&mut self, layer: LayerId, output: &Tensor<2>);
}

/// A decoder with its weights on a device.
#[derive(Debug)]
pub struct Decoder {
    pub(crate) spec: DecoderSpec,
    pub(crate) device: Device,
    pub(crate) dtype: DType,
    /// `[vocab, hidden]`
    pub(crate) embedding: Weight,
    /// `[max_positions, hidden]`
    pub(crate) positions: Option<Tensor<2>>,
    pub(crate) ropes: Vec<RopeTable>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) final_norm: Norm,
    /// `[hidden]` to `[vocab]`.
    pub(crate) head: Linear,
    pub(crate) weight_bytes: u64,
    pub(crate) latent_mode: LatentMode,
}

/// One layer.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) attention_norm: Norm,
    pub(crate) attention: Attention,
    pub(crate) mlp_norm: Norm,
    pub(crate) mlp: FeedForward,
    /// After the attention and after the feed-forward network.
    pub(crate) post_norms: Option<[Norm; 2]>,
    pub(crate) parallel: bool,
    pub(crate) branch_scale: Option<f32>,
}

impl Decoder {
    /// Loads the weights of `spec` from a file, a tensor at a time. `progress` is called with the tensors read so far
    /// and their total.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`], [`ModelError::TensorShape`], [`ModelError::UnusedTensors`],
    /// [`ModelError::Weights`], [`ModelError::Adaptation`] and [`ModelError::Adaptations`], [`ModelError::Dtype`].
    pub fn load(
        spec: DecoderSpec,
        checkpoint: &Checkpoint,
        options: &BuildOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self, ModelError> {
        let mut source = CheckpointSource::new(checkpoint, &spec);
        let decoder = build(spec, &mut source, options, progress)?;
        let unused = source.unused(&decoder.spec);
        if !unused.is_empty() && !options.allow_unused {
            return Err(ModelError::UnusedTensors {
                family: decoder.spec.family,
                names: unused,
            });
        }
        Ok(decoder)
    }

    /// A decoder with random weights, the same for the same seed on every machine and device.
    ///
    /// # Errors
    /// [`ModelError::Adaptation`] and [`ModelError::Adaptations`], [`ModelError::Dtype`].
    pub fn random(spec: DecoderSpec, seed: u64, options: &BuildOptions) -> Result<Self, ModelError> {
        build(spec, &mut RandomSource::new(seed), options, &mut |_, _| {})
    }

    /// What it is.
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// Bytes of the weights on the device, after adaptation; tables of rotary embeddings are not weights.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// How latent attention looks at the rows of its own step; without effect in a model without.
    ///
    /// [`LatentMode::Auto`] expands fresh rows from the chunk length on where that takes fewer multiplications, with
    /// all tokens of a step as one chunk, or split evenly over the wanted rows. Expanding needs a cache that answers
    /// `lse`: with one that does not, set [`LatentMode::Absorbed`]. A latent under sinks needs `lse` in every mode.
    pub fn set_latent_mode(&mut self, mode: LatentMode) {
        self.latent_mode = mode;
    }

    /// The logits of `tokens`, `[wanted rows, vocab]`, f32. The tokens are those of the step, chunks back to back.
    ///
    /// # Errors
    /// [`ModelError::Token`], [`ModelError::Position`], [`ModelError::Length`], [`ModelError::Wanted`],
    /// [`ModelError::Cache`].
    pub fn forward(
        &self,
        tokens: &[TokenId],
        step: &mut dyn Step,
        wanted: Wanted<'_>,
    ) -> Result<Tensor<2>, ModelError> {
        self.forward_with(tokens, step, wanted, &mut |_| {})
    }

    /// [`forward`](Self::forward), with a look at the hidden state after the embedding, each layer, and the last norm.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_with(
        &self,
        tokens: &[TokenId],
        step: &mut dyn Step,
        wanted: Wanted<'_>,
        observe: &mut dyn FnMut(LayerOutput<'_>),
    ) -> Result<Tensor<2>, ModelError> {
        self.pass(tokens, step, wanted, observe, None)
    }

    /// [`forward`](Self::forward) with a probe in each layer.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_probed(
        &self,
        tokens: &[TokenId],
        step: &mut dyn Step,
        wanted: Wanted<'_>,
        probe: &mut dyn Probe,
    ) -> Result<Tensor<2>, ModelError> {
        self.pass(tokens, step, wanted, &mut |_| {}, Some(probe))
    }

    fn pass(
        &self,
        tokens: &[TokenId],
        step: &mut dyn Step,
        wanted: Wanted<'_>,
        observe: &mut dyn FnMut(LayerOutput<'_>),
        mut probe: Option<&mut dyn Probe>,
    ) -> Result<Tensor<2>, ModelError> {
        let positions = step.positions().clone();
        self.check(tokens, &positions, wanted)?;
        let rotations: Vec<Rotation> = self.ropes.iter().map(|rope| rope.at(&positions)).collect();
        let context = Context {
            rotations: &rotations,
            mode: self.latent_mode,
            chunk: match wanted {
                Wanted::All => tokens.len(),
                Wanted::Rows(rows) => tokens.len() / rows.len().max(1),
            },
        };
        let mut see = |stage, hidden: &Tensor<2>| observe(LayerOutput { stage, hidden });

        let mut x = self.embed(tokens, positions);
        see(Stage::Embedding, &x);
        let mut room = Room::default();
        for block in &self.blocks {
            if let Some(probe) = &mut probe {
                x = probe.input(block.attention.layer, x);
            }
            let call = block.attention.call(step, &context);
            x = block.forward(x, call, self.dtype, &mut probe, &mut room)?;
            see(Stage::Layer(block.attention.layer), &x);
        }
        if let Wanted::Rows(rows) = wanted {
            if rows.is_empty() {
                return Ok(Tensor::zeros([0, self.spec.vocab], (&self.device, DType::F32)));
            }
            x = x.select(0, self.indices(rows.iter().map(|&row| row as i64)));
        }
        let mut x = self.final_norm.forward(x);
        see(Stage::FinalNorm, &x);
        if let Some(scale) = self.spec.head_scale {
            x = x * scale;
        }
        let logits = self.head.forward(x.cast(self.dtype)).cast(DType::F32);
        Ok(match self.spec.final_softcap {
            Some(cap) => (logits / cap).tanh() * cap,
            None => logits,
        })
    }

    /// `[tokens, hidden]`, f32.
    fn embed(&self, tokens: &[TokenId], positions: Tensor<1, Int>) -> Tensor<2> {
        let mut x = self.embedding.select(tokens, &self.device);
        if let Some(scale) = self.spec.embedding_scale {
            x = x * scale;
        }
        if let Some(table) = &self.positions {
            x = x + table.clone().select(0, positions).cast(DType::F32);
        }
        x
    }

    fn indices(&self, indices: impl Iterator<Item = i64>) -> Tensor<1, Int> {
        let indices: Vec<i64> = indices.collect();
        let count = indices.len();
        Tensor::from_data(TensorData::new(indices, [count]), &self.device)
    }
}

impl Block {
    /// `[tokens, hidden]` to the same, f32: the residual stream.
    fn forward(
        &self,
        x: Tensor<2>,
        call: Call<'_, '_>,
        dtype: DType,
        probe: &mut Option<&mut dyn Probe>,
        room: &mut Room,
    ) -> Result<Tensor<2>, ModelError> {
        let on_slices = probe.is_none() && !self.parallel;
        let x = match on_slices.then(|| AttentionHalf::of(self)).flatten() {
            Some(half) => half.forward(x, call, room)?,
            None => {
                let normed = self.attention_norm.forward(x.clone()).cast(dtype);
                let attended = self.attention.forward(normed, call)?;
                if let Some(probe) = probe {
                    probe.attended(self.attention.layer, &attended);
                }
                let attended = self.branch(0, attended);
                if self.parallel {
                    return Ok(self.feed(x.clone(), dtype)? + attended + x);
                }
                x + attended
            }
        };
        match FeedForwardHalf::of(self) {
            Some(half) => Ok(half.forward(x, room)),
            None => Ok(self.feed(x.clone(), dtype)? + x),
        }
    }

    /// What the feed-forward network adds to the residual stream, f32.
    fn feed(&self, x: Tensor<2>, dtype: DType) -> Result<Tensor<2>, ModelError> {
        let fed = self.mlp.forward(self.mlp_norm.forward(x).cast(dtype))?;
        Ok(self.branch(1, fed))
    }

    /// What one of the two halves adds to the residual stream, f32.
    fn branch(&self, which: usize, x: Tensor<2>) -> Tensor<2> {
        let x = match &self.post_norms {
            Some(norms) => norms[which].forward(x),
            None => x.cast(DType::F32),
        };
        match self.branch_scale {
            Some(scale) => x * scale,
            None => x,
        }
    }
}
