//! T35: the two formats, code by code.

use super::*;
use half::f16;

const E4M3_: Mini = Mini {
    mantissa: 3,
    bias: 7,
    last: 0x7E,
    largest: 448.0,
    nan: 0x7F,
};
const E5M2_: Mini = Mini {
    mantissa: 2,
    bias: 15,
    last: 0x7B,
    largest: 57_344.0,
    nan: 0x7E,
};

#[test]
fn e5m2_is_the_upper_half_of_f16() {
    for code in 0..=255_u8 {
        let (got, want) = (E5M2_.decode(code), f16::from_bits(u16::from(code) << 8).to_f32());
        assert!(got == want || got.is_nan() && want.is_nan(), "{code:#x}: {got} {want}");
        assert_eq!(
            got.is_sign_negative(),
            code > 127 && !got.is_nan() || got.is_sign_negative() && got.is_nan()
        );
    }
}

/// Table 1 of the specification, and the formula in integers: value = (8 + m) * 2^e / 1024 in steps of 2^-10.
#[test]
fn e4m3_is_as_specified() {
    let known = [
        (0x00, 0.0),
        (0x01, 2.0_f32.powi(-9)),
        (0x07, 0.875 * 2.0_f32.powi(-6)),
        (0x08, 2.0_f32.powi(-6)),
        (0x38, 1.0),
        (0x39, 1.125),
        (0x7E, 448.0),
        (0xFE, -448.0),
        (0xB8, -1.0),
    ];
    for (code, value) in known {
        assert_eq!(E4M3_.decode(code), value, "{code:#x}");
    }
    assert!(E4M3_.decode(0x7F).is_nan() && E4M3_.decode(0xFF).is_nan());
    for code in 0..=0x7E_u8 {
        let (e, m) = (u32::from(code >> 3), u32::from(code & 7));
        // In units of the smallest subnormal, 2^-9.
        let units = if e == 0 { m } else { (8 + m) << (e - 1) };
        assert_eq!(E4M3_.decode(code), units as f32 / 512.0);
        assert_eq!(E4M3_.decode(code | 0x80), -(units as f32) / 512.0);
    }
    assert!(E4M3_.decode(0x80) == 0.0 && E4M3_.decode(0x80).is_sign_negative());
}

#[test]
fn every_number_keeps_its_code() {
    for format in [E4M3_, E5M2_] {
        for code in 0..=255_u8 {
            let x = format.decode(code);
            if x.is_finite() {
                assert_eq!(format.encode(x), code, "{x}");
            }
        }
    }
}

/// Compared with a search over all numbers; between two numbers the one with the even code wins.
#[test]
fn the_nearest_number_is_chosen() {
    for format in [E4M3_, E5M2_] {
        let mut samples: Vec<f32> = (0..200_000_u32)
            .map(|i| f32::from_bits(i * 10_007 % 0x4F00_0000))
            .collect();
        for code in 0..format.last {
            let (a, b) = (format.decode(code), format.decode(code + 1));
            let middle = (a + b) / 2.0;
            samples.extend([middle, middle.next_down(), middle.next_up()]);
        }
        for x in samples {
            let distance = |code: u8| (f64::from(format.decode(code)) - f64::from(x)).abs();
            let start = format.encode(x).saturating_sub(2);
            let near = (start..=(start + 4).min(format.last))
                .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
            assert_eq!(Some(format.encode(x)), near, "{x:e}");
            assert_eq!(format.encode(-x), format.encode(x) | 0x80, "{x:e}");
        }
    }
}

#[test]
fn what_is_too_large_saturates() {
    for (format, largest) in [(E4M3_, 448.0), (E5M2_, 57_344.0)] {
        assert_eq!(format.decode(format.last), largest);
        assert_eq!(format.largest, largest);
        for x in [
            largest + 1.0,
            largest * 1.04,
            largest * 1.2,
            1e6,
            f32::MAX,
            f32::INFINITY,
        ] {
            assert_eq!(format.decode(format.encode(x)), largest, "{x}");
            assert_eq!(format.decode(format.encode(-x)), -largest, "{x}");
        }
        assert!(format.decode(format.encode(f32::NAN)).is_nan());
    }
    assert_eq!(E4M3_.decode(E4M3_.encode(1000.0)), 448.0);
    assert_eq!(
        E4M3_.encode(2.0_f32.powi(-10)),
        0,
        "half a subnormal goes to the even code"
    );
    assert_eq!(E4M3_.encode(2.0_f32.powi(-10).next_up()), 1);
}
