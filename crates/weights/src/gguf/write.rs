//! Small GGUF files (version 3) for tests. Not a converter for models: it holds the file in memory.

use std::path::Path;

use super::{encode, ggml_type, read};
use crate::{Dtype, WeightsError};

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // each is named after its GGUF type
pub enum Meta {
    U32(u32),
    I32(i32),
    U64(u64),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    U32s(Vec<u32>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    Bools(Vec<bool>),
}

impl From<&str> for Meta {
    fn from(text: &str) -> Self {
        Meta::Text(text.to_owned())
    }
}

/// A tensor to write: its GGUF name, and its bytes in the layout of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// GGUF name (`blk.0.attn_q.weight`).
    pub name: String,
    /// Row-major, outermost first; it is written the other way round.
    pub shape: Vec<usize>,
    /// Number format.
    pub dtype: Dtype,
    /// Packed numbers.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// Packs `values`. `dtype` is F32, F16, BF16, Q8_0 or Q4_0.
    ///
    /// # Errors
    /// [`WeightsError::BlockLength`] if the format is another one, or the values are not whole blocks.
    pub fn encode(name: &str, shape: &[usize], dtype: Dtype, values: &[f32]) -> Result<Self, WeightsError> {
        let whole = shape.iter().product::<usize>() == values.len();
        let bytes = encode::encode(dtype, values).filter(|_| whole);
        Ok(Self {
            name: name.to_owned(),
            shape: shape.to_vec(),
            dtype,
            bytes: bytes.ok_or(WeightsError::BlockLength {
                dtype,
                bytes: 0,
                values: values.len(),
            })?,
        })
    }
}

/// Writes a file. `general.alignment` among the metadata is heeded; nothing else is added or checked.
///
/// # Errors
/// [`WeightsError::Io`].
pub fn write_gguf(path: &Path, metadata: &[(String, Meta)], tensors: &[Tensor]) -> Result<(), WeightsError> {
    std::fs::write(path, to_bytes(metadata, tensors)).map_err(|source| WeightsError::Io {
        path: path.to_owned(),
        source,
    })
}

/// The bytes of the file that [`write_gguf`] writes.
pub fn to_bytes(metadata: &[(String, Meta)], tensors: &[Tensor]) -> Vec<u8> {
    let alignment = metadata.iter().find_map(|(key, value)| match value {
        Meta::U32(n) if key == "general.alignment" && *n > 0 => Some(*n as usize),
        _ => None,
    });
    let alignment = alignment.unwrap_or(read::ALIGNMENT as usize);
    let mut out = super::MAGIC.to_vec();
    put_u32(&mut out, 3);
    put_u64(&mut out, tensors.len());
    put_u64(&mut out, metadata.len());
    for (key, value) in metadata {
        put_text(&mut out, key);
        put_value(&mut out, value);
    }
    let mut offset = 0usize;
    for tensor in tensors {
        put_text(&mut out, &tensor.name);
        put_u32(&mut out, tensor.shape.len() as u32);
        for dim in tensor.shape.iter().rev() {
            put_u64(&mut out, *dim);
        }
        // A number that no format has, for one that GGUF cannot hold.
        let number = ggml_type::number(tensor.dtype).unwrap_or(u32::MAX);
        put_u32(&mut out, number);
        put_u64(&mut out, offset);
        offset = (offset + tensor.bytes.len()).next_multiple_of(alignment);
    }
    for tensor in tensors {
        out.resize(out.len().next_multiple_of(alignment), 0);
        out.extend_from_slice(&tensor.bytes);
    }
    out
}

fn put_u32(out: &mut Vec<u8>, n: u32) {
    out.extend(n.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, n: usize) {
    out.extend((n as u64).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_u64(out, text.len());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Meta) {
    let kind = |out: &mut Vec<u8>, kind: u32| put_u32(out, kind);
    let list = |out: &mut Vec<u8>, kind: u32, length: usize| {
        put_u32(out, 9);
        put_u32(out, kind);
        put_u64(out, length);
    };
    match value {
        Meta::U32(n) => {
            kind(out, 4);
            put_u32(out, *n);
        }
        Meta::I32(n) => {
            kind(out, 5);
            out.extend(n.to_le_bytes());
        }
        Meta::F32(x) => {
            kind(out, 6);
            out.extend(x.to_le_bytes());
        }
        Meta::Bool(b) => {
            kind(out, 7);
            out.push(u8::from(*b));
        }
        Meta::Text(text) => {
            kind(out, 8);
            put_text(out, text);
        }
        Meta::U64(n) => {
            kind(out, 10);
            out.extend(n.to_le_bytes());
        }
        Meta::U32s(all) => {
            list(out, 4, all.len());
            out.extend(all.iter().flat_map(|n| n.to_le_bytes()));
        }
        Meta::I32s(all) => {
            list(out, 5, all.len());
            out.extend(all.iter().flat_map(|n| n.to_le_bytes()));
        }
        Meta::F32s(all) => {
            list(out, 6, all.len());
            out.extend(all.iter().flat_map(|x| x.to_le_bytes()));
        }
        Meta::Bools(all) => {
            list(out, 7, all.len());
            out.extend(all.iter().map(|b| u8::from(*b)));
        }
        Meta::Texts(all) => {
            list(out, 8, all.len());
            all.iter().for_each(|text| put_text(out, text));
        }
    }
}
