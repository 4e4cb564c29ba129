//! Eight numbers: AVX2 with FMA and F16C.

use super::{Op, Simd};
use std::arch::x86_64::*;

/// See the module.
#[derive(Clone, Copy)]
pub struct Avx2;

// SAFETY of the functions below: the caller promises AVX2, FMA and F16C, and that pointers have room for eight numbers
// or codes.
impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const QUERIES: usize = 3;
    const SUMS: usize = 6;
    const REGISTERS: usize = 12;

    unsafe fn call<O: Op>(op: O) -> O::Out {
        #[target_feature(enable = "avx2,fma,f16c")]
        unsafe fn compiled<O: Op>(op: O) -> O::Out {
            unsafe { op.run::<Avx2>() }
        }
        unsafe { compiled(op) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m256) {
        unsafe { _mm256_storeu_ps(to, x) }
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn if_less(x: __m256, y: __m256, a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_blendv_ps(b, a, _mm256_cmp_ps::<_CMP_LT_OQ>(x, y)) }
    }

    #[inline(always)]
    unsafe fn round(x: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x) }
    }

    #[inline(always)]
    unsafe fn scale_by_power(x: __m256, n: __m256) -> __m256 {
        unsafe {
            let n = _mm256_cvtps_epi32(n);
            let power = _mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127)));
            _mm256_mul_ps(x, _mm256_castsi256_ps(power))
        }
    }

    #[inline(always)]
    unsafe fn largest(x: __m256) -> f32 {
        unsafe {
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }

    #[inline(always)]
    unsafe fn sum(x: __m256) -> f32 {
        unsafe {
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }

    #[inline(always)]
    unsafe fn sums([a, b, c, d]: [__m256; 4], to: *mut f32) {
        unsafe {
            let halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
            let sums = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
            _mm_storeu_ps(to, sums);
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: &[__m256], to: *mut f32, stride: usize) {
        unsafe {
            let mut t = [_mm256_setzero_pd(); 8];
            for i in 0..4 {
                let (a, b) = (from[2 * i], from[2 * i + 1]);
                t[2 * i] = _mm256_castps_pd(_mm256_unpacklo_ps(a, b));
                t[2 * i + 1] = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
            }
            let mut u = [_mm256_setzero_ps(); 8];
            for i in 0..2 {
                let (a, b, c, d) = (t[4 * i], t[4 * i + 1], t[4 * i + 2], t[4 * i + 3]);
                u[4 * i] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
                u[4 * i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
                u[4 * i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
                u[4 * i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
            }
            for c in 0..4 {
                let low = _mm256_permute2f128_ps::<0x20>(u[c], u[4 + c]);
                let high = _mm256_permute2f128_ps::<0x31>(u[c], u[4 + c]);
                Self::store(to.add(c * stride), low);
                Self::store(to.add((4 + c) * stride), high);
            }
        }
    }

    #[inline(always)]
    unsafe fn f16(from: *const u8) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn bf16(from: *const u8) -> __m256 {
        unsafe {
            let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
        }
    }

    #[inline(always)]
    unsafe fn e4m3(from: *const u8) -> __m256 {
        unsafe {
            let wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(from.cast()));
            let sign = _mm_slli_epi16::<8>(_mm_and_si128(wide, _mm_set1_epi16(0x80)));
            let size = _mm_and_si128(wide, _mm_set1_epi16(0x7F));
            // The same bits in an f16, whose exponent counts from another number.
            let halves = _mm_or_si128(sign, _mm_slli_epi16::<7>(size));
            let numbers = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(256.0));
            // All bits set where there is no number: that is none either.
            let none = _mm256_cvtepi16_epi32(_mm_cmpeq_epi16(size, _mm_set1_epi16(0x7F)));
            _mm256_or_ps(numbers, _mm256_castsi256_ps(none))
        }
    }

    #[inline(always)]
    unsafe fn e5m2(from: *const u8) -> __m256 {
        unsafe {
            let wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(from.cast()));
            _mm256_cvtph_ps(_mm_slli_epi16::<8>(wide))
        }
    }

    #[inline(always)]
    unsafe fn codes8(from: *const u8) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn codes4(from: *const u8) -> __m256 {
        unsafe {
            let words = _mm256_set1_epi32(from.cast::<i32>().read_unaligned());
            let codes = _mm256_srlv_epi32(words, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
            _mm256_cvtepi32_ps(_mm256_and_si256(codes, _mm256_set1_epi32(15)))
        }
    }

    #[inline(always)]
    unsafe fn codes2(from: *const u8) -> __m256 {
        unsafe {
            let words = _mm256_set1_epi32(i32::from(from.cast::<i16>().read_unaligned()));
            let codes = _mm256_srlv_epi32(words, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
            _mm256_cvtepi32_ps(_mm256_and_si256(codes, _mm256_set1_epi32(3)))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(line: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
    }
}
