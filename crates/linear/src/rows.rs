//! What happens between products, row by row on slices: norms, rotations, and the gate of a feed-forward network.
//!
//! Each is one pass over memory and one call, where a tensor library makes several of both: in a decoder that makes one
//! token, those calls take as long as the small products beside them.
//!
//! The loops are plain Rust, compiled once more with the instructions of AVX-512 and of AVX2.

#![allow(unsafe_code)] // Calls of functions that need an instruction set, after a look whether it is there.

use kvlab_cpu::Isa;

/// Numbers that are not worth a second thread.
const ALONE: usize = 1 << 15;

/// A loop over rows that is compiled for several instruction sets.
macro_rules! for_every_isa {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $type),*) {
            #[inline(always)]
            fn plain($($arg: $type),*) $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
            fn avx512($($arg: $type),*) {
                plain($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) {
                plain($($arg),*)
            }
            match Isa::best() {
                // SAFETY: the machine has it.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx => unsafe { avx512($($arg),*) },
                // SAFETY: the machine has it.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => unsafe { avx2($($arg),*) },
                _ => plain($($arg),*),
            }
        }
    };
}

/// Calls `work` with rows of `width` numbers of `out`, and those of the same place in `x`, on all threads if it pays.
fn split(x: &[f32], out: &mut [f32], width: usize, work: impl Fn(&[f32], &mut [f32]) + Sync) {
    if out.len() < ALONE || width == 0 {
        return work(x, out);
    }
    let rows = out.len() / width;
    let share = rows.div_ceil(4 * kvlab_cpu::threads()).max(1) * width;
    kvlab_cpu::for_each(x.chunks(share).zip(out.chunks_mut(share)), |(x, out)| work(x, out));
}

/// `x / sqrt(mean(x^2) + eps) * weight` for each row of `x` (Zhang and Sennrich, 2019); rows are as long as `weight`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    split(x, out, weight.len(), |x, out| rms_norm_rows(x, weight, eps, out));
}

for_every_isa! {
    fn rms_norm_rows(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let n = weight.len().max(1);
        for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
            let mut sums = [0.0_f32; 32];
            let (parts, rest) = x.as_chunks::<32>();
            for part in parts {
                for (sum, x) in sums.iter_mut().zip(part) {
                    *sum += x * x;
                }
            }
            let square = sums.iter().chain(&[rest.iter().map(|x| x * x).sum::<f32>()]).sum::<f32>();
            let factor = 1.0 / (square / n as f32 + eps).sqrt();
            for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
                *out = x * factor * weight;
            }
        }
    }
}

/// Turns the first values of each head by the angles of its token: of `2 * half` values, number `i` and `i + half` are
/// one pair (Su et al. 2021, in the order of GPT-NeoX). `x` is `[tokens, heads, dim]`; `cos` and `sin` are
/// `[tokens, half]`.
pub fn rotate(x: &mut [f32], dim: usize, half: usize, cos: &[f32], sin: &[f32]) {
    let tokens = cos.len() / half.max(1);
    if tokens == 0 || half == 0 {
        return;
    }
    let width = x.len() / tokens;
    let share = match x.len() < ALONE {
        true => tokens,
        false => tokens.div_ceil(4 * kvlab_cpu::threads()),
    };
    let angles = cos.chunks(share * half).zip(sin.chunks(share * half));
    kvlab_cpu::for_each(x.chunks_mut(share * width).zip(angles), |(x, (cos, sin))| {
        rotate_rows(x, [dim, half, cos.len() / half], cos, sin);
    });
}

for_every_isa! {
    fn rotate_rows(x: &mut [f32], shape: [usize; 3], cos: &[f32], sin: &[f32]) {
        let [dim, half, tokens] = shape;
        let width = x.len() / tokens;
        let angles = cos.chunks_exact(half).zip(sin.chunks_exact(half));
        for (x, (cos, sin)) in x.chunks_exact_mut(width).zip(angles) {
            for head in x.chunks_exact_mut(dim) {
                let (first, second) = head[..2 * half].split_at_mut(half);
                for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
        }
    }
}

/// `silu(gate) * up`, written over `gate`; `silu(x) = x / (1 + exp(-x))`.
pub fn silu_product(gate: &mut [f32], up: &[f32]) {
    split(up, gate, 64, silu_product_rows);
}

for_every_isa! {
    fn silu_product_rows(up: &[f32], gate: &mut [f32]) {
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = *gate / (1.0 + exp(-*gate)) * up;
        }
    }
}

