//! `kvlab run` over several turns, samples, and files.

use super::{MHA, kvlab, ok, refused};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A byte-level model with a chat template, and its model file.
struct Chat {
    folder: TempDir,
    model: String,
}

impl Chat {
    fn new(template: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("model");
        std::fs::create_dir(&weights).unwrap();
        let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/bytes/mha");
        for file in std::fs::read_dir(assets).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), weights.join(file.file_name())).unwrap();
        }
        std::fs::write(weights.join("chat_template.jinja"), template).unwrap();
        let path = folder.path().join("model.toml");
        let text = "schema = 1\nname = \"chat\"\n[model]\npath = \"model\"\n[cache]\ncapacity = \"1024 tokens\"\n";
        std::fs::write(&path, text).unwrap();
        let model = path.to_str().unwrap().to_owned();
        Self { folder, model }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, args: &[&str]) -> String {
        ok(&[&["run", &self.model, "--chat", "-n", "12"], args].concat())
    }
}

const PLAIN: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ";

/// (prompt tokens, cached tokens, new tokens) of each turn.
fn turns(out: &str) -> Vec<(usize, usize, usize)> {
    let lines = out.lines().filter(|line| line.starts_with('['));
    let numbers = lines.map(|line| {
        let part = |i: usize| line.trim_start_matches('[').split(", ").nth(i).unwrap();
        let number = |text: &str| text.split(' ').next().unwrap().parse().unwrap();
        assert!(part(2).starts_with("TTFT ") && line.ends_with(" new]"), "{line}");
        (number(part(0)), number(part(1)), number(part(3)))
    });
    numbers.collect()
}

