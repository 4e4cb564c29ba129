//! Whole comparisons of the byte-level models, small enough for a debug build.
#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::Record;
use kvlab_engine::registry::with_known;
use tempfile::TempDir;

/// Cells: exact and lossy ones, one that cannot be loaded, and one whose capacity ends inside of a window.
const EXPERIMENT: &str = r#"
schema = 1
name = "tiny"
repeats = 2
seed = 5
base = "model.toml"
[workload]
text = "text.txt"
windows = 2
window = 16
chunk = 5
prompts = [4, 9]
new_tokens = 3
[workload.conversation]
turns = 3
message = 3
answer = 2
[workload.mix]
requests = 4
prefixes = 2
prefix = 6
own = 2
answer = 2
[[workload.recall]]
kind = "needle"
style = "symbols"
lengths = [10]
depths = [0, 100]
trials = 2
[measure]
layers = true
[[variant]]
name = "none"
set = { "cache.variant" = "none" }
[[variant]]
name = "own"
note = "as it came"
[[variant]]
name = "f16"
set = { "cache.key" = "f16", "cache.value" = "f16" }
[[variant]]
name = "mqa"
set = { "cache.variant" = "mqa" }
[[variant]]
name = "swa"
set = { "cache.variant" = "swa", "cache.window" = 4, "cache.sinks" = 1 }
[[variant]]
name = "unfit"
set = { "cache.variant" = "gqa", "cache.num_key_value_heads" = 3 }
[[variant]]
name = "short"
set = { "cache.capacity" = "12 tokens" }
"#;

struct Lab {
    dir: TempDir,
    experiment: Experiment,
}

impl Lab {
    fn new(sets: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let assets = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../assets")
            .canonicalize()
            .unwrap();
        let model = format!(
            "schema = 1\nname = \"m\"\n[model]\npath = {:?}\n",
            assets.join("bytes/mha")
        );
        fs::write(dir.path().join("model.toml"), model).unwrap();
        fs::copy(assets.join("text/alice_95k.txt"), dir.path().join("text.txt")).unwrap();
        let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
        let experiment = with_known(|known| Experiment::parse(EXPERIMENT, "tiny.toml", dir.path(), &sets, known));
        let experiment = experiment.unwrap_or_else(|e| panic!("{e}"));
        Self { experiment, dir }
    }

    fn options(&self) -> CompareOptions {
        CompareOptions {
            runs: self.dir.path().join("runs"),
            ..CompareOptions::default()
        }
    }

    fn run(&self, options: &CompareOptions) -> Result<(Comparison, Vec<Progress>), LabError> {
        let mut seen = Vec::new();
        let comparison = compare(&self.experiment, options, &mut |progress| seen.push(progress))?;
        Ok((comparison, seen))
    }
}

fn row<'a>(comparison: &'a Comparison, cell: &str) -> &'a Row {
    comparison.rows.iter().find(|row| row.cell == cell).unwrap()
}

fn read(comparison: &Comparison, file: &str) -> String {
    fs::read_to_string(comparison.folder.join(file)).unwrap()
}

/// The records, without their times and without the memory of the process, which allocates as it likes.
fn timeless(text: &str) -> Vec<Record> {
    let records = text.lines().map(|line| match serde_json::from_str(line).unwrap() {
        Record::Speed(r) => {
            let gaps_ms = r.gaps_ms.iter().map(|gaps| vec![0.0; gaps.len()]).collect();
            Record::Speed(crate::SpeedRecord {
                ttft_ms: vec![0.0; r.ttft_ms.len()],
                cached: r.cached.map(|cached| crate::CachedRecord {
                    ttft_ms: vec![0.0; cached.ttft_ms.len()],
                    ..cached
                }),
                gaps_ms,
                process: None,
                ..r
            })
        }
        Record::Turn(r) => Record::Turn(crate::TurnRecord {
            ttft_ms: 0.0,
            gaps_ms: vec![0.0; r.gaps_ms.len()],
            ..r
        }),
        Record::Mix(r) => Record::Mix(crate::MixRecord {
            ttft_ms: vec![0.0; r.ttft_ms.len()],
            total_ms: 0.0,
            ..r
        }),
        other => other,
    });
    records.collect()
}

