//! Block-quantised numbers, unpacked to f32.
//!
//! Formats are those of ggml, little-endian. `d` is a scale and `m` a minimum, both f16; `q` is an unsigned
//! integer of the width in the format's name. In the 32-value formats the low nibbles of the 16 bytes are
//! values 0 to 15 and the high nibbles are values 16 to 31.
//!
//! | format | block | value |
//! |---|---|---|
//! | `Q8_0` | d, 32 x i8 | `d q` |
//! | `Q4_0` | d, 16 bytes | `d (q - 8)` |
//! | `Q4_1` | d, m, 16 bytes | `d q + m` |
//! | `Q5_0` | d, 32 fifth bits, 16 bytes | `d (q - 16)` |
//! | `Q5_1` | d, m, 32 fifth bits, 16 bytes | `d q + m` |
//! | `Q4_K` | d, m, 8 x (scale, min) of 6 bits, 128 bytes | `(d scale) q - (m min)` |
//! | `Q5_K` | d, m, 8 x (scale, min) of 6 bits, 256 fifth bits, 128 bytes | `(d scale) q - (m min)` |
//! | `Q6_K` | 128 bytes, 256 x 2 upper bits, 16 x i8 scale, d | `(d scale) (q - 32)` |

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::{Dtype, WeightsError};

/// Unpacks whole blocks into `out`, in order.
///
/// # Errors
/// [`WeightsError::BlockLength`] unless `bytes` is exactly what `out.len()` values of `dtype` take.
pub fn dequantize(dtype: Dtype, bytes: &[u8], out: &mut [f32]) -> Result<(), WeightsError> {
    if dtype.bytes(out.len()) != Some(bytes.len()) {
        return Err(WeightsError::BlockLength {
            dtype,
            bytes: bytes.len(),
            values: out.len(),
        });
    }
    match dtype {
        Dtype::F64 => each(bytes, out, |b, o: &mut [f32; 1]| {
            o[0] = f64::from_le_bytes(*b) as f32;
        }),
        Dtype::F32 => each(bytes, out, |b, o: &mut [f32; 1]| {
            o[0] = f32::from_le_bytes(*b);
        }),
        Dtype::F16 => f16s(bytes, out),
        Dtype::BF16 => each(bytes, out, |b, o: &mut [f32; 1]| {
            o[0] = bf16::from_le_bytes(*b).to_f32();
        }),
        Dtype::Q8_0 => each(bytes, out, q8_0),
        Dtype::Q4_0 => each(bytes, out, q4_0),
        Dtype::Q4_1 => each(bytes, out, q4_1),
        Dtype::Q5_0 => each(bytes, out, q5_0),
        Dtype::Q5_1 => each(bytes, out, q5_1),
        Dtype::Q4K => each(bytes, out, q4_k),
        Dtype::Q5K => each(bytes, out, q5_k),
        Dtype::Q6K => each(bytes, out, q6_k),
        // `bytes()` above is `None` for these.
        Dtype::Other(_) => {}
    }
    Ok(())
}

/// Calls `unpack` with every block of `B` bytes and its `V` values.
#[inline]
fn each<const B: usize, const V: usize>(bytes: &[u8], out: &mut [f32], unpack: impl Fn(&[u8; B], &mut [f32; V])) {
    let (blocks, _) = bytes.as_chunks::<B>();
    let (values, _) = out.as_chunks_mut::<V>();
    for (block, values) in blocks.iter().zip(values) {
        unpack(block, values);
    }
}

/// By way of an aligned buffer, since the file need not be aligned and the fast conversion wants it.
fn f16s(bytes: &[u8], out: &mut [f32]) {
    let mut buffer = [f16::ZERO; 1024];
    for (bytes, out) in bytes.chunks(2 * buffer.len()).zip(out.chunks_mut(1024)) {
        let halves = &mut buffer[..out.len()];
        for (half, pair) in halves.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *half = f16::from_le_bytes(*pair);
        }
        halves.convert_to_f32_slice(out);
    }
}

/// The f16 at byte `at` of a block.
#[inline]
fn scale<const B: usize>(block: &[u8; B], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

#[inline]
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = scale(block, 0);
    for (x, q) in out.iter_mut().zip(&block[2..]) {
        *x = d * f32::from(*q as i8);
    }
}

