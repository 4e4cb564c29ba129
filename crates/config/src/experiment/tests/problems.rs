//! Every kind of problem of an experiment file, with its place.

use super::{BASE, HEAD, Lab, check};

#[test]
fn problems_of_all_cells_are_reported_once() {
    let lab = Lab::new();
    lab.write("models/base.toml", &format!("{BASE}\nwindow = 3\nthread = 1\n"));
    let more = "[[variant]]\nname = \"swa\"\nset = { \"cache.variant\" = \"swa\" }\n[[variant]]\nname = \"gqa\"\ncache = { variant = \"gqa\", kv_lora_rank = 4 }\n[sweep]\n\"cache.value\" = [\"f32\", \"f61\"]\n\"cache.sequences\" = [1, 2]\n";
    let lines = lab.problems(&format!("{HEAD}{more}"), &[]);
    let expect = [
        "3:8: LAB/models/base.toml:8:1: `cache.window` has no effect with variant `gqa` (it belongs to variant swa; remove the key; in cells `gqa cache.value=f32 cache.sequences=1`, `gqa cache.value=f32 cache.sequences=2`, `gqa cache.value=f61 cache.sequences=1` and 1 more)",
        "3:8: LAB/models/base.toml:9:1: unknown key `cache.thread` (known: variant, layout, capacity, key, value, residual, layer, sequences, prefill_chunk, num_key_value_heads, window, sinks, kv_lora_rank, parity)",
        "11:28: `cache.kv_lora_rank` has no effect with variant `gqa` (it belongs to variant mla; remove the key; in cells `gqa cache.value=f32 cache.sequences=1`, `gqa cache.value=f32 cache.sequences=2`, `gqa cache.value=f61 cache.sequences=1` and 1 more)",
        "13:25: `cache.value` is \"f61\", which is not known (did you mean `f16`? one of: f32, f16, bf16, int8, int4; in cells `swa cache.value=f61 cache.sequences=1`, `swa cache.value=f61 cache.sequences=2`, `gqa cache.value=f61 cache.sequences=1` and 1 more)",
    ];
    assert_eq!(lines, expect);
}

#[test]
fn problems_of_the_head() {
    let text = "schema = 1\nname = \"a b\"\nrepeats = 0\nseed = -1\nbsae = 3\n[workload]\nkind = \"txt\"\nwindow = 1\nprompts = [8, 0, 8]\nbatch = 0\nlength = 3\n[measure]\nquality = false\nspeed = false\n[[variant]]\nname = \"v\"\n";
    let expect = [
        "2:8: `name` must be usable as a folder name, and is \"a b\" (letters, digits, `_`, and after the first also `-` and `.`; at most 100 characters)",
        "3:11: `repeats` must be a whole number of at least 1, and is 0",
        "4:8: `seed` must be a whole number from 0 to 2^63 - 1, and is -1",
        "5:1: unknown key `bsae` (did you mean `base`? known: schema, name, repeats, seed, budget, workload, measure, report, sweep, base, variant)",
        "6:1: `workload.text` is missing (for example text = \"../../assets/text/x.txt\")",
        "7:8: `workload.kind` is \"txt\", which is not known (did you mean `text`? one of: text)",
        "8:10: `workload.window` must be a whole number of at least 2, and is 1",
        "9:15: `workload.prompts.1` must be a whole number of at least 1, and is 0",
        "9:18: `workload.prompts` has 8 twice",
        "10:9: `workload.batch` must be a whole number of at least 1, and is 0",
        "11:1: unknown key `workload.length` (known: kind, text, windows, window, chunk, offset, new_tokens, prompts, batch, recall, conversation, mix)",
        "12:1: nothing is measured: everything is off (set `quality`, `speed` or `layers` to true, or add a [[workload.recall]])",
        "15:1: variant `v` has no base model file (write `base = \"../models/x.toml\"` in it, or at the top of the file for all)",
    ];
    assert_eq!(Lab::new().problems(text, &[]), expect);
    let lines = Lab::new().problems("schema = 1\nname = \"e\"\nworkload.text = \"t\"\n", &[]);
    assert_eq!(
        lines,
        ["1:1: `base` is missing (for example base = \"../models/x.toml\", or a base in each [[variant]])"]
    );
    assert_eq!(
        Lab::new().problems("schema = 7\nx = 1\n", &[]),
        ["1:10: `schema` is 7, and this kvlab reads schema 1 (write schema = 1)"]
    );
    assert!(Lab::new().problems("a = = 1", &[])[0].starts_with("1:"));
}

