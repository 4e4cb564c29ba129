//! Plain Rust, in arrays of eight that a compiler makes vectors of.

use super::{Op, Simd};
use kvlab_cpu::f16_to_f32;

/// See the module.
#[derive(Clone, Copy)]
pub struct Portable;

const LANES: usize = 8;

type V = [f32; LANES];

#[inline(always)]
fn map(f: impl Fn(usize) -> f32) -> V {
    std::array::from_fn(f)
}

/// The bytes at `from`.
#[inline(always)]
unsafe fn bytes<const N: usize>(from: *const u8) -> [u8; N] {
    // SAFETY: the caller promises N bytes.
    unsafe { from.cast::<[u8; N]>().read_unaligned() }
}

// SAFETY of the functions below: pointers have room for eight numbers or codes, as the caller promises.
impl Simd for Portable {
    type V = V;
    const LANES: usize = LANES;
    const QUERIES: usize = 1;
    const SUMS: usize = 1;
    const REGISTERS: usize = 4;

    unsafe fn call<O: Op>(op: O) -> O::Out {
        unsafe { op.run::<Self>() }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> V {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> V {
        unsafe { from.cast::<V>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, x: V) {
        unsafe { to.cast::<V>().write_unaligned(x) }
    }

    #[inline(always)]
    unsafe fn add(a: V, b: V) -> V {
        map(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn sub(a: V, b: V) -> V {
        map(|i| a[i] - b[i])
    }

    #[inline(always)]
    unsafe fn mul(a: V, b: V) -> V {
        map(|i| a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn div(a: V, b: V) -> V {
        map(|i| a[i] / b[i])
    }

    #[inline(always)]
    unsafe fn fma(a: V, b: V, c: V) -> V {
        map(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    unsafe fn max(a: V, b: V) -> V {
        map(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    unsafe fn if_less(x: V, y: V, a: V, b: V) -> V {
        map(|i| if x[i] < y[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    unsafe fn round(x: V) -> V {
        // For numbers below 2^22, and without a call on processors that have no instruction for it.
        const ROUND: f32 = 12_582_912.0;
        map(|i| (x[i] + ROUND) - ROUND)
    }

    #[inline(always)]
    unsafe fn scale_by_power(x: V, n: V) -> V {
        map(|i| {
            // A cast that saturates, so that what is not a number does no harm; its product stays as it is.
            x[i] * f32::from_bits(((n[i] as i32 + 127) as u32) << 23)
        })
    }

    #[inline(always)]
    unsafe fn largest(x: V) -> f32 {
        x.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    unsafe fn sum(x: V) -> f32 {
        let four = [x[0] + x[4], x[1] + x[5], x[2] + x[6], x[3] + x[7]];
        (four[0] + four[2]) + (four[1] + four[3])
    }

    #[inline(always)]
    unsafe fn sums(x: [V; 4], to: *mut f32) {
        for (i, x) in x.into_iter().enumerate() {
            unsafe { to.add(i).write(Self::sum(x)) };
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: &[V], to: *mut f32, stride: usize) {
        let column = |i: usize| map(|j| from[j][i]);
        for (i, column) in (0..LANES).map(column).enumerate() {
            unsafe { Self::store(to.add(i * stride), column) };
        }
    }

    #[inline(always)]
    unsafe fn f16(from: *const u8) -> V {
        let b: [u8; 2 * LANES] = unsafe { bytes(from) };
        map(|i| f16_to_f32(u16::from_le_bytes([b[2 * i], b[2 * i + 1]])))
    }

    #[inline(always)]
    unsafe fn bf16(from: *const u8) -> V {
        let b: [u8; 2 * LANES] = unsafe { bytes(from) };
        map(|i| f32::from_bits(u32::from_le_bytes([0, 0, b[2 * i], b[2 * i + 1]])))
    }

    #[inline(always)]
    unsafe fn e4m3(from: *const u8) -> V {
        let b: [u8; LANES] = unsafe { bytes(from) };
        map(|i| {
            let code = u16::from(b[i]);
            // The same bits in an f16, whose exponent counts from another number.
            let number = f16_to_f32((code & 0x80) << 8 | (code & 0x7F) << 7) * 256.0;
            if code & 0x7F == 0x7F { f32::NAN } else { number }
        })
    }

    #[inline(always)]
    unsafe fn e5m2(from: *const u8) -> V {
        let b: [u8; LANES] = unsafe { bytes(from) };
        map(|i| f16_to_f32(u16::from(b[i]) << 8))
    }

    #[inline(always)]
    unsafe fn codes8(from: *const u8) -> V {
        let b: [u8; LANES] = unsafe { bytes(from) };
        map(|i| f32::from(b[i]))
    }

    #[inline(always)]
    unsafe fn codes4(from: *const u8) -> V {
        let b: [u8; LANES / 2] = unsafe { bytes(from) };
        map(|i| f32::from(b[i / 2] >> (4 * (i % 2)) & 15))
    }

    #[inline(always)]
    unsafe fn codes2(from: *const u8) -> V {
        let b: [u8; LANES / 4] = unsafe { bytes(from) };
        map(|i| f32::from(b[i / 4] >> (2 * (i % 4)) & 3))
    }
}
