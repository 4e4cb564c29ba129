//! Model files: what is read, and every kind of problem with its place.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::known::TEST;
use crate::{Axis, Capacity, CodecSpec, Device, ModelOrigin, Tokenizer, Weights};

const MINIMAL: &str = "schema = 1\nname = \"m\"\n[model]\npath = \"m.gguf\"\n";

fn parse_with(text: &str, sets: &[&str]) -> Result<ModelConfig, ConfigErrors> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    ModelConfig::parse(text, "x.toml", Path::new("/c/models"), &sets, &TEST)
}

/// The problems as `line:column message (help)`.
fn shown(result: Result<ModelConfig, ConfigErrors>) -> Vec<String> {
    let errors = result.err().map(|errors| errors.to_string()).unwrap_or_default();
    errors.lines().map(|line| line.trim_start_matches("x.toml:").to_owned()).collect()
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
    assert_eq!(config.model.tokenizer, Some(Tokenizer::File("/c/models/tokenizer.json".into())));
    let cache = &config.cache;
    assert_eq!((cache.variant.as_deref(), cache.layout.as_deref()), (Some("swa"), Some("ring")));
    assert_eq!((cache.capacity, cache.sequences), (Some(Capacity::Bytes(2 << 30)), 3));
    assert_eq!((cache.window, cache.sinks, cache.prefill_chunk), (Some(64), Some(4), 128));
    let int8 = CodecSpec { group: Some(32), axis: Some(Axis::Token), rotate: Some(false), ..CodecSpec::named("int8") };
    assert_eq!(cache.key_codec(1), int8);
    assert_eq!(cache.key_codec(29), CodecSpec::named("f16"));
    assert_eq!(cache.value_codec(1).to_string(), "int4(group=64,axis=channel)");
    assert_eq!(cache.value_codec(0).to_string(), "int4(clip=0.5)");
    assert_eq!((config.backend.device, config.backend.threads), (Device::Wgpu(Some(1)), Some(2)));
    let generate = &config.generate;
    assert_eq!((generate.max_new_tokens, generate.top_k, generate.seed), (8, 40, 7));
    assert_eq!((generate.temperature, generate.top_p, generate.ignore_eos), (1.0, 0.9, true));
}

