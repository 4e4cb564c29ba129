//! Weights that stay packed: the same model as the one that has them in f32.

use super::memory::Memory;
use super::random::NAMES;
use super::{assert_same, floats, options, path, tokens, uncached};
use crate::{BuildOptions, Decoder, DecoderSpec, Probe, Wanted};
use burn::tensor::Tensor;
use half::{bf16, f16};
use kvlab_core::{Adaptation, LayerId};
use kvlab_weights::gguf::convert::write_llama;
use kvlab_weights::{Checkpoint, Dtype};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as Stored, TensorView};
use std::path::Path;
use std::sync::Arc;

fn load(path: &Path, options: &BuildOptions) -> Decoder {
    let checkpoint = Checkpoint::open(path).unwrap();
    let spec = DecoderSpec::from_config(checkpoint.config()).unwrap();
    Decoder::load(spec, &checkpoint, options, &mut |_, _| {}).unwrap()
}

/// Logits of both, and how many times smaller the packed weights are.
fn compare(path: &Path, adaptation: Option<Adaptation>, what: &str) -> f64 {
    let dense = load(path, &options());
    let layers = dense.spec().layers();
    let packed = BuildOptions {
        packed: true,
        adaptations: adaptation.map_or_else(Vec::new, |a| vec![a; layers]),
        ..options()
    };
    let packed = load(path, &packed);
    let tokens = tokens(11, dense.spec().vocab() as u32);
    assert_same(&uncached(&dense, &tokens), &uncached(&packed, &tokens), 1e-4, what);
    dense.weight_bytes() as f64 / packed.weight_bytes() as f64
}

/// A golden model with its numbers rounded to 16 bits.
fn rounded(name: &str, dtype: Stored) -> tempfile::TempDir {
    let golden = path(&format!("tests/golden/{name}"));
    let bytes = std::fs::read(golden.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let round = |number: &[u8; 4]| match dtype {
        Stored::F16 => f16::from_f32(f32::from_le_bytes(*number)).to_le_bytes(),
        _ => bf16::from_f32(f32::from_le_bytes(*number)).to_le_bytes(),
    };
    let tensors: Vec<_> = file
        .tensors()
        .into_iter()
        .map(|(name, view)| {
            let data: Vec<u8> = view.data().as_chunks().0.iter().flat_map(round).collect();
            (name, view.shape().to_vec(), data)
        })
        .collect();
    let views = tensors
        .iter()
        .map(|(name, shape, data)| (name, TensorView::new(dtype, shape.clone(), data).unwrap()));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("model.safetensors"),
        safetensors::serialize(views, None).unwrap(),
    )
    .unwrap();
    std::fs::copy(golden.join("config.json"), folder.path().join("config.json")).unwrap();
    folder
}

#[test]
fn every_family_in_sixteen_bits() {
    for name in NAMES {
        for dtype in [Stored::F16, Stored::BF16] {
            let folder = rounded(name, dtype);
            let smaller = compare(folder.path(), None, &format!("{name}, {dtype:?}"));
            // Panels of these small models are far from full, and what is stored the other way round or in one piece
            // for all experts is not packed.
            let least = if name == "llama_gqa_smollm2_shape" { 1.2 } else { 1.0 };
            assert!(smaller > least, "{name}, {dtype:?}: {smaller} times smaller");
        }
    }
}

/// Sees everything and changes nothing.
struct Looking;

impl Probe for Looking {
    fn input(&mut self, _: LayerId, hidden: Tensor<2>) -> Tensor<2> {
        hidden
    }

    fn attended(&mut self, _: LayerId, _: &Tensor<2>) {}
}

/// A layer whose weights are packed works on slices; with a probe it works on tensors, which are the same numbers: with biases,
/// norms of queries and keys, norms behind the halves, scaled branches, and many tokens or few.
#[test]
fn slices_are_tensors() {
    for name in NAMES.into_iter().chain(["qwen2_gqa_qkv_bias"]) {
        let folder = rounded(name, Stored::BF16);
        let packed = BuildOptions {
            packed: true,
            ..options()
        };
        let decoder = load(folder.path(), &packed);
        for count in [1, 20] {
            let tokens = tokens(count, decoder.spec().vocab() as u32);
            let mut memory = Memory::new(decoder.spec());
            let mut step = memory.begin(tokens.len());
            let seen = decoder.forward_probed(&tokens, &mut step, Wanted::All, &mut Looking);
            let (seen, unseen) = (floats(seen.unwrap()), uncached(&decoder, &tokens));
            assert_eq!(seen, unseen, "{name}, {count} tokens");
        }
    }
}

#[test]
fn gguf_formats() {
    let folder = tempfile::tempdir().unwrap();
    for (dtype, least) in [(Dtype::F16, 1.5), (Dtype::Q8_0, 1.9), (Dtype::Q4_0, 2.2)] {
        let file = folder.path().join(format!("{dtype}.gguf"));
        write_llama(&Checkpoint::open(&path("assets/bytes/gqa")).unwrap(), &file, dtype).unwrap();
        let smaller = compare(&file, None, &dtype.to_string());
        assert!(smaller > least, "{dtype}: {smaller} times smaller");
    }
}

/// What a variant changes is unpacked for it; the rest of the layer stays packed.
#[test]
fn a_variant_sees_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("q8_0.gguf");
    write_llama(
        &Checkpoint::open(&path("assets/bytes/gqa")).unwrap(),
        &file,
        Dtype::Q8_0,
    )
    .unwrap();
    let kept = compare(&file, Some(Adaptation::Keep), "kept");
    let same = Adaptation::Weights(Arc::new(Ok));
    let changed = compare(&file, Some(same), "changed to the same");
    assert!(1.5 < changed && changed < kept, "{kept} and {changed} times smaller");
}
