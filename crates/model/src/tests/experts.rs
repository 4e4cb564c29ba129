//! Experts: which layers have them, what of their configs is refused, and that the file decides who is chosen.

use super::{golden_spec, max_difference, options, spec, tokens, uncached};
use crate::mlp::FeedForward;
use crate::{Activation, Decoder, FeedForwardPlan, Scoring};
use serde_json::{Value, json};

/// DeepSeek-V3 with experts in its last layers, of which there is no golden model.
fn v3(more: Value) -> Value {
    let mut changes = json!({ "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1 });
    let map = changes.as_object_mut().unwrap();
    map.extend(more.as_object().unwrap().clone());
    changes
}

#[test]
fn layers_from_the_first_on_have_experts() {
    let kinds = |name, changes| {
        let spec = spec(name, &changes).unwrap();
        let experts = |l: &crate::LayerPlan| matches!(l.mlp, FeedForwardPlan::Experts(_));
        spec.layers.iter().map(experts).collect::<Vec<_>>()
    };
    let v2 = "deepseekv2_mla_moe";
    assert_eq!(kinds(v2, json!({})), [false, true, true]);
    assert_eq!(kinds(v2, json!({ "first_k_dense_replace": 0 })), [true; 3]);
    assert_eq!(kinds(v2, json!({ "first_k_dense_replace": 3 })), [false; 3]);
    assert_eq!(kinds(v2, json!({ "n_routed_experts": null })), [false; 3]);
    assert_eq!(kinds("deepseekv3_mla_q_yarn", v3(json!({}))), [false, true, true]);
    assert_eq!(kinds("gptoss_sinks", json!({})), [true; 4]);
}

#[test]
fn routing_is_that_of_the_config() {
    let plan = |name, changes: &Value| match spec(name, changes).unwrap().layers.pop().unwrap().mlp {
        FeedForwardPlan::Experts(plan) => plan,
        FeedForwardPlan::Dense(_) => panic!("{name} {changes}: experts expected"),
    };
    let v2 = |changes| plan("deepseekv2_mla_moe", &changes);
    let groups = v2(json!({ "topk_method": "group_limited_greedy", "n_group": 2, "topk_group": 1 }))
        .routing
        .groups;
    assert_eq!(groups.map(|g| (g.count, g.chosen, g.best)), Some((2, 1, 1)));
    let more = v2(json!({ "routed_scaling_factor": 16.0, "n_shared_experts": 2 }));
    assert_eq!((more.routing.factor, more.shared.unwrap().intermediate), (16.0, 48));
    assert!(v2(json!({ "n_shared_experts": null })).shared.is_none());
    assert!(v2(json!({ "norm_topk_prob": true })).routing.normalised);

    let plan3 = plan(
        "deepseekv3_mla_q_yarn",
        &v3(json!({ "norm_topk_prob": null, "routed_scaling_factor": null })),
    );
    assert_eq!(plan3.routing.scoring, Scoring::CorrectedSigmoid);
    assert_eq!((plan3.routing.normalised, plan3.routing.factor), (true, 2.5));
    assert_eq!(
        plan3.routing.groups.map(|g| (g.count, g.chosen, g.best)),
        Some((2, 1, 2))
    );

    let oss = plan("gptoss_sinks", &json!({ "swiglu_limit": 3.0, "swiglu_alpha": null }));
    let clamped = Activation::ClampedSwish {
        alpha: 1.702,
        limit: 3.0,
    };
    assert_eq!(oss.expert.activation, clamped);
}

#[test]
fn what_is_not_built_is_refused() {
    let v2 = "deepseekv2_mla_moe";
    for (name, changes, key) in [
        (v2, json!({ "topk_method": "noaux_tc" }), "topk_method"),
        (v2, json!({ "scoring_func": "sigmoid" }), "scoring_func"),
        (v2, json!({ "moe_layer_freq": 2 }), "moe_layer_freq"),
        (v2, json!({ "num_experts_per_tok": null }), "num_experts_per_tok"),
        (v2, json!({ "num_experts_per_tok": 5 }), "num_experts_per_tok"),
        (v2, json!({ "n_routed_experts": 1 << 20 }), "n_routed_experts"),
        (v2, json!({ "topk_method": "group_limited_greedy" }), "n_group"),
        (
            v2,
            json!({ "norm_topk_prob": true, "routed_scaling_factor": 16.0 }),
            "norm_topk_prob",
        ),
        (
            "deepseekv3_mla_q_yarn",
            v3(json!({ "scoring_func": "softmax" })),
            "scoring_func",
        ),
        (
            "deepseekv3_mla_q_yarn",
            v3(json!({ "topk_method": "greedy" })),
            "topk_method",
        ),
        ("deepseekv3_mla_q_yarn", v3(json!({ "n_group": 3 })), "n_group"),
        (
            "deepseekv3_mla_q_yarn",
            v3(json!({ "n_group": 4, "topk_group": 2 })),
            "n_group",
        ),
        (
            "deepseekv3_mla_q_yarn",
            v3(json!({ "num_experts_per_tok": 3 })),
            "n_group",
        ),
        ("gptoss_sinks", json!({ "experts_per_token": 4 }), "experts_per_token"),
        ("gptoss_sinks", json!({ "hidden_act": "gelu" }), "hidden_act"),
        ("minicpm3_mla", json!({ "n_routed_experts": 4 }), "n_routed_experts"),
    ] {
        let refused = spec(name, &changes)
            .expect_err(&format!("{name} {changes}"))
            .to_string();
        assert!(refused.contains(key), "{refused}");
    }
}

/// All tokens of a step at once are the tokens one by one, also where all go to all experts.
#[test]
fn every_token_goes_its_own_way() {
    let all = json!({ "num_experts_per_tok": 4 });
    for (name, changes) in [
        ("deepseekv2_mla_moe", json!({})),
        ("deepseekv2_mla_moe", all.clone()),
        ("deepseekv3_mla_q_yarn", v3(json!({}))),
        ("gptoss_sinks", all),
    ] {
        let decoder = Decoder::random(spec(name, &changes).unwrap(), 2, &options()).unwrap();
        let tokens = tokens(20, 131);
        let whole = uncached(&decoder, &tokens);
        let one_by_one = super::chunked(&decoder, &tokens, &[1]);
        super::assert_same(&whole, &one_by_one, 1e-4, &format!("{name} {changes}"));
    }
}

/// What a config says of the choice changes what is computed.
#[test]
fn every_part_of_the_routing_counts() {
    let logits = |name, changes: &Value| {
        let decoder = Decoder::random(spec(name, changes).unwrap(), 2, &options()).unwrap();
        uncached(&decoder, &tokens(20, 131))
    };
    let differs = |name, base: &Value, changes: Value| {
        let difference = max_difference(&logits(name, base), &logits(name, &changes));
        assert!(difference > 1e-3, "{name} {changes}: {difference}");
    };
    let v2 = "deepseekv2_mla_moe";
    for changes in [
        json!({ "num_experts_per_tok": 1 }),
        json!({ "norm_topk_prob": true }),
        json!({ "routed_scaling_factor": 2.0 }),
        json!({ "n_shared_experts": 0 }),
        json!({ "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "num_experts_per_tok": 1 }),
    ] {
        differs(v2, &json!({}), changes);
    }
    for changes in [json!({ "n_group": 1 }), json!({ "norm_topk_prob": false })] {
        differs("deepseekv3_mla_q_yarn", &v3(json!({})), v3(changes));
    }
    for changes in [json!({ "swiglu_limit": 0.5 }), json!({ "swiglu_alpha": 1.0 })] {
        differs("gptoss_sinks", &json!({}), changes);
    }
}

/// A correction as large as this decides alone; of another expert's weight it changes nothing.
#[test]
fn the_correction_of_the_file_is_used() {
    let logits = |corrections: Option<[f32; 4]>| {
        let spec = spec(
            "deepseekv3_mla_q_yarn",
            &v3(json!({ "n_group": 1, "num_experts_per_tok": 1 })),
        )
        .unwrap();
        let mut decoder = Decoder::random(spec, 2, &options()).unwrap();
        for block in &mut decoder.blocks[1..] {
            if let (FeedForward::Experts(experts), Some(corrections)) = (&mut block.mlp, corrections) {
                experts.correction = corrections.to_vec();
            }
        }
        uncached(&decoder, &tokens(20, 131))
    };
    let first = logits(Some([9.0, 0.0, 0.0, 0.0]));
    assert!(max_difference(&logits(None), &first) > 1e-3);
    assert!(max_difference(&logits(Some([0.0, 9.0, 0.0, 0.0])), &first) > 1e-3);
    assert_eq!(logits(Some([5.0, -1.0, 1.0, 2.0])), first);
}

#[test]
fn experts_are_named_as_in_hugging_face() {
    let names = |spec: crate::DecoderSpec| spec.tensors().into_iter().map(|t| t.name).collect::<Vec<_>>();
    let v3 = names(spec("deepseekv3_mla_q_yarn", &v3(json!({}))).unwrap());
    for name in [
        "model.layers.1.mlp.gate.weight",
        "model.layers.1.mlp.gate.e_score_correction_bias",
        "model.layers.2.mlp.experts.3.gate_proj.weight",
        "model.layers.2.mlp.shared_experts.down_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
    ] {
        assert!(v3.iter().any(|n| n == name), "{name}");
    }
    let v2 = names(golden_spec("deepseekv2_mla_moe"));
    assert!(!v2.iter().any(|n| n.contains("correction")));
}
