//! Speed: every prompt through each cell, in every repeat.

mod dialogue;

use crate::quality::greedy_request;
use crate::session::{Halt, Session};
use crate::{CachedRecord, LabError, Progress, Record, SpeedRecord, process, work};
use kvlab_config::{Cell, Workload};
use kvlab_core::TokenId;
use kvlab_engine::{Engine, Generation};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::fmt;
use std::time::Duration;

/// One measurement of a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// So many sequences that continue a prompt of so many tokens.
    Prompt {
        /// Tokens of the prompt.
        tokens: usize,
        /// Sequences.
        batch: usize,
    },
    /// The conversation, all turns.
    Conversation,
    /// The requests that share prefixes.
    Mix,
}

/// All measurements of a repeat, in their order.
pub(crate) fn points(workload: &Workload) -> Vec<Point> {
    let prompts = workload.prompts.iter();
    let prompts = prompts.flat_map(|&tokens| {
        let batches = workload.batch.iter();
        batches.map(move |&batch| Point::Prompt { tokens, batch })
    });
    let conversation = workload.conversation.map(|_| Point::Conversation);
    let mix = workload.mix.map(|_| Point::Mix);
    prompts.chain(conversation).chain(mix).collect()
}

/// Measures what is not recorded yet. In every repeat the cells come in another order, which the seed decides.
pub(crate) fn measure(session: &mut Session<'_>) -> Result<(), LabError> {
    let experiment = session.experiment;
    let points = points(&experiment.workload);
    for repeat in 0..experiment.repeats {
        for place in order(experiment.cells().len(), experiment.seed, repeat) {
            let cell = &experiment.cells()[place];
            let open = |point: &&Point| !session.has_speed(&cell.name, repeat, point);
            let todo: Vec<Point> = points.iter().filter(open).copied().collect();
            if !todo.is_empty() && !session.has_failed(&cell.name) {
                session.attempt(&cell.name, |session| measure_cell(session, cell, repeat, &todo))?;
            }
            session.advance(points.len());
        }
    }
    Ok(())
}

/// The cells, by their places in the experiment, in the order in which a repeat takes them.
fn order(cells: usize, seed: u64, repeat: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed.wrapping_add(repeat as u64)));
    order
}

fn measure_cell(session: &mut Session<'_>, cell: &Cell, repeat: usize, points: &[Point]) -> Result<(), Halt> {
    let repeats = session.experiment.repeats;
    for point in points {
        // A new cache each time: one that finds prefixes may have seen the beginning of this prompt with the last one, and
        // the peak of bytes is that of this point alone.
        let mut engine = session.load_cell(cell)?;
        session.say(Progress::Speed {
            cell: cell.name.clone(),
            repeat,
            repeats,
            what: point.to_string(),
        });
        let records = match *point {
            Point::Prompt { tokens, batch } => measure_prompt(session, &mut engine, cell, (tokens, batch))
                .map(|record| vec![Record::Speed(SpeedRecord { repeat, ..record })]),
            Point::Conversation => dialogue::converse(session, &mut engine, cell, repeat),
            Point::Mix => dialogue::mix(session, &mut engine, cell, repeat),
        };
        let records = records.map_err(|halt| match halt {
            Halt::Cell(error) => Halt::Cell(format!("{point}: {error}")),
            run => run,
        })?;
        for record in records {
            session.record(&record)?;
        }
    }
    Ok(())
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt { tokens, batch: 1 } => write!(f, "prompt of {tokens} tokens"),
            Self::Prompt { tokens, batch } => write!(f, "{batch} prompts of {tokens} tokens"),
            Self::Conversation => write!(f, "conversation"),
            Self::Mix => write!(f, "requests that share prefixes"),
        }
    }
}

fn finds_prefixes(engine: &Engine) -> bool {
    engine.capabilities().prefix_sharing.is_ok()
}

