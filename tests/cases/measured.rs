//! Speed behind a depth: the rows are computed once where the cache can be cut back, and are always the same.

use super::*;
use kvlab_engine::{Filled, Work};

const DEPTH: usize = 24;

/// Tokens fed before the clock of each of three measurements.
fn fed(filled: &mut Filled<'_>) -> [usize; 3] {
    [Work::Decode(4), Work::Prefill(5), Work::Decode(4)].map(|work| filled.measure(work).unwrap().fed)
}

#[test]
fn a_depth_is_filled_once_where_the_cache_can_be_cut_back() {
    let channel = "key = { codec = \"int8\", axis = \"channel\", group = 8 }\nvalue = { codec = \"int8\", group = 8 }";
    for (cache, want) in [
        ("", [DEPTH, 0, 0]),
        (
            "key = \"f16\"\nvalue = \"f16\"\nlayout = \"paged\"\npage_size = 4",
            [DEPTH, 0, 0],
        ),
        ("variant = \"swa\"\nwindow = 8", [DEPTH; 3]),
        (channel, [DEPTH, 0, 0]),
        ("variant = \"none\"", [0; 3]),
    ] {
        let mut engine = engine(&tiny("llama", GQA, cache));
        let mut filled = engine.filled(DEPTH).unwrap();
        assert_eq!(fed(&mut filled), want, "{cache:?}");
        drop(filled);
        assert_eq!(engine.usage().used().0, 0, "{cache:?}: the sequence is closed");
    }
}

/// Rows in use after a measurement are those of the depth and of its own work.
#[test]
fn what_an_earlier_measurement_added_is_gone() {
    let mut engine = engine(&tiny("llama", GQA, ""));
    let row = engine.spec().per_token().0;
    let mut filled = engine.filled(DEPTH).unwrap();
    for work in [Work::Decode(7), Work::Prefill(3), Work::Decode(1)] {
        filled.measure(work).unwrap();
        let used = filled.engine().usage().used().0;
        assert_eq!(used, (DEPTH + work.tokens()) as u64 * row, "{work:?}");
    }
}

#[test]
fn a_depth_beyond_the_model_is_refused_before_it_is_fed() {
    let mut engine = engine(&tiny("llama", GQA, ""));
    let mut filled = engine.filled(60).unwrap();
    let error = filled.measure(Work::Decode(5)).unwrap_err().to_string();
    assert!(
        error.contains("60 prompt tokens and 5 new ones are 65 tokens, and 64"),
        "{error}"
    );
    assert_eq!(filled.engine().usage().used().0, 0);
    assert_eq!(filled.measure(Work::Decode(4)).unwrap().fed, 60);
}
