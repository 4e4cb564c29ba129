//! The binary, as a user meets it.

mod explain;
mod plan;
mod talk;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn kvlab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvlab"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap()
}

/// Standard output of a run that must succeed.
fn ok(args: &[&str]) -> String {
    let run = kvlab(args);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{args:?}: {errors}");
    assert_eq!(
        errors, "",
        "{args:?}: nothing goes to stderr when all is well and it is no terminal"
    );
    String::from_utf8(run.stdout).unwrap()
}

/// Standard error of a run that must be refused with this code.
fn refused(code: i32, args: &[&str]) -> String {
    let run = kvlab(args);
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(code), "{args:?}: {errors}");
    assert!(!errors.contains("panicked"), "{args:?}: {errors}");
    errors
}

const MHA: &str = "configs/models/bytes-mha.toml";

/// The model continues as it did where it was trained, with every cache that does not change it.
#[test]
fn run_continues_a_text() {
    let train =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/bytes/mha/train.json")).unwrap();
    let train: Value = serde_json::from_str(&train).unwrap();
    let sample = train["sample"].as_str().unwrap();
    let want = &sample["Of Man and the ".len()..][..48];
    for cache in ["mha", "none"] {
        let set = format!("cache.variant={cache}");
        let unset = "cache.capacity=unset";
        let out = ok(&["run", MHA, "Of Man and the ", "-n", "48", "--set", unset, "--set", &set]);
        assert!(out.starts_with(want), "{out}");
        for label in ["prompt", "TTFT", "ITL", "decode", "cache bytes", "kernels"] {
            assert!(out.lines().any(|l| l.starts_with(label)), "{label} is missing: {out}");
        }
    }
}

/// docs/combinations.md is what the command writes today.
#[test]
fn the_table_of_combinations_is_up_to_date() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/combinations.md")).unwrap();
    for model in ["gqa", "swa", "mla"] {
        let written = ok(&["formats", &format!("configs/models/bytes-{model}.toml")]);
        assert!(written.lines().count() > 20);
        assert!(
            page.contains(written.trim()),
            "docs/combinations.md is not what `kvlab formats` writes for {model}:\n{written}"
        );
    }
}

#[test]
fn a_lossy_cache_says_so() {
    let out = ok(&[
        "run",
        MHA,
        "Of Man",
        "-n",
        "4",
        "--set",
        "cache.variant=swa",
        "--set",
        "cache.window=8",
    ]);
    assert!(out.contains("lossy"), "{out}");
    let out = ok(&["inspect", MHA, "--set", "cache.variant=mqa"]);
    assert!(out.contains("LOSSY"), "{out}");
}

/// T70.
#[test]
fn one_token_has_no_gap() {
    let out = ok(&["run", MHA, "Of Man", "-n", "1"]);
    assert!(
        out.contains("TTFT") && !out.contains("ITL") && !out.contains("NaN"),
        "{out}"
    );
    let out = ok(&["run", MHA, "Of Man", "-n", "0"]);
    assert!(
        out.contains("new            0 tokens") && !out.contains("TTFT"),
        "{out}"
    );
}

#[test]
fn bad_requests_name_the_thing_and_the_way_out() {
    let error = refused(2, &["run", "no-such.toml", "x"]);
    assert!(error.contains("no-such.toml"), "{error}");
    let error = refused(2, &["run", MHA, "x", "--set", "cache.windw=3"]);
    assert!(error.contains("windw") && error.contains("window"), "{error}");
    let error = refused(2, &["run", MHA, "x", "--set", "backend.device=cuda"]);
    assert!(error.contains("--features cuda"), "{error}");
    let error = refused(2, &["run", MHA, "x", "--set", "backend.device=wgpu:77"]);
    assert!(error.contains("wgpu:77"), "{error}");
    let error = refused(2, &["run", MHA, "x", "-n", "5000"]);
    assert!(error.contains("5001") && error.contains("1024"), "{error}");
    let error = refused(2, &["run", MHA, ""]);
    assert!(error.contains("empty"), "{error}");
    let error = refused(2, &["run", MHA, "x", "--chat"]);
    assert!(error.contains("chat template"), "{error}");
    let error = refused(2, &["run", MHA, "x", "--set", "cache.variant=gqa"]);
    assert!(error.contains("num_key_value_heads"), "{error}");
    let error = refused(2, &["run", MHA, "x", "--set", "cache.capacity=90000000000 tokens"]);
    assert!(error.contains("GiB") || error.contains("TiB"), "{error}");
}

