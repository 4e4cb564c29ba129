//! What single families do that others do not: their defaults, their old spellings, and what they refuse.

use super::{golden_spec, max_difference, options, spec, tokens, uncached};
use crate::{Decoder, ModelError};
use serde_json::{Value, json};

fn refused(name: &str, changes: Value) -> String {
    let refused: ModelError = spec(name, &changes).expect_err(&format!("{name} {changes}"));
    println!("{refused}");
    refused.to_string()
}

fn logits(name: &str, changes: &Value) -> Vec<f32> {
    let decoder = Decoder::random(spec(name, changes).unwrap(), 4, &options()).unwrap();
    uncached(&decoder, &tokens(20, 131))
}

#[test]
fn gpt_neox_rotates_a_quarter_and_has_old_names() {
    let name = "gptneox_mha_partial_rotary";
    let rope = |changes: Value| {
        spec(name, &changes)
            .map(|s| (s.ropes[0].rotary, s.ropes[0].theta))
            .unwrap()
    };
    let with = |more: Value| {
        let mut changes = json!({ "rope_parameters": null });
        changes
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        changes
    };
    assert_eq!(rope(with(json!({}))), (4, 1e4));
    assert_eq!(
        rope(with(json!({ "rotary_pct": 0.5, "rotary_emb_base": 500.0 }))),
        (8, 500.0)
    );
    assert_eq!(rope(with(json!({ "partial_rotary_factor": 1.0 }))), (16, 1e4));
    assert!(refused(name, with(json!({ "rotary_pct": 0.5, "partial_rotary_factor": 0.25 }))).contains("rotary_pct"));
    assert!(refused("llama_mha", json!({ "rotary_pct": 0.25 })).contains("rotary_pct"));
    let shape = golden_spec(name).attention(0);
    assert_eq!((shape.kv_heads, shape.key, shape.rotary), (3, 16, 4));

    let parallel = logits(name, &json!({}));
    assert!(max_difference(&parallel, &logits(name, &json!({ "use_parallel_residual": false }))) > 0.01);
    assert!(max_difference(&parallel, &logits(name, &json!({ "attention_bias": false }))) > 0.01);
}

/// Without `multi_query` the query, the key and the value of each head lie together.
#[test]
fn gpt_bigcode_may_have_a_key_for_every_head() {
    let name = "gptbigcode_mqa";
    assert_eq!(golden_spec(name).attention(0).kv_heads, 1);
    let many = json!({ "multi_query": false, "num_key_value_heads": 4 });
    let many = spec(name, &many).unwrap();
    assert_eq!(many.attention(0).kv_heads, 4);
    let fused = many
        .tensors()
        .into_iter()
        .find(|t| t.name.ends_with("0.attn.c_attn.weight"))
        .unwrap();
    assert_eq!(fused.shape, [144, 48]);
    uncached(&Decoder::random(many, 1, &options()).unwrap(), &[1, 2, 3]);
    assert!(refused(name, json!({ "num_key_value_heads": 4 })).contains("num_key_value_heads"));
    assert!(refused(name, json!({ "add_cross_attention": true })).contains("add_cross_attention"));
}

#[test]
fn phi3_has_no_rope_type_but_the_plain_one() {
    let name = "phi3_swa_partial_rotary";
    for kind in ["longrope", "su", "yarn", "linear"] {
        let table = json!({ "type": kind, "factor": 2.0, "rope_theta": 1e4 });
        assert!(refused(name, json!({ "rope_parameters": table })).contains(kind));
    }
    let windows = |changes| spec(name, &changes).unwrap().attention(2).visibility.window();
    assert_eq!(windows(json!({})), Some(12));
    assert_eq!(windows(json!({ "sliding_window": null })), None);
    let shape = golden_spec(name).attention(1);
    assert_eq!((shape.kv_heads, shape.key, shape.rotary), (2, 8, 4));
}

#[test]
fn smollm3_layers_without_rotation() {
    let name = "smollm3_gqa_nope";
    let rotary = |changes| {
        let spec = spec(name, &changes).unwrap();
        (0..4).map(|layer| spec.attention(layer).rotary).collect::<Vec<_>>()
    };
    assert_eq!(rotary(json!({})), [8, 0, 8, 0]);
    assert_eq!(rotary(json!({ "no_rope_layers": null })), [8, 0, 8, 0]);
    assert_eq!(
        rotary(json!({ "no_rope_layers": null, "no_rope_layer_interval": null })),
        [8, 8, 8, 0]
    );
    assert_eq!(rotary(json!({ "no_rope_layers": [0, 1, 1, 1] })), [0, 8, 8, 8]);
    for list in [json!([1, 0, 1]), json!([1, 0, 1, 2]), json!(1)] {
        assert!(refused(name, json!({ "no_rope_layers": list })).contains("no_rope_layers"));
    }
    assert!(refused("llama_mha", json!({ "no_rope_layers": [1, 1, 0] })).contains("no_rope_layers"));

    let window = json!({ "use_sliding_window": true, "sliding_window": 4, "layer_types": null });
    let spec = spec(name, &window).unwrap();
    let windows: Vec<_> = (0..4).map(|layer| spec.attention(layer).visibility.window()).collect();
    assert_eq!(windows, [None, Some(4), None, Some(4)]);
}

/// A key that is missing has the value of MiniCPM3-4B; one that is null scales nothing.
#[test]
fn minicpm3_scales() {
    let scales = |remove: &[&str], changes: &Value| {
        let mut config = super::config("minicpm3_mla", changes);
        config.retain(|key, _| !remove.contains(&key.as_str()));
        let spec = crate::DecoderSpec::from_config(&config).unwrap();
        (spec.embedding_scale, spec.layers[0].branch_scale, spec.head_scale)
    };
    let depth = |depth: f64| Some((depth / 3.0_f64.sqrt()) as f32);
    assert_eq!(scales(&[], &json!({})), (Some(3.0), depth(1.4), Some(32.0 / 48.0)));
    let missing = ["scale_emb", "scale_depth", "dim_model_base"];
    assert_eq!(
        scales(&missing, &json!({})),
        (Some(12.0), depth(1.4), Some(256.0 / 48.0))
    );
    let null = json!({ "scale_depth": null, "dim_model_base": null });
    assert_eq!(scales(&[], &null), (Some(3.0), None, None));
    assert!(refused("llama_mha", json!({ "scale_depth": 1.4 })).contains("scale_depth"));
}

#[test]
fn gpt_oss_windows_alternate_and_its_defaults_are_not_trusted() {
    let name = "gptoss_sinks";
    let windows = |changes| {
        let spec = spec(name, &changes).unwrap();
        (0..4)
            .map(|layer| spec.attention(layer).visibility.window())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        windows(json!({ "layer_types": null })),
        [Some(12), None, Some(12), None]
    );
    let full = json!({ "layer_types": vec!["full_attention"; 4] });
    assert_eq!(windows(full), [None; 4]);
    for key in [
        "head_dim",
        "num_key_value_heads",
        "rope_parameters",
        "num_local_experts",
    ] {
        assert!(refused(name, json!({ key: null })).contains(key));
    }
    let partial = json!({ "rope_parameters": { "rope_theta": 1e4, "partial_rotary_factor": 0.5 } });
    assert!(refused(name, partial).contains("partial_rotary_factor"));
    assert!(
        golden_spec(name)
            .tensors()
            .iter()
            .any(|t| t.name == "model.layers.3.self_attn.sinks" && t.shape == [6])
    );
    let biased = logits(name, &json!({}));
    assert!(max_difference(&biased, &logits(name, &json!({ "attention_bias": false }))) > 0.01);
}
