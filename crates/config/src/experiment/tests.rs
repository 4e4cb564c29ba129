//! Experiment files: cells, sweeps, overrides, paths. Problems are in [`problems`].
#![allow(clippy::unwrap_used)]

mod problems;

use std::path::Path;

use super::*;
use crate::known::TEST;
use crate::{Capacity, CodecSpec, ConfigErrors, ModelOrigin};

const BASE: &str = "schema = 1\nname = \"base\"\n[model]\npath = \"../w/m.gguf\"\n[cache]\nkey = \"f16\"\n";
/// Five lines: what follows starts at line 6.
const HEAD: &str = "schema = 1\nname = \"e\"\nbase = \"../models/base.toml\"\n[workload]\ntext = \"../t.txt\"\n";

/// A folder with `models/` and `experiments/`.
struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Self {
        let lab = Self(tempfile::tempdir().unwrap());
        for folder in ["models", "experiments"] {
            std::fs::create_dir(lab.path(folder)).unwrap();
        }
        lab.write("models/base.toml", BASE);
        lab
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.0.path().join(below)
    }

    fn write(&self, below: &str, text: &str) {
        std::fs::write(self.path(below), text).unwrap();
    }

    fn load_with(&self, text: &str, sets: &[&str]) -> Result<Experiment, ConfigErrors> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        Experiment::parse(text, "e.toml", &self.path("experiments"), &sets, &TEST)
    }

    fn load(&self, more: &str) -> Result<Experiment, ConfigErrors> {
        self.load_with(&format!("{HEAD}{more}"), &[])
    }

    /// The problems as `line:column: message (help)`, without the folder of the lab.
    fn problems(&self, text: &str, sets: &[&str]) -> Vec<String> {
        let errors = self
            .load_with(text, sets)
            .err()
            .map(|errors| errors.to_string())
            .unwrap_or_default();
        let folder = self.0.path().display().to_string();
        errors
            .lines()
            .map(|line| line.trim_start_matches("e.toml:").replace(&folder, "LAB"))
            .collect()
    }
}

#[track_caller]
fn check(more: &str, expect: &[&str]) {
    assert_eq!(Lab::new().problems(&format!("{HEAD}{more}"), &[]), expect);
}

fn names(experiment: &Experiment) -> Vec<&str> {
    experiment.cells().iter().map(|cell| cell.name.as_str()).collect()
}

#[test]
fn reads_every_key() {
    let lab = Lab::new();
    lab.write("models/swa.toml", "schema = 1\nname = \"swa\"\n[model]\npath = \"hf:a/b\"\n[cache]\nvariant = \"swa\"\nwindow = 8\nkey = \"f16\"\n");
    let text = "schema = 1\nname = \"quickstart\"\nbase = \"../models/base.toml\"\nrepeats = 5\nseed = 9\n[workload]\nkind = \"text\"\ntext = \"../../t.txt\"\nwindows = 2\nwindow = 64\nchunk = 1\noffset = 3\nprompts = [8, 16]\nnew_tokens = 4\nbatch = 2\n[measure]\nquality = true\nspeed = false\n[[variant]]\nname = \"gqa\"\nnote = \"two heads\"\nset = { \"cache.variant\" = \"gqa\", \"cache.num_key_value_heads\" = 2 }\n[[variant]]\nname = \"swa\"\nbase = \"../models/swa.toml\"\n[variant.cache]\nwindow = 4\nkey = \"unset\"\n[variant.cache.value]\ncodec = \"int8\"\ngroup = 16\n";
    let experiment = lab.load_with(text, &[]).unwrap();
    assert_eq!(
        (experiment.name.as_str(), experiment.repeats, experiment.seed),
        ("quickstart", 5, 9)
    );
    let workload = Workload {
        kind: WorkloadKind::Text,
        text: lab.path("../t.txt"),
        windows: 2,
        window: 64,
        chunk: 1,
        offset: 3,
        prompts: vec![8, 16],
        new_tokens: 4,
        batch: vec![2],
        recall: vec![],
        conversation: None,
        mix: None,
    };
    let workload = Workload {
        text: lab.0.path().parent().unwrap().join("t.txt"),
        ..workload
    };
    assert_eq!(experiment.workload, workload);
    assert_eq!(
        experiment.measure,
        Measure {
            quality: true,
            speed: false,
            recall: true,
            layers: false,
        }
    );
    assert_eq!(names(&experiment), ["gqa", "swa"]);
    let [gqa, swa] = experiment.cells() else { unreachable!() };
    assert_eq!((gqa.note.as_deref(), swa.note.as_deref()), (Some("two heads"), None));
    assert_eq!(gqa.config.model.origin, ModelOrigin::Path(lab.path("w/m.gguf")));
    assert_eq!(gqa.config.cache.num_key_value_heads, Some(2));
    assert_eq!(gqa.config.cache.key, Some(CodecSpec::named("f16")));
    assert_eq!(
        (swa.config.cache.window, swa.config.cache.key.as_ref()),
        (Some(4), None)
    );
    assert_eq!(swa.config.cache.value_codec(0).group, Some(16));
    let text = experiment.to_toml().unwrap();
    assert_eq!(toml::from_str::<Experiment>(&text).unwrap(), experiment, "{text}");
}

