//! Changed weights: what is the same function gives the same logits, and what cannot be is refused.

use super::memory::Memory;
use super::{assert_same, floats, golden_spec, options, spec, tokens, uncached, with_mode};
use crate::{BuildOptions, Decoder, DecoderSpec, LatentMode, ModelError, Wanted};
use kvlab_core::{Adaptation, AttentionWeights, HeadWeights, LatentWeights, Matrix};
use serde_json::json;
use std::sync::Arc;

fn adapted(spec: &DecoderSpec, adaptation: Adaptation) -> Result<Decoder, ModelError> {
    let options = BuildOptions {
        adaptations: vec![adaptation; spec.layers()],
        ..options()
    };
    Decoder::random(spec.clone(), 7, &options)
}

fn original(spec: &DecoderSpec) -> Decoder {
    Decoder::random(spec.clone(), 7, &options()).unwrap()
}

fn change(f: impl Fn(AttentionWeights) -> AttentionWeights + Send + Sync + 'static) -> Adaptation {
    Adaptation::Weights(Arc::new(move |w| Ok(f(w))))
}

fn heads(weights: AttentionWeights) -> HeadWeights {
    match weights {
        AttentionWeights::Heads(heads) => heads,
        AttentionWeights::Latent(_) => panic!("heads expected"),
    }
}

/// Rows of a matrix, one after another.
fn picked(m: &Matrix, rows: impl IntoIterator<Item = usize>) -> Matrix {
    let data: Vec<f32> = rows.into_iter().flat_map(|row| m.row(row).to_vec()).collect();
    Matrix {
        rows: data.len() / m.cols,
        cols: m.cols,
        data,
    }
}

/// The exact factorisation: the latent is everything that does not turn, the blocks are everything that does.
fn factorised(w: HeadWeights, query_heads: usize, rotary: usize) -> LatentWeights {
    let (key, value) = (w.key.rows / w.heads, w.value.rows / w.heads);
    let (nope, group) = (key - rotary, query_heads / w.heads);
    let turning = || (0..w.heads).flat_map(|h| h * key..h * key + rotary);
    let resting = (0..w.heads).flat_map(|h| h * key + rotary..(h + 1) * key);
    let mut down = picked(&w.key, resting);
    down.cols = w.value.cols;
    down.data.extend(&w.value.data);
    down.rows += w.value.rows;
    let rank = down.rows;
    let one_hot = |rows: Vec<usize>| {
        let mut m = Matrix::zeros(rows.len(), rank);
        rows.iter().enumerate().for_each(|(i, &j)| m.row_mut(i)[j] = 1.0);
        m
    };
    let of_head = |start: usize, size: usize| {
        one_hot(
            (0..query_heads)
                .flat_map(|h| (0..size).map(move |i| start + (h / group) * size + i))
                .collect(),
        )
    };
    let value_bias = |bias: Vec<f32>| {
        (0..query_heads)
            .flat_map(|h| bias[(h / group) * value..][..value].to_vec())
            .collect::<Vec<_>>()
    };
    LatentWeights {
        rope: picked(&w.key, turning()),
        rope_bias: w
            .key_bias
            .filter(|_| rotary > 0)
            .map(|b| turning().map(|row| b[row]).collect()),
        rope_blocks: w.heads,
        up_key: of_head(0, nope),
        up_value: of_head(w.heads * nope, value),
        value_bias: w.value_bias.map(value_bias),
        down,
    }
}

fn factorise(spec: &DecoderSpec) -> Adaptation {
    let (query_heads, rotary) = (spec.attention(0).query_heads, spec.attention(0).rotary);
    change(move |w| AttentionWeights::Latent(factorised(heads(w), query_heads, rotary)))
}

fn chunked_latent(decoder: &Decoder, rank: usize, tokens: &[u32]) -> Vec<f32> {
    let mut memory = Memory::new(decoder.spec()).with_prefix(rank);
    let mut out = Vec::new();
    for chunk in tokens.chunks(7) {
        let mut step = memory.begin(chunk.len());
        out.extend(floats(decoder.forward(chunk, &mut step, Wanted::All).unwrap()));
        step.keep();
    }
    out
}

/// Full rank is exact: with rotation, without it (GPT-2), with some of it, with biases, with norms on the heads, with
/// sinks (gpt-oss, where the values have a bias too).
#[test]
fn a_full_factorisation_is_exact() {
    let partial =
        json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5 } });
    for spec in [
        golden_spec("llama_mha"),
        golden_spec("llama_gqa_smollm2_shape"),
        golden_spec("gpt2_mha"),
        golden_spec("qwen2_gqa_qkv_bias"),
        golden_spec("qwen3_gqa_qknorm"),
        golden_spec("gemma2_hybrid_softcap"),
        golden_spec("gptneox_mha_partial_rotary"),
        golden_spec("gptbigcode_mqa"),
        golden_spec("gptoss_sinks"),
        spec("llama_gqa_rope_linear", &partial).unwrap(),
        spec(
            "qwen2_gqa_qkv_bias",
            &json!({ "hidden_size": 96, "rope_parameters": partial["rope_parameters"] }),
        )
        .unwrap(),
    ] {
        let shape = spec.attention(0);
        let rank = shape.kv_heads * (shape.key - shape.rotary + shape.value);
        let tokens = tokens(20, 131);
        let want = uncached(&original(&spec), &tokens);
        for mode in [LatentMode::Absorbed, LatentMode::Expanded] {
            let decoder = with_mode(adapted(&spec, factorise(&spec)).unwrap(), mode);
            let what = format!("{} {mode:?} rotary {}", spec.family, shape.rotary);
            assert_same(&want, &chunked_latent(&decoder, rank, &tokens), 2e-4, &what);
        }
    }
}

