//! What a measurement computes and moves, from the accounting, and what the machine could do at most.
//!
//! The counting is that of the planner ([`kvlab_plan::work`]): what is planned and what is reported are one number.

use crate::WorkRecord;
use kvlab_core::Bytes;
use kvlab_engine::Engine;
use kvlab_plan::probe::probe;
use kvlab_plan::work::Steps;
use serde::{Deserialize, Serialize};

/// The most that the processor reads and computes a second, measured after the run by a probe of two seconds
/// ([`kvlab_plan::probe`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Threads that took part.
    pub threads: usize,
    /// Bytes a second, reading memory in order.
    pub read_bytes_per_second: f64,
    /// f32 operations a second; a multiply-add is two.
    pub f32_flops_per_second: f64,
}

impl Rates {
    /// Measures them, with the threads that the engines used. It takes a gigabyte of memory at most, for a moment.
    pub(crate) fn measure() -> Self {
        let probe = probe();
        Self {
            threads: probe.threads,
            read_bytes_per_second: probe.read_bytes_per_second,
            f32_flops_per_second: probe.f32_flops_per_second,
        }
    }
}

/// The prompts of a batch, and the tokens after the first, each a step.
pub(crate) fn of(engine: &Engine, prompt: usize, new_tokens: usize, batch: usize) -> WorkRecord {
    let (spec, requests) = (engine.spec(), batch as f64);
    let steps = Steps::new(engine.model(), Bytes(engine.weight_bytes()));
    // Weights are read once for all requests, rows for each.
    let whole = |tokens: usize| {
        let one = steps.prefill(spec, 0, tokens);
        (
            one.bytes + (requests - 1.0) * spec.used_at(tokens).0 as f64,
            one.flops * requests,
        )
    };
    let prefill = whole(prompt);
    let mut decode = (0.0, 0.0);
    let decode_steps = new_tokens.saturating_sub(1);
    for depth in prompt..prompt + decode_steps {
        let (bytes, flops) = match engine.capabilities().remembers {
            true => {
                let step = steps.decode(spec, depth, batch);
                (step.bytes, step.flops)
            }
            // The whole prefix again.
            false => whole(depth + 1),
        };
        decode = (decode.0 + bytes, decode.1 + flops);
    }
    WorkRecord {
        prefill_bytes: prefill.0.round() as u64,
        prefill_flops: prefill.1.round() as u64,
        decode_bytes: decode.0.round() as u64,
        decode_flops: decode.1.round() as u64,
        decode_steps,
    }
}