#[test]
fn a_budget_of_the_report_is_bytes() {
    let lab = Lab::new();
    let of = |text: &str| lab.problems(&format!("{HEAD}[report]\n{text}\n[[variant]]\nname = \"v\"\n"), &[]);
    let example = "(for example budget = \"8 KiB\")";
    for (text, why) in [
        (
            "budget = \"8 tokens\"",
            "`report.budget` must be bytes a token: a number of tokens is no size",
        ),
        (
            "budget = \"8 KB\"",
            "`report.budget` must be bytes a token: `KB` might mean",
        ),
        ("", "`report.budget` is missing"),
    ] {
        let lines = of(text);
        assert!(
            lines.len() == 1 && lines[0].contains(why) && lines[0].ends_with(example),
            "{lines:?}"
        );
    }
    assert!(of("budget = \"8 KiB\"\nbugdet = 3")[0].contains("unknown key `report.bugdet`"));
    let experiment = lab
        .load("[report]\nbudget = \"1.5 KiB\"\n[[variant]]\nname = \"v\"\n")
        .unwrap();
    assert_eq!(experiment.report.unwrap().bytes_per_token(), Some(1536));
    let back: crate::Experiment = toml::from_str(&experiment.to_toml().unwrap()).unwrap();
    assert_eq!(back, experiment);
}

#[test]
fn problems_of_base_files() {
    let lab = Lab::new();
    lab.write("models/broken.toml", "schema = 1\nname = \n");
    let text = HEAD.replace("base.toml", "no.toml");
    let more = "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\nbase = \"../models/broken.toml\"\n[[variant]]\nname = \"c\"\nbase = \"../models\"\n";
    let lines = lab.problems(&format!("{text}{more}"), &[]);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(
        lines[0].starts_with("3:8: base model file LAB/models/no.toml cannot be read: "),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("10:8: LAB/models/broken.toml:2:"), "{lines:?}");
    assert_eq!(
        lines[2],
        "13:8: base model file LAB/models is a folder, not a TOML file"
    );
    check(
        "[[variant]]\nname = \"a\"\nbase = \"../models/base.toml\"\n",
        &["3:1: `base` has no effect: every variant has its own (remove the key)"],
    );
}

#[test]
fn problems_of_variants() {
    check(
        "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"a\"\n",
        &["9:8: two variants are called `a` (each needs its own name)"],
    );
    check(
        "[[variant]]\nnote = \"x\"\n",
        &["6:1: `variant.0.name` is missing (for example name = \"gqa\")"],
    );
    check(
        "[[variant]]\nname = \"a\\nb\"\n",
        &["7:8: `variant.0.name` must be one line of at most 100 characters, and is \"a\\nb\""],
    );
    check(
        "[[variant]]\nname = \"a\"\nsett = 3\n",
        &[
            "8:1: unknown key `variant.0.sett` (did you mean `set`? known: name, note, base, sweep, fit, set, model, cache, backend, generate)",
        ],
    );
    check(
        "[[variant]]\nname = \"a\"\nset = { \"cache.key\" = \"f32\" }\ncache.key = \"f32\"\n",
        &["9:7: variant `a` sets `cache.key` twice (keep one of them)"],
    );
    check(
        "[[variant]]\nname = \"a\"\nset = { \"cahce.key\" = \"f32\", \"schema\" = 1, \"cache..key\" = 1 }\n",
        &[
            "8:9: `cahce.key` is no key that a cell can change (did you mean `cache`? known: model, cache, backend, generate)",
            "8:30: `schema` is no key that a cell can change (known: model, cache, backend, generate)",
            "8:44: `cache..key` is no dotted key (a dotted key looks like \"cache.window\")",
        ],
    );
    check(
        "[[variant]]\nname = \"a\"\nset = 3\nbackend = 3\n",
        &[
            "8:7: `variant.0.set` must be a table, and is 3",
            "9:11: `backend` must be a table, and is 3",
        ],
    );
    check(
        "[[variant]]\nname = \"a\"\nset = { \"cache.key.group\" = 3 }\n",
        &[
            "8:9: `cache.key.group` cannot be set: `cache.key` is the text \"f16\", not a table (set `cache.key` as a whole)",
        ],
    );
    check(
        "[[variant]]\nname = \"a\"\nsweep = false\n",
        &["6:1: `sweep = false` has no effect: the file has no `[sweep]` (remove one of them)"],
    );
    check(
        "[variant]\nname = \"a\"\n",
        &["6:1: `variant` must be a list of `[[variant]]` tables, and is a table"],
    );
}

