//! `[workload]` and `[measure]`: what every cell does, and what is measured.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::section::{Field, Findings, Section};
use crate::source::Sources;

/// What every cell does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Which workload.
    pub kind: WorkloadKind,
    /// The text; absolute.
    pub text: PathBuf,
    /// Quality: windows of the text, at least 1.
    pub windows: usize,
    /// Quality: tokens per window, at least 2 (the first one predicts nothing).
    pub window: usize,
    /// Quality: tokens per step; 0 is a whole window at once, 1 is token by token.
    pub chunk: usize,
    /// First byte of the text that is used.
    pub offset: usize,
    /// Speed: lengths of prompts in tokens, each at least 1, none twice.
    pub prompts: Vec<usize>,
    /// Speed: tokens generated after each prompt, at least 1.
    pub new_tokens: usize,
    /// Speed: sequences side by side, at least 1.
    pub batch: usize,
}

/// The kinds of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
    /// Quality scores windows of a text; speed generates after prompts cut from it.
    Text,
}

/// What is measured; at least one of the two. What is switched off here keeps its keys in `[workload]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// How far the output moves from the oracle's.
    pub quality: bool,
    /// Time to the first token and per token.
    pub speed: bool,
}

const WINDOWS: usize = 4;
const WINDOW: usize = 192;
const PROMPTS: [usize; 2] = [32, 160];
const NEW_TOKENS: usize = 32;

impl Workload {
    /// `None` when there is no text, which is then a finding.
    pub(super) fn read(mut section: Section<'_>, sources: &Sources, findings: &mut Findings) -> Option<Self> {
        let kind = section.take("kind");
        let kind = kind.and_then(|field| field.choice(&[("text", WorkloadKind::Text)], &[], findings));
        let text = section.require("text", "text = \"../../assets/text/x.txt\"", findings);
        let text = text.and_then(|field| Some(sources.resolve(field.at(), field.text(findings)?)));
        let mut whole = |key: &str, min: usize, default: usize| {
            section
                .take(key)
                .and_then(|field| field.whole(min, findings))
                .unwrap_or(default)
        };
        let windows = whole("windows", 1, WINDOWS);
        let window = whole("window", 2, WINDOW);
        let chunk = whole("chunk", 0, 0);
        let offset = whole("offset", 0, 0);
        let new_tokens = whole("new_tokens", 1, NEW_TOKENS);
        let batch = whole("batch", 1, 1);
        let prompts = section.take("prompts").map(|field| read_prompts(&field, findings));
        section.finish(findings);
        Some(Self {
            kind: kind.unwrap_or(WorkloadKind::Text),
            text: text?,
            windows,
            window,
            chunk,
            offset,
            prompts: prompts.unwrap_or_else(|| PROMPTS.to_vec()),
            new_tokens,
            batch,
        })
    }
}

fn read_prompts(field: &Field<'_>, findings: &mut Findings) -> Vec<usize> {
    let mut prompts = Vec::new();
    for item in field.list("lengths of prompts in tokens", findings) {
        let Some(length) = item.whole(1, findings) else {
            continue;
        };
        if prompts.contains(&length) {
            findings.add(
                item.at(),
                format!("`{}` has the length {length} twice", field.path),
                None,
            );
        }
        prompts.push(length);
    }
    prompts
}

impl Measure {
    pub(super) fn read(mut section: Section<'_>, findings: &mut Findings) -> Self {
        let mut switch = |key: &str| {
            section
                .take(key)
                .and_then(|field| field.boolean(findings))
                .unwrap_or(true)
        };
        let measure = Self {
            quality: switch("quality"),
            speed: switch("speed"),
        };
        if !measure.quality && !measure.speed {
            let help = "set `quality` or `speed` to true".to_owned();
            findings.add(
                section.at(),
                "nothing is measured: `quality` and `speed` are both off".to_owned(),
                Some(help),
            );
        }
        section.finish(findings);
        measure
    }
}
