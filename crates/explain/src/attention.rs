//! The attention of one query by its formula, in f64, with its steps in hand.

/// What the scores of a query are made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Factor on the dot products.
    pub(crate) scale: f64,
    /// `c` of `c * tanh(s / c)`.
    pub(crate) softcap: Option<f64>,
    /// A learned score that takes part in the softmax and has no value.
    pub(crate) sink: Option<f64>,
}

/// One query over the rows that it sees, in their order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Steps {
    /// After scale and soft cap.
    pub(crate) scores: Vec<f64>,
    /// Softmax of the scores; a sink takes a part of it.
    pub(crate) weights: Vec<f64>,
    /// The values, weighted and added.
    pub(crate) out: Vec<f64>,
}

/// `rows` are keys and values; all keys are as long as `query`, and all values equally long.
pub(crate) fn attend(query: &[f32], rows: &[(&[f32], &[f32])], rule: Rule) -> Steps {
    let score = |key: &[f32]| {
        let products = query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k));
        let score = products.sum::<f64>() * rule.scale;
        rule.softcap.map_or(score, |cap| cap * (score / cap).tanh())
    };
    let scores: Vec<f64> = rows.iter().map(|(key, _)| score(key)).collect();
    let max = scores
        .iter()
        .copied()
        .chain(rule.sink)
        .fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = powers.iter().sum::<f64>() + rule.sink.map_or(0.0, |sink| (sink - max).exp());
    let weights: Vec<f64> = powers.iter().map(|power| power / sum).collect();
    let mut out = vec![0.0; rows.first().map_or(0, |(_, value)| value.len())];
    for (weight, (_, value)) in weights.iter().zip(rows) {
        for (o, v) in out.iter_mut().zip(*value) {
            *o += weight * f64::from(*v);
        }
    }
    Steps { scores, weights, out }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Rule = Rule {
        scale: 0.5,
        softcap: None,
        sink: None,
    };

    fn near(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6)
    }

    #[test]
    fn numbers_small_enough_to_check_by_hand() {
        // Products 0 and 2 ln 3, scores 0 and ln 3, weights 1/4 and 3/4.
        let key = 2.0 * 3.0_f32.ln();
        let rows: [(&[f32], &[f32]); 2] = [(&[0.0], &[4.0, 0.0]), (&[key], &[8.0, 1.0])];
        let steps = attend(&[1.0], &rows, PLAIN);
        assert!(near(&steps.scores, &[0.0, 3.0_f64.ln()]), "{steps:?}");
        assert!(near(&steps.weights, &[0.25, 0.75]), "{steps:?}");
        assert!(near(&steps.out, &[7.0, 0.75]), "{steps:?}");
    }

    #[test]
    fn a_sink_takes_a_share_and_a_cap_flattens() {
        let rows: [(&[f32], &[f32]); 1] = [(&[0.0], &[4.0])];
        let sink = Rule {
            sink: Some(3.0_f64.ln()),
            ..PLAIN
        };
        assert!(near(&attend(&[1.0], &rows, sink).out, &[1.0]));
        let rows: [(&[f32], &[f32]); 1] = [(&[1e6], &[4.0])];
        let cap = Rule {
            softcap: Some(2.0),
            ..PLAIN
        };
        assert!(near(&attend(&[1.0], &rows, cap).scores, &[2.0]));
    }
}
