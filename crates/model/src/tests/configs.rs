//! Configs: spellings, windows, and what is refused.

use super::{config, golden_spec, spec};
use crate::{DecoderSpec, ModelError, RopeScaling};
use kvlab_core::Visibility;
use serde_json::{Value, json};

fn windows(name: &str, changes: Value) -> Vec<Option<usize>> {
    let spec = spec(name, &changes).unwrap();
    spec.layers.iter().map(|l| l.attention.visibility.window()).collect()
}

fn refused(name: &str, changes: Value) -> String {
    let message = spec(name, &changes)
        .map(|_| ())
        .expect_err(&format!("{name} {changes}"))
        .to_string();
    println!("{message}");
    message
}

/// T09, family by family.
#[test]
fn windows_of_every_layer() {
    let (on, off) = (Some(4), None);
    let w = |more: Value| {
        let mut changes = json!({ "sliding_window": 4 });
        changes
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        changes
    };
    assert_eq!(windows("mistral_swa", w(json!({}))), [on; 3]);
    assert_eq!(windows("mistral_swa", json!({ "sliding_window": null })), [off; 3]);
    assert_eq!(
        windows("mistral_swa", w(json!({ "use_sliding_window": false }))),
        [off; 3]
    );

    for name in ["qwen2_gqa_qkv_bias", "qwen3_gqa_qknorm"] {
        let no_list = json!({ "layer_types": null, "max_window_layers": 2 });
        assert_eq!(
            windows(name, w(json!({ "use_sliding_window": false }))),
            [off; 3],
            "{name}"
        );
        assert_eq!(windows(name, w(no_list.clone())), [off; 3], "{name}: off by default");
        let mut used = no_list;
        used["use_sliding_window"] = json!(true);
        assert_eq!(windows(name, w(used)), [off, off, on], "{name}");
        let listed = json!({
            "use_sliding_window": true,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        });
        assert_eq!(windows(name, w(listed)), [on, off, on], "{name}");
    }

    let no_list = || w(json!({ "layer_types": null }));
    assert_eq!(windows("gemma2_hybrid_softcap", no_list()), [on, off, on, off]);
    let pattern = json!({ "layer_types": null, "num_hidden_layers": 7 });
    assert_eq!(windows("gemma3_mqa_hybrid", w(pattern)), [on, on, on, on, on, off, on]);
    let pattern = json!({ "layer_types": null, "_sliding_window_pattern": null, "sliding_window_pattern": 2 });
    assert_eq!(windows("gemma3_mqa_hybrid", w(pattern)), [on, off, on, off]);

    for name in [
        "gemma2_hybrid_softcap",
        "gemma3_mqa_hybrid",
        "qwen2_gqa_qkv_bias",
        "mistral_swa",
    ] {
        let message = refused(name, json!({ "layer_types": ["full_attention"] }));
        assert!(
            message.contains("layer_types") && message.contains("a list of 1"),
            "{message}"
        );
        let message = refused(
            name,
            json!({ "layer_types": ["a", "b", "c", "d"], "num_hidden_layers": 4 }),
        );
        assert!(message.contains("\"a\""), "{message}");
        for window in [json!(0), json!(-4), json!(2.5), json!("four")] {
            assert!(refused(name, json!({ "sliding_window": window })).contains("sliding_window"));
        }
    }
}

/// The rotary embedding of a Gemma 3 layer goes by its kind.
#[test]
fn gemma3_has_two_rotary_embeddings() {
    let spec = golden_spec("gemma3_mqa_hybrid");
    let (thetas, scalings): (Vec<f64>, Vec<_>) = spec.ropes.iter().map(|r| (r.theta, r.scaling.clone())).unzip();
    assert_eq!(thetas, [1e6, 1e4]);
    assert_eq!(scalings, [RopeScaling::Linear { factor: 8.0 }, RopeScaling::Default]);
    let ropes: Vec<_> = spec.layers.iter().map(|l| l.attention.rope).collect();
    assert_eq!(ropes, [Some(1), Some(1), Some(0), Some(1)]);
    assert_eq!(spec.layers[2].attention.visibility, Visibility::Causal);
}

