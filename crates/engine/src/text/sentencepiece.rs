//! SentencePiece BPE with byte fallback (`tokenizer.ggml.model = "llama"`) from the vocabulary of a GGUF file.
//!
//! SentencePiece stores no merges: it joins the neighbours whose joint piece has the highest score. The
//! library wants a ranked list, so every way to cut a piece into two pieces becomes a merge, ranked by the
//! score of the whole (as Hugging Face's converter does). Both give the same ids where scores are distinct,
//! and they are in a trained vocabulary (minus the rank). Where they are not, SentencePiece takes the
//! leftmost pair and this the lower id.
//!
//! A text after a control or user-defined token gets its own leading space, as in llama.cpp and Hugging
//! Face's converter. SentencePiece itself adds none after a user-defined one, so a text with such a token
//! inside decodes with one space more.

use tokenizers::Tokenizer as Library;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace, Sequence};

use super::byte_level::{add_tokens, ids_by_text};
use super::error::TextError;
use super::gguf_vocab::{GgufVocab, TokenType};
use super::pieces::{Pieces, SPACE_MARK, Spelling, byte_of_token};

/// A longer piece is refused: cutting it everywhere would take quadratic time.
const MAX_PIECE_BYTES: usize = 4096;

/// The library's tokenizer and the bytes of each id.
pub(super) fn build(vocab: &GgufVocab) -> Result<(Library, Pieces), TextError> {
    let broken = |reason: String| TextError::Vocabulary { reason };
    if vocab.scores.len() != vocab.tokens.len() {
        return Err(broken(format!(
            "{} tokens and {} scores",
            vocab.tokens.len(),
            vocab.scores.len()
        )));
    }
    if let Some(id) = vocab.scores.iter().position(|score| score.is_nan()) {
        return Err(broken(format!("the score of token {id} is NaN")));
    }
    let mut pieces = Pieces::new(vocab.add_space_prefix);
    let mut has_byte = [false; 256];
    for (id, text) in vocab.tokens.iter().enumerate() {
        let kind = vocab.token_type(id);
        let byte = byte_of_token(text).filter(|_| is_byte(vocab, kind));
        if let Some(byte) = byte {
            has_byte[usize::from(byte)] = true;
        }
        let spelling = match byte {
            Some(_) => Spelling::Byte,
            None if kind.is_special() => Spelling::Literal,
            None => Spelling::SpaceMark,
        };
        pieces.push(text, spelling, kind.is_special());
    }
    let mut model = BPE::builder()
        .vocab_and_merges(ids_by_text(vocab), merges(vocab)?)
        .fuse_unk(true)
        .byte_fallback(true);
    match vocab.unk.and_then(|id| vocab.tokens.get(id as usize)) {
        Some(unk) => model = model.unk_token(unk.clone()),
        None => {
            if let Some(byte) = has_byte.iter().position(|has| !has) {
                return Err(broken(format!(
                    "neither an unknown token nor a token for byte 0x{byte:02X}: text would be lost"
                )));
            }
        }
    }
    let model = model.build().map_err(|error| broken(error.to_string()))?;
    let mut library = Library::new(model);
    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    if vocab.add_space_prefix {
        normalizers.push(Prepend::new(SPACE_MARK.to_owned()).into());
    }
    let spaces = Replace::new(" ", SPACE_MARK).map_err(|error| broken(error.to_string()))?;
    normalizers.push(spaces.into());
    library.with_normalizer(Some(Sequence::new(normalizers)));
    add_tokens(&mut library, vocab);
    Ok((library, pieces))
}

/// A file without token types has its byte tokens by their spelling.
fn is_byte(vocab: &GgufVocab, kind: TokenType) -> bool {
    kind == TokenType::Byte || vocab.token_types.is_empty()
}

/// Every cut of every normal piece into two normal pieces, the highest score first.
fn merges(vocab: &GgufVocab) -> Result<Vec<(String, String)>, TextError> {
    let normal = |id: usize| {
        vocab.token_type(id) == TokenType::Normal
            && !(vocab.token_types.is_empty() && byte_of_token(&vocab.tokens[id]).is_some())
    };
    let ids: std::collections::HashMap<&str, usize> = vocab
        .tokens
        .iter()
        .enumerate()
        .filter(|&(id, text)| normal(id) && !text.is_empty())
        .map(|(id, text)| (text.as_str(), id))
        .collect();
    let mut cuts: Vec<(usize, usize, usize)> = Vec::new();
    for (&text, &id) in &ids {
        if text.len() > MAX_PIECE_BYTES {
            return Err(TextError::Vocabulary {
                reason: format!("token {id} has {} bytes, more than {MAX_PIECE_BYTES}", text.len()),
            });
        }
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(&left), Some(&right)) = (ids.get(left), ids.get(right)) {
                cuts.push((id, left, right));
            }
        }
    }
    cuts.sort_unstable_by(|a, b| vocab.scores[b.0].total_cmp(&vocab.scores[a.0]).then(a.cmp(b)));
    let text = |id: usize| vocab.tokens[id].clone();
    Ok(cuts
        .into_iter()
        .map(|(_, left, right)| (text(left), text(right)))
        .collect())
}
