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
    /// Output projection of the attention.
    pub output: &'static str,
    /// Gate of a gated feed-forward network.
    pub gate: &'static str,
    /// Projection into the feed-forward network.
    pub up: &'static str,
    /// Projection out of it.
    pub down: &'static str,
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
    output: "self_attn.o_proj",
    gate: "mlp.gate_proj",
    up: "mlp.up_proj",
    down: "mlp.down_proj",
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
