//! Metadata values of a GGUF file, and arrays that stay in the file until somebody asks for them.

use std::path::Path;

use super::cursor::Cursor;
use crate::WeightsError;

/// Arrays of arrays deeper than this are refused.
const MAX_DEPTH: u32 = 4;

/// A metadata value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Text(&'a str),
    List(List),
}

/// An array, left in the file: `length` elements of type `kind`, the first at byte `at`. All of it is
/// inside the file, and its strings are UTF-8.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct List {
    pub(super) kind: u32,
    pub(super) length: u64,
    pub(super) at: usize,
}

pub(super) fn value<'a>(cursor: &mut Cursor<'a>, kind: u32, key: &str) -> Result<Value<'a>, WeightsError> {
    Ok(match kind {
        0 => Value::Unsigned(cursor.u8(key)?.into()),
        1 => Value::Signed((cursor.u8(key)? as i8).into()),
        2 => Value::Unsigned(cursor.u16(key)?.into()),
        3 => Value::Signed((cursor.u16(key)? as i16).into()),
        4 => Value::Unsigned(cursor.u32(key)?.into()),
        5 => Value::Signed((cursor.u32(key)? as i32).into()),
        6 => Value::F32(f32::from_bits(cursor.u32(key)?)),
        7 => {
            let at = cursor.at();
            match cursor.u8(key)? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                other => {
                    return Err(cursor.damaged(at, format!("{key:?} is a bool of value {other}")));
                }
            }
        }
        8 => Value::Text(cursor.text(key)?),
        9 => Value::List(list(cursor, key, 0)?),
        10 => Value::Unsigned(cursor.u64(key)?),
        11 => Value::Signed(cursor.u64(key)? as i64),
        12 => Value::F64(f64::from_bits(cursor.u64(key)?)),
        other => {
            let at = cursor.at().saturating_sub(4);
            return Err(cursor.damaged(at, format!("{key:?} has the unknown type {other}")));
        }
    })
}

/// Walks over an array, and checks that all of it is there.
fn list(cursor: &mut Cursor<'_>, key: &str, depth: u32) -> Result<List, WeightsError> {
    let start = cursor.at();
    let kind = cursor.u32(key)?;
    let length = cursor.u64(key)?;
    let at = cursor.at();
    let least: u64 = match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        8 | 10..=12 => 8,
        9 => 12,
        other => {
            return Err(cursor.damaged(start, format!("{key:?} is an array of the unknown type {other}")));
        }
    };
    cursor.check_count(start, "array elements", length, least)?;
    match kind {
        8 => {
            for _ in 0..length {
                cursor.text(key)?;
            }
        }
        9 if depth + 1 >= MAX_DEPTH => {
            return Err(cursor.damaged(start, format!("{key:?} nests arrays more than {MAX_DEPTH} deep")));
        }
        9 => {
            for _ in 0..length {
                list(cursor, key, depth + 1)?;
            }
        }
        _ => {
            // Below the bytes that are left, by the check above.
            cursor.take(length * least, key)?;
        }
    }
    Ok(List { kind, length, at })
}

/// The elements of a list, read again from the file. Lists in lists come as lists.
pub(super) fn elements<'a>(
    path: &'a Path,
    bytes: &'a [u8],
    found: List,
) -> impl Iterator<Item = Result<Value<'a>, WeightsError>> {
    let mut cursor = Cursor::new(path, bytes, found.at);
    (0..found.length).map(move |_| value(&mut cursor, found.kind, "an array element"))
}
