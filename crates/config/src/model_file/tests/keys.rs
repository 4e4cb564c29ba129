//! Every kind of problem of one key.

use super::*;

#[test]
fn problems_of_the_model() {
    let lines = shown(parse_with(
        &format!("{MINIMAL}[model.geometry]\nhidden_size = 1\n"),
        &[],
    ));
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].contains(": `model.path` and `model.geometry` are both given"),
        "{lines:?}"
    );
    let random = "schema = 1\nname = \"m\"\n[model]\nallow_unused = true\ngeometry = {}\n";
    let lines = shown(parse_with(random, &[]));
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].starts_with("4:1: `model.allow_unused` has no effect"),
        "{lines:?}"
    );
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
    check(
        "weights = \"f23\"",
        "5:11: `model.weights` is \"f23\", which is not known (did you mean `f32`? one of: native, f32, f16, bf16)",
    );
}

#[test]
fn names_are_usable_as_folders() {
    for name in ["a/b", "..", ".a", "-a", "a b", "é", &"x".repeat(101)] {
        let lines = shown(parse_with(&MINIMAL.replace("\"m\"", &format!("\"{name}\"")), &[]));
        assert!(
            lines[0].starts_with("2:8: `name` must be usable as a folder name"),
            "{lines:?}"
        );
    }
    assert_eq!(
        shown(parse_with(&MINIMAL.replace("\"m\"", "\" \""), &[])),
        ["2:8: `name` is empty"]
    );
}

#[test]
fn problems_of_the_cache() {
    check(
        "[cache]\nvariant = \"gqq\"\nwindow = 3",
        "6:11: `cache.variant` is \"gqq\", which is not known (did you mean `gqa`? one of: none, mha, gqa, mqa, swa, mla, odd)",
    );
    check(
        "[cache]\nvariant = \"swa\"\nwindow = 0",
        "7:10: `cache.window` must be a whole number of at least 1, and is 0",
    );
    check(
        "[cache]\nvariant = \"swa\"\nwindow = \"64\"",
        "7:10: `cache.window` must be a whole number of at least 1, and is the text \"64\"",
    );
    check(
        "[cache]\nvariant = \"swa\"\nsinks = -1",
        "7:9: `cache.sinks` must be a whole number of at least 0, and is -1",
    );
    check(
        "[cache]\nvariant = \"swa\"\nkv_lora_rank = 8",
        "7:1: `cache.kv_lora_rank` has no effect with variant `swa` (it belongs to variant mla; remove the key)",
    );
    check(
        "[cache]\nnum_key_value_heads = 2",
        "6:1: `cache.num_key_value_heads` has no effect while `cache.variant` is left out (it belongs to variant gqa; remove the key)",
    );
    check(
        "[cache]\nlayout = \"paged\"",
        "6:10: `cache.layout` = \"paged\" is not built yet (one of: contiguous, ring)",
    );
    check(
        "[cache]\npage_size = 16",
        "6:1: `cache.page_size` is not built yet: it belongs to the layout `paged` (remove the key)",
    );
    check(
        "[cache]\nprefill_chunk = 0",
        "6:17: `cache.prefill_chunk` must be a whole number of at least 1, and is 0",
    );
    check(
        "[cache]\ncapacity = \"2 GB\"",
        "6:12: `cache.capacity`: `GB` might mean powers of 1000 or of 1024: write `GiB`",
    );
    check(
        "[cache]\ncapacity = true",
        "6:12: `cache.capacity` must be a text, and is true",
    );
    check(
        "cache = 3",
        "5:1: unknown key `model.cache` (known: path, geometry, seed, allow_unused, weights, tokenizer)",
    );
    let none = "[cache]\nvariant = \"none\"\nlayout = \"ring\"\ncapacity = 3\nkey = \"f16\"\nvalue = \"f16\"\nsequences = 2\n[[cache.layer]]\nlayers = [0]\nkey = \"f16\"\n";
    let lines = shown(parse_with(&format!("{MINIMAL}{none}"), &[]));
    let starts: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split(" has no effect").next())
        .collect();
    let expect = [
        "7:1: `cache.layout`",
        "8:1: `cache.capacity`",
        "9:1: `cache.key`",
        "10:1: `cache.value`",
        "12:9: `cache.layer`",
    ];
    assert_eq!(starts, expect);
}

#[test]
fn an_option_without_a_field_is_kept_for_its_variant() {
    let config = parse_with(&format!("{MINIMAL}[cache]\nvariant = \"odd\"\nparity = [1]"), &[]).unwrap();
    assert_eq!(config.cache.options["parity"].to_string(), "[1]");
    check(
        "[cache]\nvariant = \"mha\"\nparity = 1",
        "7:1: `cache.parity` has no effect with variant `mha` (it belongs to variant odd; remove the key)",
    );
}

