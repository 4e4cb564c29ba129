//! What a decoder is, as data: sizes, norms, positions and attention of every layer. No tensors.

mod feed_forward;

pub use feed_forward::{Activation, ExpertsPlan, FeedForwardPlan, GroupPlan, MlpPlan, Routing, Scoring};

use crate::families::Names;
use crate::rope::RopePlan;
use kvlab_core::{AttentionShape, LatentShape, Visibility};

/// A whole decoder. Two families differ in the values here, and in nothing else.
#[derive(Clone, Debug)]
pub struct DecoderSpec {
    /// `model_type` of the config.
    pub family: &'static str,
    /// `vocab_size`.
    pub vocab: usize,
    /// `hidden_size`.
    pub hidden: usize,
    /// `max_position_embeddings`: positions are `0..max_positions`.
    pub max_positions: usize,
    /// Whether a learned vector per position is added to the embedding (GPT-2).
    pub learned_positions: bool,
    /// Factor on the token embedding (Gemma: `sqrt(hidden)`; MiniCPM: `scale_emb`).
    pub embedding_scale: Option<f32>,
    /// The rotary embeddings of the model; a layer names one by its index.
    pub ropes: Vec<RopePlan>,
    /// Every layer, first to last.
    pub layers: Vec<LayerPlan>,
    /// The norm before the head.
    pub final_norm: NormPlan,
    /// Factor on the normed hidden state before the head (MiniCPM: `dim_model_base / hidden`).
    pub head_scale: Option<f32>,
    /// `tie_word_embeddings`: the head is the token embedding.
    pub tied_head: bool,
    /// `c` of `c * tanh(logit / c)` (Gemma 2).
    pub final_softcap: Option<f32>,
    /// Where the weights are in a file.
    pub names: &'static Names,
}

/// One layer: attention and a feed-forward network, each added to the residual stream.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerPlan {
    /// The attention.
    pub attention: AttentionPlan,
    /// The feed-forward network.
    pub mlp: FeedForwardPlan,
    /// The norm before each of the two.
    pub norm: NormPlan,
    /// Whether their outputs are normed too, before they are added (Gemma 2 and 3).
    pub post_norms: bool,
    /// Whether both see what comes into the layer, and are added to it together (GPT-NeoX).
    pub parallel: bool,
    /// Factor on what each of the two adds (MiniCPM: `scale_depth / sqrt(layers)`).
    pub branch_scale: Option<f32>,
}

/// The attention of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionPlan {
    /// `num_attention_heads`.
    pub query_heads: usize,
    /// Where keys and values come from.
    pub kind: AttentionKind,
    /// Index into [`DecoderSpec::ropes`]; `None` without rotary embedding.
    pub rope: Option<usize>,
    /// Factor on the dot products, usually `1 / sqrt(key size)`.
    pub scale: f32,
    /// `attn_logit_softcapping`.
    pub softcap: Option<f32>,
    /// Which rows a query sees.
    pub visibility: Visibility,
    /// Norm over each head of queries and keys, before the rotation (Qwen 3, Gemma 3).
    pub head_norm: Option<NormPlan>,
    /// Whether the query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub output_bias: bool,
    /// Whether each query head has a learned score without a value that takes part in its softmax (gpt-oss).
    pub sinks: bool,
}

/// Where keys and values come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttentionKind {
    /// Projected per KV head.
    Heads {
        /// `num_key_value_heads`.
        kv_heads: usize,
        /// `head_dim`, of keys and of values.
        head_dim: usize,
    },
    /// Expanded from a latent.
    Latent(LatentPlan),
}

/// Multi-head latent attention (DeepSeek-V2, 2024, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatentPlan {
    /// `q_lora_rank`: the queries are low-rank too.
    pub q_lora_rank: Option<usize>,
    /// `kv_lora_rank`.
    pub kv_lora_rank: usize,
    /// `qk_nope_head_dim`.
    pub nope: usize,
    /// `qk_rope_head_dim`.
    pub rope: usize,
    /// `v_head_dim`.
    pub value: usize,
    /// Epsilon of the RMS norms of the two latents; Hugging Face has 1e-6 whatever `rms_norm_eps` says.
    pub latent_eps: f64,
}

/// A normalisation over the last dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormPlan {
    /// Which one.
    pub kind: NormKind,
    /// Added to the mean square or the variance.
    pub eps: f64,
}

/// Which normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `x / rms(x) * w` (Zhang and Sennrich, 2019).
    Rms,
    /// `x / rms(x) * (1 + w)` (Gemma).
    RmsPlusOne,
    /// `(x - mean) / std * w + b` (Ba et al., 2016).
    Layer,
}

impl NormPlan {
    pub(crate) fn rms(eps: f64) -> Self {
        Self {
            kind: NormKind::Rms,
            eps,
        }
    }
}

impl LayerPlan {
    /// Gives the networks that every token uses a bias; experts to choose from have their own rule.
    pub(crate) fn set_mlp_bias(&mut self, bias: bool) {
        match &mut self.mlp {
            FeedForwardPlan::Dense(mlp) => mlp.bias = bias,
            FeedForwardPlan::Experts(experts) => experts.shared.iter_mut().for_each(|shared| shared.bias = bias),
        }
    }
}

impl AttentionPlan {
    /// Values of one query or key head.
    pub fn key(&self) -> usize {
        match self.kind {
            AttentionKind::Heads { head_dim, .. } => head_dim,
            AttentionKind::Latent(latent) => latent.nope + latent.rope,
        }
    }

    /// Values of one value head.
    pub fn value(&self) -> usize {
        match self.kind {
            AttentionKind::Heads { head_dim, .. } => head_dim,
            AttentionKind::Latent(latent) => latent.value,
        }
    }
}

impl DecoderSpec {
    /// `vocab_size`.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// `hidden_size`.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// `max_position_embeddings`: a sequence has at most so many tokens.
    pub fn max_positions(&self) -> usize {
        self.max_positions
    }

    /// `model_type`.
    pub fn family(&self) -> &'static str {
        self.family
    }

    /// The attention of layer `layer`, as a cache wants to know it.
    ///
    /// # Panics
    /// If `layer` is not below [`layers`](Self::layers), as an index does.
    pub fn attention(&self, layer: usize) -> AttentionShape {
        let plan = &self.layers[layer].attention;
        let rotary = plan.rope.map_or(0, |rope| self.ropes[rope].rotary);
        let (kv_heads, latent) = match plan.kind {
            AttentionKind::Heads { kv_heads, .. } => (kv_heads, None),
            AttentionKind::Latent(latent) => {
                let (rank, rope) = (latent.kv_lora_rank, latent.rope);
                (plan.query_heads, Some(LatentShape { rank, rope }))
            }
        };
        AttentionShape {
            hidden: self.hidden,
            query_heads: plan.query_heads,
            kv_heads,
            key: plan.key(),
            value: plan.value(),
            rotary,
            latent,
            visibility: plan.visibility,
        }
    }

    /// Numbers in the weights; a tied head counts once.
    pub fn parameters(&self) -> u64 {
        self.tensors().iter().map(|t| t.values() as u64).sum()
    }
}