fn measure_prompt(
    session: &mut Session<'_>,
    engine: &mut Engine,
    cell: &Cell,
    (prompt_tokens, sequences): (usize, usize),
) -> Result<SpeedRecord, Halt> {
    let workload = &session.experiment.workload;
    let prompt = session.tokens(engine, 0, prompt_tokens)?;
    let batch = vec![prompt; sequences];
    let request = greedy_request(workload.new_tokens);
    let warm_up_tokens = warm_up(engine, &batch, workload.new_tokens)?;
    let done = engine.generate(&batch, &request, &mut |_| {})?;
    let first = done.first().ok_or_else(|| "no text was generated".to_owned())?;
    if done.iter().any(|g| g.waited) {
        return Err(format!(
            "its cache has no room for a batch of {sequences}; raise cache.sequences or cache.capacity"
        )
        .into());
    }
    let cached_tokens = done.iter().map(|g| g.cached_tokens).sum();
    if cached_tokens > 0 {
        return Err(format!("it is meant to be cold, and {cached_tokens} tokens of it were found stored").into());
    }
    let cached = match finds_prefixes(engine) {
        true => Some(cached(engine.generate(&batch, &greedy_request(1), &mut |_| {})?)?),
        false => None,
    };
    Ok(SpeedRecord {
        cell: cell.name.clone(),
        repeat: 0,
        prompt_tokens,
        new_tokens: workload.new_tokens,
        batch: sequences,
        warm_up_tokens,
        ttft_ms: ttft_ms(&done)?,
        gaps_ms: done.iter().map(|g| g.gaps.iter().copied().map(ms).collect()).collect(),
        tokens: first.tokens.clone(),
        cached_tokens,
        cached,
        work: Some(work::of(engine, prompt_tokens, workload.new_tokens, sequences)),
        process: process::memory(),
        usage: first.usage.into(),
        kernels: kernels(&done),
    })
}

/// Generates after prompts that differ from these in every token, so that the measured ones find nothing of them. Says how
/// many tokens.
fn warm_up(engine: &mut Engine, prompts: &[Vec<TokenId>], new_tokens: usize) -> Result<usize, Halt> {
    let vocab = (engine.model().vocab() as TokenId).max(1);
    let other = |prompt: &Vec<TokenId>| prompt.iter().map(|token| (token + 1) % vocab).collect();
    let others: Vec<Vec<TokenId>> = prompts.iter().map(other).collect();
    // Kernels may be compiled and tuned, and memory touched, for each length that a cache comes to. Without a cache a
    // whole run would take as long as all its prefills, and two tokens have touched everything.
    let tokens = match engine.capabilities().remembers {
        true => new_tokens,
        false => new_tokens.min(2),
    };
    engine.generate(&others, &greedy_request(tokens), &mut |_| {})?;
    Ok(tokens)
}

fn cached(done: Vec<Generation>) -> Result<CachedRecord, Halt> {
    Ok(CachedRecord {
        ttft_ms: ttft_ms(&done)?,
        cached_tokens: done.iter().map(|g| g.cached_tokens).collect(),
    })
}

fn ttft_ms(done: &[Generation]) -> Result<Vec<f64>, Halt> {
    let all = done.iter().map(|g| g.ttft.map(ms)).collect::<Option<Vec<_>>>();
    Ok(all.ok_or_else(|| "a prompt got no token".to_owned())?)
}

fn kernels(done: &[Generation]) -> Vec<String> {
    let mut kernels: Vec<String> = done
        .iter()
        .flat_map(|g| &g.kernels)
        .map(|&kernel| kernel.to_owned())
        .collect();
    kernels.sort();
    kernels.dedup();
    kernels
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn the_seed_decides_the_order_and_every_repeat_has_its_own() {
        let first = order(8, 3, 0);
        assert_eq!(first, [2, 7, 0, 4, 6, 5, 3, 1]);
        assert_ne!(first, order(8, 3, 1));
        assert_ne!(first, order(8, 2, 0));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
