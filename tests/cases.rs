//! Numbered cases that caches get wrong (T..), on whole models. What a law, a golden or a crate's own test covers is
//! not repeated here: docs/cases.md says where each one is.

mod batches;
mod conversation;
mod lab;
mod measured;
mod quantised;
mod saved;

use crate::{config, engine};
use kvlab_engine::text::Sampling;
use kvlab_engine::{Engine, EngineError, Finish, Request};

/// The common set-up: a tiny random decoder.
fn tiny(family: &str, geometry: &str, cache: &str) -> String {
    format!(
        "[model]\nseed = 7\ntokenizer = \"bytes\"\n[model.geometry]\nmodel_type = \"{family}\"\nvocab_size = 61\nhidden_size = 32\n\
         intermediate_size = 48\nnum_hidden_layers = 2\nnum_attention_heads = 4\nrms_norm_eps = 1e-6\nhidden_act = \"silu\"\n\
         rope_theta = 10000.0\ntie_word_embeddings = false\n{geometry}\n[cache]\n{cache}\n"
    )
}

const GQA: &str = "num_key_value_heads = 2\nhead_dim = 8\nmax_position_embeddings = 64";

fn tokens(n: usize, seed: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 17 + seed * 29 + i * i * 5) % 61) as u32).collect()
}

fn logits(engine: &mut Engine, tokens: &[u32], chunk: usize) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    engine
        .score(tokens, chunk, &mut |_, row| rows.push(row.to_vec()))
        .unwrap();
    rows
}

fn distance(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
}

/// Ref(x): one pass over everything, without a cache.
fn reference(family: &str, geometry: &str, tokens: &[u32]) -> Vec<Vec<f32>> {
    logits(&mut engine(&tiny(family, geometry, "variant = \"none\"")), tokens, 0)
}

fn request(max_new_tokens: usize) -> Request {
    Request {
        max_new_tokens,
        sampling: Sampling::default(),
        ignore_eos: true,
    }
}

#[test]
fn t01_chunks_without_a_window() {
    let x = tokens(16, 1);
    let want = reference("llama", GQA, &x);
    for cache in ["", "variant = \"mha\"", "key = \"f32\"\nlayout = \"contiguous\""] {
        for chunk in [1, 3, 4, 7, 10] {
            let got = logits(&mut engine(&tiny("llama", GQA, cache)), &x, chunk);
            assert!(distance(&got, &want) < 1e-4, "{cache:?}, {chunk}");
        }
    }
}

#[test]
fn t02_t04_t05_chunks_with_a_window() {
    let geometry = format!("{GQA}\nsliding_window = 4");
    for length in [3, 4, 5, 7, 8, 9, 10, 17] {
        let x = tokens(length + 6, length);
        let want = reference("mistral", &geometry, &x);
        for cache in ["", "layout = \"contiguous\"", "variant = \"gqa\""] {
            for chunk in [1, 2, 3, 4, 5, 9, 10] {
                let got = logits(&mut engine(&tiny("mistral", &geometry, cache)), &x, chunk);
                assert!(distance(&got, &want) < 1e-4, "{cache:?}, {length} in {chunk}");
            }
        }
    }
}

#[test]
fn t07_windows_at_their_limits() {
    let x = tokens(20, 2);
    let wide = reference("mistral", &format!("{GQA}\nsliding_window = 64"), &x);
    let without = reference("llama", GQA, &x);
    assert!(distance(&wide, &without) < 1e-4, "a window beyond the text is none");
    let one = logits(
        &mut engine(&tiny("mistral", &format!("{GQA}\nsliding_window = 1"), "")),
        &x,
        3,
    );
    assert!(one.iter().flatten().all(|v| v.is_finite()));
    let again = reference("mistral", &format!("{GQA}\nsliding_window = 1"), &x);
    assert!(distance(&one, &again) < 1e-4);
    for bad in ["0", "-3"] {
        let text = format!(
            "schema = 1\nname = \"x\"\n{}",
            tiny("mistral", &format!("{GQA}\nsliding_window = {bad}"), "")
        );
        let error = Engine::load(&config(&text).unwrap(), &mut |_, _| {})
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("sliding_window"), "{error}");
    }
}

