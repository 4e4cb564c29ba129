//! The tensors that a decoder is made of: their names in a file, their shapes, and what they are.

use crate::families::{AttentionNames, LATENT, Names};
use crate::spec::{AttentionKind, DecoderSpec, LatentPlan, LayerPlan, NormKind, NormPlan};

/// One tensor of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorPlan {
    /// Its Hugging Face name.
    pub name: String,
    /// Its shape in a file.
    pub shape: Vec<usize>,
    /// What it is.
    pub role: Role,
}

/// What a tensor is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// The token embedding, and the head if that is tied.
    Embedding,
    /// A vector added per position.
    Positions,
    /// A projection of so many inputs.
    Matrix {
        /// Inputs of one output.
        fan_in: usize,
    },
    /// Added to the output of a projection or a norm.
    Bias,
    /// The weight of a norm; it does nothing at `1`, or at `0` where one is added to it.
    Norm {
        /// Where it does nothing.
        neutral: f32,
    },
}

impl TensorPlan {
    /// How many numbers it has.
    pub fn values(&self) -> usize {
        self.shape.iter().fold(1, |n, &d| n.saturating_mul(d))
    }
}

/// A projection, `[out, in]` or `[in, out]`, and its bias.
pub(crate) struct LinearPlan {
    pub(crate) weight: TensorPlan,
    pub(crate) bias: Option<TensorPlan>,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) in_out: bool,
}

/// A norm's weight and bias.
pub(crate) struct NormTensors {
    pub(crate) plan: NormPlan,
    pub(crate) weight: TensorPlan,
    pub(crate) bias: Option<TensorPlan>,
}

/// The tensors of one layer.
pub(crate) struct LayerTensors<'a> {
    pub(crate) names: &'a Names,
    pub(crate) plan: &'a LayerPlan,
    hidden: usize,
    prefix: String,
}

/// The projections of queries, keys and values.
pub(crate) enum QkvTensors {
    Separate {
        query: LinearPlan,
        key: LinearPlan,
        value: LinearPlan,
    },
    Fused(LinearPlan),
    Latent {
        query: QueryTensors,
        down: LinearPlan,
        norm: NormTensors,
        up: LinearPlan,
    },
}

/// The projection of the queries of latent attention, in one or two steps.
pub(crate) enum QueryTensors {
    Full(LinearPlan),
    LowRank {
        down: LinearPlan,
        norm: NormTensors,
        up: LinearPlan,
    },
}

fn tensor(stem: &str, suffix: &str, shape: Vec<usize>, role: Role) -> TensorPlan {
    TensorPlan {
        name: format!("{stem}.{suffix}"),
        shape,
        role,
    }
}

fn norm(stem: &str, size: usize, plan: NormPlan) -> NormTensors {
    let neutral = f32::from(u8::from(plan.kind != NormKind::RmsPlusOne));
    let biased = plan.kind == NormKind::Layer;
    NormTensors {
        plan,
        weight: tensor(stem, "weight", vec![size], Role::Norm { neutral }),
        bias: biased.then(|| tensor(stem, "bias", vec![size], Role::Bias)),
    }
}

impl DecoderSpec {
    /// Every tensor of the decoder, in the order of loading.
    pub fn tensors(&self) -> Vec<TensorPlan> {
        let mut all = vec![self.embedding()];
        all.extend(self.position_embedding());
        for layer in 0..self.layers() {
            self.layer_tensors(layer).list(&mut all);
        }
        list_norm(self.final_norm(), &mut all);
        all.extend(self.head().map(|head| head.weight));
        all
    }

    pub(crate) fn embedding(&self) -> TensorPlan {
        tensor(
            self.names.embedding,
            "weight",
            vec![self.vocab, self.hidden],
            Role::Embedding,
        )
    }

    pub(crate) fn position_embedding(&self) -> Option<TensorPlan> {
        let shape = vec![self.max_positions, self.hidden];
        self.learned_positions
            .then(|| tensor(self.names.positions, "weight", shape, Role::Positions))
    }

    pub(crate) fn final_norm(&self) -> NormTensors {
        norm(self.names.final_norm, self.hidden, self.final_norm)
    }

    /// The head, unless it is tied to the embedding.
    pub(crate) fn head(&self) -> Option<LinearPlan> {
        (!self.tied_head).then(|| LinearPlan {
            weight: tensor(
                self.names.head,
                "weight",
                vec![self.vocab, self.hidden],
                Role::Matrix { fan_in: self.hidden },
            ),
            bias: None,
            rows: self.vocab,
            cols: self.hidden,
            in_out: false,
        })
    }

    pub(crate) fn layer_tensors(&self, layer: usize) -> LayerTensors<'_> {
        LayerTensors {
            names: self.names,
            plan: &self.layers[layer],
            hidden: self.hidden,
            prefix: format!("{}{layer}.", self.names.layer),
        }
    }
}

