//! `kvlab explain`: the page that it writes, and what it refuses. (tests/browser/explain.mjs opens one.)

use super::{MHA, ok, refused};
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;

/// A page to write.
fn target() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    (folder, page)
}

/// The data inside a page.
fn trace(page: &str) -> Value {
    let json = page.split("id=\"trace\">").nth(1).unwrap();
    serde_json::from_str(json.split("</script>").next().unwrap()).unwrap()
}

fn names(trace: &Value) -> Vec<&str> {
    let variants = trace["variants"].as_array().unwrap().iter();
    variants.map(|variant| variant["name"].as_str().unwrap()).collect()
}

#[test]
fn explain_writes_a_page() {
    let (_folder, page) = target();
    let path = page.to_str().unwrap();
    let out = ok(&["explain", MHA, "Of Man's first disobed", "-n", "4", "--out", path]);
    let row = |name: &str| {
        let line = out.lines().find(|line| line.contains(&format!(" {name} "))).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // 22 + 23 + 24 + 25 rows without a cache, 25 with; every query meets all before it and itself.
    for part in ["bytes-mha", "2048", "94", "25", "325"] {
        assert!(row("mha").iter().any(|cell| cell == part), "{part}: {out}");
    }
    assert!(row("mla").iter().any(|cell| cell == "384"), "{out}");
    assert!(out.contains("written to") && out.contains(path), "{out}");

    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.len() < 1_500_000);
    assert!(html.contains("<html lang=\"en\">"));
    let trace = trace(&html);
    assert_eq!(names(&trace), ["mha", "gqa", "swa", "mla"]);
    assert_eq!(trace["text"], "Of Man's first disobed");
    // The tokens are those that `run` writes.
    let said: String = (trace["tokens"].as_array().unwrap().iter())
        .map(|token| token["text"].as_str().unwrap())
        .collect();
    let run = ok(&["run", MHA, "Of Man's first disobed", "-n", "4"]);
    let written = run.lines().next().unwrap();
    assert_eq!(said, format!("Of Man's first disobed{written}"), "{run}");
}

#[test]
fn explain_in_japanese_with_one_set_of_weights() {
    let (_folder, page) = target();
    let path = page.to_str().unwrap();
    let text = "</script><script>alert(1)</script>";
    let out = ok(&[
        "explain",
        MHA,
        text,
        "-n",
        "2",
        "--lang",
        "ja",
        "--convert",
        "--window",
        "5",
        "-o",
        path,
    ]);
    assert!(out.contains("bytes-mha, converted"), "{out}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<html lang=\"ja\">") && !html.contains("<script>alert"));
    let trace = trace(&html);
    assert_eq!(trace["text"], text);
    let swa = &trace["variants"][2];
    assert_eq!((&swa["name"], &swa["source"]), (&"swa".into(), &"converted".into()));
    assert_eq!(swa["layers"][0]["keeps"]["window"], 5);
}

/// The longest text on the model with the longest rows is still a page.
#[test]
fn explain_has_room_for_48_tokens() {
    let (_folder, page) = target();
    let path = page.to_str().unwrap();
    let longest = "Of Man's first disobedience, and the fruit o";
    ok(&[
        "explain",
        "configs/models/bytes-mqa.toml",
        longest,
        "-n",
        "5",
        "--out",
        path,
    ]);
    let bytes = std::fs::metadata(&page).unwrap().len();
    assert!(bytes < 1_500_000, "{bytes} bytes");
}

#[test]
fn explain_refuses_by_name() {
    let (folder, page) = target();
    let path = page.to_str().unwrap();
    let error = refused(2, &["explain", MHA, "", "-o", path]);
    assert!(error.contains("the text is empty"), "{error}");
    let long = "x".repeat(60);
    let error = refused(2, &["explain", MHA, &long, "-o", path]);
    assert!(
        error.contains("65") && error.contains("48") && error.contains("shorten"),
        "{error}"
    );
    let error = refused(2, &["explain", MHA, "x", "--lang", "fr", "-o", path]);
    assert!(error.contains("fr") && error.contains("en, ja"), "{error}");
    refused(2, &["explain", MHA, "x", "-n", "0", "-o", path]);
    refused(2, &["explain", MHA, "x", "--window", "0", "-o", path]);
    let error = refused(2, &["explain", MHA, "x", "--layers", "1,9", "-o", path]);
    assert!(error.contains("layer 9") && error.contains("4 layers"), "{error}");
    let error = refused(2, &["explain", MHA, "x", "--set", "cache.key=f16", "-o", path]);
    assert!(
        error.contains("keys as f16") && error.contains("cache.key=f32"),
        "{error}"
    );
    let none = ["--set", "cache.variant=none", "--set", "cache.capacity=unset"];
    let error = refused(2, &[&["explain", MHA, "x", "-o", path][..], &none].concat());
    assert!(error.contains("cache.variant"), "{error}");
    let nowhere = folder.path().join("no/such/page.html");
    let error = refused(2, &["explain", MHA, "x", "-o", nowhere.to_str().unwrap()]);
    assert!(error.contains("page.html"), "{error}");
    assert!(!page.exists(), "nothing was written");

    // Random weights with a vocabulary that is no bytes.
    let model = folder.path().join("model.toml");
    let text = "schema = 1\nname = \"nameless\"\n[model.geometry]\nseed = 1\nmodel_type = \"llama\"\nvocab_size = 99\n\
                hidden_size = 16\nintermediate_size = 16\nnum_hidden_layers = 1\nnum_attention_heads = 2\n\
                max_position_embeddings = 64\n";
    std::fs::write(&model, text).unwrap();
    let error = refused(2, &["explain", model.to_str().unwrap(), "x", "-o", path]);
    assert!(
        error.contains("nameless has no tokenizer") && error.contains("model.tokenizer"),
        "{error}"
    );
}
