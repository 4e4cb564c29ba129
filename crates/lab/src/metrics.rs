//! The arithmetic of an experiment: functions of slices of numbers, and nothing else.

mod interval;
mod sample;
mod token;

pub use interval::{mean_interval, share_interval};
pub use sample::{FEWEST_SAMPLES, Gaps, Spread, bootstrap_median, percentile};
pub(crate) use sample::{mean, standard_error};
pub use token::{TokenScore, score_token};