#[test]
fn t11_the_last_token_changes_nothing_before_it() {
    let (mut a, mut b) = (tokens(12, 3), tokens(12, 3));
    (a[11], b[11]) = (1, 2);
    let mut engine = engine(&tiny("llama", GQA, ""));
    let (a, b) = (logits(&mut engine, &a, 0), logits(&mut engine, &b, 0));
    assert_eq!(a[..11], b[..11], "bit for bit");
    assert_ne!(a[11], b[11]);
}

#[test]
fn t12_a_batch_is_its_prompts_alone() {
    let window = format!("{GQA}\nsliding_window = 4");
    for (family, geometry, cache) in [
        ("llama", GQA, "sequences = 3"),
        ("llama", GQA, "sequences = 3\nvariant = \"mha\"\nprefill_chunk = 5"),
        ("llama", GQA, "sequences = 3\nvariant = \"mla\"\nkv_lora_rank = 16"),
        ("llama", GQA, "variant = \"none\""),
        ("mistral", &window, "sequences = 3\nprefill_chunk = 3"),
    ] {
        let prompts: Vec<_> = [3, 7, 12].into_iter().map(|n| tokens(n, n)).collect();
        let mut engine = engine(&tiny(family, geometry, cache));
        let together = engine.generate(&prompts, &request(8), &mut |_| {}).unwrap();
        for (prompt, together) in prompts.iter().zip(&together) {
            let alone = engine
                .generate(std::slice::from_ref(prompt), &request(8), &mut |_| {})
                .unwrap();
            assert_eq!(alone[0].tokens, together.tokens, "{family}, {cache:?}");
        }
    }
}

/// T18: which query heads share a KV head. A KV head whose rows are replaced changes exactly its group.
#[test]
fn t18_groups_of_query_heads() {
    use burn::tensor::{Device, Distribution, Tensor};
    use kvlab_core::{Chunk, LayerId, Query, Rows};
    let device = Device::flex();
    for heads in [1, 2, 4] {
        let geometry = format!("num_key_value_heads = {heads}\nhead_dim = 8\nmax_position_embeddings = 64");
        let mut engine = engine(&tiny("llama", &geometry, ""));
        let random = |shape: [usize; 3]| Tensor::<3>::random(shape, Distribution::Uniform(-1.0, 1.0), &device);
        let (q, key, value) = (random([5, 4, 8]), random([5, heads, 8]), random([5, heads, 8]));
        let mut out = |value: Tensor<3>| {
            let cache = engine.cache();
            let seq = cache.open(&[]).unwrap().seq;
            let mut step = cache.begin(&[Chunk { seq, tokens: &[0; 5] }]).unwrap();
            let rows = Rows {
                key: key.clone(),
                value: Some(value),
            };
            let out = step
                .extend_attend(LayerId(0), rows, Query::new(q.clone(), 0.35))
                .unwrap()
                .out;
            drop(step);
            cache.close(seq).unwrap();
            out.into_data().try_to_vec::<f32>().unwrap()
        };
        let before = out(value.clone());
        for changed in 0..heads {
            let zeros = Tensor::zeros([5, 1, 8], &device);
            let after = out(value.clone().slice_assign([0..5, changed..changed + 1, 0..8], zeros));
            for head in 0..4 {
                let same = (0..5).all(|t| before[(t * 4 + head) * 8..][..8] == after[(t * 4 + head) * 8..][..8]);
                assert_eq!(
                    same,
                    head * heads / 4 != changed,
                    "KV head {changed} of {heads}, query head {head}"
                );
            }
        }
    }
}

/// T20: half-precision rows with a window and a batch of unequal lengths.
#[test]
fn t20_half_precision_stays_finite() {
    let geometry = format!("{GQA}\nsliding_window = 4");
    for format in ["f16", "bf16"] {
        let cache = format!("sequences = 2\nkey = \"{format}\"\nvalue = \"{format}\"");
        let mut engine = engine(&tiny("mistral", &geometry, &cache));
        let x = tokens(20, 4);
        let got = logits(&mut engine, &x, 3);
        let error = distance(&got, &reference("mistral", &geometry, &x));
        assert!(error < 0.1 && error > 0.0, "{format}: {error}");
        engine
            .generate(&[tokens(3, 1), tokens(11, 2)], &request(6), &mut |_| {})
            .unwrap();
    }
}

