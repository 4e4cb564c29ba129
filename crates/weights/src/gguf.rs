//! A GGUF file, versions 2 and 3, little-endian, shown as its Hugging Face model.
//!
//! `read` parses and checks the header, `metadata` asks it for typed values, [`config`] translates those to
//! a Hugging Face config, `names` translates tensor names, and `layout` says what the converter did to each
//! tensor. `write`, `encode` and `convert` make small files for tests.

pub mod config;
#[doc(hidden)]
pub mod convert;
mod cursor;
mod encode;
mod ggml_type;
mod layout;
mod metadata;
mod names;
mod read;
mod table;
pub mod tokenizer;
mod value;
#[doc(hidden)]
pub mod write;

use std::path::Path;

use crate::WeightsError;
use crate::checkpoint::{Parts, TokenizerSource};
use crate::mapped::MappedFile;

/// The first four bytes of a GGUF file.
pub const MAGIC: [u8; 4] = *b"GGUF";

pub(crate) fn open(path: &Path) -> Result<Parts, WeightsError> {
    let mut file = MappedFile::open(path)?;
    let header = read::header(path, file.bytes())?;
    let metadata = metadata::Metadata::new(path, &header);
    let architecture = metadata.architecture()?;
    let config = config::translate(architecture, &metadata, &header.tensors)?;
    let entries = layout::entries(path, architecture, &config, &header.tensors)?;
    let tokenizer = tokenizer::read(&metadata)?;
    let chat_template = metadata.text("tokenizer.chat_template")?.map(str::to_owned);
    let end_tokens = tokenizer::end_tokens(&metadata)?;
    let data_start = header.data_start;
    file.data_start = data_start;
    Ok(Parts {
        config,
        files: vec![file],
        entries,
        tokenizer: tokenizer.map_or(TokenizerSource::None, TokenizerSource::Gguf),
        chat_template,
        end_tokens,
        described_by: Vec::new(),
    })
}
