//! What a comparison is doing, for a progress bar or a log.

use std::fmt;

/// What happens now. `Display` is one line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A model and its cache are being loaded.
    Loading {
        /// The cell; `oracle of <model>` for an oracle.
        cell: String,
    },
    /// A window of the text is being scored.
    Quality {
        /// The cell, or the oracle.
        cell: String,
        /// Windows before this one.
        done: usize,
        /// Windows in all.
        total: usize,
    },
    /// The layers of a window are being compared with the oracle's.
    Layers {
        /// The cell, or the oracle.
        cell: String,
        /// Windows before this one.
        done: usize,
        /// Windows in all.
        total: usize,
    },
    /// What was hidden in a text is being asked for.
    Recall {
        /// The cell.
        cell: String,
        /// The task.
        task: String,
        /// Tokens of the context with the question.
        tokens: usize,
        /// Where it is hidden, % of the context.
        depth_percent: String,
    },
    /// A prompt is being continued, to see where the text first differs from the oracle's.
    Greedy {
        /// The cell, or the oracle.
        cell: String,
    },
    /// Times are being taken (and before them, the warm-up).
    Speed {
        /// The cell.
        cell: String,
        /// The repeat, from 0.
        repeat: usize,
        /// Repeats in all.
        repeats: usize,
        /// What is timed: `prompt of 32 tokens`.
        what: String,
    },
    /// A cell failed, and is left out from here on.
    Failed {
        /// The cell.
        cell: String,
        /// Why.
        error: String,
    },
    /// So many measurements are done, those found in the records and those of failed cells included.
    Advanced {
        /// So far.
        done: usize,
        /// In all.
        total: usize,
    },
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loading { cell } => write!(f, "{cell}: loading"),
            Self::Quality { cell, done, total } => write!(f, "{cell}: quality, window {} of {total}", done + 1),
            Self::Layers { cell, done, total } => write!(f, "{cell}: layers, window {} of {total}", done + 1),
            Self::Recall {
                cell,
                task,
                tokens,
                depth_percent,
            } => write!(f, "{cell}: {task} in {tokens} tokens, at {depth_percent} %"),
            Self::Greedy { cell } => write!(f, "{cell}: greedy text"),
            Self::Speed {
                cell,
                repeat,
                repeats,
                what,
            } => write!(f, "{cell}: speed, repeat {} of {repeats}, {what}", repeat + 1),
            Self::Failed { cell, error } => write!(f, "{cell}: failed: {error}"),
            Self::Advanced { done, total } => write!(f, "{done} of {total} measurements"),
        }
    }
}
