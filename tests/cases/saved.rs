//! T29: conversations in files.

use super::*;
use kvlab_core::LayerId;
use kvlab_engine::Conversation;
use kvlab_engine::text::Message;
use std::path::Path;

const WINDOW: &str = "sliding_window = 6";
const HYBRID: &str = "sliding_window = 6\nlayer_types = [\"sliding_attention\", \"full_attention\"]\n\
     query_pre_attn_scalar = 8\nhidden_activation = \"gelu_pytorch_tanh\"";
const INT4: &str = "{ codec = \"int4\", group = 8 }";

fn model(family: &str, geometry: &str, cache: &str) -> String {
    tiny(family, &format!("{GQA}\n{geometry}"), cache)
}

/// A conversation of one turn, saved.
fn saved(engine: &mut Engine, path: &Path) -> Conversation {
    let mut talk = Conversation::new();
    engine
        .converse(&mut talk, &tokens(23, 2), &request(6), &mut |_| {})
        .unwrap();
    engine.save(&talk, path).unwrap();
    talk
}

/// The stored rows of the last sequence that was opened, to the bit.
fn rows(engine: &mut Engine, talk: &Conversation) -> Vec<(Vec<usize>, Vec<u32>)> {
    let seq = talk.sequence().unwrap();
    let layers = engine.model().layers();
    let inspect = |layer| {
        let found = engine.cache().inspect(seq, LayerId(layer)).unwrap();
        let bits = |tensor: burn::tensor::Tensor<3>| tensor.into_data().try_to_vec::<f32>().unwrap();
        let mut values = bits(found.rows.key);
        values.extend(found.rows.value.map(bits).unwrap_or_default());
        (found.positions, values.into_iter().map(f32::to_bits).collect())
    };
    (0..layers).map(inspect).collect()
}

fn refusal(text: &str, path: &Path) -> String {
    let mut engine = engine(text);
    let error = engine.load_conversation(path).unwrap_err().to_string();
    assert_eq!(engine.usage().used().0, 0, "nothing changed");
    error
}

#[test]
fn t29_a_conversation_goes_on_in_another_engine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.safetensors");
    let channel = format!("key = {{ codec = \"int8\", axis = \"channel\", group = 8 }}\nvalue = {INT4}\nresidual = 5");
    for (family, geometry, cache, elsewhere) in [
        ("llama", "", "", "capacity = \"50 tokens\"\nsequences = 3"),
        (
            "llama",
            "",
            "key = \"f16\"\nvalue = \"bf16\"",
            "layout = \"paged\"\npage_size = 4",
        ),
        ("llama", "", &channel, ""),
        (
            "llama",
            "",
            &format!("key = \"fp8_e4m3\"\nvalue = {INT4}"),
            "prefill_chunk = 3",
        ),
        ("llama", "", "variant = \"mla\"\nkv_lora_rank = 16", ""),
        ("mistral", WINDOW, "", "sequences = 2"),
        ("gemma2", HYBRID, "", ""),
    ] {
        let mut first = engine(&model(family, geometry, cache));
        let mut talk = saved(&mut first, &path);
        talk.messages.push(Message {
            role: "user".into(),
            content: "ä\n".into(),
        });
        first.save(&talk, &path).unwrap();
        let mut second = engine(&model(family, geometry, &format!("{cache}\n{elsewhere}")));
        let mut again = second.load_conversation(&path).unwrap();
        assert_eq!((again.tokens(), &again.messages), (talk.tokens(), &talk.messages));
        assert_eq!(
            rows(&mut second, &again),
            rows(&mut first, &talk),
            "{family}, {cache:?}"
        );
        let text = [talk.tokens(), &tokens(3, 9)].concat();
        let want = first.converse(&mut talk, &text, &request(5), &mut |_| {}).unwrap();
        let got = second.converse(&mut again, &text, &request(5), &mut |_| {}).unwrap();
        assert_eq!(got.tokens, want.tokens, "{family}, {cache:?}");
        assert_eq!((got.cached_tokens, want.cached_tokens), (28, 28), "{family}, {cache:?}");
        second.end(again).unwrap();
        assert_eq!(second.usage().used().0, 0);
    }
}

/// T29: what would not be the same is refused by name, and the cache and the next run are as they were.
#[test]
fn t29_another_model_or_cache_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.safetensors");
    let swa = |window| format!("variant = \"swa\"\nwindow = {window}");
    let llama = |cache: &str| model("llama", "", cache);
    let base = llama("");
    for (text, other, why) in [
        (base.clone(), base.replace("seed = 7", "seed = 8"), "other weights"),
        (base.clone(), base.replace("10000.0", "20000.0"), "another config"),
        (
            base.clone(),
            base.replace("seed = 7", "seed = 7\nweights = \"bf16\""),
            "number format",
        ),
        (
            base.clone(),
            model("llama", "rope_scaling = { rope_type = \"linear\", factor = 2.0 }", ""),
            "config",
        ),
        (base.clone(), llama("key = \"f16\""), "keys as f32, here f16"),
        (
            llama("value = \"f16\""),
            llama("value = \"bf16\""),
            "values as f16, here bf16",
        ),
        (base.clone(), llama("variant = \"mha\""), "variant gqa, here mha"),
        (base.clone(), llama(&swa(20)), "variant gqa, here swa"),
        (llama(&swa(8)), llama(&swa(9)), "retention"),
        (
            llama("variant = \"mla\"\nkv_lora_rank = 16"),
            llama("variant = \"mla\"\nkv_lora_rank = 12"),
            "attention of",
        ),
        (base.clone(), llama("capacity = \"20 tokens\""), "cache.capacity"),
        (base.clone(), llama("variant = \"none\""), "not supported"),
        (
            model("mistral", WINDOW, ""),
            model("mistral", "sliding_window = 7", ""),
            "config",
        ),
    ] {
        saved(&mut engine(&text), &path);
        let error = refusal(&other, &path);
        assert!(error.contains(why), "{why}: {error}");
    }
    let mut live = engine(&llama("sequences = 2"));
    let mut talk = Conversation::new();
    let before = live
        .converse(&mut talk, &tokens(9, 1), &request(4), &mut |_| {})
        .unwrap();
    saved(&mut engine(&base.replace("seed = 7", "seed = 8")), &path);
    let used = live.usage();
    let kept = rows(&mut live, &talk);
    assert!(live.load_conversation(&path).is_err());
    assert_eq!((live.usage(), rows(&mut live, &talk)), (used, kept));
    let again = live.generate(&[tokens(9, 1)], &request(4), &mut |_| {}).unwrap();
    assert_eq!(again[0].tokens, before.tokens, "a following run is right");
    let room = engine(&base).save(&Conversation::new(), &path).unwrap_err();
    assert!(room.to_string().contains("nothing to save"), "{room}");
}

