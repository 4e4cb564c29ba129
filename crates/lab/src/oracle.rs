//! The oracle of a cell: the same weights on the same device, uncached, in f32, with the model's own attention.

use kvlab_config::{CacheConfig, ModelConfig, Weights};

/// What a cell is compared with. Cells with equal oracles share one.
pub(crate) fn of(config: &ModelConfig) -> ModelConfig {
    let mut oracle = config.clone();
    oracle.cache = CacheConfig {
        variant: Some("none".to_owned()),
        ..CacheConfig::default()
    };
    // "Native" weights are f32 in memory, and stay as they are so that cell and oracle share them.
    if matches!(oracle.model.weights, Weights::F16 | Weights::Bf16) {
        oracle.model.weights = Weights::F32;
    }
    oracle.generate = Default::default();
    oracle
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kvlab_engine::registry::with_known;
    use std::path::Path;

    fn config(rest: &str) -> ModelConfig {
        let text = format!("schema = 1\nname = \"x\"\n[model]\npath = \"m\"\n{rest}");
        with_known(|known| ModelConfig::parse(&text, "x", Path::new("/"), &[], known)).unwrap()
    }

    #[test]
    fn an_oracle_has_no_cache_and_full_precision() {
        let none = config("[cache]\nvariant = \"none\"");
        for rest in [
            "[cache]\nvariant = \"swa\"\nwindow = 8\nsinks = 2\nkey = \"f16\"\ncapacity = \"64 tokens\"\nprefill_chunk = 3",
            "[cache]\nsequences = 4\n[generate]\nmax_new_tokens = 3",
            "",
        ] {
            assert_eq!(of(&config(rest)), none, "{rest}");
        }
        assert_eq!(
            of(&config("weights = \"bf16\"")),
            config("weights = \"f32\"\n[cache]\nvariant = \"none\"")
        );
        assert_ne!(of(&config("[backend]\ndevice = \"wgpu\"")), none);
    }
}