#[test]
fn exact_caches_are_exact_lossy_ones_say_so_and_a_failed_cell_stops_no_other() {
    let lab = Lab::new(&[]);
    let (comparison, seen) = lab.run(&lab.options()).unwrap();
    for cell in ["none", "own", "f16", "mqa", "swa"] {
        let row = row(&comparison, cell);
        let memory = row.memory.unwrap();
        assert!(memory.as_predicted(), "{cell}: {memory:?}");
        assert_eq!((&row.error, row.speed.len()), (&None, 2), "{cell}");
        assert_eq!(
            row.speed[1].gaps.unwrap().count,
            2 * 2,
            "{cell}: 3 tokens have 2 gaps, in 2 repeats"
        );
        let quality = row.quality.as_ref().unwrap();
        assert_eq!((quality.tokens, quality.greedy_tokens), (30, 3), "{cell}");
        let bound = if cell == "f16" { 1e-4 } else { 1e-9 };
        assert_eq!(
            quality.kl_max < bound,
            row.lossy.is_empty(),
            "{cell}: KL {}",
            quality.kl_max
        );
    }
    let exact = row(&comparison, "own").quality.as_ref().unwrap();
    assert!(
        exact.perplexity > 3.0 && exact.perplexity < 64.0,
        "English, after few bytes: {}",
        exact.perplexity
    );
    assert_eq!((exact.top1_percent, exact.first_divergence), (100.0, None));
    // 4 heads of 16, keys and values, 4 layers, 9 + 3 - 1 tokens.
    let memory = row(&comparison, "f16").memory.unwrap();
    assert_eq!(
        (memory.per_token_predicted, memory.per_token_measured),
        (1024, Some(1024.0))
    );
    assert_eq!((memory.tokens, memory.used_measured), (11, 11 * 1024));
    let swa = row(&comparison, "swa").memory.unwrap();
    assert_eq!((swa.per_token_measured, swa.used_measured), (None, 5 * 2048));
    assert_eq!(row(&comparison, "none").memory.unwrap().used_measured, 0);

    let failed = comparison.failed();
    assert_eq!(
        failed.iter().map(|(cell, _)| *cell).collect::<Vec<_>>(),
        ["unfit", "short"]
    );
    assert!(failed[0].1.contains("does not divide"), "{failed:?}");
    assert!(
        failed[1].1.contains("window 0: 16 prompt tokens") && failed[1].1.contains("cache.capacity"),
        "{failed:?}"
    );
    let cells = comparison.experiment.cells().len();
    let all = cells * (3 + 2 + 4 + 2 * 4);
    assert_eq!(seen.last(), Some(&Progress::Advanced { done: all, total: all }));
    assert_eq!(seen.iter().filter(|p| matches!(p, Progress::Failed { .. })).count(), 2);

    let (report, csv) = (read(&comparison, "report.md"), read(&comparison, "results.csv"));
    assert!(
        report.contains("4 KV heads mean-pooled to 1") && report.contains("as it came"),
        "{report}"
    );
    assert!(report.contains("does not divide") && csv.contains("does not divide"));
    assert_eq!(
        csv.lines().count(),
        1 + 5 * 2 + 2,
        "two prompts for each cell, and a line for each that failed"
    );
    let back: Experiment = toml::from_str(&read(&comparison, "resolved.toml")).unwrap();
    assert_eq!(back, comparison.experiment);
    let folder = comparison.folder.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(
        folder,
        format!("tiny-{}", short_hash(&read(&comparison, "resolved.toml")))
    );
    assert_eq!(folder.len(), "tiny-".len() + 8);
}

