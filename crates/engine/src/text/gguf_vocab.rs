//! The tokenizer keys of a GGUF file, as plain data.

/// What `tokenizer.ggml.*` says, without the file. [`super::Tokenizer::from_gguf`] checks it.
///
/// A file may leave flags out. [`GgufVocab::default_add_bos`] and
/// [`GgufVocab::default_add_space_prefix`] then say what its format means by that.
#[derive(Debug, Clone, Default)]
pub struct GgufVocab {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece BPE).
    pub model: String,
    /// `tokenizer.ggml.pre`: the name of the pre-tokenizer. Needed for `gpt2`, ignored for `llama`.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: the text of each id.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.scores`: one per token, needed for `llama`. The higher merges first.
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.token_type`: one per token, or empty (all normal): 1 normal, 2 unknown, 3 control,
    /// 4 user-defined, 5 unused, 6 byte.
    pub token_types: Vec<i32>,
    /// `tokenizer.ggml.merges`: pairs separated by a space, the first merges first. Needed for `gpt2`.
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unk: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`: whether a prompt begins with `bos`.
    pub add_bos: bool,
    /// `tokenizer.ggml.add_space_prefix`: whether a space goes before the text. Only `llama` has one.
    pub add_space_prefix: bool,
}

impl GgufVocab {
    /// What a file means that has no `tokenizer.ggml.add_bos_token`: yes for SentencePiece and for the
    /// Llama 3 and Tekken families, no for the other byte-level ones (the defaults of llama.cpp).
    pub fn default_add_bos(model: &str, pre: Option<&str>) -> bool {
        model == "llama" || pre.and_then(super::pre_tokenizer::find).is_some_and(|pre| pre.adds_bos)
    }

    /// What a file means that has no `tokenizer.ggml.add_space_prefix`: yes for SentencePiece.
    pub fn default_add_space_prefix(model: &str) -> bool {
        model == "llama"
    }

    /// The type of a token; normal where the file gives none, or one that is unknown.
    pub(super) fn token_type(&self, id: usize) -> TokenType {
        match self.token_types.get(id) {
            Some(2) => TokenType::Unknown,
            Some(3) => TokenType::Control,
            Some(4) => TokenType::UserDefined,
            Some(6) => TokenType::Byte,
            _ => TokenType::Normal,
        }
    }
}

/// `tokenizer.ggml.token_type`. Unused (5) tokens count as normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenType {
    /// 1: a piece of text.
    Normal,
    /// 2: stands for what the vocabulary lacks. Special.
    Unknown,
    /// 3: BOS, end of turn and their like. Special: found in a text only when special tokens are parsed.
    Control,
    /// 4: a piece that is never split or merged. Found in every text, as SentencePiece defines it.
    UserDefined,
    /// 6: one byte, written `<0xNN>`.
    Byte,
}

impl TokenType {
    /// Whether it is parsed only on request, and belongs to the protocol and not to the text.
    pub(super) fn is_special(self) -> bool {
        matches!(self, TokenType::Unknown | TokenType::Control)
    }

    /// Whether it is cut out of a text before anything else happens.
    pub(super) fn is_added(self) -> bool {
        self.is_special() || self == TokenType::UserDefined
    }
}
