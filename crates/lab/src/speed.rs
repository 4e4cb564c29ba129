//! Speed: every prompt through each cell, in every repeat.

use crate::quality::greedy_request;
use crate::session::{Halt, Session};
use crate::{LabError, Progress, Record, SpeedRecord};
use kvlab_config::Cell;
use kvlab_engine::{Engine, Generation};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::time::Duration;

/// Measures what is not recorded yet. In every repeat the cells come in another order, which the seed decides.
pub(crate) fn measure(session: &mut Session<'_>) -> Result<(), LabError> {
    let experiment = session.experiment;
    let prompts = &experiment.workload.prompts;
    for repeat in 0..experiment.repeats {
        for place in order(experiment.cells().len(), experiment.seed, repeat) {
            let cell = &experiment.cells()[place];
            let open = |&&prompt: &&usize| !session.has_speed(&cell.name, repeat, prompt);
            let todo: Vec<usize> = prompts.iter().filter(open).copied().collect();
            if !todo.is_empty() && !session.has_failed(&cell.name) {
                session.attempt(&cell.name, |session| measure_cell(session, cell, repeat, &todo))?;
            }
            session.advance(prompts.len());
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

fn measure_cell(session: &mut Session<'_>, cell: &Cell, repeat: usize, prompts: &[usize]) -> Result<(), Halt> {
    let mut engine = session.load_cell(cell)?;
    let repeats = session.experiment.repeats;
    for &prompt_tokens in prompts {
        session.say(Progress::Speed {
            cell: cell.name.clone(),
            repeat,
            repeats,
            prompt_tokens,
        });
        let record = measure_prompt(session, &mut engine, cell, prompt_tokens);
        let record = record.map_err(|halt| match halt {
            Halt::Cell(error) => Halt::Cell(format!("prompt of {prompt_tokens} tokens: {error}")),
            run => run,
        })?;
        session.record(&Record::Speed(SpeedRecord { repeat, ..record }))?;
    }
    Ok(())
}

fn measure_prompt(
    session: &mut Session<'_>,
    engine: &mut Engine,
    cell: &Cell,
    prompt_tokens: usize,
) -> Result<SpeedRecord, Halt> {
    let workload = &session.experiment.workload;
    let prompt = session.tokens(engine, 0, prompt_tokens)?;
    let batch = vec![prompt; workload.batch];
    let request = greedy_request(workload.new_tokens);
    // Kernels may be compiled and tuned, and memory touched, for each length that a cache comes to. Without a cache a
    // whole run would take as long as all its prefills, and two tokens have touched everything.
    let remembers = engine.cache().capabilities().remembers;
    let warm_up_tokens = if remembers {
        workload.new_tokens
    } else {
        workload.new_tokens.min(2)
    };
    engine.generate(&batch, &greedy_request(warm_up_tokens), &mut |_| {})?;
    let done = engine.generate(&batch, &request, &mut |_| {})?;
    let first = done.first().ok_or_else(|| "no text was generated".to_owned())?;
    let ttft = done.iter().map(|g| g.ttft.map(ms)).collect::<Option<Vec<_>>>();
    Ok(SpeedRecord {
        cell: cell.name.clone(),
        repeat: 0,
        prompt_tokens,
        new_tokens: workload.new_tokens,
        batch: workload.batch,
        warm_up_tokens,
        ttft_ms: ttft.ok_or_else(|| "a prompt got no token".to_owned())?,
        gaps_ms: done.iter().map(|g| g.gaps.iter().copied().map(ms).collect()).collect(),
        tokens: first.tokens.clone(),
        cached_tokens: done.iter().map(|g| g.cached_tokens).sum(),
        usage: first.usage.into(),
        kernels: kernels(&done),
    })
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
