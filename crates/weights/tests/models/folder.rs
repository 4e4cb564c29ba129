//! Hugging Face folders: single, sharded, half precision, incomplete, damaged.

use std::path::Path;

use half::{bf16, f16};
use kvlab_weights::{Checkpoint, Dtype, TokenizerSource, WeightsError};
use safetensors::tensor::{Dtype as Stored, TensorView};
use serde_json::json;

use crate::made::{everything, llama_folder, llama_tensors, safetensors};

fn error(path: &Path) -> String {
    Checkpoint::open(path).unwrap_err().to_string()
}

#[test]
fn a_single_file_gives_back_what_was_saved() {
    let folder = llama_folder(false);
    let model = Checkpoint::open(folder.path()).unwrap();
    let mut want = llama_tensors(false);
    want.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(everything(&model), want);
    assert_eq!(model.config()["hidden_size"], 64);
    assert_eq!(model.tokenizer(), TokenizerSource::None);
    let file = folder.path().join("model.safetensors");
    assert_eq!(model.file_bytes(), file.metadata().unwrap().len());
    let name = "model.layers.0.mlp.up_proj.weight";
    let packed = model.packed(name).unwrap();
    let values: Vec<f32> = packed.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    assert_eq!(values, model.f32(name).unwrap().data);
}

/// Splits the tensors over two shards, with a stray third one.
fn sharded() -> tempfile::TempDir {
    let folder = llama_folder(false);
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let tensors = llama_tensors(false);
    let (first, second) = tensors.split_at(7);
    let mut map = serde_json::Map::new();
    for (file, part) in [("a.safetensors", first), ("b.safetensors", second)] {
        safetensors(&folder.path().join(file), part);
        for (name, ..) in part {
            map.insert(name.clone(), file.into());
        }
    }
    let stray = ("stray.weight".to_owned(), vec![1], vec![1.0]);
    safetensors(&folder.path().join("c.safetensors"), &[stray]);
    let index = json!({ "metadata": {}, "weight_map": map });
    let path = folder.path().join("model.safetensors.index.json");
    std::fs::write(path, index.to_string()).unwrap();
    folder
}

#[test]
fn t82_shards_are_one_model_and_a_stray_one_is_not_merged() {
    let (whole, parts) = (llama_folder(false), sharded());
    let whole = Checkpoint::open(whole.path()).unwrap();
    let model = Checkpoint::open(parts.path()).unwrap();
    assert_eq!(everything(&model), everything(&whole));
    assert!(model.info("stray.weight").is_none());
}

#[test]
fn t82_a_tensor_that_the_index_does_not_list_is_not_merged() {
    let folder = sharded();
    let mut second: Vec<_> = llama_tensors(false).split_off(7);
    second.push(("extra.weight".to_owned(), vec![2], vec![1.0, 2.0]));
    safetensors(&folder.path().join("b.safetensors"), &second);
    let model = Checkpoint::open(folder.path()).unwrap();
    assert!(model.info("extra.weight").is_none());
}

#[test]
fn t82_a_missing_shard_is_named() {
    let folder = sharded();
    std::fs::remove_file(folder.path().join("b.safetensors")).unwrap();
    let error = error(folder.path());
    assert!(error.contains("b.safetensors") && error.contains("missing"), "{error}");
}

#[test]
fn t82_a_listed_tensor_that_its_file_lacks_is_named() {
    let folder = sharded();
    let second: Vec<_> = llama_tensors(false).split_off(8);
    safetensors(&folder.path().join("b.safetensors"), &second);
    let error = error(folder.path());
    let absent = &llama_tensors(false)[7].0;
    assert!(error.contains(absent) && error.contains("b.safetensors"), "{error}");
}

#[test]
fn a_shard_outside_the_folder_is_refused() {
    let folder = sharded();
    for shard in ["../x.safetensors", "/etc/passwd", "", "a/b"] {
        let index = json!({ "weight_map": { "x": shard } });
        let path = folder.path().join("model.safetensors.index.json");
        std::fs::write(path, index.to_string()).unwrap();
        let error = error(folder.path());
        assert!(error.contains("not a file name in this folder"), "{error}");
    }
}

