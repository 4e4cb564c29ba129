//! Text to token ids and back, for the three kinds of vocabulary that models come with.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use tokenizers::Tokenizer as Library;

use super::error::TextError;
use super::gguf_vocab::GgufVocab;
use super::pieces::Pieces;
use super::stream::Stream;
use super::{byte_level, hugging_face, sentencepiece};

/// A vocabulary: 256 bytes, a `tokenizer.json`, or the one inside a GGUF file.
///
/// Decoding is the concatenation of the bytes of each id, read as UTF-8; what is not UTF-8 becomes U+FFFD
/// (as [`String::from_utf8_lossy`] does it), and so does an id outside the vocabulary. Special tokens are
/// decoded like any other: leave them out before, if they should not be seen ([`Tokenizer::is_special`]).
pub struct Tokenizer {
    name: String,
    kind: Kind,
    pieces: Arc<Pieces>,
    /// What goes before a prompt: nothing, or BOS.
    prefix: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    /// The texts of the special tokens, and their ids.
    special: Vec<(String, u32)>,
    /// Bytes that UTF-8 can contain and this vocabulary cannot write.
    missing: Vec<u8>,
}

enum Kind {
    Bytes,
    Subword {
        library: Box<Library>,
        /// The same without special tokens, made when a text first contains one that must not be parsed.
        plain: OnceLock<Box<Library>>,
    },
}

/// Names of special tokens that end an answer, besides the one end id that a GGUF file has room for.
const END_NAMES: [&str; 8] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
];

impl Tokenizer {
    /// The vocabulary of a byte-level model: 256 ids, the id of a byte is the byte, nothing is special.
    pub fn bytes() -> Self {
        Tokenizer {
            name: "bytes".to_owned(),
            kind: Kind::Bytes,
            pieces: Arc::new(Pieces::of_bytes()),
            prefix: Vec::new(),
            bos: None,
            eos: None,
            special: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// A Hugging Face `tokenizer.json`. BOS goes before a prompt where its post-processor puts one; the names
    /// of BOS and EOS come from `tokenizer_config.json` beside it, where there is one.
    ///
    /// # Errors
    /// The file cannot be read, or its decoder does more than join tokens ([`TextError::File`]).
    pub fn from_file(path: &Path) -> Result<Self, TextError> {
        let loaded = hugging_face::load(path)?;
        let name = path.display().to_string();
        Ok(Self::subword(
            name,
            loaded.library,
            loaded.pieces,
            (loaded.bos, loaded.eos),
            loaded.prefix,
        ))
    }

    /// The vocabulary of a GGUF file.
    ///
    /// # Errors
    /// An unknown model or pre-tokenizer, or a vocabulary that contradicts itself.
    pub fn from_gguf(vocab: &GgufVocab) -> Result<Self, TextError> {
        let broken = |reason: String| Err(TextError::Vocabulary { reason });
        let len = vocab.tokens.len();
        if !vocab.token_types.is_empty() && vocab.token_types.len() != len {
            return broken(format!("{len} tokens and {} token types", vocab.token_types.len()));
        }
        for (key, id) in [("bos", vocab.bos), ("eos", vocab.eos), ("unknown", vocab.unk)] {
            if let Some(id) = id.filter(|&id| id as usize >= len) {
                return broken(format!("{key} token id {id} of {len} tokens"));
            }
        }
        let (library, pieces) = match vocab.model.as_str() {
            "gpt2" => byte_level::build(vocab)?,
            "llama" => sentencepiece::build(vocab)?,
            model => {
                return Err(TextError::UnknownModel {
                    model: model.to_owned(),
                });
            }
        };
        let prefix = match (vocab.add_bos, vocab.bos) {
            (false, _) => Vec::new(),
            (true, Some(bos)) => vec![bos],
            (true, None) => {
                return broken("a prompt begins with BOS, but no BOS id is given".to_owned());
            }
        };
        let name = match (vocab.model.as_str(), &vocab.pre) {
            ("gpt2", Some(pre)) => format!("gguf:gpt2/{pre}"),
            (model, _) => format!("gguf:{model}"),
        };
        Ok(Self::subword(name, library, pieces, (vocab.bos, vocab.eos), prefix))
    }

    fn subword(
        name: String,
        library: Library,
        pieces: Pieces,
        (bos, eos): (Option<u32>, Option<u32>),
        prefix: Vec<u32>,
    ) -> Self {
        let ids = || (0u32..).take(pieces.len());
        let special = ids()
            .filter(|&id| pieces.is_special(id))
            .filter_map(|id| Some((library.id_to_token(id)?, id)))
            .filter(|(text, _)| !text.is_empty())
            .collect();
        Tokenizer {
            name,
            kind: Kind::Subword {
                library: Box::new(library),
                plain: OnceLock::new(),
            },
            missing: pieces.missing_bytes(),
            pieces: Arc::new(pieces),
            prefix,
            bos,
            eos,
            special,
        }
    }

    /// The ids of a text. With `special`, the text is a whole prompt: special tokens written in it are parsed,
    /// and BOS goes before it where the model wants one and the text has none yet. Without, every character is
    /// text, whatever it spells, and nothing is added.
    ///
    /// # Errors
    /// [`TextError::Unencodable`] where the vocabulary has no token for a byte.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TextError> {
        let Kind::Subword { library, plain } = &self.kind else {
            return Ok(text.bytes().map(u32::from).collect());
        };
        if let Some(offset) = text.bytes().position(|byte| self.missing.contains(&byte)) {
            return Err(TextError::Unencodable {
                byte: text.as_bytes()[offset],
                offset,
            });
        }
        let library = if special || !self.special.iter().any(|(token, _)| text.contains(token)) {
            library
        } else {
            plain.get_or_init(|| {
                let mut plain = library.clone();
                plain.set_encode_special_tokens(true);
                plain
            })
        };
        let encoding = library.encode_fast(text, false).map_err(|error| TextError::Encode {
            reason: error.to_string(),
        })?;
        let ids = encoding.get_ids();
        let prefix: &[u32] = if special && !ids.starts_with(&self.prefix) {
            &self.prefix
        } else {
            &[]
        };
        Ok([prefix, ids].concat())
    }

    /// The text of a whole sequence of ids. One leading space that SentencePiece put before the text is left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| self.pieces.get(id)).copied().collect();
        let text = bytes
            .strip_prefix(b" ")
            .filter(|_| self.pieces.leading_space())
            .unwrap_or(&bytes);
        String::from_utf8_lossy(text).into_owned()
    }

