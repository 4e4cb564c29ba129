//! The header of a GGUF file: metadata and the table of tensors.
//!
//! Nothing is allocated by a number that the file claims: values borrow from the mapped file, arrays stay
//! where they are until somebody asks, and lists grow as entries are really read.

use std::collections::HashMap;
use std::path::Path;

use super::MAGIC;
use super::cursor::Cursor;
use super::table::{RawTensor, described, place};
use super::value::{Value, value};
use crate::WeightsError;

/// Where tensor data is aligned if `general.alignment` does not say otherwise, in bytes.
pub(super) const ALIGNMENT: u64 = 32;
/// A metadata entry is at least a key length, a type and one byte.
const MIN_ENTRY: u64 = 8 + 4 + 1;
/// A tensor is at least a name length, a dimension count, one dimension, a type and an offset.
const MIN_TENSOR: u64 = 8 + 4 + 8 + 4 + 8;

pub(super) struct Header<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) values: HashMap<&'a str, Value<'a>>,
    pub(super) tensors: Vec<RawTensor<'a>>,
    /// Bytes from the start of the file to the tensor data.
    pub(super) data_start: usize,
}

pub(super) fn header<'a>(path: &'a Path, bytes: &'a [u8]) -> Result<Header<'a>, WeightsError> {
    let mut cursor = Cursor::new(path, bytes, 0);
    if cursor.take(4, "the magic number")? != MAGIC {
        return Err(cursor.damaged(0, "it does not begin with \"GGUF\""));
    }
    check_version(&mut cursor)?;
    let tensor_count = cursor.u64("the tensor count")?;
    let value_count = cursor.u64("the metadata count")?;
    cursor.check_count(8, "tensors", tensor_count, MIN_TENSOR)?;
    cursor.check_count(16, "metadata entries", value_count, MIN_ENTRY)?;

    let mut values = HashMap::new();
    for _ in 0..value_count {
        let at = cursor.at();
        let key = cursor.text("a metadata key")?;
        let kind = cursor.u32("a metadata type")?;
        let value = value(&mut cursor, kind, key)?;
        if values.insert(key, value).is_some() {
            return Err(cursor.damaged(at, format!("metadata {key:?} is there twice")));
        }
    }
    let alignment = alignment(path, &values)?;
    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        tensors.push(described(path, &mut cursor)?);
    }
    let data_start = (cursor.at() as u64)
        .checked_next_multiple_of(alignment)
        .ok_or_else(|| cursor.damaged(cursor.at(), format!("alignment {alignment}")))?;
    let tensors = place(path, tensors, data_start, alignment, bytes.len() as u64)?;
    Ok(Header {
        bytes,
        values,
        tensors,
        data_start: usize::try_from(data_start).unwrap_or(bytes.len()),
    })
}

fn check_version(cursor: &mut Cursor<'_>) -> Result<(), WeightsError> {
    let at = cursor.at();
    let version = cursor.u32("the version")?;
    if matches!(version, 2 | 3) {
        return Ok(());
    }
    let swapped = version.swap_bytes();
    Err(cursor.damaged(
        at,
        if matches!(swapped, 1..=3) {
            format!("big-endian GGUF version {swapped}; convert it to little-endian")
        } else {
            format!("GGUF version {version}; versions 2 and 3 can be read")
        },
    ))
}

fn alignment(path: &Path, values: &HashMap<&str, Value<'_>>) -> Result<u64, WeightsError> {
    match values.get("general.alignment") {
        None => Ok(ALIGNMENT),
        Some(Value::Unsigned(n)) if n.is_power_of_two() && *n <= u64::from(u32::MAX) => Ok(*n),
        Some(other) => Err(WeightsError::BadKey {
            path: path.to_owned(),
            key: "general.alignment".into(),
            problem: format!("{other:?}; it must be a power of two"),
        }),
    }
}
