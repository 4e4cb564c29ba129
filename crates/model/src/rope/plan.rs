//! A rotary embedding as data, and its frequencies.

use crate::ModelError;
use std::f64::consts::PI;

/// A rotary embedding (Su et al., 2021): pair `i` of a head turns by `position * frequency[i]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RopePlan {
    /// `rope_theta`.
    pub theta: f64,
    /// How many values of a head turn; even. The others stay.
    pub rotary: usize,
    /// Which two values of a head are a pair in the weights as stored.
    pub pairs: RopePairs,
    /// How the frequencies are changed for a longer context.
    pub scaling: RopeScaling,
}

/// Which two values of a head are a pair. Loading reorders the weights, so that everything after it (rows in a
/// cache too) is half-split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// `(x[i], x[i + rotary / 2])`: `rotate_half` of Hugging Face.
    HalfSplit,
    /// `(x[2 i], x[2 i + 1])`: DeepSeek.
    Adjacent,
}

/// How frequencies are changed for a longer context.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    Default,
    /// Divided by `factor` (Chen et al., 2023).
    Linear {
        /// `factor`.
        factor: f64,
    },
    /// Llama 3.1: long waves are divided by `factor`, short ones stay, a blend between.
    Llama3 {
        /// `factor`.
        factor: f64,
        /// `low_freq_factor`.
        low: f64,
        /// `high_freq_factor`.
        high: f64,
        /// `original_max_position_embeddings`.
        original: f64,
    },
    /// YaRN (Peng et al., 2023).
    Yarn {
        /// `factor`.
        factor: f64,
        /// `original_max_position_embeddings`.
        original: f64,
        /// `beta_fast`: pairs that turn more often than this over the original context stay.
        beta_fast: f64,
        /// `beta_slow`: pairs that turn less often than this are divided by `factor`.
        beta_slow: f64,
        /// Whether the bounds of the blend are rounded to whole pairs.
        truncate: bool,
        /// Factor on cos and sin.
        attention_factor: f64,
        /// `mscale_all_dim`, which DeepSeek applies to the softmax scale too.
        mscale_all_dim: Option<f64>,
    },
    /// Divided by the numbers in the tensor `rope_freqs.weight`: how a GGUF file says `llama3`.
    FromFile,
}

/// `0.1 m ln(s) + 1` (YaRN, section 3.4), 1 where nothing is stretched.
pub(crate) fn yarn_mscale(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * mscale * factor.ln() + 1.0
    }
}

impl RopePlan {
    /// Radians per position of each of the `rotary / 2` pairs. `divisors` are those of `rope_freqs.weight`; given,
    /// they take the place of the scaling.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`] if the scaling is to come from the file and is not there.
    pub fn frequencies(&self, divisors: Option<&[f32]>) -> Result<Vec<f64>, ModelError> {
        let pairs = self.rotary / 2;
        let base = (0..pairs).map(|i| self.theta.powf(-2.0 * i as f64 / self.rotary as f64));
        if let Some(divisors) = divisors {
            return Ok(base.zip(divisors).map(|(f, d)| f / f64::from(*d)).collect());
        }
        let frequencies = match self.scaling {
            RopeScaling::Default => base.collect(),
            RopeScaling::Linear { factor } => base.map(|f| f / factor).collect(),
            RopeScaling::Llama3 {
                factor,
                low,
                high,
                original,
            } => base.map(|f| llama3(f, factor, (low, high), original)).collect(),
            RopeScaling::Yarn { factor, .. } => {
                let ramp = self.yarn_ramp();
                base.zip(ramp)
                    .map(|(f, share)| f * (1.0 - share) + f / factor * share)
                    .collect()
            }
            RopeScaling::FromFile => {
                return Err(ModelError::MissingTensor {
                    name: crate::rope::DIVISORS.into(),
                    why: "rope type `llama3` without its parameters needs the frequencies of the file".into(),
                });
            }
        };
        Ok(frequencies)
    }

    /// Factor on cos and sin.
    pub fn attention_factor(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn { attention_factor, .. } => attention_factor,
            _ => 1.0,
        }
    }

    /// Factor that DeepSeek puts on the softmax scale: the square of YaRN's mscale, for queries and keys.
    pub fn softmax_factor(&self) -> f64 {
        match self.scaling {
            RopeScaling::Yarn {
                factor,
                mscale_all_dim: Some(all),
                ..
            } => yarn_mscale(factor, all).powi(2),
            _ => 1.0,
        }
    }

    /// How far each pair is stretched: 0 stays, 1 is divided by the factor.
    fn yarn_ramp(&self) -> Vec<f64> {
        let RopeScaling::Yarn {
            original,
            beta_fast,
            beta_slow,
            truncate,
            ..
        } = self.scaling
        else {
            return vec![0.0; self.rotary / 2];
        };
        let dim = self.rotary as f64;
        let pair_turning = |turns: f64| dim * (original / (turns * 2.0 * PI)).ln() / (2.0 * self.theta.ln());
        let (mut low, mut high) = (pair_turning(beta_fast), pair_turning(beta_slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dim - 1.0));
        if low == high {
            high += 0.001;
        }
        (0..self.rotary / 2)
            .map(|i| ((i as f64 - low) / (high - low)).clamp(0.0, 1.0))
            .collect()
    }
}

/// Llama 3.1 as in Hugging Face's `_compute_llama3_parameters`.
fn llama3(frequency: f64, factor: f64, (low, high): (f64, f64), original: f64) -> f64 {
    let wavelength = 2.0 * PI / frequency;
    if wavelength < original / high {
        frequency
    } else if wavelength > original / low {
        frequency / factor
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        (1.0 - smooth) * frequency / factor + smooth * frequency
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// T71: Llama 3.2 1B. Pairs 0 to 14 stay, 15 to 17 are blended, the others are divided by 32.
    #[test]
    fn llama_3_2_frequencies() {
        let plan = |scaling| RopePlan {
            theta: 5e5,
            rotary: 64,
            pairs: RopePairs::HalfSplit,
            scaling,
        };
        let scaling = RopeScaling::Llama3 {
            factor: 32.0,
            low: 1.0,
            high: 4.0,
            original: 8192.0,
        };
        let plain = plan(RopeScaling::Default).frequencies(None).unwrap();
        let scaled = plan(scaling).frequencies(None).unwrap();
        for (i, (plain, scaled)) in plain.iter().zip(&scaled).enumerate() {
            let by = plain / scaled;
            match i {
                0..=14 => assert_eq!(by, 1.0, "pair {i}"),
                15..=17 => assert!(by > 1.0001 && by < 31.999, "pair {i} divided by {by}"),
                _ => assert!((by - 32.0).abs() < 1e-9, "pair {i} divided by {by}"),
            }
        }
    }

    #[test]
    fn divisors_take_the_place_of_the_scaling() {
        let plan = RopePlan {
            theta: 100.0,
            rotary: 4,
            pairs: RopePairs::HalfSplit,
            scaling: RopeScaling::FromFile,
        };
        assert!(
            plan.frequencies(None)
                .unwrap_err()
                .to_string()
                .contains("rope_freqs.weight")
        );
        let got = plan.frequencies(Some(&[1.0, 8.0])).unwrap();
        assert!(
            (got[0] - 1.0).abs() < 1e-12 && (got[1] - 0.1 / 8.0).abs() < 1e-12,
            "{got:?}"
        );
    }
}
