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
/// With p the softmax of the oracle's 8 among 256, KL = p (8 - z) + ln((e^z + 255) / (e^8 + 255)). Weights are in f16, so
/// that each factor may be off by 2^-11; z - 8 is known to 8 * 3 * 2^-11 of 0.166, and KL, which is quadratic in it, to 15 %.
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
        assert!((got / kl - 1.0).abs() < 0.15, "{place}: {got} and {kl} nats");
        // A bound that holds for any two distributions whose logits are at most d apart: KL is a mean of variances of the
        // difference along the way from one to the other, halved, and a number within d of 0 has at most the variance d^2.
        assert!(got <= logit_difference[place].powi(2) / 2.0);
        assert!(
            (nll_nats[place] + (z.exp() / cell).ln()).abs() < 0.01,
            "the right symbol comes next"
        );
    }
}
