//! The two traits, and the plain data of their calls.

use crate::{Attended, Bytes, CacheError, CacheSpec, LayerId, Query, Rows, Saved, SeqId, TokenId};
use burn::tensor::{Int, Tensor};
use serde::Serialize;

/// A cache over the sequences of one model. See the crate documentation for the contract.
pub trait KvCache: Send {
    /// What it holds, per layer.
    fn spec(&self) -> &CacheSpec;

    /// What it can do. Data, not methods: what is missing is refused with the reason given here.
    fn capabilities(&self) -> Capabilities;

    /// The bytes that are really allocated and used now.
    fn usage(&self) -> Usage;

    /// Opens a sequence that will begin with `prompt`. `reused` tokens of it are already stored: the first
    /// chunk begins after them.
    ///
    /// # Errors
    /// None of lack of room: rows are found by [`begin`](Self::begin).
    fn open(&mut self, prompt: &[TokenId]) -> Result<Opened, CacheError>;

    /// A second sequence with the same rows, which then goes its own way.
    ///
    /// # Errors
    /// [`CacheError::NoRoom`], [`CacheError::UnknownSequence`], [`CacheError::Unsupported`].
    fn fork(&mut self, seq: SeqId) -> Result<SeqId, CacheError>;

    /// Whether [`truncate`](Self::truncate) would succeed now.
    ///
    /// # Errors
    /// As `truncate`.
    fn can_truncate(&self, seq: SeqId, len: usize) -> Result<(), CacheError>;

    /// Cuts a sequence back to its first `len` tokens, as if the others had never been seen.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] beyond its length, [`CacheError::Unsupported`] where rows that would be
    /// visible again were dropped.
    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), CacheError>;

    /// Ends a sequence and frees its rows.
    ///
    /// # Errors
    /// [`CacheError::UnknownSequence`].
    fn close(&mut self, seq: SeqId) -> Result<(), CacheError>;

    /// Tokens of a sequence that are stored or were, i.e. the position of its next token.
    ///
    /// # Errors
    /// [`CacheError::UnknownSequence`].
    fn len(&self, seq: SeqId) -> Result<usize, CacheError>;

    /// A copy of the rows that are stored of a sequence in one layer, in order of position, as they read back.
    ///
    /// # Errors
    /// [`CacheError::UnknownSequence`], [`CacheError::UnknownLayer`], [`CacheError::Unsupported`] by a cache
    /// that does not show its rows.
    fn inspect(&self, seq: SeqId, layer: LayerId) -> Result<Inspected, CacheError> {
        self.len(seq)?;
        Err(CacheError::Unsupported {
            what: format!("a look at the rows of {layer}"),
            reason: "it does not show them".into(),
        })
    }

    /// Everything that is stored of a sequence, bit for bit, to be [`restore`](Self::restore)d by a cache of the same
    /// spec, also in another process. Room, pages and the device may differ.
    ///
    /// # Errors
    /// [`CacheError::UnknownSequence`], [`CacheError::Unsupported`].
    fn save(&self, seq: SeqId) -> Result<Saved, CacheError> {
        self.len(seq)?;
        Err(unsaved())
    }

    /// A new sequence with the rows that were saved. `tokens` are those that made them.
    ///
    /// # Errors
    /// [`CacheError::Saved`] if the rows are of another kind, incomplete or damaged; [`CacheError::NoRoom`];
    /// [`CacheError::Unsupported`]. Then nothing changed.
    fn restore(&mut self, saved: &Saved, tokens: &[TokenId]) -> Result<SeqId, CacheError> {
        let _ = (saved, tokens);
        Err(unsaved())
    }

    /// Begins a forward pass over one chunk of tokens for each of some sequences.
    ///
    /// # Errors
    /// [`CacheError::NoRoom`] with what is needed and what is free; unknown, repeated or empty chunks.
    fn begin<'a>(&'a mut self, batch: &[Chunk<'_>]) -> Result<Box<dyn Step + 'a>, CacheError>;
}

fn unsaved() -> CacheError {
    CacheError::Unsupported {
        what: "saving a sequence".into(),
        reason: "it does not hand out its rows".into(),
    }
}

/// One forward pass. Dropped without [`commit`](Self::commit), it leaves the cache as it was.
pub trait Step {
    /// `[tokens]`: the position of each token of the step, chunks back to back.
    fn positions(&self) -> &Tensor<1, Int>;

    /// Adds the new rows of one layer. Once a layer and step.
    ///
    /// # Errors
    /// [`CacheError::Shape`], [`CacheError::UnknownLayer`], [`CacheError::Order`].
    fn extend(&mut self, layer: LayerId, rows: Rows) -> Result<(), CacheError>;

    /// Attention of the step's queries over the rows of their own sequences.
    ///
    /// # Errors
    /// As [`extend`](Self::extend), and [`CacheError::Unsupported`] where no kernel takes the problem.
    fn attend(&mut self, layer: LayerId, query: Query) -> Result<Attended, CacheError>;

