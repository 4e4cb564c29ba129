//! The laws of KV caches, the oracle they are judged by, and the cases they run over.
//!
//! A cache under test is a [`Subject`]: how to build it, and what it is meant to compute. [`laws::ALL`] are
//! functions that drive a subject through chunks, batches, forks, rollbacks and failures, and compare every
//! output with the [`oracle`]: plain loops in f64 over all rows ever seen, which share no code with any cache.
//!
//! To test a cache of your own, make a [`Subject`] of it and call [`check`]:
//!
//! ```ignore
//! for name in kvlab_testkit::laws::names() {
//!     kvlab_testkit::check(name, &subject);
//! }
//! ```

pub mod catalogue;
pub mod driver;
pub mod golden;
pub mod laws;
pub mod oracle;

use burn::tensor::Device;
use kvlab_core::{KvCache, Retention, RowSpec, Rows, Visibility};

/// One layer as the model hands it to a cache.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The rows that the model gives (a cache may store others).
    pub row: RowSpec,
    /// Query heads.
    pub query_heads: usize,
    /// The model's rule.
    pub visibility: Visibility,
    /// What the cache is meant to keep.
    pub retention: Retention,
}

/// How much a subject is built to hold.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Tokens of one sequence.
    pub capacity: usize,
    /// Sequences.
    pub sequences: usize,
}

/// Builds a fresh cache.
pub type Build = Box<dyn Fn(Size) -> Box<dyn KvCache>>;

/// What is left of the rows of a sequence, from position 0 on, when it has those and no more.
pub type Stored = Box<dyn Fn(Rows) -> Rows>;

/// A cache under test.
pub struct Subject {
    /// Names it in failures.
    pub name: String,
    /// A fresh, empty cache.
    pub build: Build,
    /// Its layers.
    pub layers: Vec<Layer>,
    /// What its codecs leave of the rows that the model gives, all rows of a sequence up to the query's own; `None` where
    /// nothing is lost. The oracle attends over these, so that a lossy cache is judged as sharply as an exact one.
    pub stored: Option<Stored>,
    /// Largest absolute error of an output that counts as right. Rows and queries are of magnitude 1.
    pub tolerance: f64,
    /// Where its tensors live.
    pub device: Device,
    /// Whether every length and chunk size is swept, or only some: for a subject that differs from another one by
    /// its number format alone.
    pub thorough: bool,
}

/// Runs one law. It panics with the subject's name where the law is broken.
pub fn check(law: &str, subject: &Subject) {
    let (_, run) = laws::ALL
        .iter()
        .find(|(name, _)| *name == law)
        .unwrap_or_else(|| panic!("there is no law {law:?}"));
    run(subject);
}
