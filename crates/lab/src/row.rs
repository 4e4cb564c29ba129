//! One row of the table: what the records of a cell come to.

mod from_records;

pub(crate) use from_records::from_records;

use crate::metrics::{Gaps, Spread, share_interval};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A cell and everything that was measured of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Name of the cell.
    pub cell: String,
    /// Its note in the experiment file.
    pub note: Option<String>,
    /// Name of its model config.
    pub model: String,
    /// Its device, as in the config.
    pub device: String,
    /// Variant; `None` until it was loaded.
    pub variant: Option<String>,
    /// Layouts of its layers, each once, joined by `+`.
    pub layout: String,
    /// Number format of the keys, over all layers, joined by `+`; empty where nothing is stored.
    pub key_format: String,
    /// Number format of the values; empty where none are stored (MLA, `none`).
    pub value_format: String,
    /// Why the output is not that of the model's own attention, a sentence each; empty if it is.
    pub lossy: Vec<String>,
    /// Why the cell failed. What was measured before is there all the same.
    pub error: Option<String>,
    /// Bytes of the weights in memory.
    pub weights_bytes: Option<u64>,
    /// Bytes of the cache, with the longest prompt and everything generated after it.
    pub memory: Option<Memory>,
    /// Times, for each length of prompt that was measured, in the order of the workload.
    pub speed: Vec<Speed>,
    /// Against the oracle.
    pub quality: Option<Quality>,
    /// Recall of what stood in the context: by task, then by length, then by depth.
    pub recall: Vec<Recall>,
    /// Error of the attention output, layer by layer; empty if it was not measured.
    pub layer_errors: Vec<LayerError>,
    /// Conversations, turn by turn.
    pub turns: Vec<Turn>,
    /// Requests that share prefixes; `None` if the workload has none.
    pub mix: Option<Mix>,
    /// The kernels that ran, in alphabetical order.
    pub kernels: Vec<String>,
}

/// How often what stood at one depth of a context was found again.
#[derive(Clone, Debug, PartialEq)]
pub struct Recall {
    /// The task, such as `needle`.
    pub task: String,
    /// Tokens of the context with the question.
    pub tokens: usize,
    /// Where the needle stands, % of the context: 0 is its beginning. Of several needles, the first.
    pub depth_percent: f64,
    /// Times that it was asked for.
    pub trials: usize,
    /// Times that the whole answer was right.
    pub correct: usize,
}

impl Recall {
    /// Share of the trials that were right, 0 to 1.
    pub fn share(&self) -> f64 {
        self.correct as f64 / self.trials.max(1) as f64
    }

    /// 95 % confidence interval of the share; see [`share_interval`](crate::share_interval).
    pub fn interval(&self) -> Option<[f64; 2]> {
        share_interval(self.correct, self.trials)
    }
}

/// How far the attention output of one layer is from the oracle's, over all tokens of all windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerError {
    /// The layer, from 0.
    pub layer: usize,
    /// `|cell - oracle| / |oracle|`, Euclidean norms over everything.
    pub relative_error: f64,
    /// Largest difference of a single number.
    pub max_difference: f64,
}

/// One turn of a conversation, over all repeats: the history and the new message go in, an answer comes out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// The turn, from 0.
    pub turn: usize,
    /// Tokens of the prompt: all that was said, and the new message.
    pub prompt_tokens: usize,
    /// Time to first token, ms.
    pub ttft_ms: Spread,
    /// Tokens of the prompt that were found stored.
    pub reused_tokens: usize,
    /// Tokens of the prompt that were computed.
    pub computed_tokens: usize,
}

/// Requests that share prefixes, over all repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Requests.
    pub requests: usize,
    /// Different prefixes among them.
    pub prefixes: usize,
    /// Tokens of each prefix.
    pub prefix_tokens: usize,
    /// Tokens of each request after its prefix.
    pub own_tokens: usize,
    /// Time to first token of a request, ms, over all requests and repeats.
    pub ttft_ms: Spread,
    /// From the first request to the last token, ms, over the repeats.
    pub total_ms: Spread,
    /// Prompt tokens that were found stored, over all requests: the fewest of a repeat.
    pub reused_tokens: usize,
    /// Prompt tokens that were computed, over all requests: the most of a repeat.
    pub computed_tokens: usize,
}

/// Bytes of a cache that holds `sequences` sequences of `tokens` tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Tokens of each sequence that were fed to the cache.
    pub tokens: usize,
    /// Sequences.
    pub sequences: usize,
    /// Bytes a token, from the spec, as long as no row is dropped.
    pub per_token_predicted: u64,
    /// Bytes a token, from the bytes in use; `None` where rows were dropped.
    pub per_token_measured: Option<f64>,
    /// Bytes in use, from the spec.
    pub used_predicted: u64,
    /// Bytes in use.
    pub used_measured: u64,
    /// Bytes allocated for rows.
    pub reserved: u64,
    /// The most bytes that were ever held.
    pub peak: u64,
}

impl Memory {
    /// Whether the spec predicted the bytes in use, to the byte.
    pub fn as_predicted(&self) -> bool {
        self.used_predicted == self.used_measured
    }
}

