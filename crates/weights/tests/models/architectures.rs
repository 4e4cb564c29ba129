//! Other GGUF architectures: names, layouts and configs come back as Hugging Face has them.

use kvlab_weights::gguf::write::Meta;
use serde_json::json;

use crate::made::Gguf;

#[test]
fn gemma_norms_lose_the_one_that_the_converter_added() {
    for architecture in ["gemma2", "gemma3"] {
        let mut made = Gguf::new(architecture);
        made.tensor("blk.0.attn_q.weight", &[32, 32]);
        for part in ["attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"] {
            made.tensor(&format!("blk.0.{part}.weight"), &[32]);
        }
        made.tensor("blk.0.attn_q_norm.weight", &[8]);
        let model = made.open().unwrap();
        for name in [
            "model.norm.weight",
            "model.layers.0.input_layernorm.weight",
            "model.layers.0.pre_feedforward_layernorm.weight",
            "model.layers.0.post_attention_layernorm.weight",
            "model.layers.0.post_feedforward_layernorm.weight",
            "model.layers.0.self_attn.q_norm.weight",
        ] {
            let data = model.f32(name).unwrap().data;
            assert_eq!(data[..3], [-1.0, 0.0, 1.0], "{architecture} {name}");
        }
        let q = model.f32("model.layers.0.self_attn.q_proj.weight").unwrap();
        assert_eq!(q.data[..3], [0.0, 1.0, 2.0]);
    }
}

#[test]
fn gemma_layers_alternate() {
    let mut made = Gguf::new("gemma2");
    made.set("gemma2.block_count", Meta::U32(2));
    made.set("gemma2.attention.sliding_window", Meta::U32(12));
    made.set("gemma2.attention.key_length", Meta::U32(16));
    made.set("gemma2.attention.value_length", Meta::U32(16));
    let config = made.open().unwrap().config().clone();
    assert_eq!(config["layer_types"], json!(["sliding_attention", "full_attention"]));
    assert_eq!(config["query_pre_attn_scalar"], 16.0);
    assert_eq!(config["attn_logit_softcapping"], 50.0);
    assert_eq!(config["sliding_window"], 12);

    let mut made = Gguf::new("gemma3");
    made.set("gemma3.block_count", Meta::U32(3));
    made.tensor("blk.0.attn_norm.weight", &[32]);
    made.set("gemma3.attention.sliding_window", Meta::U32(12));
    made.set(
        "gemma3.attention.sliding_window_pattern",
        Meta::Bools(vec![true, false, true]),
    );
    made.set("gemma3.rope.freq_base", Meta::F32(1e6));
    made.set("gemma3.rope.scaling.type", "linear".into());
    made.set("gemma3.rope.scaling.factor", Meta::F32(8.0));
    let config = made.open().unwrap().config().clone();
    let types = json!(["sliding_attention", "full_attention", "sliding_attention"]);
    assert_eq!(config["layer_types"], types);
    assert_eq!(config["model_type"], "gemma3_text");
    assert_eq!(config["rope_theta"], 1e6);
    assert_eq!(config["rope_local_base_freq"], 10000.0);
    assert_eq!(config["rope_scaling"], json!({"rope_type": "linear", "factor": 8.0}));
    made.set("gemma3.attention.sliding_window_pattern", Meta::Bools(vec![true]));
    assert!(made.error().contains("1 entries for 3 layers"));
}

#[test]
fn gpt2_matrices_are_stored_in_by_out() {
    let mut made = Gguf::new("gpt2");
    made.tensor("position_embd.weight", &[64, 32]);
    made.tensor("blk.0.attn_qkv.weight", &[96, 32]);
    made.tensor("blk.0.attn_qkv.bias", &[96]);
    made.tensor("blk.0.ffn_down.weight", &[32, 48]);
    made.tensor("blk.0.ffn_norm.bias", &[32]);
    let model = made.open().unwrap();
    let qkv = model.f32("transformer.h.0.attn.c_attn.weight").unwrap();
    assert_eq!(qkv.shape, [32, 96]);
    assert_eq!(qkv.data[..3], [0.0, 32.0, 64.0]);
    assert_eq!(qkv.data[96], 1.0);
    assert_eq!(model.info("transformer.h.0.mlp.c_proj.weight").unwrap().shape, [48, 32]);
    for name in [
        "transformer.wte.weight",
        "transformer.wpe.weight",
        "transformer.ln_f.weight",
        "transformer.h.0.attn.c_attn.bias",
        "transformer.h.0.ln_2.bias",
    ] {
        assert!(model.info(name).is_some(), "{name}");
    }
    let config = model.config();
    assert_eq!(config["n_embd"], 32);
    assert_eq!(config["n_inner"], 48);
    assert_eq!(config["layer_norm_epsilon"], 1e-5);
}

/// 4 heads, latent 16, nope 8, rope 4, value 12.
fn deepseek() -> Gguf {
    let mut made = Gguf::new("deepseek2");
    for (key, n) in [
        ("attention.kv_lora_rank", 16),
        ("attention.key_length_mla", 12),
        ("attention.value_length_mla", 12),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 20),
        ("attention.value_length", 16),
        ("rope.dimension_count", 4),
    ] {
        made.set(&format!("deepseek2.{key}"), Meta::U32(n));
    }
    made
}

