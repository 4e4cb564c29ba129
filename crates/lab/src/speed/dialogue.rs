//! Work that comes back to what was computed before: conversations, and requests that share prefixes.

use super::{ms, warm_up};
use crate::quality::greedy_request;
use crate::session::{Halt, Session};
use crate::{MixRecord, Record, TurnRecord};
use kvlab_config::{Cell, MixWorkload};
use kvlab_core::TokenId;
use kvlab_engine::{Conversation, Engine};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::time::Instant;

/// A conversation: its sequence stays open, and every prompt is all that was said, with the next run of the text as the new
/// message. Turns that are recorded already are run again, since the later ones build on them, and not recorded again.
pub(super) fn converse(
    session: &mut Session<'_>,
    engine: &mut Engine,
    cell: &Cell,
    repeat: usize,
) -> Result<Vec<Record>, Halt> {
    let Some(workload) = session.experiment.workload.conversation else {
        return Ok(Vec::new());
    };
    let passage = session.passage(engine)?;
    let mut said: Vec<TokenId> = passage.bos().into_iter().collect();
    let messages = (0..workload.turns).map(|turn| passage.plain(turn, workload.message));
    let messages: Vec<Vec<TokenId>> = messages.collect::<Result<_, _>>()?;
    // As long as the last prompt will be, and nothing like it.
    let whole: Vec<TokenId> = said.iter().chain(messages.iter().flatten()).copied().collect();
    warm_up(engine, &[whole], workload.answer)?;
    let mut conversation = Conversation::new();
    let mut records = Vec::new();
    for (turn, message) in messages.iter().enumerate() {
        said.extend(message);
        let request = greedy_request(workload.answer);
        let done = engine.converse(&mut conversation, &said, &request, &mut |_| {})?;
        let ttft = done.ttft.ok_or_else(|| format!("turn {turn} got no token"))?;
        let record = TurnRecord {
            cell: cell.name.clone(),
            repeat,
            turn,
            prompt_tokens: said.len(),
            reused_tokens: done.cached_tokens,
            ttft_ms: ms(ttft),
            gaps_ms: done.gaps.iter().copied().map(ms).collect(),
            tokens: done.tokens.clone(),
            usage: done.usage.into(),
        };
        if !session.has_turn(&cell.name, repeat, turn) {
            records.push(Record::Turn(record));
        }
        said.extend(done.tokens);
    }
    engine.end(conversation)?;
    Ok(records)
}

/// Requests one after the other, each a prefix and a part of its own, from runs of the text that do not overlap.
pub(super) fn mix(
    session: &mut Session<'_>,
    engine: &mut Engine,
    cell: &Cell,
    repeat: usize,
) -> Result<Vec<Record>, Halt> {
    let Some(workload) = session.experiment.workload.mix else {
        return Ok(Vec::new());
    };
    let prefix = order(&workload, session.experiment.seed);
    let passage = session.passage(engine)?;
    // The first own part behind the last prefix.
    let first = (workload.prefixes * workload.prefix).div_ceil(workload.own);
    let prompt = |(request, &prefix): (usize, &usize)| -> Result<Vec<TokenId>, String> {
        let shared = passage.plain(prefix, workload.prefix)?;
        let own = passage.plain(first + request, workload.own)?;
        Ok(passage.bos().into_iter().chain(shared).chain(own).collect())
    };
    let prompts: Vec<Vec<TokenId>> = prefix.iter().enumerate().map(prompt).collect::<Result<_, _>>()?;
    warm_up(engine, prompts.get(..1).unwrap_or_default(), workload.answer)?;
    let request = greedy_request(workload.answer);
    let mut record = MixRecord {
        cell: cell.name.clone(),
        repeat,
        prefix,
        prefix_tokens: workload.prefix,
        own_tokens: workload.own,
        prompt_tokens: prompts.first().map_or(0, Vec::len),
        reused_tokens: Vec::new(),
        ttft_ms: Vec::new(),
        total_ms: 0.0,
        tokens: Vec::new(),
        usage: engine.usage().into(),
    };
    let begin = Instant::now();
    for (place, prompt) in prompts.into_iter().enumerate() {
        let done = engine.generate(&[prompt], &request, &mut |_| {})?.pop();
        let done = done.ok_or_else(|| format!("request {place} got no answer"))?;
        let ttft = done.ttft.ok_or_else(|| format!("request {place} got no token"))?;
        record.reused_tokens.push(done.cached_tokens);
        record.ttft_ms.push(ms(ttft));
        record.tokens.push(done.tokens);
        record.usage = done.usage.into();
    }
    record.total_ms = ms(begin.elapsed());
    Ok(vec![Record::Mix(record)])
}

/// Which prefix each request has: each as often as the others, or once more, in an order that the seed decides.
fn order(workload: &MixWorkload, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..workload.requests)
        .map(|request| request % workload.prefixes)
        .collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_has_its_share_of_requests() {
        let workload = MixWorkload {
            requests: 7,
            prefixes: 3,
            prefix: 1,
            own: 1,
            answer: 1,
        };
        let one = order(&workload, 5);
        let count = |prefix| one.iter().filter(|&&p| p == prefix).count();
        assert_eq!([count(0), count(1), count(2)], [3, 2, 2]);
        assert_eq!(one, order(&workload, 5));
        assert_ne!(one, order(&workload, 6));
    }
}