/// Times after prompts of one length, over all repeats. The warm-up is not among them.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Tokens of each prompt.
    pub prompt_tokens: usize,
    /// Tokens generated after each.
    pub new_tokens: usize,
    /// Prompts side by side.
    pub batch: usize,
    /// Repeats measured.
    pub repeats: usize,
    /// Time to first token, ms, over the repeats (of a batch, when its last sequence has it). Nothing was stored.
    pub ttft_ms: Spread,
    /// The same with the prompt stored; `None` where the cache does not find prefixes.
    pub cached: Option<Cached>,
    /// Prompt tokens of the batch a second: from the median TTFT.
    pub prefill_tokens_per_s: f64,
    /// Gaps between tokens, ms; `None` if only one token was generated.
    pub gaps: Option<Gaps>,
    /// Tokens of the batch a second after the first: batch / mean gap.
    pub decode_tokens_per_s: Option<f64>,
    /// Bytes at the end.
    pub memory: Option<Memory>,
    /// What the accounting says that it took; `None` in records of older versions.
    pub work: Option<Work>,
    /// Memory of the whole process after the last repeat; `None` where the system does not say.
    pub process: Option<ProcessMemory>,
}

/// Bytes and operations from the accounting ([`kvlab_plan::work`]), of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// The prompts, in the median TTFT.
    pub prefill: Phase,
    /// The mean of the decode steps (a token for each sequence), in the mean gap; `None` if only one token was generated.
    pub decode: Option<Phase>,
}

/// One phase, and how much of the machine it used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Bytes of the weights, once a step, and of the rows in use, each once: what cannot be avoided. A prompt that is computed in
    /// chunks reads weights more often.
    pub bytes: u64,
    /// Floating-point operations; a multiply-add is two.
    pub flops: u64,
    /// Bytes a second over the machine's measured bandwidth; `None` if that was not measured.
    pub fraction_of_bandwidth: Option<f64>,
    /// Operations a second over the machine's measured rate; `None` if that was not measured.
    pub fraction_of_flops: Option<f64>,
}

/// Memory of the whole process as the operating system counts it: weights, caches, temporaries, and the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessMemory {
    /// Resident set size now (`VmRSS`), bytes.
    pub resident_bytes: u64,
    /// The largest it ever was (`VmHWM`), bytes: of the whole run up to here, so that it belongs to no cell alone.
    pub peak_resident_bytes: u64,
}

/// Times after prompts that the cache has seen before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cached {
    /// Time to first token, ms, over the repeats (of a batch, when its last sequence has it).
    pub ttft_ms: Spread,
    /// Tokens of a prompt that were found stored: the fewest, over all sequences and repeats.
    pub tokens: usize,
}

/// Distance from the oracle: the same weights, uncached, in f32, with the model's own attention.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quality {
    /// Tokens scored, over all windows (all but the first of each).
    pub tokens: usize,
    /// exp of the mean negative log likelihood of the scored tokens.
    pub perplexity: f64,
    /// The oracle's.
    pub oracle_perplexity: f64,
    /// Mean of the difference of the negative log likelihoods, cell - oracle, nats a token.
    pub nll_difference: f64,
    /// Standard error of that mean, from the differences of single tokens. Tokens of one window are not independent, so that
    /// it is too small where the differences come in runs.
    pub nll_difference_se: Option<f64>,
    /// 95 % confidence interval of that mean, from the means of the windows, which are nearly independent; see
    /// [`mean_interval`](crate::mean_interval). `None` with fewer than two windows.
    pub nll_difference_interval: Option<[f64; 2]>,
    /// Mean of KL(oracle || cell), nats.
    pub kl_mean: f64,
    /// 95 % confidence interval of that mean, from the means of the windows; `None` with fewer than two.
    pub kl_mean_interval: Option<[f64; 2]>,
    /// Its 99th percentile over tokens.
    pub kl_p99: f64,
    /// Its largest value.
    pub kl_max: f64,
    /// Tokens for which both have the same most likely next token, %.
    pub top1_percent: f64,
    /// Largest difference of a logit.
    pub max_logit_difference: f64,
    /// Tokens of the greedy text that was compared; 0 if it was not.
    pub greedy_tokens: usize,
    /// The first of them that differs from the oracle's, counted from 1; `None` if they are the same.
    pub first_divergence: Option<usize>,
}

impl Quality {
    /// Perplexity over the oracle's.
    pub fn perplexity_ratio(&self) -> f64 {
        self.perplexity / self.oracle_perplexity
    }

    /// 95 % confidence interval of the change of perplexity, %: that of the difference of the log likelihoods, which is the
    /// logarithm of the ratio.
    pub fn perplexity_change_interval(&self) -> Option<[f64; 2]> {
        let ends = self.nll_difference_interval?;
        Some(ends.map(|end| 100.0 * (end.exp() - 1.0)))
    }

    /// Change of perplexity against the oracle's, %.
    pub fn perplexity_change_percent(&self) -> f64 {
        100.0 * (self.perplexity_ratio() - 1.0)
    }
}
