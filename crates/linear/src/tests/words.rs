//! Many tokens: what 16 bits make of them, and where they could fail.

use super::{Case, Format, Isa, Packed, Precision, Random, activations, apply_with, case, check, dtype};
use kvlab_weights::blocks;

fn quantised() -> impl Iterator<Item = Format> {
    let floats = [Format::F32, Format::F16, Format::BF16];
    Format::ALL.into_iter().filter(move |format| !floats.contains(format))
}

fn multiply(isa: Isa, weight: &Packed, x: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / weight.cols() * weight.rows()];
    apply_with(isa, &[weight], x, &mut [&mut out]).unwrap();
    out
}

/// Products in f64.
fn products(case: &Case, x: &[f32]) -> Vec<f64> {
    let cols = case.packed.cols();
    let dot = |w: &[f32], x: &[f32]| w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
    x.chunks_exact(cols)
        .flat_map(|x| case.dense.chunks_exact(cols).map(move |w| dot(w, x)))
        .collect()
}

/// Root of the mean square.
fn size(x: impl Iterator<Item = f64> + Clone) -> f64 {
    (x.clone().map(|x| x * x).sum::<f64>() / x.count() as f64).sqrt()
}

/// About normal.
fn normal(random: &mut Random) -> f32 {
    (0..12).map(|_| random.number()).sum::<f32>() / 2.0
}

/// How far off products of normal activations are, over the size of the products.
fn relative_error(isa: Isa, case: &Case, x: &[f32]) -> f64 {
    let (got, want) = (multiply(isa, &case.packed, x), products(case, x));
    let off = got.iter().zip(&want).map(|(got, want)| f64::from(*got) - want);
    size(off) / size(want.iter().copied())
}

/// Codes to 32767 of normal numbers, whose greatest of 32 is 2.1 times their size on average: an error of 2.1 / 32767 /
/// sqrt(12), or 1.9e-5. Beside floats their magnitudes add up to 131000, that of the numbers to 26 times their size: 5.6e-5, and the
/// weights have an error of their own. Two bf16 are off by less than a tenth of that.
#[test]
fn sixteen_bits_are_as_close_as_they_can_be() {
    let mut random = Random(1);
    let x: Vec<f32> = (0..20 * 1024).map(|_| normal(&mut random)).collect();
    for isa in Isa::available() {
        for format in Format::ALL {
            let mut case = case(format, 64, 1024, 9);
            let allowed = match format {
                Format::F32 => 1e-6,
                _ if isa >= Isa::Amx => 5e-6,
                Format::F16 | Format::BF16 => 6.5e-5,
                _ => 2.5e-5,
            };
            let error = relative_error(isa, &case, &x);
            assert!(error < allowed, "{isa}, {format}: {error:.1e}");
            case.packed = case.packed.with_precision(Precision::Highest);
            let error = relative_error(isa, &case, &x);
            assert!(error < 1e-6, "{isa}, {format}, highest: {error:.1e}");
        }
    }
}

/// What `medium` allows: bf16 has 8 bits, an error of 2^-9 / sqrt(3) of a number, about, and of a weight as much. Codes to 127 of
/// normal numbers are off by 2.1 / 127 / sqrt(12), or 4.8e-3, of their size (products by less where minima have a part in them). All others take no notice.
fn medium(isa: Isa, format: Format) -> Option<std::ops::Range<f64>> {
    match format {
        Format::F32 => None,
        _ if isa >= Isa::Amx => Some(3e-4..3e-3),
        Format::Q4_0 | Format::Q4_1 | Format::Q4_K if isa >= Isa::Avx2 => Some(2e-3..6e-3),
        Format::F16 | Format::BF16 => None,
        _ if isa >= Isa::Avx512 => Some(2e-3..6e-3),
        _ => None,
    }
}

