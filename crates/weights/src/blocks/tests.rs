//! Hand-made blocks: each value is chosen, packed by the description of the format, and must come back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;

fn unpack(dtype: Dtype, bytes: &[u8], values: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; values];
    dequantize(dtype, bytes, &mut out).unwrap();
    out
}

fn half(x: f32) -> [u8; 2] {
    f16::from_f32(x).to_le_bytes()
}

/// 32 quants of `bits` bits that take every value and are not symmetric.
fn quants(bits: u32) -> Vec<u8> {
    (0..32u32).map(|i| ((i * 7 + 3) % (1 << bits)) as u8).collect()
}

fn nibble_bytes(q: &[u8]) -> Vec<u8> {
    (0..16).map(|i| (q[i] & 15) | ((q[i + 16] & 15) << 4)).collect()
}

fn fifth_bits(q: &[u8]) -> [u8; 4] {
    let bits = (0..32).fold(0u32, |bits, i| bits | u32::from(q[i] >> 4) << i);
    bits.to_le_bytes()
}

#[test]
fn plain_formats() {
    let x = [1.5f32, -0.25, 3.0e-3, 65504.0, -0.0];
    let bytes = |f: &dyn Fn(f32) -> Vec<u8>| x.iter().flat_map(|x| f(*x)).collect::<Vec<u8>>();
    assert_eq!(unpack(Dtype::F32, &bytes(&|x| x.to_le_bytes().to_vec()), 5), x);
    assert_eq!(
        unpack(Dtype::F64, &bytes(&|x| f64::from(x).to_le_bytes().to_vec()), 5),
        x
    );
    let halves: Vec<f32> = x.iter().map(|x| f16::from_f32(*x).to_f32()).collect();
    assert_eq!(unpack(Dtype::F16, &bytes(&|x| half(x).to_vec()), 5), halves);
    let brains: Vec<f32> = x.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
    let packed = bytes(&|x| bf16::from_f32(x).to_le_bytes().to_vec());
    assert_eq!(unpack(Dtype::BF16, &packed, 5), brains);
}

#[test]
fn every_half_from_an_odd_address() {
    let mut bytes = vec![0u8];
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    bytes.extend(halves.iter().flat_map(|h| h.to_le_bytes()));
    let out = unpack(Dtype::F16, &bytes[1..], halves.len());
    for (x, h) in out.iter().zip(&halves) {
        assert!(*x == h.to_f32() || h.is_nan() && x.is_nan(), "{h:?} {x}");
    }
}

#[test]
fn q8_0_is_d_times_q() {
    let q: Vec<i8> = (0..32).map(|i| (i * 8 - 128) as i8).collect();
    let mut block = half(0.5).to_vec();
    block.extend(q.iter().map(|q| *q as u8));
    let want: Vec<f32> = q.iter().map(|q| 0.5 * f32::from(*q)).collect();
    assert_eq!(unpack(Dtype::Q8_0, &block, 32), want);
}

#[test]
fn q4_0_low_nibbles_come_first() {
    let q = quants(4);
    let mut block = half(-0.25).to_vec();
    block.extend(nibble_bytes(&q));
    let want: Vec<f32> = q.iter().map(|q| -0.25 * (f32::from(*q) - 8.0)).collect();
    assert_eq!(unpack(Dtype::Q4_0, &block, 32), want);
}

#[test]
fn q4_1_has_a_minimum() {
    let q = quants(4);
    let mut block = [half(0.5), half(-3.0)].concat();
    block.extend(nibble_bytes(&q));
    let want: Vec<f32> = q.iter().map(|q| 0.5 * f32::from(*q) - 3.0).collect();
    assert_eq!(unpack(Dtype::Q4_1, &block, 32), want);
}

#[test]
fn q5_0_and_q5_1_take_the_fifth_bit() {
    let q = quants(5);
    let mut block = half(0.125).to_vec();
    block.extend(fifth_bits(&q));
    block.extend(nibble_bytes(&q));
    let want: Vec<f32> = q.iter().map(|q| 0.125 * (f32::from(*q) - 16.0)).collect();
    assert_eq!(unpack(Dtype::Q5_0, &block, 32), want);

    let mut block = [half(0.125), half(2.0)].concat();
    block.extend(fifth_bits(&q));
    block.extend(nibble_bytes(&q));
    let want: Vec<f32> = q.iter().map(|q| 0.125 * f32::from(*q) + 2.0).collect();
    assert_eq!(unpack(Dtype::Q5_1, &block, 32), want);
}

