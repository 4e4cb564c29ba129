//! Files and names with something wrong: a message that names the thing and the way out, and nothing panics.

use super::{at, subject};
use crate::{Device, Precision, Prices, Question, Subject, plan};

fn refused(model: &str) -> String {
    match Subject::open(model, &[]) {
        Ok(_) => panic!("{model} was opened"),
        Err(error) => error.to_string(),
    }
}

fn file(name: &str, text: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn configs_that_are_none() {
    for (text, word) in [
        ("{\"model_type\": \"llama\"", "not JSON"),
        ("[1, 2]", "object"),
        ("{}", "model_type"),
        ("{\"model_type\": \"mamba\"}", "mamba"),
        ("{\"model_type\": \"llama\", \"hidden_size\": -1}", "size"),
        (
            "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_attention_heads\": 0, \"num_hidden_layers\": 1, \
             \"intermediate_size\": 8, \"vocab_size\": 8}",
            "num_attention_heads",
        ),
        ("", "not JSON"),
    ] {
        let (_folder, path) = file("config.json", text.as_bytes());
        let error = refused(&path);
        assert!(error.contains(word), "{text}: {error}");
    }
    let (_folder, path) = file("model.bin", b"nothing");
    assert!(refused(&path).contains("GGUF"));
    assert!(refused("no-such-model").contains("config.json"));
    assert!(refused("no-such-folder/config.json").contains("no-such-folder"));
}

/// A `config.json` that asks for a number of layers that nothing could hold is refused, not allocated.
#[test]
fn a_config_of_absurd_size() {
    let text = "{\"model_type\": \"llama\", \"hidden_size\": 1073741824, \"num_attention_heads\": 1, \"num_hidden_layers\": \
                1000000000, \"intermediate_size\": 1073741824, \"vocab_size\": 1073741824}";
    let (_folder, path) = file("config.json", text.as_bytes());
    assert!(refused(&path).contains("num_hidden_layers"));
}

/// Sizes whose products no number of bytes can hold.
#[test]
fn a_config_of_more_than_can_be_counted() {
    let geometry = |heads: usize, hidden: usize, layers: usize| {
        format!(
            "{{\"model_type\": \"llama\", \"hidden_size\": {hidden}, \"num_attention_heads\": {heads}, \"num_hidden_layers\": {layers}, \
             \"intermediate_size\": {hidden}, \"vocab_size\": 1000, \"max_position_embeddings\": 64, \"head_dim\": 64}}"
        )
    };
    for (text, word) in [
        (geometry(8, 1 << 30, 4096), "parameters"),
        (geometry(1 << 20, 64, 1), "heads"),
    ] {
        let (_folder, path) = file("config.json", text.as_bytes());
        let error = refused(&path);
        assert!(error.contains(word) && error.contains("planned"), "{text}: {error}");
    }
}

#[test]
fn gguf_that_is_cut() {
    let whole = b"GGUF\x03\0\0\0\x05\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0";
    for length in [4, 8, 12, 20, 24] {
        let (_folder, path) = file("model.gguf", &whole[..length]);
        let error = refused(&path);
        assert!(error.contains("model.gguf"), "{length}: {error}");
    }
}

#[test]
fn a_quantised_config_is_planned_from_its_geometry() {
    let text = "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 2, \
                \"intermediate_size\": 128, \"vocab_size\": 100, \"max_position_embeddings\": 512, \"torch_dtype\": \"float32\", \
                \"quantization_config\": {\"quant_method\": \"fp8\"}}";
    let (_folder, path) = file("config.json", text.as_bytes());
    let subject = Subject::open(&path, &["cache.variant=swa".into(), "cache.window=7".into()]).unwrap();
    assert!(subject.notes[0].contains("quantization_config"));
    assert_eq!(subject.declared, Some(Precision::Fp32));
    assert_eq!(subject.cache.window, Some(7));
    let plan = plan(&subject, &Question::default()).unwrap();
    assert_eq!(plan.context_tokens, 512);
    assert_eq!(plan.weights.counted, Some(Precision::Fp32));
}

#[test]
fn names_that_nothing_has() {
    let error = Device::find("h1000").unwrap_err().to_string();
    assert!(
        error.contains("h1000") && error.contains("h100-sxm") && error.contains("this"),
        "{error}"
    );
    let error = Prices::find("cheap").unwrap_err().to_string();
    assert!(error.contains("cheap") && error.contains("example"), "{error}");
    let error = "int3".parse::<Precision>().unwrap_err().to_string();
    assert!(error.contains("int3") && error.contains("int4"), "{error}");
    let question = Question {
        codec: Some("int3".into()),
        ..at(10)
    };
    let error = plan(&subject("llama-3.1-8b", &[]), &question).unwrap_err().to_string();
    assert!(error.contains("int3") && error.contains("int4"), "{error}");
}

#[test]
fn presets_with_something_wrong() {
    for (text, word) in [
        ("schema = 2\n", "schema = 1"),
        ("schema = 1\nname = \"x\"\n", "missing field"),
        (
            "schema = 1\nname = \"x\"\nsource = \"y\"\nbandwidth_gb_s = 0.0\n",
            "above 0",
        ),
        (
            "schema = 1\nname = \"x\"\nsource = \"y\"\nbandwidth_gb_s = nan\n",
            "above 0",
        ),
        (
            "schema = 1\nname = \"x\"\nsource = \"y\"\nbandwidth_gb_s = 1.0\nbandwith = 3\n",
            "bandwith",
        ),
        (
            "schema = 1\nname = \"x\"\nsource = \"y\"\nbandwidth_gb_s = 1.0\nmemory = \"24\"\n",
            "unit",
        ),
        (
            "schema = 1\nname = \"x\"\nsource = \"y\"\nbandwidth_gb_s = 1.0\nmemory = \"24 GB\"\n",
            "GiB",
        ),
        (
            "schema = 1\nname = \"x\"\nsource = \"y\"\nbandwidth_gb_s = 1e-320\n",
            "1e-320",
        ),
        (
            "schema = 1\nname = \"x\"\nsource = \"y\"\nbandwidth_gb_s = 1.0\n[dense_tflops]\nf32 = 1e300\n",
            "1e300",
        ),
        ("not toml", "expected"),
    ] {
        let (_folder, path) = file("device.toml", text.as_bytes());
        let error = Device::find(&path).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("device.toml"), "{text}: {error}");
    }
    for price in ["-1.0", "1e300", "nan"] {
        let text = format!(
            "schema = 1\nname = \"x\"\ndate = \"y\"\nsource = \"z\"\ncurrency = \"EUR\"\n[per_million_tokens]\ninput = \
             {price}\ncached_read = 0.0\ncache_write = 0.0\noutput = 0.0\n"
        );
        let (_folder, path) = file("prices.toml", text.as_bytes());
        let error = Prices::find(&path).unwrap_err().to_string();
        assert!(
            error.to_ascii_lowercase().contains(price) && error.contains("prices.toml"),
            "{error}"
        );
    }
}