#[test]
fn t65_t70_lengths_at_the_limit() {
    for cache in ["", "capacity = \"16 tokens\"", "variant = \"none\""] {
        let limit = if cache.contains("16") { 16 } else { 64 };
        let mut engine = engine(&tiny("llama", GQA, cache));
        let fits = engine
            .generate(&[tokens(limit - 4, 1)], &request(4), &mut |_| {})
            .unwrap();
        assert_eq!(fits[0].tokens.len(), 4);
        let over = engine.generate(&[tokens(limit - 4, 1)], &request(5), &mut |_| {});
        assert!(
            matches!(over, Err(EngineError::TooLong { new: 5, limit: l, .. }) if l == limit),
            "{cache:?}"
        );
        assert!(engine.score(&tokens(limit + 1, 1), 0, &mut |_, _| {}).is_err());
        assert_eq!(engine.usage().used().0, 0, "nothing is left open");
    }
    // A ring does not end: only the model's positions do.
    let window = format!("{GQA}\nsliding_window = 4");
    let mut engine = engine(&tiny("mistral", &window, "capacity = \"8 tokens\""));
    assert_eq!(
        engine.generate(&[tokens(40, 1)], &request(8), &mut |_| {}).unwrap()[0]
            .tokens
            .len(),
        8
    );
}

/// T70 and T94: one TTFT, a gap for each further token, and they add up.
#[test]
fn t94_every_gap_is_counted_once() {
    let mut engine = engine(&tiny("llama", GQA, "sequences = 2\nprefill_chunk = 4"));
    for n in [0, 1, 2, 9] {
        let start = std::time::Instant::now();
        let done = engine
            .generate(&[tokens(11, 1), tokens(2, 2)], &request(n), &mut |_| {})
            .unwrap();
        let wall = start.elapsed();
        for one in done {
            assert_eq!(
                (one.tokens.len(), one.ttft.is_some(), one.gaps.len()),
                (n, n > 0, n.saturating_sub(1))
            );
            assert_eq!(one.tpot().is_some(), n > 1);
            assert!(one.total() <= wall);
            assert_eq!(one.finish, Finish::Length);
        }
    }
}

/// T91, T93: a batch goes on when one of it ends, or never began.
#[test]
fn t91_t93_ends_and_empty_prompts() {
    let mut engine = engine(&tiny("llama", GQA, "sequences = 3"));
    let done = engine
        .generate(&[tokens(3, 1), vec![], tokens(5, 2)], &request(4), &mut |_| {})
        .unwrap();
    assert_eq!(done[1].finish, Finish::EmptyPrompt);
    assert_eq!(
        (done[0].tokens.len(), done[1].tokens.len(), done[2].tokens.len()),
        (4, 0, 4)
    );
}

/// T76: what a file asks for and is not built is refused, not ignored.
#[test]
fn t71_t76_rope_is_never_ignored() {
    for rope in [
        "rope_scaling = { rope_type = \"nonsense\", factor = 2.0 }",
        "rope_scaling = { type = \"longrope\", factor = 2.0 }",
    ] {
        let text = format!(
            "schema = 1\nname = \"x\"\n{}",
            tiny("llama", &format!("{GQA}\n{rope}"), "")
        );
        let error = Engine::load(&config(&text).unwrap(), &mut |_, _| {})
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("nonsense") || error.contains("longrope"), "{error}");
    }
    let x = tokens(30, 5);
    let plain = reference("llama", GQA, &x);
    for kind in ["type", "rope_type"] {
        let linear = format!("{GQA}\nrope_scaling = {{ {kind} = \"linear\", factor = 4.0 }}");
        assert!(distance(&reference("llama", &linear, &x), &plain) > 1e-3, "{kind}");
    }
}

/// T77, T78, T80: a latent row is `rank + rope` numbers whatever the heads, and every way to use it is one function.
#[test]
fn t77_t78_latent_rows() {
    let mla = |heads: usize| {
        format!(
            "num_key_value_heads = {heads}\nkv_lora_rank = 12\nqk_nope_head_dim = 8\nqk_rope_head_dim = 4\nv_head_dim = 6\n\
             first_k_dense_replace = 2\nmax_position_embeddings = 64"
        )
    };
    let x = tokens(14, 6);
    let want = reference("deepseek_v2", &mla(4), &x);
    for cache in [
        "",
        "variant = \"mha\"",
        "variant = \"mla\"",
        "variant = \"swa\"\nwindow = 50",
    ] {
        for chunk in [0, 1, 5] {
            let got = logits(&mut engine(&tiny("deepseek_v2", &mla(4), cache)), &x, chunk);
            assert!(distance(&got, &want) < 1e-4, "{cache:?}, {chunk}");
        }
    }
    let latent = engine(&tiny("deepseek_v2", &mla(4), ""));
    assert_eq!(latent.spec().per_token().0, 2 * (12 + 4) * 4);
    let expanded = engine(&tiny("deepseek_v2", &mla(4), "variant = \"mha\""));
    assert_eq!(expanded.spec().per_token().0, 2 * 4 * (8 + 4 + 6) * 4);
}

