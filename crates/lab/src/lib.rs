//! Experiments: every cell of an experiment is run through its cache, and compared with the model's own attention.
//!
//! [`compare`] runs an [`Experiment`](kvlab_config::Experiment) and returns a [`Comparison`], one [`Row`] a cell. What
//! it measures goes into a folder, one line of `records.jsonl` for each raw measurement ([`Record`]); every number of
//! a table is computed from those lines, so that a run which was interrupted goes on where it stopped, and an analysis
//! of your own can start from the samples.
//!
//! # Why this shape
//! *Measuring*, *records*, *metrics* and *reports* are apart: a metric is a function of slices of numbers, a report
//! is a function of rows. Neither knows an engine, and none of them a tensor. Quality and speed are measured apart as well:
//! quality once a cell, since it does not change from one run to the next, speed in every repeat, with the cells
//! interleaved and in another order each time, so that a drift of the machine hits all of them.
//!
//! # What it does not do
//! No training, no benchmarks that need a strong model (multiple choice, code); it compares caches on a text, and asks for what
//! was hidden in it.

mod budget;
mod compare;
mod environment;
mod error;
mod journal;
mod metrics;
mod oracle;
mod passage;
mod process;
mod progress;
mod quality;
mod recall;
mod record;
mod report;
mod row;
mod session;
mod speed;
mod work;

pub use compare::{CompareOptions, Comparison, compare, write_report};
pub use environment::Environment;
pub use error::LabError;
pub use metrics::{
    FEWEST_SAMPLES, Gaps, Spread, TokenScore, bootstrap_median, mean_interval, percentile, score_token, share_interval,
};
pub use progress::Progress;
pub use record::{
    CachedRecord, CellRecord, FailureRecord, GreedyRecord, LayerErrorRecord, MixRecord, QualityRecord, RecallRecord,
    Record, SpeedRecord, TurnRecord, UsageRecord, WorkRecord, record_schema,
};
pub use row::{Cached, LayerError, Memory, Mix, Phase, ProcessMemory, Quality, Recall, Row, Speed, Turn, Work};
pub use work::Rates;
