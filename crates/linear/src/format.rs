//! Number formats of packed weights.

use std::fmt;

/// How the numbers of a weight are packed: the formats of GGUF files, and plain floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)]
pub enum Format {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// The upper half of an IEEE single.
    BF16,
    /// 32 values of 4 bits around 8, one scale.
    Q4_0,
    /// 32 values of 4 bits, a scale and a minimum.
    Q4_1,
    /// 32 values of 5 bits around 16, one scale.
    Q5_0,
    /// 32 values of 5 bits, a scale and a minimum.
    Q5_1,
    /// 32 values of 8 bits, one scale.
    Q8_0,
    /// 256 values of 4 bits in eight groups with 6-bit scales and minima.
    Q4_K,
    /// 256 values of 5 bits in eight groups with 6-bit scales and minima.
    Q5_K,
    /// 256 values of 6 bits in sixteen groups with 8-bit scales.
    Q6_K,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 11] = [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
    ];

    /// Values and bytes of a block in a file.
    pub fn block(self) -> (usize, usize) {
        match self {
            Format::F32 => (1, 4),
            Format::F16 | Format::BF16 => (1, 2),
            Format::Q4_0 => (32, 2 + 16),
            Format::Q4_1 => (32, 4 + 16),
            Format::Q5_0 => (32, 2 + 4 + 16),
            Format::Q5_1 => (32, 4 + 4 + 16),
            Format::Q8_0 => (32, 2 + 32),
            Format::Q4_K => (256, 4 + 12 + 128),
            Format::Q5_K => (256, 4 + 12 + 32 + 128),
            Format::Q6_K => (256, 128 + 64 + 16 + 2),
        }
    }

    /// Bytes of a row of `cols` numbers in a file; `None` if they are not whole blocks.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        let (values, bytes) = self.block();
        cols.is_multiple_of(values).then(|| cols / values * bytes)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
