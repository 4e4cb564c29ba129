//! Experiments against what theory says: a model whose weights were chosen by hand (assets/recall), and caches that spoil a
//! known amount.

use kvlab_config::Experiment;
use kvlab_core::*;
use kvlab_engine::registry;
use kvlab_lab::{CompareOptions, Comparison, QualityRecord, Record, Row, compare};
use kvlab_store::{BuildError, Fit, Options, Plan, Variant};
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs an experiment on a text, from what follows its first lines: keys, then tables.
fn run(model: &str, text: &Path, rest: &str) -> Comparison {
    let head = format!(
        "schema = 1\nname = \"x\"\nbase = \"{ROOT}/configs/models/{model}.toml\"\nrepeats = 1\nworkload.text = {text:?}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let parsed =
        registry::with_known(|known| Experiment::parse(&format!("{head}{rest}"), "x.toml", folder.path(), &[], known));
    let experiment = parsed.unwrap_or_else(|error| panic!("{error}"));
    let options = CompareOptions {
        runs: folder.keep(),
        ..Default::default()
    };
    compare(&experiment, &options, &mut |_| {}).unwrap()
}

fn alice() -> std::path::PathBuf {
    Path::new(ROOT).join("assets/text/alice_95k.txt")
}

fn row<'a>(comparison: &'a Comparison, cell: &str) -> &'a Row {
    let row = comparison.rows.iter().find(|row| row.cell == cell).unwrap();
    assert_eq!(row.error, None, "{cell}");
    row
}

fn records(comparison: &Comparison) -> Vec<Record> {
    let text = std::fs::read_to_string(comparison.folder.join("records.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The depths at which every question of a task was answered, and those at which none was.
fn found(row: &Row, task: &str) -> (Vec<f64>, Vec<f64>) {
    let of_task = || row.recall.iter().filter(move |recall| recall.task == task);
    let depths = |all: bool| {
        let right = of_task().filter(move |r| r.correct == if all { r.trials } else { 0 });
        right.map(|r| r.depth_percent).collect::<Vec<_>>()
    };
    assert!(of_task().count() > 0);
    (depths(true), depths(false))
}

const DEPTHS: [f64; 6] = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0];

/// T103, T44: a needle at any depth is found by everything that keeps it, and by nothing that dropped it. 600 tokens end with
/// the question, at place 599; a window of 300 sees places from 300 on, so that a needle at 40 % (place 239 or a little before)
/// is out of it and one at 60 % (from 342 on) is in it. Two sinks keep the first two rows, which are the needle at 0 %. A chain
/// of two steps needs both: the second stands half way between the first and the end.
#[test]
fn t103_t44_a_window_loses_what_is_outside_of_it() {
    let comparison = run(
        "recall",
        &alice(),
        &format!(
            "measure.quality = false\nmeasure.speed = false\n\
             [[workload.recall]]\nkind = \"needle\"\nstyle = \"symbols\"\nlengths = [600]\ndepths = {DEPTHS:?}\ntrials = 2\n\
             [[workload.recall]]\nkind = \"needles\"\nstyle = \"symbols\"\nlengths = [600]\ndepths = {DEPTHS:?}\ntrials = 2\n\
             [[workload.recall]]\nkind = \"variables\"\nhops = 2\nstyle = \"symbols\"\nlengths = [600]\ndepths = {DEPTHS:?}\ntrials = 2\n\
             [[variant]]\nname = \"none\"\nset = {{ \"cache.variant\" = \"none\", \"cache.capacity\" = \"unset\" }}\n\
             [[variant]]\nname = \"full\"\n\
             [[variant]]\nname = \"int8\"\ncache = {{ key = \"int8\", value = \"int8\" }}\n\
             [[variant]]\nname = \"window\"\ncache = {{ variant = \"swa\", window = 300 }}\n\
             [[variant]]\nname = \"sinks\"\ncache = {{ variant = \"swa\", window = 300, sinks = 2 }}\n\
             [[variant]]\nname = \"int4\"\ncache = {{ key = \"int4\", value = \"int4\" }}\n\
             [[variant]]\nname = \"int2\"\ncache = {{ key = \"int2\", value = \"int2\" }}\n"
        ),
    );
    for cell in ["none", "full", "int8"] {
        for task in ["needle", "needles 4", "variables 2"] {
            assert_eq!(
                found(row(&comparison, cell), task),
                (DEPTHS.to_vec(), vec![]),
                "{cell}, {task}"
            );
        }
    }
    let late = vec![60.0, 80.0, 100.0];
    for task in ["needle", "needles 4", "variables 2"] {
        let window = found(row(&comparison, "window"), task);
        assert_eq!(window, (late.clone(), vec![0.0, 20.0, 40.0]), "{task}");
    }
    let sinks = found(row(&comparison, "sinks"), "needle");
    assert_eq!(sinks, (vec![0.0, 60.0, 80.0, 100.0], vec![20.0, 40.0]));
    for cell in ["int4", "int2"] {
        println!("{cell}: {:?}", found(row(&comparison, cell), "needle"));
    }
}

/// Sees the rows of its own step and no others, and says that it keeps all.
struct Forgetful;

struct ForgetfulCache(Box<dyn KvCache>);

struct ForgetfulStep<'a>(Box<dyn Step + 'a>);

impl Variant for Forgetful {
    fn name(&self) -> &'static str {
        "forgetful"
    }
    fn summary(&self) -> &'static str {
        "ignores old rows"
    }
    fn options(&self) -> &'static [&'static str] {
        &[]
    }
    fn fit(&self, shape: &AttentionShape, _: &Options) -> Result<Fit, String> {
        Ok(exact(shape))
    }
    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError> {
        let cache = plan.store(self.name(), |_, rows| rows)?;
        Ok(Box::new(ForgetfulCache(Box::new(cache))))
    }
}

