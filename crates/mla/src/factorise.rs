//! Ordinary attention weights as latent ones, by a truncated singular value decomposition.

use kvlab_core::{AttentionShape, HeadWeights, LatentWeights, Matrix};
use nalgebra::DMatrix;

/// Stacks the non-rotating part of `W_K` on `W_V`, and writes the stack as `U (S V^T)`: `S V^T` compresses the
/// hidden state to the latent, and the rows of `U` expand it again. Cut to `rank`, it is the best
/// approximation of the stack in the least-squares sense (Eckart-Young).
///
/// # Errors
/// If the decomposition does not converge, or the sizes do not fit `shape`.
pub fn factorise(shape: &AttentionShape, weights: &HeadWeights, rank: usize) -> Result<LatentWeights, String> {
    let (heads, hidden) = (weights.heads, weights.key.cols);
    let nope = shape.key - shape.rotary;
    let fits = weights.key.rows == heads * shape.key
        && weights.value.rows == heads * shape.value
        && weights.value.cols == hidden
        && shape.query_heads.is_multiple_of(heads);
    if !fits {
        return Err("the key and value projections do not have the model's head sizes".into());
    }
    let expand_rows = heads * (nope + shape.value);
    let key_row = |i: usize| i / nope * shape.key + shape.rotary + i % nope;
    let stack = DMatrix::from_fn(expand_rows, hidden, |i, j| match i.checked_sub(heads * nope) {
        None => f64::from(weights.key.row(key_row(i))[j]),
        Some(i) => f64::from(weights.value.row(i)[j]),
    });
    let svd = stack.try_svd(true, true, f64::EPSILON, 10_000);
    let parts = svd.and_then(|svd| Some((svd.u?, svd.singular_values, svd.v_t?)));
    let (u, s, v_t) = parts.ok_or("the singular value decomposition did not converge")?;

    // `rank` may be beyond the smaller side of the stack: the rest of the latent is zero.
    let kept = rank.min(s.len());
    let mut down = Matrix::zeros(rank, hidden);
    for i in 0..kept {
        for (j, out) in down.row_mut(i).iter_mut().enumerate() {
            *out = (s[i] * v_t[(i, j)]) as f32;
        }
    }
    // Query head `h` reads KV head `h / group`.
    let group = shape.query_heads / heads;
    let expand = |first: usize, dim: usize| {
        let mut up = Matrix::zeros(shape.query_heads * dim, rank);
        for h in 0..shape.query_heads {
            for d in 0..dim {
                let source = first + h / group * dim + d;
                for (i, out) in up.row_mut(h * dim + d).iter_mut().take(kept).enumerate() {
                    *out = u[(source, i)] as f32;
                }
            }
        }
        up
    };
    let mut rope = Matrix::zeros(heads * shape.rotary, hidden);
    let rope_row = |i: usize| i / shape.rotary * shape.key + i % shape.rotary;
    for i in 0..rope.rows {
        rope.row_mut(i).copy_from_slice(weights.key.row(rope_row(i)));
    }
    Ok(LatentWeights {
        down,
        rope_bias: weights
            .key_bias
            .as_ref()
            .filter(|_| rope.rows > 0)
            .map(|bias| (0..rope.rows).map(|i| bias[rope_row(i)]).collect()),
        rope,
        rope_blocks: heads,
        up_key: expand(0, nope),
        up_value: expand(heads * nope, shape.value),
        value_bias: weights.value_bias.as_ref().map(|bias| {
            let head = |h: usize| &bias[h / group * shape.value..][..shape.value];
            (0..shape.query_heads).flat_map(|h| head(h).iter().copied()).collect()
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_abs_diff_eq;
    use kvlab_core::Visibility;

    fn weights(heads: usize, key: usize, value: usize, hidden: usize) -> HeadWeights {
        // Numbers without a pattern, from a linear congruence.
        let mut state = 12345_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        let mut matrix = |rows: usize| Matrix {
            rows,
            cols: hidden,
            data: (0..rows * hidden).map(|_| next()).collect(),
        };
        HeadWeights {
            heads,
            key: matrix(heads * key),
            value: matrix(heads * value),
            key_bias: None,
            value_bias: None,
        }
    }

    fn shape(rotary: usize) -> AttentionShape {
        AttentionShape {
            hidden: 16,
            query_heads: 4,
            kv_heads: 2,
            key: 6,
            value: 5,
            rotary,
            latent: None,
            visibility: Visibility::Causal,
        }
    }

    fn product(a: &Matrix, b: &Matrix, row: usize, col: usize) -> f32 {
        (0..a.cols).map(|i| a.row(row)[i] * b.row(i)[col]).sum()
    }

    #[test]
    fn full_rank_gives_the_projections_back() {
        for rotary in [0, 2, 6] {
            let (shape, weights) = (shape(rotary), weights(2, 6, 5, 16));
            let nope = 6 - rotary;
            let latent = factorise(&shape, &weights, 2 * (nope + 5)).expect("converges");
            for h in 0..4 {
                for col in 0..16 {
                    for d in 0..5 {
                        let got = product(&latent.up_value, &latent.down, h * 5 + d, col);
                        assert_abs_diff_eq!(got, weights.value.row(h / 2 * 5 + d)[col], epsilon = 1e-5);
                    }
                    for d in 0..nope {
                        let got = product(&latent.up_key, &latent.down, h * nope + d, col);
                        let want = weights.key.row(h / 2 * 6 + rotary + d)[col];
                        assert_abs_diff_eq!(got, want, epsilon = 1e-5);
                    }
                }
            }
            for block in 0..2 {
                for d in 0..rotary {
                    let want = weights.key.row(block * 6 + d);
                    assert_eq!(latent.rope.row(block * rotary + d), want);
                }
            }
        }
    }

    #[test]
    fn fewer_ranks_lose_more() {
        let (shape, weights) = (shape(6), weights(2, 6, 5, 16));
        let error = |rank| {
            let latent = factorise(&shape, &weights, rank).expect("converges");
            let mut sum = 0.0;
            for row in 0..10 {
                for col in 0..16 {
                    let up = row / 5 * 2 * 5 + row % 5;
                    let got = product(&latent.up_value, &latent.down, up, col);
                    sum += (got - weights.value.row(row)[col]).powi(2);
                }
            }
            sum
        };
        let errors: Vec<f32> = [10, 8, 5, 2].into_iter().map(error).collect();
        assert!(errors[0] < 1e-9, "{errors:?}");
        assert!(errors.is_sorted(), "{errors:?}");
        assert!(errors[3] > 0.1, "{errors:?}");
    }
}
