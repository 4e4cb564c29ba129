//! The Hugging Face names of the weights of a family.

/// Names of tensors, without `.weight` and `.bias`; those of a layer without the layer's prefix.
#[derive(Debug)]
pub struct Names {
    /// What every name begins with, except in files of the bare model, which leave it out.
    pub base: &'static str,
    /// Token embedding.
    pub embedding: &'static str,
    /// Position embedding, where there is one.
    pub positions: &'static str,
    /// What the names of a layer begin with; its number and a dot follow.
    pub layer: &'static str,
    /// Norm before the attention.
    pub attention_norm: &'static str,
    /// Norm after the attention, where there is one.
    pub post_attention_norm: &'static str,
    /// Norm before the feed-forward network.
    pub mlp_norm: &'static str,
    /// Norm after the feed-forward network, where there is one.
    pub post_mlp_norm: &'static str,
    /// Query, key and value projections.
    pub attention: AttentionNames,
    /// Norm of each query head, where there is one.
    pub query_norm: &'static str,
    /// Norm of each key head, where there is one.
    pub key_norm: &'static str,
    /// The learned score of each query head that has no value, where there is one; no `.weight` follows.
    pub sinks: &'static str,
    /// Output projection of the attention.
    pub output: &'static str,
    /// Gate of a gated feed-forward network; empty where the gate is the first half of `up`.
    pub gate: &'static str,
    /// Projection into the feed-forward network.
    pub up: &'static str,
    /// Projection out of it.
    pub down: &'static str,
    /// Experts, where there are any.
    pub experts: ExpertNames,
    /// Norm before the head.
    pub final_norm: &'static str,
    /// The head, where it is not tied.
    pub head: &'static str,
    /// Matrices are stored `[in, out]` (`Conv1D`) instead of `[out, in]`.
    pub matrices_in_out: bool,
    /// Ends of names of buffers that old files hold and no model needs.
    pub buffers: &'static [&'static str],
}

/// Query, key and value projections.
#[derive(Debug)]
pub enum AttentionNames {
    /// A tensor each.
    Separate {
        /// Queries.
        query: &'static str,
        /// Keys.
        key: &'static str,
        /// Values.
        value: &'static str,
    },
    /// One tensor, queries first, then keys, then values.
    Fused(&'static str),
    /// One tensor; the query, the key and the value of each head lie together.
    FusedByHead(&'static str),
}

/// A mixture of experts.
#[derive(Debug)]
pub struct ExpertNames {
    /// The router.
    pub router: &'static str,
    /// What is added to the scores for the choice, where there is such a thing; no `.weight` follows.
    pub correction: &'static str,
    /// What the names of the network that every token uses begin with; names as in a dense layer follow, from the
    /// last dot on.
    pub shared: &'static str,
    /// The experts.
    pub storage: ExpertStorage,
}

/// How experts lie in a file.
#[derive(Debug)]
pub enum ExpertStorage {
    /// Tensors for each, as in a dense layer; what their names begin with, and the number of the expert follows.
    Separate(&'static str),
    /// One tensor for all, `[experts, in, out]`, and one for all their biases, `[experts, out]`; no `.weight` follows.
    Stacked {
        /// Gate and projection in: columns `0, 2, 4 ..` are the gate.
        gate_up: &'static str,
        /// Projection out.
        down: &'static str,
        /// What the names of the biases end with.
        bias: &'static str,
    },
}

/// The names that Llama introduced and most families kept.
pub(crate) const LLAMA: Names = Names {
    base: "model.",
    embedding: "model.embed_tokens",
    positions: "",
    layer: "model.layers.",
    attention_norm: "input_layernorm",
    post_attention_norm: "",
    mlp_norm: "post_attention_layernorm",
    post_mlp_norm: "",
    attention: AttentionNames::Separate {
        query: "self_attn.q_proj",
        key: "self_attn.k_proj",
        value: "self_attn.v_proj",
    },
    query_norm: "self_attn.q_norm",
    key_norm: "self_attn.k_norm",
    sinks: "self_attn.sinks",
    output: "self_attn.o_proj",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
    experts: ExpertNames {
        router: "mlp.gate",
        correction: "mlp.gate.e_score_correction_bias",
        shared: "mlp.shared_experts",
        storage: ExpertStorage::Separate("mlp.experts."),
    },
    final_norm: "model.norm",
    head: "lm_head",
    matrices_in_out: false,
    buffers: &[".rotary_emb.inv_freq"],
};

/// The projections of latent attention, in all families that have it.
pub(crate) struct LatentNames {
    pub(crate) query: &'static str,
    pub(crate) query_down: &'static str,
    pub(crate) query_norm: &'static str,
    pub(crate) query_up: &'static str,
    pub(crate) down: &'static str,
    pub(crate) norm: &'static str,
    pub(crate) up: &'static str,
}

pub(crate) const LATENT: LatentNames = LatentNames {
    query: "self_attn.q_proj",
    query_down: "self_attn.q_a_proj",
    query_norm: "self_attn.q_a_layernorm",
    query_up: "self_attn.q_b_proj",
    down: "self_attn.kv_a_proj_with_mqa",
    norm: "self_attn.kv_a_layernorm",
    up: "self_attn.kv_b_proj",
};