fn exact(shape: &AttentionShape) -> Fit {
    Fit {
        row: shape.native_row(),
        retention: Retention::All,
        adaptation: Adaptation::Keep,
        exactness: Exactness::Exact,
    }
}

impl KvCache for ForgetfulCache {
    fn spec(&self) -> &CacheSpec {
        self.0.spec()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn usage(&self) -> Usage {
        self.0.usage()
    }
    fn open(&mut self, prompt: &[TokenId]) -> Result<Opened, CacheError> {
        self.0.open(prompt)
    }
    fn fork(&mut self, seq: SeqId) -> Result<SeqId, CacheError> {
        self.0.fork(seq)
    }
    fn can_truncate(&self, seq: SeqId, len: usize) -> Result<(), CacheError> {
        self.0.can_truncate(seq, len)
    }
    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), CacheError> {
        self.0.truncate(seq, len)
    }
    fn close(&mut self, seq: SeqId) -> Result<(), CacheError> {
        self.0.close(seq)
    }
    fn len(&self, seq: SeqId) -> Result<usize, CacheError> {
        self.0.len(seq)
    }
    fn begin<'a>(&'a mut self, batch: &[Chunk<'_>]) -> Result<Box<dyn Step + 'a>, CacheError> {
        Ok(Box::new(ForgetfulStep(self.0.begin(batch)?)))
    }
}

impl Step for ForgetfulStep<'_> {
    fn positions(&self) -> &burn::tensor::Tensor<1, burn::tensor::Int> {
        self.0.positions()
    }
    fn extend(&mut self, layer: LayerId, rows: Rows) -> Result<(), CacheError> {
        self.0.extend(layer, rows)
    }
    fn attend(&mut self, layer: LayerId, query: Query) -> Result<Attended, CacheError> {
        self.0.attend(layer, query)
    }
    fn attend_fresh(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError> {
        self.0.attend_fresh(layer, rows, query)
    }
    fn extend_attend(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError> {
        self.0.extend(layer, rows.clone())?;
        self.0.attend_fresh(layer, rows, query)
    }
    fn ready(&self) -> Result<(), CacheError> {
        self.0.ready()
    }
    fn commit(self: Box<Self>, accepted: Accept) -> Result<StepReport, CacheError> {
        self.0.commit(accepted)
    }
}

/// T103: a cache that ignores the rows of earlier steps finds a needle exactly where it came in the step of the question. 600
/// tokens in chunks of 250 are steps from 0, 250 and 500: a needle at 80 % (place 478 or a little before) is lost, and one at
/// 100 % (from 581 on) is not. In one step nothing is.
#[test]
fn t103_a_cache_that_ignores_old_rows_fails_where_it_should() {
    registry::register(&Forgetful);
    let comparison = run(
        "recall",
        &alice(),
        &format!(
            "measure.quality = false\nmeasure.speed = false\n[[workload.recall]]\nkind = \"needle\"\nstyle = \"symbols\"\n\
             lengths = [600]\ndepths = {DEPTHS:?}\ntrials = 2\n\
             [[variant]]\nname = \"chunks\"\ncache = {{ variant = \"forgetful\", prefill_chunk = 250 }}\n\
             [[variant]]\nname = \"whole\"\ncache = {{ variant = \"forgetful\", prefill_chunk = 600 }}\n"
        ),
    );
    let chunks = found(row(&comparison, "chunks"), "needle");
    assert_eq!(chunks, (vec![100.0], DEPTHS[..5].to_vec()));
    assert_eq!(found(row(&comparison, "whole"), "needle"), (DEPTHS.to_vec(), vec![]));
}

/// Stores every value a tenth too large.
struct Louder;

const LOUDER: f64 = 0.1;

impl Variant for Louder {
    fn name(&self) -> &'static str {
        "louder"
    }
    fn summary(&self) -> &'static str {
        "values a tenth too large"
    }
    fn options(&self) -> &'static [&'static str] {
        &[]
    }
    fn fit(&self, shape: &AttentionShape, _: &Options) -> Result<Fit, String> {
        Ok(exact(shape))
    }
    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError> {
        let louder = plan.store(self.name(), |_, rows| Rows {
            value: rows.value.map(|value| value * (1.0 + LOUDER)),
            ..rows
        })?;
        Ok(Box::new(louder))
    }
}

