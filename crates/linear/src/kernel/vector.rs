//! Vectors of two widths, so that each kernel is written once: 64 bytes (AVX-512), which are all 16 rows of a panel, and 32
//! (AVX2), which are 8 of them.
//!
//! Functions that are generic over these are inlined into one that names the instruction set: in any other, an intrinsic is a call.
#![allow(unsafe_code)]

use crate::layout::PANEL;
use std::arch::x86_64::*;

/// All rows of a panel.
pub(super) type Wide = __m512i;
/// Half of them.
pub(super) type Narrow = __m256i;

/// Most vectors that a panel's rows take: a length cannot be a constant of a trait.
pub(super) const MOST_PARTS: usize = 2;

/// The upper half of a number.
const UPPER: i32 = 0xffff_0000_u32 as i32;

/// A vector of integers. What a function does, it does to all of its numbers.
///
/// # Safety
/// Of all functions: the machine has the instruction set ([`Wide`]: AVX-512 F, BW, VL, DQ and VNNI; [`Narrow`]: AVX2, FMA and
/// F16C), and there is as much memory at an address as there are numbers.
pub(super) trait Vector: Copy + 'static {
    /// As many numbers in f32.
    type Floats: Copy + 'static;
    /// Rows of a panel in a vector.
    const ROWS: usize;
    /// Vectors for all rows of a panel.
    const PARTS: usize = PANEL / Self::ROWS;

    unsafe fn load(at: *const u8) -> Self;
    unsafe fn bytes(byte: i8) -> Self;
    unsafe fn words(word: i16) -> Self;
    unsafe fn numbers(number: i32) -> Self;
    unsafe fn and(a: Self, b: Self) -> Self;
    unsafe fn or(a: Self, b: Self) -> Self;
    /// Shifts words of 16 bits; zeros come in.
    unsafe fn up_1(a: Self) -> Self;
    unsafe fn up_2(a: Self) -> Self;
    unsafe fn up_4(a: Self) -> Self;
    unsafe fn down_1(a: Self) -> Self;
    unsafe fn down_2(a: Self) -> Self;
    unsafe fn down_4(a: Self) -> Self;
    unsafe fn down_8(a: Self) -> Self;
    unsafe fn sub_bytes(a: Self, b: Self) -> Self;
    unsafe fn sub_words(a: Self, b: Self) -> Self;
    unsafe fn add(a: Self, b: Self) -> Self;
    unsafe fn sub(a: Self, b: Self) -> Self;
    unsafe fn greater(a: Self, b: Self) -> Self;
    /// All bits of a number where `a >= b`, none elsewhere.
    unsafe fn at_least(a: Self, b: Self) -> Self;
    /// The lower words of both, those of `a` below.
    unsafe fn pairs(a: Self, b: Self) -> Self;
    unsafe fn numbers_up_8(a: Self) -> Self;
    /// Shifts numbers up, then down with their sign.
    unsafe fn cut(a: Self, up: u32, down: u32) -> Self;

    /// Adds the two products of each pair of words.
    unsafe fn dot_words(sum: Self, codes: Self, x: Self) -> Self;
    /// Adds the four products of bytes, those of `x` without a sign and those of `codes` with one, to what [`Self::sums`] makes
    /// numbers of. With AVX2 that is two words each, which have room for eight times two products of codes from -8 to 7.
    unsafe fn dot_bytes(sum: Self, codes: Self, x: Self) -> Self;
    unsafe fn sums(a: Self) -> Self;
    /// Adds the four products of bytes in all vectors: codes have no sign and are at most `MOST`, `x` has one.
    unsafe fn dot_codes<const MOST: i32>(begin: i32, codes: &[Self], x: &[i32]) -> Self;

    unsafe fn floats(a: Self) -> Self::Floats;
    unsafe fn nearest(floats: Self::Floats) -> Self;
    unsafe fn bits(floats: Self::Floats) -> Self;
    unsafe fn of_bits(a: Self) -> Self::Floats;
    unsafe fn float(number: f32) -> Self::Floats;
    unsafe fn load_floats(at: *const f32) -> Self::Floats;
    unsafe fn store_floats(at: *mut f32, floats: Self::Floats);
    /// `a * b + c`
    unsafe fn fused(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    unsafe fn times(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn minus(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn from_f16(at: *const u8) -> Self::Floats;
    unsafe fn from_u8(at: *const u8) -> Self::Floats;
    unsafe fn from_i8(at: *const u8) -> Self::Floats;
    /// The lower and the upper number of each pair.
    unsafe fn from_bf16(pairs: Self) -> [Self::Floats; 2];
}

/// Functions that are an intrinsic, or two.
macro_rules! functions {
    ($($name:ident$(<const $constant:ident: $kind:ty>)?($($argument:ident: $type:ty),*) $(-> $out:ty)? = $expression:expr;)*) => {
        $(
            #[inline(always)]
            unsafe fn $name$(<const $constant: $kind>)?($($argument: $type),*) $(-> $out)? {
                // SAFETY: passed on to the caller.
                unsafe { $expression }
            }
        )*
    };
}

impl Vector for __m512i {
    type Floats = __m512;
    const ROWS: usize = 16;

    functions! {
        load(at: *const u8) -> Self = _mm512_loadu_si512(at.cast());
        bytes(byte: i8) -> Self = _mm512_set1_epi8(byte);
        words(word: i16) -> Self = _mm512_set1_epi16(word);
        numbers(number: i32) -> Self = _mm512_set1_epi32(number);
        and(a: Self, b: Self) -> Self = _mm512_and_si512(a, b);
        or(a: Self, b: Self) -> Self = _mm512_or_si512(a, b);
        up_1(a: Self) -> Self = _mm512_slli_epi16::<1>(a);
        up_2(a: Self) -> Self = _mm512_slli_epi16::<2>(a);
        up_4(a: Self) -> Self = _mm512_slli_epi16::<4>(a);
        down_1(a: Self) -> Self = _mm512_srli_epi16::<1>(a);
        down_2(a: Self) -> Self = _mm512_srli_epi16::<2>(a);
        down_4(a: Self) -> Self = _mm512_srli_epi16::<4>(a);
        down_8(a: Self) -> Self = _mm512_srli_epi16::<8>(a);
        sub_bytes(a: Self, b: Self) -> Self = _mm512_sub_epi8(a, b);
        sub_words(a: Self, b: Self) -> Self = _mm512_sub_epi16(a, b);
        add(a: Self, b: Self) -> Self = _mm512_add_epi32(a, b);
        sub(a: Self, b: Self) -> Self = _mm512_sub_epi32(a, b);
        greater(a: Self, b: Self) -> Self = _mm512_max_epi32(a, b);
        at_least(a: Self, b: Self) -> Self = _mm512_movm_epi32(_mm512_cmpge_epi32_mask(a, b));
        pairs(a: Self, b: Self) -> Self = _mm512_mask_blend_epi16(0x5555_5555, _mm512_slli_epi32::<16>(b), a);
        numbers_up_8(a: Self) -> Self = _mm512_slli_epi32::<8>(a);
        cut(a: Self, up: u32, down: u32) -> Self =
            _mm512_srav_epi32(_mm512_sllv_epi32(a, _mm512_set1_epi32(up as i32)), _mm512_set1_epi32(down as i32));
        dot_words(sum: Self, codes: Self, x: Self) -> Self = dot_words(sum, codes, x);
        dot_bytes(sum: Self, codes: Self, x: Self) -> Self = dot_bytes(sum, codes, x);
        floats(a: Self) -> __m512 = _mm512_cvtepi32_ps(a);
        nearest(floats: __m512) -> Self = _mm512_cvtps_epi32(floats);
        bits(floats: __m512) -> Self = _mm512_castps_si512(floats);
        of_bits(a: Self) -> __m512 = _mm512_castsi512_ps(a);
        float(number: f32) -> __m512 = _mm512_set1_ps(number);
        load_floats(at: *const f32) -> __m512 = _mm512_loadu_ps(at);
        store_floats(at: *mut f32, floats: __m512) = _mm512_storeu_ps(at, floats);
        fused(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        times(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        minus(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        from_f16(at: *const u8) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()));
        from_u8(at: *const u8) -> __m512 = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(at.cast())));
        from_i8(at: *const u8) -> __m512 = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast())));
        from_bf16(pairs: Self) -> [__m512; 2] = [
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)),
            _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(UPPER))),
        ];
    }

    #[inline(always)]
    unsafe fn sums(a: Self) -> Self {
        a
    }

    #[inline(always)]
    unsafe fn dot_codes<const MOST: i32>(begin: i32, codes: &[Self], x: &[i32]) -> Self {
        // SAFETY: passed on to the caller.
        unsafe {
            let mut sum = _mm512_set1_epi32(begin);
            for (codes, x) in codes.iter().zip(x) {
                sum = _mm512_dpbusd_epi32(sum, *codes, _mm512_set1_epi32(*x));
            }
            sum
        }
    }
}

