//! The byte models of `assets/bytes`: greedy, uncached, as Hugging Face did.

use super::{options, path, uncached, with_mode};
use crate::{Decoder, DecoderSpec, LatentMode};
use kvlab_weights::Checkpoint;
use serde_json::Value;

fn check(design: &str, mode: LatentMode) {
    let folder = path(&format!("assets/bytes/{design}"));
    let train: Value = serde_json::from_slice(&std::fs::read(folder.join("train.json")).unwrap()).unwrap();
    let ids = |key: &str| -> Vec<u32> {
        train[key]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t.as_u64().unwrap() as u32)
            .collect()
    };
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let spec = DecoderSpec::from_config(checkpoint.config()).unwrap();
    assert_eq!(spec.parameters(), train["params"].as_u64().unwrap());
    let decoder = with_mode(
        Decoder::load(spec, &checkpoint, &options(), &mut |_, _| {}).unwrap(),
        mode,
    );
    assert_eq!(decoder.weight_bytes(), 4 * decoder.spec().parameters());

    // One pass over prompt and answer is greedy decoding, if every token is the likeliest after those before it.
    let (prompt, greedy) = (ids("prompt"), ids("greedy"));
    let all: Vec<u32> = prompt.iter().chain(&greedy).copied().collect();
    let logits = uncached(&decoder, &all);
    let rows: Vec<&[f32]> = logits.chunks(decoder.spec().vocab()).collect();
    let likeliest = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32;
    let said: Vec<u32> = rows[prompt.len() - 1..all.len() - 1]
        .iter()
        .map(|row| likeliest(row))
        .collect();
    assert_eq!(said, greedy, "{design}");
}

#[test]
fn mha() {
    check("mha", LatentMode::Auto);
}

#[test]
fn gqa() {
    check("gqa", LatentMode::Auto);
}

#[test]
fn mqa() {
    check("mqa", LatentMode::Auto);
}

#[test]
fn swa() {
    check("swa", LatentMode::Auto);
}

#[test]
fn mla() {
    check("mla", LatentMode::Absorbed);
    check("mla", LatentMode::Expanded);
}
