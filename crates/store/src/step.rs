//! One forward pass over a [`StoredCache`].

use crate::cache::{Layer, StoredCache};
use crate::layout::{Growth, Run};
use crate::{ChunkRows, Fresh, Input, Kernel, LayerStore, codec};
use burn::tensor::{Int, Tensor};
use kvlab_core::{
    Accept, Attended, Bytes, CacheError, LayerId, LayerSpec, Query, Retention, RowSpec, Rows, SeqId, Span, Step,
    StepReport, TokenId, Value,
};
use std::collections::{BTreeMap, BTreeSet};

/// Holds the new rows until they are accepted.
pub(crate) struct StoredStep<'a> {
    cache: &'a mut StoredCache,
    growths: Vec<(SeqId, usize, Vec<TokenId>)>,
    chunks: Vec<ChunkRows>,
    tokens: usize,
    positions: Tensor<1, Int>,
    fresh: BTreeMap<LayerId, LayerStore>,
    kernels: BTreeSet<&'static str>,
    /// The most that a kernel held of unpacked rows.
    scratch: Bytes,
}

impl<'a> StoredStep<'a> {
    pub fn new(cache: &'a mut StoredCache, growths: &[Growth<'_>]) -> Self {
        let mut tokens = 0;
        let mut chunks = Vec::with_capacity(growths.len());
        let mut positions = Vec::new();
        for growth in growths {
            let (from, end) = (tokens, growth.start + growth.tokens.len());
            tokens += growth.tokens.len();
            positions.extend((growth.start..end).map(|p| p as i64));
            chunks.push(ChunkRows {
                tokens: from..tokens,
                start: growth.start,
                past: cache.layout.runs(growth.seq, growth.start),
            });
        }
        let positions = Tensor::from_data(positions.as_slice(), &cache.device);
        Self {
            cache,
            growths: growths.iter().map(|g| (g.seq, g.start, g.tokens.to_vec())).collect(),
            chunks,
            tokens,
            positions,
            fresh: BTreeMap::new(),
            kernels: BTreeSet::new(),
            scratch: Bytes(0),
        }
    }

    /// Remembers a kernel that ran.
    fn note(&mut self, kernel: &'static str, scratch: Bytes) {
        self.kernels.insert(kernel);
        self.scratch = self.scratch.max(scratch);
    }

    fn layer(&self, layer: LayerId) -> Result<&Layer, CacheError> {
        let known = self.cache.layers.get(&layer);
        known.ok_or(CacheError::UnknownLayer(layer))
    }

    /// The chunks, without the past rows that no query of the chunk sees any more.
    fn chunks(&self, spec: &LayerSpec, with_past: bool) -> Vec<ChunkRows> {
        let mut chunks = self.chunks.clone();
        for chunk in &mut chunks {
            let past = std::mem::take(&mut chunk.past);
            if with_past {
                let parts = past.into_iter().flat_map(|run| visible(run, chunk.start, spec));
                chunk.past = parts.collect();
            }
        }
        chunks
    }
}

/// The parts of a run of past rows that a query at position `query` or later can see.
fn visible(run: Run, query: usize, spec: &LayerSpec) -> impl Iterator<Item = Run> {
    // The first position inside a window, for the earliest query.
    let first = |window: usize| (query + 1).saturating_sub(window);
    let seen = first(spec.visibility.window().unwrap_or(usize::MAX));
    let (sinks, kept) = match spec.retention {
        Retention::All => (0, 0),
        Retention::Window { window, sinks } => (sinks, first(window.get())),
    };
    let run = run.from(seen);
    let sink = run.and_then(|run| run.until(sinks.min(kept)));
    let rest = run.and_then(|run| run.from(kept));
    sink.into_iter().chain(rest)
}