/// Both nibbles of 16 bytes: `out[i]` from the low, `out[i + 16]` from the high one of byte `i`.
#[inline]
fn nibbles(bytes: &[u8], out: &mut [f32; 32], value: impl Fn(usize, u8) -> f32) {
    for (i, byte) in bytes.iter().enumerate().take(16) {
        out[i] = value(i, byte & 15);
        out[i + 16] = value(i + 16, byte >> 4);
    }
}

#[inline]
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = scale(block, 0);
    nibbles(&block[2..], out, |_, q| d * (f32::from(q) - 8.0));
}

#[inline]
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (scale(block, 0), scale(block, 2));
    nibbles(&block[4..], out, |_, q| d * f32::from(q) + m);
}

/// Value `i` with its fifth bit, which is bit `i` of the word at byte `at`.
#[inline]
fn fifth<const B: usize>(block: &[u8; B], at: usize) -> impl Fn(usize, u8) -> f32 {
    let bits = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    move |i, q| f32::from(q | ((bits >> i & 1) << 4) as u8)
}

#[inline]
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let (d, q5) = (scale(block, 0), fifth(block, 2));
    nibbles(&block[6..], out, |i, q| d * (q5(i, q) - 16.0));
}

#[inline]
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m, q5) = (scale(block, 0), scale(block, 2), fifth(block, 4));
    nibbles(&block[8..], out, |i, q| d * q5(i, q) + m);
}

/// Scale and minimum of group `j` of eight, 6 bits each. Groups 0 to 3 have theirs in the low six bits of
/// bytes `j` and `j + 4`; groups 4 to 7 have four bits each in byte `j + 4`, and the two upper bits in those
/// that the first groups left over.
#[inline]
fn scale_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (
            packed[j + 4] & 15 | packed[j - 4] >> 6 << 4,
            packed[j + 4] >> 4 | packed[j] >> 6 << 4,
        )
    };
    (f32::from(scale), f32::from(min))
}

/// 32 bytes hold two groups: the low nibbles are the first, the high nibbles the second.
#[inline]
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, m) = (scale(block, 0), scale(block, 2));
    let (scales, quants) = block[4..].split_at(12);
    let groups = out.as_chunks_mut::<32>().0;
    for (j, group) in groups.iter_mut().enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (scale, min) = (d * scale, m * min);
        let shift = 4 * (j % 2);
        for (x, byte) in group.iter_mut().zip(&quants[j / 2 * 32..]) {
            *x = scale * f32::from(byte >> shift & 15) - min;
        }
    }
}

/// As [`q4_k`]; the fifth bit of value `i` of group `j` is bit `j` of byte `i`.
#[inline]
fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, m) = (scale(block, 0), scale(block, 2));
    let (scales, rest) = block[4..].split_at(12);
    let (fifths, quants) = rest.split_at(32);
    let groups = out.as_chunks_mut::<32>().0;
    for (j, group) in groups.iter_mut().enumerate() {
        let (scale, min) = scale_min(scales, j);
        let (scale, min) = (d * scale, m * min);
        let shift = 4 * (j % 2);
        let bytes = quants[j / 2 * 32..].iter().zip(fifths);
        for (x, (byte, fifth)) in group.iter_mut().zip(bytes) {
            *x = scale * f32::from(byte >> shift & 15 | (fifth >> j & 1) << 4) - min;
        }
    }
}

/// Two halves of 128 values, each of four runs of 32. Runs 0 and 1 are the low nibbles of 64 bytes, runs 2
/// and 3 the high ones; the two upper bits of value `i` of run `r` are bits `2 r` of byte `i` of 32.
/// A scale is for 16 values.
#[inline]
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let d = scale(block, 208);
    let runs = out.as_chunks_mut::<32>().0;
    for (r, run) in runs.iter_mut().enumerate() {
        let (half, r) = (r / 4, r % 4);
        let low = &low[64 * half + 32 * (r % 2)..];
        let high = &high[32 * half..];
        let scales = &rest[8 * half + 2 * r..];
        for (i, x) in run.iter_mut().enumerate() {
            let q = low[i] >> (4 * (r / 2)) & 15 | (high[i] >> (2 * r) & 3) << 4;
            let scale = f32::from(scales[i / 16] as i8);
            *x = d * scale * (f32::from(q) - 32.0);
        }
    }
}

#[cfg(test)]
mod tests;
