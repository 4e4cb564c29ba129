//! The architecture's invariants, read from `cargo metadata`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

fn packages() -> BTreeMap<String, Value> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|p| (p["name"].as_str().unwrap().to_owned(), p.clone()))
        .collect()
}

/// What a crate needs outside of its tests.
fn needs(package: &Value) -> BTreeSet<String> {
    let needed = package["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|d| d["kind"].is_null());
    needed.map(|d| d["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn dependencies_point_down() {
    // What each of our crates may need of our crates.
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("kvlab-core", &[][..]),
        ("kvlab-config", &[]),
        ("kvlab-weights", &[]),
        ("kvlab-cpu", &[]),
        ("kvlab-linear", &["kvlab-cpu"]),
        ("kvlab-store", &["kvlab-core", "kvlab-cpu"]),
        ("kvlab-kernels", &["kvlab-core", "kvlab-cpu", "kvlab-store"]),
        ("kvlab-mha", &["kvlab-core", "kvlab-store"]),
        ("kvlab-gqa", &["kvlab-core", "kvlab-store"]),
        ("kvlab-swa", &["kvlab-core", "kvlab-store"]),
        ("kvlab-mla", &["kvlab-core", "kvlab-store"]),
        (
            "kvlab-model",
            &["kvlab-core", "kvlab-cpu", "kvlab-linear", "kvlab-weights"],
        ),
        ("kvlab-testkit", &["kvlab-core"]),
        (
            "kvlab-engine",
            &[
                "kvlab-core",
                "kvlab-cpu",
                "kvlab-config",
                "kvlab-weights",
                "kvlab-store",
                "kvlab-kernels",
                "kvlab-mha",
                "kvlab-gqa",
                "kvlab-swa",
                "kvlab-mla",
                "kvlab-model",
            ],
        ),
        (
            "kvlab-lab",
            &["kvlab-core", "kvlab-config", "kvlab-engine", "kvlab-plan"],
        ),
        (
            "kvlab-explain",
            &["kvlab-core", "kvlab-config", "kvlab-engine", "kvlab-model"],
        ),
        (
            "kvlab-plan",
            &[
                "kvlab-core",
                "kvlab-config",
                "kvlab-cpu",
                "kvlab-engine",
                "kvlab-model",
                "kvlab-weights",
            ],
        ),
        (
            "kvlab",
            &[
                "kvlab-core",
                "kvlab-config",
                "kvlab-engine",
                "kvlab-explain",
                "kvlab-lab",
                "kvlab-model",
                "kvlab-plan",
            ],
        ),
    ]);
    let packages = packages();
    let names: BTreeSet<_> = packages.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        allowed.keys().copied().collect(),
        "a crate without a place in the layers"
    );
    for (name, package) in &packages {
        let ours = needs(package).into_iter().filter(|n| n.starts_with("kvlab"));
        for needed in ours {
            assert!(
                allowed[name.as_str()].contains(&needed.as_str()),
                "{name} must not need {needed}"
            );
        }
    }
}

#[test]
fn configs_and_weights_know_no_tensor() {
    let packages = packages();
    for name in ["kvlab-config", "kvlab-weights"] {
        let burn: Vec<_> = needs(&packages[name])
            .into_iter()
            .filter(|n| n.starts_with("burn") || n == "cubecl")
            .collect();
        assert_eq!(burn, [""; 0], "{name}");
    }
}

#[test]
fn features_are_the_devices_and_nothing_else() {
    for (name, package) in packages() {
        let features: Vec<_> = package["features"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        match name.as_str() {
            "kvlab" => assert_eq!(features, ["cuda", "default", "vulkan", "wgpu"]),
            // Forwarded: Burn has no device of a kind that was not compiled in, and the engine opens devices.
            "kvlab-engine" => assert_eq!(features, ["cuda", "vulkan", "wgpu"]),
            _ => assert_eq!(features, [""; 0], "{name}"),
        }
    }
}

#[test]
fn unsafe_is_where_it_is_allowed() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    let mut folders = vec![root.join("crates"), root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
                if code
                    .into_iter()
                    .any(|l| l.contains("unsafe {") || l.contains("unsafe fn"))
                {
                    found.insert(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
                }
            }
        }
    }
    let elsewhere: Vec<_> = found
        .iter()
        .filter(|p| !p.starts_with("crates/kernels/") && !p.starts_with("crates/linear/"))
        .collect();
    assert_eq!(
        elsewhere,
        [
            "crates/cpu/src/amx.rs",
            "crates/cpu/src/pool.rs",
            "crates/cpu/src/tiles.rs",
            "crates/weights/src/mapped.rs"
        ],
        "unsafe code belongs to the kernels; what they share and one memory map are the exceptions"
    );
}