/// Eight 6-bit scales and minima in twelve bytes, written from the bit layout.
fn pack_scales(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for j in 0..4 {
        bytes[j] = scales[j] | (scales[j + 4] >> 4) << 6;
        bytes[j + 4] = mins[j] | (mins[j + 4] >> 4) << 6;
        bytes[j + 8] = (scales[j + 4] & 15) | (mins[j + 4] & 15) << 4;
    }
    bytes
}

const SCALES: [u8; 8] = [1, 63, 17, 40, 62, 5, 33, 48];
const MINS: [u8; 8] = [0, 21, 63, 8, 59, 16, 37, 2];

#[test]
fn q4_k_scales_eight_groups() {
    let q: Vec<u8> = (0..256usize).map(|i| ((i * 5 + i / 16) % 16) as u8).collect();
    let mut block = [half(0.5), half(0.25)].concat();
    block.extend(pack_scales(&SCALES, &MINS));
    for pair in q.chunks(64) {
        block.extend((0..32).map(|i| pair[i] | pair[i + 32] << 4));
    }
    let want: Vec<f32> = (0..256)
        .map(|i| {
            let (s, m) = (f32::from(SCALES[i / 32]), f32::from(MINS[i / 32]));
            0.5 * s * f32::from(q[i]) - 0.25 * m
        })
        .collect();
    assert_eq!(unpack(Dtype::Q4K, &block, 256), want);
}

#[test]
fn q5_k_has_its_fifth_bits_by_group() {
    let q: Vec<u8> = (0..256usize).map(|i| ((i * 11 + i / 32) % 32) as u8).collect();
    let mut block = [half(0.5), half(0.25)].concat();
    block.extend(pack_scales(&SCALES, &MINS));
    block.extend((0..32).map(|i| (0..8).fold(0u8, |b, j| b | (q[32 * j + i] >> 4) << j)));
    for pair in q.chunks(64) {
        block.extend((0..32).map(|i| (pair[i] & 15) | (pair[i + 32] & 15) << 4));
    }
    let want: Vec<f32> = (0..256)
        .map(|i| {
            let (s, m) = (f32::from(SCALES[i / 32]), f32::from(MINS[i / 32]));
            0.5 * s * f32::from(q[i]) - 0.25 * m
        })
        .collect();
    assert_eq!(unpack(Dtype::Q5K, &block, 256), want);
}

#[test]
fn q6_k_scales_sixteen_groups() {
    let q: Vec<u8> = (0..256usize).map(|i| ((i * 13 + i / 8) % 64) as u8).collect();
    let scales: Vec<i8> = (0..16).map(|i| (i * 17 - 128) as i8).collect();
    let (mut low, mut high) = (vec![0u8; 128], vec![0u8; 64]);
    for (i, q) in q.iter().enumerate() {
        let (half, run, place) = (i / 128, i % 128 / 32, i % 32);
        low[64 * half + 32 * (run % 2) + place] |= (q & 15) << (4 * (run / 2));
        high[32 * half + place] |= (q >> 4) << (2 * run);
    }
    let mut block = [low, high].concat();
    block.extend(scales.iter().map(|s| *s as u8));
    block.extend(half(0.25));
    let want: Vec<f32> = (0..256)
        .map(|i| 0.25 * f32::from(scales[i / 16]) * (f32::from(q[i]) - 32.0))
        .collect();
    assert_eq!(unpack(Dtype::Q6K, &block, 256), want);
}

#[test]
fn several_blocks_follow_each_other() {
    let mut bytes = Vec::new();
    for d in [1.0, 2.0, 4.0] {
        bytes.extend(half(d));
        bytes.extend([1u8; 32]);
    }
    let out = unpack(Dtype::Q8_0, &bytes, 96);
    assert_eq!((out[0], out[32], out[95]), (1.0, 2.0, 4.0));
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    for (dtype, bytes, values) in [
        (Dtype::Q4_0, 18, 31),
        (Dtype::Q4_0, 17, 32),
        (Dtype::Q6K, 210, 32),
        (Dtype::F32, 5, 1),
        (Dtype::Other("I64"), 8, 1),
    ] {
        let mut out = vec![0.0; values];
        let error = dequantize(dtype, &vec![0; bytes], &mut out).unwrap_err();
        assert!(error.to_string().contains(dtype.name()), "{error}");
    }
}
