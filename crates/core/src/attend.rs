//! What goes into an attention call and what comes out, and how two parts of one are put together.

use burn::tensor::{DType, Tensor};

/// The log-sum-exp of no row at all. Finite, because the arithmetic of infinities differs between GPUs.
pub const EMPTY_LSE: f32 = -1.0e30;

/// The new rows of a step, chunks back to back.
#[derive(Clone, Debug)]
pub struct Rows {
    /// `[tokens, kv heads, key dim]`, already rotated.
    pub key: Tensor<3>,
    /// `[tokens, kv heads, value dim]`; `None` where the value is a prefix of the key.
    pub value: Option<Tensor<3>>,
}

/// Which rows a query is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Span {
    /// Everything the query may see, its own row included.
    #[default]
    All,
    /// Only the rows from before this step.
    Past,
}

/// The queries of a step, chunks back to back.
#[derive(Clone, Debug)]
pub struct Query {
    /// `[tokens, query heads, key dim]`, already rotated.
    pub q: Tensor<3>,
    /// Factor on the dot products (usually `1 / sqrt(key dim)`).
    pub scale: f32,
    /// `c` of `c * tanh(s / c)`, applied to the scaled scores before the mask (Gemma 2).
    pub softcap: Option<f32>,
    /// `[query heads]`: a learned extra score per head that takes part in the softmax and has no value (gpt-oss).
    pub sinks: Option<Tensor<1>>,
    /// Which rows to look at.
    pub span: Span,
    /// Whether the log-sum-exp is wanted too.
    pub lse: bool,
}

impl Query {
    /// A query over everything visible, without soft cap or sinks.
    pub fn new(q: Tensor<3>, scale: f32) -> Self {
        Self {
            q,
            scale,
            softcap: None,
            sinks: None,
            span: Span::All,
            lse: false,
        }
    }
}

/// The outcome of an attention call.
#[derive(Clone, Debug)]
pub struct Attended {
    /// `[tokens, query heads, value dim]`. Zero for a query that sees no row.
    pub out: Tensor<3>,
    /// `[tokens, query heads]`: `log(sum(exp(score)))`, [`EMPTY_LSE`] for a query that sees no row.
    pub lse: Option<Tensor<2>>,
}

impl Attended {
    /// Attention over the union of two disjoint sets of rows, from the attention over each: the outputs are
    /// weighted by their share of the softmax denominator (Flash-Decoding; Dao et al. 2023).
    ///
    /// Both sides need their `lse`; `None` comes back if one lacks it.
    pub fn merge(self, other: Self) -> Option<Self> {
        let (a, b) = (self.lse?, other.lse?);
        let max = a.clone().max_pair(b.clone());
        let (wa, wb) = ((a - max.clone()).exp(), (b - max.clone()).exp());
        let sum = wa.clone() + wb.clone();
        let dtype = self.out.dtype();
        let share = |w: Tensor<2>| (w / sum.clone()).unsqueeze_dim::<3>(2);
        let part = |out: Tensor<3>, w: Tensor<2>| out.cast(DType::F32) * share(w);
        let out = (part(self.out, wa) + part(other.out, wb)).cast(dtype);
        Some(Self {
            out,
            lse: Some(max + sum.log()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_abs_diff_eq;
    use burn::tensor::Device;

    /// One query, one head, scores and values as given: the formula itself, in f64.
    fn softmax(rows: &[(f64, f64)]) -> (f64, f64) {
        let sum: f64 = rows.iter().map(|(s, _)| s.exp()).sum();
        let out: f64 = rows.iter().map(|(s, v)| s.exp() / sum * v).sum();
        (out, sum.ln())
    }

    fn attended(out: f64, lse: f64) -> Attended {
        let device = Device::flex();
        Attended {
            out: Tensor::from_floats([[[out as f32]]], &device),
            lse: Some(Tensor::from_floats([[lse as f32]], &device)),
        }
    }

    fn first(t: burn::tensor::TensorData) -> f64 {
        f64::from(t.try_to_vec::<f32>().map_or(f32::NAN, |v| v[0]))
    }

    #[test]
    fn merging_two_halves_is_attention_over_the_whole() {
        let rows = [(0.3, 1.0), (-2.0, 5.0), (1.7, -1.0), (0.0, 2.5)];
        for cut in 1..rows.len() {
            let ((oa, la), (ob, lb)) = (softmax(&rows[..cut]), softmax(&rows[cut..]));
            let (out, lse) = softmax(&rows);
            let merged = attended(oa, la).merge(attended(ob, lb));
            let merged = merged.expect("both sides have an lse");
            assert_abs_diff_eq!(first(merged.out.into_data()), out, epsilon = 1e-6);
            let got = merged.lse.expect("kept").into_data();
            assert_abs_diff_eq!(first(got), lse, epsilon = 1e-6);
        }
    }

    #[test]
    fn an_empty_half_weighs_nothing() {
        let merged = attended(2.0, 0.5).merge(attended(0.0, f64::from(EMPTY_LSE)));
        let merged = merged.expect("both sides have an lse");
        assert_eq!(first(merged.out.into_data()), 2.0);
        let both = attended(0.0, f64::from(EMPTY_LSE)).merge(attended(0.0, f64::from(EMPTY_LSE)));
        let both = both.expect("both sides have an lse");
        assert_eq!(first(both.out.into_data()), 0.0);
    }
}
