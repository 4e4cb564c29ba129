//! Random decoders: the same for the same seed, in every number format, with activations of a sensible size.

use super::{golden_spec, max_difference, options, spec, tokens, uncached};
use crate::{BuildOptions, Decoder};
use burn::tensor::DType;
use serde_json::json;

pub(super) const NAMES: [&str; 13] = [
    "gpt2_mha",
    "llama_gqa_smollm2_shape",
    "qwen3_gqa_qknorm",
    "gemma2_hybrid_softcap",
    "gemma3_mqa_hybrid",
    "deepseekv2_mla_q_yarn",
    "gptneox_mha_partial_rotary",
    "gptbigcode_mqa",
    "phi3_swa_partial_rotary",
    "smollm3_gqa_nope",
    "minicpm3_mla",
    "deepseekv2_mla_moe",
    "gptoss_sinks",
];

/// A server moves it to the thread that runs it.
#[test]
fn a_decoder_can_be_sent() {
    fn send<T: Send>() {}
    send::<Decoder>();
}

#[test]
fn a_seed_is_a_decoder() {
    let logits = |seed| {
        uncached(
            &Decoder::random(golden_spec("llama_mha"), seed, &options()).unwrap(),
            &tokens(8, 131),
        )
    };
    assert_eq!(logits(1), logits(1));
    assert!(max_difference(&logits(1), &logits(2)) > 0.1);
}

/// T85, on weights that do not fill the format: close to f32, and no NaN.
#[test]
fn half_precision_is_close() {
    for name in NAMES {
        let logits = |dtype| {
            let options = BuildOptions { dtype, ..options() };
            // All experts for every token: where two of them are as good, rounding chooses the other, and that is far.
            let changes = match name {
                "deepseekv2_mla_moe" | "gptoss_sinks" => json!({ "num_experts_per_tok": 4 }),
                _ => json!({}),
            };
            uncached(
                &Decoder::random(spec(name, &changes).unwrap(), 1, &options).unwrap(),
                &tokens(20, 131),
            )
        };
        let full = logits(DType::F32);
        let size = (full.iter().map(|x| x * x).sum::<f32>() / full.len() as f32).sqrt();
        assert!(size > 0.1 && size < 20.0, "{name}: logits of size {size}");
        for (dtype, bound) in [(DType::F16, 0.02), (DType::BF16, 0.15)] {
            let difference = max_difference(&full, &logits(dtype));
            println!("{name} {dtype:?}: {difference:.1e} of {size:.2}");
            assert!(
                difference <= bound * size.max(1.0),
                "{name} {dtype:?}: differs by {difference} of {size}"
            );
        }
    }
}

#[test]
fn bytes_follow_the_number_format() {
    let bytes = |dtype| {
        let options = BuildOptions { dtype, ..options() };
        Decoder::random(golden_spec("llama_mha"), 1, &options)
            .unwrap()
            .weight_bytes()
    };
    let (spec, norms) = (golden_spec("llama_mha"), 7 * 48);
    assert_eq!(bytes(DType::F32), 4 * spec.parameters());
    assert_eq!(bytes(DType::F16), 2 * spec.parameters() + 2 * norms);
}