#[test]
fn a_factorised_row_is_latent_and_blocks() {
    let spec = golden_spec("llama_gqa_rope_linear");
    let decoder = adapted(&spec, factorise(&spec)).unwrap();
    let mut memory = Memory::new(&spec).with_prefix(32);
    let mut step = memory.begin(3);
    decoder.forward(&[1, 2, 3], &mut step, Wanted::All).unwrap();
    step.keep();
    assert_eq!(memory.rows(0).key.dims(), [3, 1, 2 * 16 + 2 * 16]);
    assert!(memory.rows(0).value.is_none());
}

/// A KV head stored twice for the two halves of its queries is the same function; one head for all is not.
#[test]
fn the_number_of_kv_heads_can_change() {
    let spec = golden_spec("qwen2_gqa_qkv_bias");
    let tokens = tokens(12, 131);
    let want = uncached(&original(&spec), &tokens);
    let with_heads = |order: &'static [usize]| {
        change(move |w| {
            let mut w = heads(w);
            let dim = w.key.rows / w.heads;
            let rows = || order.iter().flat_map(move |&h| h * dim..(h + 1) * dim);
            let bias = |b: &Option<Vec<f32>>| b.as_ref().map(|b| rows().map(|row| b[row]).collect());
            (w.key, w.value) = (picked(&w.key, rows()), picked(&w.value, rows()));
            (w.key_bias, w.value_bias, w.heads) = (bias(&w.key_bias), bias(&w.value_bias), order.len());
            AttentionWeights::Heads(w)
        })
    };
    let logits = |order| uncached(&adapted(&spec, with_heads(order)).unwrap(), &tokens);
    assert_same(&want, &logits(&[0, 1]), 0.0, "unchanged");
    assert_same(&want, &logits(&[0, 0, 0, 1, 1, 1]), 1e-4, "a head for each query head");
    assert!(super::max_difference(&want, &logits(&[0])) > 0.05);
    let refused = adapted(&spec, with_heads(&[0, 1, 0, 1])).unwrap_err().to_string();
    assert!(
        refused.contains("layer 0") && refused.contains("4 KV heads"),
        "{refused}"
    );
}

#[test]
fn what_cannot_be_adapted_is_refused() {
    let refusal = |spec: &DecoderSpec, adaptation| {
        let refused = adapted(spec, adaptation).map(|_| ()).unwrap_err();
        assert!(matches!(refused, ModelError::Adaptation { .. }), "{refused}");
        refused.to_string()
    };
    let llama = golden_spec("llama_mha");
    assert!(refusal(&llama, Adaptation::ExpandLatent).contains("no latent"));
    let fails = Adaptation::Weights(Arc::new(|_| Err("rank 99 is too much".into())));
    assert!(refusal(&llama, fails).contains("rank 99 is too much"));
    let short = change(|w| {
        let mut w = heads(w);
        w.value.rows -= 1;
        AttentionWeights::Heads(w)
    });
    assert!(refusal(&llama, short).contains("values"));

    // Norms over heads of which a part turns.
    let partial =
        json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5 } });
    let qwen3 = spec("qwen3_gqa_qknorm", &partial).unwrap();
    assert!(refusal(&qwen3, factorise(&qwen3)).contains("normed"));

    // A bias of keys that do not turn, where the softmax would notice that a latent leaves it out.
    let rope = &partial["rope_parameters"];
    let gemma = spec(
        "gemma2_hybrid_softcap",
        &json!({ "attention_bias": true, "rope_parameters": rope }),
    )
    .unwrap();
    assert!(refusal(&gemma, factorise(&gemma)).contains("bias"));

    let deepseek = golden_spec("deepseekv2_mla_noq");
    let to_heads = change(|_| {
        let zeros = || Matrix::zeros(64, 48);
        AttentionWeights::Heads(HeadWeights {
            heads: 4,
            key: zeros(),
            value: zeros(),
            key_bias: None,
            value_bias: None,
        })
    });
    assert!(refusal(&deepseek, to_heads).contains("ExpandLatent"));

    let options = BuildOptions {
        adaptations: vec![Adaptation::Keep],
        ..options()
    };
    let refused = Decoder::random(llama, 1, &options).unwrap_err();
    assert!(
        matches!(refused, ModelError::Adaptations { layers: 3, got: 1 }),
        "{refused}"
    );
}
