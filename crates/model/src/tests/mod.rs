//! The decoder against Hugging Face, and against itself.

mod adaptations;
mod bytes;
mod chunks;
mod configs;
mod experts;
mod families;
mod files;
mod golden;
mod memory;
mod packed;
mod random;

use crate::{BuildOptions, Decoder, DecoderSpec, LatentMode, ModelError, Wanted};
use burn::tensor::{Device, Tensor};
use kvlab_weights::Checkpoint;
use memory::Memory;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// A path in the workspace.
fn path(relative: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(relative)
}

fn options() -> BuildOptions {
    BuildOptions::new(Device::flex())
}

/// The config of a golden model, with changes.
fn config(name: &str, changes: &Value) -> Map<String, Value> {
    let text = std::fs::read(path(&format!("tests/golden/{name}/config.json"))).unwrap();
    let mut config: Map<String, Value> = serde_json::from_slice(&text).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        config.insert(key.clone(), value.clone());
    }
    config
}

fn spec(name: &str, changes: &Value) -> Result<DecoderSpec, ModelError> {
    DecoderSpec::from_config(&config(name, changes))
}

fn golden_spec(name: &str) -> DecoderSpec {
    spec(name, &json!({})).unwrap()
}

fn load(name: &str, options: &BuildOptions) -> Result<Decoder, ModelError> {
    let checkpoint = Checkpoint::open(&path(&format!("tests/golden/{name}"))).unwrap();
    Decoder::load(golden_spec(name), &checkpoint, options, &mut |_, _| {})
}

/// Logits of every token, without anything before them.
fn uncached(decoder: &Decoder, tokens: &[u32]) -> Vec<f32> {
    chunked(decoder, tokens, &[tokens.len()])
}

/// Logits of every token, fed in chunks of the given lengths (the last repeats).
fn chunked(decoder: &Decoder, tokens: &[u32], lengths: &[usize]) -> Vec<f32> {
    let (mut memory, mut out, mut at) = (Memory::new(decoder.spec()), Vec::new(), 0);
    for i in 0.. {
        let length = lengths[i.min(lengths.len() - 1)].min(tokens.len() - at);
        if length == 0 {
            break;
        }
        let mut step = memory.begin(length);
        let logits = decoder
            .forward(&tokens[at..at + length], &mut step, Wanted::All)
            .unwrap();
        step.keep();
        out.extend(floats(logits));
        at += length;
    }
    out
}

fn floats<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().try_to_vec().unwrap()
}

fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |worst, (a, b)| {
        if (a - b).is_nan() {
            f32::NAN
        } else {
            (a - b).abs().max(worst)
        }
    })
}

fn assert_same(a: &[f32], b: &[f32], tolerance: f32, what: &str) {
    let difference = max_difference(a, b);
    assert!(difference <= tolerance, "{what}: differs by {difference}");
}

/// Tokens without a pattern.
fn tokens(count: u32, vocab: u32) -> Vec<u32> {
    (0..count).map(|i| (i * i * 7 + i * 3 + 1) % vocab).collect()
}

fn with_mode(mut decoder: Decoder, mode: LatentMode) -> Decoder {
    decoder.set_latent_mode(mode);
    decoder
}
