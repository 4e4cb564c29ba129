//! f32, f16 and bf16: a cast, rounding to nearest even.

use super::host::tensor;
use super::{Code, Codec, Family, Packing};
use crate::Plane;
use burn::tensor::{DType, Device, Tensor};
use half::slice::HalfFloatSliceExt;
use kvlab_core::{Format, is_processor};

/// A floating-point format of the device.
#[derive(Clone, Copy)]
pub(super) struct Float {
    name: &'static str,
    dtype: DType,
    /// Unit roundoff: half the distance of 1.0 to the next number.
    roundoff: f32,
    /// The largest number.
    largest: f32,
    /// The smallest one above 0.
    smallest: f32,
}

/// IEEE 754 binary32: exact.
pub(super) const EXACT: Float = Float {
    name: "f32",
    dtype: DType::F32,
    roundoff: 0.0,
    largest: f32::MAX,
    smallest: 0.0,
};

/// [`EXACT`].
pub(super) const F32: Family = Family {
    name: "f32",
    options: &[],
    make: |_| Ok(Box::new(EXACT)),
};

/// IEEE 754 binary16: 11 significant bits, largest number 65,504.
pub(super) const HALF: Float = Float {
    name: "f16",
    dtype: DType::F16,
    roundoff: 1.0 / 2048.0,
    largest: 65_504.0,
    smallest: 6e-8,
};

/// [`HALF`].
pub(super) const F16: Family = Family {
    name: "f16",
    options: &[],
    make: |_| Ok(Box::new(HALF)),
};

/// bfloat16: 8 significant bits, the range of f32.
pub(super) const BF16: Family = Family {
    name: "bf16",
    options: &[],
    make: |_| {
        Ok(Box::new(Float {
            name: "bf16",
            dtype: DType::BF16,
            roundoff: 1.0 / 256.0,
            largest: 3.38e38,
            smallest: 1e-40,
        }))
    },
};

impl Codec for Float {
    fn name(&self) -> &'static str {
        self.name
    }

    fn format(&self, _dim: usize) -> Format {
        Format::plain(self.name, 8 * self.dtype.size() as u32)
    }

    fn max_error(&self, _dim: usize, max_abs: f32) -> f32 {
        match max_abs <= self.largest {
            true => (max_abs * self.roundoff).max(self.smallest),
            false => f32::INFINITY,
        }
    }

    fn check(&self, _parts: &[usize], device: &Device) -> Result<(), String> {
        if device.supports_dtype(self.dtype) {
            return Ok(());
        }
        Err(format!("this device has no {} numbers", self.name))
    }

    fn allocate(&self, shape: [usize; 3], device: &Device) -> Vec<Plane> {
        vec![Plane::Float(Tensor::zeros(shape, (device, self.dtype)))]
    }

    fn encode(&self, rows: Tensor<3>) -> Vec<Plane> {
        if self.dtype == DType::F16 && is_processor(&rows.device()) && rows.dtype() == DType::F32 {
            // Burn's cast goes number by number; a slice is converted by the processor's instruction for it.
            let (shape, device, data) = (rows.dims(), rows.device(), rows.into_data());
            let numbers: &[f32] = data.as_slice().unwrap_or_default();
            let mut halves = vec![half::f16::ZERO; numbers.len()];
            halves.convert_from_f32_slice(numbers);
            return vec![Plane::Float(tensor(halves, shape, &device))];
        }
        vec![Plane::Float(cast(rows, self.dtype))]
    }

    fn decode(&self, planes: &[Plane]) -> Tensor<3> {
        match planes {
            [Plane::Float(t)] => cast(t.clone(), DType::F32),
            _ => unreachable!("this codec allocates and encodes exactly one float plane"),
        }
    }

    fn packing(&self) -> Option<Packing> {
        let code = match self.dtype {
            DType::F32 => Code::F32,
            DType::F16 => Code::F16,
            DType::BF16 => Code::Bf16,
            _ => return None,
        };
        Some(code.plain())
    }
}

fn cast(t: Tensor<3>, dtype: DType) -> Tensor<3> {
    if t.dtype() == dtype { t } else { t.cast(dtype) }
}
