//! The lines of `records.jsonl`: raw measurements, with units in the names.

mod spec_schema;

use crate::ProcessMemory;
use kvlab_core::{CacheSpec, Usage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// What a cell is.
    Cell(CellRecord),
    /// One window of the text.
    Quality(QualityRecord),
    /// The greedy text.
    Greedy(GreedyRecord),
    /// One repeat at one length of prompt.
    Speed(SpeedRecord),
    /// One question about what stood in a context.
    Recall(RecallRecord),
    /// One layer over one window.
    LayerError(LayerErrorRecord),
    /// One turn of a conversation.
    Turn(TurnRecord),
    /// One run of the requests that share prefixes.
    Mix(MixRecord),
    /// A cell failed. It is tried again by the next run.
    Failure(FailureRecord),
}

/// What a cell is, as loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellRecord {
    /// Name of the cell.
    pub cell: String,
    /// Identifies the weights.
    pub weights: String,
    /// Bytes of the weights in memory.
    pub weights_bytes: u64,
    /// The device, in words.
    pub device: String,
    /// Threads of the processor.
    pub threads: usize,
    /// What the cache holds.
    #[schemars(with = "spec_schema::CacheSpec")]
    pub spec: CacheSpec,
}

/// One window, token by token: the first token is not scored, so each list has one entry less than the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QualityRecord {
    /// Name of the cell.
    pub cell: String,
    /// The window, from 0.
    pub window: usize,
    /// Mean of `nll_nats`.
    pub mean_nll_nats: f64,
    /// Mean of `oracle_nll_nats`.
    pub oracle_mean_nll_nats: f64,
    /// Negative log likelihood of each token.
    pub nll_nats: Vec<f64>,
    /// The oracle's.
    pub oracle_nll_nats: Vec<f64>,
    /// KL(oracle || cell) of each token.
    pub kl_nats: Vec<f64>,
    /// Largest difference of a logit, for each token.
    pub logit_difference: Vec<f64>,
    /// Tokens for which both have the same most likely next token.
    pub top1_agreed: usize,
}

/// A prompt, continued greedily by the cell and by its oracle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GreedyRecord {
    /// Name of the cell.
    pub cell: String,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// The tokens that the cell generated.
    pub tokens: Vec<u32>,
    /// Those of the oracle.
    pub oracle_tokens: Vec<u32>,
    /// The cache at the end.
    pub usage: UsageRecord,
    /// The kernels that ran.
    pub kernels: Vec<String>,
}

/// One measured generation: every sequence of the batch continues the same prompt. Nothing of it was stored before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpeedRecord {
    /// Name of the cell.
    pub cell: String,
    /// The repeat, from 0.
    pub repeat: usize,
    /// Length of the prompt.
    pub prompt_tokens: usize,
    /// Tokens generated after it.
    pub new_tokens: usize,
    /// Sequences side by side.
    pub batch: usize,
    /// Tokens that the warm-up before it generated.
    pub warm_up_tokens: usize,
    /// Time to first token of each sequence.
    pub ttft_ms: Vec<f64>,
    /// The gap before each further token, for each sequence.
    pub gaps_ms: Vec<Vec<f64>>,
    /// Tokens that the first sequence generated.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt that were found stored, over all sequences: 0, or the cell has failed.
    pub cached_tokens: usize,
    /// The same batch again, right after, where the cache finds stored prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<CachedRecord>,
    /// What the accounting says that it takes; missing in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkRecord>,
    /// Memory of the whole process at the end; missing in files of older versions, and where the system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessMemory>,
    /// The cache at the end.
    pub usage: UsageRecord,
    /// The kernels that ran.
    pub kernels: Vec<String>,
}

/// Bytes and operations from the accounting, of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkRecord {
    /// Bytes moved for the prompts.
    pub prefill_bytes: u64,
    /// Operations of the prompts; a multiply-add is two.
    pub prefill_flops: u64,
    /// Bytes moved by the decode steps together.
    pub decode_bytes: u64,
    /// Operations of the decode steps together.
    pub decode_flops: u64,
    /// Decode steps; each adds a token to every sequence.
    pub decode_steps: usize,
}

/// One question: a context, and the answer that it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecallRecord {
    /// Name of the cell.
    pub cell: String,
    /// The task, such as `needle`.
    pub task: String,
    /// Tokens of the context with the question.
    pub tokens: usize,
    /// Where the needle stands, % of the context. Of several needles, the first.
    pub depth_percent: f64,
    /// Which of the questions of one task, length and depth, from 0.
    pub trial: usize,
    /// The right answer.
    pub expected: Vec<u32>,
    /// What the cell said.
    pub answer: Vec<u32>,
}