#[test]
fn fills_in_defaults() {
    let config = parse_with(MINIMAL, &[]).unwrap();
    assert_eq!(config.cache, CacheConfig { sequences: 1, prefill_chunk: 512, ..CacheConfig::default() });
    assert_eq!(config.cache.key_codec(0), CodecSpec::exact());
    assert_eq!(config.backend, BackendConfig { device: Device::Cpu, threads: None });
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
    let ModelOrigin::Random { geometry, seed } = &random.model.origin else { unreachable!("{random:?}") };
    assert_eq!(*seed, 3);
    let json = serde_json::Value::Object(geometry.clone()).to_string();
    assert_eq!(json, r#"{"hidden_size":64,"rope_scaling":{"factor":2.5},"architectures":["A"]}"#);
    assert_eq!(random.model.tokenizer, Some(Tokenizer::Bytes));
    assert_eq!(parse_with(&random.to_toml().unwrap(), &[]).unwrap(), random);
}

#[test]
fn the_printed_config_loads_to_the_same() {
    let odd = ["cache.variant=odd", "cache.parity={ of = [1, 2.5] }", "cache.capacity=17"];
    let configs = [
        full(),
        parse_with(MINIMAL, &[]).unwrap(),
        parse_with(MINIMAL, &["model.path=hf:a/b", "cache.variant=none"]).unwrap(),
        parse_with(MINIMAL, &odd).unwrap(),
    ];
    for config in configs {
        let text = config.to_toml().unwrap();
        assert_eq!(parse_with(&text, &[]).unwrap(), config, "{text}");
        assert_eq!(toml::from_str::<ModelConfig>(&text).unwrap(), config, "{text}");
    }
}

#[test]
fn reports_all_problems_of_a_file_in_its_order() {
    let text = "schema = 1\nname = \"m\"\nnmae = 2\n[model]\npath = \"m.gguf\"\nseed = 1\nweights = \"q4_0\"\n\n[cache]\nvariant = \"gqa\"\n  windwo = 1\nwindow = 64\nkey = \"int-8\"\ncapacity = 0\nsequences = -1\n[backend]\ndevice = \"gpu\"\nthreads = 0\n[generate]\ntop_p = 1.5\n";
    let expect = [
        "3:1: unknown key `nmae` (did you mean `name`? known: schema, name, model, cache, backend, generate)",
        "6:1: `model.seed` has no effect: `model.path` brings its own weights; a seed belongs to `[model.geometry]` (remove the key)",
        "7:11: `model.weights` = \"q4_0\" is not built yet (one of: native, f32, f16, bf16)",
        "11:3: unknown key `cache.windwo` (did you mean `window`? known: variant, layout, capacity, key, value, layer, sequences, prefill_chunk, num_key_value_heads, window, sinks, kv_lora_rank, parity)",
        "12:1: `cache.window` has no effect with variant `gqa` (it belongs to variant swa; remove the key)",
        "13:7: `cache.key` is \"int-8\", which is not known (did you mean `int8`? one of: f32, f16, bf16, int8, int4)",
        "14:12: `cache.capacity`: a capacity must be at least 1",
        "15:13: `cache.sequences` must be a whole number of at least 1, and is -1",
        "17:10: `backend.device`: unknown device `gpu`: one of cpu, wgpu, wgpu:N, cuda, cuda:N",
        "18:11: `backend.threads` must be a whole number of at least 1, and is 0",
        "20:9: `generate.top_p` must be a number above 0 and at most 1, and is 1.5",
    ];
    assert_eq!(shown(parse_with(text, &[])), expect);
    let errors = parse_with(text, &[]).unwrap_err();
    let spans: Vec<&str> =
        errors.problems.iter().map(|problem| &errors.source_text[problem.span.clone().unwrap()]).collect();
    let expect =
        ["nmae", "seed", "\"q4_0\"", "windwo", "window", "\"int-8\"", "0", "-1", "\"gpu\"", "0", "1.5"];
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
    let lines = shown(parse_with("schema = 1\nname = \"m\"\n[cache]\n[model]\nweights = \"f32\"", &[]));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("4:1: the model is missing"), "{lines:?}");
}

#[test]
fn another_schema_is_the_only_problem() {
    let expect = ["1:10: `schema` is 2, and this kvlab reads schema 1 (write schema = 1)"];
    assert_eq!(shown(parse_with("schema = 2\nfoo = 3", &[])), expect);
}

#[test]
fn problems_of_the_model() {
    let lines = shown(parse_with(&format!("{MINIMAL}[model.geometry]\nhidden_size = 1\n"), &[]));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains(": `model.path` and `model.geometry` are both given"), "{lines:?}");
    let random = "schema = 1\nname = \"m\"\n[model]\nallow_unused = true\ngeometry = {}\n";
    let lines = shown(parse_with(random, &[]));
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("4:1: `model.allow_unused` has no effect"), "{lines:?}");
    assert!(lines[1].starts_with("5:1: `model.geometry` is empty"), "{lines:?}");
    let random = "schema = 1\nname = \"m\"\n[model.geometry]\na = { b = [1, nan] }\nc = 2026-01-01\n";
    let expect = [
        "4:15: `model.geometry.a.b.1` is NaN, which a config.json cannot hold",
        "5:5: `model.geometry.c` is the date 2026-01-01, which a config.json cannot hold",
    ];
    assert_eq!(shown(parse_with(random, &[])), expect);
    for path in ["hf:", "hf:a", "hf:a/", "hf:a/b/c", "hf:../b", "hf:a/b c"] {
        let lines = shown(parse_with(&MINIMAL.replace("m.gguf", path), &[]));
        assert!(lines[0].starts_with("4:8: `model.path`"), "{path}: {lines:?}");
    }
    check("weights = \"f23\"", "5:11: `model.weights` is \"f23\", which is not known (did you mean `f32`? one of: native, f32, f16, bf16)");
}