/// Per-layer errors are those of theory. Attention is linear in the values, and so is the projection of its output: values
/// that are 10 % too large make an output that is 10 % too large, in every layer, of any model; 0.1 is exact but for
/// rounding. (With the hidden states that layers below have spoilt, later layers would have other numbers.)
#[test]
fn errors_of_layers_are_what_was_done_to_their_rows() {
    registry::register(&Louder);
    for model in ["recall", "bytes-gqa"] {
        let comparison = run(
            model,
            &alice(),
            "measure = { quality = false, speed = false, layers = true }\nworkload.windows = 2\nworkload.window = 96\n\
             workload.chunk = 40\n[[variant]]\nname = \"louder\"\ncache.variant = \"louder\"\n[[variant]]\nname = \"own\"\n\
             [[variant]]\nname = \"none\"\nset = { \"cache.variant\" = \"none\", \"cache.capacity\" = \"unset\" }\n",
        );
        let layers = if model == "recall" { 2 } else { 4 };
        let louder = &row(&comparison, "louder").layer_errors;
        assert_eq!(louder.len(), layers);
        for layer in louder {
            assert!((layer.relative_error - LOUDER).abs() < 1e-5, "{model}: {layer:?}");
            assert!(layer.max_difference > 0.0);
        }
        for exact in ["own", "none"] {
            let errors = &row(&comparison, exact).layer_errors;
            assert!(
                errors.len() == layers && errors.iter().all(|l| l.relative_error < 1e-5),
                "{errors:?}"
            );
        }
    }
}

