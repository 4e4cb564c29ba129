//! Quality: every window of the text through each cell's cache and through its oracle, the logits and the layers.

use crate::metrics::mean;
use crate::session::{Halt, Session};
use crate::{
    GreedyRecord, LabError, LayerErrorRecord, Progress, QualityRecord, Record, TokenScore, oracle, score_token,
};
use kvlab_config::{Cell, Experiment, ModelConfig};
use kvlab_core::TokenId;
use kvlab_engine::text::Sampling;
use kvlab_engine::{Engine, Generation, Request, Trace};

/// Cells with one oracle.
struct Group<'a> {
    oracle: ModelConfig,
    name: String,
    cells: Vec<&'a Cell>,
    /// Loaded when it is first needed.
    engine: Option<Engine>,
}

/// What the oracle says about one window.
struct Reference {
    tokens: Vec<TokenId>,
    vocab: usize,
    /// `[tokens - 1, vocab]`: what follows the last token is not scored.
    logits: Vec<f32>,
}

/// What the oracle's layers do with one window.
struct Traced {
    window: usize,
    tokens: Vec<TokenId>,
    trace: Trace,
}

/// What the oracle says after the first prompt.
struct Greedy(Vec<TokenId>);

/// Scores every window that is not recorded yet. The oracle's logits are in memory for one window at a time (for 1024
/// tokens of a vocabulary of 49152 they are 200 MB), and every cell is scored against them before the next.
pub(crate) fn measure(session: &mut Session<'_>) -> Result<(), LabError> {
    for mut group in groups(session.experiment) {
        let measured = session.experiment.measure;
        for window in 0..session.experiment.workload.windows {
            if measured.quality {
                let todo = |session: &Session<'_>, cell: &str| !session.has_quality(cell, window);
                group.each(session, todo, |group, session| group.reference(session, window), score)?;
            }
            if measured.layers {
                let todo = |session: &Session<'_>, cell: &str| !session.has_layers(cell, window);
                group.each(session, todo, |group, session| group.trace(session, window), layers)?;
            }
        }
        if measured.quality {
            let todo = |session: &Session<'_>, cell: &str| !session.has_greedy(cell);
            group.each(session, todo, Group::greedy, greedy)?;
        }
    }
    Ok(())
}

/// The cells by their oracles, in the order of the experiment.
fn groups(experiment: &Experiment) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for cell in experiment.cells() {
        let oracle = oracle::of(&cell.config);
        match groups.iter_mut().find(|group| group.oracle == oracle) {
            Some(group) => group.cells.push(cell),
            None => groups.push(Group {
                name: format!("oracle of {}", oracle.name),
                oracle,
                cells: vec![cell],
                engine: None,
            }),
        }
    }
    groups
}