#[test]
fn problems_of_codecs() {
    check(
        "[cache]\nkey = { codec = \"f16\", group = 32 }",
        "6:24: `cache.key.group` has no effect with codec `f16` (it belongs to codec int8 or int4; remove the key)",
    );
    check(
        "[cache]\nkey = { codec = \"int8\", clip = 0.5 }",
        "6:25: `cache.key.clip` has no effect with codec `int8` (it belongs to codec int4; remove the key)",
    );
    check(
        "[cache]\nkey = { group = 32 }",
        "6:7: `cache.key.codec` is missing (for example codec = \"int8\")",
    );
    check(
        "[cache]\nkey = { codec = \"int9\", group = 32 }",
        "6:17: `cache.key.codec` is \"int9\", which is not known (did you mean `int4`? one of: f32, f16, bf16, int8, int4)",
    );
    check(
        "[cache]\nvalue = { codec = \"int8\", group = 0 }",
        "6:35: `cache.value.group` must be a whole number of at least 1, and is 0",
    );
    check(
        "[cache]\nvalue = { codec = \"int8\", axis = \"row\" }",
        "6:34: `cache.value.axis` is \"row\", which is not known (one of: token, channel)",
    );
    check(
        "[cache]\nvalue = { codec = \"int8\", rotate = 1 }",
        "6:36: `cache.value.rotate` must be true or false, and is 1",
    );
    check(
        "[cache]\nvalue = { codec = \"int8\", grp = 1 }",
        "6:27: unknown key `cache.value.grp` (did you mean `group`? known: codec, group, axis, rotate, clip)",
    );
    check(
        "[cache]\nvalue = 8",
        "6:9: `cache.value` must be the name of a codec or a table, and is 8 (for example \"f16\", or { codec = \"int8\", group = 32 })",
    );
}

#[test]
fn problems_of_layers() {
    check(
        "[[cache.layer]]\nlayers = [0, 1]\nkey = \"f16\"\n[[cache.layer]]\nlayers = [2, 1]\nkey = \"f32\"",
        "9:14: layer 1 is named twice (name each layer once in all of `[[cache.layer]]`)",
    );
    check(
        "[[cache.layer]]\nlayers = [-1]\nkey = \"f16\"",
        "6:11: `cache.layer.0.layers.0` must be a whole number of at least 0, and is -1",
    );
    check(
        "[[cache.layer]]\nlayers = []\nkey = \"f16\"",
        "6:10: `cache.layer.0.layers` is an empty list: it must have layer indices",
    );
    check(
        "[[cache.layer]]\nkey = \"f16\"",
        "5:1: `cache.layer.0.layers` is missing (for example layers = [0, 29])",
    );
    check(
        "[[cache.layer]]\nlayers = [0]",
        "5:1: `cache.layer.0` changes nothing: it has neither `key` nor `value` (for example key = \"f16\")",
    );
    check(
        "[[cache.layer]]\nlayers = [0]\nkey = \"f16\"\nwindow = 3",
        "8:1: unknown key `cache.layer.0.window` (known: layers, key, value)",
    );
    check(
        "[cache]\nlayer = 3",
        "6:9: `cache.layer` must be a list of `[[cache.layer]]` tables, and is 3",
    );
}

#[test]
fn problems_of_backend_and_generate() {
    check(
        "[backend]\ndevice = \"cuda:x\"",
        "6:10: `backend.device`: `x` is no device index: a whole number of at least 0",
    );
    check(
        "[backend]\nthread = 2",
        "6:1: unknown key `backend.thread` (did you mean `threads`? known: device, threads, matmul_precision)",
    );
    check(
        "[generate]\ntemperature = -0.5",
        "6:15: `generate.temperature` must be a number of at least 0, and is -0.5",
    );
    check(
        "[generate]\ntemperature = inf\ntop_k = 3",
        "6:15: `generate.temperature` must be a number of at least 0, and is inf",
    );
    check(
        "[generate]\ntop_k = 3",
        "6:9: `generate.top_k` has no effect: `generate.temperature` is 0, which takes the most likely token (set a temperature above 0, or remove the key)",
    );
    check(
        "[generate]\nmax_new_tokens = 0",
        "6:18: `generate.max_new_tokens` must be a whole number of at least 1, and is 0",
    );
    check(
        "[generate]\nseed = -1",
        "6:8: `generate.seed` must be a whole number from 0 to 2^63 - 1, and is -1",
    );
    check(
        "[generate]\nseed = 99999999999999999999",
        "6:8: `generate.seed` must be a whole number from 0 to 2^63 - 1, and is 99999999999999999999",
    );
    check(
        "[generate]\nignore_eos = \"yes\"",
        "6:14: `generate.ignore_eos` must be true or false, and is the text \"yes\"",
    );
}
