//! The page: a template, its style, its script and its words, put together with the data into one file.

mod words;

use crate::{ExplainError, Trace};
use minijinja::{AutoEscape, Environment, context};
use std::fmt;

/// The most bytes of a page.
pub const MOST_BYTES: usize = 1_500_000;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = concat!(include_str!("page/look.css"), include_str!("page/parts.css"));
const SCRIPT: &str = concat!(
    include_str!("page/story.js"),
    include_str!("page/draw.js"),
    include_str!("page/choice.js"),
    include_str!("page/telling.js"),
    include_str!("page/panes.js"),
    include_str!("page/close_up.js"),
    include_str!("page/controls.js")
);

/// A language of the page's words. Both are in every page; this is the one that it opens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// English.
    En,
    /// Japanese.
    Ja,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::En => "en",
            Self::Ja => "ja",
        })
    }
}

/// A trace as one HTML file that makes no request.
///
/// # Errors
/// [`ExplainError::TooBig`] for a page of more than [`MOST_BYTES`].
pub fn page(trace: &Trace, language: Language) -> Result<String, ExplainError> {
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    templates.add_template("page", TEMPLATE)?;
    let page = templates.get_template("page")?.render(context! {
        lang => language.to_string(),
        title => format!("kvlab explain: {}", trace.text),
        style => STYLE,
        script => SCRIPT,
        trace => script_safe(&serde_json::to_string(trace)?),
        words => script_safe(&words::all()?),
        version => env!("CARGO_PKG_VERSION"),
    })?;
    if page.len() > MOST_BYTES {
        return Err(ExplainError::TooBig {
            bytes: page.len(),
            most: MOST_BYTES,
        });
    }
    Ok(page)
}

/// JSON that can stand inside a script element: in JSON, `<` is only ever inside a string, where an escape means the same.
fn script_safe(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;