#[test]
fn fills_in_defaults() {
    let experiment = Lab::new().load("").unwrap();
    assert_eq!((experiment.repeats, experiment.seed), (3, 0));
    assert_eq!(
        experiment.measure,
        Measure {
            quality: true,
            speed: true,
            recall: true,
            layers: false,
        }
    );
    assert_eq!(experiment.workload.prompts, [32, 160]);
    assert_eq!(names(&experiment), ["base"]);
    assert_eq!(experiment.cells()[0].config.name, "base");
}

#[test]
fn the_sweep_is_crossed_with_the_variants() {
    let lab = Lab::new();
    let sweep = "[[variant]]\nname = \"none\"\nsweep = false\nset = { \"cache.variant\" = \"none\", \"cache.key\" = \"unset\" }\n[[variant]]\nname = \"gqa\"\ncache.variant = \"gqa\"\n[[variant]]\nname = \"own\"\n[sweep]\n\"cache.key\" = [\"f32\", { codec = \"int8\", group = 16 }]\n[sweep.backend]\nthreads = [1, 2]\n";
    let experiment = lab.load(sweep).unwrap();
    let expect = [
        "none",
        "gqa cache.key=f32 backend.threads=1",
        "gqa cache.key=f32 backend.threads=2",
        "gqa cache.key={codec=int8,group=16} backend.threads=1",
        "gqa cache.key={codec=int8,group=16} backend.threads=2",
        "own cache.key=f32 backend.threads=1",
        "own cache.key=f32 backend.threads=2",
        "own cache.key={codec=int8,group=16} backend.threads=1",
        "own cache.key={codec=int8,group=16} backend.threads=2",
    ];
    assert_eq!(names(&experiment), expect);
    let cell = &experiment.cells()[4].config;
    assert_eq!(cell.cache.variant.as_deref(), Some("gqa"));
    assert_eq!(cell.cache.key_codec(0).to_string(), "int8(group=16)");
    assert_eq!(cell.backend.threads, Some(2));
    assert_eq!(experiment.cells()[0].config.cache.key, None);

    let experiment = lab.load("[sweep]\ncache.variant = [\"unset\", \"mha\"]\n").unwrap();
    assert_eq!(names(&experiment), ["cache.variant=unset", "cache.variant=mha"]);
    assert_eq!(experiment.cells()[0].config.cache.variant, None);
}

#[test]
fn deeper_keys_change_a_part_of_a_table_and_shorter_ones_replace_it() {
    let lab = Lab::new();
    lab.write(
        "models/base.toml",
        &BASE.replace("\"f16\"", "{ codec = \"int8\", group = 32 }"),
    );
    let more = "[[variant]]\nname = \"part\"\nset = { \"cache.key.group\" = 64 }\n[[variant]]\nname = \"whole\"\nset = { cache.key = { codec = \"int4\" } }\n";
    let experiment = lab.load(more).unwrap();
    let keys: Vec<String> = experiment
        .cells()
        .iter()
        .map(|cell| cell.config.cache.key_codec(0).to_string())
        .collect();
    assert_eq!(keys, ["int8(group=64)", "int4"]);
}

