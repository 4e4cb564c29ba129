//! What can go wrong between text and token ids.

use std::path::PathBuf;

/// An error of the text side. Every message names the thing that was wrong and, where there is one,
/// the number that was.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TextError {
    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not in the table.
    #[error(
        "unknown pre-tokenizer `{pre}` (tokenizer.ggml.pre); known: {known}. A wrong one gives wrong ids in silence, so none is guessed"
    )]
    UnknownPreTokenizer {
        /// The name in the file.
        pre: String,
        /// The names that are known, separated by commas.
        known: String,
    },
    /// A byte-level vocabulary without `tokenizer.ggml.pre`.
    #[error(
        "the vocabulary names no pre-tokenizer (tokenizer.ggml.pre is missing); known: {known}. Convert the file again, or set one of these"
    )]
    MissingPreTokenizer {
        /// The names that are known, separated by commas.
        known: String,
    },
    /// `tokenizer.ggml.model` is neither `gpt2` nor `llama`.
    #[error(
        "unknown tokenizer model `{model}` (tokenizer.ggml.model); known: gpt2 (byte-level BPE), llama (SentencePiece BPE)"
    )]
    UnknownModel {
        /// The name in the file.
        model: String,
    },
    /// The parts of a vocabulary contradict each other.
    #[error("broken vocabulary: {reason}")]
    Vocabulary {
        /// What contradicts what, with the id or index.
        reason: String,
    },
    /// A tokenizer or template file could not be read.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why, from the reader.
        reason: String,
    },
    /// The vocabulary has no token for a byte of the text.
    #[error(
        "byte 0x{byte:02X} at offset {offset} of the text has no token in this vocabulary, and leaving it out would change the text"
    )]
    Unencodable {
        /// The byte.
        byte: u8,
        /// Its offset in the text, in bytes.
        offset: usize,
    },
    /// The tokenizer library refused the text.
    #[error("cannot tokenise the text: {reason}")]
    Encode {
        /// Why, from the library.
        reason: String,
    },
    /// The chat template does not parse, or fails while it runs.
    #[error("chat template: {reason}")]
    Template {
        /// Why, with the line of the template.
        reason: String,
    },
    /// The chat template called `raise_exception`: the messages do not suit it.
    #[error("the chat template refuses these messages: {message}")]
    TemplateRefused {
        /// The text the template gave.
        message: String,
    },
    /// The chat template asks for the current date and none was fixed.
    #[error(
        "the chat template asks for today's date (strftime_now), which would make runs differ from day to day; fix one with ChatTemplate::with_date"
    )]
    NoDate,
    /// A calendar date that does not exist.
    #[error("{year:04}-{month:02}-{day:02} is not a date")]
    BadDate {
        /// The year.
        year: u16,
        /// The month, 1 to 12.
        month: u8,
        /// The day, from 1.
        day: u8,
    },
    /// A temperature that is negative, infinite or not a number.
    #[error("temperature is {value}; it must be 0 (greedy) or a finite number above it")]
    BadTemperature {
        /// What was asked for.
        value: f32,
    },
    /// A `top_p` outside (0, 1].
    #[error("top_p is {value}; it must be above 0 and at most 1 (1 is off)")]
    BadTopP {
        /// What was asked for.
        value: f32,
    },
    /// A logit that is NaN or +infinity. Minus infinity is a mask, and allowed.
    #[error("the logit at position {position} is {value}")]
    BadLogit {
        /// The token id.
        position: usize,
        /// NaN or +infinity, as text (NaN is not equal to itself).
        value: String,
    },
    /// No logit is above minus infinity, or there are none.
    #[error("none of the {len} logits is a number above minus infinity")]
    NoCandidate {
        /// How many logits there were.
        len: usize,
    },
    /// An end id of a configuration that is not a token id.
    #[error("eos_token_id: {value} is not a token id")]
    BadEndId {
        /// The value, as JSON.
        value: String,
    },
}
