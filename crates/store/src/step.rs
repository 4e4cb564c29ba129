//! One forward pass over a [`StoredCache`].

use crate::cache::{Layer, StoredCache};
use crate::layout::{Growth, Run};
use crate::{Computed, Form, Input, Kernel, LayerStore, Part, QueryChunk, codec};
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
    chunks: Vec<QueryChunk>,
    /// Stored rows of each chunk's sequence, from before the step.
    past: Vec<Vec<Run>>,
    tokens: usize,
    positions: Tensor<1, Int>,
    fresh: BTreeMap<LayerId, Fresh>,
    kernels: BTreeSet<&'static str>,
    /// The most that a kernel held of unpacked rows.
    scratch: Bytes,
}

/// The rows of a step in one layer.
struct Fresh {
    /// `[tokens of the step, heads, width]`: packed, or open where rows are packed later.
    rows: LayerStore,
    /// What has to be packed if every token is accepted: rows from before the step and new ones, chunk by chunk.
    sealed: LayerStore,
    /// For each chunk the first of its rows in `sealed`, and their positions.
    sealing: Vec<(usize, std::ops::Range<usize>)>,
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
            chunks.push(QueryChunk {
                tokens: from..tokens,
                start: growth.start,
            });
        }
        let positions = Tensor::from_data(positions.as_slice(), &cache.device);
        let past = growths.iter().map(|g| cache.layout.runs(g.seq, g.start)).collect();
        Self {
            cache,
            growths: growths.iter().map(|g| (g.seq, g.start, g.tokens.to_vec())).collect(),
            chunks,
            past,
            tokens,
            positions,
            fresh: BTreeMap::new(),
            kernels: BTreeSet::new(),
            scratch: Bytes(0),
        }
    }

    fn layer(&self, layer: LayerId) -> Result<&Layer, CacheError> {
        let known = self.cache.layers.get(&layer);
        known.ok_or(CacheError::UnknownLayer(layer))
    }

    fn note(&mut self, (computed, kernel): (Computed, &'static str)) -> Attended {
        self.kernels.insert(kernel);
        self.scratch = self.scratch.max(computed.scratch);
        computed.attended
    }

    /// New rows of a layer, as they will be stored.
    fn encode(&self, stored: &Layer, rows: Rows) -> Fresh {
        let Some(seal) = &stored.spec.seal else {
            return Fresh {
                rows: stored.encode(stored.codecs, rows),
                sealed: LayerStore::default(),
                sealing: Vec::new(),
            };
        };
        let rows = stored.encode([stored.open_codec; 2], rows);
        let mut sealing = Vec::with_capacity(self.chunks.len());
        let mut parts = Vec::new();
        let mut first = 0;
        for (chunk, (seq, start, _)) in self.chunks.iter().zip(&self.growths) {
            let ready = seal.sealed(*start)..seal.sealed(start + chunk.tokens.len());
            // Open rows from before the step first, then new ones.
            let past = self
                .cache
                .open
                .runs(*seq, seal.room(), ready.start, ready.end.min(*start));
            parts.extend(past.iter().map(|&run| stored.open.run(run)));
            if ready.end > *start {
                parts.push(rows.rows(chunk.tokens.start, ready.end - start));
            }
            sealing.push((first, ready.clone()));
            first += ready.len();
        }
        let sealed = match first {
            0 => LayerStore::default(),
            _ => stored.encode(
                stored.codecs,
                stored.decode([stored.open_codec; 2], &LayerStore::join(parts)),
            ),
        };
        Fresh { rows, sealed, sealing }
    }

    /// The rows that a layer's queries are compared with.
    fn parts<'s>(&'s self, stored: &'s Layer, fresh: Option<&'s Fresh>, span: Span) -> Vec<Part<'s>> {
        let spec = &stored.spec;
        let own = |fresh: &'s Fresh, codecs, form| Part {
            store: &fresh.rows,
            codecs,
            runs: self.own_runs(),
            form,
        };
        let past = self.past.iter().zip(&self.chunks).map(|(runs, chunk)| {
            let packed = runs.iter().filter_map(|run| run.until(spec.sealed(chunk.start)));
            packed
                .flat_map(|run| visible(run, chunk.start, spec, spec.block()))
                .collect()
        });
        let mut parts = vec![Part {
            store: &stored.store,
            codecs: stored.codecs.map(|c| c as &dyn crate::Codec),
            runs: past.collect(),
            form: if spec.seal.is_some() { Form::Packed } else { Form::Only },
        }];
        let Some(seal) = &spec.seal else {
            let fresh = fresh.filter(|_| span == Span::All);
            parts.extend(fresh.map(|fresh| own(fresh, parts[0].codecs, Form::Only)));
            return parts;
        };
        let open_codecs = [stored.open_codec; 2].map(|c| c as &dyn crate::Codec);
        let open = self.growths.iter().map(|(seq, start, _)| {
            let rows = self.cache.open.runs(*seq, seal.room(), seal.sealed(*start), *start);
            rows.into_iter().flat_map(|run| visible(run, *start, spec, 1)).collect()
        });
        parts.push(Part {
            store: &stored.open,
            codecs: open_codecs,
            runs: open.collect(),
            form: Form::Open,
        });
        if let Some(fresh) = fresh {
            let runs = fresh.sealing.iter().map(|(slot, ready)| {
                let run = Run {
                    slot: *slot,
                    position: ready.start,
                    len: ready.len(),
                };
                Some(run).filter(|run| run.len > 0).into_iter().collect()
            });
            parts.push(Part {
                store: &fresh.sealed,
                codecs: parts[0].codecs,
                runs: runs.collect(),
                form: Form::Packed,
            });
            if span == Span::All {
                parts.push(own(fresh, open_codecs, Form::Open));
            }
        }
        parts
    }

    /// The new rows of each chunk, in tensors of all tokens of the step.
    fn own_runs(&self) -> Vec<Vec<Run>> {
        let runs = self.chunks.iter().map(|chunk| {
            vec![Run {
                slot: chunk.tokens.start,
                position: chunk.start,
                len: chunk.tokens.len(),
            }]
        });
        runs.collect()
    }
}

