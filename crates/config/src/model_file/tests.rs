//! Model files: what is read, what is printed, and problems of the file as a whole.
#![allow(clippy::unwrap_used)]

mod keys;
mod sets;

use super::*;
use crate::known::TEST;
use crate::{Axis, Capacity, CodecSpec, Device, MatmulPrecision, ModelOrigin, Tokenizer, Weights};

const MINIMAL: &str = "schema = 1\nname = \"m\"\n[model]\npath = \"m.gguf\"\n";

fn parse_with(text: &str, sets: &[&str]) -> Result<ModelConfig, ConfigErrors> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    ModelConfig::parse(text, "x.toml", Path::new("/c/models"), &sets, &TEST)
}

/// The problems as `line:column message (help)`.
fn shown(result: Result<ModelConfig, ConfigErrors>) -> Vec<String> {
    let errors = result.err().map(|errors| errors.to_string()).unwrap_or_default();
    errors
        .lines()
        .map(|line| line.trim_start_matches("x.toml:").to_owned())
        .collect()
}

/// Checks the one problem of a minimal file followed by `more`, which starts at line 5.
#[track_caller]
fn check(more: &str, expect: &str) {
    assert_eq!(shown(parse_with(&format!("{MINIMAL}{more}"), &[])), [expect]);
}

fn full() -> ModelConfig {
    let text = r#"
schema = 1
name = "smollm2-135m"
[model]
path = "../m/x.gguf"
weights = "bf16"
allow_unused = true
tokenizer = "tokenizer.json"
[cache]
variant = "swa"
layout = "ring"
capacity = "2 GiB"
sequences = 3
key = { codec = "int8", group = 32, axis = "token", rotate = false }
value = { codec = "int4", clip = 0.5 }
window = 64
sinks = 4
prefill_chunk = 128
[[cache.layer]]
layers = [0, 29]
key = "f16"
[[cache.layer]]
layers = [1]
value = { codec = "int4", group = 64, axis = "channel" }
[backend]
device = "wgpu:1"
threads = 2
[generate]
max_new_tokens = 8
temperature = 1
top_k = 40
top_p = 0.9
seed = 7
ignore_eos = true
"#;
    parse_with(text, &[]).unwrap()
}

#[test]
fn reads_every_key() {
    let config = full();
    assert_eq!(config.name, "smollm2-135m");
    assert_eq!(config.model.origin, ModelOrigin::Path("/c/m/x.gguf".into()));
    assert_eq!(config.model.weights, Weights::Bf16);
    assert!(config.model.allow_unused);
    assert_eq!(
        config.model.tokenizer,
        Some(Tokenizer::File("/c/models/tokenizer.json".into()))
    );
    let cache = &config.cache;
    assert_eq!(
        (cache.variant.as_deref(), cache.layout.as_deref()),
        (Some("swa"), Some("ring"))
    );
    assert_eq!((cache.capacity, cache.sequences), (Some(Capacity::Bytes(2 << 30)), 3));
    assert_eq!(
        (cache.window, cache.sinks, cache.prefill_chunk),
        (Some(64), Some(4), 128)
    );
    let int8 = CodecSpec {
        group: Some(32),
        axis: Some(Axis::Token),
        rotate: Some(false),
        ..CodecSpec::named("int8")
    };
    assert_eq!(cache.key_codec(1), int8);
    assert_eq!(cache.key_codec(29), CodecSpec::named("f16"));
    assert_eq!(cache.value_codec(1).to_string(), "int4(group=64,axis=channel)");
    assert_eq!(cache.value_codec(0).to_string(), "int4(clip=0.5)");
    assert_eq!(
        (config.backend.device, config.backend.threads),
        (Device::Wgpu(Some(1)), Some(2))
    );
    let generate = &config.generate;
    assert_eq!((generate.max_new_tokens, generate.top_k, generate.seed), (8, 40, 7));
    assert_eq!(
        (generate.temperature, generate.top_p, generate.ignore_eos),
        (1.0, 0.9, true)
    );
}

