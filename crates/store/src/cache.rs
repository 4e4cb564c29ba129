//! The cache that is put together from a layout, codecs and kernels.

use crate::layout::{Copy, Growth, Run, Shortage};
use crate::open::OpenRows;
use crate::plane::strides;
use crate::step::StoredStep;
use crate::{Codec, Kernel, LayerStore, Layout, Plane, codec};
use burn::tensor::{Device, Tensor};
use kvlab_core::{
    Bytes, CacheError, CacheSpec, Capabilities, Chunk, Inspected, KvCache, LayerId, LayerSpec, Opened, Rows, Saved,
    SavedLayer, SavedPlane, Seal, SeqId, Step, Support, TokenId, Truncate, Usage, Value,
};
use std::collections::{BTreeMap, BTreeSet};

/// Turns the rows that the model hands over into those that are stored.
pub type Adopt = fn(&LayerSpec, Rows) -> Rows;

/// One layer of a [`StoredCache`].
pub(crate) struct Layer {
    pub spec: LayerSpec,
    pub codecs: [&'static dyn Codec; 2],
    pub store: LayerStore,
    pub open_codec: &'static dyn Codec,
    /// Rows that are not packed yet; empty where the spec has no [`Seal`].
    pub open: LayerStore,
}

impl Layer {
    /// Numbers to planes. There are no values where they are a prefix of the keys.
    pub fn encode(&self, [key, value]: [&'static dyn Codec; 2], rows: Rows) -> LayerStore {
        LayerStore {
            key: key.encode(rows.key),
            value: rows.value.map_or_else(Vec::new, |v| value.encode(v)),
        }
    }

    /// Planes to numbers.
    pub fn decode(&self, [key, value]: [&'static dyn Codec; 2], packed: &LayerStore) -> Rows {
        Rows {
            key: key.decode(&packed.key),
            value: match self.spec.row.value {
                Value::Own(_) => Some(value.decode(&packed.value)),
                Value::PrefixOfKey(_) => None,
            },
        }
    }

    /// The rows of some runs, one after the other, in tensors of their own.
    fn rows(&self, store: &LayerStore, runs: &[Run]) -> Option<LayerStore> {
        let parts: Vec<_> = runs.iter().map(|&run| store.run(run).detached()).collect();
        (!parts.is_empty()).then(|| LayerStore::join(parts))
    }
}

/// A cache that holds rows in planes, in slots that a layout gives out.
pub struct StoredCache {
    pub(crate) spec: CacheSpec,
    pub(crate) layers: BTreeMap<LayerId, Layer>,
    pub(crate) layout: Box<dyn Layout>,
    pub(crate) open: OpenRows,
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
            let allocate = |codec: &dyn Codec, slots: usize, dim| match slots * dim {
                0 => Vec::new(),
                _ => codec.allocate([slots, row.heads, dim], &device),
            };
            let planes = |[key, value]: [&'static dyn Codec; 2], slots| LayerStore {
                key: allocate(key, slots, row.key),
                value: allocate(value, slots, row.stored_value_dim()),
            };
            let open_codec = codec::open(&device);
            let open = spec.seal.as_ref().map_or(0, Seal::room) * parts.spec.sequences;
            let layer = Layer {
                spec: spec.clone(),
                codecs,
                store: planes(codecs, slots),
                open_codec,
                open: planes([open_codec; 2], open),
            };
            (spec.layer, layer)
        });
        let layers: BTreeMap<_, _> = layers.collect();
        let reserved = layers.values().map(|l| l.store.bytes() + l.open.bytes()).sum();
        let open = OpenRows::new(parts.spec.sequences);
        Self {
            spec: parts.spec,
            layers,
            layout: parts.layout,
            open,
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
        let stores = self.layers.values().flat_map(|l| [&l.store, &l.open]);
        stores.flat_map(LayerStore::planes).all(Plane::can_mut)
    }

    pub(crate) fn reserved(&self) -> Bytes {
        self.layers.values().map(|l| l.store.bytes() + l.open.bytes()).sum()
    }