/// Runs the first kernel that takes the problem, and says which.
fn run(
    kernels: &'static [&'static dyn Kernel],
    tokens: usize,
    layer: LayerId,
    input: &Input<'_>,
) -> Result<(&'static dyn Kernel, Attended), CacheError> {
    check_query(layer, tokens, input)?;
    let problem = input.problem();
    let mut reasons = Vec::new();
    for kernel in kernels {
        match kernel.supports(&problem) {
            Ok(()) => return Ok((*kernel, kernel.attend(input)?)),
            Err(reason) => reasons.push(format!("{}: {reason}", kernel.name())),
        }
    }
    Err(CacheError::Unsupported {
        what: format!("attention in {layer}"),
        reason: reasons.join("; "),
    })
}

impl Step for StoredStep<'_> {
    fn positions(&self) -> &Tensor<1, Int> {
        &self.positions
    }

    fn extend(&mut self, layer: LayerId, rows: Rows) -> Result<(), CacheError> {
        let stored = self.layer(layer)?;
        if self.fresh.contains_key(&layer) {
            return Err(CacheError::Order {
                layer,
                what: "was extended twice in one step; each layer is extended once",
            });
        }
        check_adoptable(layer, self.tokens, &stored.spec, &rows)?;
        let rows = (self.cache.adopt)(&stored.spec, rows);
        check_rows(layer, self.tokens, stored.spec.row, &rows)?;
        let [key, value] = stored.codecs;
        let fresh = LayerStore {
            key: key.encode(rows.key),
            value: rows.value.map_or_else(Vec::new, |v| value.encode(v)),
        };
        self.fresh.insert(layer, fresh);
        Ok(())
    }

    fn attend(&mut self, layer: LayerId, query: Query) -> Result<Attended, CacheError> {
        let stored = self.layer(layer)?;
        let spec = &stored.spec;
        let fresh = self.fresh.get(&layer);
        if fresh.is_none() && query.span == Span::All {
            return Err(CacheError::Order {
                layer,
                what: "was asked for attention before its rows were added; extend it first",
            });
        }
        let codecs = stored.codecs.map(|c| c as &dyn crate::Codec);
        let chunks = self.chunks(spec, true);
        let rows = fresh.filter(|_| query.span == Span::All);
        let input = Input {
            row: spec.row,
            store: &stored.store,
            codecs,
            fresh: rows.map(|rows| Fresh { rows, codecs }),
            chunks: &chunks,
            visibility: spec.visibility,
            retention: spec.retention,
            query,
        };
        let (kernel, attended) = run(self.cache.kernels, self.tokens, layer, &input)?;
        let scratch = kernel.scratch(&input);
        self.note(kernel.name(), scratch);
        Ok(attended)
    }

    fn attend_fresh(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError> {
        let spec = &self.layer(layer)?.spec;
        let row = RowSpec {
            heads: rows.key.dims()[1],
            key: rows.key.dims()[2],
            value: match &rows.value {
                Some(value) => Value::Own(value.dims()[2]),
                None => Value::PrefixOfKey(spec.row.value_dim()),
            },
        };
        check_rows(layer, self.tokens, row, &rows)?;
        let codecs = [codec::EXACT; 2];
        let fresh = LayerStore {
            key: codec::EXACT.encode(rows.key),
            value: rows.value.map_or_else(Vec::new, |v| codec::EXACT.encode(v)),
        };
        let chunks = self.chunks(spec, false);
        let input = Input {
            row,
            store: &LayerStore::default(),
            codecs,
            fresh: Some(Fresh { rows: &fresh, codecs }),
            chunks: &chunks,
            visibility: spec.visibility,
            retention: spec.retention,
            query,
        };
        let (kernel, attended) = run(self.cache.kernels, self.tokens, layer, &input)?;
        let scratch = kernel.scratch(&input);
        self.note(kernel.name(), scratch);
        Ok(attended)
    }

    fn ready(&self) -> Result<(), CacheError> {
        let unextended = |layer: &&LayerId| !self.fresh.contains_key(layer);
        match self.cache.layers.keys().find(unextended) {
            Some(&layer) => Err(CacheError::Order {
                layer,
                what: "was not extended in this step; a step must extend every layer before it commits",
            }),
            None => Ok(()),
        }
    }

    fn commit(self: Box<Self>, accepted: Accept) -> Result<StepReport, CacheError> {
        let this = *self;
        let lengths: Vec<_> = this.growths.iter().map(|(_, _, tokens)| tokens.len()).collect();
        let accepted = accepted.resolve(&lengths)?;
        this.ready()?;
        let cache = this.cache;
        let held: Bytes = this.fresh.values().map(LayerStore::bytes).sum();
        cache.peak = cache.peak.max(cache.reserved() + held + this.scratch);
        let kept = this.growths.iter().zip(&this.chunks).zip(&accepted);
        for (((seq, start, tokens), chunk), &keep) in kept.filter(|(_, keep)| **keep > 0) {
            let growth = Growth {
                seq: *seq,
                start: *start,
                tokens: &tokens[..keep],
            };
            let placed = cache.layout.append(growth);
            cache.copy(&placed.copies);
            for (layer, stored) in &mut cache.layers {
                let fresh = &this.fresh[layer];
                for write in &placed.writes {
                    let rows = fresh.rows(chunk.tokens.start + write.offset, write.len);
                    stored.store.write(write.slot, rows);
                }
            }
            cache.grow(growth);
        }
        Ok(StepReport {
            kernels: this.kernels.into_iter().collect(),
            accepted: accepted.iter().sum(),
        })
    }
}

