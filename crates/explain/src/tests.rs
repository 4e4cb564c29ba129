use super::*;
use kvlab_engine::registry;
use std::path::PathBuf;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../configs/models")
        .join(name)
}

fn load(file: &Path, sets: &[&str]) -> ModelConfig {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    registry::with_known(|known| ModelConfig::load(file, &sets, known)).unwrap()
}

fn request(text: &str, new: usize) -> Request {
    Request {
        text: text.to_owned(),
        new_tokens: NonZeroUsize::new(new).unwrap(),
        window: None,
        layers: Vec::new(),
        convert: false,
    }
}

fn run(name: &str, sets: &[&str], request: &Request) -> Result<Trace, ExplainError> {
    let file = file(name);
    trace(&file, &load(&file, sets), request, &mut |_, _, _| {})
}

fn names(trace: &Trace) -> Vec<&str> {
    trace.variants.iter().map(|v| v.name.as_str()).collect()
}

fn sum(counts: &[Counts]) -> Counts {
    counts.iter().fold(Counts::default(), |a, b| Counts {
        rows: a.rows + b.rows,
        new: a.new + b.new,
        again: a.again + b.again,
    })
}

/// What makes the page true: each shown variant's outputs follow from what is shown of it. It holds for the trained
/// models, for those that are made from one set of weights, and after rounding up to a digit of each number.
#[test]
fn the_weighted_values_are_what_the_model_used() {
    for convert in [false, true] {
        let mut request = request("Of Man's first", 4);
        request.convert = convert;
        let trace = run("bytes-mha.toml", &[], &request).unwrap();
        assert_eq!(names(&trace), ["mha", "gqa", "swa", "mla"]);
        assert_eq!(trace.missing, []);
        for variant in &trace.variants {
            assert!(variant.deviation < 1e-4, "{}: {}", variant.name, variant.deviation);
            assert!(variant.difference < 1e-3, "{}: {}", variant.name, variant.difference);
            for layer in &variant.layers {
                follows(layer, 17);
            }
        }
    }
}

/// From the rounded numbers of a layer: weights are the softmax of scores, scores the products, outputs the sums.
fn follows(layer: &Layer, tokens: usize) {
    let number = |numbers: &Numbers, row: usize, i: usize| {
        f64::from(numbers.rows[row][i]) / 10.0_f64.powi(numbers.decimals.into())
    };
    let unit = |numbers: &Numbers| 10.0_f64.powi(-i32::from(numbers.decimals));
    let values = layer.v.as_ref().unwrap_or(&layer.k);
    let width = if layer.latent { layer.key } else { layer.value };
    for token in 0..tokens {
        let visible = layer.visible(token);
        for head in 0..layer.query_heads {
            let (at, kv) = (token * layer.query_heads + head, head * layer.heads / layer.query_heads);
            assert_eq!(layer.scores.rows[at].len(), visible.len());
            let total: i32 = layer.weights.rows[at].iter().sum();
            assert!((total - 1000).unsigned_abs() as usize <= visible.len(), "{total}");
            for (place, &row) in visible.iter().enumerate() {
                let product: f64 = (0..layer.key)
                    .map(|i| number(&layer.q, token, head * layer.key + i) * number(&layer.k, row, kv * layer.key + i))
                    .sum();
                let size: f64 = (0..layer.key)
                    .map(|i| {
                        number(&layer.q, token, head * layer.key + i).abs() * unit(&layer.k)
                            + number(&layer.k, row, kv * layer.key + i).abs() * unit(&layer.q)
                    })
                    .sum();
                let score = number(&layer.scores, at, place);
                let allowed = size * layer.scale + unit(&layer.scores);
                assert!((product * layer.scale - score).abs() <= allowed, "{product} {score}");
            }
            for i in 0..layer.value {
                let out: f64 = (visible.iter().enumerate())
                    .map(|(place, &row)| number(&layer.weights, at, place) * number(values, row, kv * width + i))
                    .sum();
                let size: f64 = visible
                    .iter()
                    .map(|&row| number(values, row, kv * width + i).abs() * 0.0005)
                    .sum();
                let shown = number(&layer.out, token, head * layer.value + i);
                assert!(
                    (out - shown).abs() <= size + unit(values) + unit(&layer.out),
                    "{out} {shown}"
                );
            }
        }
    }
}

