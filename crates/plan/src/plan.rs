//! A plan: everything that is known about a model and its caches before anything runs.

use crate::caches::{Caches, Column, Variant};
use crate::device::Device;
use crate::fit::{self, Fit, Memory, Wanted};
use crate::price::{Conversation, Cost, Prices};
use crate::weights::{Parameters, Precision, Stored};
use crate::work::{Steps, Work};
use crate::{PlanError, Subject};
use kvlab_core::{Bytes, CacheSpec, Exactness};
use serde::Serialize;

/// Tokens of a request where nobody says, unless the model takes fewer.
const CONTEXT: usize = 8192;

/// What is asked of a plan.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Tokens of a request; by default 8192, or as many as the model takes.
    pub context: Option<usize>,
    /// Requests at the same time; by default 1.
    pub requests: Option<usize>,
    /// Precision of the weights; by default as stored, as declared, or 16 bits.
    pub weights: Option<Precision>,
    /// Number format of the cache that fits or not; by default that of the model file, or f16.
    pub codec: Option<String>,
    /// Adds a number format of so many bits that kvlab does not have.
    pub bits: Option<u32>,
    /// Memory for everything; by default that of the device.
    pub budget: Option<Bytes>,
    /// What of it is neither for weights nor for rows.
    pub reserve: Bytes,
    /// What it runs on.
    pub device: Option<Device>,
    /// A conversation and its prices.
    pub conversation: Option<(Conversation, Prices)>,
}

/// Everything that is known before anything runs.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Version of this format.
    pub schema: u32,
    /// The model.
    pub model: Model,
    /// Its weights.
    pub weights: Weights,
    /// Tokens of a request.
    pub context_tokens: usize,
    /// Requests at the same time.
    pub requests: usize,
    /// The cache that the verdict is about.
    pub chosen: Chosen,
    /// Every variant.
    pub caches: Vec<Cache>,
    /// The memory, if there is one to fit into.
    pub memory: Option<Memory>,
    /// What it runs on.
    pub device: Option<Device>,
    /// Bytes a token against another model.
    pub against: Option<Against>,
    /// What a conversation costs.
    pub cost: Option<Cost>,
    /// TTFT of the last turn of that conversation, without and with its prefix cached.
    pub last_turn_ttft_ms: Option<[f64; 2]>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// The model of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// `model_type`.
    pub family: String,
    /// Layers.
    pub layers: usize,
    /// `max_position_embeddings`.
    pub max_positions: usize,
    /// Its parameters.
    pub parameters: Parameters,
}

/// The weights of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Weights {
    /// Bytes in each precision.
    pub precisions: Vec<(Precision, Bytes)>,
    /// What a header lists.
    pub stored: Option<Stored>,
    /// The precision that is taken off a budget; `None` is as stored.
    pub counted: Option<Precision>,
    /// Its bytes.
    pub counted_bytes: Bytes,
}

/// A cell of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chosen {
    /// Of [`Cache::variant`].
    pub variant: String,
    /// Of [`Cell::codec`].
    pub codec: String,
}

/// A variant.
#[derive(Clone, Debug, Serialize)]
pub struct Cache {
    /// Its name, with its options.
    pub variant: String,
    /// Whether it is the model's own attention.
    pub own: bool,
    /// Why the output is not that of the model's own attention, apart from number formats; empty where it is.
    pub lossy: Vec<String>,
    /// One a number format.
    pub cells: Vec<Cell>,
}

/// A variant in a number format.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The number format.
    pub codec: String,
    /// What it costs, or why it cannot be.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What becomes of a cell.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// What it costs.
    Planned(Box<Facts>),
    /// It cannot be built: why not.
    Refused(String),
}

/// What a cache costs.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// Why its numbers are not those of 16 bits or more; empty where they are.
    pub lossy: Vec<String>,
    /// Bytes that one more token takes in all layers, as long as no row is dropped.
    pub bytes_per_token: Bytes,
    /// The same, layer by layer.
    pub bytes_per_token_by_layer: Vec<Bytes>,
    /// Layers that are alike: how many, what they are, bytes a token of one of them.
    pub kinds: Vec<(usize, String, Bytes)>,
    /// Bytes in use for one request of the wanted context.
    pub bytes_at_context: Bytes,
    /// What fits.
    pub fit: Option<Fit>,
    /// How long it takes at best.
    pub times: Option<Times>,
}

