//! Every variant in every number format: which caches a plan compares, and the spec of each. Nothing is allocated; each answer
//! comes from the planner that builds caches.

use crate::{PlanError, Subject};
use kvlab_config::{CacheConfig, Capacity, CodecSpec, Device};
use kvlab_core::{CacheSpec, Exactness, Format, RowSpec, Value};
use kvlab_engine::combinations::{self, Formats};
use kvlab_engine::{CachePlan, OpenDevice, registry};

/// The formats that are columns: those of the engine's table that differ in bytes.
const FORMATS: [&str; 7] = ["f32", "f16", "bf16", "fp8_e4m3", "int8", "int4", "int2"];

/// The window of a cache that drops old rows, in tokens, where no file says: that of Mistral 7B v0.1 (arXiv 2310.06825).
const WINDOW: usize = 4096;

/// How rows are stored: a column.
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: ColumnKind,
}

pub(crate) enum ColumnKind {
    /// A number format of keys and values.
    Format(Formats),
    /// The formats of the model file, which may differ by layer and between keys and values.
    File,
    /// A format that kvlab does not have: so many bits a number.
    Bits(u32),
}

/// A variant with its options: a row.
pub(crate) struct Variant {
    /// `gqa`, `swa 4096`.
    pub(crate) label: String,
    /// Whether it is the model's own attention.
    pub(crate) own: bool,
    /// What a model file may call it.
    names: Vec<String>,
    cache: CacheConfig,
}

/// What is compared for a subject.
pub(crate) struct Caches<'a> {
    pub(crate) subject: &'a Subject,
    device: OpenDevice,
    pub(crate) columns: Vec<Column>,
    pub(crate) variants: Vec<Variant>,
    /// The column that the model file asks for, if it names formats.
    file: Option<usize>,
}

impl<'a> Caches<'a> {
    /// The variants and formats for a subject; `bits` adds a format of so many bits.
    pub(crate) fn new(subject: &'a Subject, bits: Option<u32>) -> Result<Self, PlanError> {
        // The device decides nothing about bytes.
        let device = OpenDevice::open(Device::Cpu)?;
        let mut caches = Self {
            subject,
            device,
            columns: columns(subject, bits),
            variants: Vec::new(),
            file: None,
        };
        caches.variants = caches.all_variants()?;
        caches.file = caches.file_column();
        Ok(caches)
    }

    /// Which column is that of the model file; its own goes where another one stores the same.
    fn file_column(&mut self) -> Option<usize> {
        let file = self
            .columns
            .iter()
            .position(|column| matches!(column.kind, ColumnKind::File))?;
        let layers = |column: &Column| {
            let spec = self.spec(self.variants.first()?, column, self.subject.model.max_positions(), 1);
            spec.ok().map(|spec| spec.layers)
        };
        let wanted = layers(&self.columns[file]);
        let same = |column: &Column| {
            matches!(column.kind, ColumnKind::Format(_)) && wanted.is_some() && layers(column) == wanted
        };
        match self.columns.iter().position(same) {
            Some(same) => {
                self.columns.remove(file);
                Some(same)
            }
            None => Some(file),
        }
    }

    /// The column and the row that the model file asks for, or else the model's own attention in `codec`, or in f16.
    pub(crate) fn chosen(&self, codec: Option<&str>) -> Result<(usize, usize), PlanError> {
        let cache = &self.subject.cache;
        let column = match codec {
            Some(codec) => {
                let same = |column: &Column| column.name == codec || (codec == "fp8_e4m3" && column.name == "fp8");
                self.columns.iter().position(same).ok_or_else(|| {
                    let known: Vec<_> = self.columns.iter().map(|column| column.name.as_str()).collect();
                    PlanError::Request(format!(
                        "there is no cache format {codec:?} in this plan; it has {}",
                        known.join(", ")
                    ))
                })?
            }
            None => {
                let f16 = || self.columns.iter().position(|column| column.name == "f16");
                self.file.or_else(f16).unwrap_or(0)
            }
        };
        let wanted = cache.variant.as_deref().filter(|name| *name != "none");
        let row = wanted.and_then(|name| self.variants.iter().position(|v| v.names.iter().any(|n| n == name)));
        Ok((row.unwrap_or(0), column))
    }

