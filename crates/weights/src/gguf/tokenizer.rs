//! The tokenizer in a GGUF file: its data, not its algorithm.

use super::metadata::Metadata;
use crate::WeightsError;

/// Vocabulary and merges of a GGUF file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GgufTokenizer {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece).
    pub model: String,
    /// `tokenizer.ggml.pre`: the name of the rule that splits text before merging (`smollm`, `llama-bpe` ...).
    pub pre: Option<String>,
    /// The text of each token id.
    pub tokens: Vec<String>,
    /// The score of each token id. Empty for byte-level BPE.
    pub scores: Vec<f32>,
    /// The type of each token id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
    pub token_types: Vec<i32>,
    /// Byte-level BPE merges, `left right`, best first. Empty for SentencePiece.
    pub merges: Vec<String>,
    /// The token that begins a text.
    pub bos: Option<u32>,
    /// The token that ends a text.
    pub eos: Option<u32>,
    /// The token for what the vocabulary lacks.
    pub unk: Option<u32>,
    /// The token that fills a batch.
    pub pad: Option<u32>,
    /// Whether a prompt begins with `bos`. Where the file does not say: yes for `llama`, no for others.
    pub add_bos: bool,
    /// Whether a space is put before the text. Where the file does not say: yes for `llama`, no for others.
    pub add_space_prefix: bool,
}

/// `None` if the file has no tokenizer.
pub(super) fn read(metadata: &Metadata<'_>) -> Result<Option<GgufTokenizer>, WeightsError> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let model = match metadata.text(&key("model"))? {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some(model) => model,
    };
    let tokens = metadata.texts(&key("tokens"))?;
    let tokens = tokens.ok_or_else(|| metadata.missing(&key("tokens")))?;
    let scores = metadata.f32s(&key("scores"))?.unwrap_or_default();
    let token_types = metadata.i32s(&key("token_type"))?.unwrap_or_default();
    for (name, length) in [("scores", scores.len()), ("token_type", token_types.len())] {
        if length != 0 && length != tokens.len() {
            return Err(metadata.bad(&key(name), format!("{length} entries for {} tokens", tokens.len())));
        }
    }
    let sentence_piece = model == "llama";
    Ok(Some(GgufTokenizer {
        model: model.to_owned(),
        pre: metadata.text(&key("pre"))?.map(str::to_owned),
        scores,
        token_types,
        merges: metadata.texts(&key("merges"))?.unwrap_or_default(),
        bos: token(metadata, "bos", tokens.len())?,
        eos: token(metadata, "eos", tokens.len())?,
        unk: token(metadata, "unknown", tokens.len())?,
        pad: token(metadata, "padding", tokens.len())?,
        add_bos: metadata.flag(&key("add_bos_token"))?.unwrap_or(sentence_piece),
        add_space_prefix: metadata.flag(&key("add_space_prefix"))?.unwrap_or(sentence_piece),
        tokens,
    }))
}

fn token(metadata: &Metadata<'_>, name: &str, tokens: usize) -> Result<Option<u32>, WeightsError> {
    let key = format!("tokenizer.ggml.{name}_token_id");
    match metadata.token(&key)? {
        // Some converters write -1 as u32 for a token that does not exist.
        Some(u32::MAX) => Ok(None),
        Some(id) if id as usize >= tokens => Err(metadata.bad(&key, format!("token {id} of {tokens}"))),
        id => Ok(id),
    }
}

/// The `eos`, `eot` and `eom` tokens, each once.
pub(super) fn end_tokens(metadata: &Metadata<'_>) -> Result<Vec<u32>, WeightsError> {
    let mut ends = Vec::new();
    for name in ["eos", "eot", "eom"] {
        if let Some(id) = metadata.token(&format!("tokenizer.ggml.{name}_token_id"))?
            && id != u32::MAX
            && !ends.contains(&id)
        {
            ends.push(id);
        }
    }
    Ok(ends)
}
