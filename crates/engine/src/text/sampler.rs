//! Logits to the next token id: greedy, temperature, top-k, top-p.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

use super::error::TextError;

/// How to choose the next token. The default is greedy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Divides the logits. 0 is greedy: the largest logit, of equal ones the lowest id.
    pub temperature: f32,
    /// Only this many of the largest logits take part; 0 is off. Of equal ones the lowest ids.
    pub top_k: usize,
    /// Only the most likely tokens take part that together reach this probability, at least one; 1 is off.
    /// Applied after temperature and top-k (nucleus sampling, Holtzman et al., arXiv 1904.09751).
    pub top_p: f32,
    /// Two samplers with one seed choose the same ids from the same logits, on every machine.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            seed: 0,
        }
    }
}

/// Chooses token ids. One per sequence, so that what else is in a batch changes nothing.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    rng: ChaCha8Rng,
    /// Id and unnormalised probability; kept to save an allocation a step.
    candidates: Vec<(u32, f64)>,
}

impl Sampler {
    /// # Errors
    /// A temperature that is negative or not finite, or a `top_p` outside (0, 1].
    pub fn new(sampling: Sampling) -> Result<Self, TextError> {
        let Sampling {
            temperature,
            top_p,
            seed,
            ..
        } = sampling;
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(TextError::BadTemperature { value: temperature });
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(TextError::BadTopP { value: top_p });
        }
        Ok(Sampler {
            sampling,
            rng: ChaCha8Rng::seed_from_u64(seed),
            candidates: Vec::new(),
        })
    }

    /// What it was made with.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// The next id from one logit per token. Minus infinity masks a token out.
    ///
    /// # Errors
    /// A NaN or +infinity, with its position, or no token left; the state of the generator does not change then.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, TextError> {
        let best = argmax(logits)?;
        if self.sampling.temperature == 0.0 {
            return Ok(best as u32);
        }
        self.weigh(logits, logits[best]);
        self.keep_top_k();
        self.keep_top_p();
        let total: f64 = self.candidates.iter().map(|&(_, weight)| weight).sum();
        // 53 random bits make a uniform number in [0, 1).
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = uniform * total;
        let mut chosen = best as u32;
        for &(id, weight) in self.candidates.iter().filter(|&&(_, weight)| weight > 0.0) {
            chosen = id;
            if left < weight {
                break;
            }
            left -= weight;
        }
        Ok(chosen)
    }

    /// exp((logit - largest) / temperature), in id order: between 0 and 1, and 1 for the largest.
    fn weigh(&mut self, logits: &[f32], largest: f32) {
        let temperature = f64::from(self.sampling.temperature);
        let weight = |&logit: &f32| ((f64::from(logit) - f64::from(largest)) / temperature).exp();
        self.candidates.clear();
        self.candidates.extend((0u32..).zip(logits.iter().map(weight)));
    }

    fn keep_top_k(&mut self) {
        let k = self.sampling.top_k;
        if k > 0 && k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(k - 1, likelier);
            self.candidates.truncate(k);
            // The order after a selection is unspecified, and the draw walks in order.
            self.candidates.sort_unstable_by(likelier);
        }
    }

    fn keep_top_p(&mut self) {
        let top_p = f64::from(self.sampling.top_p);
        if top_p >= 1.0 {
            return;
        }
        self.candidates.sort_unstable_by(likelier);
        let total: f64 = self.candidates.iter().map(|&(_, weight)| weight).sum();
        let mut sum = 0.0;
        let reached = self.candidates.iter().position(|&(_, weight)| {
            sum += weight;
            sum >= top_p * total
        });
        if let Some(last) = reached {
            self.candidates.truncate(last + 1);
        }
    }
}

