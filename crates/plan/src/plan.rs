//! From a model and a question to a plan.

use crate::answer::{Against, Cell, Chosen, Model, Plan, Weights};
use crate::caches::Caches;
use crate::cells::Planner;
use crate::device::Device;
use crate::fit::{self, Memory, Wanted};
use crate::price::{Conversation, Prices};
use crate::weights::{Parameters, Precision};
use crate::work::Steps;
use crate::{PlanError, Subject};
use kvlab_config::Capacity;
use kvlab_core::Bytes;

/// Tokens of a request where nobody says, unless the model takes fewer.
const CONTEXT: usize = 8192;

/// The most tokens of a request: far beyond any model, and far from where products of bytes would saturate.
pub(crate) const TOKENS: usize = 1 << 24;

/// The most requests.
const REQUESTS: usize = 1 << 20;

/// The most turns of a conversation.
const TURNS: u64 = 1 << 20;

/// What is asked of a plan.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Tokens of a request; by default the capacity of the model file, else 8192, or as many as the model takes.
    pub context: Option<usize>,
    /// Requests at the same time; by default the sequences of the model file.
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

/// Plans for a model.
///
/// # Errors
/// [`PlanError::Request`] for what cannot be asked, [`PlanError::Engine`].
pub fn plan(subject: &Subject, question: &Question) -> Result<Plan, PlanError> {
    let model = &subject.model;
    let caches = Caches::new(subject, question.bits)?;
    let wanted = wanted(subject, question)?;
    if let Some((conversation, _)) = &question.conversation
        && !(1..=TURNS).contains(&conversation.turns)
    {
        let what = format!("{} turns; between 1 and {TURNS} can be priced", conversation.turns);
        return Err(PlanError::Request(what));
    }
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
        precision: weights.multiplied(),
    };
    let mut notes = subject.notes.clone();
    if let Some(bits) = question.bits {
        notes.push(format!(
            "{bits} bits is arithmetic: kvlab has no such format, and no scales are counted"
        ));
    }
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
        context: question.context.unwrap_or(match subject.cache.capacity {
            Some(Capacity::Tokens(tokens)) => tokens,
            _ => CONTEXT.min(most),
        }),
        requests: question.requests.unwrap_or(subject.cache.sequences),
        most,
    };
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
}
