//! Vectors of f32 numbers, of whatever width the processor has. The kernels are written once against [`Simd`].
//!
//! Every function is `unsafe` because of two promises that only the caller can keep: the processor has the
//! instructions, and pointers have room for all lanes, or for as many codes.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
pub mod portable;

/// A loop. It is compiled as a function of its own for each instruction set, by [`Simd::call`].
pub trait Op {
    type Out;

    /// The loop; `#[inline(always)]`, so that it is compiled with the instructions of its caller.
    ///
    /// # Safety
    /// The processor has `S`, and what the loop's own words say.
    unsafe fn run<S: Simd>(self) -> Self::Out;
}

/// Numbers of a row that [`Simd::transpose_f16`] takes.
pub const HALVES: usize = 8;

/// A vector of f32 numbers, and what is done with it.
pub trait Simd: Copy {
    /// The vector.
    type V: Copy;
    /// Numbers in a vector.
    const LANES: usize;
    /// Queries whose products with four rows fit the registers.
    const QUERIES: usize;
    /// Queries whose sums of two vectors or more fit the registers.
    const SUMS: usize;
    /// Registers for sums.
    const REGISTERS: usize;

    /// Runs a loop with these instructions.
    unsafe fn call<O: Op>(op: O) -> O::Out;

    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(from: *const f32) -> Self::V;
    unsafe fn store(to: *mut f32, x: Self::V);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger one; `b` where one of them is not a number.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// `a` where `x < y`, else `b`.
    unsafe fn if_less(x: Self::V, y: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// The nearest whole number, ties to even.
    unsafe fn round(x: Self::V) -> Self::V;
    /// `x * 2^n`, for whole `n` from -127 to 1; 0 where n is -127.
    unsafe fn scale_by_power(x: Self::V, n: Self::V) -> Self::V;
    unsafe fn largest(x: Self::V) -> f32;
    unsafe fn sum(x: Self::V) -> f32;
    /// The sums of four vectors, written side by side.
    unsafe fn sums(x: [Self::V; 4], to: *mut f32);
    /// Writes the transpose of a square of numbers: rows of `from` become columns of `to`.
    unsafe fn transpose(from: &[Self::V], to: *mut f32, stride: usize);
    /// Writes [`HALVES`] f16 numbers of each of as many rows as there are lanes as columns. This one is for eight lanes.
    #[inline(always)]
    unsafe fn transpose_f16(row: impl Fn(usize) -> *const u8, to: *mut f32, stride: usize) {
        debug_assert_eq!(Self::LANES, HALVES);
        // SAFETY: the caller's promise.
        unsafe {
            let mut square = [Self::splat(0.0); HALVES];
            for (i, numbers) in square.iter_mut().enumerate() {
                *numbers = Self::f16(row(i));
            }
            Self::transpose(&square, to, stride);
        }
    }

    /// Numbers from f16, bf16, fp8, and whole numbers from codes of 8, 4 and 2 bits.
    unsafe fn f16(from: *const u8) -> Self::V;
    unsafe fn bf16(from: *const u8) -> Self::V;
    unsafe fn e4m3(from: *const u8) -> Self::V;
    unsafe fn e5m2(from: *const u8) -> Self::V;
    unsafe fn codes8(from: *const u8) -> Self::V;
    unsafe fn codes4(from: *const u8) -> Self::V;
    unsafe fn codes2(from: *const u8) -> Self::V;

    /// Asks for a cache line that will be read soon. Any address is fine.
    unsafe fn prefetch(_: *const u8) {}
}

/// `2^x` for `x <= 1`, with a relative error below 2e-7; 0 below -126.5. Not a number stays so.
#[inline(always)]
pub unsafe fn exp2<S: Simd>(x: S::V) -> S::V {
    // SAFETY: the caller promises the instructions; there are no pointers.
    unsafe {
        let x = S::max(S::splat(-127.0), x);
        let n = S::round(x);
        let f = S::sub(x, n);
        // Degree 6 over [-0.5, 0.5].
        let terms = [
            1.339_887_4e-3,
            9.618_437e-3,
            5.550_332_5e-2,
            2.402_264_8e-1,
            6.931_472e-1,
            1.0,
        ];
        let mut p = S::splat(1.535_336_2e-4);
        for term in terms {
            p = S::fma(p, f, S::splat(term));
        }
        S::scale_by_power(p, n)
    }
}

/// `tanh(x)`, with an absolute error below 2e-7.
#[inline(always)]
pub unsafe fn tanh<S: Simd>(x: S::V) -> S::V {
    // SAFETY: as in `exp2`.
    unsafe {
        let zero = S::splat(0.0);
        let size = S::max(S::sub(zero, x), x);
        // (1 - e) / (1 + e) with e = exp(-2 |x|).
        let e = exp2::<S>(S::mul(size, S::splat(-2.0 * std::f32::consts::LOG2_E)));
        let one = S::splat(1.0);
        let far = S::div(S::sub(one, e), S::add(one, e));
        // The difference cancels where x is small: there, the series.
        let square = S::mul(x, x);
        let mut p = S::splat(62.0 / 2835.0);
        for term in [-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0] {
            p = S::fma(p, square, S::splat(term));
        }
        let near = S::mul(p, size);
        let y = S::if_less(size, S::splat(0.25), near, far);
        S::if_less(x, zero, S::sub(zero, y), y)
    }
}

#[cfg(test)]
mod tests;