#[test]
fn fills_in_defaults() {
    let config = parse_with(MINIMAL, &[]).unwrap();
    assert_eq!(
        config.cache,
        CacheConfig {
            sequences: 1,
            prefill_chunk: 512,
            ..CacheConfig::default()
        }
    );
    assert_eq!(config.cache.key_codec(0), CodecSpec::exact());
    assert_eq!(
        config.backend,
        BackendConfig {
            device: Device::Cpu,
            threads: None,
            matmul_precision: MatmulPrecision::High,
        }
    );
    let medium = parse_with(MINIMAL, &["backend.matmul_precision=medium"]).unwrap();
    assert_eq!(medium.backend.matmul_precision, MatmulPrecision::Medium);
    assert_eq!(config.generate.max_new_tokens, 64);
    let swa = parse_with(MINIMAL, &["cache.variant=swa"]).unwrap();
    assert_eq!((swa.cache.window, swa.cache.sinks), (None, Some(0)));
}

#[test]
fn reads_other_origins() {
    let hub = parse_with(MINIMAL, &["model.path=hf:owner/Some.Name-1"]).unwrap();
    assert_eq!(hub.model.origin, ModelOrigin::Hub("owner/Some.Name-1".into()));
    let text = "schema = 1\nname = \"r\"\n[model]\nseed = 3\ntokenizer = \"bytes\"\n[model.geometry]\nhidden_size = 64\nrope_scaling = { factor = 2.5 }\narchitectures = [\"A\"]\n";
    let random = parse_with(text, &[]).unwrap();
    let ModelOrigin::Random { geometry, seed } = &random.model.origin else {
        unreachable!("{random:?}")
    };
    assert_eq!(*seed, 3);
    let json = serde_json::Value::Object(geometry.clone()).to_string();
    assert_eq!(
        json,
        r#"{"hidden_size":64,"rope_scaling":{"factor":2.5},"architectures":["A"]}"#
    );
    assert_eq!(random.model.tokenizer, Some(Tokenizer::Bytes));
    assert_eq!(parse_with(&random.to_toml().unwrap(), &[]).unwrap(), random);
}

#[test]
fn the_printed_config_loads_to_the_same() {
    let odd = [
        "cache.variant=odd",
        "cache.parity={ of = [1, 2.5] }",
        "cache.capacity=17",
    ];
    let configs = [
        full(),
        parse_with(MINIMAL, &[]).unwrap(),
        parse_with(MINIMAL, &["model.path=hf:a/b", "cache.variant=none"]).unwrap(),
        parse_with(MINIMAL, &odd).unwrap(),
        parse_with(MINIMAL, &["backend.matmul_precision=medium"]).unwrap(),
    ];
    for config in configs {
        let text = config.to_toml().unwrap();
        assert_eq!(parse_with(&text, &[]).unwrap(), config, "{text}");
        assert_eq!(toml::from_str::<ModelConfig>(&text).unwrap(), config, "{text}");
    }
}

#[test]
fn reports_all_problems_of_a_file_in_its_order() {
    let text = "schema = 1\nname = \"m\"\nnmae = 2\n[model]\npath = \"m.gguf\"\nseed = 1\nweights = \"q4_0\"\n\n[cache]\nvariant = \"gqa\"\n  windwo = 1\nwindow = 64\nkey = \"int-8\"\ncapacity = 0\nsequences = -1\n[backend]\ndevice = \"gpu\"\nthreads = 0\nmatmul_precision = \"low\"\n[generate]\ntop_p = 1.5\n";
    let expect = [
        "3:1: unknown key `nmae` (did you mean `name`? known: schema, name, model, cache, backend, generate)",
        "6:1: `model.seed` has no effect: `model.path` brings its own weights; a seed belongs to `[model.geometry]` (remove the key)",
        "7:11: `model.weights` = \"q4_0\" is not built yet (one of: native, f32, f16, bf16)",
        "11:3: unknown key `cache.windwo` (did you mean `window`? known: variant, layout, capacity, key, value, residual, layer, sequences, prefill_chunk, num_key_value_heads, window, sinks, kv_lora_rank, parity)",
        "12:1: `cache.window` has no effect with variant `gqa` (it belongs to variant swa; remove the key)",
        "13:7: `cache.key` is \"int-8\", which is not known (did you mean `int8`? one of: f32, f16, bf16, int8, int4)",
        "14:12: `cache.capacity`: a capacity must be at least 1",
        "15:13: `cache.sequences` must be a whole number of at least 1, and is -1",
        "17:10: `backend.device`: unknown device `gpu`: one of cpu, wgpu, wgpu:N, cuda, cuda:N",
        "18:11: `backend.threads` must be a whole number of at least 1, and is 0",
        "19:20: `backend.matmul_precision` is \"low\", which is not known (one of: highest, high, medium)",
        "21:9: `generate.top_p` must be a number above 0 and at most 1, and is 1.5",
    ];
    assert_eq!(shown(parse_with(text, &[])), expect);
    let errors = parse_with(text, &[]).unwrap_err();
    let spans: Vec<&str> = errors
        .problems
        .iter()
        .map(|problem| &errors.source_text[problem.span.clone().unwrap()])
        .collect();
    let expect = [
        "nmae",
        "seed",
        "\"q4_0\"",
        "windwo",
        "window",
        "\"int-8\"",
        "0",
        "-1",
        "\"gpu\"",
        "0",
        "\"low\"",
        "1.5",
    ];
    assert_eq!(spans, expect);
}

