//! What a decoder is, as data: sizes, norms, positions and attention of every layer. No tensors.

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
    /// Factor on the token embedding (Gemma: `sqrt(hidden)`).
    pub embedding_scale: Option<f32>,
    /// The rotary embeddings of the model; a layer names one by its index.
    pub ropes: Vec<RopePlan>,
    /// Every layer, first to last.
    pub layers: Vec<LayerPlan>,
    /// The norm before the head.
    pub final_norm: NormPlan,
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
    pub mlp: MlpPlan,
    /// The norm before each of the two.
    pub norm: NormPlan,
    /// Whether their outputs are normed too, before they are added (Gemma 2 and 3).
    pub post_norms: bool,
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

/// A feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlpPlan {
    /// `intermediate_size`.
    pub intermediate: usize,
    /// The activation.
    pub activation: Activation,
    /// `down(act(gate x) * up x)` instead of `down(act(up x))` (Shazeer, GLU variants, 2020).
    pub gated: bool,
    /// Whether its projections have a bias.
    pub bias: bool,
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x * Phi(x)`.
    Gelu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` (`gelu_new`, `gelu_pytorch_tanh`).
    GeluTanh,
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
