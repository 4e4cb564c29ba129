//! What the records of conversations and of requests that share prefixes come to.

use crate::metrics::Spread;
use crate::row::{Mix, Turn};
use crate::{MixRecord, TurnRecord};

/// Every turn, over all repeats. How much is reused is that of the repeat in which it was least.
pub(super) fn turns(records: &[&TurnRecord], seed: u64) -> Vec<Turn> {
    let last = records.iter().map(|r| r.turn).max();
    let turn = |turn: usize| {
        let here = || records.iter().filter(move |r| r.turn == turn);
        let prompt_tokens = here().next()?.prompt_tokens;
        let reused_tokens = here().map(|r| r.reused_tokens).min()?;
        Some(Turn {
            turn,
            prompt_tokens,
            ttft_ms: Spread::of(&here().map(|r| r.ttft_ms).collect::<Vec<_>>(), seed)?,
            reused_tokens,
            computed_tokens: prompt_tokens.saturating_sub(reused_tokens),
        })
    };
    last.map_or(Vec::new(), |last| (0..=last).filter_map(turn).collect())
}

/// All repeats together; `None` without one.
pub(super) fn mix(records: &[&MixRecord], seed: u64) -> Option<Mix> {
    let first = records.first()?;
    let requests = first.prefix.len();
    let ttft_ms: Vec<f64> = records.iter().flat_map(|r| &r.ttft_ms).copied().collect();
    let total_ms: Vec<f64> = records.iter().map(|r| r.total_ms).collect();
    let reused_tokens = records.iter().map(|r| r.reused_tokens.iter().sum::<usize>()).min()?;
    Some(Mix {
        requests,
        prefixes: first.prefix.iter().max().map_or(0, |most| most + 1),
        prefix_tokens: first.prefix_tokens,
        own_tokens: first.own_tokens,
        ttft_ms: Spread::of(&ttft_ms, seed)?,
        total_ms: Spread::of(&total_ms, seed)?,
        reused_tokens,
        computed_tokens: (requests * first.prompt_tokens).saturating_sub(reused_tokens),
    })
}
