//! Scales and zero points: one number a group, stored as f16 or f32, rounded to the side that keeps a codec's
//! promise.

use super::host;
use crate::Plane;
use burn::tensor::{DType, Device};
use half::f16;

/// The number format of scales and zero points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// 2 bytes; numbers beyond 65,504 saturate.
    F16,
    /// 4 bytes.
    F32,
}

impl Scale {
    pub fn dtype(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::F32 => DType::F32,
        }
    }

    pub fn bits(self) -> u32 {
        8 * self.dtype().size() as u32
    }

    /// The largest number that is kept. The f32 limit leaves room for the sums that decoding makes.
    pub fn limit(self) -> f32 {
        match self {
            Self::F16 => f16::MAX.to_f32(),
            Self::F32 => f32::MAX / 4.0,
        }
    }

    /// How much larger than `x` (at least 0) the stored number may be.
    pub fn slack(self, x: f32) -> f32 {
        match self {
            Self::F16 => x / 1024.0 + f16::from_bits(1).to_f32(),
            Self::F32 => x * f32::EPSILON + f32::MIN_POSITIVE,
        }
    }

    /// The smallest stored number that is not below `x`, for 0 <= x; [`limit`](Self::limit) at most. Subnormal f32
    /// numbers are left out, because a division by them is not exact enough.
    pub fn above(self, x: f32) -> f32 {
        match self {
            Self::F32 if x == 0.0 => x,
            Self::F32 => x.max(f32::MIN_POSITIVE),
            Self::F16 => {
                let near = f16::from_f32(x.min(self.limit()));
                match near.to_f32() < x.min(self.limit()) {
                    true => f16::from_bits(near.to_bits() + 1).to_f32(),
                    false => near.to_f32(),
                }
            }
        }
    }

    /// The largest stored number that is not above `x`; minus [`limit`](Self::limit) at least.
    pub fn below(self, x: f32) -> f32 {
        match self {
            Self::F32 => x,
            Self::F16 if x < 0.0 => -self.above(-x),
            Self::F16 => {
                let near = f16::from_f32(x);
                match near.to_f32() > x {
                    true => f16::from_bits(near.to_bits() - 1).to_f32(),
                    false => near.to_f32(),
                }
            }
        }
    }

    /// A plane of numbers that this format holds exactly.
    pub fn plane(self, numbers: Vec<f32>, shape: [usize; 3], device: &Device) -> Plane {
        Plane::Float(match self {
            Self::F16 => {
                let numbers: Vec<f16> = numbers.into_iter().map(f16::from_f32).collect();
                host::tensor(numbers, shape, device)
            }
            Self::F32 => host::tensor(numbers, shape, device),
        })
    }
}
