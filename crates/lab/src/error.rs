//! What stops a whole comparison. What goes wrong in one cell is a row of it instead.

use std::path::PathBuf;
use thiserror::Error;

/// Why a comparison could not be run.
#[derive(Debug, Error)]
pub enum LabError {
    /// A file or folder of the run.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// From the operating system.
        source: std::io::Error,
    },
    /// The text of the workload.
    #[error("workload.text = {}: {reason}", path.display())]
    Text {
        /// Which.
        path: PathBuf,
        /// What is the matter.
        reason: String,
    },
    /// Another process writes to the same folder.
    #[error("{} is in use by another kvlab; wait for it, or change the experiment's name", .0.display())]
    Busy(PathBuf),
    /// Records that are not ours, or were edited.
    #[error("{}:{line}: {reason}; move the folder away, or start over with --fresh", path.display())]
    Records {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is the matter.
        reason: String,
    },
    /// A folder that no comparison was written to.
    #[error("{}: this is no folder of a run: {} is missing; give a folder that `kvlab compare` wrote", folder.display(), missing.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
        /// What ought to be in it.
        missing: PathBuf,
    },
    /// The records there were measured on something else, and ought not to be mixed with new ones.
    #[error("{}: the records there cannot be added to, because {what}; start over with --fresh", folder.display())]
    Changed {
        /// The folder of the run.
        folder: PathBuf,
        /// What differs.
        what: String,
    },
    /// The experiment could not be written down.
    #[error("the resolved experiment: {0}")]
    Resolve(#[from] kvlab_config::ToTomlError),
    /// A record or table could not be written down.
    #[error("{what}: {reason}")]
    Write {
        /// Which.
        what: &'static str,
        /// What is the matter.
        reason: String,
    },
}

impl LabError {
    /// For `map_err` on file operations.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
