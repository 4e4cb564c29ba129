//! The tokenizer on vocabularies that can be worked out by hand.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::text::toy_vocab;

/// Characters of one to four bytes, joined emoji, and text that spells special tokens.
const TEXTS: [&str; 9] = [
    "",
    " ",
    "the cat",
    " the  cat\n",
    "日本語 the",
    "👩‍👩‍👧 é ñ",
    "<s>the</s>",
    "a<tool>b",
    "\u{0}\u{7f}\u{10FFFF}",
];

#[test]
fn every_kind_gives_a_text_back() {
    for tokenizer in [
        Tokenizer::bytes(),
        Tokenizer::from_gguf(&toy_vocab::byte_level()).unwrap(),
        Tokenizer::from_gguf(&toy_vocab::sentencepiece()).unwrap(),
    ] {
        for text in TEXTS {
            let ids = tokenizer.encode(text, false).unwrap();
            assert_eq!(tokenizer.decode(&ids), text, "{}", tokenizer.name());
            assert!(ids.iter().all(|&id| !tokenizer.is_special(id)), "{text:?}");
        }
    }
}

#[test]
fn bytes_are_their_own_ids() {
    let tokenizer = Tokenizer::bytes();
    assert_eq!(tokenizer.encode("Aé", true).unwrap(), [65, 0xC3, 0xA9]);
    assert_eq!((tokenizer.vocab_size(), tokenizer.bos()), (256, None));
    assert_eq!(tokenizer.token_to_id("A"), Some(65));
    assert_eq!(tokenizer.decode(&[0xC3, 65, 300]), "\u{FFFD}A\u{FFFD}");
}

#[test]
fn byte_level_merges_in_order_within_words() {
    let tokenizer = Tokenizer::from_gguf(&toy_vocab::byte_level()).unwrap();
    let id = |token: &str| tokenizer.token_to_id(token).unwrap();
    assert_eq!(tokenizer.encode("the cat", false).unwrap(), [id("the"), id("Ġcat")]);
    assert_eq!(tokenizer.encode(" 12", false).unwrap(), [32, 49, 50]);
    assert_eq!(tokenizer.encode("thx", false).unwrap(), [id("th"), 120]);
}

#[test]
fn sentencepiece_merges_by_score_and_falls_back_to_bytes() {
    let tokenizer = Tokenizer::from_gguf(&toy_vocab::sentencepiece()).unwrap();
    let id = |token: &str| tokenizer.token_to_id(token).unwrap();
    let encode = |text: &str| tokenizer.encode(text, false).unwrap();
    assert_eq!(encode("the cat"), [id("▁the"), id("▁cat")]);
    // "at" outranks every other pair of "hat", and ▁h is no piece.
    assert_eq!(encode("hat"), [id("▁"), id("h"), id("at")]);
    assert_eq!(encode("日本é"), [id("▁"), id("日本"), id("<0xC3>"), id("<0xA9>")]);
    // A special token ends a text, and the next begins with its own space (as in llama.cpp).
    assert_eq!(
        tokenizer.encode("the</s>cat", true).unwrap(),
        [1, id("▁the"), 2, id("▁cat")]
    );
}

#[test]
fn scores_and_not_ids_order_the_merges() {
    let mut vocab = toy_vocab::sentencepiece();
    // "▁t" and "he" compete for nothing; "ca" and "at" compete for the a of "cat".
    vocab.tokens.push("ca".to_owned());
    vocab.token_types.push(1);
    vocab.scores.push(100.0);
    let tokenizer = Tokenizer::from_gguf(&vocab).unwrap();
    let id = |token: &str| tokenizer.token_to_id(token).unwrap();
    assert_eq!(tokenizer.encode("cat", false).unwrap(), [id("▁"), id("ca"), id("t")]);
}