#[test]
fn deepseek_kv_b_is_joined_from_its_parts() {
    let mut made = deepseek();
    made.tensor("blk.0.attn_k_b.weight", &[4, 16, 8]);
    made.tensor("blk.0.attn_v_b.weight", &[4, 12, 16]);
    let model = made.open().unwrap();
    let kv_b = model.f32("model.layers.0.self_attn.kv_b_proj.weight").unwrap();
    assert_eq!(kv_b.shape, [4 * (8 + 12), 16]);
    let at = |row: usize, column: usize| kv_b.data[row * 16 + column];
    for head in 0..4 {
        for latent in 0..16 {
            for nope in 0..8 {
                let stored = (head * 16 + latent) * 8 + nope;
                assert_eq!(at(head * 20 + nope, latent), stored as f32);
            }
            for value in 0..12 {
                let stored = (head * 12 + value) * 16 + latent;
                assert_eq!(at(head * 20 + 8 + value, latent), stored as f32);
            }
        }
    }
    let config = model.config();
    assert_eq!(config["model_type"], "deepseek_v2");
    assert_eq!(config["num_key_value_heads"], 4);
    assert_eq!(config["qk_nope_head_dim"], 8);
    assert_eq!(config["v_head_dim"], 12);
    assert_eq!(config["q_lora_rank"], json!(null));

    made.tensors.pop();
    assert!(made.error().contains("attn_v_b"), "{}", made.error());
    made.tensor("blk.0.attn_v_b.weight", &[4, 16, 12]);
    assert!(made.error().contains("[4, 12, 16]"), "{}", made.error());
}

#[test]
fn deepseek_whole_kv_b_and_old_keys() {
    let mut made = deepseek();
    made.unset("deepseek2.attention.key_length_mla");
    made.unset("deepseek2.attention.value_length_mla");
    made.tensor("blk.0.attn_kv_b.weight", &[96, 16]);
    made.tensor("blk.0.attn_k_b.weight", &[4, 16, 8]);
    made.tensor("blk.0.attn_kv_a_mqa.weight", &[20, 32]);
    made.tensor("blk.0.attn_kv_a_norm.weight", &[16]);
    made.set("deepseek2.rope.scaling.type", "yarn".into());
    made.set("deepseek2.rope.scaling.factor", Meta::F32(4.0));
    made.set("deepseek2.rope.scaling.original_context_length", Meta::U32(32));
    made.set("deepseek2.rope.scaling.yarn_log_multiplier", Meta::F32(0.0707));
    let model = made.open().unwrap();
    let whole = "model.layers.0.self_attn.kv_b_proj.weight";
    assert_eq!(model.info(whole).unwrap().shape, [96, 16]);
    assert!(model.info("blk.0.attn_k_b.weight").is_some());
    assert_eq!(model.config()["qk_nope_head_dim"], 16);
    let scaling = json!({
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
        "mscale": 0.707, "mscale_all_dim": 0.707,
    });
    assert_eq!(model.config()["rope_scaling"], scaling);
}

#[test]
fn deepseek_experts_are_unstacked() {
    let mut made = deepseek();
    for (key, n) in [
        ("expert_count", 3),
        ("expert_used_count", 2),
        ("expert_shared_count", 1),
        ("expert_feed_forward_length", 6),
        ("expert_gating_func", 2),
    ] {
        made.set(&format!("deepseek2.{key}"), Meta::U32(n));
    }
    made.tensor("blk.0.ffn_up_exps.weight", &[3, 6, 32]);
    made.tensor("blk.0.ffn_gate_inp.weight", &[3, 32]);
    made.tensor("blk.0.exp_probs_b.bias", &[3]);
    let model = made.open().unwrap();
    let second = model.f32("model.layers.0.mlp.experts.1.up_proj.weight").unwrap();
    assert_eq!(second.shape, [6, 32]);
    assert_eq!(second.data[0], 6.0 * 32.0);
    assert_eq!(model.config()["model_type"], "deepseek_v3");
    assert_eq!(model.config()["n_routed_experts"], 3);
    assert!(model.info("model.layers.0.mlp.gate.e_score_correction_bias").is_some());
    made.set("deepseek2.expert_count", Meta::U32(4));
    assert!(made.error().contains("3 experts, and expert_count is 4"));
}

#[test]
fn qwen_configs() {
    for architecture in ["qwen2", "qwen3"] {
        let mut made = Gguf::new(architecture);
        made.set(&format!("{architecture}.rope.freq_base"), Meta::F32(1e6));
        made.tensor("blk.0.attn_k_norm.weight", &[8]);
        made.tensor("output.weight", &[10, 32]);
        let model = made.open().unwrap();
        let config = model.config();
        assert_eq!(config["model_type"], architecture);
        assert_eq!(config["head_dim"], 8);
        assert_eq!(config["tie_word_embeddings"], false);
        assert_eq!(config["vocab_size"], 10);
        assert!(model.info("lm_head.weight").is_some());
        assert!(model.info("model.layers.0.self_attn.k_norm.weight").is_some());
    }
}

#[test]
fn mistral_is_a_llama_with_a_window_and_part_of_a_head_may_rotate() {
    let mut made = Gguf::new("llama");
    made.set("llama.attention.sliding_window", Meta::U32(16));
    made.set("llama.rope.dimension_count", Meta::U32(4));
    let config = made.open().unwrap().config().clone();
    assert_eq!(config["model_type"], "mistral");
    assert_eq!(config["sliding_window"], 16);
    assert_eq!(config["partial_rotary_factor"], 0.5);
}

#[test]
fn unknown_names_and_rope_factors_are_listed_as_they_are() {
    let mut made = Gguf::new("llama");
    made.tensor("rope_freqs.weight", &[4]);
    made.tensor("blk.0.something.weight", &[4]);
    let model = made.open().unwrap();
    let names: Vec<&str> = model.names().collect();
    assert_eq!(names[2..], ["rope_freqs.weight", "blk.0.something.weight"]);
}
