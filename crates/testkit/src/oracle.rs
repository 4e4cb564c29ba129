//! Attention by its formula: loops over all rows in f64. No tensor library, no cache, no cleverness.

use crate::Layer;
use kvlab_core::Value;

/// One token's key and value, `[heads][dim]`.
#[derive(Clone, Debug)]
pub struct Row {
    /// Keys by KV head.
    pub key: Vec<Vec<f64>>,
    /// Values by KV head.
    pub value: Vec<Vec<f64>>,
}

/// Extras of a query.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Cap of the scores.
    pub softcap: Option<f64>,
    /// Extra score of each query head.
    pub sinks: Option<Vec<f64>>,
    /// Only rows before this position count.
    pub before: Option<usize>,
    /// Only rows from this position on count.
    pub from: usize,
}

/// Output `[query heads][value dim]` and log-sum-exp `[query heads]` (`-inf` where nothing is seen) of the query at
/// position `at` over `rows`, row `j` being at position `j`.
pub fn attend(
    layer: &Layer,
    rows: &[Row],
    query: &[Vec<f64>],
    at: usize,
    scale: f64,
    extras: &Extras,
) -> (Vec<Vec<f64>>, Vec<f64>) {
    let group = layer.query_heads / layer.row.heads;
    let mut outs = Vec::new();
    let mut lses = Vec::new();
    for (head, q) in query.iter().enumerate() {
        let kv = head / group;
        let mut scores = Vec::new();
        for (j, row) in rows.iter().enumerate() {
            let counted = j >= extras.from && extras.before.is_none_or(|before| j < before);
            if !counted || !layer.visibility.sees(at, j) || !layer.retention.keeps(at, j) {
                continue;
            }
            let dot: f64 = q.iter().zip(&row.key[kv]).map(|(a, b)| a * b).sum();
            let score = match extras.softcap {
                Some(cap) => cap * (dot * scale / cap).tanh(),
                None => dot * scale,
            };
            scores.push((score, &row.value[kv]));
        }
        let sink = extras.sinks.as_ref().map(|sinks| sinks[head]);
        let all = scores.iter().map(|(s, _)| *s).chain(sink);
        let max = all.fold(f64::NEG_INFINITY, f64::max);
        let mut out = vec![0.0; layer.row.value_dim()];
        let mut sum = sink.map_or(0.0, |sink| (sink - max).exp());
        for (score, value) in &scores {
            let weight = (score - max).exp();
            sum += weight;
            for (o, v) in out.iter_mut().zip(*value) {
                *o += weight * v;
            }
        }
        if sum > 0.0 {
            out.iter_mut().for_each(|o| *o /= sum);
        }
        outs.push(out);
        lses.push(if sum > 0.0 { max + sum.ln() } else { f64::NEG_INFINITY });
    }
    (outs, lses)
}

/// The value of a row is its key's prefix where the layer says so.
pub fn value_of(layer: &Layer, key: &[Vec<f64>], own: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    match layer.row.value {
        Value::Own(_) => own,
        Value::PrefixOfKey(dim) => key.iter().map(|k| k[..dim].to_vec()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvlab_core::{Retention, RowSpec, Visibility};

    #[test]
    fn the_formula_on_numbers_small_enough_to_check_by_hand() {
        let layer = Layer {
            row: RowSpec {
                heads: 1,
                key: 1,
                value: Value::Own(1),
            },
            query_heads: 1,
            visibility: Visibility::Causal,
            retention: Retention::All,
        };
        let row = |k: f64, v: f64| Row {
            key: vec![vec![k]],
            value: vec![vec![v]],
        };
        // Scores 0 and ln 3: weights 1/4 and 3/4. The third row is in the future.
        let rows = [row(0.0, 4.0), row(3.0_f64.ln(), 8.0), row(100.0, 1000.0)];
        let (out, lse) = attend(&layer, &rows, &[vec![1.0]], 1, 1.0, &Extras::default());
        assert!((out[0][0] - 7.0).abs() < 1e-12);
        assert!((lse[0] - 4.0_f64.ln()).abs() < 1e-12);
    }
}
