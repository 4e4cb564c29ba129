//! Byte-level BPE (`tokenizer.ggml.model = "gpt2"`) from the vocabulary of a GGUF file.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{AddedToken, Tokenizer as Library};

use super::error::TextError;
use super::gguf_vocab::{GgufVocab, TokenType};
use super::pieces::{Pieces, Spelling};
use super::pre_tokenizer;

/// The library's tokenizer and the bytes of each id.
pub(super) fn build(vocab: &GgufVocab) -> Result<(Library, Pieces), TextError> {
    let Some(name) = vocab.pre.as_deref() else {
        return Err(TextError::MissingPreTokenizer {
            known: pre_tokenizer::known_names(),
        });
    };
    let pre = pre_tokenizer::find(name).ok_or_else(|| TextError::UnknownPreTokenizer {
        pre: name.to_owned(),
        known: pre_tokenizer::known_names(),
    })?;
    let mut merges = Vec::with_capacity(vocab.merges.len());
    for (rank, merge) in vocab.merges.iter().enumerate() {
        match merge.split_once(' ') {
            Some((left, right)) if !left.is_empty() && !right.is_empty() => {
                merges.push((left.to_owned(), right.to_owned()));
            }
            _ => {
                return Err(TextError::Vocabulary {
                    reason: format!("merge {rank} is {merge:?}, not two tokens with a space between"),
                });
            }
        }
    }
    let mut pieces = Pieces::new(false);
    for (id, text) in vocab.tokens.iter().enumerate() {
        let kind = vocab.token_type(id);
        let spelling = if kind.is_added() {
            Spelling::Literal
        } else {
            Spelling::ByteLevel
        };
        pieces.push(text, spelling, kind.is_special());
    }
    let model = BPE::builder()
        .vocab_and_merges(ids_by_text(vocab), merges)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(|error| TextError::Vocabulary {
            reason: error.to_string(),
        })?;
    let mut library = Library::new(model);
    library.with_pre_tokenizer(Some(pre.build()?));
    add_tokens(&mut library, vocab);
    Ok((library, pieces))
}

/// Text to id, for the library: of two ids with one text the later wins, as in llama.cpp.
pub(super) fn ids_by_text(vocab: &GgufVocab) -> Vocab {
    (0u32..)
        .zip(&vocab.tokens)
        .filter(|(_, text)| !text.is_empty())
        .map(|(id, text)| (text.clone(), id))
        .collect()
}

/// Makes the control and user-defined tokens whole: they are cut out of a text before it is split.
pub(super) fn add_tokens(library: &mut Library, vocab: &GgufVocab) {
    let (mut special, mut plain) = (Vec::new(), Vec::new());
    for (id, text) in vocab.tokens.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
        match vocab.token_type(id) {
            kind if kind.is_special() => special.push(AddedToken::from(text.as_str(), true).normalized(false)),
            TokenType::UserDefined => plain.push(AddedToken::from(text.as_str(), false).normalized(false)),
            _ => {}
        }
    }
    library.add_special_tokens(&special);
    library.add_tokens(&plain);
}
