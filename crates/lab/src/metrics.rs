//! The arithmetic of an experiment: functions of slices of numbers, and nothing else.

mod sample;
mod token;

pub use sample::{FEWEST_SAMPLES, Gaps, Spread, bootstrap_median, percentile};
pub(crate) use sample::{mean, standard_error};
pub use token::{TokenScore, score_token};
