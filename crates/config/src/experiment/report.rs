//! `[report]`: what the report is asked first.

use serde::{Deserialize, Serialize};

use crate::Capacity;
use crate::section::{Field, Findings, Section};

/// What the report is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportConfig {
    /// Bytes a token that a cache may take: the budget that the report begins with.
    pub budget: Capacity,
}

impl ReportConfig {
    /// `None` without the section.
    pub(super) fn read(mut section: Section<'_>, findings: &mut Findings) -> Option<Self> {
        let field = match section.is_absent() {
            true => section.take("budget"),
            false => section.require("budget", EXAMPLE, findings),
        };
        let budget = field.and_then(|field| read_budget(&field, findings));
        section.finish(findings);
        budget.map(|budget| Self { budget })
    }

    /// The budget in bytes a token.
    pub fn bytes_per_token(&self) -> Option<u64> {
        match self.budget {
            Capacity::Bytes(bytes) => Some(bytes),
            Capacity::Tokens(_) => None,
        }
    }
}

const EXAMPLE: &str = "budget = \"8 KiB\"";

fn read_budget(field: &Field<'_>, findings: &mut Findings) -> Option<Capacity> {
    let why = match field.text(findings)?.parse::<Capacity>() {
        Ok(Capacity::Tokens(_)) => "a number of tokens is no size".to_owned(),
        Ok(bytes) => return Some(bytes),
        Err(error) => error.to_string(),
    };
    let message = format!("`{}` must be bytes a token: {why}", field.path);
    findings.add(field.at(), message, Some(format!("for example {EXAMPLE}")));
    None
}