/// The least time that a device can take: the longer of computing and reading, with nothing else in the way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Milliseconds to the first token of a prompt of the wanted context; `None` where the device's FLOP/s are not known.
    pub ttft_ms: Option<f64>,
    /// Whether memory sets it.
    pub ttft_by_memory: bool,
    /// Milliseconds from token to token behind the wanted context, for all wanted requests together.
    pub itl_ms: f64,
    /// Whether memory sets it.
    pub itl_by_memory: bool,
    /// Tokens a second with as many requests as fit; `None` without a memory, or where none fits.
    pub most_tokens_per_second: Option<f64>,
}

/// Bytes a token against the own cache of another model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// The other model.
    pub name: String,
    /// Number format of its cache.
    pub codec: String,
    /// Bytes that a token takes there.
    pub bytes_per_token: Bytes,
    /// Number formats of this model's own cache, and by how many per cent a token takes less (negative: more).
    pub percent_less: Vec<(String, f64)>,
}

/// Plans for a model.
///
/// # Errors
/// [`PlanError::Request`] for what cannot be asked, [`PlanError::Engine`].
pub fn plan(subject: &Subject, question: &Question) -> Result<Plan, PlanError> {
    let model = &subject.model;
    let caches = Caches::new(subject, question.bits)?;
    let wanted = wanted(subject, question)?;
    let chosen = caches.chosen(question.codec.as_deref())?;
    let weights = weights(subject, question.weights);
    let memory = memory(&caches, chosen, wanted, question, &weights)?;
    let planner = Planner {
        caches: &caches,
        wanted,
        rows: memory.as_ref().and_then(|memory| memory.rows),
        has_memory: memory.is_some(),
        steps: Steps::new(model, weights.counted_bytes),
        device: question.device.as_ref(),
        precision: weights.counted.unwrap_or(Precision::Fp16),
    };
    let mut notes = subject.notes.clone();
    if wanted.context > model.max_positions() {
        let (context, most) = (wanted.context, model.max_positions());
        notes.push(format!(
            "a context of {context} tokens is beyond the {most} positions of the model"
        ));
    }
    let cost = question
        .conversation
        .as_ref()
        .map(|(conversation, prices)| prices.cost(*conversation));
    let last_turn = cost
        .as_ref()
        .and_then(|cost| planner.last_turn(chosen, cost.conversation));
    Ok(Plan {
        schema: 1,
        model: Model {
            name: subject.name.clone(),
            family: model.family().to_owned(),
            layers: model.layers(),
            max_positions: model.max_positions(),
            parameters: Parameters::of(model),
        },
        context_tokens: wanted.context,
        requests: wanted.requests,
        chosen: Chosen {
            variant: caches.variants[chosen.0].label.clone(),
            codec: caches.columns[chosen.1].name.clone(),
        },
        caches: caches.variants.iter().map(|variant| planner.cache(variant)).collect(),
        weights,
        memory,
        device: question.device.clone(),
        against: None,
        cost,
        last_turn_ttft_ms: last_turn,
        notes,
    })
}

fn wanted(subject: &Subject, question: &Question) -> Result<Wanted, PlanError> {
    let most = subject.model.max_positions();
    let wanted = Wanted {
        context: question.context.unwrap_or(CONTEXT.min(most)),
        requests: question.requests.unwrap_or(1),
        most,
    };
    // Far beyond any model and any machine, and far from where products of bytes would saturate.
    const TOKENS: usize = 1 << 24;
    const REQUESTS: usize = 1 << 20;
    let refuse = |what: String| Err(PlanError::Request(what));
    match wanted {
        Wanted { context: 0, .. } => refuse("a context of 0 tokens; ask for at least 1".into()),
        Wanted { requests: 0, .. } => refuse("0 requests; ask for at least 1".into()),
        Wanted { context, .. } if context > TOKENS => {
            refuse(format!("{context} tokens; at most {TOKENS} can be planned"))
        }
        Wanted { requests, .. } if requests > REQUESTS => {
            refuse(format!("{requests} requests; at most {REQUESTS} can be planned"))
        }
        wanted => Ok(wanted),
    }
}

fn weights(subject: &Subject, asked: Option<Precision>) -> Weights {
    let parameters = subject.model.parameters();
    let declared = subject.declared.unwrap_or(Precision::Fp16);
    let counted = match (asked, &subject.stored) {
        (Some(precision), _) => Some(precision),
        (None, Some(_)) => None,
        (None, None) => Some(declared),
    };
    let stored = subject.stored.as_ref().map(|stored| stored.bytes);
    Weights {
        precisions: Precision::ALL.map(|p| (p, p.bytes(parameters))).to_vec(),
        stored: subject.stored.clone(),
        counted,
        counted_bytes: match counted {
            Some(precision) => precision.bytes(parameters),
            None => stored.unwrap_or(declared.bytes(parameters)),
        },
    }
}

