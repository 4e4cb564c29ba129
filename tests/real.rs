//! Real models, where their files are: SmolLM2-135M (scripts/fetch-smollm2.sh) and stories260k (`../shared`).

use crate::engine;
use kvlab_engine::Request;
use kvlab_engine::text::Sampling;
use kvlab_testkit::golden::floats;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

fn expected(folder: &Path) -> (Value, Vec<u8>) {
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let tensors = std::fs::read(folder.join("expected.safetensors")).unwrap();
    (serde_json::from_str(&text).unwrap(), tensors)
}

#[test]
fn smollm2() {
    let gguf = root("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !gguf.exists() {
        println!("SKIPPED smollm2: no {} (scripts/fetch-smollm2.sh)", gguf.display());
        return;
    }
    let (expected, tensors) = expected(&root("tests/golden/smollm2"));
    for cache in ["", "variant = \"mha\"", "variant = \"swa\"\nwindow = 2048"] {
        let mut engine = engine(&format!(
            "[model]\npath = {gguf:?}\n[cache]\ncapacity = \"1100 tokens\"\n{cache}"
        ));
        if cache.is_empty() {
            // Panels of SmolLM2 are full, so nothing is added to the bytes of its 4 and 8 bits.
            let file = std::fs::metadata(&gguf).unwrap().len();
            let bytes = engine.weight_bytes();
            assert!(bytes < file && bytes > file * 95 / 100, "{bytes} of {file}");
        }
        for (i, prompt) in expected["prompts"].as_array().unwrap().iter().enumerate() {
            let text = prompt["text"].as_str().unwrap();
            let prompt_ids = engine.tokenizer().unwrap().encode(text, false).unwrap();
            assert_eq!(prompt_ids, ids(&prompt["ids"]), "{text}");
            let (_, want) = floats(&tensors, &format!("last_logits.{i}")).unwrap();
            let mut worst = 0.0_f32;
            engine
                .score(&prompt_ids, 0, &mut |place, row| {
                    if place + 1 == prompt_ids.len() {
                        worst = row.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    }
                })
                .unwrap();
            assert!(worst < 2e-3, "{cache:?}, {text}: off by {worst}");
            // The fourth prompt has a step whose two best logits are 0.007 apart: that is still beyond our error.
            let request = Request {
                max_new_tokens: 48,
                sampling: Sampling::default(),
                ignore_eos: true,
            };
            let done = engine.generate(&[prompt_ids], &request, &mut |_| {}).unwrap();
            assert_eq!(done[0].tokens, ids(&prompt["greedy"]), "{cache:?}, {text}");
            let said = engine.tokenizer().unwrap().decode(&done[0].tokens);
            assert_eq!(said, prompt["text_out"].as_str().unwrap());
        }
        let text = std::fs::read_to_string(root("assets/text/alice_95k.txt")).unwrap();
        let all = engine.tokenizer().unwrap().encode(&text, false).unwrap();
        assert_eq!(
            all.len() as u64,
            expected["perplexity"]["total_tokens"].as_u64().unwrap()
        );
        let (shape, want) = floats(&tensors, "window_nll").unwrap();
        let windows = if cache.is_empty() { shape[0] } else { 1 };
        for window in 0..windows {
            let tokens = &all[window * 1024..][..1024];
            let mut worst = 0.0_f64;
            engine
                .score(tokens, 256, &mut |place, row| {
                    if let Some(&next) = tokens.get(place + 1) {
                        let max = row.iter().fold(f32::MIN, |a, b| a.max(*b));
                        let sum: f64 = row.iter().map(|x| f64::from(x - max).exp()).sum();
                        let nll = sum.ln() - f64::from(row[next as usize] - max);
                        worst = worst.max((nll - f64::from(want[window * 1023 + place])).abs());
                    }
                })
                .unwrap();
            // Chunks this long are multiplied in 16 bits, where the processor does that: docs/design/0007-packed-weights.md.
            assert!(
                worst < 1e-2,
                "{cache:?}, window {window}: a token's loss is off by {worst}"
            );
        }
    }
}

#[test]
fn stories260k() {
    let (model, folder) = (
        root("../shared/models/stories260k"),
        root("../shared/expected/stories260k"),
    );
    if !model.exists() || !folder.exists() {
        println!("SKIPPED stories260k: no {}", model.display());
        return;
    }
    let (expected, tensors) = expected(&folder);
    for cache in ["", "variant = \"none\"", "variant = \"mha\""] {
        let mut engine = engine(&format!("[model]\npath = {model:?}\n[cache]\n{cache}"));
        for (i, prompt) in expected["prompts"].as_array().unwrap().iter().enumerate() {
            let all: Vec<u32> = ids(&prompt["ids"]).into_iter().chain(ids(&prompt["greedy"])).collect();
            let (shape, want) = floats(&tensors, &format!("logits.{i}")).unwrap();
            let mut worst = 0.0_f32;
            engine
                .score(&all, 50, &mut |place, row| {
                    let want = &want[place * shape[1]..][..shape[1]];
                    worst = row.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(worst, f32::max);
                })
                .unwrap();
            assert!(worst < 1e-3, "{cache:?}, prompt {i}: off by {worst}");
        }
    }
}
