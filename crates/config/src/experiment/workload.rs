//! `[workload]` and `[measure]`: what every cell does, and what is measured.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::document::Value;
use crate::experiment::recall::{RecallTask, read_recall};
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
    /// Speed: numbers of sequences side by side, each at least 1, none twice; at least one number.
    #[serde(with = "one_or_many")]
    pub batch: Vec<usize>,
    /// Recall: what is hidden in the text and asked for; no task twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recall: Vec<RecallTask>,
    /// Speed: a conversation in turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationWorkload>,
    /// Speed: requests that share prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<MixWorkload>,
}

/// The kinds of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadKind {
    /// Quality scores windows of a text; speed generates after prompts cut from it.
    Text,
}

/// `[workload.conversation]`: turns of one length; each prompt is all that was said before, and the new message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversationWorkload {
    /// Turns, at least 2.
    pub turns: usize,
    /// Tokens of each message, at least 1.
    pub message: usize,
    /// Tokens of each answer, at least 1.
    pub answer: usize,
}

/// `[workload.mix]`: requests that begin with one of a few prefixes, one after the other, as a server with system prompts
/// sees them. The seed decides which prefix each has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixWorkload {
    /// Requests, at least 1.
    pub requests: usize,
    /// Different prefixes, at least 1 and at most `requests`; each is used at least once.
    pub prefixes: usize,
    /// Tokens of each prefix, at least 1.
    pub prefix: usize,
    /// Tokens of each request after its prefix, at least 1.
    pub own: usize,
    /// Tokens of each answer, at least 1.
    pub answer: usize,
}

/// What is measured; at least one. What is switched off here keeps its keys in `[workload]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// How far the output moves from the oracle's.
    pub quality: bool,
    /// Time to the first token and per token.
    pub speed: bool,
    /// Whether what `[[workload.recall]]` hides is found again.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub recall: bool,
    /// The error of each layer's attention, over the same windows as `quality`. Off when left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layers: bool,
}

fn yes() -> bool {
    true
}

fn is_yes(on: &bool) -> bool {
    *on
}

/// A list with one number is written as that number, as it was before there could be several.
mod one_or_many {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(usize),
        Many(Vec<usize>),
    }

    pub(super) fn serialize<S: Serializer>(numbers: &[usize], serializer: S) -> Result<S::Ok, S::Error> {
        match numbers {
            [one] => one.serialize(serializer),
            many => many.serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<usize>, D::Error> {
        Ok(match OneOrMany::deserialize(deserializer)? {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        })
    }
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
        let prompts = section.take("prompts");
        let prompts = prompts.map(|field| read_sizes(&field, "lengths of prompts in tokens", findings));
        let batch = section.take("batch").map(|field| match field.node.value {
            Value::Array(_) => read_sizes(&field, "numbers of sequences", findings),
            _ => field.whole(1, findings).into_iter().collect(),
        });
        let recall = read_recall(section.take("recall"), findings);
        let conversation = section.section("conversation", findings);
        let conversation = (!conversation.is_absent()).then(|| ConversationWorkload::read(conversation, findings));
        let mix = section.section("mix", findings);
        let mix = (!mix.is_absent()).then(|| MixWorkload::read(mix, findings));
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
            batch: batch.filter(|batch| !batch.is_empty()).unwrap_or_else(|| vec![1]),
            recall,
            conversation,
            mix,
        })
    }
}

/// Sizes of at least 1, none twice.
pub(super) fn read_sizes(field: &Field<'_>, what: &str, findings: &mut Findings) -> Vec<usize> {
    let mut sizes = Vec::new();
    for item in field.list(what, findings) {
        let Some(size) = item.whole(1, findings) else {
            continue;
        };
        if sizes.contains(&size) {
            findings.add(item.at(), format!("`{}` has {size} twice", field.path), None);
        }
        sizes.push(size);
    }
    sizes
}

impl ConversationWorkload {
    fn read(mut section: Section<'_>, findings: &mut Findings) -> Self {
        let mut whole = |key: &str, min: usize, default: usize| {
            let field = section.take(key);
            field.and_then(|field| field.whole(min, findings)).unwrap_or(default)
        };
        let conversation = Self {
            turns: whole("turns", 2, 4),
            message: whole("message", 1, 64),
            answer: whole("answer", 1, 16),
        };
        section.finish(findings);
        conversation
    }
}

impl MixWorkload {
    fn read(mut section: Section<'_>, findings: &mut Findings) -> Self {
        let mut whole = |key: &str, default: usize| {
            let field = section.take(key);
            field.and_then(|field| field.whole(1, findings)).unwrap_or(default)
        };
        let mix = Self {
            requests: whole("requests", 8),
            prefixes: whole("prefixes", 2),
            prefix: whole("prefix", 128),
            own: whole("own", 32),
            answer: whole("answer", 8),
        };
        if mix.prefixes > mix.requests {
            let message = format!(
                "`{}` is {}, and there are only {} requests",
                section.path_of("prefixes"),
                mix.prefixes,
                mix.requests
            );
            findings.add(section.at(), message, Some("raise `requests`".to_owned()));
        }
        section.finish(findings);
        mix
    }
}

impl Measure {
    /// `asks` says whether the workload has anything to recall.
    pub(super) fn read(mut section: Section<'_>, asks: bool, findings: &mut Findings) -> Self {
        let mut switch = |key: &str, default: bool| {
            section
                .take(key)
                .and_then(|field| field.boolean(findings))
                .unwrap_or(default)
        };
        let measure = Self {
            quality: switch("quality", true),
            speed: switch("speed", true),
            recall: switch("recall", true),
            layers: switch("layers", false),
        };
        if !(measure.quality || measure.speed || measure.layers || measure.recall && asks) {
            let help = "set `quality`, `speed` or `layers` to true, or add a [[workload.recall]]".to_owned();
            findings.add(
                section.at(),
                "nothing is measured: everything is off".to_owned(),
                Some(help),
            );
        }
        section.finish(findings);
        measure
    }
}