    /// What a cache of `sequences` sequences of `tokens` tokens would hold, or why there is none.
    pub(crate) fn spec(
        &self,
        variant: &Variant,
        column: &Column,
        tokens: usize,
        sequences: usize,
    ) -> Result<CacheSpec, String> {
        let mut cache = CacheConfig {
            capacity: Some(Capacity::Tokens(tokens)),
            ..variant.cache.clone()
        };
        let exact = CodecSpec::exact();
        let (key, value) = match &column.kind {
            ColumnKind::Format(formats) => (&formats.key, &formats.value),
            ColumnKind::Bits(_) => (&exact, &exact),
            ColumnKind::File => {
                let file = &self.subject.cache;
                cache.residual = file.residual;
                cache.layers = file.layers.clone();
                (
                    file.key.as_ref().unwrap_or(&exact),
                    file.value.as_ref().unwrap_or(&exact),
                )
            }
        };
        cache.key = Some(key.clone());
        cache.value = Some(value.clone());
        let mut spec = self.plan(&cache).or_else(|refused| {
            // Where values are a part of the keys they have no format, and `[cache]` must not name one.
            cache.value = None;
            let spec = self.plan(&cache).ok();
            let latent = |spec: &CacheSpec| {
                let mut layers = spec.layers.iter();
                layers.all(|layer| matches!(layer.row.value, Value::PrefixOfKey(_)))
            };
            spec.filter(latent).ok_or(refused)
        })?;
        // A layout has the same rows of each sequence; its lists of slots need not be made for all of them.
        spec.sequences = sequences;
        if let ColumnKind::Bits(bits) = column.kind {
            let format = Format::plain(&column.name, bits);
            for layer in &mut spec.layers {
                (layer.key, layer.value, layer.seal) = (format.clone(), format.clone(), None);
            }
            if bits < 16 {
                let reason = format!("{bits} bits a number");
                let mut reasons = match spec.exactness {
                    Exactness::Exact => Vec::new(),
                    Exactness::Lossy(reasons) => reasons,
                };
                reasons.push(reason);
                spec.exactness = Exactness::Lossy(reasons);
            }
        }
        Ok(spec)
    }

    fn plan(&self, cache: &CacheConfig) -> Result<CacheSpec, String> {
        let plan = CachePlan::new(&self.subject.model, cache, &self.device.device);
        plan.and_then(|plan| plan.spec()).map_err(|error| error.to_string())
    }

    /// The model's own attention, then every variant that is not the same.
    fn all_variants(&self) -> Result<Vec<Variant>, PlanError> {
        let tokens = self.subject.model.max_positions();
        let column = Column {
            name: "f32".into(),
            kind: ColumnKind::Bits(32),
        };
        let mut own = Variant {
            label: String::new(),
            own: true,
            names: Vec::new(),
            cache: CacheConfig::default(),
        };
        let file = &self.subject.cache;
        if file.variant.is_none() {
            own.cache.layout.clone_from(&file.layout);
            own.cache.options.clone_from(&file.options);
        }
        let own_spec = self.spec(&own, &column, tokens, 1).map_err(PlanError::Request)?;
        own.label.clone_from(&own_spec.variant);
        let mut others = Vec::new();
        for variant in registry::variants() {
            if variant.layouts() == ["none"] {
                continue;
            }
            let cache = self.options(variant.name(), variant.options());
            let named = Variant {
                label: label(&cache, variant.name()),
                own: false,
                names: vec![variant.name().to_owned()],
                cache,
            };
            let spec = self.spec(&named, &column, tokens, 1);
            match spec.is_ok_and(|spec| same_rows(&spec, &own_spec)) {
                true => own.names.push(variant.name().to_owned()),
                false => others.push(named),
            }
        }
        others.insert(0, own);
        Ok(others)
    }