#[test]
fn names_are_usable_as_folders() {
    for name in ["a/b", "..", ".a", "-a", "a b", "é", &"x".repeat(101)] {
        let lines = shown(parse_with(&MINIMAL.replace("\"m\"", &format!("\"{name}\"")), &[]));
        assert!(lines[0].starts_with("2:8: `name` must be usable as a folder name"), "{lines:?}");
    }
    assert_eq!(shown(parse_with(&MINIMAL.replace("\"m\"", "\" \""), &[])), ["2:8: `name` is empty"]);
}

#[test]
fn problems_of_the_cache() {
    check("[cache]\nvariant = \"gqq\"\nwindow = 3", "6:11: `cache.variant` is \"gqq\", which is not known (did you mean `gqa`? one of: none, mha, gqa, mqa, swa, mla, odd)");
    check("[cache]\nvariant = \"swa\"\nwindow = 0", "7:10: `cache.window` must be a whole number of at least 1, and is 0");
    check("[cache]\nvariant = \"swa\"\nwindow = \"64\"", "7:10: `cache.window` must be a whole number of at least 1, and is the text \"64\"");
    check("[cache]\nvariant = \"swa\"\nsinks = -1", "7:9: `cache.sinks` must be a whole number of at least 0, and is -1");
    check("[cache]\nvariant = \"swa\"\nkv_lora_rank = 8", "7:1: `cache.kv_lora_rank` has no effect with variant `swa` (it belongs to variant mla; remove the key)");
    check("[cache]\nnum_key_value_heads = 2", "6:1: `cache.num_key_value_heads` has no effect while `cache.variant` is left out (it belongs to variant gqa; remove the key)");
    check("[cache]\nlayout = \"paged\"", "6:10: `cache.layout` = \"paged\" is not built yet (one of: contiguous, ring)");
    check("[cache]\npage_size = 16", "6:1: `cache.page_size` is not built yet: it belongs to the layout `paged` (remove the key)");
    check("[cache]\nprefill_chunk = 0", "6:17: `cache.prefill_chunk` must be a whole number of at least 1, and is 0");
    check("[cache]\ncapacity = \"2 GB\"", "6:12: `cache.capacity`: `GB` might mean powers of 1000 or of 1024: write `GiB`");
    check("[cache]\ncapacity = true", "6:12: `cache.capacity` must be a text, and is true");
    check("cache = 3", "5:1: unknown key `model.cache` (known: path, geometry, seed, allow_unused, weights, tokenizer)");
    let none = "[cache]\nvariant = \"none\"\nlayout = \"ring\"\ncapacity = 3\nkey = \"f16\"\nvalue = \"f16\"\nsequences = 2\n[[cache.layer]]\nlayers = [0]\nkey = \"f16\"\n";
    let lines = shown(parse_with(&format!("{MINIMAL}{none}"), &[]));
    let starts: Vec<&str> = lines.iter().filter_map(|line| line.split(" has no effect").next()).collect();
    let expect = ["7:1: `cache.layout`", "8:1: `cache.capacity`", "9:1: `cache.key`", "10:1: `cache.value`", "12:9: `cache.layer`"];
    assert_eq!(starts, expect);
}

#[test]
fn an_option_without_a_field_is_kept_for_its_variant() {
    let config = parse_with(&format!("{MINIMAL}[cache]\nvariant = \"odd\"\nparity = [1]"), &[]).unwrap();
    assert_eq!(config.cache.options["parity"].to_string(), "[1]");
    check("[cache]\nvariant = \"mha\"\nparity = 1", "7:1: `cache.parity` has no effect with variant `mha` (it belongs to variant odd; remove the key)");
}

