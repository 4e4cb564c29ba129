//! Number formats of weight files, and the size of their blocks.

use std::fmt;

/// How the numbers of a tensor are stored.
///
/// A format packs its numbers in blocks along a row; the plain ones have blocks of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(non_camel_case_types)]
pub enum Dtype {
    /// IEEE double.
    F64,
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// The upper half of an IEEE single.
    BF16,
    /// 32 values of 8 bits, one scale.
    Q8_0,
    /// 32 values of 4 bits around 8, one scale.
    Q4_0,
    /// 32 values of 4 bits, a scale and a minimum.
    Q4_1,
    /// 32 values of 5 bits around 16, one scale.
    Q5_0,
    /// 32 values of 5 bits, a scale and a minimum.
    Q5_1,
    /// 256 values of 4 bits in eight groups with 6-bit scales and minima.
    Q4K,
    /// 256 values of 5 bits in eight groups with 6-bit scales and minima.
    Q5K,
    /// 256 values of 6 bits in sixteen groups with 8-bit scales.
    Q6K,
    /// A format that is listed and cannot be unpacked, by its name in the file (`I64`, `BOOL`, `F8_E4M3` ...).
    Other(&'static str),
}

impl Dtype {
    /// Every format that can be unpacked.
    pub const READABLE: [Dtype; 12] = [
        Dtype::F64,
        Dtype::F32,
        Dtype::F16,
        Dtype::BF16,
        Dtype::Q8_0,
        Dtype::Q4_0,
        Dtype::Q4_1,
        Dtype::Q5_0,
        Dtype::Q5_1,
        Dtype::Q4K,
        Dtype::Q5K,
        Dtype::Q6K,
    ];

    /// The field's name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::F64 => "F64",
            Dtype::F32 => "F32",
            Dtype::F16 => "F16",
            Dtype::BF16 => "BF16",
            Dtype::Q8_0 => "Q8_0",
            Dtype::Q4_0 => "Q4_0",
            Dtype::Q4_1 => "Q4_1",
            Dtype::Q5_0 => "Q5_0",
            Dtype::Q5_1 => "Q5_1",
            Dtype::Q4K => "Q4_K",
            Dtype::Q5K => "Q5_K",
            Dtype::Q6K => "Q6_K",
            Dtype::Other(name) => name,
        }
    }

    /// `(values, bytes)` of one block. `None` for a format that cannot be unpacked.
    pub fn block(self) -> Option<(usize, usize)> {
        Some(match self {
            Dtype::F64 => (1, 8),
            Dtype::F32 => (1, 4),
            Dtype::F16 | Dtype::BF16 => (1, 2),
            Dtype::Q8_0 => (32, 2 + 32),
            Dtype::Q4_0 => (32, 2 + 16),
            Dtype::Q4_1 => (32, 4 + 16),
            Dtype::Q5_0 => (32, 2 + 4 + 16),
            Dtype::Q5_1 => (32, 4 + 4 + 16),
            Dtype::Q4K => (256, 4 + 12 + 128),
            Dtype::Q5K => (256, 4 + 12 + 32 + 128),
            Dtype::Q6K => (256, 128 + 64 + 16 + 2),
            Dtype::Other(_) => return None,
        })
    }

    /// Bytes of `values` numbers. `None` if they do not fill whole blocks, if the product is beyond
    /// `usize`, or if the format cannot be unpacked.
    pub fn bytes(self, values: usize) -> Option<usize> {
        let (block, bytes) = self.block()?;
        if !values.is_multiple_of(block) {
            return None;
        }
        (values / block).checked_mul(bytes)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
