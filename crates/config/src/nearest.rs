//! The known name that a mistyped one most resembles.

/// The nearest of `names` to `typed`, if one is near enough to be worth naming.
pub(crate) fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Edit distance finds swapped letters in short names; Jaro-Winkler finds a name with something appended.
    let score =
        |name: &str| strsim::normalized_damerau_levenshtein(typed, name).max(strsim::jaro_winkler(typed, name) - 0.15);
    let scored = names
        .into_iter()
        .map(|name| (score(name), name))
        .filter(|(score, _)| *score >= 0.6);
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// Help for an unknown name: the nearest, then all that are known.
pub(crate) fn suggest(typed: &str, names: &[&str]) -> String {
    let list = names.join(", ");
    match nearest(typed, names.iter().copied()) {
        Some(name) => format!("did you mean `{name}`? known: {list}"),
        None if list.is_empty() => "none are known here".to_owned(),
        None => format!("known: {list}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_typos_and_leaves_strangers_alone() {
        let names = [
            "variant",
            "layout",
            "capacity",
            "key",
            "value",
            "window",
            "sinks",
            "num_key_value_heads",
        ];
        let cases = [
            ("varient", Some("variant")),
            ("kye", Some("key")),
            ("keys", Some("key")),
            ("window_size", Some("window")),
            ("num_kv_heads", Some("num_key_value_heads")),
            ("zebra", None),
            ("", None),
        ];
        for (typed, expect) in cases {
            assert_eq!(nearest(typed, names), expect, "{typed}");
        }
    }
}
