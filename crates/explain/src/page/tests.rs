use super::words::TABLES;
use super::*;
use crate::{Token, Trace};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn empty(text: &str) -> Trace {
    Trace {
        model: text.to_owned(),
        text: text.to_owned(),
        tokens: vec![Token {
            id: 0,
            text: text.to_owned(),
        }],
        prompt: 1,
        passes: Vec::new(),
        variants: Vec::new(),
        missing: Vec::new(),
    }
}

/// The texts of a table and their `{placeholders}`.
fn table(language: &str) -> BTreeMap<String, BTreeSet<String>> {
    let (_, json) = TABLES.iter().find(|(code, _)| *code == language).unwrap();
    let table: BTreeMap<String, Value> = serde_json::from_str(json).unwrap();
    let texts = table.into_iter().map(|(key, text)| {
        let text = text.as_str().unwrap();
        assert!(!text.trim().is_empty(), "{language} {key}");
        let places = text
            .split('{')
            .skip(1)
            .map(|part| part.split('}').next().unwrap().to_owned());
        (key, places.collect())
    });
    texts.collect()
}

#[test]
fn both_languages_say_the_same_things() {
    assert_eq!(table("en"), table("ja"));
    let japanese = |text: &str| text.chars().any(|c| ('\u{3040}'..='\u{9fff}').contains(&c));
    let (_, json) = TABLES[1];
    let table: BTreeMap<String, String> = serde_json::from_str(json).unwrap();
    let same: Vec<_> = table.iter().filter(|(_, text)| !japanese(text)).collect();
    assert!(
        same.iter().all(|(key, _)| key.starts_with("symbol_")),
        "not translated: {same:?}"
    );
}

/// Every text that the page asks for is there, and every text that is there is asked for.
#[test]
fn every_text_is_used() {
    let mut asked = BTreeSet::new();
    for (source, marks) in [
        (TEMPLATE, &["data-t=\"", "data-t-label=\""][..]),
        (SCRIPT, &["say(\""][..]),
    ] {
        for mark in marks {
            let after = source.split(mark).skip(1);
            asked.extend(after.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
    let there: BTreeSet<_> = table("en").into_keys().collect();
    // Keys that end with a dot are the beginning of several.
    let begins = |key: &String| asked.iter().any(|a| a.ends_with('.') && key.starts_with(a.as_str()));
    let unused: Vec<_> = there
        .iter()
        .filter(|key| !asked.contains(*key) && !begins(key))
        .collect();
    assert!(unused.is_empty(), "nobody says {unused:?}");
    let unknown: Vec<_> = asked
        .iter()
        .filter(|key| !key.ends_with('.') && !there.contains(*key))
        .collect();
    assert!(unknown.is_empty(), "there is no text for {unknown:?}");
}

/// Nothing of the text ends the script that holds it, or becomes a tag.
#[test]
fn a_text_stays_a_text() {
    let hostile = "</script><img src=x onerror=alert(1)><!--<script>&\"'\u{2028}";
    let page = page(&empty(hostile), Language::En).unwrap();
    assert!(!page.contains("<img"), "a tag came through");
    assert_eq!(page.matches("</script>").count(), page.matches("<script").count());
    let json = page
        .split("id=\"trace\">")
        .nth(1)
        .unwrap()
        .split("</script>")
        .next()
        .unwrap();
    let trace: Value = serde_json::from_str(json).unwrap();
    assert_eq!(trace["text"], hostile, "and it is the same when it is read");
}

#[test]
fn a_page_needs_nothing_from_anywhere() {
    let page = page(&empty("x"), Language::Ja).unwrap();
    assert!(page.contains("<html lang=\"ja\""));
    assert!(page.contains("Content-Security-Policy"));
    // The names of XML namespaces are the only addresses.
    for address in page.split("http").skip(1) {
        assert!(
            address.starts_with("://www.w3.org/") || address.starts_with("-equiv"),
            "{address:.60}"
        );
    }
    for fetching in [
        "fetch(",
        "XMLHttpRequest",
        "import(",
        "@import",
        "url(http",
        "<link",
        " src=",
    ] {
        assert!(!page.contains(fetching), "{fetching}");
    }
}

#[test]
fn a_page_that_is_too_large_is_refused() {
    let error = page(&empty(&"x".repeat(MOST_BYTES)), Language::En).unwrap_err();
    assert!(error.to_string().contains("1500 KB"), "{error}");
}
