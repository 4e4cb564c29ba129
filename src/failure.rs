//! How a command fails: exit code 2 for a bad request, 1 for a run that failed, and one clear message.

use kvlab_config::{ConfigErrors, Problem};
use kvlab_core::CacheError;
use kvlab_engine::EngineError;
use kvlab_model::ModelError;
use miette::{Diagnostic, LabeledSpan, NamedSource, Report, SourceSpan};
use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Why a command ended early.
pub enum Failure {
    /// A config with problems.
    Config(Box<ConfigErrors>),
    /// Something else that was asked for and cannot be.
    Request(String),
    /// A run that failed.
    Run(String),
    /// Whoever read our output has gone.
    Closed,
}

pub type Outcome = Result<(), Failure>;

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        Self::Config(Box::new(errors))
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        use EngineError as E;
        match error {
            E::Cache(CacheError::Unsupported { .. }) => Self::Request(error.to_string()),
            E::Execution(_) | E::NotFinite { .. } | E::Cache(_) => Self::Run(error.to_string()),
            E::Model(ModelError::Cache(_) | ModelError::Device { .. }) => Self::Run(error.to_string()),
            _ => Self::Request(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Run(format!("writing the output failed: {error}")),
        }
    }
}

impl Failure {
    /// Prints the message to stderr and says how to exit.
    pub fn report(self) -> ExitCode {
        match self {
            Self::Closed => ExitCode::SUCCESS,
            Self::Config(errors) => {
                eprintln!("{:?}", Report::new(Problems::new(&errors)));
                ExitCode::from(2)
            }
            Self::Request(message) => {
                eprintln!("error: {message}");
                ExitCode::from(2)
            }
            Self::Run(message) => {
                eprintln!("error: {message}");
                ExitCode::FAILURE
            }
        }
    }
}

/// All problems of a config, as one diagnostic.
#[derive(Debug)]
struct Problems {
    headline: String,
    each: Vec<One>,
}

#[derive(Debug)]
struct One {
    problem: Problem,
    source: NamedSource<String>,
}

impl Problems {
    fn new(errors: &ConfigErrors) -> Self {
        let count = errors.problems.len();
        let each = errors.problems.iter().map(|problem| One {
            problem: problem.clone(),
            source: NamedSource::new(&errors.file, errors.source_text.clone()).with_language("TOML"),
        });
        Self {
            headline: format!(
                "{}: {count} {}",
                errors.file,
                if count == 1 { "problem" } else { "problems" }
            ),
            each: each.collect(),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline)
    }
}

impl std::error::Error for Problems {}

impl Diagnostic for Problems {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.each.iter().map(|one| one as &dyn Diagnostic)))
    }
}

impl fmt::Display for One {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl std::error::Error for One {}

impl Diagnostic for One {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let help = self.problem.help.as_ref()?;
        Some(Box::new(help))
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.problem
            .span
            .as_ref()
            .map(|_| &self.source as &dyn miette::SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span: SourceSpan = self.problem.span.clone()?.into();
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(None, span))))
    }
}