/// Larger weight first, of equal ones the lower id: a total order, so sorting is deterministic.
fn likelier(a: &(u32, f64), b: &(u32, f64)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

/// The position of the largest logit, of equal ones the first.
fn argmax(logits: &[f32]) -> Result<usize, TextError> {
    let mut best: Option<usize> = None;
    for (position, &logit) in logits.iter().enumerate() {
        if logit.is_nan() || logit == f32::INFINITY {
            return Err(TextError::BadLogit {
                position,
                value: logit.to_string(),
            });
        }
        if logit > best.map_or(f32::NEG_INFINITY, |best| logits[best]) {
            best = Some(position);
        }
    }
    best.ok_or(TextError::NoCandidate { len: logits.len() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sampler(temperature: f32, top_k: usize, top_p: f32, seed: u64) -> Sampler {
        Sampler::new(Sampling {
            temperature,
            top_k,
            top_p,
            seed,
        })
        .unwrap()
    }

    fn draws(mut sampler: Sampler, logits: &[f32], n: usize) -> Vec<u32> {
        (0..n).map(|_| sampler.sample(logits).unwrap()).collect()
    }

    /// The share of each id in 20,000 draws.
    fn shares(sampler: Sampler, logits: &[f32]) -> Vec<f64> {
        let mut shares = vec![0.0; logits.len()];
        for id in draws(sampler, logits, 20_000) {
            shares[id as usize] += 1.0 / 20_000.0;
        }
        shares
    }

    #[track_caller]
    fn assert_near(shares: &[f64], expected: &[f64]) {
        // Four standard deviations of a share are at most 4 * sqrt(0.25 / 20,000) = 0.0142.
        assert!(
            shares.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.0142),
            "{shares:?} is not {expected:?}"
        );
    }

    /// T101.
    #[test]
    fn greedy_takes_the_largest_and_of_ties_the_lowest_id() {
        let mut greedy = Sampler::new(Sampling::default()).unwrap();
        assert_eq!(greedy.sample(&[0.0, 3.0, -1.0, 3.0]), Ok(1));
        assert_eq!(greedy.sample(&[-0.0, 0.0]), Ok(0));
        assert_eq!(greedy.sample(&[f32::NEG_INFINITY, f32::MIN]), Ok(1));
        // Ties at the edge of top-k also go to the lowest ids.
        let seen = draws(sampler(1.0, 2, 1.0, 1), &[1.0, 5.0, 1.0, 1.0], 200);
        assert!(seen.contains(&0) && !seen.contains(&2) && !seen.contains(&3));
    }

    /// T101.
    #[test]
    fn a_seed_fixes_the_draws_and_they_do_not_change_between_versions() {
        let logits = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8];
        let first = draws(sampler(1.0, 0, 1.0, 42), &logits, 16);
        assert_eq!(first, draws(sampler(1.0, 0, 1.0, 42), &logits, 16));
        assert_ne!(first, draws(sampler(1.0, 0, 1.0, 43), &logits, 16));
        assert_eq!(
            first, GOLDEN,
            "the generator or the walk changed: recorded runs no longer repeat"
        );
    }

    const GOLDEN: [u32; 16] = [6, 7, 4, 5, 3, 1, 3, 6, 6, 2, 4, 7, 7, 5, 6, 1];

    #[test]
    fn shares_follow_the_softmax() {
        let logits = [1f32.ln(), 2f32.ln(), 3f32.ln(), 4f32.ln()];
        assert_near(&shares(sampler(1.0, 0, 1.0, 1), &logits), &[0.1, 0.2, 0.3, 0.4]);
        // At temperature 1/2 the odds are squared: 1, 4, 9, 16 of 30.
        assert_near(
            &shares(sampler(0.5, 0, 1.0, 2), &logits),
            &[1.0 / 30.0, 4.0 / 30.0, 9.0 / 30.0, 16.0 / 30.0],
        );
        assert_near(
            &shares(sampler(1.0, 2, 1.0, 3), &logits),
            &[0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0],
        );
        // 0.4 is under 0.65 and 0.4 + 0.3 reaches it.
        assert_near(
            &shares(sampler(1.0, 0, 0.65, 4), &logits),
            &[0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0],
        );
        // After top-k 3 the shares are 2, 3, 4 of 9: 4/9 + 3/9 reaches 0.75, where 0.4 + 0.3 would not.
        assert_near(
            &shares(sampler(1.0, 3, 0.75, 5), &logits),
            &[0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0],
        );
        assert_eq!(draws(sampler(1.0, 0, 1e-9, 6), &logits, 50), [3; 50]);
        assert_eq!(draws(sampler(1e-30, 0, 1.0, 7), &logits, 50), [3; 50]);
        assert_eq!(draws(sampler(1.0, 1, 1.0, 8), &logits, 50), [3; 50]);
    }

    #[test]
    fn a_masked_token_is_never_drawn() {
        let logits = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, 0.0];
        let shares = shares(sampler(100.0, 3, 0.999, 9), &logits);
        assert_near(&shares, &[0.0, 0.5, 0.0, 0.5]);
        assert_eq!((shares[0], shares[2]), (0.0, 0.0));
    }

    #[test]
    fn bad_logits_are_named_and_cost_no_randomness() {
        let mut tried = sampler(1.0, 0, 1.0, 7);
        for (logits, error) in [
            (&[0.0, f32::NAN, f32::NAN][..], "position 1 is NaN"),
            (&[0.0, 1.0, f32::INFINITY], "position 2 is inf"),
            (&[], "none of the 0 logits"),
            (&[f32::NEG_INFINITY; 3], "none of the 3 logits"),
        ] {
            let message = tried.sample(logits).unwrap_err().to_string();
            assert!(message.contains(error), "{message}");
        }
        let logits = [0.0; 50];
        assert_eq!(draws(tried, &logits, 20), draws(sampler(1.0, 0, 1.0, 7), &logits, 20));
    }

    #[test]
    fn settings_are_checked_when_made() {
        for temperature in [-0.1, f32::NAN, f32::INFINITY] {
            assert!(
                Sampler::new(Sampling {
                    temperature,
                    ..Sampling::default()
                })
                .is_err()
            );
        }
        for top_p in [0.0, -1.0, 1.000_001, f32::NAN] {
            assert!(
                Sampler::new(Sampling {
                    top_p,
                    ..Sampling::default()
                })
                .is_err()
            );
        }
        let read: Sampling = serde_json::from_str(r#"{"temperature": 0.7}"#).unwrap();
        assert_eq!(
            read,
            Sampling {
                temperature: 0.7,
                ..Sampling::default()
            }
        );
        assert!(serde_json::from_str::<Sampling>(r#"{"temprature": 0.7}"#).is_err());
    }
}