/// T29: a file that is cut short, garbage, or was changed.
#[test]
fn t29_damaged_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bad) = (folder.path().join("talk.safetensors"), folder.path().join("bad"));
    let text = model("llama", "", &format!("sequences = 2\nkey = {INT4}\nvalue = \"f16\""));
    let mut engine = engine(&text);
    let talk = saved(&mut engine, &path);
    let whole = std::fs::read(&path).unwrap();
    let mut try_bytes = |bytes: &[u8]| {
        std::fs::write(&bad, bytes).unwrap();
        let error = engine.load_conversation(&bad).unwrap_err();
        assert!(matches!(error, EngineError::Saved { .. }), "{error}");
        assert!(error.to_string().contains("bad: "), "{error}");
        error.to_string()
    };
    for cut in [0, 1, 7, 8, 9, 100, whole.len() / 2, whole.len() - 1] {
        try_bytes(&whole[..cut]);
    }
    try_bytes(&[&whole[..], b"x"].concat());
    try_bytes(b"kvlab? no: words, and more of them than a header is long.");
    let mut huge = whole.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    try_bytes(&huge);
    // The header is text: lengths stay the same, so that it still parses.
    let header = String::from_utf8(whole[8..].iter().copied().take_while(|&b| b < 128).collect()).unwrap();
    let swap = |from: &str, to: &str| {
        assert!(header.contains(from) && from.len() == to.len(), "{from}: {header}");
        let place = 8 + header.find(from).unwrap();
        let mut bytes = whole.clone();
        bytes[place..][..to.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    for (from, to, why) in [
        ("version 1", "version 7", "version 7"),
        ("\"layer.0.positions\":", "\"layer.5.positions\":", "layer.0.positions"),
        ("\"layer.1.key.0\":", "\"layer.1.yek.0\":", "layer.1.key.0"),
        ("\"length\":\"28\"", "\"length\":\"29\"", "rows"),
        ("\"length\":\"28\"", "\"length\":\"99\"", "29 tokens"),
        ("\"length\":\"28\"", "\"length\":\"2x\"", "length"),
        ("\"messages\":\"[]\"", "\"messages\":\"[[\"", "messages"),
        ("\"model\":\"", "\"mobel\":\"", "\"model\""),
    ] {
        let error = try_bytes(&swap(from, to));
        assert!(error.contains(why), "{from}: {error}");
    }
    // Tensors of other shapes and numbers than the cache has.
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&whole).unwrap();
    let parsed = safetensors::SafeTensors::deserialize(&whole).unwrap();
    for (name, dtype, shape) in [
        ("layer.0.key.0", safetensors::Dtype::U8, vec![28, 2, 5]),
        ("layer.1.value.0", safetensors::Dtype::BF16, vec![28, 2, 8]),
        ("layer.1.value.0", safetensors::Dtype::F16, vec![27, 2, 8]),
        ("layer.1.positions", safetensors::Dtype::U64, vec![27]),
        ("tokens", safetensors::Dtype::I32, vec![29]),
    ] {
        let bytes = vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8];
        let mut tensors = parsed.tensors();
        let place = tensors.iter_mut().find(|(n, _)| n == name).unwrap();
        place.1 = safetensors::tensor::TensorView::new(dtype, shape, &bytes).unwrap();
        let error = try_bytes(&safetensors::serialize(tensors, metadata.metadata().clone()).unwrap());
        assert!(
            error.contains("damaged") || error.contains("expected"),
            "{name}: {error}"
        );
    }
    assert!(
        engine
            .load_conversation(folder.path())
            .unwrap_err()
            .to_string()
            .contains("not a file")
    );
    assert!(engine.load_conversation(&folder.path().join("none")).is_err());
    engine.end(talk).unwrap();
    assert_eq!(engine.usage().used().0, 0, "nothing is left of all these");
    assert!(engine.load_conversation(&path).is_ok());
}

/// A file is replaced only by a complete one, and nothing else is left in its folder.
#[test]
fn t29_a_file_is_replaced_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.safetensors");
    let mut engine = engine(&model("llama", "", "sequences = 3"));
    saved(&mut engine, &path);
    let before = std::fs::read(&path).unwrap();
    assert!(engine.save(&Conversation::new(), &path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let mut other = Conversation::new();
    engine
        .converse(&mut other, &tokens(5, 4), &request(2), &mut |_| {})
        .unwrap();
    engine.save(&other, &path).unwrap();
    assert_ne!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let nowhere = engine.save(&other, &folder.path().join("no/such/file")).unwrap_err();
    assert!(nowhere.to_string().contains("cannot be written"), "{nowhere}");
}
