//! Numbers of 16 bits.

/// The number of an f16, in operations that every processor has for vectors, and without subnormal numbers of f32, which
/// processors are slow with.
///
/// ```
/// assert_eq!(kvlab_cpu::f16_to_f32(0x3c00), 1.0);
/// assert_eq!(kvlab_cpu::f16_to_f32(0x8001), -2.0_f32.powi(-24));
/// ```
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let (sign, size) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    // Exponents differ by 112, and by one more for subnormal numbers, to which that adds 2^-14; what is infinite or none has all
    // bits of the exponent set.
    let normal = f32::from_bits((size << 13) + (112 << 23));
    let subnormal = f32::from_bits((size << 13) + (113 << 23)) - f32::from_bits(113 << 23);
    let number = if size < 0x400 { subnormal } else { normal };
    let none = if size >= 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(number.to_bits() | none | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_are_those_of_the_half_crate() {
        for bits in 0..=u16::MAX {
            let (got, want) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "{bits:#06x}: {got} instead of {want}");
        }
    }
}
