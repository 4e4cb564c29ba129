//! What an attention kernel is asked, in plain data, and the interface it answers through.

use crate::codec::Packing;
use crate::layout::Run;
use crate::{Codec, LayerStore};
use burn::tensor::Device;
use kvlab_core::{Attended, Bytes, CacheError, Query, Retention, RowSpec, Seal, Span, Visibility};
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
    /// Codecs of keys and values in each part.
    pub codecs: Vec<[&'static str; 2]>,
    /// How their planes are to be read, where a kernel can.
    pub packings: Vec<[Option<Packing>; 2]>,
    /// Where rows and queries lie.
    pub device: Device,
    /// Whether scores are capped.
    pub softcap: bool,
    /// Whether heads have learned sinks.
    pub sinks: bool,
    /// Whether the log-sum-exp is wanted.
    pub lse: bool,
}

/// The queries of one sequence.
#[derive(Clone, Debug)]
pub struct QueryChunk {
    /// The chunk's tokens within the step.
    pub tokens: Range<usize>,
    /// Position of the chunk's first token.
    pub start: usize,
}

/// The rows of a [`Part`], as one of the two forms that rows can have; see [`Seal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Every row has one form, this one.
    Only,
    /// Packed rows: a query finds those that are packed once its own row is there.
    Packed,
    /// Open rows: a query finds those that are not packed yet then.
    Open,
}

/// Some of the rows that queries are compared with.
#[derive(Clone)]
pub struct Part<'a> {
    /// The planes that they lie in.
    pub store: &'a LayerStore,
    /// Codecs of keys and values in `store`.
    pub codecs: [&'a dyn Codec; 2],
    /// For each chunk the rows that some of its queries may see, in order of position. Where the codec packs blocks
    /// of rows, a run is whole blocks.
    pub runs: Vec<Vec<Run>>,
    /// Their form.
    pub form: Form,
}

/// Everything an attention call needs.
pub struct Input<'a> {
    /// Geometry of the rows.
    pub row: RowSpec,
    /// The rows, in no order between the parts. A position can be in two parts of different form.
    pub parts: Vec<Part<'a>>,
    /// One entry a chunk, in the order of the step.
    pub chunks: &'a [QueryChunk],
    /// The model's rule.
    pub visibility: Visibility,
    /// The cache's rule.
    pub retention: Retention,
    /// When rows change their form.
    pub seal: Option<&'a Seal>,
    /// The queries of all chunks.
    pub query: Query,
}

impl Input<'_> {
    /// The problem that this is an instance of.
    pub fn problem(&self) -> Problem {
        let mut codecs: Vec<_> = self.parts.iter().map(|part| part.codecs.map(Codec::name)).collect();
        codecs.dedup();
        Problem {
            row: self.row,
            query_heads: self.query.q.dims()[1],
            tokens: self.chunks.iter().map(|c| c.tokens.len()).max().unwrap_or(0),
            codecs,
            packings: self.parts.iter().map(|part| part.codecs.map(Codec::packing)).collect(),
            device: self.query.q.device(),
            softcap: self.query.softcap.is_some(),
            sinks: self.query.sinks.is_some(),
            lse: self.query.lse,
        }
    }

    /// Whether the query at position `query` of a chunk that begins at `start` sees the row at position `row`, of
    /// this form, by all rules.
    pub fn sees(&self, form: Form, start: usize, query: usize, row: usize) -> bool {
        let packed = || self.seal.map_or(query + 1, |seal| seal.sealed(query + 1));
        let found = match form {
            Form::Only => true,
            Form::Packed => row < packed(),
            Form::Open => row >= packed(),
        };
        found
            && (self.query.span == Span::All || row < start)
            && self.visibility.sees(query, row)
            && self.retention.keeps(query, row)
    }

    /// Whether every query sees at least one row: its own, unless only past rows count.
    pub fn nobody_is_blind(&self) -> bool {
        self.query.span == Span::All
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

    /// Attention of every chunk's queries over the rows of that chunk.
    ///
    /// # Errors
    /// A device that failed.
    fn attend(&self, input: &Input<'_>) -> Result<Computed, CacheError>;
}

/// What a kernel computed.
#[derive(Clone, Debug)]
pub struct Computed {
    /// The result.
    pub attended: Attended,
    /// Bytes that it held meanwhile: unpacked rows, and results of parts.
    pub scratch: Bytes,
}
