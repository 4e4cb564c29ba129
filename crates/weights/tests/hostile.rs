//! T86: a GGUF file cut at 200 places and with 200 bytes flipped in its header gives errors or a model, never a
//! panic and never an allocation that the file does not warrant. Alone in its binary, since it measures memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "models/made.rs"]
mod made;

use kvlab_weights::gguf::convert::llama;
use kvlab_weights::gguf::write::{Meta, to_bytes};
use kvlab_weights::{Checkpoint, Dtype};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The most address space that the process ever had, in KiB. Counts what is allocated and never touched.
/// `None` where the system does not say.
fn peak() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmPeak:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Opens a model and reads all of it. Whether that worked.
fn read_all(bytes: &[u8]) -> bool {
    let Ok(model) = made::open_bytes("model.gguf", bytes) else {
        return false;
    };
    model.tokenizer();
    model.fingerprint();
    let names: Vec<String> = model.names().map(str::to_owned).collect();
    names
        .iter()
        .filter(|name| {
            model.packed(name);
            model.f32(name).is_err()
        })
        .count()
        == 0
}

#[test]
fn cuts_and_flips_are_errors_and_not_panics() {
    let folder = made::llama_folder(false);
    let from = Checkpoint::open(folder.path()).unwrap();
    let (mut metadata, tensors) = llama(&from, Dtype::Q8_0).unwrap();
    let tokens: Vec<String> = (0..40).map(|i| format!("token{i}")).collect();
    metadata.push(("tokenizer.ggml.model".into(), "gpt2".into()));
    metadata.push(("tokenizer.ggml.merges".into(), Meta::Texts(vec!["a b".into()])));
    metadata.push(("tokenizer.ggml.tokens".into(), Meta::Texts(tokens)));
    metadata.push(("tokenizer.ggml.eos_token_id".into(), Meta::U32(1)));
    let bytes = to_bytes(&metadata, &tensors);
    assert!(read_all(&bytes));
    let data: usize = tensors.iter().map(|t| t.bytes.len().next_multiple_of(32)).sum();
    let header = bytes.len() - data;

    let before = peak();
    let mut rng = ChaCha8Rng::seed_from_u64(86);
    for _ in 0..200 {
        // Half of the cuts in the header, where there is more to get wrong. A cut only takes padding if it
        // is within 31 bytes of the end.
        let end = if rng.random() { header } else { bytes.len() - 32 };
        let cut = rng.random_range(0..end);
        assert!(!read_all(&bytes[..cut]), "cut at {cut}");
    }
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..2000 {
        let mut bytes = bytes.clone();
        let at = rng.random_range(0..header);
        bytes[at] ^= rng.random_range(1..=255u8);
        if read_all(&bytes) {
            opened += 1;
        } else {
            refused += 1;
        }
    }
    println!("flips: {opened} opened, {refused} refused");
    assert!(refused > 200);
    let (Some(before), Some(after)) = (before, peak()) else {
        println!("skipped the check of memory: no /proc/self/status");
        return;
    };
    let grown = after.saturating_sub(before);
    assert!(
        grown < 256 * 1024,
        "{grown} KiB more for a file of {} bytes",
        bytes.len()
    );
}