fn memory(
    caches: &Caches<'_>,
    chosen: (usize, usize),
    wanted: Wanted,
    question: &Question,
    weights: &Weights,
) -> Result<Option<Memory>, PlanError> {
    let Some(budget) = question.budget.or(question.device.as_ref().and_then(Device::memory)) else {
        return Ok(None);
    };
    let (variant, column) = (&caches.variants[chosen.0], &caches.columns[chosen.1]);
    let spec = caches
        .spec(variant, column, wanted.context, wanted.requests)
        .map_err(PlanError::Request)?;
    let mut memory = Memory {
        budget,
        reserve: question.reserve,
        weights: weights.counted_bytes,
        rows: fit::left(budget, question.reserve + weights.counted_bytes),
        wanted: spec.allocated(),
        fits: false,
        ways_out: Vec::new(),
    };
    memory.fits = memory.needed() <= budget;
    if !memory.fits {
        let taken = fit::Weights {
            parameters: caches.subject.model.parameters(),
            bytes: weights.counted_bytes,
        };
        memory.ways_out = fit::ways_out(caches, chosen, wanted, &memory, taken);
    }
    Ok(Some(memory))
}

/// Fills the cells.
struct Planner<'a> {
    caches: &'a Caches<'a>,
    wanted: Wanted,
    /// Bytes for rows; `None` without a memory, or where the weights fill it.
    rows: Option<Bytes>,
    has_memory: bool,
    steps: Steps<'a>,
    device: Option<&'a Device>,
    precision: Precision,
}

impl Planner<'_> {
    fn cache(&self, variant: &Variant) -> Cache {
        let specs: Vec<_> = self
            .caches
            .columns
            .iter()
            .map(|column| (column, self.caches.spec(variant, column, self.wanted.context, 1)))
            .collect();
        let first = specs.iter().find_map(|(_, spec)| spec.as_ref().ok());
        Cache {
            variant: variant.label.clone(),
            own: variant.own,
            lossy: first.map_or_else(Vec::new, |spec| reasons(spec, false)),
            cells: specs
                .iter()
                .map(|(column, spec)| Cell {
                    codec: column.name.clone(),
                    outcome: match spec {
                        Ok(spec) => Outcome::Planned(Box::new(self.facts((variant, column), spec))),
                        Err(reason) => Outcome::Refused(reason.clone()),
                    },
                })
                .collect(),
        }
    }

    fn facts(&self, cell: (&Variant, &Column), spec: &CacheSpec) -> Facts {
        let fit = match (self.has_memory, self.rows) {
            (false, _) => None,
            (true, None) => Some(Fit {
                largest_context_tokens: 0,
                limited_by_model: false,
                requests: 0,
            }),
            (true, Some(rows)) => Some(fit::fit(self.caches, cell, self.wanted, rows)),
        };
        Facts {
            lossy: reasons(spec, true),
            bytes_per_token: spec.per_token(),
            bytes_per_token_by_layer: spec.layers.iter().map(|layer| layer.per_token()).collect(),
            kinds: kinds(spec),
            bytes_at_context: spec.used_at(self.wanted.context),
            times: self.device.map(|device| self.times(device, spec, fit)),
            fit,
        }
    }

    fn times(&self, device: &Device, spec: &CacheSpec, fit: Option<Fit>) -> Times {
        let (context, requests) = (self.wanted.context, self.wanted.requests);
        let prompt = self.roofline(device, self.steps.prefill(spec, 0, context));
        let token = self.roofline(device, self.steps.decode(spec, context, requests));
        let most = fit.filter(|fit| fit.requests > 0).map(|fit| {
            let requests = usize::try_from(fit.requests).unwrap_or(usize::MAX);
            let step = self.roofline(device, self.steps.decode(spec, context, requests));
            fit.requests as f64 / step.seconds
        });
        Times {
            ttft_ms: device.dense_tflops.is_some().then_some(prompt.seconds * 1e3),
            ttft_by_memory: prompt.by_memory,
            itl_ms: token.seconds * 1e3,
            itl_by_memory: token.by_memory,
            most_tokens_per_second: most,
        }
    }

    /// The longer of computing and reading: as if both went on at full speed side by side (Williams et al., 2009).
    fn roofline(&self, device: &Device, work: Work) -> Bound {
        let compute = device.rate(self.precision).map_or(0.0, |(rate, _)| work.flops / rate);
        let memory = work.bytes / device.bandwidth();
        Bound {
            seconds: compute.max(memory),
            by_memory: memory > compute,
        }
    }

    /// TTFT of the last turn, in milliseconds, when its whole prompt is computed and when only what is new is.
    fn last_turn(&self, chosen: (usize, usize), conversation: Conversation) -> Option<[f64; 2]> {
        let device = self.device.filter(|device| device.dense_tflops.is_some())?;
        let prompt = usize::try_from(conversation.prompt(conversation.turns)).ok()?;
        let before = match conversation.turns {
            0 | 1 => 0,
            turns => usize::try_from(conversation.prompt(turns - 1)).ok()?,
        };
        let (variant, column) = (&self.caches.variants[chosen.0], &self.caches.columns[chosen.1]);
        let spec = self.caches.spec(variant, column, prompt.max(1), 1).ok()?;
        let time = |past, new| 1e3 * self.roofline(device, self.steps.prefill(&spec, past, new)).seconds;
        Some([time(0, prompt), time(before, prompt - before)])
    }
}