#[test]
fn missing_keys_point_at_their_table() {
    let expect = [
        "1:1: `name` is missing (for example name = \"my-model\")",
        "1:1: `schema` is missing (for example schema = 1)",
        "1:1: the model is missing: neither `model.path` nor `[model.geometry]` is given (for example path = \"model.gguf\", a Hugging Face folder, or \"hf:owner/name\")",
    ];
    assert_eq!(shown(parse_with("", &[])), expect);
    let lines = shown(parse_with(
        "schema = 1\nname = \"m\"\n[cache]\n[model]\nweights = \"f32\"",
        &[],
    ));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("4:1: the model is missing"), "{lines:?}");
}

#[test]
fn another_schema_is_the_only_problem() {
    let expect = ["1:10: `schema` is 2, and this kvlab reads schema 1 (write schema = 1)"];
    assert_eq!(shown(parse_with("schema = 2\nfoo = 3", &[])), expect);
}

#[test]
fn text_that_is_not_toml_has_a_place() {
    let cases = [
        ("schema = 1\nname = \"m", "2:"),
        ("a = 1\na = 2\n", "2:1:"),
        ("x = = 1", "1:"),
        ("a = [1, 2\n", "1:"),
        ("[a\n", "1:"),
    ];
    for (text, place) in cases {
        let lines = shown(parse_with(text, &[]));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with(place) && lines[0].contains("not TOML: "),
            "{lines:?}"
        );
    }
}

#[test]
fn hostile_texts_are_refused_without_a_panic() {
    let deep = |open: &str, close: &str| format!("a = {}{}", open.repeat(100_000), close.repeat(100_000));
    let texts = [
        deep("[", "]"),
        deep("{a=", "}"),
        format!("{} = 1", vec!["a"; 100_000].join(".")),
        format!("[{}]", vec!["a"; 100_000].join(".")),
        "\0\u{1}\u{feff}".to_owned(),
        format!(
            "schema = 1\n{}",
            (0..2000).map(|index| format!("k{index} = 1\n")).collect::<String>()
        ),
    ];
    for text in texts {
        assert!(parse_with(&text, &[]).is_err());
    }
}

#[test]
fn load_reads_files_and_refuses_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.toml");
    std::fs::write(&path, MINIMAL).unwrap();
    let config = ModelConfig::load(&path, &[], &TEST).unwrap();
    assert_eq!(config.model.origin, ModelOrigin::Path(folder.path().join("m.gguf")));
    std::fs::write(&path, b"\xff\xfe").unwrap();
    let errors = ModelConfig::load(&path, &[], &TEST).unwrap_err();
    assert_eq!(
        errors.to_string(),
        format!("{}: is not UTF-8 text: byte 0 (line 1) is 0xff", path.display())
    );
    let errors = ModelConfig::load(&folder.path().join("no.toml"), &[], &TEST).unwrap_err();
    assert!(errors.to_string().contains("no.toml: cannot be read: "), "{errors}");
}
