//! What a variant is to the engine: how it fits a model's attention, and how its cache is built.

use crate::cache::{Adopt, Parts, StoredCache};
use crate::layout::{Contiguous, Paged, Reach, Ring};
use crate::{Codec, Kernel, Layout, codec};
use burn::tensor::Device;
use kvlab_core::{
    Adaptation, AttentionShape, CacheSpec, Exactness, KvCache, LayerId, LayerSpec, Retention, RowSpec, Seal,
};
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use thiserror::Error;

/// A way to cache attention. One crate (or one file) and one line in the engine's registry.
pub trait Variant: Send + Sync {
    /// Its name in a config.
    fn name(&self) -> &'static str;

    /// One line for `kvlab inspect` and the docs.
    fn summary(&self) -> &'static str;

    /// The keys of `[cache]` that it reads besides those that every cache has.
    fn options(&self) -> &'static [&'static str];

    /// The layouts it can take, the default first. `ring` is the default of a layer with a window instead,
    /// where it is among them.
    fn layouts(&self) -> &'static [&'static str] {
        &["contiguous", "ring", "paged"]
    }

    /// How it would hold a layer of this shape.
    ///
    /// # Errors
    /// Why it cannot, in words that name the option or the model's property.
    fn fit(&self, shape: &AttentionShape, options: &Options) -> Result<Fit, String>;

    /// The spec of the cache that [`build`](Self::build) would allocate.
    ///
    /// # Errors
    /// [`BuildError`].
    fn spec(&self, plan: &Plan) -> Result<CacheSpec, BuildError> {
        plan.stored_spec(self.name())
    }

    /// Allocates a cache for layers that all fit, with one layout and one window.
    ///
    /// # Errors
    /// [`BuildError`].
    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError>;
}

/// How a variant holds one layer.
#[derive(Clone, Debug)]
pub struct Fit {
    /// What a token stores.
    pub row: RowSpec,
    /// Which rows are kept.
    pub retention: Retention,
    /// What the model must do to its layer.
    pub adaptation: Adaptation,
    /// Whether the output stays that of the model's own attention.
    pub exactness: Exactness,
}

/// Options of a variant, from `[cache]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options(pub BTreeMap<String, serde_json::Value>);

impl Options {
    /// A whole number of at least 1.
    ///
    /// # Errors
    /// If it is there and is something else.
    pub fn positive(&self, key: &str) -> Result<Option<usize>, String> {
        match self.count(key)? {
            Some(0) => Err(format!("cache.{key} must be at least 1")),
            n => Ok(n),
        }
    }

    /// True or false.
    ///
    /// # Errors
    /// If it is there and is something else.
    pub fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        let value = self.0.get(key);
        value
            .map(|v| {
                v.as_bool()
                    .ok_or_else(|| format!("cache.{key} must be true or false, not {v}"))
            })
            .transpose()
    }

    /// A whole number of at least 0.
    ///
    /// # Errors
    /// If it is there and is something else.
    pub fn count(&self, key: &str) -> Result<Option<usize>, String> {
        let Some(value) = self.0.get(key) else {
            return Ok(None);
        };
        let n = value.as_u64().and_then(|n| usize::try_from(n).ok());
        n.map(Some)
            .ok_or_else(|| format!("cache.{key} must be a whole number, not {value}"))
    }
}

/// One layer of a cache to be built.
#[derive(Clone)]
pub struct LayerPlan {
    /// Which.
    pub layer: LayerId,
    /// The model's attention.
    pub shape: AttentionShape,
    /// What is stored of it.
    pub row: RowSpec,
    /// Codecs of keys and values.
    pub codecs: [&'static dyn Codec; 2],
}

/// A cache to be built.
#[derive(Clone)]
pub struct Plan {
    /// Its layers; they all have one visibility and one retention.
    pub layers: Vec<LayerPlan>,
    /// Name of the layout.
    pub layout: String,
    /// Slots of a page, at least 1; for a paged layout.
    pub page_size: usize,
    /// Whether prompts find stored prefixes; for a paged layout.
    pub prefix_sharing: bool,
    /// Newest rows that are kept in full precision.
    pub residual: usize,
    /// Tokens a sequence can have.
    pub capacity: usize,
    /// Sequences with rows at the same time.
    pub sequences: usize,
    /// Which rows are kept.
    pub retention: Retention,
    /// Whether the output stays that of the model's own attention.
    pub exactness: Exactness,
    /// Kernels, best first.
    pub kernels: &'static [&'static dyn Kernel],
    /// Where to allocate.
    pub device: Device,
}

