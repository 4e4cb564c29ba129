//! Every instruction set against plain arithmetic.

use super::*;
use half::{bf16, f16};

/// A body for each set that this machine has.
macro_rules! on_every_set {
    ($(fn $name:ident<$s:ident: Simd>() $body:block)*) => {$(
        #[test]
        fn $name() {
            #[inline(always)]
            unsafe fn body<$s: Simd>() {
                // SAFETY: the caller has looked for the instructions; the pointers are those of arrays.
                unsafe { $body }
            }
            // SAFETY: everything has these.
            unsafe { body::<portable::Portable>() };
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                unsafe fn with_avx2() {
                    // SAFETY: the caller has looked.
                    unsafe { body::<avx2::Avx2>() }
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
                unsafe fn with_avx512() {
                    // SAFETY: the caller has looked.
                    unsafe { body::<avx512::Avx512>() }
                }
                let available = kvlab_cpu::Isa::available();
                if available.contains(&kvlab_cpu::Isa::Avx2) {
                    // SAFETY: it is there.
                    unsafe { with_avx2() };
                }
                if available.contains(&kvlab_cpu::Isa::Avx512) {
                    // SAFETY: it is there.
                    unsafe { with_avx512() };
                }
            }
        }
    )*};
}

unsafe fn lanes<S: Simd>(x: S::V) -> Vec<f32> {
    let mut out = vec![0.0; S::LANES];
    // SAFETY: there is room for all lanes.
    unsafe { S::store(out.as_mut_ptr(), x) };
    out
}

fn same(a: f32, b: f32) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

on_every_set! {
    fn exp2_is_close<S: Simd>() {
        let mut x = -126.0_f32;
        let mut worst: f64 = 0.0;
        while x < 1.0 {
            let y = f64::from(lanes::<S>(exp2::<S>(S::splat(x)))[0]);
            let exact = f64::from(x).exp2();
            worst = worst.max((y - exact).abs() / exact);
            x += 0.003_7;
        }
        assert!(worst < 2e-7, "{worst:e}");
        for low in [-127.0, -1e4, f32::NEG_INFINITY] {
            assert_eq!(lanes::<S>(exp2::<S>(S::splat(low)))[0], 0.0);
        }
        assert!(lanes::<S>(exp2::<S>(S::splat(f32::NAN)))[0].is_nan());
    }

    fn tanh_is_close<S: Simd>() {
        let mut x = -20.0_f32;
        while x < 20.0 {
            let y = lanes::<S>(tanh::<S>(S::splat(x)))[0];
            let exact = f64::from(x).tanh();
            assert!((f64::from(y) - exact).abs() < 2e-7, "{x}: {y} {exact}");
            x += 0.000_9;
        }
        assert!(lanes::<S>(tanh::<S>(S::splat(f32::NAN)))[0].is_nan());
        for x in [1e4, f32::INFINITY] {
            assert_eq!(lanes::<S>(tanh::<S>(S::splat(x)))[0], 1.0);
            assert_eq!(lanes::<S>(tanh::<S>(S::splat(-x)))[0], -1.0);
        }
    }

    fn formats_are_exact<S: Simd>() {
        for first in (0..=u16::MAX).step_by(S::LANES) {
            let bits: Vec<u16> = (0..S::LANES as u16).map(|i| first + i).collect();
            let halves = lanes::<S>(S::f16(bits.as_ptr().cast()));
            let brains = lanes::<S>(S::bf16(bits.as_ptr().cast()));
            for (i, &bits) in bits.iter().enumerate() {
                assert!(same(halves[i], f16::from_bits(bits).to_f32()), "f16 {bits:x}: {}", halves[i]);
                assert!(same(brains[i], bf16::from_bits(bits).to_f32()), "bf16 {bits:x}: {}", brains[i]);
            }
        }
        for first in (0..=u8::MAX).step_by(S::LANES) {
            let codes: Vec<u8> = (0..S::LANES as u8).map(|i| first + i).collect();
            let small = lanes::<S>(S::e4m3(codes.as_ptr()));
            let large = lanes::<S>(S::e5m2(codes.as_ptr()));
            let whole = lanes::<S>(S::codes8(codes.as_ptr()));
            for (i, &code) in codes.iter().enumerate() {
                let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
                let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7) / 8.0);
                let number = match (exponent, code & 7) {
                    (15, 7) => f32::NAN,
                    (0, _) => sign * mantissa * 2.0_f32.powi(-6),
                    _ => sign * (1.0 + mantissa) * 2.0_f32.powi(exponent - 7),
                };
                assert!(same(small[i], number), "e4m3 {code:x}: {} {number}", small[i]);
                assert!(same(large[i], f16::from_bits(u16::from(code) << 8).to_f32()), "e5m2 {code:x}");
                assert_eq!(whole[i], f32::from(code));
            }
        }
    }

    fn small_codes_come_in_order<S: Simd>() {
        let bytes: Vec<u8> = (0..S::LANES as u8 / 2).map(|i| i.wrapping_mul(37) ^ 0x5A).collect();
        let (fours, twos) = (lanes::<S>(S::codes4(bytes.as_ptr())), lanes::<S>(S::codes2(bytes.as_ptr())));
        for i in 0..S::LANES {
            assert_eq!(fours[i], f32::from(bytes[i / 2] >> (4 * (i % 2)) & 15));
            assert_eq!(twos[i], f32::from(bytes[i / 4] >> (2 * (i % 4)) & 3));
        }
    }

    fn halves_become_columns<S: Simd>() {
        let rows: Vec<[f16; HALVES]> = (0..S::LANES)
            .map(|i| std::array::from_fn(|j| f16::from_f32((i * HALVES + j) as f32)))
            .collect();
        let from: Vec<*const u8> = rows.iter().map(|row| row.as_ptr().cast()).collect();
        let mut turned = vec![-1.0; HALVES * (S::LANES + 3)];
        S::transpose_f16(|i| from[i], turned.as_mut_ptr(), S::LANES + 3);
        for (j, column) in turned.chunks(S::LANES + 3).enumerate() {
            let numbers: Vec<f32> = rows.iter().map(|row| row[j].to_f32()).chain([-1.0; 3]).collect();
            assert_eq!(column, numbers);
        }
    }

    fn sums_and_squares<S: Simd>() {
        let n = S::LANES;
        let numbers: Vec<f32> = (0..n * n).map(|i| i as f32).collect();
        let rows: Vec<_> = numbers.chunks(n).map(|row| S::load(row.as_ptr())).collect();
        let mut turned = vec![0.0; n * n];
        S::transpose(&rows, turned.as_mut_ptr(), n);
        for i in 0..n {
            for j in 0..n {
                assert_eq!(turned[i * n + j], numbers[j * n + i]);
            }
        }
        let mut sums = [0.0; 4];
        S::sums([rows[0], rows[1], rows[2], rows[3]], sums.as_mut_ptr());
        for (i, sum) in sums.into_iter().enumerate() {
            let exact: f32 = numbers[i * n..][..n].iter().sum();
            assert_eq!((sum, S::sum(rows[i])), (exact, exact));
            assert_eq!(S::largest(rows[i]), numbers[i * n + n - 1]);
        }
    }
}
