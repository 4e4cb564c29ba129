//! A model file: everything about one load.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::ToTomlError;
use crate::backend::BackendConfig;
use crate::cache::CacheConfig;
use crate::document::{Node, Value, parse};
use crate::edit::{apply, read_sets};
use crate::generate::GenerateConfig;
use crate::known::Known;
use crate::model_source::ModelSource;
use crate::problem::{ConfigErrors, Problem};
use crate::section::{Finding, Findings, Section};
use crate::source::{At, Source, SourceId, Sources, read};

/// A model file, checked, with absolute paths and every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Usable as the name of a folder.
    pub name: String,
    /// The weights.
    pub model: ModelSource,
    /// The cache.
    #[serde(default)]
    pub cache: CacheConfig,
    /// The device.
    #[serde(default)]
    pub backend: BackendConfig,
    /// Defaults of `kvlab run`.
    #[serde(default)]
    pub generate: GenerateConfig,
}

impl ModelConfig {
    /// Reads a model file. `sets` are `--set` arguments, `dotted.key=value`, written into the file's tree before it is checked:
    /// the value is TOML, or else a bare text; nothing, or `unset`, takes the key away.
    ///
    /// # Errors
    /// Every problem of the file and of `sets` at once.
    pub fn load(path: &Path, sets: &[String], known: &Known<'_>) -> Result<Self, ConfigErrors> {
        let (name, dir, text) = open(path)?;
        Self::parse(&text, &name, dir, sets, known)
    }

    /// Reads the text of a model file. `origin_name` is what errors call it, `base_dir` is where its relative paths start;
    /// those of `sets` start at the current folder.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(
        text: &str,
        origin_name: &str,
        base_dir: &Path,
        sets: &[String],
        known: &Known<'_>,
    ) -> Result<Self, ConfigErrors> {
        let mut sources = Sources::default();
        let source = sources.add(Source::new(origin_name.to_owned(), base_dir, text.to_owned(), None));
        let mut findings = Findings::default();
        let assignments = read_sets(sets, &mut findings);
        let mut config = None;
        if let Some(mut root) = tree(&sources, source, &mut findings) {
            for assignment in &assignments {
                apply(&mut root, assignment, &mut findings);
            }
            config = Self::read(&root, known, &sources, &mut findings);
        }
        match config {
            Some(config) if findings.0.is_empty() => Ok(config),
            _ => Err(errors(findings, &sources)),
        }
    }

    /// The config as a model file that loads to the same.
    ///
    /// # Errors
    /// A path that is not UTF-8, or a seed beyond 2^63 - 1 (neither comes from a TOML file in a folder with a UTF-8 name).
    pub fn to_toml(&self) -> Result<String, ToTomlError> {
        toml::to_string(self)
    }

    /// Checks a tree. `None`, or findings, when it is not a model file.
    pub(crate) fn read(root: &Node, known: &Known<'_>, sources: &Sources, findings: &mut Findings) -> Option<Self> {
        let mut section = Section::new("", root, findings);
        read_schema(&mut section, findings)?;
        let name = section.require("name", "name = \"my-model\"", findings);
        let name = name.and_then(|field| field.file_name(findings));
        let model = section.section("model", findings);
        let model = ModelSource::read(model, sources, findings);
        let cache = CacheConfig::read(section.section("cache", findings), known, findings);
        let backend = BackendConfig::read(section.section("backend", findings), findings);
        let generate = GenerateConfig::read(section.section("generate", findings), findings);
        section.finish(findings);
        Some(Self {
            schema: SCHEMA,
            name: name?.to_owned(),
            model: model?,
            cache,
            backend,
            generate,
        })
    }
}

/// Name, folder and text of a file.
pub(crate) fn open(path: &Path) -> Result<(String, &Path, String), ConfigErrors> {
    let name = path.display().to_string();
    match read(path) {
        Ok(text) => Ok((
            name,
            path.parent()
                .filter(|dir| !dir.as_os_str().is_empty())
                .unwrap_or(Path::new(".")),
            text,
        )),
        Err(error) => Err(ConfigErrors::unreadable(name, error.to_string(), None)),
    }
}

/// The tree of a source; `None`, and a finding, when it is not TOML.
pub(crate) fn tree(sources: &Sources, id: SourceId, findings: &mut Findings) -> Option<Node> {
    let source = sources.0.get(id.0)?;
    match parse(&source.text, &|span| At::file(id, span)) {
        Ok(root) => Some(root),
        Err((message, span)) => {
            findings.add(&At::file(id, span), format!("not TOML: {message}"), None);
            None
        }
    }
}

/// `None` when the file is of another schema: then nothing else in it can be judged.
pub(crate) fn read_schema(section: &mut Section<'_>, findings: &mut Findings) -> Option<()> {
    let example = format!("schema = {SCHEMA}");
    let Some(field) = section.require("schema", &example, findings) else {
        return Some(());
    };
    match field.node.value {
        Value::Integer(schema) if schema == i64::from(SCHEMA) => Some(()),
        _ => {
            let message = format!(
                "`schema` is {}, and this kvlab reads schema {SCHEMA}",
                field.node.describe()
            );
            findings.add(field.at(), message, Some(format!("write {example}")));
            None
        }
    }
}

/// The findings as problems of the first source, in its order.
pub(crate) fn errors(mut findings: Findings, sources: &Sources) -> ConfigErrors {
    // Places of the first source come before those of others, and `--set` comes last: the order of `At`.
    findings.0.sort();
    findings.0.dedup();
    let mut problems: Vec<Problem> = findings
        .0
        .into_iter()
        .map(|finding| problem(finding, sources))
        .collect();
    problems.sort_by_key(|problem| {
        problem
            .span
            .as_ref()
            .map_or((usize::MAX, 0), |span| (span.start, span.end))
    });
    let (file, source_text) = sources
        .0
        .first()
        .map(|source| (source.name.clone(), source.text.clone()))
        .unwrap_or_default();
    ConfigErrors {
        file,
        source_text,
        problems,
    }
}

fn problem(finding: Finding, sources: &Sources) -> Problem {
    let Finding {
        mut at,
        mut message,
        help,
    } = finding;
    loop {
        match at {
            At::Set(set) => {
                message = format!("--set {set}: {message}");
                return Problem {
                    message,
                    help,
                    span: None,
                    line: 0,
                    column: 0,
                };
            }
            At::File {
                source: SourceId(index),
                start,
                end,
            } => {
                let Some(source) = sources.0.get(index) else {
                    return Problem {
                        message,
                        help,
                        span: None,
                        line: 0,
                        column: 0,
                    };
                };
                let (line, column) = source.line_column(start);
                match source.included_at.clone() {
                    None => {
                        return Problem {
                            message,
                            help,
                            span: Some(start..end),
                            line,
                            column,
                        };
                    }
                    Some(included_at) => {
                        message = format!("{}:{line}:{column}: {message}", source.name);
                        at = included_at;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
