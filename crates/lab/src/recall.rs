//! Recall: what was hidden in the text, asked for at its end.

mod question;

use crate::quality::greedy_request;
use crate::session::{Halt, Session};
use crate::{LabError, Progress, RecallRecord, Record};
use kvlab_config::{Cell, Experiment, RecallTask};
use kvlab_engine::Engine;

/// One question: what, how long, how deep, which one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place<'a> {
    pub(crate) task: &'a RecallTask,
    pub(crate) tokens: usize,
    pub(crate) depth_percent: f64,
    pub(crate) trial: usize,
}

/// Every question of an experiment: by task, length, depth and trial.
pub(crate) fn places(experiment: &Experiment) -> Vec<Place<'_>> {
    let mut places = Vec::new();
    for task in &experiment.workload.recall {
        for &tokens in &task.lengths {
            for &depth_percent in &task.depths {
                places.extend((0..task.trials).map(|trial| Place {
                    task,
                    tokens,
                    depth_percent,
                    trial,
                }));
            }
        }
    }
    places
}

/// Asks every cell what is not recorded yet. A cell is loaded once for all of its questions.
pub(crate) fn measure(session: &mut Session<'_>) -> Result<(), LabError> {
    let experiment = session.experiment;
    let places = places(experiment);
    for cell in experiment.cells() {
        let open = |place: &&Place<'_>| !session.has_recall(&cell.name, place);
        let todo: Vec<Place<'_>> = places.iter().filter(open).copied().collect();
        if !todo.is_empty() && !session.has_failed(&cell.name) {
            session.attempt(&cell.name, |session| ask_all(session, cell, &todo))?;
        }
        session.advance(places.len());
    }
    Ok(())
}

fn ask_all(session: &mut Session<'_>, cell: &Cell, places: &[Place<'_>]) -> Result<(), Halt> {
    let mut engine = session.load_cell(cell)?;
    for place in places {
        session.say(Progress::Recall {
            cell: cell.name.clone(),
            task: place.task.to_string(),
            tokens: place.tokens,
            depth_percent: format!("{}", place.depth_percent),
        });
        let record = ask(session, &mut engine, cell, place).map_err(|halt| match halt {
            Halt::Cell(error) => {
                let (tokens, depth) = (place.tokens, place.depth_percent);
                Halt::Cell(format!("{} of {tokens} tokens at {depth} %: {error}", place.task))
            }
            run => run,
        })?;
        session.record(&Record::Recall(record))?;
    }
    Ok(())
}

/// One question. The answer is generated greedily, as many tokens as the right one has: it is right where the model, fed with
/// the right answer, would have found each of its tokens the most likely.
fn ask(session: &mut Session<'_>, engine: &mut Engine, cell: &Cell, place: &Place<'_>) -> Result<RecallRecord, Halt> {
    let seed = session.experiment.seed;
    let passage = session.passage(engine)?;
    let question = question::ask(place, seed, passage, engine.tokenizer()?)?;
    let request = greedy_request(question.answer.len());
    let generation = engine.generate(&[question.prompt], &request, &mut |_| {})?;
    let generation = generation.into_iter().next();
    let answer = generation.ok_or_else(|| "no answer was generated".to_owned())?.tokens;
    Ok(RecallRecord {
        cell: cell.name.clone(),
        task: place.task.to_string(),
        tokens: place.tokens,
        depth_percent: place.depth_percent,
        trial: place.trial,
        expected: question.answer,
        answer,
    })
}
