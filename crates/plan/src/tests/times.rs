//! Times, by formulas written out.

use super::{at, facts, planned, subject};
use crate::device::DEVICES;
use crate::work::Steps;
use crate::{Device, Parameters, Precision, Question, plan};
use kvlab_core::Bytes;

fn device() -> Device {
    Device::find("h100-sxm").unwrap()
}

/// Every preset of the repository is built in, reads, and names its source.
#[test]
fn presets() {
    let folder = format!("{}/../../configs/devices", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let mut known: Vec<_> = DEVICES.iter().map(|(name, _)| (*name).to_owned()).collect();
    files.sort();
    known.sort();
    assert_eq!(files, known);
    for name in known {
        let device = Device::find(&name).unwrap();
        assert!(device.source.starts_with("https://"), "{name}");
    }
    for (name, _) in crate::PRICES {
        crate::Prices::find(name).unwrap();
    }
}

/// Weights of fewer bits are multiplied in 16; a device without 16 bits multiplies in 32.
#[test]
fn the_rate_is_that_of_the_multiplication() {
    assert_eq!(device().rate(Precision::Fp32), Some((67.0 * 1e12, "f32")));
    assert_eq!(device().rate(Precision::Int4), Some((989.5 * 1e12, "f16")));
    assert_eq!(
        Device::find("epyc-9654").unwrap().rate(Precision::Int4).unwrap().1,
        "f32"
    );
    assert_eq!(Device::find("m4-max").unwrap().rate(Precision::Fp16), None);
}

/// Llama 3.1 8B on an H100: everything written out.
#[test]
fn llama_3_1_8b_on_an_h100() {
    let context = 8192;
    let question = Question {
        device: Some(device()),
        ..at(context)
    };
    let plan = planned("llama-3.1-8b", &question);
    let times = facts(&plan, "own", "f16").times.unwrap();
    let (head, norms) = (128_256.0 * 4096.0, 65.0 * 4096.0);
    let total = plan.model.parameters.total as f64;
    let layers = total - 2.0 * head - norms;
    // Each of n tokens sees itself and all before it: n (n + 1) / 2 rows, in 32 layers, for 32 heads of 128 + 128 numbers.
    let n = context as f64;
    let attention = 2.0 * 32.0 * 32.0 * 256.0 * n * (n + 1.0) / 2.0;
    let prompt = 2.0 * (layers * n + head) + attention;
    let want = prompt / 989.5e12 * 1e3;
    assert!((times.ttft_ms.unwrap() / want - 1.0).abs() < 1e-9, "{times:?} {want}");
    assert!(!times.ttft_by_memory);
    // A token reads all weights but the embedding, and 1 GiB of rows.
    let bytes = 2.0 * (total - head) + f64::from(1 << 30);
    let want = bytes / 3350e9 * 1e3;
    assert!((times.itl_ms / want - 1.0).abs() < 1e-9, "{times:?} {want}");
    assert!(times.itl_by_memory);
}

/// As many requests as fit share one reading of the weights, until computing takes longer.
#[test]
fn requests_share_the_weights() {
    let question = |requests| Question {
        device: Some(device()),
        requests: Some(requests),
        ..at(1024)
    };
    let itl = |requests| {
        facts(&planned("llama-3.1-8b", &question(requests)), "own", "f16")
            .times
            .unwrap()
    };
    let (one, two) = (itl(1), itl(2));
    let rows = 1024.0 * 131_072.0 / 3350e9 * 1e3;
    assert!((two.itl_ms - one.itl_ms - rows).abs() < 1e-9);
    let many = itl(20_000);
    assert!(many.itl_ms > 100.0 * one.itl_ms);
    let plan = planned("llama-3.1-8b", &question(1));
    let cell = facts(&plan, "own", "f16");
    let (fit, times) = (cell.fit.unwrap(), cell.times.unwrap());
    let full = itl(usize::try_from(fit.requests).unwrap());
    let want = fit.requests as f64 / full.itl_ms * 1e3;
    assert!((times.most_tokens_per_second.unwrap() / want - 1.0).abs() < 1e-9);
}

/// A device whose FLOP/s nobody publishes has no TTFT, and says so.
#[test]
fn no_flops_no_ttft() {
    let question = Question {
        device: Some(Device::find("m4-max").unwrap()),
        ..at(1024)
    };
    let plan = planned("llama-3.1-8b", &question);
    assert_eq!(facts(&plan, "own", "f16").times.unwrap().ttft_ms, None);
    let text = crate::show::terminal(&plan, None);
    assert!(text.contains("no TTFT") && !text.contains("\nTTFT"), "{text}");
    assert!(text.contains("ITL") && !text.contains("Tokens a second"), "{text}");
}

/// A prompt in two parts computes as much as in one, but for the head; a window computes less.
#[test]
fn parts_of_a_prompt_add_up() {
    let subject = subject("mistral-7b", &[]);
    let steps = Steps::new(&subject.model, Bytes(1 << 30));
    let caches = crate::caches::Caches::new(&subject, None).unwrap();
    let spec = |tokens| caches.spec(&caches.variants[0], &caches.columns[0], tokens, 1).unwrap();
    let spec = spec(10_000);
    let head = 2.0 * Parameters::of(&subject.model).head as f64;
    let whole = steps.prefill(&spec, 0, 10_000).flops;
    let parts = steps.prefill(&spec, 0, 3_000).flops + steps.prefill(&spec, 3_000, 7_000).flops - head;
    assert!((whole / parts - 1.0).abs() < 1e-12);
    // By the definition, row by row: a query sees itself and at most 4095 before it.
    let seen: f64 = (1..=10_000_u32).map(|n| f64::from(n.min(4096))).sum();
    let p = Parameters::of(&subject.model);
    let want = 2.0 * (p.multiplied as f64 * 1e4 + p.head as f64) + 32.0 * 2.0 * 32.0 * 256.0 * seen;
    assert!((whole / want - 1.0).abs() < 1e-12, "{whole} {want}");
}

/// Over a latent cache a token's attention works on the latent: (512 + 64) + 512 numbers for each of 128 heads.
#[test]
fn decoding_over_a_latent() {
    let subject = subject("deepseek-v2", &[]);
    let steps = Steps::new(&subject.model, Bytes(1 << 30));
    let caches = crate::caches::Caches::new(&subject, None).unwrap();
    let spec = caches.spec(&caches.variants[0], &caches.columns[0], 5000, 1).unwrap();
    let more = steps.decode(&spec, 4999, 1).flops - steps.decode(&spec, 4998, 1).flops;
    assert_eq!(more, 60.0 * 2.0 * 128.0 * (512.0 + 64.0 + 512.0));
}

/// The last turn of a conversation computes only what is new.
#[test]
fn a_cached_prefix_shortens_the_last_turn() {
    let conversation = crate::Conversation {
        turns: 10,
        system: 2000,
        user: 100,
        reply: 300,
    };
    let question = Question {
        device: Some(device()),
        conversation: Some((conversation, crate::Prices::find("example").unwrap())),
        ..Question::default()
    };
    let plan = plan(&subject("llama-3.1-8b", &[]), &question).unwrap();
    let [without, with] = plan.last_turn_ttft_ms.unwrap();
    // 5700 tokens against 400, which read all weights once.
    assert!(without > 5.0 * with && with > 0.0, "{without} {with}");
}
