//! Text in and out of a model: tokenizer, incremental detokeniser, chat template, sampler, end ids.
//!
//! Everything here is plain text and integers: no tensor, no device and no cache. A prompt goes
//! [`ChatTemplate`] -> [`Tokenizer::encode`] -> ids, and what the model answers goes
//! logits -> [`Sampler`] -> id -> [`StopSet`] -> [`Stream`] -> text.
//!
//! Not here: stop *strings*, tool calls, repetition penalties, and tokenizers of encoder models.

mod byte_level;
mod chat;
mod date;
mod error;
mod gguf_vocab;
mod hugging_face;
mod pieces;
mod pre_tokenizer;
mod python_json;
mod sampler;
mod sentencepiece;
mod stop;
mod stream;
mod tokenizer;

pub use chat::{ChatTemplate, Message, chat_template_in};
pub use date::Date;
pub use error::TextError;
pub use gguf_vocab::GgufVocab;
pub use pre_tokenizer::known_pre_tokenizers;
pub use sampler::{Sampler, Sampling};
pub use stop::StopSet;
pub use stream::Stream;
pub use tokenizer::Tokenizer;

#[cfg(test)]
mod toy_vocab;