impl Plan {
    /// The spec of a cache after this plan.
    pub fn spec_with(&self, variant: &str, layout: &str, rows_per_sequence: usize) -> CacheSpec {
        let layers = self.layers.iter().map(|plan| LayerSpec {
            layer: plan.layer,
            variant: variant.into(),
            layout: layout.into(),
            query_heads: plan.shape.query_heads,
            row: plan.row,
            visibility: plan.shape.visibility,
            retention: self.retention,
            key: plan.codecs[0].format(plan.row.key),
            value: plan.codecs[1].format(plan.row.stored_value_dim()),
            rows_per_sequence,
            page_size: if layout == "paged" { self.page_size } else { 0 },
            seal: self.seal(plan),
        });
        CacheSpec {
            variant: variant.into(),
            layers: layers.collect(),
            capacity: self.capacity,
            sequences: self.sequences,
            exactness: self.exactness_with_formats(),
        }
    }

    /// Formats below 16 bits are lossy too, and say so.
    fn exactness_with_formats(&self) -> Exactness {
        let mut reasons = match &self.exactness {
            Exactness::Exact => Vec::new(),
            Exactness::Lossy(reasons) => reasons.clone(),
        };
        for plan in &self.layers {
            let dims = [("keys", plan.row.key), ("values", plan.row.stored_value_dim())];
            for (codec, (what, dim)) in plan.codecs.iter().zip(dims).filter(|(_, (_, dim))| *dim > 0) {
                let format = codec.format(dim);
                let reason = format!("{what} stored as {}: {} bits a value", codec.name(), format.bits(dim));
                if format.payload_bits < 16 && !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
        match reasons.is_empty() {
            true => Exactness::Exact,
            false => Exactness::Lossy(reasons),
        }
    }

    /// When the rows of a layer are packed, if not at once.
    fn seal(&self, layer: &LayerPlan) -> Option<Seal> {
        let block = Self::block(layer);
        let packs = layer
            .codecs
            .iter()
            .any(|codec| codec.format(layer.row.key).payload_bits < 16);
        (block > 1 || packs && self.residual > 0).then(|| Seal {
            block,
            residual: self.residual,
            open: codec::open(&self.device).format(layer.row.key),
        })
    }

    /// Rows that are packed together.
    fn block(layer: &LayerPlan) -> usize {
        layer.codecs.iter().map(|codec| codec.block()).max().unwrap_or(1)
    }

    /// Whether rows can be packed later than they come, with this layout and window.
    fn check_seal(&self, window: Option<usize>) -> Result<(), BuildError> {
        let refuse = |what: String| Err(BuildError::Refused(what));
        let residual = self.residual;
        if residual > 0 && self.layers.iter().all(|layer| self.seal(layer).is_none()) {
            return refuse(format!(
                "cache.residual = {residual} has no effect: no format here has fewer than 16 bits"
            ));
        }
        for layer in self.layers.iter().filter(|layer| self.seal(layer).is_some()) {
            let (block, page) = (Self::block(layer), self.page_size);
            let id = layer.layer;
            let different = layer
                .codecs
                .iter()
                .map(|codec| codec.block())
                .find(|&b| b != 1 && b != block);
            if let Some(other) = different {
                return refuse(format!(
                    "{id}: keys and values with scales along the channel need one group, and have {block} and {other} tokens"
                ));
            }
            if self.layout == "paged" && !page.is_multiple_of(block) {
                return refuse(format!(
                    "{id}: a page of {page} rows would cut a group of {block} tokens that share scales; use cache.page_size = {}",
                    page.next_multiple_of(block)
                ));
            }
            if self.layout == "paged" && self.prefix_sharing && residual > 0 {
                return refuse(format!(
                    "{id}: cache.prefix_sharing needs cache.residual = 0: the {residual} newest rows of a stored prefix would be \
                     packed already, and a prompt that finds it would not give what it gives alone"
                ));
            }
            if self.layout == "ring" && block > 1 {
                return refuse(format!(
                    "{id}: layout = \"ring\" drops rows one by one, and {block} tokens share scales along the channel; use \
                     layout = \"paged\""
                ));
            }
            if let Some(window) = window.filter(|window| residual + block > *window) {
                return refuse(format!(
                    "{id}: a window of {window} tokens leaves nothing to pack behind cache.residual = {residual} and groups \
                     of {block} tokens; make them smaller"
                ));
            }
        }
        Ok(())
    }

    /// The layout, with the rows that it holds of one sequence.
    fn layout(&self) -> Result<(Box<dyn Layout>, usize), BuildError> {
        let (capacity, sequences) = (self.capacity, self.sequences);
        // The layers have one visibility.
        let seen = self.layers.first().and_then(|l| l.shape.visibility.window());
        let (kept, sinks) = match self.retention {
            Retention::All => (None, 0),
            Retention::Window { window, sinks } => (Some(window.get()), sinks),
        };
        let window = seen.into_iter().chain(kept).min();
        self.check_seal(window)?;
        let block = self.layers.iter().map(Self::block).fold(1, lcm);
        match self.layout.as_str() {
            "contiguous" => {
                let contiguous = Contiguous::new(capacity, sequences, block);
                let rows = contiguous.rows_per_sequence();
                Ok((Box::new(contiguous), rows))
            }
            "paged" => {
                let pages = capacity.div_ceil(self.page_size);
                // Sinks are seen only where the model's own window does not hide them.
                let reach = Reach {
                    window: window.unwrap_or(usize::MAX),
                    sinks: if seen.is_none() { sinks } else { 0 },
                };
                let count = pages * sequences;
                let paged =
                    Paged::<RandomState>::new_in_blocks(block, self.page_size, count, reach, self.prefix_sharing);
                Ok((Box::new(paged), pages * self.page_size))
            }
            "ring" => {
                let window = window.ok_or_else(|| BuildError::Refused(NO_WINDOW.into()))?;
                if sinks >= capacity {
                    let what = format!("{sinks} sinks leave no room for others in a capacity of {capacity} tokens");
                    return Err(BuildError::Refused(what));
                }
                let ring = Ring::new(window, sinks, capacity, sequences);
                let rows = ring.rows_per_sequence();
                Ok((Box::new(ring), rows))
            }
            other => Err(BuildError::Refused(format!(
                "there is no layout {other:?}; known are contiguous, ring and paged"
            ))),
        }
    }

    /// The spec of the cache that [`store`](Self::store) would build.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn stored_spec(&self, variant: &str) -> Result<CacheSpec, BuildError> {
        let (layout, rows) = self.layout()?;
        self.check_codecs()?;
        Ok(self.spec_with(variant, layout.name(), rows))
    }

    fn check_codecs(&self) -> Result<(), BuildError> {
        for plan in &self.layers {
            let parts = [plan.row.key_parts(), vec![plan.row.stored_value_dim()]];
            for (codec, parts) in plan.codecs.iter().zip(parts) {
                let ok = codec.check(&parts, &self.device);
                ok.map_err(|reason| BuildError::Codec {
                    layer: plan.layer,
                    codec: codec.name(),
                    reason,
                })?;
            }
        }
        Ok(())
    }

    /// A [`StoredCache`] after this plan.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn store(&self, variant: &str, adopt: Adopt) -> Result<StoredCache, BuildError> {
        let (layout, rows) = self.layout()?;
        self.check_codecs()?;
        Ok(StoredCache::new(Parts {
            spec: self.spec_with(variant, layout.name(), rows),
            codecs: self.layers.iter().map(|l| l.codecs).collect(),
            layout,
            kernels: self.kernels,
            adopt,
            remembers: true,
            device: self.device.clone(),
        }))
    }
}

fn lcm(a: usize, b: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    a / gcd(a, b).max(1) * b
}

const NO_WINDOW: &str = "layout = \"ring\" needs a window: this layer sees every row, and the cache keeps every row; use layout = \"contiguous\", or variant = \"swa\" with a window";

/// Why a cache could not be built.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum BuildError {
    /// The parts do not go together.
    #[error("{0}")]
    Refused(String),
    /// A codec cannot hold these rows here.
    #[error("{layer}: cache format {codec}: {reason}")]
    Codec {
        /// The layer.
        layer: LayerId,
        /// The codec.
        codec: &'static str,
        /// Why not.
        reason: String,
    },
}
