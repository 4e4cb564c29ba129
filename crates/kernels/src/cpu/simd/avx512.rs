//! Sixteen numbers: AVX-512 F, BW, VL, DQ.

use super::{Op, Simd};
use std::arch::x86_64::*;

/// See the module.
#[derive(Clone, Copy)]
pub struct Avx512;

/// Four sums of every quarter of four vectors, one quarter a 128-bit lane.
#[inline(always)]
unsafe fn quarter_sums(a: __m512, b: __m512, c: __m512, d: __m512) -> __m512 {
    // SAFETY: arithmetic on values, by the instructions that the caller promises.
    unsafe {
        let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
        let low = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
        let high = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
        _mm512_add_ps(low, high)
    }
}

// SAFETY of the functions below: the caller promises AVX-512, and that pointers have room for sixteen numbers or codes.
impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const QUERIES: usize = 6;
    const SUMS: usize = 6;
    const REGISTERS: usize = 24;

    unsafe fn call<O: Op>(op: O) -> O::Out {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
        unsafe fn compiled<O: Op>(op: O) -> O::Out {
            unsafe { op.run::<Avx512>() }
        }
        unsafe { compiled(op) }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m512) {
        unsafe { _mm512_storeu_ps(to, x) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn if_less(x: __m512, y: __m512, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, y), b, a) }
    }

    #[inline(always)]
    unsafe fn round(x: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<0x08>(x) }
    }

    #[inline(always)]
    unsafe fn scale_by_power(x: __m512, n: __m512) -> __m512 {
        unsafe {
            // As elsewhere, nothing is left at the lower end.
            let n = _mm512_cvtps_epi32(n);
            let power = _mm512_slli_epi32::<23>(_mm512_add_epi32(n, _mm512_set1_epi32(127)));
            _mm512_mul_ps(x, _mm512_castsi512_ps(power))
        }
    }

    #[inline(always)]
    unsafe fn largest(x: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(x) }
    }

    #[inline(always)]
    unsafe fn sum(x: __m512) -> f32 {
        unsafe { _mm512_reduce_add_ps(x) }
    }

    #[inline(always)]
    unsafe fn sums([a, b, c, d]: [__m512; 4], to: *mut f32) {
        unsafe {
            let quarters = quarter_sums(a, b, c, d);
            let halves = _mm256_add_ps(_mm512_castps512_ps256(quarters), _mm512_extractf32x8_ps::<1>(quarters));
            let sums = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
            _mm_storeu_ps(to, sums);
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: &[__m512], to: *mut f32, stride: usize) {
        unsafe {
            let mut t = [_mm512_setzero_pd(); 16];
            for i in 0..8 {
                let (a, b) = (from[2 * i], from[2 * i + 1]);
                t[2 * i] = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
                t[2 * i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
            }
            let mut u = [_mm512_setzero_ps(); 16];
            for i in 0..4 {
                let (a, b, c, d) = (t[4 * i], t[4 * i + 1], t[4 * i + 2], t[4 * i + 3]);
                u[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
                u[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
                u[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
                u[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
            }
            for c in 0..4 {
                let low = _mm512_shuffle_f32x4::<0x88>(u[c], u[4 + c]);
                let high = _mm512_shuffle_f32x4::<0xDD>(u[c], u[4 + c]);
                let low2 = _mm512_shuffle_f32x4::<0x88>(u[8 + c], u[12 + c]);
                let high2 = _mm512_shuffle_f32x4::<0xDD>(u[8 + c], u[12 + c]);
                Self::store(to.add(c * stride), _mm512_shuffle_f32x4::<0x88>(low, low2));
                Self::store(to.add((8 + c) * stride), _mm512_shuffle_f32x4::<0xDD>(low, low2));
                Self::store(to.add((4 + c) * stride), _mm512_shuffle_f32x4::<0x88>(high, high2));
                Self::store(to.add((12 + c) * stride), _mm512_shuffle_f32x4::<0xDD>(high, high2));
            }
        }
    }

    #[inline(always)]
    unsafe fn transpose_f16(row: impl Fn(usize) -> *const u8, to: *mut f32, stride: usize) {
        unsafe {
            // Rows 4 l to 4 l + 3 meet in lane l: then four numbers of a column are side by side.
            let mut r = [_mm512_setzero_si512(); 4];
            for (i, r) in r.iter_mut().enumerate() {
                *r = _mm512_castsi128_si512(_mm_loadu_si128(row(i).cast()));
                *r = _mm512_inserti32x4::<1>(*r, _mm_loadu_si128(row(4 + i).cast()));
                *r = _mm512_inserti32x4::<2>(*r, _mm_loadu_si128(row(8 + i).cast()));
                *r = _mm512_inserti32x4::<3>(*r, _mm_loadu_si128(row(12 + i).cast()));
            }
            let low = [_mm512_unpacklo_epi16(r[0], r[1]), _mm512_unpacklo_epi16(r[2], r[3])];
            let high = [_mm512_unpackhi_epi16(r[0], r[1]), _mm512_unpackhi_epi16(r[2], r[3])];
            let pairs = [
                _mm512_unpacklo_epi32(low[0], low[1]),
                _mm512_unpackhi_epi32(low[0], low[1]),
                _mm512_unpacklo_epi32(high[0], high[1]),
                _mm512_unpackhi_epi32(high[0], high[1]),
            ];
            let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
            for (i, pair) in pairs.into_iter().enumerate() {
                let pair = _mm512_permutexvar_epi64(order, pair);
                let to = to.add(2 * i * stride);
                Self::store(to, _mm512_cvtph_ps(_mm512_castsi512_si256(pair)));
                Self::store(to.add(stride), _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(pair)));
            }
        }
    }

    #[inline(always)]
    unsafe fn f16(from: *const u8) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn bf16(from: *const u8) -> __m512 {
        unsafe {
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
        }
    }

    #[inline(always)]
    unsafe fn e4m3(from: *const u8) -> __m512 {
        unsafe {
            let codes = _mm_loadu_si128(from.cast());
            let wide = _mm256_cvtepu8_epi16(codes);
            let sign = _mm256_slli_epi16::<8>(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)));
            let size = _mm256_and_si256(wide, _mm256_set1_epi16(0x7F));
            // The same bits in an f16, whose exponent counts from another number.
            let halves = _mm256_or_si256(sign, _mm256_slli_epi16::<7>(size));
            let numbers = _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256.0));
            let none = _mm256_cmpeq_epi16_mask(size, _mm256_set1_epi16(0x7F));
            _mm512_mask_mov_ps(numbers, none, _mm512_set1_ps(f32::NAN))
        }
    }

    #[inline(always)]
    unsafe fn e5m2(from: *const u8) -> __m512 {
        unsafe {
            let wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(from.cast()));
            _mm512_cvtph_ps(_mm256_slli_epi16::<8>(wide))
        }
    }

    #[inline(always)]
    unsafe fn codes8(from: *const u8) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn codes4(from: *const u8) -> __m512 {
        unsafe {
            let (low, high) = from.cast::<[i32; 2]>().read_unaligned().into();
            let words = _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xFF00, high);
            let shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
            // A look-up that needs no mask, since it looks at four bits.
            let numbers = _mm512_setr_ps(
                0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
            );
            _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shifts), numbers)
        }
    }

    #[inline(always)]
    unsafe fn codes2(from: *const u8) -> __m512 {
        unsafe {
            let words = _mm512_set1_epi32(from.cast::<i32>().read_unaligned());
            let shifts = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let codes = _mm512_and_si512(_mm512_srlv_epi32(words, shifts), _mm512_set1_epi32(3));
            _mm512_cvtepi32_ps(codes)
        }
    }

    #[inline(always)]
    unsafe fn prefetch(line: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) }
    }
}