#[test]
fn nothing_is_asked_for() {
    for question in [
        at(0),
        at(usize::MAX),
        Question {
            requests: Some(0),
            ..at(1)
        },
    ] {
        let error = plan(&subject("llama-3.1-8b", &[]), &question).unwrap_err().to_string();
        assert!(
            error.contains("0 tokens") || error.contains("0 requests") || error.contains("at most"),
            "{error}"
        );
    }
    let talk = |turns| crate::Conversation {
        turns,
        system: 1,
        user: 1,
        reply: 1,
    };
    for turns in [0, u64::MAX] {
        let question = Question {
            conversation: Some((talk(turns), Prices::find("example").unwrap())),
            ..at(1)
        };
        let error = plan(&subject("llama-3.1-8b", &[]), &question).unwrap_err().to_string();
        assert!(error.contains("turns"), "{error}");
    }
    // Beyond the model: planned, and said.
    let plan = plan(&subject("llama-2-70b", &[]), &at(8192)).unwrap();
    assert!(plan.notes[0].contains("4096 positions"), "{:?}", plan.notes);
}

/// What a model without a model file cannot take is not dropped.
#[test]
fn overrides_without_a_model_file() {
    let (_folder, path) = file("config.json", b"{}");
    for set in ["model.path=x", "name=x", "cached.variant=swa"] {
        let Err(error) = Subject::open(&path, &[set.to_owned()]) else {
            panic!("{set} was taken")
        };
        let error = error.to_string();
        assert!(error.contains(set) && error.contains("cache"), "{error}");
    }
}
