//! Base model files: each is read once, however many variants start from it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::document::Node;
use crate::model_file::tree;
use crate::section::{Field, Findings};
use crate::source::{Source, Sources, read};

/// The base files read so far, by absolute path; `None` is one that could not be read, which has been reported.
#[derive(Default)]
pub(super) struct Bases(BTreeMap<PathBuf, Option<Node>>);

impl Bases {
    /// The tree of the file that a `base` key names; `None`, and a finding, when there is none.
    pub(super) fn read(&mut self, field: &Field<'_>, sources: &mut Sources, findings: &mut Findings) -> Option<Node> {
        let path = sources.resolve(field.at(), field.text(findings)?);
        if let Some(known) = self.0.get(&path) {
            return known.clone();
        }
        let node = match read(&path) {
            Ok(text) => {
                let dir = path.parent().unwrap_or(Path::new("/"));
                let source = Source::new(short(&path), dir, text, Some(field.at().clone()));
                let id = sources.add(source);
                tree(sources, id, findings)
            }
            Err(error) => {
                findings.add(field.at(), format!("base model file {} {error}", short(&path)), None);
                None
            }
        };
        self.0.insert(path, node.clone());
        node
    }
}

/// The path from the current folder, when it lies below it.
fn short(path: &Path) -> String {
    let current = std::env::current_dir().ok();
    let below = current.and_then(|current| path.strip_prefix(current).ok());
    below.unwrap_or(path).display().to_string()
}
