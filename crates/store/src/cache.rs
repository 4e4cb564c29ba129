//! The cache that is put together from a layout, codecs and kernels.

use crate::layout::{Copy, Growth};
use crate::step::StoredStep;
use crate::{Codec, Kernel, LayerStore, Layout};
use burn::tensor::{Device, Tensor};
use kvlab_core::{
    Bytes, CacheError, CacheSpec, Capabilities, Chunk, Inspected, KvCache, LayerId, LayerSpec, Opened, Rows, SeqId,
    Step, Support, TokenId, Usage, Value,
};
use std::collections::{BTreeMap, BTreeSet};

/// Turns the rows that the model hands over into those that are stored.
pub type Adopt = fn(&LayerSpec, Rows) -> Rows;

/// One layer of a [`StoredCache`].
pub(crate) struct Layer {
    pub spec: LayerSpec,
    pub codecs: [&'static dyn Codec; 2],
    pub store: LayerStore,
}

/// A cache that holds rows in planes, in slots that a layout gives out.
pub struct StoredCache {
    pub(crate) spec: CacheSpec,
    pub(crate) layers: BTreeMap<LayerId, Layer>,
    pub(crate) layout: Box<dyn Layout>,
    pub(crate) kernels: &'static [&'static dyn Kernel],
    pub(crate) adopt: Adopt,
    pub(crate) device: Device,
    pub(crate) lengths: BTreeMap<SeqId, usize>,
    pub(crate) peak: Bytes,
    remembers: bool,
    next: u64,
}

/// What a [`StoredCache`] is made from.
pub struct Parts {
    /// What it holds. `rows_per_sequence * sequences` of each layer must be the layout's slots.
    pub spec: CacheSpec,
    /// Codecs of keys and values, for each layer of the spec.
    pub codecs: Vec<[&'static dyn Codec; 2]>,
    /// Where rows go.
    pub layout: Box<dyn Layout>,
    /// Kernels, best first.
    pub kernels: &'static [&'static dyn Kernel],
    /// What is stored of the model's rows.
    pub adopt: Adopt,
    /// Whether committed rows stay.
    pub remembers: bool,
    /// Where to allocate.
    pub device: Device,
}

impl StoredCache {
    /// Allocates the planes.
    pub fn new(parts: Parts) -> Self {
        let slots = parts.layout.slots();
        let device = parts.device;
        let layers = parts.spec.layers.iter().zip(parts.codecs);
        let layers = layers.map(|(spec, codecs)| {
            let row = spec.row;
            let allocate = |codec: &dyn Codec, dim| match slots * dim {
                0 => Vec::new(),
                _ => codec.allocate([slots, row.heads, dim], &device),
            };
            let store = LayerStore {
                key: allocate(codecs[0], row.key),
                value: allocate(codecs[1], row.stored_value_dim()),
            };
            let layer = Layer {
                spec: spec.clone(),
                codecs,
                store,
            };
            (spec.layer, layer)
        });
        let layers: BTreeMap<_, _> = layers.collect();
        let reserved = layers.values().map(|l| l.store.bytes()).sum();
        Self {
            spec: parts.spec,
            layers,
            layout: parts.layout,
            kernels: parts.kernels,
            adopt: parts.adopt,
            device,
            lengths: BTreeMap::new(),
            peak: reserved,
            remembers: parts.remembers,
            next: 0,
        }
    }

    /// Whether the next append writes in place, in every plane.
    pub fn can_mut(&self) -> bool {
        let mut planes = self.layers.values().flat_map(|l| l.store.planes());
        planes.all(crate::Plane::can_mut)
    }

    pub(crate) fn reserved(&self) -> Bytes {
        self.layers.values().map(|l| l.store.bytes()).sum()
    }

    /// Copies rows from slots to slots, in every layer.
    pub(crate) fn copy(&mut self, copies: &[Copy]) {
        for layer in self.layers.values_mut() {
            for copy in copies {
                let rows = layer.store.rows(copy.from, copy.len).detached();
                layer.store.write(copy.to, rows);
            }
        }
    }

    fn new_seq(&mut self) -> SeqId {
        self.next += 1;
        SeqId(self.next)
    }

    /// The length of a sequence as far as this cache remembers it.
    pub(crate) fn grow(&mut self, growth: Growth<'_>) {
        if self.remembers {
            self.lengths.insert(growth.seq, growth.start + growth.tokens.len());
        }
    }

    fn growths<'c>(&self, batch: &[Chunk<'c>]) -> Result<Vec<Growth<'c>>, CacheError> {
        let mut seen = BTreeSet::new();
        let growths = batch.iter().map(|chunk| {
            if !seen.insert(chunk.seq) {
                return Err(CacheError::DuplicateSequence(chunk.seq));
            }
            if chunk.tokens.is_empty() {
                return Err(CacheError::EmptyChunk(chunk.seq));
            }
            Ok(Growth {
                seq: chunk.seq,
                start: self.len(chunk.seq)?,
                tokens: chunk.tokens,
            })
        });
        growths.collect()
    }
}

