//! Every file under configs/ is understood, and known models come out with the bytes that the field knows.

use kvlab_config::{Capacity, Experiment, ModelConfig};
use kvlab_core::{Bytes, CacheSpec};
use kvlab_engine::{CachePlan, OpenDevice, Origin, registry};
use std::path::{Path, PathBuf};

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn load(name: &str, sets: &[&str]) -> ModelConfig {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("configs/models/{name}.toml"));
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    registry::with_known(|known| ModelConfig::load(&file, &sets, known)).unwrap()
}

/// The spec at a capacity that no length reaches; nothing is allocated.
fn spec(config: &ModelConfig) -> CacheSpec {
    let mut cache = config.cache.clone();
    cache.capacity = Some(Capacity::Tokens(1 << 20));
    let model = Origin::open(&config.model).unwrap().spec;
    let device = OpenDevice::open(kvlab_config::Device::Cpu).unwrap().device;
    CachePlan::new(&model, &cache, &device).unwrap().spec().unwrap()
}

#[test]
fn every_model_file_is_understood() {
    for file in files("configs/models") {
        let config =
            registry::with_known(|known| ModelConfig::load(&file, &[], known)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            Some(config.name.as_str()),
            file.file_stem().and_then(|s| s.to_str()),
            "the name is the file's"
        );
        if config.name == "smollm2-135m" {
            continue; // Its weights are not in the repository.
        }
        assert!(spec(&config).per_token() > Bytes(0), "{}", file.display());
    }
}

#[test]
fn every_experiment_is_understood() {
    for file in files("configs/experiments") {
        let experiment =
            registry::with_known(|known| Experiment::load(&file, &[], known)).unwrap_or_else(|e| panic!("{e}"));
        assert!(!experiment.cells().is_empty());
    }
}

#[test]
fn llama_3_1_8b() {
    let gqa = spec(&load("llama-3.1-8b", &[]));
    assert_eq!(gqa.per_token(), Bytes(128 << 10));
    assert_eq!(gqa.used_at(8 << 10), Bytes(1 << 30));
    assert_eq!(gqa.used_at(128 << 10), Bytes(16 << 30));
    assert_eq!(
        spec(&load("llama-3.1-8b", &["cache.variant=mha"])).per_token(),
        Bytes(512 << 10)
    );
    assert_eq!(
        spec(&load("llama-3.1-8b", &["cache.variant=mqa"])).per_token(),
        Bytes(16 << 10)
    );
}

#[test]
fn deepseek_v3_and_llama_2_70b() {
    assert_eq!(spec(&load("deepseek-v3", &[])).per_token(), Bytes(70_272));
    // 80 layers x 2 x 8 heads x 128 x 2 bytes.
    assert_eq!(spec(&load("llama-2-70b", &[])).per_token(), Bytes(327_680));
}

#[test]
fn windows_stop_growing() {
    let mistral = spec(&load("mistral-7b", &[]));
    assert_eq!(mistral.used_at(4096), mistral.used_at(100_000));
    assert_eq!(mistral.used_at(4096), mistral.per_token() * 4096);
    // Gemma 3 4B: 29 of 34 layers have a window of 1024, 5 see everything; a layer takes 4 KiB a token.
    let gemma = spec(&load("gemma-3-4b", &[]));
    let windowed = gemma.layers.iter().filter(|l| l.visibility.window().is_some()).count();
    assert_eq!((gemma.layers.len(), windowed), (34, 29));
    assert_eq!(gemma.used_at(8192), Bytes((29 * 1024 + 5 * 8192) * 4096));
}

#[test]
fn a_budget_becomes_tokens() {
    let config = load("llama-3.1-8b", &["cache.capacity=1 GiB"]);
    let model = Origin::open(&config.model).unwrap().spec;
    let device = OpenDevice::open(kvlab_config::Device::Cpu).unwrap().device;
    let plan = CachePlan::new(&model, &config.cache, &device).unwrap();
    let spec = plan.spec().unwrap();
    assert_eq!((spec.capacity, spec.allocated()), (8192, Bytes(1 << 30)));
    let mut tiny = config.cache.clone();
    tiny.capacity = Some(Capacity::Bytes(1000));
    let refused = CachePlan::new(&model, &tiny, &device).err().unwrap().to_string();
    assert!(refused.contains("128 KiB"), "{refused}");
}