/// Soft caps, sinks, latents, windows beside full attention, partial rotation: whatever a model does between its query and
/// its output, the recording follows it, or there is none.
#[test]
fn every_kind_of_model_can_be_recorded() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let prompt: Vec<TokenId> = (0..14).map(|i| i * 37 % 131).collect();
    let mut kinds = [0; 4];
    for folder in std::fs::read_dir(golden).unwrap() {
        let folder = folder.unwrap().path();
        if !folder.join("model.safetensors").exists() {
            continue;
        }
        let text = format!("schema = 1\nname = \"golden\"\n[model]\npath = {folder:?}\n");
        let config = registry::with_known(|known| ModelConfig::parse(&text, "golden", Path::new("."), &[], known));
        let mut engine = Engine::load(&config.unwrap(), &mut |_, _| {}).unwrap();
        let layers: Vec<usize> = (0..engine.model().layers()).collect();
        let recording = record(&mut engine, &prompt, Then::Generate(3), &layers);
        let recording = recording.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let has = |what: &dyn Fn(&Layer) -> bool| usize::from(recording.layers.iter().any(what));
        let found = [
            has(&|layer| layer.softcap.is_some()),
            has(&|layer| layer.sink),
            has(&|layer| layer.latent),
            has(&|layer| layer.sees.is_some() && layer.stored[2].len() < 16),
        ];
        kinds.iter_mut().zip(found).for_each(|(kind, found)| *kind += found);
    }
    assert!(
        kinds.iter().all(|kind| *kind > 0),
        "soft caps, sinks, latents, windows: {kinds:?}"
    );
}

/// With the cache each of the `p + g - 1` tokens that are fed is projected once. Without, the passes project
/// `p, p + 1, .., p + g - 1` rows; from one token on, `n` against `n (n + 1) / 2`.
#[test]
fn what_is_saved_and_what_is_not() {
    for (text, g) in [("O", 6), ("Of Man", 5), ("Of Man", 1)] {
        let p = text.len();
        let trace = run("bytes-mha.toml", &[], &request(text, g)).unwrap();
        let fed = p + g - 1;
        assert_eq!((trace.prompt, trace.tokens.len()), (p, fed + 1));
        for variant in trace.variants.iter().filter(|v| v.name != "swa") {
            for layer in &variant.layers {
                let (with, without) = (sum(&layer.with), sum(&layer.without));
                assert_eq!(with.rows, fed);
                assert_eq!(without.rows, g * p + g * (g - 1) / 2);
                // Every query meets itself and all before it, once, with or without.
                assert_eq!(with.new, fed * (fed + 1) / 2);
                assert_eq!(without.new, with.new);
                assert_eq!(with.again, 0);
                let again: usize = (p..fed).map(|before| before * (before + 1) / 2).sum();
                assert_eq!(without.again, again);
                for (pass, (with, without)) in layer.with.iter().zip(&layer.without).enumerate() {
                    assert_eq!(with.rows, if pass == 0 { p } else { 1 });
                    assert_eq!(without.rows, p + pass);
                    assert_eq!(with.new, without.new, "the query against all keys is not saved");
                }
                if p == 1 {
                    assert_eq!((with.rows, without.rows), (g, g * (g + 1) / 2));
                }
            }
        }
    }
}

#[test]
fn what_a_token_costs() {
    let trace = run("bytes-mha.toml", &[], &request("Of Man's first disobed", 4)).unwrap();
    let bytes = |name: &str| trace.variants.iter().find(|v| v.name == name).unwrap();
    // 4 layers in f32: 4 heads of 16 + 16, 2 heads, and one latent of 16 with a rotated key of 8.
    assert_eq!(bytes("mha").bytes_per_token, 4 * 4 * 4 * 32);
    assert_eq!(bytes("gqa").bytes_per_token, 4 * 4 * 2 * 32);
    assert_eq!(bytes("mla").bytes_per_token, 4 * 4 * 24);
    assert_eq!(bytes("mha").bytes, [22, 23, 24, 25].map(|tokens| tokens * 2048));
    // The window is the most that SWA ever holds.
    let swa = bytes("swa");
    let window = swa.layers[0].keeps.unwrap().window;
    assert_eq!(window, 8);
    assert_eq!(swa.bytes, [8 * 1024; 4]);
    assert!(swa.lossy[0].contains("dropped"), "{:?}", swa.lossy);
    assert_eq!(swa.layers[0].stored[3], (17..25).collect::<Vec<_>>());
    assert_eq!(swa.layers[0].visible(24), (17..25).collect::<Vec<_>>());
    assert_eq!(
        swa.layers[0].with[1],
        Counts {
            rows: 1,
            new: 8,
            again: 0
        }
    );
}

