//! f32 packed for the writer of tests: plain formats, `Q8_0` and `Q4_0`.

use half::{bf16, f16};

use crate::Dtype;

/// The bytes of whole blocks, `None` for a format that is not written here or values that are not whole
/// blocks.
pub(super) fn encode(dtype: Dtype, values: &[f32]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(dtype.bytes(values.len())?);
    match dtype {
        Dtype::F32 => bytes.extend(values.iter().flat_map(|x| x.to_le_bytes())),
        Dtype::F16 => bytes.extend(values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes())),
        Dtype::BF16 => bytes.extend(values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes())),
        Dtype::Q8_0 => values.as_chunks().0.iter().for_each(|v| q8_0(v, &mut bytes)),
        Dtype::Q4_0 => values.as_chunks().0.iter().for_each(|v| q4_0(v, &mut bytes)),
        _ => return None,
    }
    Some(bytes)
}

/// The greatest magnitude becomes 127.
fn q8_0(values: &[f32; 32], bytes: &mut Vec<u8>) {
    let d = values.iter().fold(0.0f32, |m, x| m.max(x.abs())) / 127.0;
    bytes.extend(f16::from_f32(d).to_le_bytes());
    let inverse = if d == 0.0 { 0.0 } else { d.recip() };
    bytes.extend(values.iter().map(|x| (x * inverse).round() as i8 as u8));
}

/// The value of greatest magnitude becomes -8, so that the scale carries its sign.
fn q4_0(values: &[f32; 32], bytes: &mut Vec<u8>) {
    let greatest = values
        .iter()
        .fold(0.0f32, |m, x| if x.abs() > m.abs() { *x } else { m });
    let d = greatest / -8.0;
    bytes.extend(f16::from_f32(d).to_le_bytes());
    let inverse = if d == 0.0 { 0.0 } else { d.recip() };
    let quant = |x: f32| (x * inverse + 8.5).clamp(0.0, 15.0) as u8;
    bytes.extend((0..16).map(|i| quant(values[i]) | quant(values[i + 16]) << 4));
}