impl Group<'_> {
    /// Asks the oracle once, and measures each cell against its answer. If the oracle fails, so do its cells.
    fn each<T>(
        &mut self,
        session: &mut Session<'_>,
        todo: impl Fn(&Session<'_>, &str) -> bool,
        ask: impl FnOnce(&mut Self, &mut Session<'_>) -> Result<T, Halt>,
        measure: impl Fn(&mut Session<'_>, &Cell, &T) -> Result<Vec<Record>, Halt>,
    ) -> Result<(), LabError> {
        let open = |cell: &&Cell| !session.has_failed(&cell.name) && todo(session, &cell.name);
        let cells: Vec<&Cell> = self.cells.iter().copied().filter(open).collect();
        session.advance(self.cells.len() - cells.len());
        if cells.is_empty() {
            return Ok(());
        }
        let answer = match session.guard(|session| ask(self, session)) {
            Ok(answer) => answer,
            Err(Halt::Run(error)) => return Err(error),
            Err(Halt::Cell(error)) => {
                for cell in &cells {
                    session.fail(&cell.name, format!("{}: {error}", self.name))?;
                }
                session.advance(cells.len());
                return Ok(());
            }
        };
        for cell in cells {
            session.attempt(&cell.name, |session| {
                for record in measure(session, cell, &answer)? {
                    session.record(&record)?;
                }
                Ok(())
            })?;
            session.advance(1);
        }
        Ok(())
    }

    /// The oracle. It is taken out while it works, so that a panic leaves none behind.
    fn engine(&mut self, session: &mut Session<'_>) -> Result<Engine, Halt> {
        match self.engine.take() {
            Some(engine) => Ok(engine),
            None => session.load(&self.oracle, &self.name),
        }
    }

    fn reference(&mut self, session: &mut Session<'_>, window: usize) -> Result<(Reference, usize), Halt> {
        let workload = &session.experiment.workload;
        let mut engine = self.engine(session)?;
        session.say(Progress::Quality {
            cell: self.name.clone(),
            done: window,
            total: workload.windows,
        });
        let tokens = session.tokens(&engine, window, workload.window)?;
        let vocab = engine.model().vocab();
        let mut logits = Vec::with_capacity((tokens.len() - 1) * vocab);
        engine.score(&tokens, 0, &mut |i, row| {
            if i + 1 < tokens.len() {
                logits.extend_from_slice(row);
            }
        })?;
        self.engine = Some(engine);
        Ok((Reference { tokens, vocab, logits }, window))
    }

    fn trace(&mut self, session: &mut Session<'_>, window: usize) -> Result<Traced, Halt> {
        let workload = &session.experiment.workload;
        let mut engine = self.engine(session)?;
        session.say(Progress::Layers {
            cell: self.name.clone(),
            done: window,
            total: workload.windows,
        });
        let tokens = session.tokens(&engine, window, workload.window)?;
        let trace = engine.trace(&tokens)?;
        self.engine = Some(engine);
        Ok(Traced { window, tokens, trace })
    }

    fn greedy(&mut self, session: &mut Session<'_>) -> Result<Greedy, Halt> {
        let mut engine = self.engine(session)?;
        let (_, generation) = continue_greedily(session, &mut engine, &self.name)?;
        self.engine = Some(engine);
        Ok(Greedy(generation.tokens))
    }
}

/// One window through a cell's cache.
fn score(session: &mut Session<'_>, cell: &Cell, asked: &(Reference, usize)) -> Result<Vec<Record>, Halt> {
    let (Reference { tokens, vocab, logits }, window) = asked;
    let workload = &session.experiment.workload;
    let mut engine = session.load_cell(cell)?;
    session.say(Progress::Quality {
        cell: cell.name.clone(),
        done: *window,
        total: workload.windows,
    });
    let mut scores: Vec<Option<TokenScore>> = Vec::with_capacity(tokens.len());
    let scored = engine.score(tokens, workload.chunk, &mut |i, row| {
        if let Some(&target) = tokens.get(i + 1) {
            let oracle = logits.get(i * vocab..(i + 1) * vocab).unwrap_or_default();
            scores.push(score_token(oracle, row, target as usize));
        }
    });
    scored.map_err(|error| format!("window {window}: {error}"))?;
    let scores: Option<Vec<TokenScore>> = scores.into_iter().collect();
    let scores = scores.filter(|scores| scores.len() + 1 == tokens.len());
    let scores = scores.ok_or_else(|| format!("window {window}: the logits do not fit to those of the oracle"))?;
    let list = |field: fn(&TokenScore) -> f64| scores.iter().map(field).collect::<Vec<_>>();
    let (nll_nats, oracle_nll_nats) = (list(|s| s.nll), list(|s| s.oracle_nll));
    Ok(vec![Record::Quality(QualityRecord {
        cell: cell.name.clone(),
        window: *window,
        mean_nll_nats: mean(&nll_nats).unwrap_or_default(),
        oracle_mean_nll_nats: mean(&oracle_nll_nats).unwrap_or_default(),
        nll_nats,
        oracle_nll_nats,
        kl_nats: list(|s| s.kl),
        logit_difference: list(|s| s.max_difference),
        top1_agreed: scores.iter().filter(|s| s.top1_agrees).count(),
    })])
}

/// The layers of a cell over one window, each with the hidden states that the oracle's layer got.
fn layers(session: &mut Session<'_>, cell: &Cell, asked: &Traced) -> Result<Vec<Record>, Halt> {
    let Traced { window, tokens, trace } = asked;
    let workload = &session.experiment.workload;
    let mut engine = session.load_cell(cell)?;
    session.say(Progress::Layers {
        cell: cell.name.clone(),
        done: *window,
        total: workload.windows,
    });
    let distances = engine.layer_distances(tokens, workload.chunk, trace);
    let distances = distances.map_err(|error| format!("layers of window {window}: {error}"))?;
    let new = distances.into_iter().enumerate();
    let new = new.filter(|(layer, _)| !session.has_layer(&cell.name, *window, *layer));
    let records = new.map(|(layer, distance)| {
        Record::LayerError(LayerErrorRecord {
            cell: cell.name.clone(),
            window: *window,
            layer,
            squared_error: distance.squared_error,
            squared_norm: distance.squared_norm,
            max_difference: distance.max_difference,
        })
    });
    Ok(records.collect())
}

/// The first prompt through a cell's cache.
fn greedy(session: &mut Session<'_>, cell: &Cell, asked: &Greedy) -> Result<Vec<Record>, Halt> {
    let mut engine = session.load_cell(cell)?;
    let (prompt_tokens, generation) = continue_greedily(session, &mut engine, &cell.name)?;
    Ok(vec![Record::Greedy(GreedyRecord {
        cell: cell.name.clone(),
        prompt_tokens,
        tokens: generation.tokens,
        oracle_tokens: asked.0.clone(),
        usage: generation.usage.into(),
        kernels: generation.kernels.iter().map(|&kernel| kernel.to_owned()).collect(),
    })])
}

/// The first prompt of the workload (a window, if it has none) and what follows it.
fn continue_greedily(session: &mut Session<'_>, engine: &mut Engine, name: &str) -> Result<(usize, Generation), Halt> {
    let workload = &session.experiment.workload;
    let prompt_tokens = workload.prompts.first().copied().unwrap_or(workload.window);
    session.say(Progress::Greedy { cell: name.to_owned() });
    let prompt = session.tokens(engine, 0, prompt_tokens)?;
    let request = greedy_request(workload.new_tokens);
    let generation = engine
        .generate(&[prompt], &request, &mut |_| {})
        .map_err(|error| format!("greedy text: {error}"))?;
    let generation = generation.into_iter().next();
    Ok((
        prompt_tokens,
        generation.ok_or_else(|| "no text was generated".to_owned())?,
    ))
}

/// So many tokens, the most likely each time, whatever they are.
pub(crate) fn greedy_request(max_new_tokens: usize) -> Request {
    Request {
        max_new_tokens,
        sampling: Sampling::default(),
        ignore_eos: true,
    }
}