#[test]
fn medium_is_bf16_or_8_bits() {
    let mut random = Random(3);
    let x: Vec<f32> = (0..41 * 1024).map(|_| normal(&mut random)).collect();
    for isa in Isa::available() {
        for format in Format::ALL {
            let mut case = case(format, 72, 1024, 9);
            let high = multiply(isa, &case.packed, &x);
            case.packed = case.packed.with_precision(Precision::Medium);
            match medium(isa, format) {
                Some(allowed) => {
                    let error = relative_error(isa, &case, &x);
                    assert!(allowed.contains(&error), "{isa}, {format}: {error:.1e}");
                }
                None => assert!(multiply(isa, &case.packed, &x) == high, "{isa}, {format}"),
            }
        }
    }
}

/// A number a hundred times the others would make their codes a hundred times coarser. Here its weight is zero, and so only
/// the others are seen.
#[test]
fn a_number_that_stands_out_spares_the_others() {
    let mut random = Random(2);
    let normals: Vec<f32> = (0..20 * 256).map(|_| normal(&mut random)).collect();
    for isa in Isa::available() {
        for column in [0, 1, 2, 3, 17, 31] {
            for format in [Format::Q8_0, Format::Q4_0, Format::F16, Format::BF16] {
                let mut case = case(format, 24, 256, 4);
                // Codes of every row, as floats of the same format would have them: zeros where the column is.
                let bytes = zero_column(&case, column);
                blocks::dequantize(dtype(format), &bytes, &mut case.dense).unwrap();
                case.packed = Packed::new(format, 24, 256, &bytes).unwrap();
                let mut x = normals.clone();
                x.iter_mut().skip(column).step_by(32).for_each(|x| *x += 100.0);
                let error = relative_error(isa, &case, &x);
                assert!(error < 1e-4, "{isa}, {format}, column {column}: {error:.1e}");
                if let Some(allowed) = medium(isa, format) {
                    case.packed = case.packed.with_precision(Precision::Medium);
                    let error = relative_error(isa, &case, &x);
                    assert!(
                        error < allowed.end,
                        "{isa}, {format}, column {column}, medium: {error:.1e}"
                    );
                }
            }
        }
    }
}

/// The bytes of a weight, with zeros in this column of every 32.
fn zero_column(case: &Case, column: usize) -> Vec<u8> {
    let format = case.packed.format();
    let mut bytes = super::random_bytes(format, case.dense.len(), &mut Random(4));
    let (values, size) = format.block();
    for (i, block) in bytes.chunks_exact_mut(size).enumerate() {
        match format {
            Format::F16 | Format::BF16 if i * values % 32 == column => block.fill(0),
            Format::F16 | Format::BF16 => {}
            Format::Q8_0 => block[2 + column] = 0,
            // 8 is zero; columns from 16 on are the upper four bits.
            _ if column < 16 => block[2 + column] = block[2 + column] & 0xf0 | 8,
            _ => block[2 + column - 16] = block[2 + column - 16] & 0x0f | 0x80,
        }
    }
    bytes
}

/// The greatest codes on both sides, of the same sign and of either: sums of integers must not overflow.
#[test]
fn greatest_codes_do_not_overflow() {
    for isa in Isa::available() {
        for format in [Format::F16, Format::BF16, Format::Q8_0, Format::Q4_0] {
            let (values, _) = format.block();
            let block: Vec<u8> = match format {
                // Just below a power of two.
                Format::F16 => half::f16::from_f32(1.9995).to_le_bytes().to_vec(),
                Format::BF16 => half::bf16::from_f32(-1.992).to_le_bytes().to_vec(),
                // A scale of 1, and the least code.
                Format::Q8_0 => [0, 0x3c].into_iter().chain([0x80; 32]).collect(),
                _ => [0, 0x3c].into_iter().chain([0; 16]).collect(),
            };
            let bytes = block.repeat(16 * 64 / values);
            let mut dense = vec![0.0; 16 * 64];
            blocks::dequantize(dtype(format), &bytes, &mut dense).unwrap();
            let packed = Packed::new(format, 16, 64, &bytes).unwrap();
            let case = Case { packed, dense };
            for sign in [1.0, -1.0] {
                let x = vec![sign * 3.0; 24 * 64];
                check(isa, &case, &x, &multiply(isa, &case.packed, &x));
                // 3 is a code of 8 bits too, the greatest; a bf16 of these weights is another number.
                if isa < Isa::Amx {
                    let medium = case.packed.clone().with_precision(Precision::Medium);
                    check(isa, &case, &x, &multiply(isa, &medium, &x));
                }
            }
        }
    }
}