/// The parts of a run of past rows that a query at position `query` or later can see, in whole blocks of rows.
fn visible(run: Run, query: usize, spec: &LayerSpec, block: usize) -> impl Iterator<Item = Run> + use<> {
    // The first position inside a window, for the earliest query.
    let first = |window: usize| (query + 1).saturating_sub(window);
    let seen = first(spec.visibility.window().unwrap_or(usize::MAX));
    let (sinks, kept) = match spec.retention {
        Retention::All => (0, 0),
        Retention::Window { window, sinks } => (sinks, first(window.get())),
    };
    let sinks = sinks.min(kept).next_multiple_of(block);
    let run = run.from(seen / block * block);
    let sink = run.and_then(|run| run.until(sinks));
    let rest = run.and_then(|run| run.from((kept / block * block).max(sinks)));
    sink.into_iter().chain(rest)
}

/// Runs the first kernel that takes the problem.
fn run(
    kernels: &'static [&'static dyn Kernel],
    tokens: usize,
    layer: LayerId,
    input: &Input<'_>,
) -> Result<(Computed, &'static str), CacheError> {
    check_query(layer, tokens, input)?;
    let problem = input.problem();
    let mut reasons = Vec::new();
    for kernel in kernels {
        match kernel.supports(&problem) {
            Ok(()) => return Ok((kernel.attend(input)?, kernel.name())),
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
        let fresh = self.encode(stored, rows);
        self.fresh.insert(layer, fresh);
        Ok(())
    }

    fn attend(&mut self, layer: LayerId, query: Query) -> Result<Attended, CacheError> {
        let stored = self.layer(layer)?;
        let fresh = self.fresh.get(&layer);
        if fresh.is_none() && query.span == Span::All {
            return Err(CacheError::Order {
                layer,
                what: "was asked for attention before its rows were added; extend it first",
            });
        }
        let input = Input {
            row: stored.spec.row,
            parts: self.parts(stored, fresh, query.span),
            chunks: &self.chunks,
            visibility: stored.spec.visibility,
            retention: stored.spec.retention,
            seal: stored.spec.seal.as_ref(),
            query,
        };
        let ran = run(self.cache.kernels, self.tokens, layer, &input)?;
        Ok(self.note(ran))
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
        let fresh = LayerStore {
            key: codec::EXACT.encode(rows.key),
            value: rows.value.map_or_else(Vec::new, |v| codec::EXACT.encode(v)),
        };
        let input = Input {
            row,
            parts: vec![Part {
                store: &fresh,
                codecs: [codec::EXACT; 2],
                runs: self.own_runs(),
                form: Form::Only,
            }],
            chunks: &self.chunks,
            visibility: spec.visibility,
            retention: spec.retention,
            seal: None,
            query,
        };
        let ran = run(self.cache.kernels, self.tokens, layer, &input)?;
        Ok(self.note(ran))
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
        let held = this
            .fresh
            .values()
            .map(|fresh| fresh.rows.bytes() + fresh.sealed.bytes());
        cache.peak = cache.peak.max(cache.reserved() + held.sum() + this.scratch);
        let kept = this.growths.iter().zip(&accepted).enumerate();
        for (i, ((seq, start, tokens), &keep)) in kept.filter(|(_, (_, keep))| **keep > 0) {
            let growth = Growth {
                seq: *seq,
                start: *start,
                tokens: &tokens[..keep],
            };
            let placed = cache.layout.append(growth);
            cache.copy(&placed.copies);
            let (first, end) = (this.chunks[i].tokens.start, start + keep);
            let slots = placed.slots(&this.past[i], *start);
            let seals = cache.layers.values().any(|layer| layer.spec.seal.is_some());
            if seals {
                cache.open.take(*seq);
            }
            for (layer, stored) in &mut cache.layers {
                let fresh = &this.fresh[layer];
                let Some(seal) = &stored.spec.seal else {
                    for write in &placed.writes {
                        let rows = fresh.rows.rows(first + write.offset, write.len);
                        stored.store.write(write.slot, rows);
                    }
                    continue;
                };
                let (packed, ready) = &fresh.sealing[i];
                let sealed = seal.sealed(end);
                for run in slots.iter().filter_map(|run| run.from(ready.start)?.until(sealed)) {
                    let rows = fresh.sealed.rows(packed + run.position - ready.start, run.len);
                    stored.store.write(run.slot, rows);
                }
                let open = cache.open.runs(*seq, seal.room(), sealed.max(*start), end);
                for run in open {
                    let rows = fresh.rows.rows(first + run.position - start, run.len);
                    stored.open.write(run.slot, rows);
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