/// KL is that of theory. On a text that repeats 24 symbols, the constructed model finds the last time that a symbol came and
/// says what followed it, with the logit z of the right symbol and 0 for the 255 others. With values (1 + e) too large:
///
/// * after layer 0 the hidden state has the parts (token, token before, one) = (1, 1 + e, 1), of squared length
///   n1 = 2 + (1 + e)^2, where it was 3;
/// * layer 1 copies a token of the normed state, whose projection undoes the norm of squared length 3:
///   a = (1 + e) sqrt(3 / n1), where it was 1;
/// * the head reads that part of a state of squared length n2 = n1 + a^2, where it was 4: z = 8 a sqrt(4 / n2).
///
/// With p the softmax of the oracle's 8 among 256, KL = p (8 - z) + ln((e^z + 255) / (e^8 + 255)). Weights are in f16: up to
/// three factors off by 2^-11 scale both logits by some 1 + d, d < 0.0015. KL is close to p (1 - p) (8 - z)^2 / 2, in which the
/// difference gives 2 d and the variance, whose slope is (1 - 2 p) of itself, 0.84 * 8 d: 1.3 % together.
#[test]
fn kl_is_what_was_done_to_the_values() {
    registry::register(&Louder);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("symbols.txt");
    std::fs::write(&file, "01345678#$%&+/<=>@\\^{|}~".repeat(6)).unwrap();
    let comparison = run(
        "recall",
        &file,
        "measure.speed = false\nworkload.windows = 1\nworkload.window = 96\nworkload.chunk = 40\nworkload.prompts = [24]\n\
         [[variant]]\nname = \"louder\"\ncache.variant = \"louder\"\n",
    );
    let n1 = 2.0 + (1.0 + LOUDER).powi(2);
    let a = (1.0 + LOUDER) * (3.0 / n1).sqrt();
    let z = 8.0 * a * (4.0 / (n1 + a * a)).sqrt();
    let (oracle, cell) = (8.0_f64.exp() + 255.0, z.exp() + 255.0);
    let p = 8.0_f64.exp() / oracle;
    let kl = p * (8.0 - z) + (cell / oracle).ln();
    let window = records(&comparison).into_iter().find_map(|record| match record {
        Record::Quality(record) => Some(record),
        _ => None,
    });
    let QualityRecord {
        kl_nats,
        logit_difference,
        nll_nats,
        ..
    } = window.unwrap();
    // The first period finds nothing, and the row of the first token counts as one that follows the first symbol.
    let clean: Vec<usize> = (24..95).filter(|place| place % 24 != 0).collect();
    assert_eq!(clean.len(), 68);
    for &place in &clean {
        let got = kl_nats[place];
        assert!((got / kl - 1.0).abs() < 0.02, "{place}: {got} and {kl} nats");
        // A bound that holds for any two distributions whose logits are at most d apart: KL is a mean of variances of the
        // difference along the way from one to the other, halved, and a number within d of 0 has at most the variance d^2.
        assert!(got <= logit_difference[place].powi(2) / 2.0);
        assert!(
            (nll_nats[place] + (z.exp() / cell).ln()).abs() < 0.01,
            "the right symbol comes next"
        );
    }
}

/// The tables of a cell's `[cache]`, and the bytes that 40 + 8 - 1 tokens of it take: rows times layers times bytes of a row.
const SIZES: [(&str, &str, u64); 8] = [
    ("bytes-mha", "", 47 * 4 * (4 * 32 * 4)),
    ("bytes-gqa", "", 47 * 4 * (2 * 32 * 4)),
    (
        "bytes-mqa",
        "cache.key = \"f16\"\ncache.value = \"bf16\"",
        47 * 4 * (32 * 2),
    ),
    // A ring has the rows of its window, and sinks beside them.
    (
        "bytes-gqa",
        "cache = { variant = \"swa\", window = 20, sinks = 3 }",
        23 * 4 * (2 * 32 * 4),
    ),
    // A latent of 16 and a rotated key of 8, once for all heads.
    ("bytes-mla", "", 47 * 4 * (24 * 4)),
    // Pages of 16 are used row by row: what is free in the last one is padding.
    (
        "bytes-gqa",
        "cache = { layout = \"paged\", page_size = 16 }",
        47 * 4 * (2 * 32 * 4),
    ),
    // Groups of 16 with a scale of two bytes: 18 bytes for 16 values of int8, and 10 of int4, whose zero point takes 2 more.
    (
        "bytes-gqa",
        "cache.key = { codec = \"int8\", group = 16 }\ncache.value = { codec = \"int8\", group = 16 }",
        47 * 4 * (2 * 2 * 18),
    ),
    (
        "bytes-gqa",
        "cache.key = { codec = \"int4\", group = 16 }\ncache.value = { codec = \"int4\", group = 16, scheme = \"asymmetric\" }",
        47 * 4 * (2 * (10 + 12)),
    ),
];