#[test]
fn problems_of_codecs() {
    check("[cache]\nkey = { codec = \"f16\", group = 32 }", "6:24: `cache.key.group` has no effect with codec `f16` (it belongs to codec int8 or int4; remove the key)");
    check("[cache]\nkey = { codec = \"int8\", clip = 0.5 }", "6:25: `cache.key.clip` has no effect with codec `int8` (it belongs to codec int4; remove the key)");
    check("[cache]\nkey = { group = 32 }", "6:7: `cache.key.codec` is missing (for example codec = \"int8\")");
    check("[cache]\nkey = { codec = \"int9\", group = 32 }", "6:17: `cache.key.codec` is \"int9\", which is not known (did you mean `int4`? one of: f32, f16, bf16, int8, int4)");
    check("[cache]\nvalue = { codec = \"int8\", group = 0 }", "6:35: `cache.value.group` must be a whole number of at least 1, and is 0");
    check("[cache]\nvalue = { codec = \"int8\", axis = \"row\" }", "6:34: `cache.value.axis` is \"row\", which is not known (one of: token, channel)");
    check("[cache]\nvalue = { codec = \"int8\", rotate = 1 }", "6:36: `cache.value.rotate` must be true or false, and is 1");
    check("[cache]\nvalue = { codec = \"int8\", grp = 1 }", "6:27: unknown key `cache.value.grp` (did you mean `group`? known: codec, group, axis, rotate, clip)");
    check("[cache]\nvalue = 8", "6:9: `cache.value` must be the name of a codec or a table, and is 8 (for example \"f16\", or { codec = \"int8\", group = 32 })");
}

#[test]
fn problems_of_layers() {
    check("[[cache.layer]]\nlayers = [0, 1]\nkey = \"f16\"\n[[cache.layer]]\nlayers = [2, 1]\nkey = \"f32\"", "9:14: layer 1 is named twice (name each layer once in all of `[[cache.layer]]`)");
    check("[[cache.layer]]\nlayers = [-1]\nkey = \"f16\"", "6:11: `cache.layer.0.layers.0` must be a whole number of at least 0, and is -1");
    check("[[cache.layer]]\nlayers = []\nkey = \"f16\"", "6:10: `cache.layer.0.layers` is an empty list: it must have layer indices");
    check("[[cache.layer]]\nkey = \"f16\"", "5:1: `cache.layer.0.layers` is missing (for example layers = [0, 29])");
    check("[[cache.layer]]\nlayers = [0]", "5:1: `cache.layer.0` changes nothing: it has neither `key` nor `value` (for example key = \"f16\")");
    check("[[cache.layer]]\nlayers = [0]\nkey = \"f16\"\nwindow = 3", "8:1: unknown key `cache.layer.0.window` (known: layers, key, value)");
    check("[cache]\nlayer = 3", "6:9: `cache.layer` must be a list of `[[cache.layer]]` tables, and is 3");
}

#[test]
fn problems_of_backend_and_generate() {
    check("[backend]\ndevice = \"cuda:x\"", "6:10: `backend.device`: `x` is no device index: a whole number of at least 0");
    check("[backend]\nthread = 2", "6:1: unknown key `backend.thread` (did you mean `threads`? known: device, threads)");
    check("[generate]\ntemperature = -0.5", "6:15: `generate.temperature` must be a number of at least 0, and is -0.5");
    check("[generate]\ntemperature = inf\ntop_k = 3", "6:15: `generate.temperature` must be a number of at least 0, and is inf");
    check("[generate]\ntop_k = 3", "6:9: `generate.top_k` has no effect: `generate.temperature` is 0, which takes the most likely token (set a temperature above 0, or remove the key)");
    check("[generate]\nmax_new_tokens = 0", "6:18: `generate.max_new_tokens` must be a whole number of at least 1, and is 0");
    check("[generate]\nseed = -1", "6:8: `generate.seed` must be a whole number from 0 to 2^63 - 1, and is -1");
    check("[generate]\nseed = 99999999999999999999", "6:8: `generate.seed` must be a whole number from 0 to 2^63 - 1, and is 99999999999999999999");
    check("[generate]\nignore_eos = \"yes\"", "6:14: `generate.ignore_eos` must be true or false, and is the text \"yes\"");
}

