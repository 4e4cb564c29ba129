//! From a model's layers and the `[cache]` of a config to the caches that are built.

use crate::{EngineError, registry};
use burn::tensor::Device;
use kvlab_config::{CacheConfig, Capacity, CodecSpec};
use kvlab_core::{Adaptation, Bytes, CacheSpec, Exactness, KvCache, LayerId, Retention, Value};
use kvlab_model::DecoderSpec;
use kvlab_store::{Codec, Fit, Grouped, LayerPlan, Options, Plan, Variant, codec};

/// Tokens of a sequence where the config does not say, unless the model takes fewer.
const DEFAULT_CAPACITY: usize = 8192;

/// Slots of a page where the config does not say.
const DEFAULT_PAGE_SIZE: usize = 16;

/// Which cache holds which layers. Nothing is allocated yet.
pub struct CachePlan {
    groups: Vec<(&'static dyn Variant, Plan)>,
    /// What the model must do to each of its layers.
    pub adaptations: Vec<Adaptation>,
}

impl CachePlan {
    /// Fits a cache to a model.
    ///
    /// # Errors
    /// [`EngineError::Variant`], [`EngineError::Setting`], [`EngineError::Build`].
    pub fn new(model: &DecoderSpec, config: &CacheConfig, device: &Device) -> Result<Self, EngineError> {
        check_layers(model, config)?;
        let mut groups: Vec<(&'static dyn Variant, Plan)> = Vec::new();
        let mut adaptations = Vec::new();
        let options = options(config)?;
        let page_size = options
            .positive("page_size")
            .map_err(EngineError::Setting)?
            .unwrap_or(DEFAULT_PAGE_SIZE);
        let prefix_sharing = options
            .flag("prefix_sharing")
            .map_err(EngineError::Setting)?
            .unwrap_or(false);
        for layer in 0..model.layers() {
            let shape = model.attention(layer);
            let variant = match &config.variant {
                Some(name) => registry::variant(name)
                    .ok_or_else(|| EngineError::Setting(format!("there is no cache variant {name:?}")))?,
                None => registry::own(&shape),
            };
            let layer = LayerId(layer);
            let fit = variant.fit(&shape, &options).map_err(|reason| EngineError::Variant {
                variant: variant.name().to_owned(),
                layer,
                reason,
            })?;
            let Fit {
                row,
                retention,
                adaptation,
                exactness,
            } = fit;
            adaptations.push(adaptation);
            let windowed = shape.visibility.window().is_some() || retention != Retention::All;
            let layout = layout(variant, config.layout.as_deref(), windowed)?;
            let codecs = [find(&config.key_codec(layer.0))?, find(&config.value_codec(layer.0))?];
            let visibility = shape.visibility;
            if matches!(row.value, Value::PrefixOfKey(_)) && value_is_named(config, layer.0) {
                return Err(EngineError::Setting(format!(
                    "cache.value has no effect in {layer}: with {}, values are a part of the keys; leave it out",
                    variant.name()
                )));
            }
            let plan = LayerPlan {
                layer,
                shape,
                row,
                codecs,
            };
            let same = groups.iter_mut().find(|(v, group)| {
                v.name() == variant.name()
                    && group.layout == layout
                    && group.retention == retention
                    && group.layers[0].shape.visibility == visibility
            });
            match same {
                Some((_, group)) => {
                    group.layers.push(plan);
                    group.exactness = both(&group.exactness, exactness);
                }
                None => groups.push((
                    variant,
                    Plan {
                        layers: vec![plan],
                        layout: layout.to_owned(),
                        page_size,
                        prefix_sharing,
                        residual: config.residual.unwrap_or(0),
                        capacity: model.max_positions().min(DEFAULT_CAPACITY),
                        sequences: config.sequences,
                        retention,
                        exactness,
                        kernels: kvlab_kernels::ALL,
                        device: device.clone(),
                    },
                )),
            }
        }
        let mut plan = Self { groups, adaptations };
        match config.capacity {
            Some(Capacity::Tokens(tokens)) => plan.set_capacity(tokens),
            Some(Capacity::Bytes(budget)) => plan.fit_budget(Bytes(budget), model.max_positions())?,
            None => {}
        }
        Ok(plan)
    }

    fn set_capacity(&mut self, tokens: usize) {
        for (_, group) in &mut self.groups {
            group.capacity = tokens;
        }
    }

    /// The most tokens whose allocation stays within `budget`.
    fn fit_budget(&mut self, budget: Bytes, most: usize) -> Result<(), EngineError> {
        let (mut fits, mut beyond) = (0, most + 1);
        while fits + 1 < beyond {
            let middle = fits + (beyond - fits) / 2;
            self.set_capacity(middle);
            if self.spec()?.allocated() <= budget {
                fits = middle;
            } else {
                beyond = middle;
            }
        }
        self.set_capacity(fits.max(1));
        let spec = self.spec()?;
        if fits == 0 {
            return Err(EngineError::Setting(format!(
                "cache.capacity = {budget} holds not one token: {} sequences take {} a token",
                spec.sequences,
                spec.allocated()
            )));
        }
        Ok(())
    }

    /// What the cache will hold.
    ///
    /// # Errors
    /// [`EngineError::Build`].
    pub fn spec(&self) -> Result<CacheSpec, EngineError> {
        let specs = self.groups.iter().map(|(variant, plan)| variant.spec(plan));
        Ok(Grouped::spec_of(&specs.collect::<Result<Vec<_>, _>>()?))
    }

    /// Allocates the cache.
    ///
    /// # Errors
    /// [`EngineError::Memory`] where the machine has less, [`EngineError::Build`].
    pub fn build(&self) -> Result<Box<dyn KvCache>, EngineError> {
        let spec = self.spec()?;
        let on_host = self.groups.iter().any(|(_, plan)| plan.device == Device::flex());
        if let Some(available) = free_memory().filter(|free| on_host && *free < spec.allocated()) {
            return Err(EngineError::Memory {
                needed: spec.allocated(),
                available,
                capacity: spec.capacity,
                sequences: spec.sequences,
            });
        }
        let mut caches = Vec::with_capacity(self.groups.len());
        for (variant, plan) in &self.groups {
            caches.push(variant.build(plan)?);
        }
        Ok(match caches.len() {
            1 => caches.remove(0),
            _ => Box::new(Grouped::new(caches)),
        })
    }
}

/// Whether the config gives the values of a layer a format.
fn value_is_named(config: &CacheConfig, layer: usize) -> bool {
    let own = config.layers.iter().filter(|entry| entry.layers.contains(&layer));
    config.value.is_some() || own.into_iter().any(|entry| entry.value.is_some())
}

fn check_layers(model: &DecoderSpec, config: &CacheConfig) -> Result<(), EngineError> {
    let named = config.layers.iter().flat_map(|entry| &entry.layers);
    match named.max() {
        Some(&layer) if layer >= model.layers() => Err(EngineError::Setting(format!(
            "[[cache.layer]] names layer {layer}, and the model has {} layers, counted from 0",
            model.layers()
        ))),
        _ => Ok(()),
    }
}

/// The options of `[cache]` by the names that variants know them by.
fn options(config: &CacheConfig) -> Result<Options, EngineError> {
    let mut options = Options::default();
    let counts = [
        ("num_key_value_heads", config.num_key_value_heads),
        ("window", config.window),
        ("sinks", config.sinks),
        ("kv_lora_rank", config.kv_lora_rank),
    ];
    for (key, count) in counts {
        if let Some(count) = count {
            options.0.insert(key.to_owned(), count.into());
        }
    }
    for (key, value) in &config.options {
        let value = serde_json::to_value(value)
            .map_err(|error| EngineError::Setting(format!("cache.{key} cannot be read: {error}")))?;
        options.0.insert(key.clone(), value);
    }
    Ok(options)
}

fn layout(variant: &dyn Variant, asked: Option<&str>, windowed: bool) -> Result<&'static str, EngineError> {
    let layouts = variant.layouts();
    let default = match windowed {
        true => layouts.iter().find(|l| **l == "ring").or(layouts.first()),
        false => layouts.iter().find(|l| **l != "ring"),
    };
    let found = match asked {
        Some(asked) => layouts.iter().find(|l| **l == asked),
        None => default,
    };
    found.copied().ok_or_else(|| {
        EngineError::Setting(format!(
            "cache variant {} cannot have the layout {}; it takes {}",
            variant.name(),
            asked.unwrap_or("contiguous"),
            layouts.join(", ")
        ))
    })
}

pub(crate) fn find(spec: &CodecSpec) -> Result<&'static dyn Codec, EngineError> {
    let mut options = Options::default();
    let fields: [(_, Option<serde_json::Value>); 3] = [
        ("group", spec.group.map(Into::into)),
        ("axis", spec.axis.map(|axis| axis.to_string().into())),
        ("rotate", spec.rotate.map(Into::into)),
    ];
    for (key, value) in fields {
        options.0.extend(value.map(|value| (key.to_owned(), value)));
    }
    for (key, value) in &spec.options {
        let value = serde_json::to_value(value)
            .map_err(|error| EngineError::Setting(format!("{}: {key} cannot be read: {error}", spec.codec)))?;
        options.0.insert(key.clone(), value);
    }
    codec::make(&spec.codec, &options)
        .map_err(|reason| EngineError::Setting(format!("cache format {}: {reason}", spec.codec)))
}

fn both(a: &Exactness, b: Exactness) -> Exactness {
    match (a, b) {
        (Exactness::Exact, b) => b,
        (a, Exactness::Exact) => a.clone(),
        (Exactness::Lossy(a), Exactness::Lossy(b)) => {
            let new = b.into_iter().filter(|reason| !a.contains(reason)).collect::<Vec<_>>();
            Exactness::Lossy(a.iter().cloned().chain(new).collect())
        }
    }
}

/// Memory that can be had without swapping, where the operating system says.
pub fn free_memory() -> Option<Bytes> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib * 1024))
}
