//! Budgets of the byte-level models against sizes by hand.
#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use std::path::Path;

/// The cells of an experiment on `mha`: 4 layers of 4 KV heads of 16, so that a token of its own cache in f16 takes
/// 4 x 4 x 2 x 16 x 2 = 1024 bytes. The longest text is 100 tokens.
fn cells(budget: &str, variants: &str) -> (Experiment, BTreeMap<String, String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../");
    let text = format!(
        "schema = 1\nname = \"x\"\nbase = \"configs/models/bytes-mha.toml\"\nbudget = \"{budget}\"\n[workload]\n\
         text = \"assets/text/alice_95k.txt\"\nwindow = 100\nprompts = [60]\nnew_tokens = 30\n{variants}"
    );
    let parsed = registry::with_known(|known| Experiment::parse(&text, "x.toml", &root, &[], known));
    apply(&parsed.unwrap_or_else(|error| panic!("{error}")))
}

fn one(budget: &str, variant: &str) -> Result<ModelConfig, String> {
    let (experiment, mut refused) = cells(budget, &format!("[[variant]]\nname = \"v\"\n{variant}"));
    match refused.remove("v") {
        Some(reason) => Err(reason),
        None => Ok(experiment.cells()[0].config.clone()),
    }
}

/// 25 % of 100 tokens of 1024 bytes are 25,600 bytes.
#[test]
fn each_knob_is_turned_as_far_as_it_goes() {
    // Rows in f32 take 2048 bytes: 12 of them, or 2 sinks and 10. In f16 they take 1024.
    let window = |more: &str| {
        one(
            "25 %",
            &format!("fit = \"window\"\ncache = {{ variant = \"swa\"{more} }}"),
        )
    };
    assert_eq!(window("").unwrap().cache.window, Some(12));
    assert_eq!(window(", sinks = 2").unwrap().cache.window, Some(10));
    assert_eq!(
        window(", key = \"f16\", value = \"f16\"").unwrap().cache.window,
        Some(25)
    );
    // A head of int4 with groups of 16 would fit no better than int2: groups of 32 do not divide a head of 16.
    let codec = |budget| one(budget, "fit = \"codec\"\ncache.variant = \"mha\"");
    assert_eq!(codec("100 %").unwrap().cache.key, Some(CodecSpec::named("f16")));
    assert_eq!(codec("100 %").unwrap().cache.value, Some(CodecSpec::named("f16")));
    let heads = |budget| one(budget, "fit = \"heads\"\ncache.variant = \"gqa\"").map(|c| c.cache.num_key_value_heads);
    // A KV head in f32 is half of all four in f16.
    assert_eq!([heads("100 %"), heads("50 %")], [Ok(Some(2)), Ok(Some(1))]);
    // Keys that rotate stay whole: 64 numbers, and the rank. In f16, 256 bytes of a layer are 128 numbers, and 192 are 96.
    let rank = |budget| {
        one(budget, "fit = \"rank\"\ncache = { variant = \"mla\", key = \"f16\" }").map(|c| c.cache.kv_lora_rank)
    };
    assert_eq!([rank("100 %"), rank("75 %")], [Ok(Some(64)), Ok(Some(32))]);
}

#[test]
fn what_cannot_be_kept_is_refused_with_numbers() {
    let error = one("25 %", "cache.variant = \"mha\"").unwrap_err();
    assert!(
        error.contains("200 KiB") && error.contains("25 %") && error.contains("fit = \"window\""),
        "{error}"
    );
    assert!(one("25 %", "cache = { variant = \"swa\", window = 12 }").is_ok());
    assert!(one("25 %", "fit = \"unlimited\"\ncache.variant = \"mha\"").is_ok());
    assert!(
        one(
            "25 %",
            "set = { \"cache.variant\" = \"none\", \"cache.capacity\" = \"unset\" }"
        )
        .is_ok()
    );
    let error = one("25 %", "fit = \"heads\"\ncache.variant = \"gqa\"").unwrap_err();
    assert!(
        error.contains("no cache.num_key_value_heads keeps the budget of 25"),
        "{error}"
    );
    let error = one("25 %", "fit = \"window\"\ncache.variant = \"mha\"").unwrap_err();
    assert!(error.contains("belongs to variant swa"), "{error}");
    let error = one("1 %", "fit = \"window\"\ncache.variant = \"swa\"").unwrap_err();
    assert!(error.contains("no cache.window"), "{error}");
}

#[test]
fn the_row_says_what_was_chosen() {
    let (experiment, refused) = cells(
        "50 %",
        "[[variant]]\nname = \"a\"\nnote = \"Ours.\"\nfit = \"window\"\ncache.variant = \"swa\"\n[[variant]]\nname = \"b\"\n",
    );
    let note = experiment.cells()[0].note.as_deref().unwrap();
    assert_eq!(
        note,
        "Ours. cache.window = 25, the most that 50 % of the full cache allow."
    );
    assert_eq!(refused.keys().collect::<Vec<_>>(), ["b"]);
    // Again it is the same: nothing is left to choose.
    assert_eq!(experiment.to_toml().unwrap(), cells_again(&experiment));
}

fn cells_again(experiment: &Experiment) -> String {
    let text = experiment.to_toml().unwrap();
    let back: Experiment = toml::from_str(&text).unwrap();
    back.to_toml().unwrap()
}
