//! Runs as files: the schema of their records, and their reports.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn kvlab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvlab"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap()
}

/// The quickstart, once: its folder.
fn quickstart(runs: &Path) -> PathBuf {
    let file = "configs/experiments/quickstart.toml";
    let run = kvlab(&["compare", file, "--runs", runs.to_str().unwrap(), "--set", "repeats=1"]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    std::fs::read_dir(runs).unwrap().next().unwrap().unwrap().path()
}

/// docs/records.schema.json is what the types of the records say. `KVLAB_BLESS=1` writes it.
#[test]
fn the_schema_of_the_records_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/records.schema.json");
    let now = serde_json::to_string_pretty(&kvlab_lab::record_schema()).unwrap() + "\n";
    if std::env::var_os("KVLAB_BLESS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let then = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        then == now,
        "{}: run this test with KVLAB_BLESS=1, and commit what it writes",
        path.display()
    );
}

/// Every line of a real run is as the schema says, and what is not is refused. The report is made again from these files alone,
/// and is the same to the byte.
#[test]
fn a_real_run_is_valid_and_its_report_can_be_made_again() {
    let runs = tempfile::tempdir().unwrap();
    let folder = quickstart(runs.path());
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));

    let validator = jsonschema::validator_for(&kvlab_lab::record_schema()).unwrap();
    let lines: Vec<Value> = String::from_utf8(read("records.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut kinds = std::collections::BTreeSet::new();
    for line in &lines {
        let errors: Vec<String> = validator
            .iter_errors(line)
            .map(|e| format!("{e} at {}", e.instance_path))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}\n{line}");
        kinds.insert(line["kind"].as_str().unwrap());
    }
    assert!(
        kinds.is_superset(&["cell", "quality", "greedy", "speed"].into()),
        "{kinds:?}"
    );
    let of_kind = |kind: &str| lines.iter().find(|line| line["kind"] == kind).unwrap().clone();
    let mut wrong = vec![
        of_kind("cell"),
        of_kind("quality"),
        of_kind("speed"),
        of_kind("greedy"),
        of_kind("cell"),
    ];
    wrong[0]["spec"]["layers"][0]["layout"] = Value::Null;
    wrong[1]["kl_nats"][0] = Value::Null;
    wrong[2].as_object_mut().unwrap().remove("ttft_ms");
    wrong[3]["kind"] = "greed".into();
    wrong[4]["spec"]["layers"][0]["row"]["value"] = serde_json::json!({ "own": -1 });
    for line in wrong {
        assert!(!validator.is_valid(&line), "{line}");
    }

    let names = [
        "report.html",
        "report.md",
        "results.csv",
        "layers.csv",
        "records.parquet",
        "figures/itl.svg",
        "tables/times.csv",
    ];
    let before: Vec<Vec<u8>> = names.map(&read).to_vec();
    for name in names {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    let again = kvlab(&["report", folder.to_str().unwrap()]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    for (name, before) in names.iter().zip(before) {
        assert!(read(name) == before, "{name} is another");
    }
    let page = String::from_utf8(read("report.html")).unwrap();
    for outside in ["http://", "https://", "@import", "url("] {
        let found = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "{outside}");
    }
}

#[test]
fn reports_of_what_is_no_run_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_str().unwrap();
    let run = kvlab(&["report", path]);
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("resolved.toml") && errors.contains("kvlab compare"),
        "{errors}"
    );
    let run = kvlab(&["report", path, path]);
    let errors = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.code() == Some(2) && errors.contains("--out"), "{errors}");
}
