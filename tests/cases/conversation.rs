//! Conversations: a sequence that stays open, and how much of it a later turn finds again.

use super::*;
use kvlab_engine::Conversation;

/// Caches, and how many of 30 tokens are still there for a turn that differs from place 21 on.
const CACHES: [(&str, &str, &str, usize); 9] = [
    ("llama", "", "", 21),
    ("llama", "", "variant = \"mha\"\nprefill_chunk = 4", 21),
    ("llama", "", "variant = \"none\"", 0),
    (
        "llama",
        "",
        "layout = \"paged\"\npage_size = 4\nprefix_sharing = true",
        21,
    ),
    (
        "llama",
        "",
        "variant = \"mla\"\nkv_lora_rank = 16\nlayout = \"paged\"",
        21,
    ),
    // Scales along the channel: packed rows cannot be opened again, but whole groups can be left.
    (
        "llama",
        "",
        "key = { codec = \"int8\", axis = \"channel\", group = 8 }",
        16,
    ),
    ("mistral", "sliding_window = 6", "", 0),
    ("mistral", "sliding_window = 6", "layout = \"paged\"\npage_size = 2", 0),
    ("gemma2", HYBRID, "", 0),
];

/// Layers with a window and layers without: a `Grouped` cache.
const HYBRID: &str = "sliding_window = 6\nlayer_types = [\"sliding_attention\", \"full_attention\"]\n\
     query_pre_attn_scalar = 8\nhidden_activation = \"gelu_pytorch_tanh\"";

fn load((family, geometry, cache, _): (&str, &str, &str, usize)) -> Engine {
    engine(&tiny(family, &format!("{GQA}\n{geometry}"), cache))
}

fn alone(engine: &mut Engine, prompt: &[u32], new: usize) -> Vec<u32> {
    let done = engine.generate(&[prompt.to_vec()], &request(new), &mut |_| {});
    done.unwrap().remove(0).tokens
}

#[test]
fn a_second_turn_feeds_only_what_is_new() {
    for case in CACHES {
        let (mut engine, mut fresh) = (load(case), load(case));
        let remembers = engine.cache().capabilities().remembers;
        let mut talk = Conversation::new();
        let mut text = Vec::new();
        for turn in 0..3 {
            text.extend(tokens(7, turn));
            let stored = talk.tokens().len().saturating_sub(1);
            let mut seen = Vec::new();
            let done = engine
                .converse(&mut talk, &text, &request(5), &mut |event| seen.push(event.token))
                .unwrap();
            // The last token of an answer was sampled, and not fed.
            let want = if remembers { stored } else { 0 };
            assert_eq!((done.prompt_tokens, done.cached_tokens), (text.len(), want), "{case:?}");
            assert_eq!(done.tokens, alone(&mut fresh, &text, 5), "{case:?}, turn {turn}");
            assert_eq!(seen, done.tokens);
            text.extend(done.tokens);
            assert_eq!(talk.tokens(), text);
        }
        engine.end(talk).unwrap();
        assert_eq!(engine.usage().used().0, 0, "{case:?}: nothing is left open");
    }
}

/// T55: the text of a later turn has other tokens than those that were generated, and is right; the count of what was
/// found stored is what really was.
#[test]
fn t55_an_answer_that_is_tokenised_in_another_way() {
    for case in CACHES {
        let (mut engine, mut fresh) = (load(case), load(case));
        let mut talk = Conversation::new();
        engine
            .converse(&mut talk, &tokens(20, 1), &request(10), &mut |_| {})
            .unwrap();
        let mut text = talk.tokens().to_vec();
        text[21] = (text[21] + 1) % 61;
        text.extend(tokens(6, 2));
        let done = engine.converse(&mut talk, &text, &request(5), &mut |_| {}).unwrap();
        assert_eq!(done.tokens, alone(&mut fresh, &text, 5), "{case:?}");
        assert_eq!(done.cached_tokens, case.3, "{case:?}");
    }
}

/// The same prompt again leaves one token to compute, a shorter one is cut back to, and an error leaves it usable.
#[test]
fn the_same_turn_again_and_a_shorter_one() {
    let mut engine = load(CACHES[0]);
    let mut talk = Conversation::new();
    let text = tokens(12, 3);
    let first = engine.converse(&mut talk, &text, &request(4), &mut |_| {}).unwrap();
    let again = engine.converse(&mut talk, &text, &request(4), &mut |_| {}).unwrap();
    assert_eq!((again.cached_tokens, &again.tokens), (11, &first.tokens));
    let short = engine
        .converse(&mut talk, &text[..5], &request(4), &mut |_| {})
        .unwrap();
    assert_eq!(
        (short.cached_tokens, short.tokens),
        (4, alone(&mut load(CACHES[0]), &text[..5], 4))
    );
    assert!(
        engine
            .converse(&mut talk, &tokens(62, 1), &request(4), &mut |_| {})
            .is_err()
    );
    assert!(engine.converse(&mut talk, &[99], &request(4), &mut |_| {}).is_err());
    let none = engine.converse(&mut talk, &[], &request(4), &mut |_| {}).unwrap();
    assert_eq!(none.finish, Finish::EmptyPrompt);
    let longer = [&text[..5], &[1, 2]].concat();
    let done = engine.converse(&mut talk, &longer, &request(4), &mut |_| {}).unwrap();
    assert_eq!(
        (done.cached_tokens, done.tokens),
        (5, alone(&mut load(CACHES[0]), &longer, 4))
    );
}

/// T45: a prompt that another sequence has brought is found by the first turn of a conversation; switched off, it is not.
#[test]
fn t45_a_conversation_finds_a_shared_prefix() {
    for (sharing, want) in [(true, 16), (false, 0)] {
        let cache = format!("layout = \"paged\"\npage_size = 4\nprefix_sharing = {sharing}\nsequences = 2");
        let mut engine = engine(&tiny("llama", GQA, &cache));
        let text = tokens(18, 4);
        let first = alone(&mut engine, &text, 3);
        let mut talk = Conversation::new();
        let done = engine.converse(&mut talk, &text, &request(3), &mut |_| {}).unwrap();
        assert_eq!((done.cached_tokens, done.tokens), (want, first));
    }
}