/// What must hold of the model's rows before a variant's `adopt` may touch them.
fn check_adoptable(layer: LayerId, tokens: usize, spec: &LayerSpec, rows: &Rows) -> Result<(), CacheError> {
    let [got_tokens, heads, dim] = rows.key.dims();
    let divides = heads > 0 && spec.row.heads.is_multiple_of(heads);
    if got_tokens == tokens && dim == spec.row.key && divides {
        return match &rows.value {
            Some(value) if value.dims()[..2] != [tokens, heads] => Err(CacheError::Shape {
                layer,
                what: "the value rows",
                expected: vec![tokens, heads, spec.row.value_dim()],
                got: value.dims().to_vec(),
            }),
            _ => Ok(()),
        };
    }
    Err(CacheError::Shape {
        layer,
        what: "the key rows",
        expected: vec![tokens, spec.row.heads, spec.row.key],
        got: rows.key.dims().to_vec(),
    })
}

fn check_rows(layer: LayerId, tokens: usize, row: RowSpec, rows: &Rows) -> Result<(), CacheError> {
    let check = |what, expected: [usize; 3], got: [usize; 3]| {
        if expected == got {
            return Ok(());
        }
        Err(CacheError::Shape {
            layer,
            what,
            expected: expected.to_vec(),
            got: got.to_vec(),
        })
    };
    check("the key rows", [tokens, row.heads, row.key], rows.key.dims())?;
    match (row.value, &rows.value) {
        (Value::Own(dim), Some(value)) => check("the value rows", [tokens, row.heads, dim], value.dims()),
        (Value::PrefixOfKey(dim), None) if dim <= row.key => Ok(()),
        (Value::PrefixOfKey(_), _) => Err(CacheError::Order {
            layer,
            what: "got value rows, but its values are a prefix of its keys",
        }),
        (Value::Own(_), None) => Err(CacheError::Order {
            layer,
            what: "got no value rows, but it stores values of their own",
        }),
    }
}

fn check_query(layer: LayerId, tokens: usize, input: &Input<'_>) -> Result<(), CacheError> {
    let [got_tokens, heads, dim] = input.query.q.dims();
    let divides = heads > 0 && heads.is_multiple_of(input.row.heads);
    if got_tokens != tokens || dim != input.row.key || !divides {
        return Err(CacheError::Shape {
            layer,
            what: "the query (heads must be a multiple of the stored heads)",
            expected: vec![tokens, input.row.heads, input.row.key],
            got: vec![got_tokens, heads, dim],
        });
    }
    match &input.query.sinks {
        Some(sinks) if sinks.dims() != [heads] => Err(CacheError::Shape {
            layer,
            what: "the attention sinks",
            expected: vec![heads],
            got: sinks.dims().to_vec(),
        }),
        _ => Ok(()),
    }
}