impl KvCache for StoredCache {
    fn spec(&self) -> &CacheSpec {
        &self.spec
    }

    fn capabilities(&self) -> Capabilities {
        let missing: Support = match self.layout.shares() {
            true => Ok(()),
            false => Err("only a paged layout with cache.prefix_sharing finds stored prefixes".into()),
        };
        Capabilities {
            remembers: self.remembers,
            truncate: self.layout.rollback(),
            fork: Ok(()),
            prefix_sharing: missing,
            lse: Ok(()),
        }
    }

    fn usage(&self) -> Usage {
        let used = self.layout.used(&self.lengths);
        let times = |bytes: fn(&LayerSpec) -> Bytes, rows: usize| -> Bytes {
            self.spec.layers.iter().map(|l| bytes(l) * rows as u64).sum()
        };
        Usage {
            payload: times(LayerSpec::payload_per_row, used.rows),
            metadata: times(LayerSpec::metadata_per_row, used.rows),
            padding: times(LayerSpec::per_token, used.padding),
            kept: times(LayerSpec::per_token, used.kept),
            reserved: self.reserved(),
            peak: self.peak,
        }
    }

    fn open(&mut self, prompt: &[TokenId]) -> Result<Opened, CacheError> {
        let seq = self.new_seq();
        let reused = self.layout.open(seq, prompt);
        self.lengths.insert(seq, reused);
        Ok(Opened { seq, reused })
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, CacheError> {
        let len = self.len(seq)?;
        let new = self.new_seq();
        let copies = self.layout.fork(seq, new, len);
        let copies = copies.map_err(|shortage| CacheError::NoRoom {
            what: shortage.what.into(),
            needed: shortage.needed,
            free: shortage.free,
        })?;
        self.copy(&copies);
        self.lengths.insert(new, len);
        Ok(new)
    }

    fn can_truncate(&self, seq: SeqId, len: usize) -> Result<(), CacheError> {
        let most = self.len(seq)?;
        if len > most {
            return Err(CacheError::OutOfRange {
                what: "truncation, tokens",
                asked: len,
                most,
            });
        }
        let shortest = self.layout.shortest(seq);
        if len < shortest.min(most) {
            return Err(CacheError::Unsupported {
                what: format!("cutting {seq} from {most} back to {len} tokens"),
                reason: format!("older rows were dropped; {shortest} is the shortest length left"),
            });
        }
        Ok(())
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), CacheError> {
        self.can_truncate(seq, len)?;
        if len < self.len(seq)? {
            self.layout.truncate(seq, len);
            self.lengths.insert(seq, len);
        }
        Ok(())
    }

    fn close(&mut self, seq: SeqId) -> Result<(), CacheError> {
        let known = self.lengths.remove(&seq);
        known.ok_or(CacheError::UnknownSequence(seq))?;
        self.layout.close(seq);
        Ok(())
    }

    fn len(&self, seq: SeqId) -> Result<usize, CacheError> {
        let len = self.lengths.get(&seq).copied();
        len.ok_or(CacheError::UnknownSequence(seq))
    }

    fn inspect(&self, seq: SeqId, layer: LayerId) -> Result<Inspected, CacheError> {
        let runs = self.layout.runs(seq, self.len(seq)?);
        let layer = self.layers.get(&layer).ok_or(CacheError::UnknownLayer(layer))?;
        let row = layer.spec.row;
        let read = |codec: &dyn Codec, planes: fn(&LayerStore) -> &[crate::Plane], dim: usize| {
            let parts = runs
                .iter()
                .map(|&run| codec.decode(planes(&layer.store.run(run).detached())));
            let parts: Vec<_> = parts.collect();
            match parts.is_empty() {
                true => Tensor::zeros([0, row.heads, dim], &self.device),
                false => Tensor::cat(parts, 0),
            }
        };
        Ok(Inspected {
            positions: runs
                .iter()
                .flat_map(|run| run.position..run.position + run.len)
                .collect(),
            rows: Rows {
                key: read(layer.codecs[0], |store| &store.key, row.key),
                value: match row.value {
                    Value::Own(dim) => Some(read(layer.codecs[1], |store| &store.value, dim)),
                    Value::PrefixOfKey(_) => None,
                },
            },
        })
    }

    fn begin<'a>(&'a mut self, batch: &[Chunk<'_>]) -> Result<Box<dyn Step + 'a>, CacheError> {
        let growths = self.growths(batch)?;
        let fits = self.layout.check(&growths);
        fits.map_err(|shortage| CacheError::NoRoom {
            what: shortage.what.into(),
            needed: shortage.needed,
            free: shortage.free,
        })?;
        Ok(Box::new(StoredStep::new(self, &growths)))
    }
}
