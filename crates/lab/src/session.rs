//! A comparison while it runs: what is loaded, what is recorded, which cells have failed.

use crate::journal::Journal;
use crate::passage::{Passage, Text};
use crate::recall::Place;
use crate::speed::Point;
use crate::{CellRecord, FailureRecord, LabError, Progress, Rates, Record, Row, recall, row, speed};
use kvlab_config::{Cell, Experiment, ModelConfig};
use kvlab_core::{CacheSpec, TokenId};
use kvlab_engine::{Engine, EngineError, Pool};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a measurement ended early.
pub(crate) enum Halt {
    /// The cell failed; the others go on.
    Cell(String),
    /// Nothing can go on.
    Run(LabError),
}

impl From<EngineError> for Halt {
    fn from(error: EngineError) -> Self {
        Self::Cell(error.to_string())
    }
}

impl From<String> for Halt {
    fn from(error: String) -> Self {
        Self::Cell(error)
    }
}

impl From<LabError> for Halt {
    fn from(error: LabError) -> Self {
        Self::Run(error)
    }
}

pub(crate) struct Session<'a> {
    pub(crate) experiment: &'a Experiment,
    text: Text,
    journal: Journal,
    progress: &'a mut dyn FnMut(Progress),
    pool: Pool,
    /// By model: its source and tokenizer.
    passages: BTreeMap<String, Passage>,
    /// Cells that failed in this run, and why.
    failed: BTreeMap<String, String>,
    done: usize,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        experiment: &'a Experiment,
        text: Text,
        journal: Journal,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Self {
        Self {
            experiment,
            text,
            journal,
            progress,
            pool: Pool::new(),
            passages: BTreeMap::new(),
            failed: BTreeMap::new(),
            done: 0,
        }
    }

    pub(crate) fn say(&mut self, progress: Progress) {
        (self.progress)(progress);
    }

    /// So many more measurements are done, found or given up.
    pub(crate) fn advance(&mut self, by: usize) {
        self.done += by;
        let (done, total) = (self.done, self.total());
        self.say(Progress::Advanced { done, total });
    }

    fn total(&self) -> usize {
        let Experiment {
            workload,
            measure,
            repeats,
            ..
        } = self.experiment;
        let count = |on: bool, count: usize| if on { count } else { 0 };
        let quality = count(measure.quality, workload.windows + 1);
        let layers = count(measure.layers, workload.windows);
        let recall = count(measure.recall, recall::places(self.experiment).len());
        let speed = count(measure.speed, repeats * speed::points(workload).len());
        self.experiment.cells().len() * (quality + layers + recall + speed)
    }

    /// Whether nothing was recorded yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.journal.records().is_empty()
    }

    /// Whether everything was recorded.
    pub(crate) fn complete(&self) -> bool {
        let Experiment {
            workload,
            measure,
            repeats,
            ..
        } = self.experiment;
        self.experiment.cells().iter().all(|cell| {
            let cell = cell.name.as_str();
            let quality =
                || self.has_greedy(cell) && (0..workload.windows).all(|window| self.has_quality(cell, window));
            let layers = || (0..workload.windows).all(|window| self.has_layers(cell, window));
            let recall = || {
                recall::places(self.experiment)
                    .iter()
                    .all(|place| self.has_recall(cell, place))
            };
            let points = speed::points(workload);
            let speed = || (0..*repeats).all(|repeat| points.iter().all(|point| self.has_speed(cell, repeat, point)));
            (!measure.quality || quality())
                && (!measure.layers || layers())
                && (!measure.recall || recall())
                && (!measure.speed || speed())
        })
    }

    pub(crate) fn has_quality(&self, cell: &str, window: usize) -> bool {
        let is = |r: &Record| matches!(r, Record::Quality(r) if r.cell == cell && r.window == window);
        self.journal.records().iter().any(is)
    }

    pub(crate) fn has_greedy(&self, cell: &str) -> bool {
        self.journal
            .records()
            .iter()
            .any(|r| matches!(r, Record::Greedy(r) if r.cell == cell))
    }

    /// Whether all layers of a window are there.
    pub(crate) fn has_layers(&self, cell: &str, window: usize) -> bool {
        let layers = self
            .specs()
            .iter()
            .find(|(name, _)| *name == cell)
            .map(|(_, spec)| spec.layers.len());
        layers.is_some_and(|layers| (0..layers).all(|layer| self.has_layer(cell, window, layer)))
    }

    pub(crate) fn has_layer(&self, cell: &str, window: usize, layer: usize) -> bool {
        let same = |r: &Record| match r {
            Record::LayerError(r) => r.cell == cell && r.window == window && r.layer == layer,
            _ => false,
        };
        self.journal.records().iter().any(same)
    }

    pub(crate) fn has_recall(&self, cell: &str, place: &Place<'_>) -> bool {
        let task = place.task.to_string();
        let same = |r: &Record| match r {
            Record::Recall(r) => {
                r.cell == cell
                    && r.task == task
                    && (r.tokens, r.trial) == (place.tokens, place.trial)
                    && r.depth_percent == place.depth_percent
            }
            _ => false,
        };
        self.journal.records().iter().any(same)
    }

    pub(crate) fn has_speed(&self, cell: &str, repeat: usize, point: &Point) -> bool {
        let turns = self
            .experiment
            .workload
            .conversation
            .map_or(0, |conversation| conversation.turns);
        let records = || self.journal.records().iter();
        match *point {
            Point::Prompt { tokens, batch } => records().any(|r| match r {
                Record::Speed(r) => {
                    r.cell == cell && r.repeat == repeat && (r.prompt_tokens, r.batch) == (tokens, batch)
                }
                _ => false,
            }),
            Point::Conversation => (0..turns).all(|turn| self.has_turn(cell, repeat, turn)),
            Point::Mix => records().any(|r| matches!(r, Record::Mix(r) if r.cell == cell && r.repeat == repeat)),
        }
    }

    pub(crate) fn has_turn(&self, cell: &str, repeat: usize, turn: usize) -> bool {
        let same = |r: &Record| match r {
            Record::Turn(r) => r.cell == cell && (r.repeat, r.turn) == (repeat, turn),
            _ => false,
        };
        self.journal.records().iter().any(same)
    }

    pub(crate) fn has_failed(&self, cell: &str) -> bool {
        self.failed.contains_key(cell)
    }

    pub(crate) fn record(&mut self, record: &Record) -> Result<(), LabError> {
        self.journal.append(record)
    }

    /// A model and its cache, for an oracle.
    pub(crate) fn load(&mut self, config: &ModelConfig, name: &str) -> Result<Engine, Halt> {
        self.say(Progress::Loading { cell: name.to_owned() });
        Ok(self.pool.load(config, &mut |_, _| {})?)
    }

    /// A cell's model and cache. The cache is a new one each time; weights are kept.
    pub(crate) fn load_cell(&mut self, cell: &Cell) -> Result<Engine, Halt> {
        let engine = self.load(&cell.config, &cell.name)?;
        let known = self.journal.records().iter().find_map(|r| match r {
            Record::Cell(r) if r.cell == cell.name => Some(r.weights.as_str()),
            _ => None,
        });
        match known {
            Some(weights) if weights == engine.fingerprint() => {}
            Some(weights) => {
                let what = format!(
                    "the weights of {} were {weights} and are {}",
                    cell.name,
                    engine.fingerprint()
                );
                return Err(Halt::Run(LabError::Changed {
                    folder: self.journal.folder().to_owned(),
                    what,
                }));
            }
            None => self.record(&Record::Cell(CellRecord {
                cell: cell.name.clone(),
                weights: engine.fingerprint().to_owned(),
                weights_bytes: engine.weight_bytes(),
                device: engine.device().description.clone(),
                threads: engine.threads(),
                spec: engine.spec().clone(),
            }))?,
        }
        Ok(engine)
    }

    /// The `index`-th run of `len` tokens of the text. A text is tokenised once for each model.
    pub(crate) fn tokens(&mut self, engine: &Engine, index: usize, len: usize) -> Result<Vec<TokenId>, Halt> {
        Ok(self.passage(engine)?.run(index, len)?)
    }

    /// The text in the tokens of a model.
    pub(crate) fn passage(&mut self, engine: &Engine) -> Result<&Passage, Halt> {
        let model = &engine.config().model;
        let key = format!("{:?} {:?}", model.origin, model.tokenizer);
        if !self.passages.contains_key(&key) {
            self.passages
                .insert(key.clone(), Passage::new(&self.text, engine.tokenizer()?)?);
        }
        let passage = self.passages.get(&key);
        passage.ok_or_else(|| Halt::Cell("the text was not tokenised".to_owned()))
    }

    /// Runs a part of the work. A panic below (a device out of memory, say) ends that part only.
    pub(crate) fn guard<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Halt>) -> Result<T, Halt> {
        // What the closure changes stays whole: the journal and the pool are only ever added to, and engines are
        // dropped.
        catch_unwind(AssertUnwindSafe(|| work(self))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(Halt::Cell(format!("panic: {text}")))
        })
    }

    /// Runs a part of the work on one cell, which fails if it does.
    pub(crate) fn attempt(
        &mut self,
        cell: &str,
        work: impl FnOnce(&mut Self) -> Result<(), Halt>,
    ) -> Result<(), LabError> {
        match self.guard(work) {
            Ok(()) => Ok(()),
            Err(Halt::Cell(error)) => self.fail(cell, error),
            Err(Halt::Run(error)) => Err(error),
        }
    }

    /// Leaves a cell out from here on.
    pub(crate) fn fail(&mut self, cell: &str, error: String) -> Result<(), LabError> {
        let cell = cell.to_owned();
        self.record(&Record::Failure(FailureRecord {
            cell: cell.clone(),
            error: error.clone(),
        }))?;
        self.failed.insert(cell.clone(), error.clone());
        self.say(Progress::Failed { cell, error });
        Ok(())
    }

    /// One row for each cell.
    pub(crate) fn rows(&self, rates: Option<&Rates>) -> Vec<Row> {
        let cells = self.experiment.cells().iter();
        let rows = cells.map(|cell| {
            let error = self.failed.get(&cell.name).cloned();
            row::from_records(self.experiment, cell, self.journal.records(), error, rates)
        });
        rows.collect()
    }

    /// What the cache of each cell holds.
    pub(crate) fn specs(&self) -> Vec<(&str, &CacheSpec)> {
        let records = self.journal.records().iter();
        let specs = records.filter_map(|r| match r {
            Record::Cell(r) => Some((r.cell.as_str(), &r.spec)),
            _ => None,
        });
        specs.collect()
    }

    /// Everything that was measured.
    pub(crate) fn into_records(self) -> Vec<Record> {
        self.journal.into_records()
    }
}