    /// Copies rows from slots to slots, in every layer: whole blocks, because the rows after them are not packed yet.
    pub(crate) fn copy(&mut self, copies: &[Copy]) {
        for layer in self.layers.values_mut() {
            let block = layer.spec.block();
            for copy in copies.iter().filter(|copy| copy.len >= block) {
                let rows = layer.store.rows(copy.from, copy.len / block * block).detached();
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

    fn check_room(&self, growths: &[Growth<'_>]) -> Result<(), CacheError> {
        self.layout.check(growths).map_err(no_room)?;
        match self.seals() {
            true => self.open.check(growths).map_err(no_room),
            false => Ok(()),
        }
    }

    /// Where the packed rows of a sequence lie, and the open ones.
    fn stored_runs(&self, layer: &Layer, seq: SeqId, len: usize) -> (Vec<Run>, Vec<Run>) {
        let sealed = layer.spec.sealed(len);
        let packed = self
            .layout
            .runs(seq, len)
            .into_iter()
            .filter_map(|run| run.until(sealed));
        let room = layer.spec.seal.as_ref().map_or(1, Seal::room);
        (packed.collect(), self.open.runs(seq, room, sealed, len))
    }

    /// Saved planes of one layer as tensors: packed, and open.
    fn planes_of(&self, layer: &Layer, saved: &SavedLayer, len: usize) -> Result<(LayerStore, LayerStore), CacheError> {
        let id = layer.spec.layer;
        let wrong = |what: String| CacheError::Saved(format!("{id}: {what}"));
        let sealed = layer.spec.sealed(len);
        let ascending = saved.positions.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || saved.positions.last().is_some_and(|&last| last >= sealed) {
            return Err(wrong("the positions of its rows are damaged".into()));
        }
        let mut planes = saved.planes.iter();
        let mut take = |prefix: &str, store: &LayerStore, rows: usize| {
            let mut part = |name: &str, kept: &[Plane]| {
                let kept = kept.iter().zip(strides(kept)).enumerate().filter(|_| rows > 0);
                let planes = kept.map(|(i, (plane, stride))| {
                    let name = format!("{prefix}{name}.{i}");
                    let saved = planes.next().ok_or_else(|| wrong(format!("{name} is missing")))?;
                    let [_, heads, width] = plane.dims();
                    let shape = vec![rows / stride, heads, width];
                    let same = saved.name == name
                        && saved.data.shape().to_vec() == shape
                        && saved.data.dtype() == plane.dtype();
                    match same {
                        true => Ok(plane.like(saved.data.clone())),
                        false => Err(wrong(format!(
                            "expected {name} {shape:?} of {}, found {} {:?} of {}",
                            plane.dtype().name(),
                            saved.name,
                            saved.data.shape(),
                            saved.data.dtype().name()
                        ))),
                    }
                });
                planes.collect::<Result<Vec<_>, _>>()
            };
            Ok::<_, CacheError>(LayerStore {
                key: part("key", &store.key)?,
                value: part("value", &store.value)?,
            })
        };
        let packed = take("", &layer.store, saved.positions.len())?;
        let open = take("open.", &layer.open, len - sealed)?;
        match planes.next() {
            Some(more) => Err(wrong(format!("{} is one tensor too many", more.name))),
            None => Ok((packed, open)),
        }
    }

    /// Whether rows of some layer are packed later than they come.
    fn seals(&self) -> bool {
        self.spec.layers.iter().any(|layer| layer.seal.is_some())
    }

    /// Whether a sequence can be cut from one length to another as far as its open rows go: those that would be open
    /// again must not have been packed.
    fn reopens(&self, from: usize, to: usize) -> bool {
        let seals = self.spec.layers.iter().filter_map(|layer| layer.seal.as_ref());
        let mut seals = seals.map(|seal| (seal.sealed(to), seal.sealed(from)));
        seals.all(|(then, now)| then == to || then == now)
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
            truncate: match self.seals() {
                // Packed rows cannot be opened again.
                true => Truncate::Last(0),
                false => self.layout.rollback(),
            },
            fork: Ok(()),
            prefix_sharing: missing,
            save: match self.remembers {
                true => Ok(()),
                false => Err("it keeps no rows".into()),
            },
            lse: Ok(()),
        }
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage {
            reserved: self.reserved(),
            peak: self.peak,
            ..Usage::default()
        };
        let mut layers: Vec<&LayerSpec> = self.spec.layers.iter().collect();
        while let Some(first) = layers.first() {
            // Layers that pack alike have the same rows packed.
            let seal = first.seal.clone();
            let (same, others) = layers.into_iter().partition(|l| l.seal == seal);
            layers = others;
            let same: Vec<&LayerSpec> = same;
            let sealed = |len: usize| seal.as_ref().map_or(len, |seal| seal.sealed(len));
            let lengths = self.lengths.iter().map(|(&seq, &len)| (seq, sealed(len))).collect();
            let used = self.layout.used(&lengths);
            let open: usize = self.lengths.values().map(|&len| len - sealed(len)).sum();
            for layer in same {
                usage.payload = usage.payload + layer.payload(used.rows) + layer.open(open);
                usage.metadata = usage.metadata + layer.metadata(used.rows);
                usage.padding = usage.padding + layer.packed(used.padding);
                usage.kept = usage.kept + layer.packed(used.kept);
            }
        }
        usage
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
        if self.open.has(seq) {
            self.open
                .check(&[Growth {
                    seq: new,
                    start: 0,
                    tokens: &[],
                }])
                .map_err(no_room)?;
        }
        let copies = self.layout.fork(seq, new, len);
        let copies = copies.map_err(no_room)?;
        self.copy(&copies);
        if self.open.has(seq) {
            self.open.take(new);
            for layer in self.layers.values_mut() {
                let Some(seal) = &layer.spec.seal else { continue };
                let rows = |seq| self.open.runs(seq, seal.room(), seal.sealed(len), len);
                for (from, to) in rows(seq).into_iter().zip(rows(new)) {
                    let rows = layer.open.run(from).detached();
                    layer.open.write(to.slot, rows);
                }
            }
        }
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
        if !self.reopens(most, len) {
            return Err(CacheError::Unsupported {
                what: format!("cutting {seq} from {most} back to {len} tokens"),
                reason: "rows that were packed together cannot be opened again".into(),
            });
        }
        Ok(())
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> Result<(), CacheError> {
        self.can_truncate(seq, len)?;
        if len < self.len(seq)? {
            self.layout.truncate(seq, len);
            if len == 0 {
                self.open.release(seq);
            }
            self.lengths.insert(seq, len);
        }
        Ok(())
    }

    fn close(&mut self, seq: SeqId) -> Result<(), CacheError> {
        let known = self.lengths.remove(&seq);
        known.ok_or(CacheError::UnknownSequence(seq))?;
        self.layout.close(seq);
        self.open.release(seq);
        Ok(())
    }

    fn len(&self, seq: SeqId) -> Result<usize, CacheError> {
        let len = self.lengths.get(&seq).copied();
        len.ok_or(CacheError::UnknownSequence(seq))
    }

    fn inspect(&self, seq: SeqId, layer: LayerId) -> Result<Inspected, CacheError> {
        let len = self.len(seq)?;
        let layer = self.layers.get(&layer).ok_or(CacheError::UnknownLayer(layer))?;
        let (packed, open) = self.stored_runs(layer, seq, len);
        let parts = [
            layer
                .rows(&layer.store, &packed)
                .map(|rows| layer.decode(layer.codecs, &rows)),
            layer
                .rows(&layer.open, &open)
                .map(|rows| layer.decode([layer.open_codec; 2], &rows)),
        ];
        let row = layer.spec.row;
        let join = |parts: Vec<Tensor<3>>, dim| match parts.is_empty() {
            true => Tensor::zeros([0, row.heads, dim], &self.device),
            false => Tensor::cat(parts, 0),
        };
        let (keys, values): (Vec<_>, Vec<_>) = parts.into_iter().flatten().map(|rows| (rows.key, rows.value)).unzip();
        let runs = packed.iter().chain(&open);
        Ok(Inspected {
            positions: runs.flat_map(|run| run.position..run.position + run.len).collect(),
            rows: Rows {
                key: join(keys, row.key),
                value: match row.value {
                    Value::Own(dim) => Some(join(values.into_iter().flatten().collect(), dim)),
                    Value::PrefixOfKey(_) => None,
                },
            },
        })
    }

    fn save(&self, seq: SeqId) -> Result<Saved, CacheError> {
        let len = self.len(seq)?;
        self.capabilities().save.map_err(|reason| CacheError::Unsupported {
            what: "saving a sequence".into(),
            reason,
        })?;
        let layers = self.layers.values().map(|layer| {
            let (packed, open) = self.stored_runs(layer, seq, len);
            let mut planes = Vec::new();
            let parts = [("", &layer.store, &packed), ("open.", &layer.open, &open)];
            for (prefix, store, runs) in parts {
                let rows = layer.rows(store, runs).unwrap_or_default();
                for (name, part) in [("key", rows.key), ("value", rows.value)] {
                    planes.extend(part.into_iter().enumerate().map(|(i, plane)| SavedPlane {
                        name: format!("{prefix}{name}.{i}"),
                        data: plane.into_data(),
                    }));
                }
            }
            SavedLayer {
                layer: layer.spec.layer,
                positions: packed
                    .iter()
                    .flat_map(|run| run.position..run.position + run.len)
                    .collect(),
                planes,
            }
        });
        Ok(Saved {
            spec: self.spec.clone(),
            len,
            layers: layers.collect(),
        })
    }

    fn restore(&mut self, saved: &Saved, tokens: &[TokenId]) -> Result<SeqId, CacheError> {
        self.capabilities().save.map_err(|reason| CacheError::Unsupported {
            what: "restoring a sequence".into(),
            reason,
        })?;
        saved.check(&self.spec)?;
        if saved.len != tokens.len() {
            let what = format!("rows of {} tokens came with {} tokens", saved.len, tokens.len());
            return Err(CacheError::Saved(what));
        }
        // Every tensor is looked at before anything changes.
        let layers = self.layers.values().zip(&saved.layers);
        let stores: Vec<_> = layers
            .map(|(layer, saved)| self.planes_of(layer, saved, tokens.len()))
            .collect::<Result<_, _>>()?;
        let seq = self.new_seq();
        if tokens.is_empty() {
            self.layout.open(seq, &[]);
            self.lengths.insert(seq, 0);
            return Ok(seq);
        }
        let growth = Growth { seq, start: 0, tokens };
        self.check_room(&[growth])?;
        self.layout.append(growth);
        if self.seals() {
            self.open.take(seq);
        }
        let runs: Vec<_> = self
            .layers
            .values()
            .map(|layer| self.stored_runs(layer, seq, tokens.len()))
            .collect();
        // A layout may keep rows that the other one had let go of, behind a window.
        let lacking = runs.iter().zip(&saved.layers).find_map(|((packed, _), saved)| {
            let mut positions = packed.iter().flat_map(|run| run.position..run.position + run.len);
            positions.find(|position| saved.positions.binary_search(position).is_err())
        });
        if let Some(position) = lacking {
            self.layout.close(seq);
            self.open.release(seq);
            return Err(CacheError::Saved(format!(
                "they lack the row at position {position}, which layout = {:?} keeps; restore them into the layout that \
                 they are from",
                self.layout.name()
            )));
        }
        let layers = self.layers.values_mut().zip(&saved.layers);
        for (((layer, saved), (packed, open)), (rows, open_rows)) in layers.zip(runs).zip(stores) {
            for run in packed {
                if let Ok(row) = saved.positions.binary_search(&run.position) {
                    layer.store.write(run.slot, rows.rows(row, run.len));
                }
            }
            let mut row = 0;
            for run in open {
                layer.open.write(run.slot, open_rows.rows(row, run.len));
                row += run.len;
            }
        }
        self.lengths.insert(seq, tokens.len());
        Ok(seq)
    }

    fn begin<'a>(&'a mut self, batch: &[Chunk<'_>]) -> Result<Box<dyn Step + 'a>, CacheError> {
        let growths = self.growths(batch)?;
        self.check_room(&growths)?;
        Ok(Box::new(StoredStep::new(self, &growths)))
    }
}

fn no_room(shortage: Shortage) -> CacheError {
    CacheError::NoRoom {
        what: shortage.what.into(),
        needed: shortage.needed,
        free: shortage.free,
    }
}