/// T96: bytes in use are those of the closed form, whatever the capacity; what is allocated and the peak are other numbers.
#[test]
fn t96_bytes_are_those_of_the_closed_form() {
    for (model, cache, bytes) in SIZES {
        let rest = format!(
            "measure.quality = false\nworkload.prompts = [40]\nworkload.new_tokens = 8\n\
             [[variant]]\nname = \"small\"\nset.\"cache.capacity\" = \"64 tokens\"\n{cache}\n\
             [[variant]]\nname = \"large\"\nset.\"cache.capacity\" = \"512 tokens\"\n{cache}\n"
        );
        let comparison = run(model, &alice(), &rest);
        let [small, large] = ["small", "large"].map(|cell| row(&comparison, cell).memory.unwrap());
        for memory in [small, large] {
            assert_eq!(
                (memory.used_measured, memory.used_predicted),
                (bytes, bytes),
                "{model}, {cache}"
            );
            assert!(memory.reserved >= bytes && memory.peak > memory.reserved, "{memory:?}");
        }
        // A window allocates no more than itself.
        let grows = !cache.contains("swa");
        assert_eq!(large.reserved > small.reserved, grows, "{model}, {cache}");
    }
}

/// T97: bits of a value have their share of scales and zero points in them.
#[test]
fn t97_bits_include_scales_and_zero_points() {
    let comparison = run(
        "recall",
        &alice(),
        "measure.quality = false\nworkload.prompts = [8]\nworkload.new_tokens = 2\n[[variant]]\nname = \"v\"\n\
         cache.key = { codec = \"int4\", group = 32 }\ncache.value = { codec = \"int4\", group = 32, scheme = \"asymmetric\" }\n",
    );
    let spec = records(&comparison).into_iter().find_map(|record| match record {
        Record::Cell(cell) => Some(cell.spec),
        _ => None,
    });
    let layer = &spec.unwrap().layers[0];
    assert_eq!((layer.key.bits(64), layer.value.bits(64)), (4.5, 5.0));
    let memory = row(&comparison, "v").memory.unwrap();
    assert_eq!(
        memory.used_measured,
        9 * 2 * 64 * 19 / 16,
        "9 rows, 2 layers, 64 values of 9.5 bits a pair"
    );
    let lossy = row(&comparison, "v").lossy.join(" ");
    assert!(
        lossy.contains("4.5 bits a value") && lossy.contains("5 bits a value"),
        "{lossy}"
    );
}

/// T98: every token of a window but its first is scored once, whatever the chunks; a window beyond the positions of the
/// model fails its cell. (That constant logits have the perplexity of the vocabulary is a unit test of the lab.)
#[test]
fn t98_every_token_is_scored_once() {
    let run = |window: usize, chunk: usize| {
        let rest = format!(
            "measure.speed = false\nworkload.windows = 2\nworkload.window = {window}\nworkload.chunk = {chunk}\n\
             workload.prompts = [4]\nworkload.new_tokens = 1\n[[variant]]\nname = \"v\"\n"
        );
        run("bytes-gqa", &alice(), &rest)
    };
    let whole = run(16, 0);
    let want = row(&whole, "v").quality.clone().unwrap();
    assert_eq!(want.tokens, 2 * 15);
    let whole = nll(&whole);
    // Chunks of one, with a short one at the end, as long as the window, and longer.
    for chunk in [1, 5, 15, 16, 40] {
        let comparison = run(16, chunk);
        assert_eq!(
            row(&comparison, "v").quality.as_ref().unwrap().tokens,
            want.tokens,
            "{chunk}"
        );
        for (got, want) in nll(&comparison).iter().zip(&whole) {
            assert!((got - want).abs() < 1e-4, "chunks of {chunk}: {got} and {want}");
        }
    }
    let long = run(2000, 0);
    let error = long.rows[0].error.as_deref().unwrap();
    assert!(error.contains("2000") && error.contains("1024"), "{error}");
    assert_eq!(long.rows[0].quality, None);
}