#[test]
fn every_model_file_can_be_the_first() {
    let first = |name: &str, sets: &[&str]| {
        let trace = run(name, sets, &request("Of Man", 3)).unwrap();
        names(&trace)
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(first("bytes-gqa.toml", &[]), "gqa mha swa mla");
    assert_eq!(first("bytes-mqa.toml", &[]), "mqa mha gqa swa mla");
    assert_eq!(first("bytes-swa.toml", &[]), "swa mha gqa mla");
    assert_eq!(first("bytes-mla.toml", &[]), "mla mha gqa swa");
    assert_eq!(first("bytes-gqa.toml", &["cache.variant=mha"]), "mha gqa swa mla");
    assert_eq!(first("bytes-mha.toml", &["cache.layout=paged"]), "mha gqa swa mla");
}

/// A model of another shape, with random weights and no file beside it.
#[test]
fn a_random_model_is_converted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.toml");
    let geometry = r#"
schema = 1
name = "tiny"
[model]
tokenizer = "bytes"
[model.geometry]
seed = 3
model_type = "llama"
vocab_size = 256
hidden_size = 24
intermediate_size = 32
num_hidden_layers = 2
num_attention_heads = 6
num_key_value_heads = 3
head_dim = 4
max_position_embeddings = 64
"#;
    std::fs::write(&path, geometry).unwrap();
    let trace = trace(&path, &load(&path, &[]), &request("Of", 4), &mut |_, _, _| {}).unwrap();
    assert_eq!(names(&trace), ["gqa", "mha", "swa", "mla"]);
    let source = |v: &Variant| v.source;
    assert_eq!(source(&trace.variants[0]), Source::Own);
    assert!(trace.variants[1..].iter().all(|v| v.source == Source::Converted));
    assert!(trace.variants.iter().all(|v| v.deviation < 1e-4));
    // `mha` on grouped weights repeats rows: exact, and twice the bytes.
    assert_eq!(trace.variants[1].lossy, [""; 0]);
    assert_eq!(trace.variants[1].bytes_per_token, 2 * trace.variants[0].bytes_per_token);
    assert_eq!(trace.variants[1].next, trace.variants[0].next);
}

#[test]
fn latent_weights_have_no_heads_to_pool() {
    let mut request = request("Of", 2);
    request.convert = true;
    let trace = run("bytes-mla.toml", &[], &request).unwrap();
    assert_eq!(names(&trace), ["mla", "mha", "swa"]);
    assert_eq!(trace.missing.len(), 1);
    assert!(trace.missing[0].reason.contains("gqa"), "{:?}", trace.missing);
    assert_eq!(
        trace.variants[1].next, trace.variants[0].next,
        "expanded is the same function"
    );
}

#[test]
fn one_head_makes_no_groups() {
    let mut request = request("Of", 2);
    request.convert = true;
    let trace = run("bytes-mqa.toml", &[], &request).unwrap();
    assert_eq!(names(&trace), ["mqa", "mha", "swa", "mla"]);
    assert!(trace.missing[0].reason.contains("one KV head"), "{:?}", trace.missing);
}

#[test]
fn layers_can_be_chosen() {
    let mut request = request("Of", 2);
    request.layers = vec![3, 1];
    let trace = run("bytes-mha.toml", &[], &request).unwrap();
    let shown: Vec<_> = trace.variants[2].layers.iter().map(|layer| layer.layer).collect();
    assert_eq!(shown, [1, 3]);
    assert_eq!(trace.variants[0].all_layers, 4);
    request.layers = vec![4];
    let error = run("bytes-mha.toml", &[], &request).unwrap_err();
    assert!(error.to_string().contains("4 layers"), "{error}");
}

#[test]
fn bad_requests_are_refused_by_name() {
    let error = |sets: &[&str], text: &str, new| {
        let error = run("bytes-mha.toml", sets, &request(text, new)).unwrap_err();
        error.to_string()
    };
    assert!(error(&[], "", 1).contains("empty"));
    let long = "x".repeat(45);
    assert!(run("bytes-mha.toml", &[], &request(&long, 4)).is_ok());
    let message = error(&[], &long, 5);
    assert!(
        message.contains("49") && message.contains("48") && message.contains("-n"),
        "{message}"
    );
    assert!(error(&[], "xy", usize::MAX).contains("-n"));
    let message = error(&["cache.variant=none", "cache.capacity=unset"], "x", 1);
    assert!(message.contains("none"), "{message}");
    let message = error(&["cache.key=f16"], "x", 1);
    assert!(
        message.contains("keys as f16") && message.contains("cache.key=f32"),
        "{message}"
    );
}

#[test]
fn tokens_that_are_no_text_are_numbers() {
    let trace = run("bytes-mha.toml", &[], &request("é\n<", 1)).unwrap();
    let texts: Vec<_> = trace.tokens[..4].iter().map(|token| token.text.as_str()).collect();
    assert_eq!(texts, ["<C3>", "<A9>", "\n", "<"]);
}
