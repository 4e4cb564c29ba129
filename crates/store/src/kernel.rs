//! What an attention kernel is asked, in plain data, and the interface it answers through.

use crate::layout::Run;
use crate::{Codec, LayerStore};
use kvlab_core::{Attended, Bytes, CacheError, Query, Retention, RowSpec, Span, Visibility};
use std::ops::Range;

/// Attention of one step in one layer, as far as a kernel must know to say whether it can do it.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Geometry of the rows.
    pub row: RowSpec,
    /// Query heads; a multiple of the row's heads.
    pub query_heads: usize,
    /// Tokens of the longest chunk.
    pub tokens: usize,
    /// Codec of the keys, of the values.
    pub codecs: [&'static str; 2],
    /// Whether scores are capped.
    pub softcap: bool,
    /// Whether heads have learned sinks.
    pub sinks: bool,
    /// Whether the log-sum-exp is wanted.
    pub lse: bool,
}

/// The rows that one chunk's queries are compared with.
#[derive(Clone, Debug)]
pub struct ChunkRows {
    /// The chunk's tokens within the step.
    pub tokens: Range<usize>,
    /// Position of the chunk's first token.
    pub start: usize,
    /// Stored rows from before the step, in order of position.
    pub past: Vec<Run>,
}

/// Rows of the step itself, which are not in the storage yet.
#[derive(Clone, Copy)]
pub struct Fresh<'a> {
    /// Encoded, `[tokens of the step, heads, width]`.
    pub rows: &'a LayerStore,
    /// Codecs of keys and values in `rows`.
    pub codecs: [&'a dyn Codec; 2],
}

/// Everything an attention call needs.
pub struct Input<'a> {
    /// Geometry of the rows.
    pub row: RowSpec,
    /// The storage of the layer.
    pub store: &'a LayerStore,
    /// Codecs of keys and values in `store`.
    pub codecs: [&'a dyn Codec; 2],
    /// The rows of the step; `None` where only past rows count.
    pub fresh: Option<Fresh<'a>>,
    /// One entry a chunk, in the order of the step.
    pub chunks: &'a [ChunkRows],
    /// The model's rule.
    pub visibility: Visibility,
    /// The cache's rule.
    pub retention: Retention,
    /// The queries of all chunks.
    pub query: Query,
}

impl Input<'_> {
    /// The problem that this is an instance of.
    pub fn problem(&self) -> Problem {
        Problem {
            row: self.row,
            query_heads: self.query.q.dims()[1],
            tokens: self.chunks.iter().map(|c| c.tokens.len()).max().unwrap_or(0),
            codecs: self.codecs.map(Codec::name),
            softcap: self.query.softcap.is_some(),
            sinks: self.query.sinks.is_some(),
            lse: self.query.lse,
        }
    }

    /// Whether a query sees a row, by both rules.
    pub fn sees(&self, query: usize, row: usize) -> bool {
        self.visibility.sees(query, row) && self.retention.keeps(query, row)
    }

    /// Whether every query sees at least one row: its own, unless only past rows count.
    pub fn nobody_is_blind(&self) -> bool {
        self.fresh.is_some() && self.query.span == Span::All
    }
}

/// An attention kernel. The first one of a cache's list that supports a problem runs, and is named in the report.
pub trait Kernel: Send + Sync {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Whether it can do this.
    ///
    /// # Errors
    /// The reason why not.
    fn supports(&self, problem: &Problem) -> Result<(), String>;

    /// Bytes of unpacked rows that it holds at a time.
    fn scratch(&self, input: &Input<'_>) -> Bytes;

    /// Attention of every chunk's queries over the rows of that chunk.
    ///
    /// # Errors
    /// A device that failed.
    fn attend(&self, input: &Input<'_>) -> Result<Attended, CacheError>;
}
