//! Every format on every instruction set of this machine, against a dot product in f64 of what `kvlab-weights` unpacks.

use crate::apply::apply_with;
use crate::{Format, LinearError, Packed, Precision, apply};
use kvlab_cpu::Isa;
use kvlab_weights::{Dtype, blocks};

mod words;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between -1 and 1.
    fn number(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

fn dtype(format: Format) -> Dtype {
    match format {
        Format::F32 => Dtype::F32,
        Format::F16 => Dtype::F16,
        Format::BF16 => Dtype::BF16,
        Format::Q4_0 => Dtype::Q4_0,
        Format::Q4_1 => Dtype::Q4_1,
        Format::Q5_0 => Dtype::Q5_0,
        Format::Q5_1 => Dtype::Q5_1,
        Format::Q8_0 => Dtype::Q8_0,
        Format::Q4_K => Dtype::Q4K,
        Format::Q5_K => Dtype::Q5K,
        Format::Q6_K => Dtype::Q6K,
    }
}

/// Bytes of random blocks: any codes, and scales of either sign between 1/32 and 1/16.
fn random_bytes(format: Format, numbers: usize, random: &mut Random) -> Vec<u8> {
    let (values, size) = format.block();
    let halves: &[usize] = match format {
        Format::F32 | Format::F16 | Format::BF16 => &[],
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q6_K => &[208],
    };
    let mut bytes = Vec::new();
    for _ in 0..numbers / values {
        let start = bytes.len();
        match format {
            Format::F32 => bytes.extend(random.number().to_le_bytes()),
            Format::F16 => bytes.extend(half::f16::from_f32(random.number()).to_le_bytes()),
            Format::BF16 => bytes.extend(half::bf16::from_f32(random.number()).to_le_bytes()),
            _ => bytes.extend((0..size).map(|_| random.next() as u8)),
        }
        for &at in halves {
            let scale = (1.0 + random.number().abs()) / 32.0 * random.number().signum();
            bytes[start + at..][..2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
        }
    }
    bytes
}

struct Case {
    packed: Packed,
    /// As `kvlab-weights` unpacks it, `[rows, cols]`.
    dense: Vec<f32>,
}

fn case(format: Format, rows: usize, cols: usize, seed: u64) -> Case {
    let bytes = random_bytes(format, rows * cols, &mut Random(seed));
    let mut dense = vec![0.0; rows * cols];
    blocks::dequantize(dtype(format), &bytes, &mut dense).unwrap();
    let packed = Packed::new(format, rows, cols, &bytes).unwrap();
    Case { packed, dense }
}

/// Activations with outliers, as models have them.
fn activations(tokens: usize, cols: usize) -> Vec<f32> {
    let mut random = Random(7);
    let mut x: Vec<f32> = (0..tokens * cols).map(|_| random.number()).collect();
    x.iter_mut().step_by(97).for_each(|x| *x *= 30.0);
    x
}

/// From so many tokens on, whole numbers of 16 bits are multiplied.
const MANY: usize = 16;

/// How far off the numbers of a product may be, besides what f32 rounds.
#[derive(Default)]
struct Rounding {
    /// Activations and weights, as a part of the greatest magnitude of 32 numbers: half of a code.
    x: f64,
    w: f64,
    /// As a part of the product.
    both: f64,
}

fn rounding(isa: Isa, weight: &Packed, tokens: usize) -> Rounding {
    let floats = matches!(weight.format(), Format::F16 | Format::BF16);
    let none = Rounding::default();
    match (
        isa >= Isa::Avx2,
        tokens >= MANY && weight.precision() < Precision::Highest,
    ) {
        (false, _) => none,
        _ if weight.format() == Format::F32 => none,
        // Three parts of 2^-18 at most: what is left of two sums of two bf16, and the product of the lower ones.
        // Half of the last of eight bits, of both.
        (true, true) if isa >= Isa::Amx && weight.precision() == Precision::Medium => Rounding {
            both: 2.0 / f64::from(1 << 8),
            ..none
        },
        (true, true) if isa >= Isa::Amx => Rounding {
            both: 3.0 / f64::from(1 << 18),
            ..none
        },
        (true, true) if floats => Rounding {
            // 32 numbers of the same size have the coarsest codes.
            x: 0.5 * 32.0 / 131_000.0,
            w: 0.5 / 8192.0,
            ..none
        },
        (true, true) => Rounding {
            x: 0.5 / 32767.0,
            ..none
        },
        (true, false) if floats => none,
        (true, false) => Rounding {
            x: 0.5 / 8_323_072.0,
            ..none
        },
    }
}

/// The product in f64, and how far off one may be at most: by the rounding of f32, and by that of codes.
fn exact(case: &Case, x: &[f32], token: usize, row: usize, rounding: &Rounding) -> (f64, f64) {
    let cols = case.packed.cols();
    let weights = case.dense[row * cols..][..cols].chunks(32);
    let (mut sum, mut allowed) = (0.0, 0.0);
    for (weights, x) in weights.zip(x[token * cols..][..cols].chunks(32)) {
        let most = |of: &[f32]| f64::from(of.iter().fold(0.0_f32, |most, x| most.max(x.abs())));
        let (x_off, w_off) = (rounding.x * most(x), rounding.w * most(weights));
        for (w, x) in weights.iter().zip(x) {
            let (w, x) = (f64::from(*w), f64::from(*x));
            sum += w * x;
            allowed += (2e-6 + rounding.both) * (w * x).abs() + x_off * (w.abs() + w_off) + w_off * x.abs();
        }
    }
    (sum, allowed)
}

fn check(isa: Isa, case: &Case, x: &[f32], got: &[f32]) {
    let (rows, cols) = (case.packed.rows(), case.packed.cols());
    let rounding = rounding(isa, &case.packed, x.len() / cols);
    for (token, got) in got.chunks_exact(rows).enumerate() {
        for (row, got) in got.iter().enumerate() {
            let (want, allowed) = exact(case, x, token, row, &rounding);
            assert!(
                (f64::from(*got) - want).abs() <= allowed,
                "{isa}, {:?}, {} tokens: token {token}, row {row}: {got} instead of {want}, {allowed:.1e} allowed",
                case.packed,
                x.len() / cols
            );
        }
    }
}

/// Columns that are whole blocks of every format, and for the formats that may, columns that are not.
fn shapes(format: Format) -> Vec<(usize, usize)> {
    match format.block().0 {
        256 => vec![(16, 256), (35, 768), (1, 512)],
        32 => vec![(16, 32), (35, 96), (80, 576), (33, 800), (7, 1536)],
        _ => vec![(16, 32), (35, 100), (3, 1), (80, 577)],
    }
}

#[test]
fn products_of_every_format_and_instruction_set() {
    for isa in Isa::available() {
        for format in Format::ALL {
            for (rows, cols) in shapes(format) {
                let case = case(format, rows, cols, 3);
                for tokens in (1..=9).chain([15, 16, 17, 20, 23, 24, 28, 33, 40]) {
                    let x = activations(tokens, cols);
                    let mut out = vec![f32::NAN; tokens * rows];
                    apply_with(isa, &[&case.packed], &x, &mut [&mut out]).unwrap();
                    check(isa, &case, &x, &out);
                }
            }
        }
    }
}

/// Large enough for several threads; formats may differ.
#[test]
fn weights_that_are_read_together() {
    for isa in Isa::available() {
        let cases = [Format::Q4_1, Format::Q8_0, Format::F16, Format::Q6_K].map(|format| case(format, 200, 768, 5));
        let weights: Vec<&Packed> = cases.iter().map(|c| &c.packed).collect();
        for tokens in [1, 70] {
            let x = activations(tokens, 768);
            let mut outs = vec![vec![f32::NAN; tokens * 200]; 4];
            let mut outputs: Vec<&mut [f32]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
            apply_with(isa, &weights, &x, &mut outputs).unwrap();
            for (case, out) in cases.iter().zip(&outs) {
                check(isa, case, &x, out);
            }
        }
    }
}

/// A row is what the file has, bit for bit.
#[test]
fn rows_unpack_to_the_numbers_of_the_file() {
    for format in Format::ALL {
        for (rows, cols) in shapes(format) {
            let case = case(format, rows, cols, 11);
            for row in 0..rows {
                let mut got = vec![f32::NAN; cols];
                case.packed.row(row, &mut got).unwrap();
                assert_eq!(got, case.dense[row * cols..][..cols], "{:?}, row {row}", case.packed);
            }
        }
    }
}

#[test]
fn bytes_are_those_of_the_file_where_panels_are_full() {
    for (format, cols, spare) in [
        (Format::Q4_0, 576, 0),
        (Format::Q4_1, 576, 0),
        (Format::Q5_0, 576, 0),
        (Format::Q5_1, 576, 0),
        (Format::Q8_0, 576, 0),
        (Format::F16, 576, 0),
        // A line of scales for 256 columns of a panel has room for 16 more f16.
        (Format::Q6_K, 768, 3 * 32),
        // Scales and minima of 6 bits take a byte each: 16 for 12.
        (Format::Q4_K, 768, 3 * 16 * 4),
        (Format::Q5_K, 768, 3 * 16 * 4),
    ] {
        let case = case(format, 64, cols, 1);
        let file = 64 * format.row_bytes(cols).unwrap();
        assert_eq!(case.packed.bytes(), file + 4 * spare, "{format}");
    }
}

#[test]
fn zeros_and_numbers_that_are_none() {
    for isa in Isa::available() {
        for (format, tokens) in Format::ALL.into_iter().flat_map(|format| [(format, 1), (format, 17)]) {
            let case = case(format, 16, 256, 3);
            let mut out = vec![f32::NAN; 16 * tokens];
            apply_with(isa, &[&case.packed], &vec![0.0; 256 * tokens], &mut [&mut out]).unwrap();
            assert!(out.iter().all(|y| *y == 0.0), "{isa}, {format}, {tokens} tokens");
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut x = activations(tokens, 256);
                // In the last token; the others do not see it.
                x[256 * (tokens - 1) + 40] = bad;
                apply_with(isa, &[&case.packed], &x, &mut [&mut out]).unwrap();
                let (others, last) = out.split_at(16 * (tokens - 1));
                assert!(others.iter().all(|y| y.is_finite()), "{isa}, {format}, {bad}");
                let seen = last.iter().all(|y| !y.is_finite());
                assert!(seen, "{isa}, {format}, {tokens} tokens: {bad} became {last:?}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let bytes = Packed::new(Format::Q4_0, 2, 32, &[0; 35]);
    assert!(matches!(bytes, Err(LinearError::Bytes { got: 35, .. })));
    let not_whole = Packed::new(Format::Q4_0, 1, 31, &[0; 18]);
    assert!(matches!(not_whole, Err(LinearError::Bytes { cols: 31, .. })));
    let weight = Packed::new(Format::Q4_0, 2, 32, &[0; 36]).unwrap();
    let other = Packed::new(Format::Q4_0, 2, 64, &[0; 72]).unwrap();
    let mut out = [0.0; 2];
    let inputs = apply(&[&weight], &[0.0; 31], &mut [&mut out]);
    assert_eq!(inputs, Err(LinearError::Inputs { cols: 32, got: 31 }));
    let outputs = apply(&[&weight], &[0.0; 64], &mut [&mut out]);
    assert_eq!(outputs, Err(LinearError::Outputs { expected: 4, got: 2 }));
    let both = apply(&[&weight, &other], &[0.0; 32], &mut [&mut out, &mut [0.0; 2]]);
    assert_eq!(both, Err(LinearError::Inputs { cols: 64, got: 32 }));
    assert_eq!(weight.row(2, &mut [0.0; 32]), Err(LinearError::Row { row: 2, rows: 2 }));
    let room = weight.row(1, &mut [0.0; 31]);
    assert_eq!(room, Err(LinearError::Outputs { expected: 32, got: 31 }));
}
