//! Experiments, metrics, records and reports.
