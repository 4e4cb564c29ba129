//! How sure a mean or a share is: 95 % confidence intervals from known distributions.

use super::sample::{mean, standard_error};
use statrs::distribution::{Beta, ContinuousCDF, StudentsT};

/// What lies below and above an interval of 95 %.
const TAIL: f64 = 0.025;

/// 95 % confidence interval of the mean of independent samples, by Student's t with one degree of freedom less than there
/// are samples. `None` with fewer than two.
pub fn mean_interval(samples: &[f64]) -> Option<[f64; 2]> {
    let (mean, error) = (mean(samples)?, standard_error(samples)?);
    let t = StudentsT::new(0.0, 1.0, samples.len() as f64 - 1.0).ok()?;
    let reach = error * t.inverse_cdf(1.0 - TAIL);
    Some([mean - reach, mean + reach])
}

/// 95 % confidence interval of a probability of which `correct` of `trials` came true, by Clopper and Pearson (1934): it
/// holds the probability at least that often, with few trials much more often. `None` without trials, or with more that came
/// true.
pub fn share_interval(correct: usize, trials: usize) -> Option<[f64; 2]> {
    let (k, n) = (correct as f64, trials as f64);
    let quantile = |a, b, p| Beta::new(a, b).ok().map(|beta| beta.inverse_cdf(p));
    match (correct, trials) {
        (_, 0) => None,
        (k, n) if k > n => None,
        (0, _) => Some([0.0, quantile(1.0, n, 1.0 - TAIL)?]),
        (k, n_) if k == n_ => Some([quantile(n, 1.0, TAIL)?, 1.0]),
        _ => Some([quantile(k, n - k + 1.0, TAIL)?, quantile(k + 1.0, n - k, 1.0 - TAIL)?]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn near(got: [f64; 2], want: [f64; 2]) {
        assert!(
            got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-4),
            "{got:?} and {want:?}"
        );
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_student() {
        // Mean 2.5, standard error sqrt(5 / 12), t(3) at 97.5 %: 3.182446 in any table.
        let reach = 3.182_446 * (5.0_f64 / 12.0).sqrt();
        near(
            mean_interval(&[1.0, 2.0, 3.0, 4.0]).unwrap(),
            [2.5 - reach, 2.5 + reach],
        );
        assert_eq!(mean_interval(&[1.0]), None);
        assert_eq!(mean_interval(&[2.0; 5]), Some([2.0, 2.0]));
    }

    #[test]
    fn the_interval_of_a_share_is_that_of_clopper_and_pearson() {
        // All or none of n: the open end is (1 - 0.95 / 2 - 0.5)^(1 / n), that is 0.025^(1 / n).
        let edge = 0.025_f64.powf(0.1);
        near(share_interval(10, 10).unwrap(), [edge, 1.0]);
        near(share_interval(0, 10).unwrap(), [0.0, 1.0 - edge]);
        // What it is made from: at its lower end, 4 or more of 10 come with probability 0.025, at its upper end 4 or fewer.
        let [low, high] = share_interval(4, 10).unwrap();
        let choose = [1.0, 10.0, 45.0, 120.0, 210.0, 252.0, 210.0, 120.0, 45.0, 10.0, 1.0];
        let chance = |p: f64, range: std::ops::RangeInclusive<usize>| -> f64 {
            range
                .map(|k| choose[k] * p.powi(k as i32) * (1.0 - p).powi(10 - k as i32))
                .sum()
        };
        near([chance(low, 4..=10), chance(high, 0..=4)], [0.025, 0.025]);
        assert_eq!((share_interval(0, 0), share_interval(3, 2)), (None, None));
    }
}