#[test]
fn half_precision_is_upcast_and_integers_are_refused_by_name() {
    let folder = llama_folder(false);
    let x = [1.5f32, -3.25e-3, 700.0, 0.0];
    let halves: Vec<u8> = x.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect();
    let brains: Vec<u8> = x.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
    let doubles: Vec<u8> = x.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect();
    let integers = [7u8; 8];
    let views = [
        ("half", TensorView::new(Stored::F16, vec![2, 2], &halves)),
        ("brain", TensorView::new(Stored::BF16, vec![4], &brains)),
        ("double", TensorView::new(Stored::F64, vec![4], &doubles)),
        ("ids", TensorView::new(Stored::I64, vec![1], &integers)),
    ];
    let views = views.map(|(name, view)| (name, view.unwrap()));
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let model = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(model.f32("double").unwrap().data, x);
    let upcast: Vec<f32> = x.iter().map(|x| f16::from_f32(*x).to_f32()).collect();
    assert_eq!(model.f32("half").unwrap().data, upcast);
    assert_eq!(model.f32("half").unwrap().shape, [2, 2]);
    let upcast: Vec<f32> = x.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
    assert_eq!(model.f32("brain").unwrap().data, upcast);
    assert_eq!(model.info("ids").unwrap().dtype, Dtype::Other("I64"));
    let error = model.f32("ids").unwrap_err().to_string();
    assert!(
        error.contains("ids") && error.contains("I64") && error.contains("BF16"),
        "{error}"
    );
    let error = model.f32("nothing").unwrap_err();
    assert!(matches!(error, WeightsError::NoTensor { .. }), "{error}");
}

#[test]
fn a_cut_file_is_an_error_with_its_name_at_every_length() {
    let folder = llama_folder(true);
    let file = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    for cut in (0..bytes.len()).step_by(997).chain([1, 7, 8, bytes.len() - 1]) {
        std::fs::write(&file, &bytes[..cut]).unwrap();
        let error = error(folder.path());
        assert!(error.contains("model.safetensors"), "{cut}: {error}");
    }
}

#[test]
fn what_is_missing_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    assert!(error(&at.join("nowhere")).contains("no such file or folder"));
    assert!(error(at).contains("config.json"));
    std::fs::write(at.join("m.gguf"), "GGUF").unwrap();
    assert!(error(at).contains("m.gguf"));
    std::fs::write(at.join("config.json"), "{}").unwrap();
    assert!(error(at).contains("model.safetensors"));
    std::fs::write(at.join("pytorch_model.bin"), "").unwrap();
    assert!(error(at).contains("pickle"));
    std::fs::write(at.join("model.safetensors"), "").unwrap();
    assert!(error(at).contains("empty"));
    assert!(error(&at.join("model.safetensors")).contains("give the folder"));
    assert!(error(&at.join("config.json")).contains("neither a folder nor a GGUF"));
}

#[test]
fn json_that_is_no_object_is_refused() {
    let folder = llama_folder(true);
    for (name, text, say) in [
        ("config.json", "[1]", "an array"),
        ("config.json", "{\"a\":", "line 1"),
        ("generation_config.json", "3", "a number"),
        ("tokenizer_config.json", "\"x\"", "a string"),
        ("generation_config.json", r#"{"eos_token_id": -1}"#, "eos_token_id"),
        ("tokenizer_config.json", r#"{"chat_template": 3}"#, "chat_template"),
    ] {
        let path = folder.path().join(name);
        let before = std::fs::read(&path).ok();
        std::fs::write(&path, text).unwrap();
        let error = error(folder.path());
        assert!(error.contains(name) && error.contains(say), "{error}");
        match before {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
    }
}

#[test]
fn end_tokens_and_template_come_from_several_files() {
    let folder = llama_folder(true);
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let open = || Checkpoint::open(folder.path()).unwrap();
    assert_eq!((open().end_tokens(), open().chat_template()), (vec![1, 2], None));
    write("generation_config.json", r#"{"eos_token_id": [2, 5]}"#);
    write("tokenizer.json", "{}");
    write("tokenizer_config.json", r#"{"chat_template": "one"}"#);
    assert_eq!(open().end_tokens(), [1, 2, 5]);
    assert_eq!(open().chat_template().as_deref(), Some("one"));
    let json = folder.path().join("tokenizer.json");
    assert_eq!(open().tokenizer(), TokenizerSource::Json(json));
    let list = r#"{"chat_template": [{"name":"rag","template":"r"},{"name":"default","template":"d"}]}"#;
    write("tokenizer_config.json", list);
    assert_eq!(open().chat_template().as_deref(), Some("d"));
    write("chat_template.jinja", "file");
    assert_eq!(open().chat_template().as_deref(), Some("file"));
}

#[test]
fn the_fingerprint_follows_config_and_weights_and_not_the_path() {
    let (a, b) = (llama_folder(true), llama_folder(true));
    let print = |folder: &tempfile::TempDir| Checkpoint::open(folder.path()).unwrap().fingerprint();
    let first = print(&a);
    assert_eq!(first.len(), 64);
    assert_eq!(first, print(&b));
    let mut tensors = llama_tensors(true);
    tensors[3].2[5] += 0.5;
    safetensors(&b.path().join("model.safetensors"), &tensors);
    assert_ne!(first, print(&b));
    let config = a.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("10000.0", "10001.0")).unwrap();
    assert_ne!(first, print(&a));
}
