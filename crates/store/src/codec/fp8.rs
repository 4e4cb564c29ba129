//! fp8: 8-bit floating point, e4m3 and e5m2 of the OCP specification (Micikevicius et al. 2022), with one scale
//! for each head of a row, or for each group.
//!
//! A group is divided by `scale = max|x| / largest` when it is written, and multiplied by it when it is read; nothing
//! saturates. With `scale = "none"` numbers are stored as they are, and saturate at 448 or 57,344.
//!
//! **Bound**: `|x - x^| <= max(|x| * 2^-(m+1), scale * 2^-(bias+m))` with m bits of mantissa: half a unit in the last
//! place, and half the distance of the subnormals. It holds to the rounding of f32.

use super::blocks::{Blocks, Quantiser};
use super::int::ROUND;
use super::scale::Scale;
use super::{Code, Codec, Family, Settings};

const OPTIONS: &[&str] = &["group", "rotate", "scale"];

/// 4 bits of exponent, 3 of mantissa; largest number 448; no infinities ("e4m3fn").
pub(super) const E4M3: Family = Family {
    name: "fp8_e4m3",
    options: OPTIONS,
    make: |settings| {
        let format = Mini {
            mantissa: 3,
            bias: 7,
            last: 0x7E,
            largest: 448.0,
            nan: 0x7F,
        };
        make(format, settings)
    },
};

/// 5 bits of exponent, 2 of mantissa; largest number 57,344: the upper half of an f16.
pub(super) const E5M2: Family = Family {
    name: "fp8_e5m2",
    options: OPTIONS,
    make: |settings| {
        let format = Mini {
            mantissa: 2,
            bias: 15,
            last: 0x7B,
            largest: 57_344.0,
            nan: 0x7E,
        };
        make(format, settings)
    },
};

fn make(format: Mini, settings: &mut Settings<'_>) -> Result<Box<dyn Codec>, String> {
    let scale = match settings.word("scale", "f16", &["none", "f16", "f32"])? {
        "none" => None,
        "f32" => Some(Scale::F32),
        _ => Some(Scale::F16),
    };
    let group = settings.count_if_any("group")?;
    if scale.is_none() && group.is_some() {
        return Err("group has no effect with scale = \"none\"; leave it out".into());
    }
    let rotate = settings.flag("rotate")?;
    Ok(Box::new(Blocks {
        name: settings.label(),
        quantiser: Fp8 {
            table: std::array::from_fn(|code| format.decode(code as u8)),
            format,
            scale,
        },
        group,
        rotate,
    }))
}

/// A floating-point format of 8 bits: sign, exponent, mantissa.
#[derive(Clone, Copy)]
struct Mini {
    /// Bits of mantissa.
    mantissa: u32,
    bias: i32,
    /// Code of the largest number.
    last: u8,
    largest: f32,
    /// A code that is not a number. All codes from here on are none, and those between are infinite.
    nan: u8,
}

impl Mini {
    fn decode(self, code: u8) -> f32 {
        let (sign, code) = (if code & 0x80 == 0 { 1.0 } else { -1.0 }, code & 0x7F);
        let steps = (1 << self.mantissa) as f32;
        let (exponent, mantissa) = (
            i32::from(code >> self.mantissa),
            f32::from(code & ((1 << self.mantissa) - 1)),
        );
        sign * match () {
            () if code == self.last + 1 && self.has_infinity() => f32::INFINITY,
            () if code > self.last => f32::NAN,
            () if exponent == 0 => mantissa / steps * power(1 - self.bias),
            () => (1.0 + mantissa / steps) * power(exponent - self.bias),
        }
    }

    fn has_infinity(self) -> bool {
        self.last + 1 < self.nan
    }

    /// Half the distance of the subnormal numbers.
    fn half_step(self) -> f32 {
        power(-self.bias - self.mantissa as i32)
    }

    /// The nearest code, ties to even; the largest number for what is beyond it.
    fn encode(self, x: f32) -> u8 {
        let sign = if x.is_sign_negative() { 0x80 } else { 0 };
        let x = x.abs();
        if x.is_nan() {
            return sign | self.nan;
        }
        if x >= self.largest {
            return sign | self.last;
        }
        if x < power(1 - self.bias) {
            // Rounding up from the last subnormal gives the code of the first normal number.
            return sign | ((x / (2.0 * self.half_step()) + ROUND) - ROUND) as u8;
        }
        // Round off the low bits of the f32 in one addition; a carry goes into the exponent, where it belongs.
        let dropped = 23 - self.mantissa;
        let bits = x.to_bits();
        let odd = bits >> dropped & 1;
        let rounded = (bits + (1 << (dropped - 1)) - 1 + odd) >> dropped;
        let code = rounded - ((127 - self.bias as u32) << self.mantissa);
        sign | (code as u8).min(self.last)
    }
}

/// 2^exponent, for normal f32 numbers.
fn power(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

struct Fp8 {
    format: Mini,
    scale: Option<Scale>,
    table: [f32; 256],
}

impl Quantiser for Fp8 {
    fn code(&self) -> Code {
        match self.format.mantissa {
            3 => Code::E4m3,
            _ => Code::E5m2,
        }
    }

    fn scale(&self) -> Option<Scale> {
        self.scale
    }

    fn zero_points(&self) -> bool {
        false
    }

    fn encode(&self, group: &[f32], codes: &mut [u8]) -> (f32, f32) {
        let not_finite = |x: &f32| if x.is_finite() { *x } else { f32::NAN };
        let Some(stored) = self.scale else {
            let pairs = codes.iter_mut().zip(group);
            pairs.for_each(|(code, x)| *code = self.format.encode(not_finite(x)));
            return (1.0, 0.0);
        };
        if !group.iter().all(|x| x.is_finite()) {
            codes.fill(0x38);
            return (f32::NAN, 0.0);
        }
        let max = group.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
        let scale = match max {
            0.0 => 0.0,
            // The quotient may be too small for an f32.
            _ => stored.above((max / self.format.largest).max(f32::MIN_POSITIVE)),
        };
        for (code, &x) in codes.iter_mut().zip(group) {
            *code = match scale {
                0.0 => 0,
                _ => self.format.encode(x / scale),
            };
        }
        (scale, 0.0)
    }

    fn decode(&self, codes: &[u8], scale: f32, _zero: f32, out: &mut [f32]) {
        out.iter_mut()
            .zip(codes)
            .for_each(|(x, &code)| *x = self.table[usize::from(code)] * scale);
    }

    fn max_error(&self, max_abs: f32) -> f32 {
        let scale = match self.scale {
            None if max_abs > self.format.largest => return f32::INFINITY,
            None => 1.0,
            Some(stored) => {
                let scale = max_abs / self.format.largest;
                if scale > stored.limit() {
                    return f32::INFINITY;
                }
                scale + stored.slack(scale)
            }
        };
        let relative = 0.5_f32.powi(self.format.mantissa as i32 + 1) + 2.0 * f32::EPSILON;
        (max_abs * relative).max(scale * self.format.half_step())
    }
}

#[cfg(test)]
mod tests;
