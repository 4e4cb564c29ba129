//! A real file: SmolLM2-135M-Instruct, Q4_1 with a Q8_0 embedding, against numbers from transformers.

use std::path::PathBuf;
use std::time::Instant;

use kvlab_weights::{Checkpoint, Dtype, TokenizerSource};
use serde_json::{Value, json};

use crate::made::root;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const EXPECTED: &str = include_str!("expected/smollm2_135m_q4_1.json");

/// In `models/` of the workspace, in /tmp/smol, or in a folder of it.
fn file() -> Option<PathBuf> {
    let mut places = vec![root().join("models"), PathBuf::from("/tmp/smol")];
    let inner = std::fs::read_dir("/tmp/smol").ok();
    places.extend(inner.into_iter().flatten().flatten().map(|e| e.path()));
    let mut paths = places.into_iter().map(|place| place.join(FILE));
    paths.find(|path| path.is_file())
}

fn opened() -> Option<Checkpoint> {
    let Some(path) = file() else {
        println!("skipped: {FILE} is neither under models/ nor under /tmp/smol");
        return None;
    };
    Some(Checkpoint::open(&path).unwrap())
}

#[test]
fn smollm2_tensors_equal_those_of_transformers() {
    let Some(model) = opened() else { return };
    let expected: Value = serde_json::from_str(EXPECTED).unwrap();
    for (name, want) in expected["tensors"].as_object().unwrap() {
        // transformers lists the tied head too.
        let tied = name == "lm_head.weight" && model.config()["tie_word_embeddings"] == true;
        let name = if tied { "model.embed_tokens.weight" } else { name };
        let tensor = model.f32(name).unwrap();
        assert_eq!(json!(tensor.shape), want["shape"], "{name}");
        let number = |key: &str| want[key].as_f64().unwrap();
        let first = want["first8"].as_array().unwrap();
        for (got, want) in tensor.data.iter().zip(first) {
            let error = (f64::from(*got) - want.as_f64().unwrap()).abs();
            assert!(error < 1e-6, "{name}: {got} {want}");
        }
        let exact = tensor.data.iter().map(|x| f64::from(*x));
        let l2 = exact.clone().map(|x| x * x).sum::<f64>().sqrt();
        assert!((l2 / number("l2") - 1.0).abs() < 1e-6, "{name}: {l2}");
        // The expected sum was taken in f32 in part.
        let sum: f64 = exact.sum();
        let error = (sum - number("sum")).abs();
        assert!(error < 1e-2 + 1e-5 * sum.abs(), "{name}: {sum}");
    }
}

#[test]
fn smollm2_config_and_tokenizer() {
    let Some(model) = opened() else { return };
    let want = json!({
        "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "head_dim": 64, "intermediate_size": 1536, "rms_norm_eps": 1e-5,
        "vocab_size": 49152, "max_position_embeddings": 8192, "rope_theta": 100000.0,
        "rope_scaling": null, "tie_word_embeddings": true, "hidden_act": "silu",
        "bos_token_id": 1, "eos_token_id": 2,
    });
    for (key, value) in want.as_object().unwrap() {
        assert_eq!(model.config().get(key), Some(value), "{key}");
    }
    let TokenizerSource::Gguf(tokenizer) = model.tokenizer() else {
        panic!("no tokenizer");
    };
    assert_eq!(
        (tokenizer.model.as_str(), tokenizer.pre.as_deref()),
        ("gpt2", Some("smollm"))
    );
    assert_eq!((tokenizer.tokens.len(), tokenizer.merges.len()), (49152, 48900));
    assert_eq!(tokenizer.token_types.len(), 49152);
    assert_eq!(
        (tokenizer.tokens[2].as_str(), tokenizer.merges[0].as_str()),
        ("<|im_end|>", "Ġ t")
    );
    assert!(!tokenizer.add_bos && !tokenizer.add_space_prefix);
    assert_eq!(model.end_tokens(), [2]);
    assert!(model.chat_template().unwrap().contains("<|im_start|>"));
    assert_eq!(model.names().count(), 272);
    assert_eq!(model.file_bytes(), 98_362_432);
    let q = model.info("model.layers.29.self_attn.q_proj.weight").unwrap();
    assert_eq!((q.shape, q.dtype), (vec![576, 576], Dtype::Q4_1));
    assert!(model.info("lm_head.weight").is_none());
}

#[test]
fn smollm2_unpacks_in_about_a_second() {
    let Some(path) = file() else {
        println!("skipped: {FILE} is neither under models/ nor under /tmp/smol");
        return;
    };
    let start = Instant::now();
    let model = Checkpoint::open(&path).unwrap();
    let opened = start.elapsed();
    let start = Instant::now();
    let numbers: usize = model.names().map(|name| model.f32(name).unwrap().data.len()).sum();
    let unpacked = start.elapsed();
    let start = Instant::now();
    model.fingerprint();
    println!(
        "open {opened:?}, {numbers} numbers {unpacked:?}, fingerprint {:?}",
        start.elapsed()
    );
    assert_eq!(numbers, 134_515_008);
}
