//! Tiny random models of every family against the reference implementation: logits of every chunking, greedy
//! text, and the rows that lie in the cache.

use crate::engine;
use kvlab_core::{Accept, Chunk, LayerId};
use kvlab_engine::text::Sampling;
use kvlab_engine::{Engine, Request};
use kvlab_testkit::golden::Golden;
use std::path::PathBuf;

/// The largest difference of a logit that counts as right (`tests/golden/README.md`).
const TOLERANCE: f32 = 5e-4;

/// Every golden model of a family that is built.
const MODELS: [&str; 22] = [
    "gpt2_mha",
    "llama_mha",
    "llama_gqa_smollm2_shape",
    "llama_mqa",
    "llama_gqa_rope_llama3",
    "llama_gqa_rope_yarn",
    "llama_gqa_rope_linear",
    "qwen2_gqa_qkv_bias",
    "qwen3_gqa_qknorm",
    "mistral_swa",
    "gemma2_hybrid_softcap",
    "gemma3_mqa_hybrid",
    "deepseekv2_mla_noq",
    "deepseekv2_mla_q_yarn",
    "deepseekv3_mla_q_yarn",
    "gptneox_mha_partial_rotary",
    "gptbigcode_mqa",
    "phi3_swa_partial_rotary",
    "smollm3_gqa_nope",
    "minicpm3_mla",
    "deepseekv2_mla_moe",
    "gptoss_sinks",
];

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn load(name: &str, cache: &str) -> Engine {
    engine(&format!("[model]\npath = {:?}\n[cache]\n{cache}", folder(name)))
}

/// The caches that leave a model's function as it is.
fn exact(name: &str) -> Vec<&'static str> {
    let mut caches = vec!["", "variant = \"none\"", "variant = \"mha\"", "layout = \"contiguous\""];
    if name.contains("swa") || name.contains("gemma") {
        // A window that is wider than the text: what the model sees decides.
        caches.push("variant = \"swa\"\nwindow = 100");
    }
    if name.contains("mla") {
        caches.push("variant = \"mla\"");
    }
    caches
}

fn worst(engine: &mut Engine, golden: &Golden, chunk: usize) -> f32 {
    let mut worst = 0.0_f32;
    engine
        .score(&golden.tokens(), chunk, &mut |place, row| {
            for (got, want) in row.iter().zip(&golden.logits[place]) {
                worst = worst.max((got - want).abs());
            }
        })
        .unwrap();
    worst
}

#[test]
fn logits_of_every_cache_and_chunking() {
    for name in MODELS {
        let golden = Golden::load(&folder(name));
        for cache in exact(name) {
            let mut engine = load(name, cache);
            for chunk in [0, 1, 3, 7] {
                if chunk == 1 && cache.contains("none") {
                    continue; // 72 passes over the prefix say no more than 24 of them do.
                }
                let worst = worst(&mut engine, &golden, chunk);
                assert!(
                    worst < TOLERANCE,
                    "{name}, {cache:?}, chunks of {chunk}: off by {worst}"
                );
            }
            assert_eq!(engine.usage().used().0, 0, "{name}: a scored sequence is closed");
        }
    }
}

#[test]
fn both_spellings_of_a_config_are_one_model() {
    for name in MODELS {
        let Ok(old) = std::fs::read(folder(name).join("config.v4.json")) else {
            continue;
        };
        let copy = tempfile::tempdir().unwrap();
        std::fs::write(copy.path().join("config.json"), old).unwrap();
        std::fs::copy(
            folder(name).join("model.safetensors"),
            copy.path().join("model.safetensors"),
        )
        .unwrap();
        let mut engine = engine(&format!("[model]\npath = {:?}", copy.path()));
        let worst = worst(&mut engine, &Golden::load(&folder(name)), 0);
        assert!(worst < TOLERANCE, "{name}: off by {worst}");
    }
}

#[test]
fn greedy_text() {
    for name in MODELS {
        let golden = Golden::load(&folder(name));
        for cache in exact(name) {
            let mut engine = load(name, cache);
            let request = Request {
                max_new_tokens: golden.greedy.len(),
                sampling: Sampling::default(),
                ignore_eos: true,
            };
            let done = engine
                .generate(std::slice::from_ref(&golden.prompt), &request, &mut |_| {})
                .unwrap();
            assert_eq!(done[0].tokens, golden.greedy, "{name}, {cache:?}");
        }
    }
}