/// Negative log likelihoods of all windows, in their order.
fn nll(comparison: &Comparison) -> Vec<f64> {
    let records = records(comparison).into_iter().filter_map(|record| match record {
        Record::Quality(quality) => Some(quality.nll_nats),
        _ => None,
    });
    records.flatten().collect()
}

/// T94: of 5 tokens there is one TTFT and there are 4 gaps. (That they sum to the total is `t94_every_gap_is_counted_once`.)
/// T101: two runs of one experiment have the same tokens and quality, and a run says what it was made with.
#[test]
fn t94_t101_a_run_can_be_repeated() {
    let rest = "seed = 7\nworkload.windows = 1\nworkload.window = 24\nworkload.prompts = [8]\nworkload.new_tokens = 5\n\
        [[workload.recall]]\nkind = \"needle\"\nlengths = [200]\ndepths = [50]\ntrials = 1\n[[variant]]\nname = \"v\"\n";
    let [a, b] = [(), ()].map(|()| run("bytes-gqa", &alice(), rest));
    assert_eq!(
        a.folder.file_name(),
        b.folder.file_name(),
        "named by the resolved config"
    );
    let timeless = |comparison: &Comparison| {
        let record = |record| match record {
            Record::Speed(speed) => {
                assert_eq!((speed.ttft_ms.len(), speed.gaps_ms[0].len()), (1, 4));
                format!("{:?} {:?} {:?}", speed.tokens, speed.usage, speed.work)
            }
            other => serde_json::to_string(&other).unwrap(),
        };
        records(comparison).into_iter().map(record).collect::<Vec<String>>()
    };
    assert_eq!(timeless(&a), timeless(&b));
    assert_eq!(row(&a, "v").quality, row(&b, "v").quality);
    assert_eq!(row(&a, "v").recall, row(&b, "v").recall);
    let environment = std::fs::read_to_string(a.folder.join("environment.json")).unwrap();
    for part in [
        "\"kvlab\"",
        "\"commit\"",
        "\"devices\"",
        "\"seed\": 7",
        "\"text_sha256\"",
        "\"date\"",
    ] {
        assert!(environment.contains(part), "{part} is not in {environment}");
    }
    let resolved = std::fs::read_to_string(a.folder.join("resolved.toml")).unwrap();
    assert!(
        resolved.contains("seed = 7") && resolved.contains("kind = \"needle\""),
        "{resolved}"
    );
    assert!(
        records(&a)
            .iter()
            .any(|record| matches!(record, Record::Cell(cell) if cell.weights.len() == 64))
    );
}

/// T104: tables have units in their names, layers sum to their cell, and a cell that failed is a line with its reason.
#[test]
fn t104_tables_of_a_run() {
    let comparison = run(
        "bytes-gqa",
        &alice(),
        "measure.quality = false\nworkload.prompts = [8]\nworkload.new_tokens = 3\n[[variant]]\nname = \"good\"\n\
         [[variant]]\nname = \"bad\"\ncache = { variant = \"gqa\", num_key_value_heads = 3 }\n",
    );
    let read = |file: &str| std::fs::read_to_string(comparison.folder.join(file)).unwrap();
    let (results, layers) = (read("results.csv"), read("layers.csv"));
    let header = results.lines().next().unwrap();
    for name in ["ttft_ms", "_bytes", "_per_s"] {
        assert!(header.contains(name), "{name} is not in {header}");
    }
    let bad = results.lines().find(|line| line.starts_with("bad,")).unwrap();
    assert!(bad.contains("does not divide"), "{bad}");
    let names: Vec<&str> = layers.lines().next().unwrap().split(',').collect();
    let sum = |name: &str| -> u64 {
        let place = names.iter().position(|n| *n == name).unwrap();
        let good = layers.lines().filter(|line| line.starts_with("good,"));
        good.map(|line| line.split(',').nth(place).unwrap().parse::<u64>().unwrap())
            .sum()
    };
    let memory = row(&comparison, "good").memory.unwrap();
    assert_eq!(sum("bytes_per_token"), memory.per_token_predicted);
    assert_eq!(sum("reserved_bytes"), memory.reserved);
}

