//! `[generate]`: the defaults of `kvlab run`.

use serde::{Deserialize, Serialize};

use crate::section::{Findings, Section};

/// How text is generated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GenerateConfig {
    /// Tokens to generate, at least 1.
    pub max_new_tokens: usize,
    /// 0 takes the most likely token (greedy).
    pub temperature: f64,
    /// How many of the most likely tokens are sampled from; 0 is all.
    pub top_k: usize,
    /// The probability mass that is sampled from, above 0 and at most 1.
    pub top_p: f64,
    /// Seed of the sampler.
    pub seed: u64,
    /// Go on after the end-of-text token.
    pub ignore_eos: bool,
}

impl Default for GenerateConfig {
    fn default() -> Self {
        Self {
            max_new_tokens: 64,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            seed: 0,
            ignore_eos: false,
        }
    }
}

impl GenerateConfig {
    pub(crate) fn read(mut section: Section<'_>, findings: &mut Findings) -> Self {
        let default = Self::default();
        let max_new_tokens = section
            .take("max_new_tokens")
            .and_then(|field| field.whole(1, findings));
        let temperature_field = section.take("temperature");
        let temperature = temperature_field
            .as_ref()
            .and_then(|field| field.number("a number of at least 0", |value| value >= 0.0, findings));
        let top_k_field = section.take("top_k");
        let top_k = top_k_field.as_ref().and_then(|field| field.whole(0, findings));
        let top_p_field = section.take("top_p");
        let top_p = top_p_field.as_ref().and_then(|field| {
            field.number(
                "a number above 0 and at most 1",
                |value| value > 0.0 && value <= 1.0,
                findings,
            )
        });
        let seed = section.take("seed").and_then(|field| field.seed(findings));
        let ignore_eos = section.take("ignore_eos").and_then(|field| field.boolean(findings));
        section.finish(findings);

        // A temperature that is itself wrong must not blame its neighbours.
        let greedy = temperature_field.is_none() || temperature == Some(0.0);
        let idle = [
            (top_k_field, top_k.is_some_and(|top_k| top_k != 0)),
            (top_p_field, top_p.is_some_and(|top_p| top_p < 1.0)),
        ];
        for (field, chosen) in idle {
            if let (true, true, Some(field)) = (greedy, chosen, field) {
                findings.add(
                    field.at(),
                    format!(
                        "`{}` has no effect: `generate.temperature` is 0, which takes the most likely token",
                        field.path
                    ),
                    Some("set a temperature above 0, or remove the key".to_owned()),
                );
            }
        }
        Self {
            max_new_tokens: max_new_tokens.unwrap_or(default.max_new_tokens),
            temperature: temperature.unwrap_or(default.temperature),
            top_k: top_k.unwrap_or(default.top_k),
            top_p: top_p.unwrap_or(default.top_p),
            seed: seed.unwrap_or(default.seed),
            ignore_eos: ignore_eos.unwrap_or(default.ignore_eos),
        }
    }
}