impl RecallRecord {
    /// Whether the whole answer is right.
    pub fn is_correct(&self) -> bool {
        self.answer == self.expected
    }
}

/// The attention output of one layer over one window, `[tokens, heads, dim]`, against the oracle's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerErrorRecord {
    /// Name of the cell.
    pub cell: String,
    /// The window, from 0.
    pub window: usize,
    /// The layer, from 0.
    pub layer: usize,
    /// Sum of the squares of all differences.
    pub squared_error: f64,
    /// Sum of the squares of the oracle's numbers.
    pub squared_norm: f64,
    /// Largest difference of a single number.
    pub max_difference: f64,
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnRecord {
    /// Name of the cell.
    pub cell: String,
    /// The repeat, from 0.
    pub repeat: usize,
    /// The turn, from 0.
    pub turn: usize,
    /// Tokens of the prompt: all that was said, and the new message.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were found stored.
    pub reused_tokens: usize,
    /// Time to first token.
    pub ttft_ms: f64,
    /// The gap before each further token.
    pub gaps_ms: Vec<f64>,
    /// The answer.
    pub tokens: Vec<u32>,
    /// The cache at the end of the turn.
    pub usage: UsageRecord,
}

/// One run of the requests that share prefixes: one entry each request, in the order in which they came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MixRecord {
    /// Name of the cell.
    pub cell: String,
    /// The repeat, from 0.
    pub repeat: usize,
    /// Which prefix each request has, from 0.
    pub prefix: Vec<usize>,
    /// Tokens of each prefix.
    pub prefix_tokens: usize,
    /// Tokens of each request after its prefix.
    pub own_tokens: usize,
    /// Tokens of each prompt, with what the model wants before everything else.
    pub prompt_tokens: usize,
    /// Tokens of each prompt that were found stored.
    pub reused_tokens: Vec<usize>,
    /// Time to first token of each request.
    pub ttft_ms: Vec<f64>,
    /// From the first request to the last token.
    pub total_ms: f64,
    /// The answers.
    pub tokens: Vec<Vec<u32>>,
    /// The cache at the end.
    pub usage: UsageRecord,
}

/// The beginning of a generation whose prompt the cache may have stored: one entry each sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CachedRecord {
    /// Time to first token.
    pub ttft_ms: Vec<f64>,
    /// Tokens of the prompt that were found stored.
    pub cached_tokens: Vec<usize>,
}

/// Why a cell failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureRecord {
    /// Name of the cell.
    pub cell: String,
    /// What is the matter, and where.
    pub error: String,
}

/// Bytes of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageRecord {
    /// Codes of the rows in use.
    pub payload_bytes: u64,
    /// Scales and zero points of the rows in use.
    pub metadata_bytes: u64,
    /// In use, but holding no row.
    pub padding_bytes: u64,
    /// Everything allocated for rows.
    pub reserved_bytes: u64,
    /// The most that was ever held.
    pub peak_bytes: u64,
}

impl UsageRecord {
    /// Bytes of the rows in use.
    pub fn used_bytes(&self) -> u64 {
        self.payload_bytes + self.metadata_bytes
    }
}

impl From<Usage> for UsageRecord {
    fn from(usage: Usage) -> Self {
        Self {
            payload_bytes: usage.payload.0,
            metadata_bytes: usage.metadata.0,
            padding_bytes: usage.padding.0,
            reserved_bytes: usage.reserved.0,
            peak_bytes: usage.peak.0,
        }
    }
}

impl Record {
    /// Name of the cell that it belongs to.
    pub fn cell(&self) -> &str {
        match self {
            Self::Cell(r) => &r.cell,
            Self::Quality(r) => &r.cell,
            Self::Greedy(r) => &r.cell,
            Self::Speed(r) => &r.cell,
            Self::Recall(r) => &r.cell,
            Self::LayerError(r) => &r.cell,
            Self::Turn(r) => &r.cell,
            Self::Mix(r) => &r.cell,
            Self::Failure(r) => &r.cell,
        }
    }
}

/// The JSON schema of a line of `records.jsonl`; docs/records.schema.json is it.
pub fn record_schema() -> serde_json::Value {
    schemars::schema_for!(Record).to_value()
}
