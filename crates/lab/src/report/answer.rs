//! Which cache to use within so many bytes a token, and what it costs.
//!
//! The page asks again with other budgets, in `page/report.js`: both follow the same order, and a browser test compares them.

use super::Report;
use std::cmp::Ordering;

/// A cell as the question needs it.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    /// Its row.
    pub(super) row: usize,
    pub(super) bytes: f64,
    /// What counts as its loss, nats: the mean KL divergence; nothing for an exact cell, infinite for a lossy one that was not
    /// measured.
    loss: f64,
    kl: f64,
}

/// The cells of a group that keep rows and did not fail, the best first: the one that loses least; of those that lose nothing
/// (exact up to rounding) the smallest.
pub(super) fn ranked(report: &Report<'_>, group: usize) -> Vec<Candidate> {
    let facts = report.facts.iter().enumerate();
    let mut candidates: Vec<Candidate> = facts
        .filter(|(_, facts)| facts.group == group && facts.remembers && !facts.failed)
        .filter_map(|(row, facts)| {
            let exact = report.rows[row].lossy.is_empty();
            let kl = facts.kl.unwrap_or(f64::INFINITY);
            Some(Candidate {
                row,
                bytes: facts.bytes_per_token?,
                loss: if exact { 0.0 } else { kl },
                kl,
            })
        })
        .collect();
    candidates.sort_by(Candidate::order);
    candidates
}

impl Candidate {
    fn order(&self, other: &Self) -> Ordering {
        let order = self.loss.total_cmp(&other.loss);
        let order = order.then(self.bytes.total_cmp(&other.bytes));
        order.then(self.kl.total_cmp(&other.kl)).then(self.row.cmp(&other.row))
    }

    /// Whether nothing but rounding is lost.
    pub(super) fn is_exact(&self) -> bool {
        self.loss == 0.0
    }
}

/// The best candidate within a budget (bytes a token).
pub(super) fn best(ranked: &[Candidate], budget: f64) -> Option<&Candidate> {
    ranked.iter().find(|candidate| candidate.bytes <= budget)
}

/// The budget to begin with, bytes a token: what the experiment asks for, or the power of two below the middle of what the cells
/// take, so that some fit and some do not; at least what the smallest takes.
pub(super) fn first_budget(ranked: &[Candidate]) -> f64 {
    let mut bytes: Vec<f64> = ranked.iter().map(|candidate| candidate.bytes).collect();
    bytes.sort_by(f64::total_cmp);
    let middle = bytes.get(bytes.len() / 2).copied().unwrap_or(8192.0).max(1.0);
    let budget = 2.0_f64.powf(middle.log2().floor());
    budget.max(bytes.first().copied().unwrap_or(budget))
}