    /// Attention of the step's queries over `rows` instead of the stored ones: `rows` stand for the tokens of
    /// this step, chunk by chunk, with the layer's visibility, and are not stored. It is how MLA attends to
    /// fresh keys in expanded form; merged with [`Span::Past`](crate::Span::Past) it gives the whole.
    ///
    /// # Errors
    /// As [`attend`](Self::attend).
    fn attend_fresh(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError>;

    /// [`extend`](Self::extend), then [`attend`](Self::attend); a cache may fuse them.
    ///
    /// # Errors
    /// As both.
    fn extend_attend(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError> {
        self.extend(layer, rows)?;
        self.attend(layer, query)
    }

    /// Whether [`commit`](Self::commit) has all that it needs.
    ///
    /// # Errors
    /// [`CacheError::Order`] if a layer was not extended yet.
    fn ready(&self) -> Result<(), CacheError>;

    /// Keeps the accepted tokens of each chunk and ends the step.
    ///
    /// # Errors
    /// [`CacheError::Order`] if a layer was never extended, [`CacheError::OutOfRange`] for more tokens than
    /// the chunk had. After an error the cache is as before `begin`.
    fn commit(self: Box<Self>, accepted: Accept) -> Result<StepReport, CacheError>;
}

/// A sequence that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its handle.
    pub seq: SeqId,
    /// Tokens of the prompt that are already stored.
    pub reused: usize,
}

/// Stored rows, copied out.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// The position of each row.
    pub positions: Vec<usize>,
    /// `[rows, heads, key dim]` and `[rows, heads, value dim]`, f32.
    pub rows: Rows,
}

/// The tokens that one step adds to one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The sequence.
    pub seq: SeqId,
    /// Its next tokens; at least one.
    pub tokens: &'a [TokenId],
}

/// How many tokens of each chunk to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accept {
    /// All of them.
    All,
    /// The first `n` of every chunk (all of a shorter one).
    Prefix(usize),
    /// The first `n[i]` of chunk `i`.
    Each(Vec<usize>),
}

impl Accept {
    /// The accepted tokens of each chunk, given the chunk lengths.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`].
    pub fn resolve(&self, lengths: &[usize]) -> Result<Vec<usize>, CacheError> {
        match self {
            Self::All => Ok(lengths.to_vec()),
            Self::Prefix(n) => Ok(lengths.iter().map(|len| *len.min(n)).collect()),
            Self::Each(each) if each.len() != lengths.len() => Err(CacheError::OutOfRange {
                what: "accepted chunks",
                asked: each.len(),
                most: lengths.len(),
            }),
            Self::Each(each) => match each.iter().zip(lengths).find(|(n, len)| n > len) {
                Some((&asked, &most)) => Err(CacheError::OutOfRange {
                    what: "accepted tokens of a chunk",
                    asked,
                    most,
                }),
                None => Ok(each.clone()),
            },
        }
    }
}

/// What a step did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Names of the kernels that ran, each once, in alphabetical order.
    pub kernels: Vec<&'static str>,
    /// Tokens kept, over all chunks.
    pub accepted: usize,
}

/// Bytes of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Codes of the rows that are in use.
    pub payload: Bytes,
    /// Scales and zero points of the rows in use.
    pub metadata: Bytes,
    /// In use by a sequence, but holding no row (the rest of a page).
    pub padding: Bytes,
    /// Rows that no sequence uses, but that a later prompt may find; given up when room is needed.
    pub kept: Bytes,
    /// Everything allocated for rows, used or not.
    pub reserved: Bytes,
    /// The most that was ever held: what is reserved, the rows that a step held outside of it, and the rows that a
    /// kernel unpacked.
    pub peak: Bytes,
}

impl Usage {
    /// Payload and metadata: the bytes of the rows in use.
    pub fn used(&self) -> Bytes {
        self.payload + self.metadata
    }
}

impl std::ops::Add for Usage {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            payload: self.payload + other.payload,
            metadata: self.metadata + other.metadata,
            padding: self.padding + other.padding,
            kept: self.kept + other.kept,
            reserved: self.reserved + other.reserved,
            peak: self.peak + other.peak,
        }
    }
}

/// Whether something is supported, and if not, why.
pub type Support = Result<(), String>;

/// How far back a sequence can be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Truncate {
    /// To any length.
    Any,
    /// To at most so many tokens less than the sequence was ever long: older rows may have been dropped.
    Last(usize),
    /// Not at all, for this reason.
    Never(String),
}

impl Truncate {
    /// The weaker of two.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never(why), _) | (_, Self::Never(why)) => Self::Never(why),
            (Self::Last(a), Self::Last(b)) => Self::Last(a.min(b)),
            (Self::Last(a), Self::Any) | (Self::Any, Self::Last(a)) => Self::Last(a),
            (Self::Any, Self::Any) => Self::Any,
        }
    }
}

/// What a cache can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether committed rows are there in the next step. A cache without memory is fed every token of a
    /// sequence in every step, and its sequences stay at length 0.
    pub remembers: bool,
    /// How far [`KvCache::truncate`] goes.
    pub truncate: Truncate,
    /// Whether [`KvCache::fork`] works.
    pub fork: Support,
    /// Whether [`KvCache::open`] can find stored prefixes.
    pub prefix_sharing: Support,
    /// Whether [`KvCache::save`] and [`KvCache::restore`] work.
    pub save: Support,
    /// Whether [`Query::lse`] is answered.
    pub lse: Support,
}

impl Capabilities {
    /// What two caches that hold different layers of one model can do together.
    pub fn and(self, other: Self) -> Self {
        Self {
            remembers: self.remembers && other.remembers,
            truncate: self.truncate.and(other.truncate),
            fork: self.fork.and(other.fork),
            prefix_sharing: self.prefix_sharing.and(other.prefix_sharing),
            save: self.save.and(other.save),
            lse: self.lse.and(other.lse),
        }
    }
}
