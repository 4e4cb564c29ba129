//! The cells of a plan: one variant in one number format.

use crate::answer::{Cache, Cell, Facts, Outcome, Times};
use crate::caches::{Caches, Column, Variant};
use crate::device::Device;
use crate::fit::{self, Fit, Wanted};
use crate::plan::TOKENS;
use crate::price::Conversation;
use crate::weights::Precision;
use crate::work::{Steps, Work};
use kvlab_core::{Bytes, CacheSpec, Exactness, Retention};

/// Fills the cells.
pub(crate) struct Planner<'a> {
    pub(crate) caches: &'a Caches<'a>,
    pub(crate) wanted: Wanted,
    /// Bytes for rows; `None` without a memory, or where the weights fill it.
    pub(crate) rows: Option<Bytes>,
    pub(crate) has_memory: bool,
    pub(crate) steps: Steps<'a>,
    pub(crate) device: Option<&'a Device>,
    pub(crate) precision: Precision,
}

impl Planner<'_> {
    pub(crate) fn cache(&self, variant: &Variant) -> Cache {
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
        // With many requests computing sets the pace.
        let known = fit.filter(|fit| fit.requests > 0 && device.dense_tflops.is_some());
        let most = known.map(|fit| {
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
    pub(crate) fn last_turn(&self, chosen: (usize, usize), conversation: Conversation) -> Option<[f64; 2]> {
        let device = self.device.filter(|device| device.dense_tflops.is_some())?;
        let prompt = usize::try_from(conversation.prompt(conversation.turns)).ok()?;
        let prompt = Some(prompt).filter(|prompt| *prompt <= TOKENS)?;
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
            Retention::All => layer.visibility.to_string(),
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
