//! The tensors that a decoder is made of: their names in a file, their shapes, and what they are.

mod feed_forward;
mod layer;

pub(crate) use feed_forward::{ExpertsTensors, FeedForwardTensors, MlpInput, MlpTensors, StackPlan, StoredExperts};

use crate::families::Names;
use crate::spec::{DecoderSpec, LayerPlan, NormKind, NormPlan};

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
    /// Added to the output of a projection or a norm, or to the scores of experts.
    Bias,
    /// A score of each query head that takes part in its softmax.
    Sinks,
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
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
pub(crate) enum QkvTensors {
    Separate {
        query: LinearPlan,
        key: LinearPlan,
        value: LinearPlan,
    },
    Fused(LinearPlan),
    /// The query, the key and the value of each head lie together.
    FusedByHead(LinearPlan),
    Latent {
        query: QueryTensors,
        down: LinearPlan,
        norm: NormTensors,
        up: LinearPlan,
    },
}

/// The projection of the queries of latent attention, in one or two steps.
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
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

fn list_linear(linear: LinearPlan, all: &mut Vec<TensorPlan>) {
    all.push(linear.weight);
    all.extend(linear.bias);
}

fn list_norm(norm: NormTensors, all: &mut Vec<TensorPlan>) {
    all.push(norm.weight);
    all.extend(norm.bias);
}