/// T45, T56: a time that is meant to be cold found nothing stored, and the same prompt again found what there was; with
/// prefix sharing off it did not. The second prompt begins with the first.
#[test]
fn t45_t56_cold_and_cached_times_are_measured_apart() {
    let (head, _) = EXPERIMENT.split_once("[workload.conversation]").unwrap();
    let paged = "\"cache.layout\" = \"paged\", \"cache.page_size\" = 2";
    let text = format!(
        "{head}batch = 2\n[[variant]]\nname = \"off\"\nset = {{ {paged}, \"cache.sequences\" = 2 }}\n[[variant]]\nname = \"on\"\n\
         set = {{ {paged}, \"cache.sequences\" = 2, \"cache.prefix_sharing\" = true }}\n[[variant]]\nname = \"small\"\n\
         set = {{ {paged}, \"cache.capacity\" = \"16 tokens\" }}\n"
    );
    let lab = Lab::new(&[]);
    let experiment = with_known(|known| Experiment::parse(&text, "tiny.toml", lab.dir.path(), &[], known));
    let experiment = experiment.unwrap_or_else(|e| panic!("{e}"));
    let lab = Lab { experiment, ..lab };
    let (comparison, _) = lab.run(&lab.options()).unwrap();
    for line in read(&comparison, "records.jsonl").lines() {
        let Record::Speed(record) = serde_json::from_str(line).unwrap() else {
            continue;
        };
        assert_eq!((record.cached_tokens, record.ttft_ms.len()), (0, 2), "{}", record.cell);
        // 4 tokens are two pages, and one token is left to compute; 9 are four, and one more.
        let found = match (record.cell.as_str(), record.prompt_tokens) {
            ("on", 4) => Some(vec![3, 3]),
            ("on", _) => Some(vec![8, 8]),
            _ => None,
        };
        let cached = record.cached.as_ref();
        assert_eq!(cached.map(|c| c.cached_tokens.clone()), found, "{}", record.cell);
        assert!(cached.is_none_or(|c| c.ttft_ms.len() == 2 && c.ttft_ms.iter().all(|&ms| ms > 0.0)));
    }
    let cached = |cell, i: usize| row(&comparison, cell).speed[i].cached.map(|cached| cached.tokens);
    assert_eq!(
        (cached("on", 0), cached("on", 1), cached("off", 1)),
        (Some(3), Some(8), None)
    );
    assert!(row(&comparison, "on").memory.unwrap().as_predicted());
    let (report, csv) = (read(&comparison, "report.md"), read(&comparison, "results.csv"));
    assert!(
        report.contains("TTFT cached ms") && csv.contains("ttft_cached_ms"),
        "{report}"
    );
    let failed = comparison.failed();
    assert!(
        failed.len() == 1 && failed[0].1.contains("cache.sequences"),
        "{failed:?}"
    );
}

/// Conversations and shared prefixes: what is found is not computed again. Messages of 3 tokens and answers of 2, of which the
/// last is not fed before the next turn; four requests on two prefixes of three pages.
#[test]
fn turns_and_requests_say_what_they_reuse() {
    let (head, _) = EXPERIMENT.split_once("[[workload.recall]]").unwrap();
    let text = format!(
        "{head}[measure]\nquality = false\n[[variant]]\nname = \"none\"\nset = {{ \"cache.variant\" = \"none\" }}\n\
         [[variant]]\nname = \"own\"\n[[variant]]\nname = \"pages\"\n\
         cache = {{ layout = \"paged\", page_size = 2, prefix_sharing = true }}\n"
    );
    let lab = Lab::new(&[]);
    let experiment = with_known(|known| Experiment::parse(&text, "tiny.toml", lab.dir.path(), &[], known));
    let experiment = experiment.unwrap_or_else(|e| panic!("{e}"));
    let lab = Lab { experiment, ..lab };
    let (comparison, _) = lab.run(&lab.options()).unwrap();
    assert_eq!(comparison.failed(), []);
    for (cell, reused) in [("none", [0, 0, 0]), ("own", [0, 4, 9]), ("pages", [0, 4, 9])] {
        let turns = &row(&comparison, cell).turns;
        let of: Vec<_> = turns
            .iter()
            .map(|t| (t.turn, t.prompt_tokens, t.reused_tokens, t.computed_tokens))
            .collect();
        let want: Vec<_> = [3, 8, 13]
            .iter()
            .zip(reused)
            .enumerate()
            .map(|(i, (&p, r))| (i, p, r, p - r))
            .collect();
        assert_eq!(of, want, "{cell}");
        assert!(turns.iter().all(|turn| turn.ttft_ms.median > 0.0));
    }
    for (cell, reused) in [("none", 0), ("own", 0), ("pages", 2 * 6)] {
        let mix = row(&comparison, cell).mix.unwrap();
        assert_eq!(
            (mix.requests, mix.prefixes, mix.prefix_tokens, mix.own_tokens),
            (4, 2, 6, 2)
        );
        assert_eq!(
            (mix.reused_tokens, mix.computed_tokens),
            (reused, 4 * 8 - reused),
            "{cell}"
        );
        assert!(mix.total_ms.median > mix.ttft_ms.median);
    }
}

