//! `--set` arguments.

use super::*;

#[test]
fn sets_override_the_file() {
    let text = format!(
        "{MINIMAL}[cache]\nvariant = \"swa\"\nwindow = 8\nkey = {{ codec = \"int8\", group = 4 }}\n[[cache.layer]]\nlayers = [0]\nkey = \"f16\"\n"
    );
    let sets = [
        "cache.variant=gqa",
        "cache.window=",
        "cache.value=unset",
        "cache.key.group=64",
        "cache.layer.0.key=f32",
        "backend.threads=3",
        "cache.capacity=8 KiB",
        "model.allow_unused=true",
        "generate.temperature=0.5",
        "name = \"n\"",
    ];
    let config = parse_with(&text, &sets).unwrap();
    let cache = &config.cache;
    assert_eq!(
        (cache.variant.as_deref(), cache.window, cache.value.as_ref()),
        (Some("gqa"), None, None)
    );
    assert_eq!(cache.key_codec(1).group, Some(64));
    assert_eq!(cache.key_codec(0), CodecSpec::exact());
    assert_eq!(
        (config.backend.threads, cache.capacity),
        (Some(3), Some(Capacity::Bytes(8192)))
    );
    assert_eq!(
        (
            config.model.allow_unused,
            config.generate.temperature,
            config.name.as_str()
        ),
        (true, 0.5, "n")
    );
    // A path of `--set` starts at the current folder, as a shell completes it.
    let moved = parse_with(MINIMAL, &["model.path=x/../y.gguf"]).unwrap();
    assert_eq!(
        moved.model.origin,
        ModelOrigin::Path(std::env::current_dir().unwrap().join("y.gguf"))
    );
}

#[test]
fn problems_of_sets_name_the_set() {
    let sets = [
        "cache.varian=swa",
        "cache.window=0",
        "backend",
        "=3",
        "a..b=3",
        "name.x=3",
        "cache.key=[1",
        "cache.kye=",
        "model.path.0=1",
    ];
    let expect = [
        " --set =3: `` is no dotted key (a dotted key looks like cache.window)",
        " --set a..b=3: `a..b` is no dotted key (a dotted key looks like cache.window)",
        " --set backend: it has no `=` (write --set dotted.key=value, for example --set cache.variant=swa)",
        " --set cache.key=[1: `cache.key` is \"[1\", which is not known (one of: f32, f16, bf16, int8, int4)",
        " --set cache.kye=: unknown key `cache.kye` (did you mean `key`? known: ",
        " --set cache.varian=swa: unknown key `cache.varian` (did you mean `variant`? known: ",
        " --set cache.window=0: `cache.window` has no effect while `cache.variant` is left out (it belongs to variant swa; remove the key)",
        " --set model.path.0=1: `model.path.0` cannot be set: `model.path` is the text \"m.gguf\", not a table (set `model.path` as a whole)",
        " --set name.x=3: `name.x` cannot be set: `name` is the text \"m\", not a table (set `name` as a whole)",
    ];
    let lines = shown(parse_with(MINIMAL, &sets));
    assert_eq!(lines.len(), expect.len(), "{lines:#?}");
    for (line, expect) in lines.iter().zip(expect) {
        assert!(line.starts_with(expect), "{line}\n{expect}");
    }
    let errors = parse_with(MINIMAL, &["cache.layer.0=1"]).unwrap_err();
    assert_eq!((errors.problems[0].line, errors.problems[0].span.clone()), (0, None));
    // A problem in the file that a set causes is shown in the file, and those of sets come after it.
    let text = format!("{MINIMAL}[cache]\nvariant = \"swa\"\nwindow = 8\n");
    let lines = shown(parse_with(&text, &["cache.variant=mha", "x=1"]));
    assert!(
        lines[0].starts_with("7:1: `cache.window` has no effect with variant `mha`"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with(" --set x=1: unknown key `x`"), "{lines:?}");
}
