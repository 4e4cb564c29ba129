//! Several sequences: a pool that is too small for them, a prefix that they share, samples of one prompt.

use super::*;
use kvlab_core::CacheError;

const PAGED: &str = "layout = \"paged\"\npage_size = 4\nprefill_chunk = 6";

fn sampled(max_new_tokens: usize) -> Request {
    Request {
        sampling: Sampling {
            temperature: 1.0,
            seed: 5,
            ..Sampling::default()
        },
        ..request(max_new_tokens)
    }
}

/// T61, T62: five sequences in the room of two. Nothing hangs, and every stream of tokens is that of an unconstrained
/// run, with nothing lost or repeated.
#[test]
fn t61_t62_sequences_wait_for_room() {
    let prompts: Vec<_> = [9, 14, 3, 17, 6].into_iter().map(|n| tokens(n, n)).collect();
    for (cache, computed_again) in [
        (PAGED, true),
        ("layout = \"paged\"\npage_size = 4\nprefix_sharing = true", true),
        // A sequence has its room to the end: those that have none wait, and are computed once.
        ("layout = \"contiguous\"", false),
    ] {
        let wide = format!("{cache}\nsequences = 5");
        let narrow = format!("{cache}\nsequences = 2\ncapacity = \"32 tokens\"");
        for request in [request(15), sampled(15)] {
            let want = engine(&tiny("llama", GQA, &wide)).generate(&prompts, &request, &mut |_| {});
            let mut engine = engine(&tiny("llama", GQA, &narrow));
            let mut seen = vec![Vec::new(); 5];
            let got = engine
                .generate(&prompts, &request, &mut |event| seen[event.prompt].push(event.token))
                .unwrap();
            for (i, (got, want)) in got.iter().zip(want.unwrap()).enumerate() {
                assert_eq!(got.tokens, want.tokens, "{cache:?}, prompt {i}");
                assert_eq!(got.tokens, seen[i], "{cache:?}, prompt {i}");
                assert_eq!((got.gaps.len(), want.preemptions), (14, 0), "{cache:?}, prompt {i}");
            }
            let preemptions: usize = got.iter().map(|g| g.preemptions).sum();
            assert_eq!(preemptions > 0, computed_again, "{cache:?}: {preemptions}");
            assert_eq!(got[0].preemptions, 0, "the oldest goes on");
            assert_eq!(engine.usage().used().0, 0, "nothing is left open");
        }
    }
}

/// T61: what does not fit alone is refused with numbers and the way out, and leaves nothing behind.
#[test]
fn t61_a_sequence_that_does_not_fit_alone() {
    let mut engine = engine(&tiny("llama", GQA, &format!("{PAGED}\ncapacity = \"32 tokens\"")));
    let other = engine.cache().open(&[]).unwrap().seq;
    let mut step = engine
        .cache()
        .begin(&[kvlab_core::Chunk {
            seq: other,
            tokens: &[1; 20],
        }])
        .unwrap();
    let rows = || kvlab_core::Rows {
        key: burn::tensor::Tensor::zeros([20, 2, 8], &burn::tensor::Device::flex()),
        value: Some(burn::tensor::Tensor::zeros([20, 2, 8], &burn::tensor::Device::flex())),
    };
    step.extend(kvlab_core::LayerId(0), rows()).unwrap();
    step.extend(kvlab_core::LayerId(1), rows()).unwrap();
    step.commit(kvlab_core::Accept::All).unwrap();
    let prompts = [tokens(8, 1), tokens(9, 2)];
    let error = engine.generate(&prompts, &request(10), &mut |_| {}).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, EngineError::Cache(CacheError::NoRoom { .. })), "{text}");
    assert!(text.contains("cache.capacity") && text.contains("pages"), "{text}");
    engine.cache().close(other).unwrap();
    assert_eq!(engine.usage().used().0, 0);
    assert_eq!(engine.generate(&prompts, &request(10), &mut |_| {}).unwrap().len(), 2);
}