/// T83.
#[test]
fn t83_heads_that_do_not_divide_the_width() {
    let geometry = "num_key_value_heads = 4\nhead_dim = 16\nmax_position_embeddings = 64";
    let text = tiny("llama", geometry, "").replace("hidden_size = 32", "hidden_size = 40");
    let x = tokens(10, 7);
    let mut engine = engine(&text);
    let (whole, parts) = (logits(&mut engine, &x, 0), logits(&mut engine, &x, 3));
    assert!(distance(&whole, &parts) < 1e-4);
}

/// What a variant does to weights, on models: exact where it says exact, and lossy where it says lossy.
#[test]
fn variants_do_what_they_say() {
    let x = tokens(24, 8);
    let gpt2 = "[model]\nseed = 3\n[model.geometry]\nmodel_type = \"gpt2\"\nvocab_size = 61\nn_embd = 32\nn_layer = 2\nn_head = 4\nn_positions = 64\n[cache]\n";
    let qwen = tiny("qwen2", GQA, "");
    let llama = tiny("llama", GQA, "");
    for (model, cache, exact) in [
        // Two KV heads of 8 values; keys rotate whole: full rank is 16.
        (llama.as_str(), "variant = \"mla\"\nkv_lora_rank = 16", true),
        (&llama, "variant = \"mla\"\nkv_lora_rank = 10", false),
        (&llama, "variant = \"mqa\"", false),
        (&llama, "variant = \"gqa\"\nnum_key_value_heads = 2", true),
        (&llama, "variant = \"swa\"\nwindow = 24", true),
        (&llama, "variant = \"swa\"\nwindow = 6\nsinks = 2", false),
        (&qwen, "variant = \"mla\"\nkv_lora_rank = 16", true),
        (&qwen, "variant = \"mqa\"", false),
        // Nothing rotates: keys and values of four heads of 8 are 64 numbers, made from a hidden state of 32.
        (gpt2, "variant = \"mla\"\nkv_lora_rank = 32", true),
        (gpt2, "variant = \"mla\"\nkv_lora_rank = 20", false),
        (gpt2, "variant = \"gqa\"\nnum_key_value_heads = 2", false),
    ] {
        let want = logits(&mut engine(&format!("{model}\nvariant = \"none\"")), &x, 0);
        let mut engine = engine(&format!("{model}\n{cache}"));
        for chunk in [0, 1, 5] {
            let error = distance(&logits(&mut engine, &x, chunk), &want);
            assert_eq!(error < 2e-4, exact, "{cache:?} in chunks of {chunk}: {error}");
        }
        if !exact {
            assert_ne!(
                engine.spec().exactness,
                kvlab_core::Exactness::Exact,
                "{cache:?} is not marked"
            );
        }
    }
}

/// Random weights are not drawn until the system ends the process: DeepSeek-V3 in f32 takes 2.7 TB.
#[test]
fn weights_beyond_memory_are_refused() {
    if kvlab_engine::free_memory().is_none_or(|free| free.0 > 1 << 41) {
        return println!("SKIPPED: this machine does not say how much memory is free, or has enough");
    }
    let path = std::path::Path::new("configs/models/deepseek-v3.toml");
    let sets = ["cache.capacity=16".to_owned()];
    let config =
        kvlab_engine::registry::with_known(|known| kvlab_config::ModelConfig::load(path, &sets, known)).unwrap();
    let Err(error) = kvlab_engine::Engine::load(&config, &mut |_, _| {}) else {
        panic!("it was loaded")
    };
    let error = error.to_string();
    assert!(
        error.contains("[model.geometry]") && error.contains("kvlab plan"),
        "{error}"
    );
}