/// T89.
#[test]
fn exactly_one_bos_or_none() {
    for (mut vocab, bos) in [(toy_vocab::byte_level(), 263), (toy_vocab::sentencepiece(), 1)] {
        vocab.add_bos = true;
        let with = Tokenizer::from_gguf(&vocab).unwrap();
        for text in ["", "the cat", "<s>the cat", "<s>"] {
            let ids = with.encode(text, true).unwrap();
            assert_eq!(ids.iter().filter(|&&id| id == bos).count(), 1, "{text:?}: {ids:?}");
            assert_eq!(ids[0], bos);
        }
        assert!(!with.encode("<s>the", false).unwrap().contains(&bos));
        vocab.add_bos = false;
        let without = Tokenizer::from_gguf(&vocab).unwrap();
        assert!(!without.encode("the cat", true).unwrap().contains(&bos));
        assert!(without.encode("", true).unwrap().is_empty());
        assert_eq!(
            (without.bos(), without.adds_bos(), with.adds_bos()),
            (Some(bos), false, true)
        );
    }
}

#[test]
fn special_tokens_are_parsed_on_request_and_user_defined_ones_always() {
    let tokenizer = Tokenizer::from_gguf(&toy_vocab::byte_level()).unwrap();
    assert_eq!(tokenizer.encode("<s><tool></s>", true).unwrap(), [263, 265, 264]);
    let ids = tokenizer.encode("<s><tool></s>", false).unwrap();
    assert_eq!((ids.len(), ids[3]), (8, 265));
    assert_eq!(tokenizer.special_text(tokenizer.bos()), "<s>");
    assert_eq!(tokenizer.special_text(None), "");
}

/// T91: a GGUF file names one end id, and its vocabulary more.
#[test]
fn end_ids_are_the_named_one_and_the_special_tokens_that_say_so() {
    let mut vocab = toy_vocab::byte_level();
    vocab
        .tokens
        .extend(["<|im_end|>", "<|im_start|>", "<|eot_id|>"].map(str::to_owned));
    vocab.token_types.extend([3, 3, 1]);
    assert_eq!(Tokenizer::from_gguf(&vocab).unwrap().end_ids(), [264, 266]);
    assert!(Tokenizer::bytes().end_ids().is_empty());
}

#[test]
fn a_byte_without_a_token_is_named_and_not_dropped() {
    let mut vocab = toy_vocab::byte_level();
    vocab.tokens[4] = "no longer byte 4".to_owned();
    let tokenizer = Tokenizer::from_gguf(&vocab).unwrap();
    assert_eq!(
        tokenizer.encode("ab\u{4}", false),
        Err(TextError::Unencodable { byte: 4, offset: 2 })
    );
    assert!(tokenizer.encode("ab", false).is_ok());
}

#[test]
fn a_vocabulary_that_contradicts_itself_is_refused() {
    type Edit = fn(&mut GgufVocab);
    let cases: [(Edit, &str); 11] = [
        (
            |v| v.pre = Some("klingon".to_owned()),
            "unknown pre-tokenizer `klingon`",
        ),
        (|v| v.pre = None, "tokenizer.ggml.pre is missing"),
        (|v| v.model = "bert".to_owned(), "`bert`"),
        (|v| v.token_types.truncate(7), "7 token types"),
        (|v| v.bos = Some(9999), "bos token id 9999 of 266"),
        (|v| (v.add_bos, v.bos) = (true, None), "no BOS id"),
        (|v| v.merges.push("x".to_owned()), "merge 7 is \"x\""),
        (|v| v.merges.push("z zz".to_owned()), "zz"),
        (|v| v.model = "llama".to_owned(), "0 scores"),
        (
            |v| (v.model, v.scores) = ("llama".to_owned(), vec![f32::NAN; 266]),
            "score of token 0 is NaN",
        ),
        (
            |v| (v.model, v.scores) = ("llama".to_owned(), vec![0.0; 266]),
            "byte 0x00",
        ),
    ];
    for (edit, part) in cases {
        let mut vocab = toy_vocab::byte_level();
        edit(&mut vocab);
        let error = Tokenizer::from_gguf(&vocab).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(matches!(
        Tokenizer::from_gguf(&GgufVocab { pre: Some("x".to_owned()), ..toy_vocab::byte_level() }),
        Err(TextError::UnknownPreTokenizer { known, .. }) if known.contains("smollm")
    ));
}

#[test]
fn defaults_of_missing_flags() {
    assert!(GgufVocab::default_add_bos("llama", None));
    assert!(GgufVocab::default_add_bos("gpt2", Some("llama-bpe")));
    assert!(!GgufVocab::default_add_bos("gpt2", Some("smollm")));
    assert!(GgufVocab::default_add_space_prefix("llama") && !GgufVocab::default_add_space_prefix("gpt2"));
}