/// The rows after the prompt, against the reference implementation's own cache.
#[test]
fn rows_after_the_prompt() {
    for name in MODELS {
        let golden = Golden::load(&folder(name));
        let mut engine = load(name, "");
        let layers = engine.model().layers();
        let decoder = engine.decoder();
        let cache = engine.cache();
        let seq = cache.open(&golden.prompt).unwrap().seq;
        let mut step = cache
            .begin(&[Chunk {
                seq,
                tokens: &golden.prompt,
            }])
            .unwrap();
        decoder
            .forward(&golden.prompt, step.as_mut(), kvlab_model::Wanted::Rows(&[]))
            .unwrap();
        step.commit(Accept::All).unwrap();
        for layer in 0..layers {
            let (shape, key) = golden.floats(&format!("prefill_cache.{layer}.k")).unwrap();
            let (value_shape, value) = golden.floats(&format!("prefill_cache.{layer}.v")).unwrap();
            let (heads, rows, key_dim, value_dim) = (shape[0], shape[1], shape[2], value_shape[2]);
            let mine = cache.inspect(seq, LayerId(layer)).unwrap();
            let skip = mine.positions.len() - rows; // A window of ours has one row more.
            assert!(skip <= 1, "{name}");
            let newest: Vec<_> = (golden.prompt.len() - rows..golden.prompt.len()).collect();
            assert_eq!(mine.positions[skip..], newest, "{name}");
            let numbers = |t: burn::tensor::Tensor<3>| (t.dims(), t.into_data().try_to_vec::<f32>().unwrap());
            let (dims, my_key) = numbers(mine.rows.key);
            let mut pairs = Vec::new();
            for (row, head) in (0..rows).flat_map(|r| (0..heads).map(move |h| (r, h))) {
                let at = |dims: [usize; 3]| ((row + skip) * dims[1] + head) * dims[2];
                let theirs = |dim: usize| (head * rows + row) * dim;
                let k = &key[theirs(key_dim)..][..key_dim];
                let v = &value[theirs(value_dim)..][..value_dim];
                pairs.extend(my_key[at(dims)..].iter().zip(k));
                match &mine.rows.value {
                    // MLA: the reference keeps the latent as key, the rotated key as value. Its DeepSeek-V2 has
                    // rotated pairs side by side; ours are half a head apart.
                    None => {
                        let mine = &my_key[at(dims) + key_dim..][..value_dim];
                        let place = |i: usize| match name.contains("v2") {
                            true => i / 2 + i % 2 * (value_dim / 2),
                            false => i,
                        };
                        pairs.extend(v.iter().enumerate().map(|(i, want)| (&mine[place(i)], want)));
                    }
                    Some(t) => {
                        let (dims, my_value) = numbers(t.clone());
                        let worst = my_value[at(dims)..].iter().zip(v).map(|(a, b)| (a - b).abs());
                        assert!(worst.fold(0.0, f32::max) < TOLERANCE, "{name}, layer {layer}: values");
                    }
                }
            }
            let worst = pairs.iter().map(|(a, b)| (*a - *b).abs()).fold(0.0, f32::max);
            assert!(worst < TOLERANCE, "{name}, layer {layer}: keys off by {worst}");
        }
    }
}

/// What is not built yet is refused by name, with what is.
#[test]
fn other_families_are_refused_by_name() {
    let copy = tempfile::tempdir().unwrap();
    let read = std::fs::read_to_string(folder("llama_mha").join("config.json")).unwrap();
    std::fs::write(copy.path().join("config.json"), read.replace("\"llama\"", "\"mamba\"")).unwrap();
    std::fs::copy(
        folder("llama_mha").join("model.safetensors"),
        copy.path().join("model.safetensors"),
    )
    .unwrap();
    let text = format!("schema = 1\nname = \"x\"\n[model]\npath = {:?}", copy.path());
    let error = Engine::load(&crate::config(&text).unwrap(), &mut |_, _| {})
        .err()
        .unwrap()
        .to_string();
    for name in ["mamba", "llama", "deepseek_v3", "gpt_oss"] {
        assert!(error.contains(name), "{error}");
    }
}

/// The same weights as safetensors and as GGUF give the same logits (T75): rows of Q and K are permuted there.
#[test]
fn gguf_is_the_same_model() {
    use kvlab_weights::{Checkpoint, Dtype, gguf};
    for name in ["llama_gqa_smollm2_shape", "llama_mha", "llama_mqa"] {
        let copy = tempfile::tempdir().unwrap();
        let file = copy.path().join("model.gguf");
        gguf::convert::write_llama(&Checkpoint::open(&folder(name)).unwrap(), &file, Dtype::F32).unwrap();
        let mut engine = engine(&format!("[model]\npath = {file:?}"));
        let worst = worst(&mut engine, &Golden::load(&folder(name)), 5);
        assert!(worst < TOLERANCE, "{name}: off by {worst}");
    }
}
