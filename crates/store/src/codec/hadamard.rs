//! The Hadamard rotation: spreads an outlier over its neighbours, so that one large number does not cost all
//! others their precision (QuaRot, Ashkboos et al. 2024).
//!
//! Vectors are multiplied by the normalised matrix `H / sqrt(n)`, which is symmetric and orthogonal, hence its
//! own inverse: the same call turns them back. It keeps lengths and dot products.

/// Values that are rotated together in a vector of `dim`: the largest power of two that divides it.
pub fn block(dim: usize) -> usize {
    match dim {
        0 => 1,
        _ => 1 << dim.trailing_zeros(),
    }
}

/// Rotates a vector in place, block by block. The order of additions depends on nothing but `dim`.
pub fn rotate(vector: &mut [f32]) {
    rotate_blocks(vector, block(vector.len()));
}

/// Rotates `n` values together, a power of two: part of a vector whose [`block`] is `n`.
pub fn rotate_blocks(vector: &mut [f32], n: usize) {
    let norm = 1.0 / (n as f32).sqrt();
    for block in vector.chunks_exact_mut(n) {
        let mut half = 1;
        if n >= 4 {
            // The first two rounds at once, on numbers that lie side by side.
            for [a, b, c, d] in block.as_chunks_mut().0 {
                let (sum, difference) = ((*a + *b, *c + *d), (*a - *b, *c - *d));
                (*a, *c) = (sum.0 + sum.1, sum.0 - sum.1);
                (*b, *d) = (difference.0 + difference.1, difference.0 - difference.1);
            }
            half = 4;
        }
        while half < n {
            for pair in block.chunks_exact_mut(2 * half) {
                let (a, b) = pair.split_at_mut(half);
                for (a, b) in a.iter_mut().zip(b) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        block.iter_mut().for_each(|x| *x *= norm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(n: usize) -> Vec<Vec<f32>> {
        let unit = |i: usize| (0..n).map(|j| if i == j { 1.0 } else { 0.0 }).collect::<Vec<f32>>();
        let rotated = |mut v: Vec<f32>| {
            rotate(&mut v);
            v
        };
        (0..n).map(|i| rotated(unit(i))).collect()
    }

    #[test]
    fn it_is_sylvesters_matrix() {
        let h = matrix(4);
        let sign = |i: usize, j: usize| {
            if (i & j).count_ones().is_multiple_of(2) {
                0.5
            } else {
                -0.5
            }
        };
        for (i, row) in h.iter().enumerate() {
            for (j, &x) in row.iter().enumerate() {
                assert_eq!(x, sign(i, j), "{i} {j}");
            }
        }
    }

    #[test]
    fn it_is_orthogonal_and_symmetric() {
        for n in [1, 2, 6, 8, 28, 64, 80, 576] {
            let h = matrix(n);
            for i in 0..n {
                for j in 0..n {
                    let dot: f32 = h[i].iter().zip(&h[j]).map(|(a, b)| a * b).sum();
                    assert!((dot - f32::from(u8::from(i == j))).abs() < 1e-5, "{n}: {i} {j}: {dot}");
                    assert_eq!(h[i][j], h[j][i]);
                }
            }
        }
    }

    #[test]
    fn an_outlier_is_spread() {
        let mut v = vec![0.0; 64];
        v[17] = 8.0;
        rotate(&mut v);
        assert!(v.iter().all(|x| x.abs() == 1.0));
        rotate(&mut v);
        assert_eq!(v[17], 8.0);
    }

    #[test]
    fn blocks_are_powers_of_two() {
        assert_eq!([8, 80, 96, 576, 7, 6].map(block), [8, 16, 32, 64, 1, 2]);
    }
}