struct Bound {
    seconds: f64,
    by_memory: bool,
}

/// Why a cache is lossy: because of its number formats, or of everything else.
fn reasons(spec: &CacheSpec, formats: bool) -> Vec<String> {
    let Exactness::Lossy(reasons) = &spec.exactness else {
        return Vec::new();
    };
    let format = |reason: &str| reason.contains("bits a value") || reason.contains("bits a number");
    reasons
        .iter()
        .filter(|reason| format(reason) == formats)
        .cloned()
        .collect()
}

/// Layers that see and keep the same, and cost the same.
fn kinds(spec: &CacheSpec) -> Vec<(usize, String, Bytes)> {
    let mut kinds: Vec<(usize, String, Bytes)> = Vec::new();
    for layer in &spec.layers {
        let what = match layer.retention {
            kvlab_core::Retention::All => layer.visibility.to_string(),
            kept => kept.to_string(),
        };
        let bytes = layer.per_token();
        match kinds
            .iter_mut()
            .find(|(_, other, size)| (other.as_str(), *size) == (what.as_str(), bytes))
        {
            Some((count, _, _)) => *count += 1,
            None => kinds.push((1, what, bytes)),
        }
    }
    kinds
}

impl Plan {
    /// Compares the own cache with that of another model in f16.
    ///
    /// # Errors
    /// [`PlanError::Engine`]; a model without such a cache.
    pub fn against(mut self, other: &Subject) -> Result<Self, PlanError> {
        let other_plan = plan(other, &Question::default())?;
        let codec = "f16";
        let cell = |plan: &'_ Plan, codec: &str| {
            let own = plan.caches.iter().find(|cache| cache.own)?;
            own.cells
                .iter()
                .find(|cell| cell.codec == codec)
                .and_then(Cell::facts)
                .map(|facts| facts.bytes_per_token)
        };
        let theirs = cell(&other_plan, codec).filter(|bytes| bytes.0 > 0);
        let theirs = theirs
            .ok_or_else(|| PlanError::Request(format!("{} has no cache in {codec} to compare with", other.name)))?;
        let own = self.caches.iter().find(|cache| cache.own);
        let percent = |cell: &Cell| {
            let less = 1.0 - cell.facts()?.bytes_per_token.0 as f64 / theirs.0 as f64;
            Some((cell.codec.clone(), 100.0 * less))
        };
        self.against = Some(Against {
            name: other.name.clone(),
            codec: codec.into(),
            bytes_per_token: theirs,
            percent_less: own.into_iter().flat_map(|own| &own.cells).filter_map(percent).collect(),
        });
        Ok(self)
    }

    /// The cell that the verdict is about.
    pub fn chosen(&self) -> Option<&Facts> {
        let cache = self.caches.iter().find(|cache| cache.variant == self.chosen.variant)?;
        cache.cells.iter().find(|cell| cell.codec == self.chosen.codec)?.facts()
    }
}

impl Cell {
    /// What it costs, if it can be built.
    pub fn facts(&self) -> Option<&Facts> {
        match &self.outcome {
            Outcome::Planned(facts) => Some(facts),
            Outcome::Refused(_) => None,
        }
    }
}