/// Ten sequences that begin with the same 1,000 tokens take little more memory than one.
#[test]
fn ten_sequences_share_a_prefix() {
    let geometry = "num_key_value_heads = 2\nhead_dim = 8\nmax_position_embeddings = 2048";
    let used = |sharing: bool, sequences: usize| {
        let cache = format!(
            "layout = \"paged\"\nprefix_sharing = {sharing}\nsequences = 10\ncapacity = \"1100 tokens\"\nprefill_chunk = 250"
        );
        let mut engine = engine(&tiny("llama", geometry, &cache));
        let prefix = tokens(1000, 3);
        let prompt = |i: usize| [&prefix[..], &tokens(8, 50 + i)].concat();
        // One has come before; its rows are kept.
        engine.generate(&[prompt(0)], &request(1), &mut |_| {}).unwrap();
        let prompts: Vec<_> = (0..sequences).map(prompt).collect();
        let done = engine.generate(&prompts, &request(1), &mut |_| {}).unwrap();
        let found = if sharing { 992 } else { 0 };
        assert!(done[1..].iter().all(|g| g.cached_tokens == found), "{sharing}");
        let usage = done.last().unwrap().usage;
        (usage.used() + usage.padding).0 as f64
    };
    let one = used(true, 1);
    assert!(used(true, 10) < 1.2 * one);
    assert!(used(false, 10) > 9.9 * one);
}

/// Samples: each is what its seed says it is, the prompt is computed once, and its rows are shared.
#[test]
fn samples_of_one_prompt() {
    let prompt = tokens(33, 6);
    let hybrid = "sliding_window = 6\nlayer_types = [\"sliding_attention\", \"full_attention\"]\n\
                  query_pre_attn_scalar = 8\nhidden_activation = \"gelu_pytorch_tanh\"";
    for (family, geometry, cache, shares) in [
        ("llama", "", PAGED, true),
        ("llama", "", "", false),
        (
            "llama",
            "",
            "key = { codec = \"int8\", axis = \"channel\", group = 8 }",
            false,
        ),
        ("llama", "", "variant = \"none\"", false),
        ("gemma2", hybrid, "", false),
    ] {
        let mut engine = engine(&tiny(
            family,
            &format!("{GQA}\n{geometry}"),
            &format!("{cache}\nsequences = 4"),
        ));
        let mut seen = vec![Vec::new(); 4];
        let samples = engine
            .samples(&prompt, 4, &sampled(9), &mut |event| {
                seen[event.prompt].push(event.token)
            })
            .unwrap();
        assert_eq!(engine.usage().used().0, 0, "{cache:?}: nothing is left open");
        for (i, sample) in samples.generations.iter().enumerate() {
            let mut alone = sampled(9);
            alone.sampling.seed += i as u64;
            let want = engine
                .generate(std::slice::from_ref(&prompt), &alone, &mut |_| {})
                .unwrap();
            assert_eq!(sample.tokens, want[0].tokens, "{family}, {cache:?}, sample {i}");
            assert_eq!(sample.tokens, seen[i]);
            assert_eq!((sample.log_probs.len(), want[0].log_probs.len()), (9, 0));
        }
        let first = &samples.generations[0];
        let mut all = prompt.clone();
        all.extend(&first.tokens);
        let rows = logits(&mut engine, &all, 0);
        let softmax = |row: &[f32], t: u32| {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            f64::from(row[t as usize]) - sum.ln()
        };
        let want = first
            .tokens
            .iter()
            .enumerate()
            .map(|(i, &t)| softmax(&rows[32 + i], t))
            .sum::<f64>()
            / 9.0;
        assert!((first.mean_log_prob().unwrap() - want).abs() < 1e-2, "{cache:?}");
        let (used, apart) = (samples.usage.used(), samples.apart);
        match shares {
            true => assert!(used.0 * 2 < apart.0, "{used} of {apart}"),
            false => assert_eq!(used, apart, "{cache:?}"),
        }
    }
}

#[test]
fn samples_that_cannot_be_are_refused() {
    let mut two = engine(&tiny("llama", GQA, "sequences = 2"));
    let same = two.samples(&tokens(5, 1), 3, &request(4), &mut |_| {}).unwrap_err();
    assert!(same.to_string().contains("generate.temperature"), "{same}");
    let room = two.samples(&tokens(5, 1), 3, &sampled(4), &mut |_| {}).unwrap_err();
    assert!(room.to_string().contains("cache.sequences"), "{room}");
    assert_eq!(two.usage().used().0, 0, "nothing is left open");
    assert!(matches!(
        two.samples(&[], 2, &sampled(4), &mut |_| {}),
        Err(EngineError::EmptyPrompt)
    ));
    let one = two.samples(&tokens(5, 1), 1, &request(4), &mut |_| {}).unwrap();
    assert_eq!(one.generations.len(), 1);
    let one = two.samples(&tokens(1, 1), 2, &sampled(4), &mut |_| {}).unwrap();
    assert_eq!(one.generations[1].tokens.len(), 4, "a prompt of one token");
}
