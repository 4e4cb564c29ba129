//! Where a tensor's numbers lie in the mapped files, and how they become the Hugging Face layout.

use std::borrow::Cow;
use std::ops::Range;

use crate::mapped::MappedFile;
use crate::{Dtype, HostTensor, TensorInfo, WeightsError, blocks};

/// One tensor of an opened model.
pub(crate) struct Entry {
    pub(crate) info: TensorInfo,
    /// The name in the file, for messages.
    pub(crate) stored_as: String,
    pub(crate) source: Source,
}

/// The bytes of a tensor, and what undoes the layout of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    /// As it is.
    Plain { file: usize, range: Range<usize> },
    /// Rows of each head in the order of interleaved rotary embedding (0, half, 1, half + 1 ...), to be
    /// put back into half-split order.
    InterleavedRows {
        file: usize,
        range: Range<usize>,
        heads: usize,
    },
    /// One was added to each number.
    PlusOne { file: usize, range: Range<usize> },
    /// Stored as the transpose of what `info.shape` says.
    Transposed { file: usize, range: Range<usize> },
    /// DeepSeek's `kv_b_proj` in two parts: per head, keys `[latent, nope]` and values `[value, latent]`.
    SplitKvB {
        file: usize,
        key: Range<usize>,
        value: Range<usize>,
        value_dtype: Dtype,
        heads: usize,
        /// Rows of a head that make keys.
        nope: usize,
    },
}

impl Entry {
    pub(crate) fn f32(&self, files: &[MappedFile]) -> Result<HostTensor, WeightsError> {
        let shape = self.info.shape.clone();
        let data = match &self.source {
            Source::Plain { file, range } => self.unpack(files, *file, range)?,
            Source::InterleavedRows { file, range, heads } => {
                let stored = self.unpack(files, *file, range)?;
                let rows = shape.first().copied().unwrap_or(0);
                half_split(&stored, rows, *heads)
            }
            Source::PlusOne { file, range } => {
                let mut data = self.unpack(files, *file, range)?;
                for x in &mut data {
                    *x -= 1.0;
                }
                data
            }
            Source::Transposed { file, range } => {
                let stored = self.unpack(files, *file, range)?;
                let rows = shape.first().copied().unwrap_or(0);
                transpose(&stored, rows)
            }
            Source::SplitKvB { .. } => self.join_kv_b(files)?,
        };
        Ok(HostTensor { shape, data })
    }

    /// Takes its bytes out of the process's memory, until they are asked for again.
    pub(crate) fn release(&self, files: &[MappedFile]) {
        let (file, ranges) = match &self.source {
            Source::Plain { file, range }
            | Source::InterleavedRows { file, range, .. }
            | Source::PlusOne { file, range }
            | Source::Transposed { file, range } => (file, [Some(range), None]),
            Source::SplitKvB { file, key, value, .. } => (file, [Some(key), Some(value)]),
        };
        if let Some(file) = files.get(*file) {
            ranges.into_iter().flatten().for_each(|range| file.release(range));
        }
    }

    /// The packed bytes in the Hugging Face layout, `None` where that needs unpacking.
    pub(crate) fn packed<'a>(&self, files: &'a [MappedFile]) -> Option<Cow<'a, [u8]>> {
        match &self.source {
            Source::Plain { file, range } => {
                let bytes = files.get(*file)?.bytes().get(range.clone())?;
                Some(Cow::Borrowed(bytes))
            }
            Source::InterleavedRows { file, range, heads } => {
                let bytes = files.get(*file)?.bytes().get(range.clone())?;
                let rows = *self.info.shape.first()?;
                Some(Cow::Owned(half_split(bytes, rows, *heads)))
            }
            _ => None,
        }
    }

    fn unpack(&self, files: &[MappedFile], file: usize, range: &Range<usize>) -> Result<Vec<f32>, WeightsError> {
        self.unpack_as(files, file, range, self.info.dtype)
    }

    fn unpack_as(
        &self,
        files: &[MappedFile],
        file: usize,
        range: &Range<usize>,
        dtype: Dtype,
    ) -> Result<Vec<f32>, WeightsError> {
        let bad = |problem: String| WeightsError::BadTensor {
            path: files.get(file).map(|f| f.path.clone()).unwrap_or_default(),
            tensor: self.stored_as.clone(),
            problem,
        };
        let Some((block, block_bytes)) = dtype.block() else {
            return Err(WeightsError::UnsupportedDtype {
                path: files.get(file).map(|f| f.path.clone()).unwrap_or_default(),
                tensor: self.stored_as.clone(),
                dtype: dtype.name().to_owned(),
                known: vec!["F64", "F32", "F16", "BF16"],
            });
        };
        let bytes = files
            .get(file)
            .and_then(|f| f.bytes().get(range.clone()))
            .ok_or_else(|| bad(format!("its bytes {range:?} are beyond the end of the file")))?;
        let mut data = vec![0.0; bytes.len() / block_bytes * block];
        blocks::dequantize(dtype, bytes, &mut data).map_err(|e| bad(e.to_string()))?;
        Ok(data)
    }

    /// `[heads * (nope + value), latent]`, head by head the keys and then the values.
    fn join_kv_b(&self, files: &[MappedFile]) -> Result<Vec<f32>, WeightsError> {
        let Source::SplitKvB {
            file,
            key,
            value,
            value_dtype,
            heads,
            nope,
        } = &self.source
        else {
            return Ok(Vec::new());
        };
        let keys = self.unpack(files, *file, key)?;
        let values = self.unpack_as(files, *file, value, *value_dtype)?;
        let mut data = Vec::with_capacity(keys.len() + values.len());
        let (key_size, value_size) = (keys.len() / heads, values.len() / heads);
        for (key, value) in keys.chunks_exact(key_size).zip(values.chunks_exact(value_size)) {
            data.extend(transpose(key, *nope));
            data.extend_from_slice(value);
        }
        Ok(data)
    }
}

/// Undoes the row order of interleaved rotary embedding: row `2 i + j` of a head becomes row
/// `j * half + i`. Works on numbers and on packed rows alike. `rows` must be a multiple of `2 * heads`, which
/// the reader checked.
fn half_split<T: Copy>(stored: &[T], rows: usize, heads: usize) -> Vec<T> {
    let width = stored.len() / rows;
    let half = rows / heads / 2;
    let mut data = Vec::with_capacity(stored.len());
    for head in stored.chunks_exact(2 * half * width) {
        for j in 0..2 {
            for i in 0..half {
                let row = (2 * i + j) * width;
                data.extend_from_slice(&head[row..row + width]);
            }
        }
    }
    data
}

/// The transpose of a stored matrix, as a matrix of `rows` rows.
pub(crate) fn transpose(stored: &[f32], rows: usize) -> Vec<f32> {
    let columns = stored.len() / rows;
    let mut data = vec![0.0; stored.len()];
    for (row, out) in data.chunks_exact_mut(columns).enumerate() {
        for (column, x) in out.iter_mut().enumerate() {
            *x = stored[column * rows + row];
        }
    }
    data
}