#[test]
fn problems_of_sweeps() {
    check(
        "[sweep]\n\"cache.key\" = \"f32\"\n",
        &[
            "7:15: `cache.key` must be a list of values to sweep over, and is the text \"f32\" (for example \"cache.key\" = [\"f32\", \"f16\"])",
        ],
    );
    check(
        "[sweep]\n\"cache.key\" = []\n",
        &[
            "7:15: `cache.key` must be a list of values to sweep over, and is a list of 0 (for example \"cache.key\" = [\"f32\", \"f16\"])",
        ],
    );
    check(
        "[sweep]\n\"cache.key\" = [\"f32\", \"f32\"]\n",
        &["7:23: `cache.key` sweeps over the text \"f32\" twice (name each value once)"],
    );
    check(
        "[sweep]\n\"cache.key\" = [\"f32\"]\ncache.key = [\"f16\"]\n",
        &["8:7: `cache.key` is swept twice (keep one of them)"],
    );
    check(
        "[[variant]]\nname = \"a\"\ncache.key = \"f32\"\n[sweep]\n\"cache.key\" = [\"f32\"]\n",
        &[
            "8:7: `cache.key` has no effect: `[sweep]` sets `cache.key` in every cell (remove one of them, or write `sweep = false` in the variant)",
        ],
    );
    check(
        "[[variant]]\nname = \"a\"\nsweep = false\n[sweep]\n\"cache.key\" = [\"f32\"]\n",
        &["10:1: `[sweep]` has no effect: every variant says `sweep = false` (remove one of them)"],
    );
    let many: String = (0..64).map(|index| format!("cache.k{index} = [1, 2]\n")).collect();
    check(
        &format!("[sweep]\n{many}"),
        &["7:7: the experiment has more than 2^64 cells, and at most 1000 are run"],
    );
    let threads: Vec<String> = (1..=1001).map(|threads| threads.to_string()).collect();
    check(
        &format!("[sweep]\n\"backend.threads\" = [{}]\n", threads.join(",")),
        &["7:1: the experiment has 1001 cells, and at most 1000 are run"],
    );
}

#[test]
fn cells_with_one_name_are_refused() {
    check(
        "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"a cache.key=f32\"\nsweep = false\n[sweep]\n\"cache.key\" = [\"f32\"]\n",
        &["8:1: two cells are called `a cache.key=f32` (cells are told apart by variant and swept values)"],
    );
}

#[test]
fn problems_of_recall_and_budgets() {
    check(
        "budget = \"8 KiB\"\n",
        &[
            "6:1: unknown key `workload.budget` (known: kind, text, windows, window, chunk, offset, new_tokens, prompts, batch, recall, conversation, mix)",
        ],
    );
    let more = "batch = [1, 1]\n[workload.conversation]\nturns = 1\n[workload.mix]\nrequests = 2\nprefixes = 3\n\
        [[workload.recall]]\nkind = \"needel\"\n[[workload.recall]]\nkind = \"needles\"\nneedles = 40\ndepths = [0, 101, 0]\n\
        [[workload.recall]]\nkind = \"needle\"\nhops = 2\n[[workload.recall]]\nkind = \"needle\"\n\
        [[variant]]\nname = \"a\"\nfit = \"window\"\n";
    let lines = Lab::new().problems(&format!("{HEAD}{more}"), &[]);
    for expect in [
        "`workload.batch` has 1 twice",
        "`workload.conversation.turns` must be a whole number of at least 2, and is 1",
        "`workload.mix.prefixes` is 3, and there are only 2 requests (raise `requests`)",
        "`workload.recall.0.kind` is \"needel\", which is not known (did you mean `needle`? one of: needle, needles, variables)",
        "`workload.recall.1.needles` is 40, and 12 is the most",
        "`workload.recall.1.depths.1` must be a depth from 0 to 100 %, and is 101",
        "`workload.recall.1.depths` has the depth 0 twice",
        "unknown key `workload.recall.2.hops`",
        "two recall tasks are `needle` (give one task all lengths and depths)",
        "`fit` has no effect without a `budget` (write `budget = \"25 %\"` at the top of the file)",
    ] {
        assert!(lines.iter().any(|line| line.contains(expect)), "{expect}\n{lines:#?}");
    }
    assert_eq!(lines.len(), 10, "{lines:#?}");
    let text = HEAD.replace("[workload]", "budget = \"8 KiB\"\n[workload]");
    let lines = Lab::new().problems(&text, &[]);
    assert!(
        lines[0].contains("`budget` must be a share of the full cache") && lines.len() == 1,
        "{lines:#?}"
    );
    let text = HEAD.replace("[workload]", "budget = \"25 %\"\n[workload]");
    let codec = "[[variant]]\nname = \"a\"\nfit = \"codec\"\n";
    let lines = Lab::new().problems(&format!("{text}{codec}"), &[]);
    assert!(
        lines[0].contains("`fit` chooses `cache.key`, which is set") && lines.len() == 1,
        "{lines:#?}"
    );
}