/// The same with few rows, where an activation is three bytes: all of them the greatest or the least, and so are codes.
#[test]
fn greatest_bytes_do_not_overflow() {
    let top = 127.0 * 65536.0;
    let digits = [127.0, -128.0].map(|lower| (126.0 * 65536.0 + lower * 257.0) / top);
    // Plain Rust has no bytes.
    for isa in Isa::available().into_iter().filter(|isa| *isa >= Isa::Avx2) {
        for format in quantised() {
            for code in [0, 0xff, 0x80, 0x7f] {
                let (values, size) = format.block();
                // Scales of K formats are codes too. All f16 scales are 1, where there are minima those also.
                let mut block = vec![code; size];
                let halves: &[usize] = match format {
                    Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
                    Format::Q6_K => &[208],
                    _ => &[0, 2],
                };
                for &at in halves {
                    block[at..at + 2].copy_from_slice(&[0, 0x3c]);
                }
                let bytes = block.repeat(16 * 512 / values);
                let mut dense = vec![0.0; 16 * 512];
                blocks::dequantize(dtype(format), &bytes, &mut dense).unwrap();
                let packed = Packed::new(format, 16, 512, &bytes).unwrap();
                let case = Case { packed, dense };
                for (sign, digit) in [1.0, -1.0]
                    .into_iter()
                    .flat_map(|sign| digits.map(|digit| (sign, digit)))
                {
                    let mut x = vec![sign * digit; 5 * 512];
                    x.iter_mut().step_by(32).for_each(|x| *x = sign);
                    check(isa, &case, &x, &multiply(isa, &case.packed, &x));
                }
            }
        }
    }
}

/// Huge and tiny numbers, in weights of floats as in activations.
#[test]
fn ranges() {
    for isa in Isa::available() {
        for format in [Format::BF16, Format::F16, Format::Q4_1, Format::Q6_K] {
            for factor in [1e-18, 1e-6, 1e6, 1e18] {
                let case = case(format, 24, 256, 8);
                let mut x = activations(20, 256);
                x.iter_mut().for_each(|x| *x *= factor);
                check(isa, &case, &x, &multiply(isa, &case.packed, &x));
            }
        }
    }
}

/// A weight that is no number shows in its output, and in no other.
#[test]
fn weights_that_are_no_numbers() {
    for isa in Isa::available() {
        for format in [Format::F16, Format::BF16] {
            for bad in [f32::NAN, f32::INFINITY] {
                let mut bytes = super::random_bytes(format, 40 * 64, &mut Random(4));
                let number = match format {
                    Format::F16 => half::f16::from_f32(bad).to_le_bytes(),
                    _ => half::bf16::from_f32(bad).to_le_bytes(),
                };
                bytes[(21 * 64 + 5) * 2..][..2].copy_from_slice(&number);
                let weight = Packed::new(format, 40, 64, &bytes).unwrap();
                let x = activations(18, 64);
                for (i, y) in multiply(isa, &weight, &x).into_iter().enumerate() {
                    assert_eq!(y.is_finite(), i % 40 != 21, "{isa}, {format}, {bad}: output {i} is {y}");
                }
            }
        }
    }
}

/// Every format has tokens that become codes of both kinds, in one call.
#[test]
fn exact_weights_beside_others() {
    let x = activations(33, 256);
    for isa in Isa::available() {
        for format in quantised().chain([Format::F16]) {
            let (one, mut other) = (case(format, 40, 256, 1), case(format, 24, 256, 2));
            other.packed = other.packed.with_precision(Precision::Highest);
            let (mut a, mut b) = (vec![f32::NAN; 33 * 40], vec![f32::NAN; 33 * 24]);
            apply_with(isa, &[&one.packed, &other.packed], &x, &mut [&mut a, &mut b]).unwrap();
            check(isa, &one, &x, &a);
            check(isa, &other, &x, &b);
        }
    }
}
