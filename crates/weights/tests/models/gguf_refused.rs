//! T86: GGUF files that are refused, each with its reason. Cuts and flips at random are in `hostile.rs`.

use kvlab_weights::gguf::write::{Meta, to_bytes};
use kvlab_weights::{TokenizerSource, WeightsError};

use crate::made::{Gguf, open_bytes};

fn says(made: &Gguf, words: &[&str]) {
    let error = made.error();
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

/// A llama with one change.
fn with(key: &str, value: Meta) -> Gguf {
    let mut made = Gguf::new("llama");
    made.set(key, value);
    made
}

#[test]
fn unknown_architecture_is_named_with_the_known_ones() {
    says(&Gguf::new("rwkv7"), &["rwkv7", "llama", "deepseek2"]);
    let mut made = Gguf::new("llama");
    made.unset("general.architecture");
    says(&made, &["general.architecture"]);
}

#[test]
fn missing_keys_are_named() {
    for key in [
        "llama.block_count",
        "llama.embedding_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "llama.context_length",
        "llama.feed_forward_length",
    ] {
        let mut made = Gguf::new("llama");
        made.unset(key);
        says(&made, &[key, "model.gguf"]);
    }
}

#[test]
fn impossible_numbers_are_refused() {
    for (key, value, say) in [
        ("llama.attention.key_length", Meta::U32(0), "at least 1"),
        ("llama.attention.head_count", Meta::U32(0), "at least 1"),
        ("llama.attention.head_count", Meta::U32(5), "no multiple"),
        ("llama.attention.head_count", Meta::I32(-4), "out of range"),
        ("llama.attention.head_count", "four".into(), "a string"),
        ("llama.attention.value_length", Meta::U32(4), "must be equal"),
        ("llama.rope.dimension_count", Meta::U32(9), "even"),
        ("llama.block_count", Meta::U32(u32::MAX), "layers in"),
        ("llama.rope.freq_base", Meta::F32(f32::NAN), "not finite"),
        ("llama.expert_count", Meta::U32(8), "Mixtral"),
        ("llama.rope.scaling.type", "longrope".into(), "longrope"),
        ("general.alignment", Meta::U32(24), "power of two"),
        ("general.alignment", Meta::U32(0), "power of two"),
        ("split.count", Meta::U32(3), "one of 3 parts"),
        ("tokenizer.ggml.eos_token_id", Meta::F32(1.0), "a float"),
    ] {
        says(&with(key, value), &[key.rsplit('.').next().unwrap(), say]);
    }
}

#[test]
fn stretched_rope_needs_its_factor() {
    let mut made = with("llama.rope.scaling.type", "linear".into());
    says(&made, &["no \"llama.rope.scaling.factor\""]);
    made.set("llama.rope.scaling.factor", Meta::F32(-1.0));
    says(&made, &["rope.scaling.factor", "above 0"]);
    made.set("llama.rope.scaling.factor", Meta::F32(2.0));
    assert!(made.open().is_ok());
    made.set("llama.rope.scaling.type", "yarn".into());
    made.set("llama.rope.scaling.yarn_attn_factor", Meta::F32(1.5));
    says(&made, &["yarn_attn_factor", "only 1"]);
}

#[test]
fn heads_by_layer_are_refused_unless_all_equal() {
    let key = "llama.attention.head_count_kv";
    says(&with(key, Meta::U32s(vec![2, 1])), &[key, "layer 1", "not supported"]);
    says(&with(key, Meta::U32s(vec![])), &[key, "empty"]);
    let model = with(key, Meta::I32s(vec![2, 2, 2])).open().unwrap();
    assert_eq!(model.config()["num_key_value_heads"], 2);
}

#[test]
fn other_byte_orders_and_versions() {
    let made = Gguf::new("llama");
    let bytes = to_bytes(&made.metadata, &made.tensors);
    let version = |v: [u8; 4]| {
        let mut bytes = bytes.clone();
        bytes[4..8].copy_from_slice(&v);
        open_bytes("m.gguf", &bytes)
    };
    assert!(version([2, 0, 0, 0]).is_ok());
    for (v, say) in [
        ([0, 0, 0, 3], "big-endian GGUF version 3"),
        ([1, 0, 0, 0], "GGUF version 1"),
        ([4, 0, 0, 0], "GGUF version 4"),
    ] {
        let error = version(v).unwrap_err().to_string();
        assert!(error.contains(say), "{error}");
    }
    let error = open_bytes("m.gguf", b"PK\x03\x04....").unwrap_err();
    assert!(error.to_string().contains("begin with"), "{error}");
    assert!(open_bytes("no-extension", &bytes).is_ok());
}

/// Finds a tensor's entry in the header, and changes what follows its name.
fn patched(name: &str, at: usize, with: &[u8]) -> Result<kvlab_weights::Checkpoint, WeightsError> {
    let made = Gguf::new("llama");
    let mut bytes = to_bytes(&made.metadata, &made.tensors);
    let found = bytes.windows(name.len()).position(|w| w == name.as_bytes());
    let at = found.unwrap() + name.len() + at;
    bytes[at..at + with.len()].copy_from_slice(with);
    open_bytes("m.gguf", &bytes)
}

#[test]
fn tensors_that_cannot_be_are_refused() {
    let huge = u64::MAX.to_le_bytes();
    // Behind the name: dimension count, two dimensions, type, offset.
    for (at, with, say) in [
        (0, &0u32.to_le_bytes()[..], "0 dimensions"),
        (0, &5u32.to_le_bytes()[..], "5 dimensions"),
        (4, &0u64.to_le_bytes()[..], "a dimension of 0"),
        (4, &huge[..], "not whole blocks"),
        (12, &huge[..], "beyond any file"),
        (12, &(1u64 << 40).to_le_bytes()[..], "beyond the end of the file"),
        (20, &2u32.to_le_bytes()[..], "beyond"),
        (20, &16u32.to_le_bytes()[..], "IQ2_XXS"),
        (20, &999u32.to_le_bytes()[..], "ggml type 999"),
        (24, &1u64.to_le_bytes()[..], "alignment 32"),
        (24, &(u64::MAX - 31).to_le_bytes()[..], "beyond the end of the file"),
    ] {
        let opened = patched("token_embd.weight", at, with);
        // Q4_0 of 10 x 32 is smaller than f32, so that it fits: not an error.
        if at == 20 && with == 2u32.to_le_bytes() {
            assert!(opened.is_ok());
            continue;
        }
        let error = opened.unwrap_err().to_string();
        assert!(error.contains(say) && error.contains("token_embd"), "{say}: {error}");
    }
    let mut made = Gguf::new("llama");
    made.tensor("output_norm.weight", &[32]);
    says(&made, &["output_norm.weight", "two tensors"]);
    made.tensors.pop();
    made.tensor("model.norm.weight", &[32]);
    says(&made, &["model.norm.weight", "two tensors"]);
    made.tensors.clear();
    made.tensor("token_embd.weight", &[320]);
    says(&made, &["token_embd.weight", "two dimensions"]);
    let mut made = Gguf::new("llama");
    made.tensor("blk.0.attn_q.weight", &[12, 32]);
    says(&made, &["blk.0.attn_q.weight", "12 rows are not 4 heads"]);
}

#[test]
fn counts_are_compared_with_the_file_before_anything_is_allocated() {
    let made = Gguf::new("llama");
    let bytes = to_bytes(&made.metadata, &made.tensors);
    for (at, say) in [(8, "tensors"), (16, "metadata entries"), (24, "a metadata key")] {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
        let error = open_bytes("m.gguf", &bytes).unwrap_err().to_string();
        assert!(error.contains(say) && error.contains("byte"), "{error}");
    }
}

/// Metadata bytes that the writer cannot write.
fn with_raw(kind: u32, value: &[u8]) -> Result<kvlab_weights::Checkpoint, WeightsError> {
    let mut made = Gguf::new("llama");
    made.metadata.insert(0, ("x".into(), Meta::U32(7)));
    let bytes = to_bytes(&made.metadata, &made.tensors);
    let (before, after) = (24 + 8 + 1, 24 + 8 + 1 + 4 + 4);
    // The data is moved by what the value is longer, so pad the tensor table's end by writing it anew.
    let mut raw = bytes[..before].to_vec();
    raw.extend(kind.to_le_bytes());
    raw.extend(value);
    raw.extend(&bytes[after..]);
    raw.resize(raw.len() + 64, 0);
    open_bytes("m.gguf", &raw)
}

#[test]
fn strange_values_are_refused_with_their_place() {
    let list = |kind: u32, length: u64| {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes
    };
    let nested = [list(9, 1), list(9, 1), list(9, 1), list(9, 1), list(0, 0)].concat();
    for (kind, value, say) in [
        (13, vec![0; 4], "unknown type 13"),
        (7, vec![2], "bool of value 2"),
        (8, [2u64.to_le_bytes().to_vec(), vec![0xff, 0xfe]].concat(), "not UTF-8"),
        (9, list(99, 1), "unknown type 99"),
        (9, list(0, u64::MAX), "array elements"),
        (9, list(8, 1 << 40), "array elements"),
        (9, list(10, u64::MAX / 8), "array elements"),
        (9, nested, "deep"),
    ] {
        let error = with_raw(kind, &value).unwrap_err();
        assert!(matches!(error, WeightsError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(say), "{say}: {error}");
    }
    let shallow = [list(9, 1), list(9, 1), list(0, 2), vec![1, 2]].concat();
    assert!(with_raw(9, &shallow).is_ok());
}

#[test]
fn the_tokenizer_is_handed_over_as_it_is() {
    let mut made = Gguf::new("llama");
    assert_eq!(made.open().unwrap().tokenizer(), TokenizerSource::None);
    made.set("tokenizer.ggml.model", "llama".into());
    says(&made, &["tokenizer.ggml.tokens"]);
    let tokens: Vec<String> = ["<s>", "</s>", "▁a"].map(str::to_owned).to_vec();
    made.set("tokenizer.ggml.tokens", Meta::Texts(tokens.clone()));
    made.set("tokenizer.ggml.scores", Meta::F32s(vec![0.0, 0.0, -1.0]));
    made.set("tokenizer.ggml.token_type", Meta::I32s(vec![3, 3, 1]));
    made.set("tokenizer.ggml.eos_token_id", Meta::U32(1));
    made.set("tokenizer.ggml.eot_token_id", Meta::U32(2));
    made.set("tokenizer.ggml.padding_token_id", Meta::U32(u32::MAX));
    made.set("tokenizer.chat_template", "{{ x }}".into());
    let model = made.open().unwrap();
    let TokenizerSource::Gguf(tokenizer) = model.tokenizer() else {
        panic!("no tokenizer");
    };
    assert_eq!(tokenizer.tokens, tokens);
    assert_eq!(tokenizer.scores[2], -1.0);
    assert_eq!((tokenizer.eos, tokenizer.pad), (Some(1), None));
    assert!(tokenizer.add_bos && tokenizer.add_space_prefix);
    assert_eq!(model.end_tokens(), [1, 2]);
    assert_eq!(model.chat_template().as_deref(), Some("{{ x }}"));
    made.set("tokenizer.ggml.scores", Meta::F32s(vec![0.0]));
    says(&made, &["scores", "1 entries for 3 tokens"]);
    made.unset("tokenizer.ggml.scores");
    made.set("tokenizer.ggml.bos_token_id", Meta::U32(3));
    says(&made, &["bos_token_id", "token 3 of 3"]);
}
