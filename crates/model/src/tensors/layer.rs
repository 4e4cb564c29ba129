//! The tensors of one layer.

use super::{
    LayerTensors, LinearPlan, NormTensors, QkvTensors, QueryTensors, Role, TensorPlan, list_linear, list_norm, norm,
    tensor,
};
use crate::families::{AttentionNames, LATENT};
use crate::spec::{AttentionKind, LatentPlan, NormPlan};

impl LayerTensors<'_> {
    pub(super) fn linear(&self, stem: &str, rows: usize, cols: usize, bias: bool) -> LinearPlan {
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
                    AttentionNames::FusedByHead(stem) => QkvTensors::FusedByHead(linear(stem, queries + 2 * rows)),
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

    /// The score of each query head that has no value.
    pub(crate) fn sinks(&self) -> Option<TensorPlan> {
        let attention = &self.plan.attention;
        attention
            .sinks
            .then(|| self.bare(self.names.sinks, vec![attention.query_heads], Role::Sinks))
    }

    /// Every tensor, in the order of loading.
    pub(super) fn list(&self, all: &mut Vec<TensorPlan>) {
        match self.qkv() {
            QkvTensors::Separate { query, key, value } => {
                [query, key, value].into_iter().for_each(|l| list_linear(l, all));
            }
            QkvTensors::Fused(qkv) | QkvTensors::FusedByHead(qkv) => list_linear(qkv, all),
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
        all.extend(self.sinks());
        list_linear(self.output(), all);
        let norms = [Some(self.pre_norms()), self.post_norms()];
        norms.into_iter().flatten().flatten().for_each(|n| list_norm(n, all));
        self.feed_forward().list(all);
    }
}
