//! Speed: every prompt through each cell, in every repeat.

use crate::quality::greedy_request;
use crate::session::{Halt, Session};
use crate::{CachedRecord, LabError, Progress, Record, SpeedRecord};
use kvlab_config::{Cell, Workload};
use kvlab_core::TokenId;
use kvlab_engine::{Engine, Generation};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
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
}

/// All measurements of a repeat, in their order.
pub(crate) fn points(workload: &Workload) -> Vec<Point> {
    let prompts = workload.prompts.iter();
    let prompts = prompts.flat_map(|&tokens| workload.batch.iter().map(move |&batch| Point::Prompt { tokens, batch }));
    prompts.collect()
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
    let mut loaded: Option<Engine> = None;
    for point in points {
        let &Point::Prompt { tokens, batch } = point;
        // A cache that finds prefixes may have seen the beginning of this prompt with the last one: a new one has not.
        let mut engine = match loaded.take().filter(|engine| !finds_prefixes(engine)) {
            Some(engine) => engine,
            None => session.load_cell(cell)?,
        };
        session.say(Progress::Speed {
            cell: cell.name.clone(),
            repeat,
            repeats,
            prompt_tokens: tokens,
        });
        let record = measure_prompt(session, &mut engine, cell, (tokens, batch));
        let record = record.map_err(|halt| match halt {
            Halt::Cell(error) => Halt::Cell(format!("prompt of {tokens} tokens: {error}")),
            run => run,
        })?;
        session.record(&Record::Speed(SpeedRecord { repeat, ..record }))?;
        loaded = Some(engine);
    }
    Ok(())
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
    // The warm-up has a prompt that differs in every token, so that the measured one finds nothing of it.
    let vocab = engine.model().vocab() as TokenId;
    let others: Vec<TokenId> = prompt.iter().map(|token| (token + 1) % vocab.max(1)).collect();
    let others = vec![others; sequences];
    let batch = vec![prompt; sequences];
    let request = greedy_request(workload.new_tokens);
    // Kernels may be compiled and tuned, and memory touched, for each length that a cache comes to. Without a cache a
    // whole run would take as long as all its prefills, and two tokens have touched everything.
    let remembers = engine.capabilities().remembers;
    let warm_up_tokens = if remembers {
        workload.new_tokens
    } else {
        workload.new_tokens.min(2)
    };
    engine.generate(&others, &greedy_request(warm_up_tokens), &mut |_| {})?;
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
        work: None,
        process: None,
        usage: first.usage.into(),
        kernels: kernels(&done),
    })
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
