//! What fits into a memory: the largest context, the number of requests, and the way out where something does not.

use crate::caches::{Caches, Column, Variant};
use crate::weights::Precision;
use kvlab_core::{Bytes, CacheSpec, LayerSpec};
use serde::Serialize;

/// What fits beside the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// Tokens that each of the wanted requests can have; 0 where not one fits.
    pub largest_context_tokens: usize,
    /// Whether it is the model that has no more positions, and not the memory.
    pub limited_by_model: bool,
    /// Requests of the wanted context at the same time.
    pub requests: u64,
}

/// What a memory is used for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// All of it.
    pub budget: Bytes,
    /// Kept for everything that is neither weights nor rows.
    pub reserve: Bytes,
    /// The weights.
    pub weights: Bytes,
    /// What is left for rows; `None` where the weights do not fit.
    pub rows: Option<Bytes>,
    /// Rows of the wanted requests, in the wanted cache.
    pub wanted: Bytes,
    /// Whether those fit.
    pub fits: bool,
    /// What would fit instead; empty where it fits.
    pub ways_out: Vec<String>,
}

impl Memory {
    /// Bytes that a request for so many rows takes altogether.
    pub fn needed(&self) -> Bytes {
        self.reserve + self.weights + self.wanted
    }
}

/// How much of `whole` is left behind `part`; `None` where it does not fit.
pub(crate) fn left(whole: Bytes, part: Bytes) -> Option<Bytes> {
    whole.0.checked_sub(part.0).map(Bytes)
}

/// What fits into `rows` bytes, for `requests` requests, and of `context` tokens.
pub(crate) fn fit(caches: &Caches<'_>, cell: (&Variant, &Column), wanted: Wanted, rows: Bytes) -> Fit {
    let (variant, column) = cell;
    let allocated = |tokens| {
        let spec = caches.spec(variant, column, tokens, wanted.requests);
        // A cache may need some tokens to exist at all: fewer are no reason to look below.
        spec.map_or(Bytes(0), |spec| spec.allocated())
    };
    let (mut fits, mut beyond) = (0, wanted.most + 1);
    while fits + 1 < beyond {
        let middle = fits + (beyond - fits) / 2;
        match allocated(middle) <= rows {
            true => fits = middle,
            false => beyond = middle,
        }
    }
    let there = fits > 0 && caches.spec(variant, column, fits, wanted.requests).is_ok();
    let one = caches.spec(variant, column, wanted.context, 1);
    Fit {
        largest_context_tokens: if there { fits } else { 0 },
        limited_by_model: fits == wanted.most,
        requests: one.map_or(0, |one| requests(&one, rows)),
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Tokens of a request.
    pub(crate) context: usize,
    /// Requests at the same time.
    pub(crate) requests: usize,
    /// Tokens that the model takes.
    pub(crate) most: usize,
}

/// How many sequences like the one of `one` can be allocated in `rows` bytes.
pub(crate) fn requests(one: &CacheSpec, rows: Bytes) -> u64 {
    let allocated = |n: u64| -> Bytes {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        one.layers.iter().map(|layer: &LayerSpec| layer.allocated(n)).sum()
    };
    let each = allocated(1).0.max(1);
    // Sequences share what is rounded up, so the quotient may be a few too low; never too high by more than that.
    let mut n = rows.0 / each;
    while n > 0 && allocated(n) > rows {
        n -= 1;
    }
    while allocated(n + 1) <= rows {
        n += 1;
    }
    n
}

/// What a request that does not fit can be changed to, the least change first.
pub(crate) fn ways_out(
    caches: &Caches<'_>,
    chosen: (usize, usize),
    wanted: Wanted,
    memory: &Memory,
    weights: Weights,
) -> Vec<String> {
    let (variant, column) = (&caches.variants[chosen.0], &caches.columns[chosen.1]);
    let room = |weights: Bytes| left(memory.budget, memory.reserve + weights);
    let rows = |column: &Column| {
        let spec = caches.spec(variant, column, wanted.context, wanted.requests);
        spec.ok().map(|spec| spec.allocated())
    };
    let mut ways = Vec::new();
    if let Some(room) = room(weights.bytes) {
        let mut narrower: Vec<_> = caches
            .columns
            .iter()
            .filter_map(|column| Some((column, rows(column).filter(|rows| *rows <= room)?)))
            .collect();
        // The widest of those that fit loses least.
        narrower.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
        if let Some((column, rows)) = narrower.first() {
            ways.push(format!("cache rows in {}: {rows}", column.name));
        }
        let fit = fit(caches, (variant, column), wanted, room);
        if fit.largest_context_tokens > 0 {
            let each = if wanted.requests == 1 { "" } else { " each" };
            ways.push(format!("at most {} tokens{each}", fit.largest_context_tokens));
        }
        if fit.requests > 0 {
            ways.push(format!(
                "at most {} requests of {} tokens",
                fit.requests, wanted.context
            ));
        }
    }
    let mut smaller = Precision::ALL
        .into_iter()
        .filter(|p| p.bytes(weights.parameters) < weights.bytes);
    let fits = |p: &Precision| {
        let room = room(p.bytes(weights.parameters));
        room.is_some_and(|room| room >= memory.wanted)
    };
    if let Some(precision) = smaller.find(fits) {
        ways.push(format!(
            "weights in {precision}: {}",
            precision.bytes(weights.parameters)
        ));
    }
    if ways.is_empty()
        && let Some(smallest) = Precision::ALL.last()
    {
        let least = smallest.bytes(weights.parameters);
        let rows = caches.columns.iter().filter_map(&rows).min().unwrap_or(memory.wanted);
        let what = match room(least) {
            Some(room) if rows <= room => format!("weights in {smallest} ({least}) and the smallest rows ({rows})"),
            _ => format!(
                "nothing here fits: even weights in {smallest} ({least}) with the smallest rows ({rows}) take more; a smaller model, or \
                 several devices"
            ),
        };
        ways.push(what);
    }
    ways.push(format!("a memory of {}", memory.needed()));
    ways
}

/// The weights that were taken off.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) parameters: u64,
    pub(crate) bytes: Bytes,
}
