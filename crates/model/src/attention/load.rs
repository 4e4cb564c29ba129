//! The attention of a layer from its tensors, with the changes that a variant asked for.

mod latent;

use super::adapt::Fit;
use super::{Attention, HeadAttention, Kind};
use crate::host::HostLinear;
use crate::load::Reader;
use crate::norm::Norm;
use crate::place::Place;
use crate::rope::RopePairs;
use crate::spec::{AttentionKind, LatentPlan};
use crate::tensors::{LinearPlan, NormTensors, QkvTensors, QueryTensors};
use crate::{DecoderSpec, ModelError};
use kvlab_core::{Adaptation, AttentionWeights, HeadWeights, LatentWeights, LayerId};

/// The attention weights of a layer on the host: what no variant changes, and what one may.
struct HostAttention {
    query: HostQuery,
    rows: HostRows,
    latent_norm: Option<Norm>,
}

/// The key and value side.
enum HostRows {
    Heads(HostHeads),
    Latent(LatentWeights),
}

/// Keys and values per head.
struct HostHeads {
    heads: usize,
    key: HostLinear,
    value: HostLinear,
}

/// The query side, which no variant changes.
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
enum HostQuery {
    Full(HostLinear),
    LowRank {
        down: HostLinear,
        norm: Norm,
        up: HostLinear,
    },
}

impl Reader<'_> {
    pub(crate) fn attention(
        &mut self,
        spec: &DecoderSpec,
        layer: usize,
        adaptation: &Adaptation,
        place: &Place,
    ) -> Result<Attention, ModelError> {
        let (tensors, shape) = (spec.layer_tensors(layer), spec.attention(layer));
        let plan = &tensors.plan.attention;
        let fit = Fit {
            layer: LayerId(layer),
            hidden: spec.hidden,
            query_heads: plan.query_heads,
            key: shape.key,
            rotary: shape.rotary,
            value: shape.value,
            latent_rank: shape.latent.map(|latent| latent.rank),
        };
        let adjacent = plan
            .rope
            .is_some_and(|rope| spec.ropes[rope].pairs == RopePairs::Adjacent);
        let HostAttention {
            query,
            rows,
            latent_norm,
        } = self.host_attention(tensors.qkv(), plan.kind, &fit, adjacent, place)?;
        let norms = tensors
            .head_norms()
            .map(|norms| self.norms(&norms, place))
            .transpose()?;
        let sinks = self.optional(tensors.sinks().as_ref())?;
        let sinks = sinks.map(|sinks| place.tensor_f32(sinks, [plan.query_heads]));
        let rows = match (adaptation, rows) {
            (Adaptation::Keep, rows) => rows,
            (_, rows) => fit.adapted(adaptation, rows.into_weights()?)?.into(),
        };
        let kind = match rows {
            HostRows::Heads(heads) => Kind::Heads(head_attention(&fit, query, heads, norms, place)?),
            HostRows::Latent(weights) => {
                // A softmax does not notice what is added to all scores of a query; these two do.
                let notices = plan.softcap.is_some() || plan.sinks;
                if plan.qkv_bias && notices && shape.latent.is_none() && shape.rotary < shape.key {
                    let reason = "its keys have a bias where they do not turn, which a latent leaves out, and its \
                                  soft cap or its sinks would notice";
                    return Err(fit.refuse(reason));
                }
                let mut latent = latent::attention(&fit, query, weights, latent_norm, norms, place)?;
                latent.store_expanded = matches!(adaptation, Adaptation::ExpandLatent);
                Kind::Latent(latent)
            }
        };
        Ok(Attention {
            layer: LayerId(layer),
            kind,
            output: self.linear(&tensors.output())?.place(place)?,
            rope: plan.rope,
            scale: plan.scale,
            softcap: plan.softcap,
            sinks,
        })
    }

    fn host_attention(
        &mut self,
        tensors: QkvTensors,
        kind: AttentionKind,
        fit: &Fit,
        adjacent: bool,
        place: &Place,
    ) -> Result<HostAttention, ModelError> {
        // Where each head has its turning values, as `(first, how many)`.
        let (head, turns) = match kind {
            AttentionKind::Heads { head_dim, .. } => (head_dim, (0, fit.rotary)),
            AttentionKind::Latent(LatentPlan { nope, rope, .. }) => (nope + rope, (nope, rope)),
        };
        let order = |linear: HostLinear| {
            if adjacent {
                half_split(linear, head, turns)
            } else {
                linear
            }
        };
        match tensors {
            QkvTensors::Separate { query, key, value } => {
                let query = order(self.linear(&query)?);
                let (key, value) = (order(self.linear(&key)?), self.linear(&value)?);
                Ok(HostAttention::heads(query, key, value, head))
            }
            QkvTensors::Fused(qkv) => {
                let qkv = self.linear(&qkv)?;
                let (q, all) = (fit.query_heads * head, qkv.weight.rows());
                let kv = (all - q) / 2;
                let (query, key, value) = (qkv.rows(0..q), qkv.rows(q..q + kv), qkv.rows(q + kv..all));
                Ok(HostAttention::heads(order(query), order(key), value, head))
            }
            QkvTensors::FusedByHead(qkv) => {
                let qkv = self.linear(&qkv)?;
                let part = |which: usize| {
                    let heads = (0..fit.query_heads).map(move |h| (3 * h + which) * head);
                    qkv.reordered(heads.flat_map(|first| first..first + head))
                };
                Ok(HostAttention::heads(order(part(0)), order(part(1)), part(2), head))
            }
            QkvTensors::Latent { query, down, norm, up } => {
                let query = match query {
                    QueryTensors::Full(query) => HostQuery::Full(order(self.linear(&query)?)),
                    QueryTensors::LowRank { down, norm, up } => HostQuery::LowRank {
                        down: self.linear(&down)?,
                        norm: self.norm(&norm, place)?,
                        up: order(self.linear(&up)?),
                    },
                };
                let latent = self.latent_weights(&down, &norm, &up, fit, adjacent, place)?;
                Ok(HostAttention {
                    query,
                    rows: HostRows::Latent(latent.0),
                    latent_norm: Some(latent.1),
                })
            }
        }
    }

    fn latent_weights(
        &mut self,
        down: &LinearPlan,
        norm: &NormTensors,
        up: &LinearPlan,
        fit: &Fit,
        adjacent: bool,
        place: &Place,
    ) -> Result<(LatentWeights, Norm), ModelError> {
        let (rank, nope) = (up.cols, fit.key - fit.rotary);
        let down = self.dense(down)?;
        let norm = self.norm(norm, place)?;
        let up = self.dense(up)?;
        let rope = down.rows(rank..rank + fit.rotary);
        let rope = if adjacent {
            half_split(rope, fit.rotary, (0, fit.rotary))
        } else {
            rope
        };
        // Head after head, the rows of its key and then those of its value.
        let (each, heads) = (nope + fit.value, 0..fit.query_heads);
        let keys = heads.clone().flat_map(|h| h * each..h * each + nope);
        let values = heads.flat_map(|h| h * each + nope..(h + 1) * each);
        let weights = LatentWeights {
            down: down.rows(0..rank).weight.into_matrix()?,
            rope: rope.weight.into_matrix()?,
            rope_bias: None,
            rope_blocks: 1,
            up_key: up.reordered(keys).weight.into_matrix()?,
            up_value: up.reordered(values).weight.into_matrix()?,
            value_bias: None,
        };
        Ok((weights, norm))
    }
}