/// Adds `y` to `x`.
pub fn add(x: &mut [f32], y: &[f32]) {
    split(y, x, 64, add_rows);
}

for_every_isa! {
    fn add_rows(y: &[f32], x: &mut [f32]) {
        x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
    }
}

/// `e^x` with a relative error below 2e-7, without a branch; infinite above 88.3, 0 below -87.3.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Not a number stays so: it fails both comparisons.
    let t = x * std::f32::consts::LOG2_E;
    let t = if t > 127.49 { 127.49 } else { t };
    let t = if t < -126.0 { -126.0 } else { t };
    // Adding 1.5 * 2^23 rounds to a whole number, and leaves it in the lowest bits.
    let rounded = t + 12_582_912.0;
    let n = rounded - 12_582_912.0;
    // The two parts of ln 2: the first has so few bits that its product is exact.
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let mut p = 1.984_127e-4;
    for term in [
        1.388_888_9e-3,
        8.333_334e-3,
        4.166_666_8e-2,
        0.166_666_67,
        0.5,
        1.0,
        1.0,
    ] {
        p = p * r + term;
    }
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23));
    match x {
        x if x > 88.3 => f32::INFINITY,
        x if x < -87.3 => 0.0,
        _ => p * power,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect()
    }

    #[test]
    fn exp_is_close() {
        let mut x = -87.0_f32;
        while x < 88.0 {
            let (y, expected) = (f64::from(exp(x)), f64::from(x).exp());
            assert!(((y - expected) / expected).abs() < 2e-7, "{x}: {y} is not {expected}");
            x += 0.003_7;
        }
        assert_eq!(exp(-200.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(200.0), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }

    /// Against f64, with one row and with rows for all threads.
    #[test]
    fn norms_gates_and_rotations_are_those_of_f64() {
        for (rows, n) in [(1, 7), (3, 64), (90, 576)] {
            let (x, weight) = (numbers(rows * n), numbers(n));
            let mut out = vec![0.0; x.len()];
            rms_norm(&x, &weight, 1e-5, &mut out);
            for (x, out) in x.chunks(n).zip(out.chunks(n)) {
                let square: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
                let root = (square / n as f64 + 1e-5).sqrt();
                for ((out, x), weight) in out.iter().zip(x).zip(&weight) {
                    let expected = f64::from(*x) / root * f64::from(*weight);
                    assert!((f64::from(*out) - expected).abs() < 2e-6, "{out} is not {expected}");
                }
            }
            let (mut gate, up) = (numbers(rows * n), numbers(rows * n + 5)[5..].to_vec());
            let before = gate.clone();
            silu_product(&mut gate, &up);
            for ((out, x), up) in gate.iter().zip(&before).zip(&up) {
                let x = f64::from(*x);
                let expected = x / (1.0 + (-x).exp()) * f64::from(*up);
                assert!((f64::from(*out) - expected).abs() < 2e-6, "{out} is not {expected}");
            }
        }
        // Two tokens of three heads of 10 values, of which 8 are turned.
        let (before, angle) = (numbers(60), |i: usize| 0.3 + i as f32);
        let (cos, sin): (Vec<f32>, Vec<f32>) = (0..8).map(|i| (angle(i).cos(), angle(i).sin())).unzip();
        let mut x = before.clone();
        rotate(&mut x, 10, 4, &cos, &sin);
        for (i, out) in x.iter().enumerate() {
            let (token, place) = (i / 30, i % 10);
            let (c, s) = (cos[token * 4 + place % 4], sin[token * 4 + place % 4]);
            let expected = match place {
                0..4 => before[i] * c - before[i + 4] * s,
                4..8 => before[i] * c + before[i - 4] * s,
                _ => before[i],
            };
            assert!((out - expected).abs() < 1e-6, "value {i}: {out} is not {expected}");
        }
    }
}