impl Vector for __m256i {
    type Floats = __m256;
    const ROWS: usize = 8;

    functions! {
        load(at: *const u8) -> Self = _mm256_loadu_si256(at.cast());
        bytes(byte: i8) -> Self = _mm256_set1_epi8(byte);
        words(word: i16) -> Self = _mm256_set1_epi16(word);
        numbers(number: i32) -> Self = _mm256_set1_epi32(number);
        and(a: Self, b: Self) -> Self = _mm256_and_si256(a, b);
        or(a: Self, b: Self) -> Self = _mm256_or_si256(a, b);
        up_1(a: Self) -> Self = _mm256_slli_epi16::<1>(a);
        up_2(a: Self) -> Self = _mm256_slli_epi16::<2>(a);
        up_4(a: Self) -> Self = _mm256_slli_epi16::<4>(a);
        down_1(a: Self) -> Self = _mm256_srli_epi16::<1>(a);
        down_2(a: Self) -> Self = _mm256_srli_epi16::<2>(a);
        down_4(a: Self) -> Self = _mm256_srli_epi16::<4>(a);
        down_8(a: Self) -> Self = _mm256_srli_epi16::<8>(a);
        sub_bytes(a: Self, b: Self) -> Self = _mm256_sub_epi8(a, b);
        sub_words(a: Self, b: Self) -> Self = _mm256_sub_epi16(a, b);
        add(a: Self, b: Self) -> Self = _mm256_add_epi32(a, b);
        sub(a: Self, b: Self) -> Self = _mm256_sub_epi32(a, b);
        greater(a: Self, b: Self) -> Self = _mm256_max_epi32(a, b);
        at_least(a: Self, b: Self) -> Self = _mm256_cmpeq_epi32(_mm256_max_epi32(a, b), a);
        pairs(a: Self, b: Self) -> Self = _mm256_blend_epi16::<0b_0101_0101>(_mm256_slli_epi32::<16>(b), a);
        numbers_up_8(a: Self) -> Self = _mm256_slli_epi32::<8>(a);
        cut(a: Self, up: u32, down: u32) -> Self =
            _mm256_srav_epi32(_mm256_sllv_epi32(a, _mm256_set1_epi32(up as i32)), _mm256_set1_epi32(down as i32));
        dot_words(sum: Self, codes: Self, x: Self) -> Self = _mm256_add_epi32(sum, _mm256_madd_epi16(codes, x));
        dot_bytes(sum: Self, codes: Self, x: Self) -> Self = _mm256_add_epi16(sum, _mm256_maddubs_epi16(x, codes));
        sums(a: Self) -> Self = _mm256_madd_epi16(a, _mm256_set1_epi16(1));
        floats(a: Self) -> __m256 = _mm256_cvtepi32_ps(a);
        nearest(floats: __m256) -> Self = _mm256_cvtps_epi32(floats);
        bits(floats: __m256) -> Self = _mm256_castps_si256(floats);
        of_bits(a: Self) -> __m256 = _mm256_castsi256_ps(a);
        float(number: f32) -> __m256 = _mm256_set1_ps(number);
        load_floats(at: *const f32) -> __m256 = _mm256_loadu_ps(at);
        store_floats(at: *mut f32, floats: __m256) = _mm256_storeu_ps(at, floats);
        fused(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        times(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        minus(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        from_f16(at: *const u8) -> __m256 = _mm256_cvtph_ps(_mm_loadu_si128(at.cast()));
        from_u8(at: *const u8) -> __m256 = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast())));
        from_i8(at: *const u8) -> __m256 = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast())));
        from_bf16(pairs: Self) -> [__m256; 2] = [
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)),
            _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(UPPER))),
        ];
    }

    /// Two products of codes of 4 bits and bytes are less than a sixteenth of what 16 bits hold, of 6 bits half of it less two.
    /// Codes of 8 bits are taken as two of 4.
    #[inline(always)]
    unsafe fn dot_codes<const MOST: i32>(begin: i32, codes: &[Self], x: &[i32]) -> Self {
        // SAFETY: passed on to the caller.
        unsafe {
            let one = _mm256_set1_epi16(1);
            let mut sum = _mm256_set1_epi32(begin);
            if MOST <= 15 {
                let mut words = _mm256_setzero_si256();
                for (codes, x) in codes.iter().zip(x) {
                    words = add_bytes(words, *codes, *x);
                }
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(words, one));
            } else if MOST <= 63 {
                for (codes, x) in codes.as_chunks::<2>().0.iter().zip(x.as_chunks::<2>().0) {
                    let words = add_bytes(add_bytes(_mm256_setzero_si256(), codes[0], x[0]), codes[1], x[1]);
                    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(words, one));
                }
            } else {
                let lower = _mm256_set1_epi8(15);
                let mut words = [_mm256_setzero_si256(); 2];
                for (codes, x) in codes.iter().zip(x) {
                    words[0] = add_bytes(words[0], _mm256_and_si256(*codes, lower), *x);
                    words[1] = add_bytes(words[1], _mm256_and_si256(_mm256_srli_epi16::<4>(*codes), lower), *x);
                }
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(words[0], one));
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(words[1], _mm256_set1_epi16(16)));
            }
            sum
        }
    }
}

/// Adds products of codes without a sign and four bytes to words.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn add_bytes(sum: __m256i, codes: __m256i, x: i32) -> __m256i {
    // SAFETY: passed on to the caller.
    unsafe { _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, _mm256_set1_epi32(x))) }
}

/// A product of VNNI. As an intrinsic, the compiler makes a multiplication and an addition of it here and there, which take twice
/// as long.
macro_rules! product {
    ($name:ident, $instruction:literal) => {
        #[inline]
        #[target_feature(enable = "avx512f,avx512vnni")]
        fn $name(sum: __m512i, codes: __m512i, x: __m512i) -> __m512i {
            let mut sum = sum;
            // SAFETY: the machine has the instruction, which only uses these registers.
            unsafe {
                std::arch::asm!(
                    concat!($instruction, " {sum}, {x}, {codes}"),
                    sum = inout(zmm_reg) sum,
                    codes = in(zmm_reg) codes,
                    x = in(zmm_reg) x,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sum
        }
    };
}

product!(dot_words, "vpdpwssd");
product!(dot_bytes, "vpdpbusd");