    /// `[cache]` of a variant: what the file says about it, or else something that this model can have.
    fn options(&self, name: &str, known: &[&str]) -> CacheConfig {
        let (file, shape) = (&self.subject.cache, self.subject.model.attention(0));
        let takes = |key: &str| known.contains(&key);
        let mut cache = CacheConfig {
            variant: Some(name.to_owned()),
            ..CacheConfig::default()
        };
        if file.variant.as_deref() == Some(name) {
            cache.layout.clone_from(&file.layout);
            cache.options.clone_from(&file.options);
        }
        if takes("num_key_value_heads") {
            let grouped = shape.latent.is_none() && shape.kv_heads == shape.query_heads;
            let fewer = [4, 2, 3]
                .into_iter()
                .find(|n| shape.kv_heads > *n && shape.kv_heads.is_multiple_of(*n));
            let default = fewer.filter(|_| grouped).map(|n| shape.kv_heads / n);
            cache.num_key_value_heads = file.num_key_value_heads.or(default);
        }
        if takes("window") {
            let layers = 0..self.subject.model.layers();
            let all_windowed = layers
                .into_iter()
                .all(|layer| self.subject.model.attention(layer).visibility.window().is_some());
            let default = WINDOW.min(self.subject.model.max_positions() / 4).max(1);
            cache.window = file.window.or((!all_windowed).then_some(default));
            cache.sinks = file.sinks;
        }
        if takes("kv_lora_rank") && shape.latent.is_none() {
            // Half of what the values have: a rank that saves something.
            let default = (shape.kv_heads * shape.value / 2).max(1);
            cache.kv_lora_rank = file.kv_lora_rank.or(Some(default));
        }
        cache
    }
}

fn label(cache: &CacheConfig, name: &str) -> String {
    let options = [cache.num_key_value_heads, cache.window, cache.kv_lora_rank];
    let options = options.iter().flatten().map(|n| format!(" {n}"));
    let mut label = name.to_owned() + &options.collect::<String>();
    if let Some(sinks) = cache.sinks.filter(|sinks| *sinks > 0) {
        label += &format!("+{sinks}");
    }
    label
}

/// Whether two caches hold the same rows of every layer, and none of them changes the attention.
fn same_rows(a: &CacheSpec, b: &CacheSpec) -> bool {
    let rows = |spec: &CacheSpec| -> Vec<(RowSpec, _, _)> {
        let layers = spec.layers.iter();
        layers
            .map(|layer| (layer.row, layer.retention, layer.rows_per_sequence))
            .collect()
    };
    rows(a) == rows(b)
}

fn columns(subject: &Subject, bits: Option<u32>) -> Vec<Column> {
    let shape = subject.model.attention(0);
    // Groups divide the heads, and the latent where there is one.
    let dims = match shape.latent {
        Some(latent) => latent.rank | latent.rope | shape.key | shape.value,
        None => shape.key | shape.value,
    };
    let formats = combinations::formats(dims)
        .into_iter()
        .filter(|formats| FORMATS.contains(&formats.name));
    let file = &subject.cache;
    let named = file.key.is_some() || file.value.is_some() || !file.layers.is_empty();
    let name = |codec: &Option<CodecSpec>| codec.as_ref().map_or("f32", |codec| codec.codec.as_str()).to_owned();
    let file = named.then(|| Column {
        name: match (name(&file.key), name(&file.value)) {
            _ if !file.layers.is_empty() => "file".into(),
            (key, value) if key == value => format!("{key} (file)"),
            (key, value) => format!("{key}/{value}"),
        },
        kind: ColumnKind::File,
    });
    let plain = formats.map(|formats| Column {
        name: formats.name.trim_end_matches("_e4m3").to_owned(),
        kind: ColumnKind::Format(formats),
    });
    let bits = bits.map(|bits| Column {
        name: format!("{bits} bits"),
        kind: ColumnKind::Bits(bits),
    });
    plain.chain(bits).chain(file).collect()
}
