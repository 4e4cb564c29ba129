//! The table of tensors in a GGUF header, checked against the size of the file.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use super::cursor::Cursor;
use super::ggml_type;
use crate::{Dtype, WeightsError};

/// ggml tensors have no more dimensions than this.
const MAX_DIMS: u32 = 4;

/// A tensor as the file describes it.
#[derive(Debug, Clone)]
pub(super) struct RawTensor<'a> {
    pub(super) name: &'a str,
    /// Row-major, outermost first: the reverse of the order in the file.
    pub(super) shape: Vec<usize>,
    pub(super) dtype: Dtype,
    /// Bytes from the start of the file. Inside it.
    pub(super) range: Range<usize>,
}

/// A tensor of the table: its bytes, and how far into the data they begin.
pub(super) struct Described<'a> {
    name: &'a str,
    shape: Vec<usize>,
    dtype: Dtype,
    size: u64,
    offset: u64,
    offset_at: usize,
}

pub(super) fn described<'a>(path: &Path, cursor: &mut Cursor<'a>) -> Result<Described<'a>, WeightsError> {
    let name = cursor.text("a tensor name")?;
    let bad = |problem: String| WeightsError::BadTensor {
        path: path.to_owned(),
        tensor: name.to_owned(),
        problem,
    };
    let dims = cursor.u32("a dimension count")?;
    if !(1..=MAX_DIMS).contains(&dims) {
        return Err(bad(format!("{dims} dimensions; it must have 1 to {MAX_DIMS}")));
    }
    let mut shape = Vec::with_capacity(dims as usize);
    for _ in 0..dims {
        let dim = cursor.u64("a dimension")?;
        shape.push(usize::try_from(dim).map_err(|_| bad(format!("a dimension of {dim}")))?);
    }
    shape.reverse();
    let number = cursor.u32("a tensor type")?;
    let dtype = ggml_type::dtype(number).map_err(|dtype| WeightsError::UnsupportedDtype {
        path: path.to_owned(),
        tensor: name.to_owned(),
        dtype,
        known: ggml_type::readable(),
    })?;
    if shape.contains(&0) {
        return Err(bad(format!("shape {shape:?} has a dimension of 0")));
    }
    let row = shape.last().copied().unwrap_or(0);
    let row_bytes = dtype.bytes(row).ok_or_else(|| {
        let block = dtype.block().map_or(1, |(values, _)| values);
        bad(format!(
            "rows of {row} values are not whole blocks of {block} ({dtype})"
        ))
    })?;
    let rows = shape[..shape.len() - 1].iter();
    let size = rows
        .copied()
        .try_fold(row_bytes, usize::checked_mul)
        .ok_or_else(|| bad(format!("shape {shape:?} is beyond any file")))?;
    let offset_at = cursor.at();
    Ok(Described {
        name,
        shape,
        dtype,
        size: size as u64,
        offset: cursor.u64("a tensor offset")?,
        offset_at,
    })
}

/// Gives every tensor its bytes.
pub(super) fn place<'a>(
    path: &Path,
    tensors: Vec<Described<'a>>,
    data_start: u64,
    alignment: u64,
    file_bytes: u64,
) -> Result<Vec<RawTensor<'a>>, WeightsError> {
    let mut seen = HashSet::new();
    let mut placed = Vec::with_capacity(tensors.len());
    for t in tensors {
        if !seen.insert(t.name) {
            return Err(WeightsError::DuplicateTensor {
                path: path.to_owned(),
                tensor: t.name.to_owned(),
            });
        }
        let damaged = |problem: String| WeightsError::Damaged {
            path: path.to_owned(),
            offset: t.offset_at as u64,
            problem: format!("tensor {:?}: {problem}", t.name),
        };
        if !t.offset.is_multiple_of(alignment) {
            return Err(damaged(format!(
                "offset {} is no multiple of the alignment {alignment}",
                t.offset
            )));
        }
        let start = data_start.checked_add(t.offset);
        let range = start.and_then(|start| Some(start..start.checked_add(t.size)?));
        let range = range.filter(|range| range.end <= file_bytes);
        let Some(range) = range else {
            return Err(damaged(format!(
                "{} bytes at offset {} of the data, which begins at byte {data_start}, are beyond the end of the file ({file_bytes} bytes); it is cut: fetch it again",
                t.size, t.offset
            )));
        };
        placed.push(RawTensor {
            name: t.name,
            shape: t.shape,
            dtype: t.dtype,
            range: range.start as usize..range.end as usize,
        });
    }
    Ok(placed)
}
