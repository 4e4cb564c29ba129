//! Floats as 16-bit codes: fixed point, with a power of two as the scale of a row's 32 columns.
#![allow(unsafe_code)]

use super::{Source, Unpacked, of_16_bits};
use crate::kernel::float::Columns;
use crate::kernel::vector::Vector;
use crate::layout::{BF16, BLOCK, F16};
use crate::packed::Panel;
use crate::words::PAIRS;

/// The greatest magnitude of a block has a code from `2^UP` to twice that. So a number of 8 bits (bf16) is exact down to a 64th
/// of it and one of 11 bits (f16) down to an 8th; smaller ones are off by at most a 16384th of it.
const UP: i32 = 13;
/// Blocks whose greatest exponent is less are zeros: their scale would not be a normal number.
const TINY: i32 = 27;
/// Bits of an f32 number after its exponent.
const MANTISSA: i32 = 23;

/// # Safety
/// As [`Source::unpack`].
#[inline(always)]
unsafe fn unpack<L: Columns, V: Vector>(
    panel: Panel<'_>,
    block: usize,
    row: usize,
    out: &mut [V],
    stride: usize,
) -> Unpacked<V> {
    assert!(panel.codes.len() >= (block + 1) * L::CODES && out.len() > (PAIRS - 1) * stride);
    // SAFETY: the codes are there.
    unsafe {
        let codes = panel.codes.as_ptr().add(block * L::CODES).cast::<u8>();
        let mut most = V::numbers(0);
        for pair in 0..BLOCK / 2 {
            for column in L::pair::<V>(codes, pair, row) {
                // As integers, since a maximum of floats drops what is no number.
                most = V::greater(most, V::and(V::bits(column), V::numbers(i32::MAX)));
            }
        }
        // The exponent alone: the power of two below. It is infinity where a number is, or is none: so no product is finite.
        let power = V::and(most, V::numbers(0x7f80_0000));
        let enough = V::at_least(power, V::numbers(TINY << MANTISSA));
        let scale = V::times(V::of_bits(power), V::float(1.0 / (1 << UP) as f32));
        // The reciprocal of a power of two has the opposite exponent.
        let up = V::of_bits(V::and(V::sub(V::numbers((254 + UP) << MANTISSA), power), enough));
        for four in 0..BLOCK / 4 {
            let [a, b] = L::pair::<V>(codes, 2 * four, row);
            let [c, d] = L::pair::<V>(codes, 2 * four + 1, row);
            for (i, (first, second)) in [(a, c), (b, d)].into_iter().enumerate() {
                let first = V::nearest(V::times(first, up));
                let second = V::nearest(V::times(second, up));
                out[(2 * four + i) * stride] = V::pairs(first, second);
            }
        }
        Unpacked {
            scales: [V::of_bits(V::and(V::bits(scale), enough)); 2],
            minimum: V::float(0.0),
            begin: [V::numbers(0); 2],
        }
    }
}

macro_rules! source {
    ($layout:ty) => {
        impl<V: Vector> Source<V> for $layout {
            of_16_bits!(V);

            // Codes of activations beside these are [`super::BESIDE_FLOATS`].
            const SCALES: usize = 1;
            const MINIMA: bool = false;

            #[inline(always)]
            unsafe fn unpack(
                panel: Panel<'_>,
                block: usize,
                row: usize,
                codes: &mut [V],
                stride: usize,
            ) -> Unpacked<V> {
                // SAFETY: passed on to the caller.
                unsafe { unpack::<$layout, V>(panel, block, row, codes, stride) }
            }
        }
    };
}

source!(F16);
source!(BF16);