/// Bytes and operations are those of the accounting: of one query head pair by hand. The constructed model has 2 layers of four
/// matrices of 64 x 200, three of 8 x 200, and a head of 256 x 200.
#[test]
fn work_is_counted() {
    let comparison = run(
        "recall",
        &alice(),
        "measure.quality = false\nworkload.prompts = [10]\nworkload.new_tokens = 3\nworkload.batch = [1, 2]\n\
         [[variant]]\nname = \"own\"\nset.\"cache.sequences\" = 2\n\
         [[variant]]\nname = \"none\"\n\
         set = { \"cache.variant\" = \"none\", \"cache.capacity\" = \"unset\", \"cache.sequences\" = 2 }\n",
    );
    let matrices = 2 * 2 * (4 * 64 * 200 + 3 * 8 * 200);
    let head = 2 * 256 * 200;
    // A query and a row: 64 multiply-adds for the score and 64 for the value, in each of 2 layers.
    let attention = |pairs: u64| 2 * 2 * 2 * 64 * pairs;
    let [one, two] = [0, 1].map(|i| row(&comparison, "own").speed[i].work.unwrap());
    assert_eq!(one.prefill.flops, 10 * matrices + head + attention(55));
    assert_eq!(two.prefill.flops, 2 * one.prefill.flops);
    // Two steps, with 11 and 12 rows; a report has their mean.
    let step = one.decode.unwrap().flops;
    assert_eq!(step, matrices + head + attention(11 + 12) / 2);
    // Without a cache a step computes the prefix again: of 11 and of 12 tokens.
    let again = row(&comparison, "none").speed[0].work.unwrap().decode.unwrap().flops;
    assert_eq!(again, (23 * matrices + 2 * head + attention(66 + 78)) / 2);
    // Rows are counted for each sequence, weights once: 10 rows of 2 x 64 numbers in f32, in 2 layers.
    assert_eq!(two.prefill.bytes - one.prefill.bytes, 10 * 2 * 64 * 4 * 2);
    assert_eq!(one.prefill.fraction_of_flops, None, "nothing was probed");
    let process = row(&comparison, "own").speed[0].process;
    assert!(process.is_none_or(|p| p.resident_bytes > 1 << 20 && p.peak_resident_bytes >= p.resident_bytes));
}

/// T101: the order in which cells run changes no number of theirs, and a cell that fails changes no other.
#[test]
fn t101_order_does_not_change_quality() {
    let cells = [
        "[[variant]]\nname = \"own\"\n",
        "[[variant]]\nname = \"int8\"\ncache.key = { codec = \"int8\", group = 16 }\n",
        "[[variant]]\nname = \"swa\"\ncache = { variant = \"swa\", window = 9 }\n",
        "[[variant]]\nname = \"bad\"\ncache = { variant = \"gqa\", num_key_value_heads = 3 }\n",
    ];
    let head = "workload.windows = 2\nworkload.window = 24\nworkload.chunk = 7\nworkload.prompts = [8]\nworkload.new_tokens = 4\n\
        measure.layers = true\n";
    let run = |seed: u64, cells: &[&str]| {
        run(
            "bytes-gqa",
            &alice(),
            &format!("seed = {seed}\n{head}{}", cells.concat()),
        )
    };
    let mut backwards = cells;
    backwards.reverse();
    let (a, b, c) = (run(0, &cells), run(1, &backwards), run(2, &cells[..3]));
    for cell in ["own", "int8", "swa"] {
        let want = row(&a, cell);
        for other in [row(&b, cell), row(&c, cell)] {
            assert_eq!(
                (&other.quality, &other.layer_errors),
                (&want.quality, &want.layer_errors),
                "{cell}"
            );
            assert_eq!(other.memory, want.memory, "{cell}");
        }
    }
    assert_eq!(a.failed().len(), 1);
    assert_eq!(b.failed()[0].0, "bad");
}
