//! What is wrong with a file: every problem, each with its place.

use std::fmt;
use std::ops::Range;

/// One problem of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, with the key and the value.
    pub message: String,
    /// What is allowed, or what to do.
    pub help: Option<String>,
    /// Bytes of [`ConfigErrors::source_text`]; `None` when the problem lies in a `--set` argument (the message names it) or in
    /// the file as a whole.
    pub span: Option<Range<usize>>,
    /// Line of the span's start, from 1; 0 without a span.
    pub line: usize,
    /// Column of the span's start in characters, from 1; 0 without a span.
    pub column: usize,
}

/// All problems of a file, in the order in which they stand there; those of `--set` arguments come last.
///
/// A problem in the base model file of an experiment is shown at the `base` key that names it; its message starts with the
/// place in the base file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file, as the caller named it.
    pub file: String,
    /// Its text; empty when it could not be read.
    pub source_text: String,
    /// At least one.
    pub problems: Vec<Problem>,
}

impl ConfigErrors {
    /// A file that could not be read at all.
    pub(crate) fn unreadable(file: String, message: String, help: Option<String>) -> Self {
        let problem = Problem {
            message,
            help,
            span: None,
            line: 0,
            column: 0,
        };
        Self {
            file,
            source_text: String::new(),
            problems: vec![problem],
        }
    }
}

impl fmt::Display for ConfigErrors {
    /// One line per problem: `file:line:col: message (help)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:", self.file)?;
            if problem.span.is_some() {
                write!(f, "{}:{}:", problem.line, problem.column)?;
            }
            write!(f, " {}", problem.message)?;
            if let Some(help) = &problem.help {
                write!(f, " ({help})")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
