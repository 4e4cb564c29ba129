//! Which rows a query may see, by position: the model's rule and the cache's.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroUsize;

/// What a query at position `p` may see of the rows at positions `j`. It belongs to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// `j <= p`.
    Causal,
    /// `j <= p` and `p - j < w`: itself and the `w - 1` tokens before it.
    Window(NonZeroUsize),
}

/// Which rows a cache keeps. It belongs to the experiment; anything but `All` changes the output of a
/// model that would have seen the dropped rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retention {
    /// Every row.
    All,
    /// The first `sinks` rows, and those a window of `window` tokens covers (StreamingLLM, Xiao et al. 2023;
    /// here rows keep their own positions).
    Window {
        /// Tokens, the query's own included.
        window: NonZeroUsize,
        /// Rows at the start of the sequence that are never dropped.
        sinks: usize,
    },
}

impl Visibility {
    /// Whether a query at position `query` sees the row at position `row`.
    pub fn sees(self, query: usize, row: usize) -> bool {
        row <= query
            && match self {
                Self::Causal => true,
                Self::Window(w) => query - row < w.get(),
            }
    }

    /// The window in tokens, if there is one.
    pub fn window(self) -> Option<usize> {
        match self {
            Self::Causal => None,
            Self::Window(w) => Some(w.get()),
        }
    }
}

impl Retention {
    /// Whether the row at position `row` is still there for a query at position `query` (with `row <= query`).
    pub fn keeps(self, query: usize, row: usize) -> bool {
        match self {
            Self::All => true,
            Self::Window { window, sinks } => row < sinks || query - row < window.get(),
        }
    }
}

impl fmt::Display for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Causal => f.pad("causal"),
            Self::Window(w) => f.pad(&format!("window {w}")),
        }
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("all"),
            Self::Window { window, sinks: 0 } => f.pad(&format!("last {window}")),
            Self::Window { window, sinks } => f.pad(&format!("first {sinks} + last {window}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn w(n: usize) -> NonZeroUsize {
        NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN)
    }

    #[test]
    fn a_window_of_one_sees_itself_only() {
        assert!(Visibility::Window(w(1)).sees(5, 5));
        assert!(!Visibility::Window(w(1)).sees(5, 4));
        assert!(!Visibility::Window(w(1)).sees(5, 6));
    }

    #[test]
    fn a_window_of_w_sees_w_rows() {
        let seen = (0..20).filter(|&j| Visibility::Window(w(4)).sees(10, j));
        assert_eq!(seen.collect::<Vec<_>>(), [7, 8, 9, 10]);
    }

    #[test]
    fn sinks_stay() {
        let r = Retention::Window { window: w(3), sinks: 2 };
        let kept = (0..=10).filter(|&j| r.keeps(10, j));
        assert_eq!(kept.collect::<Vec<_>>(), [0, 1, 8, 9, 10]);
    }
}