/// T71: `type` and `rope_type`, in `rope_scaling` and `rope_parameters`, are the same; others are refused.
#[test]
fn rope_types() {
    let table = |key: &str| {
        json!({ key: "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32 })
    };
    let hub = |key| json!({ "rope_parameters": null, "rope_theta": 1e4, "rope_scaling": table(key) });
    let want = golden_spec("llama_gqa_rope_llama3").ropes;
    for changes in [hub("type"), hub("rope_type")] {
        assert_eq!(spec("llama_gqa_rope_llama3", &changes).unwrap().ropes, want);
    }
    for kind in ["dynamic", "longrope", "mrope", "su"] {
        let message = refused(
            "llama_mha",
            json!({ "rope_parameters": { "type": kind, "factor": 2.0 } }),
        );
        assert!(message.contains(kind) && message.contains("llama3"), "{message}");
    }
    for table in [
        json!({ "rope_type": "linear", "type": "yarn", "factor": 2.0 }),
        json!({ "factor": 2.0 }),
        json!({ "rope_type": "linear" }),
        json!({ "rope_type": "linear", "factor": -1.0 }),
        json!({ "rope_type": "linear", "factor": 2.0, "short_factor": [1.0] }),
        json!({ "rope_type": "default", "partial_rotary_factor": 0.1 }),
        json!(3),
    ] {
        assert!(
            refused("llama_mha", json!({ "rope_parameters": table })).contains("rope_parameters")
                || refused("llama_mha", json!({ "rope_parameters": table })).contains("partial_rotary_factor")
        );
    }
    let both = json!({ "rope_scaling": { "type": "linear", "factor": 2.0 } });
    assert!(refused("llama_mha", both).contains("both"));
}

/// T76: a rotary part smaller than the head.
#[test]
fn a_part_of_the_head_may_turn() {
    let changes = json!({ "partial_rotary_factor": 0.5, "rope_parameters": null });
    let spec = spec("llama_gqa_rope_linear", &changes).unwrap();
    assert_eq!((spec.attention(0).rotary, spec.attention(0).key), (8, 16));
}

/// T83: the head size is that of the config, also where hidden size and heads do not imply it.
#[test]
fn the_head_size_is_independent() {
    let spec = spec("llama_mha", &json!({ "hidden_size": 40, "head_dim": 16 })).unwrap();
    let query = spec
        .tensors()
        .into_iter()
        .find(|t| t.name.ends_with("0.self_attn.q_proj.weight"))
        .unwrap();
    assert_eq!(query.shape, [64, 40]);
    crate::Decoder::random(spec, 1, &super::options()).unwrap();
}

#[test]
fn what_changes_the_model_and_is_not_built_is_refused() {
    for (name, changes, key) in [
        ("mistral_swa", json!({ "attention_bias": true }), "attention_bias"),
        (
            "deepseekv3_mla_q_yarn",
            json!({ "attention_bias": true }),
            "attention_bias",
        ),
        ("qwen2_gqa_qkv_bias", json!({ "mlp_bias": true }), "mlp_bias"),
        ("llama_mha", json!({ "hidden_act": "relu2" }), "hidden_act"),
        ("llama_mha", json!({ "num_local_experts": 8 }), "num_local_experts"),
        (
            "llama_mha",
            json!({ "sliding_window": 8, "use_sliding_window": true,
            "layer_types": ["chunked_attention", "full_attention", "full_attention"] }),
            "layer_types",
        ),
        (
            "llama_mha",
            json!({ "quantization_config": { "bits": 4 } }),
            "quantization_config",
        ),
        (
            "llama_mha",
            json!({ "attn_logit_softcapping": 30.0 }),
            "attn_logit_softcapping",
        ),
        ("llama_mha", json!({ "kv_lora_rank": 16 }), "kv_lora_rank"),
        ("llama_mha", json!({ "num_key_value_heads": 3 }), "num_key_value_heads"),
        ("llama_mha", json!({ "hidden_size": null }), "hidden_size"),
        (
            "llama_mha",
            json!({ "num_hidden_layers": 1_000_000_000_000_u64 }),
            "num_hidden_layers",
        ),
        (
            "llama_mha",
            json!({ "max_position_embeddings": 1_000_000_000_u64 }),
            "max_position_embeddings",
        ),
        (
            "gemma3_mqa_hybrid",
            json!({ "use_bidirectional_attention": true }),
            "use_bidirectional_attention",
        ),
        (
            "gpt2_mha",
            json!({ "add_cross_attention": true }),
            "add_cross_attention",
        ),
        ("gpt2_mha", json!({ "n_head": 7 }), "n_head"),
    ] {
        assert!(refused(name, changes).contains(key));
    }
}

#[test]
fn an_unknown_family_is_named_with_those_that_are_known() {
    let mut config = config("llama_mha", &json!({}));
    config.insert("model_type".into(), json!("mamba"));
    let refused = DecoderSpec::from_config(&config).unwrap_err();
    assert!(matches!(refused, ModelError::UnknownFamily { .. }));
    let message = refused.to_string();
    for family in ["mamba", "llama", "gemma3_text", "deepseek_v3"] {
        assert!(message.contains(family), "{message}");
    }
}
