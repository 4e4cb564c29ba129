//! What a kernel must know of a codec to read its planes itself, as plain data.

/// How the planes of a codec hold vectors of numbers: a plane of codes, then scales, then zero points, as far as it has
/// them. A number is `code * scale`, or `code * scale + zero point`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The plane of codes, `[slots, heads, codes of a vector]`.
    pub code: Code,
    /// The planes after it.
    pub scales: Scales,
    /// Whether a vector is multiplied by [`hadamard`](super::hadamard)'s matrix before it is packed.
    pub rotate: bool,
}

/// What a code means, before it is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// fp8 with 4 bits of exponent, without infinities.
    E4m3,
    /// fp8 with 5 bits of exponent: the upper half of a binary16.
    E5m2,
    /// Whole numbers, the lowest bits of a byte first; a vector ends at a byte.
    Int {
        /// 8, 4 or 2.
        bits: u32,
        /// Whether there are zero points. If not, the code in the middle, `2^(bits - 1)`, is taken off.
        zero_points: bool,
    },
}

/// Which numbers share a scale. Scales and zero points have the same shape; their planes say in which float format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// There are none.
    None,
    /// So many neighbours in a vector, or all of it: `[slots, heads, dim / group]`.
    Along(Option<usize>),
    /// One channel of so many rows: `[slots / rows, heads, dim]`.
    Across(usize),
}

impl Code {
    /// Bits of a code.
    pub fn bits(self) -> u32 {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::E4m3 | Self::E5m2 => 8,
            Self::Int { bits, .. } => bits,
        }
    }

    /// A number format by itself.
    pub(super) fn plain(self) -> Packing {
        Packing {
            code: self,
            scales: Scales::None,
            rotate: false,
        }
    }
}