#[test]
fn geometry_is_merged_key_by_key() {
    let lab = Lab::new();
    lab.write(
        "models/base.toml",
        "schema = 1\nname = \"r\"\n[model.geometry]\na = 1\nb = { c = 2, d = 3 }\n",
    );
    let experiment = lab
        .load("[[variant]]\nname = \"v\"\nset = { \"model.geometry.a\" = 5 }\nmodel.geometry.b = { c = 4 }\n")
        .unwrap();
    let ModelOrigin::Random { geometry, .. } = &experiment.cells()[0].config.model.origin else {
        unreachable!()
    };
    assert_eq!(
        serde_json::Value::Object(geometry.clone()).to_string(),
        r#"{"a":5,"b":{"c":4}}"#
    );
}

#[test]
fn paths_start_at_the_file_that_writes_them() {
    let lab = Lab::new();
    let experiment = lab
        .load("[[variant]]\nname = \"v\"\nset = { \"model.path\" = \"here.gguf\" }\n[[variant]]\nname = \"w\"\n")
        .unwrap();
    let origins: Vec<&ModelOrigin> = experiment
        .cells()
        .iter()
        .map(|cell| &cell.config.model.origin)
        .collect();
    let expect = ["experiments/here.gguf", "w/m.gguf"].map(|path| ModelOrigin::Path(lab.path(path)));
    assert_eq!(origins, expect.iter().collect::<Vec<_>>());
    assert_eq!(experiment.workload.text, lab.path("t.txt"));
}

#[test]
fn sets_change_the_experiment_or_every_cell() {
    let lab = Lab::new();
    let text = format!(
        "{HEAD}[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\nbackend.threads = 2\n[sweep]\n\"cache.key\" = [\"f32\", \"f16\"]\n"
    );
    let sets = [
        "repeats=1",
        "measure.quality=false",
        "sweep.cache.key=[\"bf16\"]",
        "sweep.\"cache.capacity\"=[8, \"2 KiB\"]",
        "backend.threads=7",
        "variant.1.name=c",
    ];
    let experiment = lab.load_with(&text, &sets).unwrap();
    assert_eq!((experiment.repeats, experiment.measure.quality), (1, false));
    let expect = [
        "a cache.key=bf16 cache.capacity=8",
        "a cache.key=bf16 cache.capacity=2 KiB",
        "c cache.key=bf16 cache.capacity=8",
        "c cache.key=bf16 cache.capacity=2 KiB",
    ];
    assert_eq!(names(&experiment), expect);
    assert!(
        experiment
            .cells()
            .iter()
            .all(|cell| cell.config.backend.threads == Some(7))
    );
    assert_eq!(experiment.cells()[3].config.cache.capacity, Some(Capacity::Bytes(2048)));
    let experiment = lab.load_with(&text, &["sweep.cache.key="]).unwrap();
    assert_eq!(names(&experiment), ["a", "b"]);

    let sets = [
        "repeats=0",
        "cache.windwo=3",
        "cache.key=f32",
        "sweep.cache.value=f16",
        "sweep.x=[1]",
        "variant.7.name=x",
    ];
    let lines = lab.problems(&text, &sets);
    let expect = [
        " --set cache.key=f32: `cache.key` is varied by `[sweep]`: its cells would be equal (change the sweep: --set 'sweep.cache.key=[...]')",
        " --set cache.windwo=3: unknown key `cache.windwo` (did you mean `window`? known: ",
        " --set repeats=0: `repeats` must be a whole number of at least 1, and is 0",
        " --set sweep.cache.value=f16: `cache.value` must be a list of values to sweep over, and is the text \"f16\"",
        " --set sweep.x=[1]: `x` is no key that a cell can change (known: model, cache, backend, generate)",
        " --set variant.7.name=x: `variant` is a list of 2: it has no `7` (an index from 0 to 1)",
    ];
    assert_eq!(lines.len(), expect.len(), "{lines:#?}");
    for (line, expect) in lines.iter().zip(expect) {
        assert!(line.starts_with(expect), "{line}\n{expect}");
    }
}

#[test]
fn load_reads_a_file() {
    let lab = Lab::new();
    lab.write("experiments/e.toml", HEAD);
    let path = lab.path("experiments/e.toml");
    assert_eq!(Experiment::load(&path, &[], &TEST).unwrap(), lab.load("").unwrap());
    let errors = Experiment::load(Path::new("/no/such.toml"), &[], &TEST).unwrap_err();
    assert!(
        errors.to_string().starts_with("/no/such.toml: cannot be read: "),
        "{errors}"
    );
}
