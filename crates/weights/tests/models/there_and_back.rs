//! T75: the same weights as safetensors and as GGUF are the same tensors and the same config.

use kvlab_weights::gguf::convert::write_llama;
use kvlab_weights::{Checkpoint, Dtype};

use crate::made::{Gguf, everything, llama_folder, root};

/// Keys that the GGUF of a llama must bring back.
const KEYS: [&str; 15] = [
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "rms_norm_eps",
    "vocab_size",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "tie_word_embeddings",
    "hidden_act",
    "attention_bias",
];

#[test]
fn t75_f32_gives_back_equal_tensors_with_q_of_four_heads_and_k_of_two() {
    for tied in [true, false] {
        let folder = llama_folder(tied);
        let from = Checkpoint::open(folder.path()).unwrap();
        let path = folder.path().join("model.gguf");
        write_llama(&from, &path, Dtype::F32).unwrap();
        let model = Checkpoint::open(&path).unwrap();
        assert_eq!(everything(&model), everything(&from));
        for key in KEYS {
            assert_eq!(model.config().get(key), from.config().get(key), "{key}");
        }
    }
}

#[test]
fn packed_formats_stay_within_their_bound() {
    let folder = llama_folder(false);
    let from = Checkpoint::open(folder.path()).unwrap();
    let path = folder.path().join("model.gguf");
    // Values are within 1: half an ulp, half a step of 1/127, and a whole step of 1/8 (the quant of -8 has no
    // counterpart on the other side), each with half an ulp of the f16 scale.
    for (dtype, bound) in [
        (Dtype::F16, 2.5e-4),
        (Dtype::BF16, 2.0e-3),
        (Dtype::Q8_0, 4.5e-3),
        (Dtype::Q4_0, 0.126),
    ] {
        write_llama(&from, &path, dtype).unwrap();
        let model = Checkpoint::open(&path).unwrap();
        let q = "model.layers.1.self_attn.q_proj.weight";
        assert_eq!(model.info(q).unwrap().dtype, dtype);
        for ((name, shape, got), (_, want_shape, want)) in everything(&model).iter().zip(everything(&from)) {
            assert_eq!(*shape, want_shape, "{name}");
            for (a, b) in got.iter().zip(want) {
                assert!((a - b).abs() <= bound, "{name} {dtype}: {a} {b}");
            }
        }
        // Packed rows are in the same order as unpacked ones.
        let mut unpacked = vec![0.0; 64 * 64];
        kvlab_weights::blocks::dequantize(dtype, &model.packed(q).unwrap(), &mut unpacked).unwrap();
        assert_eq!(unpacked, model.f32(q).unwrap().data);
    }
}

/// By hand, without the writer's own permutation: heads of 8 rows in the order 0 4 1 5 2 6 3 7.
#[test]
fn rows_of_llama_q_and_k_are_put_back_and_those_of_qwen_are_not() {
    let mut made = Gguf::new("llama");
    made.tensor("blk.0.attn_q.weight", &[32, 32]);
    made.tensor("blk.0.attn_k.bias", &[16]);
    made.tensor("blk.0.attn_v.bias", &[16]);
    let model = made.open().unwrap();
    let k = model.f32("model.layers.0.self_attn.k_proj.bias").unwrap();
    let half_split = [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15];
    assert_eq!(k.data, half_split.map(|i| i as f32));
    let v = model.f32("model.layers.0.self_attn.v_proj.bias").unwrap();
    assert_eq!(v.data[1], 1.0);
    let q = model.f32("model.layers.0.self_attn.q_proj.weight").unwrap();
    let firsts: Vec<f32> = (0..16).map(|row| q.data[row * 32] / 32.0).collect();
    assert_eq!(firsts, half_split.map(|i| i as f32));

    let mut made = Gguf::new("qwen2");
    made.tensor("blk.0.attn_q.weight", &[32, 32]);
    let model = made.open().unwrap();
    let q = model.f32("model.layers.0.self_attn.q_proj.weight").unwrap();
    assert_eq!(q.data[32], 32.0);
}

/// The tiny models with expected values, where the workspace has them.
#[test]
fn t75_llama_goldens() {
    let golden = root().join("tests/golden");
    for (name, rope) in [
        ("llama_mha", None),
        ("llama_mqa", None),
        ("llama_gqa_smollm2_shape", None),
        ("llama_gqa_rope_linear", Some("linear")),
        ("llama_gqa_rope_yarn", Some("yarn")),
        ("llama_gqa_rope_llama3", None),
        ("mistral_swa", None),
    ] {
        let Ok(from) = Checkpoint::open(&golden.join(name)) else {
            println!("skipped {name}: not under {}", golden.display());
            continue;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        write_llama(&from, &path, Dtype::F32).unwrap();
        let model = Checkpoint::open(&path).unwrap();
        let mut got = everything(&model);
        let factors = got.iter().position(|(name, ..)| name == "rope_freqs.weight");
        assert_eq!(factors.is_some(), name.ends_with("llama3"), "{name}");
        if let Some(factors) = factors {
            let (_, shape, factors) = got.remove(factors);
            assert_eq!(shape, [8]);
            assert_eq!(factors[0], 1.0);
            assert_eq!(factors[7], 8.0);
        }
        assert_eq!(got, everything(&from), "{name}");
        let scaling = &model.config()["rope_scaling"];
        assert_eq!(scaling.get("rope_type").and_then(|t| t.as_str()), rope, "{name}");
        for key in KEYS {
            if let Some(want) = from.config().get(key) {
                assert_eq!(model.config().get(key), Some(want), "{name} {key}");
            }
        }
    }
}