impl HostAttention {
    fn heads(query: HostLinear, key: HostLinear, value: HostLinear, head_dim: usize) -> Self {
        let heads = key.weight.rows() / head_dim;
        Self {
            query: HostQuery::Full(query),
            rows: HostRows::Heads(HostHeads { heads, key, value }),
            latent_norm: None,
        }
    }
}

impl HostRows {
    /// In f32, for a variant to change.
    fn into_weights(self) -> Result<AttentionWeights, ModelError> {
        Ok(match self {
            Self::Latent(weights) => AttentionWeights::Latent(weights),
            Self::Heads(HostHeads { heads, key, value }) => AttentionWeights::Heads(HeadWeights {
                heads,
                key: key.weight.into_matrix()?,
                value: value.weight.into_matrix()?,
                key_bias: key.bias,
                value_bias: value.bias,
            }),
        })
    }
}

impl From<AttentionWeights> for HostRows {
    fn from(weights: AttentionWeights) -> Self {
        match weights {
            AttentionWeights::Latent(weights) => Self::Latent(weights),
            AttentionWeights::Heads(weights) => Self::Heads(HostHeads {
                heads: weights.heads,
                key: HostLinear::dense(weights.key, weights.key_bias),
                value: HostLinear::dense(weights.value, weights.value_bias),
            }),
        }
    }
}

/// Reorders the turning values of each head from adjacent pairs to half-split ones. Queries and keys in the same
/// order have the same products.
fn half_split(linear: HostLinear, head: usize, (first, turning): (usize, usize)) -> HostLinear {
    let source = |row: usize| {
        let (start, i) = (row - row % head + first, (row % head).wrapping_sub(first));
        match i {
            i if i < turning / 2 => start + 2 * i,
            i if i < turning => start + 2 * (i - turning / 2) + 1,
            _ => row,
        }
    };
    linear.reordered((0..linear.weight.rows()).map(source))
}

fn head_attention(
    fit: &Fit,
    query: HostQuery,
    HostHeads { heads, key, value }: HostHeads,
    norms: Option<[Norm; 2]>,
    place: &Place,
) -> Result<HeadAttention, ModelError> {
    let HostQuery::Full(query) = query else {
        return Err(fit.refuse("low-rank queries with keys and values per head"));
    };
    let [query_norm, key_norm] = norms.map_or([None, None], |norms| norms.map(Some));
    Ok(HeadAttention {
        query_heads: fit.query_heads,
        kv_heads: heads,
        query: query.place(place)?,
        key: key.place(place)?,
        value: value.place(place)?,
        query_norm,
        key_norm,
    })
}