#[test]
fn two_runs_differ_in_nothing_but_times() {
    let lab = Lab::new(&[]);
    // Files without a time in them.
    let files = [
        "layers.csv",
        "tables/quality.csv",
        "tables/memory.csv",
        "tables/quality.md",
        "figures/quality.svg",
        "figures/memory.svg",
        "figures/operations.svg",
    ];
    let (first, _) = lab.run(&lab.options()).unwrap();
    let written = files.map(|file| read(&first, file));
    let (first, before) = (timeless(&read(&first, "records.jsonl")), first);
    let (second, _) = lab
        .run(&CompareOptions {
            fresh: true,
            ..lab.options()
        })
        .unwrap();
    assert_eq!(second.folder, before.folder);
    assert_eq!(timeless(&read(&second, "records.jsonl")), first);
    for (a, b) in before.rows.iter().zip(&second.rows) {
        assert_eq!(
            (&a.quality, a.memory, &a.lossy, &a.error),
            (&b.quality, b.memory, &b.lossy, &b.error)
        );
    }
    for (file, before) in files.iter().zip(written) {
        assert_eq!(read(&second, file), before, "{file}");
    }
}

/// A run is read back as it was: rows, and which cells failed. Nothing of the folder is changed.
#[test]
fn a_run_is_read_back_from_its_folder() {
    let lab = Lab::new(&["repeats=1"]);
    let (run, _) = lab.run(&lab.options()).unwrap();
    let back = Comparison::load(&run.folder).unwrap();
    assert_eq!((&back.rows, &back.records), (&run.rows, &run.records));
    assert_eq!(back.failed().len(), 2);
    assert_eq!(
        (back.experiment, back.environment),
        (run.experiment.clone(), run.environment.clone())
    );
    // A cell that failed and was measured afterwards has not failed.
    let path = run.folder.join("records.jsonl");
    let own = run
        .records
        .iter()
        .find(|r| matches!(r, Record::Speed(r) if r.cell == "own"))
        .unwrap();
    let mut text = read(&run, "records.jsonl");
    for line in [
        r#"{"kind":"failure","cell":"own","error":"no power"}"#,
        &serde_json::to_string(own).unwrap(),
    ] {
        text += &format!("{line}\n");
    }
    fs::write(&path, &text).unwrap();
    let failed = |run: &Comparison| {
        run.failed()
            .iter()
            .map(|(cell, _)| (*cell).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(failed(&Comparison::load(&run.folder).unwrap()), ["unfit", "short"]);
    // A line that is being written is left alone.
    fs::write(&path, text.clone() + "{\"kind\":\"sp").unwrap();
    assert!(Comparison::load(&run.folder).is_ok());
    assert!(read(&run, "records.jsonl").ends_with("\"sp"));
    fs::write(run.folder.join("resolved.toml"), "schema = 1\nname = 3\n").unwrap();
    let error = Comparison::load(&run.folder).unwrap_err();
    assert!(matches!(&error, LabError::Records { line: 2, .. }), "{error}");
    fs::remove_file(&path).unwrap();
    fs::remove_file(run.folder.join("resolved.toml")).unwrap();
    assert!(matches!(Comparison::load(&run.folder), Err(LabError::NoRun { .. })));
}

/// Two runs of one experiment are one report: rows say which run they are of, and what differs is named.
#[test]
fn runs_stand_side_by_side() {
    let lab = Lab::new(&["repeats=1", "measure.speed=false"]);
    let (run, _) = lab.run(&lab.options()).unwrap();
    let mut other = run.clone();
    other.folder = lab.dir.path().join("elsewhere").join(run.folder.file_name().unwrap());
    other.environment.cores = 1234;
    other.environment.date = "yesterday".into();
    let out = lab.dir.path().join("both");
    write_report(&[&run, &other], &out).unwrap();
    let text = fs::read_to_string(out.join("report.md")).unwrap();
    let section = text
        .split("## What differs between the runs")
        .nth(1)
        .unwrap()
        .split("##")
        .next()
        .unwrap();
    assert!(section.contains("1234") && !section.contains("yesterday"), "{section}");
    assert_eq!(section.trim().lines().count(), 1, "{section}");
    let csv = fs::read_to_string(out.join("results.csv")).unwrap();
    for label in ["runs: own", "elsewhere: own"] {
        assert!(csv.lines().any(|line| line.starts_with(label)), "{label}: {csv}");
    }
    write_report(&[&run, &run.clone()], &out).unwrap();
    let text = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(text.contains("Nothing but the time."), "{text}");
}

#[test]
fn an_interrupted_run_goes_on_and_a_finished_one_loads_nothing() {
    let lab = Lab::new(&[]);
    let (good, _) = EXPERIMENT.split_once("[[variant]]\nname = \"unfit\"").unwrap();
    let experiment = with_known(|known| Experiment::parse(good, "tiny.toml", lab.dir.path(), &[], known));
    let lab = Lab {
        experiment: experiment.unwrap(),
        ..lab
    };
    let (whole, seen) = lab.run(&lab.options()).unwrap();
    assert!(seen.iter().any(|p| matches!(p, Progress::Loading { .. })));
    let path = whole.folder.join("records.jsonl");
    let text = read(&whole, "records.jsonl");

    let (again, seen) = lab.run(&lab.options()).unwrap();
    assert!(seen.iter().all(|p| matches!(p, Progress::Advanced { .. })), "{seen:?}");
    assert_eq!(
        (again.rows, read(&whole, "records.jsonl")),
        (whole.rows.clone(), text.clone())
    );

    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for (kept, cut) in [(3, 10), (lines.len() / 2, 0), (lines.len() - 1, 1)] {
        let start: String = lines[..kept].concat();
        fs::write(&path, start.clone() + &lines[kept][..cut]).unwrap();
        let (resumed, _) = lab.run(&lab.options()).unwrap();
        let now = read(&resumed, "records.jsonl");
        assert!(now.starts_with(&start), "what was there stays as it is");
        let (now, whole) = (timeless(&now), timeless(&text));
        let differs = now.iter().zip(&whole).find(|(now, whole)| now != whole);
        assert!(
            differs.is_none() && now.len() == whole.len(),
            "{kept} lines were left: {differs:?}"
        );
    }
}

#[test]
fn records_of_something_else_are_not_added_to() {
    let lab = Lab::new(&["repeats=1", "measure.speed=false"]);
    let built = |commit: &str, fresh| CompareOptions {
        commit: Some(commit.to_owned()),
        fresh,
        ..lab.options()
    };
    let (first, _) = lab.run(&built("aaaa", false)).unwrap();
    // Failed cells are tried again, so this run has something to add.
    let error = lab.run(&built("bbbb", false)).unwrap_err();
    assert!(
        matches!(&error, LabError::Changed { what, .. } if what.contains("aaaa") && what.contains("bbbb")),
        "{error}"
    );
    assert!(lab.run(&built("aaaa", false)).is_ok());
    assert!(lab.run(&built("bbbb", true)).is_ok());
    assert!(read(&first, "environment.json").contains("\"bbbb\""));
    let mut text = fs::read_to_string(&lab.experiment.workload.text).unwrap();
    text.push('x');
    fs::write(&lab.experiment.workload.text, text).unwrap();
    let error = lab.run(&built("bbbb", false)).unwrap_err();
    assert!(
        matches!(&error, LabError::Changed { what, .. } if what.contains("text")),
        "{error}"
    );
}

#[test]
fn a_text_that_is_not_there_or_too_short_is_named() {
    let lab = Lab::new(&["workload.offset=94110"]);
    let (comparison, _) = lab.run(&lab.options()).unwrap();
    let (_, error) = comparison.failed()[0];
    assert!(
        error.contains("the text has 8 tokens after workload.offset, and 16 are needed"),
        "{error}"
    );
    for set in ["workload.offset=94118", "workload.text=nowhere.txt"] {
        let lab = Lab::new(&[set]);
        assert!(matches!(lab.run(&lab.options()), Err(LabError::Text { .. })), "{set}");
    }
}

#[test]
fn the_experiments_that_come_with_kvlab_are_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/experiments");
    for (file, cells) in [
        ("quickstart.toml", 15),
        ("smollm2-variants.toml", 12),
        ("cache-dtypes.toml", 21),
        ("paged-prefix.toml", 3),
        ("recall.toml", 6),
        ("conversations.toml", 3),
        ("smollm2-recall.toml", 5),
    ] {
        let experiment = with_known(|known| Experiment::load(&folder.join(file), &[], known));
        let experiment = experiment.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(experiment.cells().len(), cells, "{file}");
        assert_eq!(format!("{}.toml", experiment.name), file);
    }
}
