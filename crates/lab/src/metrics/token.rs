//! Two predictions of one token, compared.

/// How well a next token was predicted, and how far the prediction is from the oracle's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenScore {
    /// Negative log likelihood of the token that came, nats.
    pub nll: f64,
    /// The oracle's.
    pub oracle_nll: f64,
    /// KL(oracle || cell), nats: `sum p (ln p - ln q)`, with p the oracle's distribution.
    pub kl: f64,
    /// Largest difference of a logit.
    pub max_difference: f64,
    /// Whether both have the same most likely token; of equal logits the one with the lowest id.
    pub top1_agrees: bool,
}

/// Compares two rows of logits (`[vocab]`, finite) that predict `target`. The softmax is taken in f64.
///
/// `None` for rows of unequal length, and for a target beyond them.
pub fn score_token(oracle: &[f32], cell: &[f32], target: usize) -> Option<TokenScore> {
    if oracle.len() != cell.len() || target >= cell.len() {
        return None;
    }
    let (oracle_best, cell_best) = (argmax(oracle), argmax(cell));
    let (oracle_max, cell_max) = (f64::from(oracle[oracle_best]), f64::from(cell[cell_best]));
    let (mut oracle_sum, mut cell_sum, mut weighted, mut max_difference) = (0.0, 0.0, 0.0, 0.0_f64);
    for (&o, &c) in oracle.iter().zip(cell) {
        let (o, c) = (f64::from(o), f64::from(c));
        let weight = (o - oracle_max).exp();
        oracle_sum += weight;
        cell_sum += (c - cell_max).exp();
        weighted += weight * (o - c);
        max_difference = max_difference.max((o - c).abs());
    }
    let oracle_lse = oracle_max + oracle_sum.ln();
    let cell_lse = cell_max + cell_sum.ln();
    Some(TokenScore {
        nll: cell_lse - f64::from(cell[target]),
        oracle_nll: oracle_lse - f64::from(oracle[target]),
        // It cannot be negative, and rounding can.
        kl: (weighted / oracle_sum - oracle_lse + cell_lse).max(0.0),
        max_difference,
        top1_agrees: oracle_best == cell_best,
    })
}

/// The place of the largest logit; of equal ones the first.
fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (i, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = i;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn constant_logits_have_the_perplexity_of_the_vocabulary() {
        for vocab in [2, 256, 49_152] {
            let score = score_token(&vec![3.5; vocab], &vec![-7.25; vocab], vocab - 1).unwrap();
            assert!(
                (score.nll.exp() / vocab as f64 - 1.0).abs() < 1e-14,
                "{vocab}: {}",
                score.nll.exp()
            );
            assert_eq!(score.kl, 0.0, "two constants are one distribution");
            assert_eq!(score.max_difference, 10.75);
        }
    }

    #[test]
    fn equal_rows_are_not_apart() {
        let row: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin() * 20.0).collect();
        let score = score_token(&row, &row, 500).unwrap();
        assert_eq!(
            (score.kl, score.max_difference, score.nll),
            (0.0, 0.0, score.oracle_nll)
        );
        assert!(score.top1_agrees);
    }

    #[test]
    fn a_known_divergence() {
        // p = (3/4, 1/4), q = (1/2, 1/2): KL(p || q) = 3/4 ln 3/2 + 1/4 ln 1/2, and not KL(q || p).
        let (p, q) = ([3.0_f32.ln(), 0.0], [0.0, 0.0]);
        let score = score_token(&p, &q, 1).unwrap();
        assert!((score.kl - 0.130_812_035_941_137).abs() < 1e-7, "{}", score.kl);
        assert!((score.oracle_nll - 4.0_f64.ln()).abs() < 1e-7);
        assert!((score.nll - 2.0_f64.ln()).abs() < 1e-15);
    }

    #[test]
    fn logits_that_overflow_an_exponential_do_not() {
        let score = score_token(&[3e38, -3e38], &[-3e38, 3e38], 0).unwrap();
        assert!(
            score.kl.is_finite() && score.nll.is_finite() && score.oracle_nll == 0.0,
            "{score:?}"
        );
    }

    #[test]
    fn ties_go_to_the_lowest_id() {
        let agrees = |oracle: &[f32], cell: &[f32]| score_token(oracle, cell, 0).unwrap().top1_agrees;
        assert!(agrees(&[1.0, 2.0, 2.0], &[0.0, 5.0, 4.0]));
        assert!(!agrees(&[1.0, 2.0, 2.0], &[0.0, 4.0, 5.0]));
        assert!(agrees(&[0.0, 0.0], &[1.0, 0.0]));
    }

    #[test]
    fn rows_that_do_not_belong_together_are_refused() {
        assert_eq!(score_token(&[0.0], &[0.0, 0.0], 0), None);
        assert_eq!(score_token(&[0.0, 0.0], &[0.0, 0.0], 2), None);
        assert_eq!(score_token(&[], &[], 0), None);
    }
}
