//! `kvlab plan`.

use super::{ok, refused};
use serde_json::Value;

const LLAMA: &str = "configs/models/llama-3.1-8b.toml";

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(&[args, &["--json"]].concat())).unwrap()
}

#[test]
fn plan_shows_bytes_memory_times_and_prices() {
    let out = ok(&[
        "plan",
        LLAMA,
        "--device",
        "rtx-4090",
        "--context",
        "8K",
        "--weights",
        "int8",
        "--prices",
        "example",
    ]);
    for part in [
        "8.03 B parameters",
        "gqa (own)",
        "mqa ~",
        "128 KiB",
        "FITS",
        "TTFT",
        "ITL behind 8192 tokens",
        "read once",
        "mean-pooled",
    ] {
        assert!(out.contains(part), "{part} is missing:\n{out}");
    }
    // A terminal of 100 columns holds the tables.
    assert!(out.lines().all(|line| line.chars().count() <= 120), "{out}");
}

#[test]
fn plan_speaks_json_csv_and_markdown() {
    let plan = json(&["plan", LLAMA, "--budget", "24 GiB"]);
    assert_eq!(plan["model"]["parameters"]["total"], 8_030_261_248_u64);
    let own = plan["caches"]
        .as_array()
        .unwrap()
        .iter()
        .find(|cache| cache["own"] == true)
        .unwrap();
    let f16 = own["cells"]
        .as_array()
        .unwrap()
        .iter()
        .find(|cell| cell["codec"] == "f16")
        .unwrap();
    assert_eq!(f16["planned"]["bytes_per_token"], 131_072);
    assert_eq!(f16["planned"]["fit"]["requests"], 9);
    let csv = ok(&["plan", LLAMA, "--csv"]);
    let header: Vec<_> = csv.lines().next().unwrap().split(',').collect();
    let place = |name: &str| header.iter().position(|column| *column == name).unwrap();
    // Layers add up to the line of all; T104.
    let (mut all, mut layers) = (0, 0);
    for line in csv.lines().skip(1) {
        let cells: Vec<_> = line.split(',').collect();
        if cells[place("own")] == "true" && cells[place("codec")] == "int4" {
            let bytes: u64 = cells[place("bytes_per_token")].parse().unwrap();
            match cells[place("layer")] {
                "all" => all += bytes,
                _ => layers += bytes,
            }
        }
    }
    assert_eq!((all, layers), (36_864, 36_864));
    let refusals = ok(&["plan", "configs/models/deepseek-v2.toml", "--csv"]);
    assert!(
        refusals
            .lines()
            .any(|line| line.contains(",mqa,") && line.contains("refused")),
        "{refusals}"
    );
    let markdown = ok(&["plan", LLAMA, "--markdown"]);
    assert!(
        markdown.contains("|---|---:|") && markdown.starts_with("# llama-3.1-8b"),
        "{markdown}"
    );
}

/// A Hugging Face folder, its config alone, and a GGUF header give what the model file gives.
#[test]
fn every_kind_of_model_is_read() {
    let folder = json(&["plan", "assets/bytes/gqa"]);
    let config = json(&["plan", "assets/bytes/gqa/config.json"]);
    let file = json(&["plan", "configs/models/bytes-gqa.toml"]);
    let bytes = |plan: &Value| plan["caches"][0]["cells"][1]["planned"]["bytes_per_token"].clone();
    assert!(bytes(&folder).is_number());
    assert_eq!((bytes(&folder), bytes(&folder)), (bytes(&config), bytes(&file)));
    assert!(folder["weights"]["stored"].is_object() && config["weights"]["stored"].is_null());
    let gguf = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(gguf).exists() {
        let plan = json(&["plan", gguf]);
        assert_eq!(plan["model"]["parameters"]["total"], 134_515_008);
        // 30 layers x 2 x 3 heads x 64 x 2 bytes.
        assert_eq!(bytes(&plan), 30 * 2 * 3 * 64 * 2);
    }
}

#[test]
fn plan_refuses_with_the_way_out() {
    let error = refused(2, &["plan", LLAMA, "--device", "abacus"]);
    assert!(error.contains("abacus") && error.contains("h100-sxm"), "{error}");
    let error = refused(2, &["plan", LLAMA, "--budget", "24 GB"]);
    assert!(error.contains("24 GiB") || error.contains("GiB"), "{error}");
    let error = refused(2, &["plan", LLAMA, "--budget", "24"]);
    assert!(error.contains("unit"), "{error}");
    let error = refused(2, &["plan", LLAMA, "--context", "lots"]);
    assert!(error.contains("128K"), "{error}");
    let error = refused(2, &["plan", LLAMA, "--set", "cache.windw=3"]);
    assert!(error.contains("window"), "{error}");
    let error = refused(2, &["plan", "no-such.gguf"]);
    assert!(error.contains("no-such.gguf"), "{error}");
    // A budget below the weights is an answer, not a mistake.
    let out = ok(&["plan", "configs/models/llama-2-70b.toml", "--budget", "24 GiB"]);
    assert!(out.contains("DOES NOT") && out.contains("INT2"), "{out}");
}

/// The probe is short, and its rates are those of a processor.
#[test]
fn this_machine_is_measured() {
    let plan = json(&["plan", "configs/models/bytes-gqa.toml", "--device", "this"]);
    let device = &plan["device"];
    let bandwidth = device["bandwidth_gb_s"].as_f64().unwrap();
    assert!((0.1..20_000.0).contains(&bandwidth), "{device}");
    assert!(device["dense_tflops"]["f32"].as_f64().unwrap() > 1e-4, "{device}");
}

/// docs/howto/fit-a-model-into-8-gb.md shows what the commands print today.
#[test]
fn the_page_about_8_gb_is_up_to_date() {
    let file = "docs/howto/fit-a-model-into-8-gb.md";
    let page = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let mut out: Option<String> = None;
    let (mut commands, mut lines) = (0, 0);
    for line in page.lines() {
        if let Some(command) = line.strip_prefix("$ kvlab ") {
            out = Some(ok(&words(command).iter().map(String::as_str).collect::<Vec<_>>()));
            commands += 1;
        } else if line.starts_with("```") {
            out = None;
        } else if let Some(out) = out.as_ref().filter(|_| !line.is_empty() && line != "...") {
            assert!(
                out.lines().any(|printed| printed == line),
                "{line}\nis not printed:\n{out}"
            );
            lines += 1;
        }
    }
    assert!(commands >= 4 && lines >= 20, "{commands} commands, {lines} lines");
}

/// The words of a command line, as a shell takes them apart, for double quotes only.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate().flat_map(|(i, part)| match i % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    parts.collect()
}