#[test]
fn sets_override_the_file() {
    let text = format!("{MINIMAL}[cache]\nvariant = \"swa\"\nwindow = 8\nkey = {{ codec = \"int8\", group = 4 }}\n[[cache.layer]]\nlayers = [0]\nkey = \"f16\"\n");
    let sets = ["cache.variant=gqa", "cache.window=", "cache.value=unset", "cache.key.group=64", "cache.layer.0.key=f32", "backend.threads=3", "cache.capacity=8 KiB", "model.allow_unused=true", "generate.temperature=0.5", "name = \"n\""];
    let config = parse_with(&text, &sets).unwrap();
    let cache = &config.cache;
    assert_eq!((cache.variant.as_deref(), cache.window, cache.value.as_ref()), (Some("gqa"), None, None));
    assert_eq!(cache.key_codec(1).group, Some(64));
    assert_eq!(cache.key_codec(0), CodecSpec::exact());
    assert_eq!((config.backend.threads, cache.capacity), (Some(3), Some(Capacity::Bytes(8192))));
    assert_eq!((config.model.allow_unused, config.generate.temperature, config.name.as_str()), (true, 0.5, "n"));
    // A path of `--set` starts at the current folder, as a shell completes it.
    let moved = parse_with(MINIMAL, &["model.path=x/../y.gguf"]).unwrap();
    assert_eq!(moved.model.origin, ModelOrigin::Path(std::env::current_dir().unwrap().join("y.gguf")));
}

#[test]
fn problems_of_sets_name_the_set() {
    let sets = ["cache.varian=swa", "cache.window=0", "backend", "=3", "a..b=3", "name.x=3", "cache.key=[1", "cache.kye=", "model.path.0=1"];
    let expect = [
        " --set =3: `` is no dotted key (a dotted key looks like cache.window)",
        " --set a..b=3: `a..b` is no dotted key (a dotted key looks like cache.window)",
        " --set backend: it has no `=` (write --set dotted.key=value, for example --set cache.variant=swa)",
        " --set cache.key=[1: `cache.key` is \"[1\", which is not known (one of: f32, f16, bf16, int8, int4)",
        " --set cache.kye=: unknown key `cache.kye` (did you mean `key`? known: ",
        " --set cache.varian=swa: unknown key `cache.varian` (did you mean `variant`? known: ",
        " --set cache.window=0: `cache.window` has no effect while `cache.variant` is left out (it belongs to variant swa; remove the key)",
        " --set model.path.0=1: `model.path.0` cannot be set: `model.path` is the text \"m.gguf\", not a table (set `model.path` as a whole)",
        " --set name.x=3: `name.x` cannot be set: `name` is the text \"m\", not a table (set `name` as a whole)",
    ];
    let lines = shown(parse_with(MINIMAL, &sets));
    assert_eq!(lines.len(), expect.len(), "{lines:#?}");
    for (line, expect) in lines.iter().zip(expect) {
        assert!(line.starts_with(expect), "{line}\n{expect}");
    }
    let errors = parse_with(MINIMAL, &["cache.layer.0=1"]).unwrap_err();
    assert_eq!((errors.problems[0].line, errors.problems[0].span.clone()), (0, None));
    // A problem in the file that a set causes is shown in the file, and those of sets come after it.
    let text = format!("{MINIMAL}[cache]\nvariant = \"swa\"\nwindow = 8\n");
    let lines = shown(parse_with(&text, &["cache.variant=mha", "x=1"]));
    assert!(lines[0].starts_with("7:1: `cache.window` has no effect with variant `mha`"), "{lines:?}");
    assert!(lines[1].starts_with(" --set x=1: unknown key `x`"), "{lines:?}");
}

#[test]
fn text_that_is_not_toml_has_a_place() {
    let cases = [("schema = 1\nname = \"m", "2:"), ("a = 1\na = 2\n", "2:1:"), ("x = = 1", "1:"), ("a = [1, 2\n", "1:"), ("[a\n", "1:")];
    for (text, place) in cases {
        let lines = shown(parse_with(text, &[]));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with(place) && lines[0].contains("not TOML: "), "{lines:?}");
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
        format!("schema = 1\n{}", (0..2000).map(|index| format!("k{index} = 1\n")).collect::<String>()),
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
    assert_eq!(errors.to_string(), format!("{}: is not UTF-8 text: byte 0 (line 1) is 0xff", path.display()));
    let errors = ModelConfig::load(&folder.path().join("no.toml"), &[], &TEST).unwrap_err();
    assert!(errors.to_string().contains("no.toml: cannot be read: "), "{errors}");
}
