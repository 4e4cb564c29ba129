//! Every supported golden model: logits, hidden states and rows of Hugging Face.

use super::memory::Memory;
use super::{floats, max_difference, options, path, with_mode};
use crate::{BuildOptions, Decoder, DecoderSpec, LatentMode, RopePairs, Stage, Wanted};
use burn::tensor::Tensor;
use kvlab_core::Adaptation;
use kvlab_weights::Checkpoint;
use safetensors::{Dtype, SafeTensors};
use std::collections::HashMap;

/// `expected.safetensors` of a golden model.
pub(super) struct Expected(HashMap<String, (Vec<usize>, Vec<f32>)>);

impl Expected {
    pub(super) fn open(name: &str) -> Self {
        let bytes = std::fs::read(path(&format!("tests/golden/{name}/expected.safetensors"))).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file.tensors().into_iter().map(|(name, view)| {
            let data = match view.dtype() {
                Dtype::F32 => view
                    .data()
                    .chunks(4)
                    .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                    .collect(),
                _ => view
                    .data()
                    .chunks(8)
                    .map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f32)
                    .collect(),
            };
            (name, (view.shape().to_vec(), data))
        });
        Self(tensors.collect())
    }

    fn get(&self, name: &str) -> &[f32] {
        &self.0[name].1
    }

    /// Prompt and greedy tokens.
    pub(super) fn tokens(&self) -> Vec<u32> {
        ["input_ids", "greedy_ids"]
            .into_iter()
            .flat_map(|n| self.get(n))
            .map(|&t| t as u32)
            .collect()
    }

    pub(super) fn logits(&self) -> &[f32] {
        self.get("logits")
    }
}

/// Both spellings of the config of a model.
fn specs(name: &str) -> Vec<DecoderSpec> {
    let read = |file| std::fs::read(path(&format!("tests/golden/{name}/{file}")));
    let texts = [Some(read("config.json").unwrap()), read("config.v4.json").ok()];
    let spec = |text: Vec<u8>| DecoderSpec::from_config(&serde_json::from_slice(&text).unwrap()).unwrap();
    texts.into_iter().flatten().map(spec).collect()
}

fn check(name: &str) {
    for spec in specs(name) {
        check_spec(name, spec.clone(), &options(), LatentMode::Absorbed);
        if spec.attention(0).latent.is_some() {
            check_spec(name, spec.clone(), &options(), LatentMode::Expanded);
            let mut expand = options();
            expand.adaptations = vec![Adaptation::ExpandLatent; spec.layers()];
            check_spec(name, spec, &expand, LatentMode::Auto);
        }
    }
}

fn check_spec(name: &str, spec: DecoderSpec, options: &BuildOptions, mode: LatentMode) {
    let expected = Expected::open(name);
    let checkpoint = Checkpoint::open(&path(&format!("tests/golden/{name}"))).unwrap();
    let mut read = Vec::new();
    let decoder = Decoder::load(spec, &checkpoint, options, &mut |done, total| read.push((done, total))).unwrap();
    let decoder = with_mode(decoder, mode);
    let total = decoder.spec().tensors().len();
    assert_eq!(
        read,
        (1..=total).map(|done| (done, total)).collect::<Vec<_>>(),
        "{name}"
    );

    let tokens = expected.tokens();
    let mut memory = Memory::new(decoder.spec());
    let mut step = memory.begin(tokens.len());
    let mut hidden = Vec::new();
    let mut observe = |out: crate::LayerOutput<'_>| hidden.push((out.stage, floats(out.hidden.clone())));
    let logits = decoder
        .forward_with(&tokens, &mut step, Wanted::All, &mut observe)
        .unwrap();
    step.keep();
    let logits = max_difference(&floats(logits), expected.logits());
    let hidden_difference = compare_hidden(&expected, &hidden, decoder.spec().layers());
    let rows = match options.adaptations.is_empty() {
        true => compare_rows(&expected, &memory, decoder.spec()),
        false => 0.0,
    };
    println!("{name} {mode:?}: logits {logits:.1e}, hidden {hidden_difference:.1e}, rows {rows:.1e}");
    assert!(logits < 5e-4, "{name} {mode:?}: logits differ by {logits}");
    assert!(
        hidden_difference < 5e-4,
        "{name} {mode:?}: hidden states differ by {hidden_difference}"
    );
    assert!(rows < 5e-4, "{name} {mode:?}: rows differ by {rows}");
}

/// `hidden.0` is the embedding, the last one comes after the final norm; they are of the prompt only.
fn compare_hidden(expected: &Expected, hidden: &[(Stage, Vec<f32>)], layers: usize) -> f32 {
    assert_eq!(hidden.len(), layers + 2);
    let of_file = |(stage, data): &(Stage, Vec<f32>)| {
        let index = match stage {
            Stage::Embedding => 0,
            Stage::Layer(layer) if layer.0 + 1 == layers => return None,
            Stage::Layer(layer) => layer.0 + 1,
            Stage::FinalNorm => layers,
        };
        let want = expected.get(&format!("hidden.{index}"));
        Some(max_difference(&data[..want.len()], want))
    };
    hidden.iter().filter_map(of_file).fold(0.0, f32::max)
}

/// The rows of the prompt that Hugging Face's own cache holds: the newest ones in layers with a window.
fn compare_rows(expected: &Expected, memory: &Memory, spec: &DecoderSpec) -> f32 {
    let prompt = expected.get("input_ids").len();
    let mut worst: f32 = 0.0;
    for layer in 0..spec.layers() {
        let rows = memory.rows(layer);
        let (key, value) = match spec.attention(layer).latent {
            None => (rows.key, rows.value.unwrap()),
            Some(l) => (
                rows.key.clone().narrow(2, 0, l.rank),
                rows.key.narrow(2, l.rank, l.rope),
            ),
        };
        for (ours, name) in [(key, "k"), (value, "v")] {
            let (shape, want) = &expected.0[&format!("prefill_cache.{layer}.{name}")];
            let ours = ours.narrow(0, prompt - shape[1], shape[1]).swap_dims(0, 1);
            // The V2 port keeps adjacent pairs.
            let adjacent = spec.family == "deepseek_v2" && name == "v" && spec.ropes[0].pairs == RopePairs::Adjacent;
            let ours = if adjacent { adjacent_pairs(ours) } else { ours };
            worst = worst.max(max_difference(&floats(ours), want));
        }
    }
    worst
}

fn adjacent_pairs(x: Tensor<3>) -> Tensor<3> {
    let [heads, rows, dim] = x.dims();
    x.reshape([heads, rows, 2, dim / 2])
        .swap_dims(2, 3)
        .reshape([heads, rows, dim])
}

macro_rules! golden {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            check(stringify!($name));
        }
    )*};
}

golden!(
    gpt2_mha,
    llama_mha,
    llama_gqa_smollm2_shape,
    llama_mqa,
    llama_gqa_rope_llama3,
    llama_gqa_rope_yarn,
    llama_gqa_rope_linear,
    qwen2_gqa_qkv_bias,
    qwen3_gqa_qknorm,
    mistral_swa,
    gemma2_hybrid_softcap,
    gemma3_mqa_hybrid,
    deepseekv2_mla_noq,
    deepseekv2_mla_q_yarn,
    deepseekv3_mla_q_yarn,
    gptneox_mha_partial_rotary,
    gptbigcode_mqa,
    phi3_swa_partial_rotary,
    smollm3_gqa_nope,
    minicpm3_mla,
    deepseekv2_mla_moe,
    gptoss_sinks,
);