    /// A detokeniser for a text that begins with the next id.
    pub fn stream(&self) -> Stream {
        Stream::new(Arc::clone(&self.pieces))
    }

    /// A detokeniser for what comes after a prompt: the first word keeps the space before it, and a character
    /// that the prompt began is finished. The pieces are what `decode(prompt ++ answer)` has beyond the prompt.
    pub fn stream_after(&self, prompt: &[u32]) -> Stream {
        let mut stream = self.stream();
        for &id in prompt {
            stream.push(id);
        }
        stream
    }

    /// How many ids there are: the largest id plus one. A model may have more output rows.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The id of a token, by its text in the vocabulary (`Ġthe`, `▁the`, `<|im_end|>`).
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        match &self.kind {
            Kind::Bytes => <[u8; 1]>::try_from(token.as_bytes()).ok().map(|[byte]| u32::from(byte)),
            Kind::Subword { library, .. } => library.token_to_id(token),
        }
    }

    /// The text that stands for a special token in a prompt, as chat templates want it (`<s>`); empty without an id.
    pub fn special_text(&self, id: Option<u32>) -> String {
        match &self.kind {
            Kind::Bytes => String::new(),
            Kind::Subword { library, .. } => id.and_then(|id| library.id_to_token(id)).unwrap_or_default(),
        }
    }

    /// Whether an id belongs to the protocol (BOS, end of turn) and not to the text.
    pub fn is_special(&self, id: u32) -> bool {
        self.pieces.is_special(id)
    }

    /// The id that begins a text, also where the model does not want it before a prompt.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The id that ends a text, as the file names it.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Every id that ends an answer: [`Tokenizer::eos`], and the special tokens with a name that says so.
    pub fn end_ids(&self) -> Vec<u32> {
        let named = self
            .special
            .iter()
            .filter(|(text, _)| END_NAMES.contains(&text.as_str()));
        let mut ids: Vec<u32> = self.eos.into_iter().chain(named.map(|(_, id)| *id)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Whether a prompt begins with BOS.
    pub fn adds_bos(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// Where the vocabulary comes from: `bytes`, `gguf:gpt2/smollm`, `gguf:llama`, or a path.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("name", &self.name)
            .field("vocab_size", &self.vocab_size())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