#[test]
fn every_problem_of_a_file_is_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    std::fs::write(&file, "schema = 1\nname = \"bad\"\n[model]\npth = \"x\"\n[cache]\nvariant = \"gqqa\"\nwindow = 0\n[backend]\ndevice = \"tpu\"\n").unwrap();
    let error = refused(2, &["inspect", file.to_str().unwrap()]);
    for part in [
        "pth",
        "path",
        "gqqa",
        "gqa",
        "window",
        "tpu",
        "bad.toml:4",
        "bad.toml:6",
        "bad.toml:9",
    ] {
        assert!(error.contains(part), "{part} is missing:\n{error}");
    }
}

#[test]
fn inspect_shows_layers_and_totals() {
    let out = ok(&["inspect", "configs/models/llama-3.1-8b.toml"]);
    for part in ["0-31", "gqa", "8 x 2 x 128", "128 KiB", "1 GiB", "16 GiB"] {
        assert!(out.contains(part), "{part} is missing:\n{out}");
    }
    let out = ok(&["inspect", "configs/models/gemma-3-4b.toml"]);
    assert!(
        out.contains("window 1024") && out.contains("causal") && out.contains("ring"),
        "{out}"
    );
    let out = ok(&["inspect", "configs/experiments/quickstart.toml"]);
    assert!(out.contains("mha, no cache"), "{out}");
}

#[test]
fn logits_are_a_safetensors_file() {
    let folder = tempfile::tempdir().unwrap();
    let (ids, out) = (folder.path().join("ids.json"), folder.path().join("l.safetensors"));
    std::fs::write(&ids, "[79, 102, 32, 77, 97, 110]").unwrap();
    let mut all = Vec::new();
    for chunk in ["0", "1", "4"] {
        ok(&[
            "logits",
            MHA,
            "--ids",
            ids.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
            "--chunk",
            chunk,
        ]);
        let (shape, logits) = kvlab_testkit::golden::floats(&std::fs::read(&out).unwrap(), "logits").unwrap();
        assert_eq!(shape, [6, 256]);
        all.push(logits);
    }
    for other in &all[1..] {
        assert!(all[0].iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-4));
    }
    std::fs::write(&ids, "[79, 256]").unwrap();
    let error = refused(
        2,
        &[
            "logits",
            MHA,
            "--ids",
            ids.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ],
    );
    assert!(error.contains("256"), "{error}");
    std::fs::write(&ids, "{}").unwrap();
    refused(
        2,
        &[
            "logits",
            MHA,
            "--ids",
            ids.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ],
    );
}

#[test]
fn bench_speaks_llama_bench() {
    let args = ["bench", MHA, "-p", "16", "-n", "4", "-d", "0,32", "-r", "2", "-o"];
    let json = ok(&[&args[..], &["json"]].concat());
    let records: Value = serde_json::from_str(&json).unwrap();
    let records = records.as_array().unwrap();
    assert_eq!(records.len(), 4);
    for r in records {
        for field in ["n_prompt", "n_gen", "n_depth", "n_threads", "avg_ts", "stddev_ts"] {
            assert!(r[field].is_number(), "{field}: {r}");
        }
        assert_eq!((r["type_k"].as_str(), r["type_v"].as_str()), (Some("f32"), Some("f32")));
        assert_eq!(r["samples_ts"].as_array().unwrap().len(), 2);
        assert!(r["avg_ts"].as_f64().unwrap() > 0.0);
    }
    let table = ok(&[&args[..], &["md"]].concat());
    for test in ["pp16", "tg4", "pp16 @ d32", "tg4 @ d32"] {
        assert!(table.contains(test), "{test}: {table}");
    }
    let csv = ok(&[&args[..], &["csv"]].concat());
    assert_eq!(csv.lines().count(), 5);
}

/// A run whose reader goes away ends quietly.
#[test]
fn a_closed_pipe_is_no_failure() {
    use std::process::Stdio;
    let mut run = Command::new(env!("CARGO_BIN_EXE_kvlab"))
        .args(["run", MHA, "Of Man", "-n", "200"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(run.stdout.take());
    let done = run.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && errors.is_empty(), "{errors}");
}

/// The model file's words pick the device: the same text on a graphics device.
#[test]
fn a_model_on_wgpu() {
    crate::on_wgpu("command_line::a_model_on_wgpu", || {
        let args = [
            "run",
            "configs/models/bytes-gqa.toml",
            "Of Man",
            "-n",
            "6",
            "--set",
            "backend.device=wgpu",
        ];
        let run = kvlab(&args);
        let errors = String::from_utf8_lossy(&run.stderr).into_owned();
        if errors.contains("no graphics device") {
            return false;
        }
        assert!(run.status.success(), "{errors}");
        let gpu = String::from_utf8(run.stdout).unwrap();
        let cpu = ok(&args[..5]);
        assert_eq!(gpu.lines().next(), cpu.lines().next());
        true
    });
}