impl LayerTensors<'_> {
    fn linear(&self, stem: &str, rows: usize, cols: usize, bias: bool) -> LinearPlan {
        let stem = format!("{}{stem}", self.prefix);
        let in_out = self.names.matrices_in_out;
        let shape = if in_out { vec![cols, rows] } else { vec![rows, cols] };
        LinearPlan {
            weight: tensor(&stem, "weight", shape, Role::Matrix { fan_in: cols }),
            bias: bias.then(|| tensor(&stem, "bias", vec![rows], Role::Bias)),
            rows,
            cols,
            in_out,
        }
    }

    fn norm(&self, stem: &str, size: usize, plan: NormPlan) -> NormTensors {
        norm(&format!("{}{stem}", self.prefix), size, plan)
    }

    /// Norms before the attention and the feed-forward network.
    pub(crate) fn pre_norms(&self) -> [NormTensors; 2] {
        let names = [self.names.attention_norm, self.names.mlp_norm];
        names.map(|stem| self.norm(stem, self.hidden, self.plan.norm))
    }

    /// Norms after the attention and the feed-forward network.
    pub(crate) fn post_norms(&self) -> Option<[NormTensors; 2]> {
        let names = [self.names.post_attention_norm, self.names.post_mlp_norm];
        self.plan
            .post_norms
            .then(|| names.map(|stem| self.norm(stem, self.hidden, self.plan.norm)))
    }

    /// Norms of query and key heads.
    pub(crate) fn head_norms(&self) -> Option<[NormTensors; 2]> {
        let names = [self.names.query_norm, self.names.key_norm];
        let key = self.plan.attention.key();
        self.plan
            .attention
            .head_norm
            .map(|plan| names.map(|stem| self.norm(stem, key, plan)))
    }

    /// Projections of queries, keys and values.
    pub(crate) fn qkv(&self) -> QkvTensors {
        let attention = &self.plan.attention;
        match attention.kind {
            AttentionKind::Heads { kv_heads, head_dim } => {
                let (queries, rows) = (attention.query_heads * head_dim, kv_heads * head_dim);
                let linear = |stem, rows| self.linear(stem, rows, self.hidden, attention.qkv_bias);
                match self.names.attention {
                    AttentionNames::Separate { query, key, value } => QkvTensors::Separate {
                        query: linear(query, queries),
                        key: linear(key, rows),
                        value: linear(value, rows),
                    },
                    AttentionNames::Fused(stem) => QkvTensors::Fused(linear(stem, queries + 2 * rows)),
                }
            }
            AttentionKind::Latent(plan) => self.latent(attention.query_heads, plan),
        }
    }

    fn latent(&self, heads: usize, plan: LatentPlan) -> QkvTensors {
        let LatentPlan {
            q_lora_rank,
            kv_lora_rank,
            nope,
            rope,
            value,
            latent_eps,
        } = plan;
        let (queries, eps) = (heads * (nope + rope), NormPlan::rms(latent_eps));
        let query = match q_lora_rank {
            None => QueryTensors::Full(self.linear(LATENT.query, queries, self.hidden, false)),
            Some(rank) => QueryTensors::LowRank {
                down: self.linear(LATENT.query_down, rank, self.hidden, false),
                norm: self.norm(LATENT.query_norm, rank, eps),
                up: self.linear(LATENT.query_up, queries, rank, false),
            },
        };
        QkvTensors::Latent {
            query,
            down: self.linear(LATENT.down, kv_lora_rank + rope, self.hidden, false),
            norm: self.norm(LATENT.norm, kv_lora_rank, eps),
            up: self.linear(LATENT.up, heads * (nope + value), kv_lora_rank, false),
        }
    }

    /// Output projection of the attention.
    pub(crate) fn output(&self) -> LinearPlan {
        let attention = &self.plan.attention;
        let cols = attention.query_heads * attention.value();
        self.linear(self.names.output, self.hidden, cols, attention.output_bias)
    }

    /// Gate, if there is one, projection in, and projection out of the feed-forward network.
    pub(crate) fn mlp(&self) -> (Option<LinearPlan>, LinearPlan, LinearPlan) {
        let mlp = &self.plan.mlp;
        let into = |stem| self.linear(stem, mlp.intermediate, self.hidden, mlp.bias);
        let down = self.linear(self.names.down, self.hidden, mlp.intermediate, mlp.bias);
        (mlp.gated.then(|| into(self.names.gate)), into(self.names.up), down)
    }

    /// Every tensor, in the order of loading.
    fn list(&self, all: &mut Vec<TensorPlan>) {
        match self.qkv() {
            QkvTensors::Separate { query, key, value } => {
                [query, key, value].into_iter().for_each(|l| list_linear(l, all));
            }
            QkvTensors::Fused(qkv) => list_linear(qkv, all),
            QkvTensors::Latent { query, down, norm, up } => {
                match query {
                    QueryTensors::Full(query) => list_linear(query, all),
                    QueryTensors::LowRank { down, norm, up } => {
                        list_linear(down, all);
                        list_norm(norm, all);
                        list_linear(up, all);
                    }
                }
                list_linear(down, all);
                list_norm(norm, all);
                list_linear(up, all);
            }
        }
        self.head_norms().into_iter().flatten().for_each(|n| list_norm(n, all));
        list_linear(self.output(), all);
        let norms = [Some(self.pre_norms()), self.post_norms()];
        norms.into_iter().flatten().flatten().for_each(|n| list_norm(n, all));
        let (gate, up, down) = self.mlp();
        [gate, Some(up), Some(down)]
            .into_iter()
            .flatten()
            .for_each(|l| list_linear(l, all));
    }
}

fn list_linear(linear: LinearPlan, all: &mut Vec<TensorPlan>) {
    all.push(linear.weight);
    all.extend(linear.bias);
}

fn list_norm(norm: NormTensors, all: &mut Vec<TensorPlan>) {
    all.push(norm.weight);
    all.extend(norm.bias);
}