#[test]
fn several_turns_feed_only_what_is_new() {
    let chat = Chat::new(PLAIN);
    let out = chat.run(&["Of Man", "and fruit", "Sing"]);
    let (first, second) = (
        "user: Of Man\nassistant: ".len(),
        "\nuser: and fruit\nassistant: ".len(),
    );
    let third = "\nuser: Sing\nassistant: ".len();
    // The last token of an answer was not fed.
    assert_eq!(
        turns(&out),
        [
            (first, 0, 12),
            (first + 12 + second, first + 11, 12),
            (first + 24 + second + third, first + 12 + second + 11, 12)
        ],
        "{out}"
    );
    assert!(out.contains("cache bytes") && out.contains("kernels"), "{out}");
    // Without memory the same is said, and nothing is found.
    let none = chat.run(&[
        "Of Man",
        "and fruit",
        "Sing",
        "--set",
        "cache.variant=none",
        "--set",
        "cache.capacity=unset",
    ]);
    let said = |out: &str| {
        out.lines()
            .filter(|line| !line.starts_with('['))
            .take(6)
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(said(&none), said(&out));
    assert!(turns(&none).iter().all(|turn| turn.1 == 0), "{none}");
}

/// T55: a template that writes earlier answers in another way than they were generated.
#[test]
fn t55_a_template_that_changes_what_was_said() {
    let shout = "{% for m in messages %}{{ m.role }}: {{ m.content | upper }}\n{% endfor %}assistant: ";
    let chat = Chat::new(shout);
    let out = chat.run(&["Of Man", "Sing"]);
    let first = "user: OF MAN\nassistant: ".len();
    let (_, cached, _) = turns(&out)[1];
    assert!(cached >= first && cached < first + 11, "{out}");
}

#[test]
fn turns_from_standard_input() {
    let chat = Chat::new(PLAIN);
    let mut run = Command::new(env!("CARGO_BIN_EXE_kvlab"))
        .args(["run", &chat.model, "--chat", "-n", "12"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    run.stdin
        .take()
        .unwrap()
        .write_all(b"Of Man\n\n  \nand fruit\r\nSing")
        .unwrap();
    let done = run.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    let out = String::from_utf8(done.stdout).unwrap();
    let want = chat.run(&["Of Man", "and fruit", "Sing"]);
    assert_eq!(turns(&out), turns(&want), "{out}");
    let said = |out: &str| out.lines().next().unwrap().to_owned();
    assert_eq!(said(&out), said(&want));
}

/// T29: what another process saved goes on as if there had been no break.
#[test]
fn t29_a_text_goes_on_in_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.safetensors");
    let file = file.to_str().unwrap();
    let said = |out: &str| out.split("\n\ncache ").next().unwrap().to_owned();
    let whole = said(&ok(&["run", MHA, "Of Man and the ", "-n", "25"]));
    let out = ok(&["run", MHA, "Of Man and the ", "-n", "20", "--save", file]);
    assert!(out.contains("saved") && out.contains("35 tokens"), "{out}");
    let rest = ok(&["run", MHA, "--load", file, "-n", "5"]);
    assert_eq!(said(&out) + &said(&rest), whole);
    assert!(rest.contains("35 tokens, 34 of them cached"), "{rest}");
    // Something is added, and the file is replaced by what came of it.
    let more = ok(&["run", MHA, "and so ", "--load", file, "-n", "4", "--save", file]);
    assert!(
        more.contains("42 tokens, 34 of them cached") && more.contains("46 tokens"),
        "{more}"
    );
    let again = ok(&["run", MHA, "--load", file, "-n", "1"]);
    assert!(again.contains("46 tokens, 45 of them cached"), "{again}");

    let error = refused(2, &["run", "configs/models/bytes-gqa.toml", "x", "--load", file]);
    assert!(error.contains("bytes-mha") && error.contains("bytes-gqa"), "{error}");
    let error = refused(2, &["run", MHA, "x", "--load", file, "--set", "cache.key=f16"]);
    assert!(error.contains("keys as f32, here f16"), "{error}");
    let window = ["--set", "cache.variant=swa", "--set", "cache.window=16"];
    let error = refused(2, &[&["run", MHA, "x", "--load", file][..], &window].concat());
    assert!(error.contains("variant mha, here swa"), "{error}");
    let error = refused(2, &["run", MHA, "x", "--chat", "--load", file]);
    assert!(error.contains("leave out --chat"), "{error}");
    let bytes = std::fs::read(file).unwrap();
    std::fs::write(file, &bytes[..bytes.len() - 5]).unwrap();
    let error = refused(2, &["run", MHA, "x", "--load", file]);
    assert!(
        error.contains("text.safetensors") && error.contains("cut short"),
        "{error}"
    );
    let none = ["--set", "cache.variant=none", "--set", "cache.capacity=unset"];
    let error = refused(2, &[&["run", MHA, "x", "--save", file][..], &none].concat());
    assert!(error.contains("--save") && error.contains("keeps no rows"), "{error}");
    assert_eq!(
        std::fs::read(file).unwrap().len(),
        bytes.len() - 5,
        "it was not touched"
    );
}

#[test]
fn t29_a_conversation_goes_on_in_another_process() {
    let chat = Chat::new(PLAIN);
    let path = chat.file("talk.safetensors");
    let file = path.to_str().unwrap();
    let whole = chat.run(&["Of Man", "and fruit"]);
    chat.run(&["Of Man", "--save", file]);
    let rest = chat.run(&["and fruit", "--load", file]);
    assert_eq!(turns(&rest), turns(&whole)[1..]);
    assert!(whole.contains(rest.lines().next().unwrap()), "{rest}\n{whole}");
}

#[test]
fn samples_are_printed_with_their_likelihood() {
    let heat = ["--set", "generate.temperature=0.9", "--set", "generate.seed=4"];
    let paged = ["--set", "cache.layout=paged"];
    let prompt = "Of Man and the fruit of that forbidden tree";
    let args = [&["run", MHA, prompt, "-n", "8", "--samples", "3"], &heat[..], &paged].concat();
    let out = ok(&args);
    for part in [
        "sample 1, seed 4, mean log probability -",
        "sample 3, seed 6",
        "best ",
        "used by 3 samples together",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let alone = ok(&[
        "run",
        MHA,
        prompt,
        "-n",
        "8",
        "--set",
        "generate.temperature=0.9",
        "--set",
        "generate.seed=5",
    ]);
    let second = out.split("sample 2").nth(1).unwrap().lines().nth(1).unwrap();
    assert_eq!(alone.lines().next().unwrap(), second);
    assert_eq!(ok(&args).lines().next(), out.lines().next(), "a seed decides");

    let error = refused(2, &["run", MHA, "x", "--samples", "3"]);
    assert!(error.contains("generate.temperature"), "{error}");
    refused(2, &["run", MHA, "x", "--samples", "0"]);
    refused(2, &["run", MHA, "x", "--samples", "2", "--save", "no/such"]);
    let error = refused(2, &[&["run", MHA, "x", "y", "--samples", "2"], &heat[..]].concat());
    assert!(error.contains("one prompt"), "{error}");
}

#[test]
fn prompts_that_cannot_be() {
    let error = refused(2, &["run", MHA, "a", "b"]);
    assert!(error.contains("--chat"), "{error}");
    let error = refused(2, &["run", MHA]);
    assert!(error.contains("no prompt") && error.contains("--chat"), "{error}");
    let help = String::from_utf8(kvlab(&["run", "--help"]).stdout).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("Several prompts without --chat are refused"), "{help}");
}
