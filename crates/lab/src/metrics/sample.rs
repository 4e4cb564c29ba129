//! Samples of a measurement: middle, spread, and how sure the middle is.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use statrs::statistics::Statistics;

/// Resamples for a confidence interval.
const RESAMPLES: usize = 1000;

/// Samples that a confidence interval needs at least. A bootstrap of the median can reach no further than the smallest and the
/// largest sample, and of n samples all lie on one side of the true median with probability 2 / 2^n: with five, the range
/// itself holds it in no more than 94 %.
pub const FEWEST_SAMPLES: usize = 6;

/// A few samples: their median and their range, in the unit of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// 95 % confidence interval of the median, see [`bootstrap_median`]; `None` with fewer than [`FEWEST_SAMPLES`] samples, of
    /// which no interval could be trusted.
    pub interval: Option<[f64; 2]>,
}

impl Spread {
    /// `None` without samples.
    pub fn of(samples: &[f64], seed: u64) -> Option<Self> {
        let interval = bootstrap_median(samples, seed).filter(|_| samples.len() >= FEWEST_SAMPLES);
        Some(Self {
            median: percentile(samples, 50.0)?,
            min: percentile(samples, 0.0)?,
            max: percentile(samples, 100.0)?,
            interval: interval.map(|(low, high)| [low, high]),
        })
    }
}

/// Gaps between tokens (ITL), ms, of all repeats together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gaps {
    /// How many.
    pub count: usize,
    /// Median.
    pub p50: f64,
    /// 95 % confidence interval of the median; see [`bootstrap_median`].
    pub p50_interval: (f64, f64),
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Mean: time per output token (TPOT).
    pub mean: f64,
}

impl Gaps {
    /// `None` without samples.
    pub fn of(samples: &[f64], seed: u64) -> Option<Self> {
        Some(Self {
            count: samples.len(),
            p50: percentile(samples, 50.0)?,
            p50_interval: bootstrap_median(samples, seed)?,
            p95: percentile(samples, 95.0)?,
            p99: percentile(samples, 99.0)?,
            mean: mean(samples)?,
        })
    }
}

/// The `p`-th percentile (0 to 100), linear between the two samples next to it: definition 7 of Hyndman and Fan, 1996,
/// the default of R and NumPy. (statrs has definition 8, whose tails reach further.) `None` without samples.
pub fn percentile(samples: &[f64], p: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted_percentile(&sorted, p)
}

fn sorted_percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = p.clamp(0.0, 100.0) / 100.0 * last as f64;
    let below = place.floor() as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    Some(low + (high - low) * place.fract())
}

/// 95 % confidence interval of the median, by the percentile bootstrap (Efron, 1979) with 1000 resamples. The samples
/// count as independent; gaps of one run are not quite, so that the true interval is wider. `None` without samples.
pub fn bootstrap_median(samples: &[f64], seed: u64) -> Option<(f64, f64)> {
    if samples.is_empty() {
        return None;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut resample = vec![0.0; samples.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        resample.fill_with(|| samples[random.random_range(0..samples.len())]);
        resample.sort_by(f64::total_cmp);
        medians.extend(sorted_percentile(&resample, 50.0));
    }
    medians.sort_by(f64::total_cmp);
    Some((sorted_percentile(&medians, 2.5)?, sorted_percentile(&medians, 97.5)?))
}

/// The mean. `None` without samples.
pub(crate) fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// Standard error of the mean, from the sample variance. `None` with fewer than two samples.
pub(crate) fn standard_error(samples: &[f64]) -> Option<f64> {
    (samples.len() > 1).then(|| samples.std_dev() / (samples.len() as f64).sqrt())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn percentiles_are_those_of_numpy() {
        let samples = [15.0, 50.0, 20.0, 40.0, 35.0];
        for (p, want) in [(0.0, 15.0), (40.0, 29.0), (50.0, 35.0), (95.0, 48.0), (100.0, 50.0)] {
            assert!((percentile(&samples, p).unwrap() - want).abs() < 1e-12, "p{p}");
        }
        assert_eq!(percentile(&[1.0, 2.0], 50.0), Some(1.5));
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn a_standard_error_by_hand() {
        // Variance of 1, 2, 3, 4 is 5/3; over 4 samples.
        assert!((standard_error(&[1.0, 2.0, 3.0, 4.0]).unwrap() - (5.0_f64 / 12.0).sqrt()).abs() < 1e-15);
        assert_eq!(standard_error(&[1.0]), None);
        assert_eq!(standard_error(&[]), None);
    }

    #[test]
    fn the_interval_is_seeded_and_holds_the_median() {
        let samples: Vec<f64> = (0..101).map(f64::from).collect();
        let (low, high) = bootstrap_median(&samples, 7).unwrap();
        assert_eq!(bootstrap_median(&samples, 7), Some((low, high)));
        assert_ne!(bootstrap_median(&samples, 8), Some((low, high)));
        // The order statistics around the median: 50 -+ 1.96 sqrt(101) / 2 is 40 to 60.
        assert!(
            (37.0..=43.0).contains(&low) && (57.0..=63.0).contains(&high),
            "{low} to {high}"
        );
        assert_eq!(bootstrap_median(&[2.0; 9], 1), Some((2.0, 2.0)));
    }

    #[test]
    fn gaps_of_nothing_are_nothing() {
        assert_eq!(Gaps::of(&[], 0), None);
        assert_eq!(Spread::of(&[], 0), None);
        let spread = Spread {
            median: 2.0,
            min: 1.0,
            max: 9.0,
            interval: None,
        };
        assert_eq!(Spread::of(&[9.0, 1.0, 2.0], 0), Some(spread));
        let six = Spread::of(&[9.0, 1.0, 2.0, 3.0, 4.0, 5.0], 0).unwrap();
        let [low, high] = six.interval.unwrap();
        assert!(low >= six.min && low < six.median && six.median < high && high <= six.max);
    }
}
