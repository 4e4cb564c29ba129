//! Seeded random tensors. The numbers of a tensor depend on the seed and its name, on nothing else.

use super::Source;
use crate::ModelError;
use crate::host::PackedRows;
use crate::tensors::{Role, TensorPlan};
use std::f64::consts::TAU;

/// A generator of weights with which activations keep their size from layer to layer.
pub(crate) struct RandomSource {
    seed: u64,
}

impl RandomSource {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }
}

impl Source for RandomSource {
    fn read(&mut self, plan: &TensorPlan) -> Result<Vec<f32>, ModelError> {
        let width = plan.shape.last().copied().unwrap_or(1) as f64;
        let (mean, deviation) = match plan.role {
            // The head may be the embedding: logits then have a deviation near 1.
            Role::Embedding => (0.0, 1.0 / width.sqrt()),
            Role::Positions => (0.0, 0.5 / width.sqrt()),
            Role::Matrix { fan_in } => (0.0, 1.0 / (fan_in as f64).sqrt()),
            Role::Bias => (0.0, 0.1),
            Role::Sinks => (0.0, 1.0),
            Role::Norm { neutral } => (f64::from(neutral), 0.1),
        };
        let mut normal = Normal::new(self.seed, &plan.name);
        Ok((0..plan.values())
            .map(|_| (mean + deviation * normal.next()) as f32)
            .collect())
    }

    fn packed(&mut self, _: &TensorPlan) -> Result<Option<PackedRows>, ModelError> {
        Ok(None)
    }

    fn rope_divisors(&mut self, _pairs: usize) -> Result<Option<Vec<f32>>, ModelError> {
        Ok(None)
    }
}

/// Normal deviates: SplitMix64 (Steele et al., 2014) and Box-Muller.
struct Normal {
    state: u64,
    spare: Option<f64>,
}

impl Normal {
    fn new(seed: u64, name: &str) -> Self {
        // FNV-1a of the name.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
        });
        Self {
            state: hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            spare: None,
        }
    }

    /// Uniform in `(0, 1]`.
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64 + f64::EPSILON / 2.0
    }

    fn next(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), TAU * self.uniform());
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviates_are_normal_and_depend_on_seed_and_name_only() {
        let draw = |seed, name: &str| {
            let mut normal = Normal::new(seed, name);
            (0..20_000).map(|_| normal.next()).collect::<Vec<_>>()
        };
        let x = draw(1, "a.weight");
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        assert_eq!(x, draw(1, "a.weight"));
        assert_ne!(x[0], draw(2, "a.weight")[0]);
        assert_ne!(x[0], draw(1, "b.weight")[0]);
    }
}
