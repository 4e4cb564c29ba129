//! Every variant, layout and number format for one model: what is exact, what is lossy and by how much, and what is
//! refused, and why. Nothing is allocated; each answer comes from the same planner that builds caches.

use crate::plan::{CachePlan, find};
use crate::registry;
use burn::tensor::Device;
use kvlab_config::{Axis, CacheConfig, Capacity, CodecSpec};
use kvlab_core::{Exactness, RowSpec};
use kvlab_model::DecoderSpec;

/// What becomes of one combination.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The model's own attention, up to rounding of a format of 16 bits or more.
    Exact,
    /// Another function, or a coarse format.
    Lossy {
        /// Bits of a stored value, keys and values together, scales included.
        bits: f64,
        /// The largest error of a stored number in a row whose numbers are not larger than 1; infinite if the format
        /// has no bound of its own.
        error: f32,
        /// Whether the variant itself changes the attention.
        variant: bool,
    },
    /// It cannot be built: why not.
    Refused(String),
}

/// How rows are stored, in a column of the table.
#[derive(Clone, Debug)]
pub struct Formats {
    /// Names the column.
    pub name: &'static str,
    /// Of the keys.
    pub key: CodecSpec,
    /// Of the values.
    pub value: CodecSpec,
    /// Newest rows in full precision.
    pub residual: usize,
}

/// A variant in a layout, with what becomes of it in each of some formats.
#[derive(Clone, Debug)]
pub struct Combination {
    /// The variant's name, with what it was given besides.
    pub variant: String,
    /// The layout's name.
    pub layout: &'static str,
    /// One outcome a format.
    pub outcomes: Vec<Outcome>,
}

/// The formats that are tried, with groups that divide `dim` values.
pub fn formats(dim: usize) -> Vec<Formats> {
    let group = (1 << dim.trailing_zeros().min(5)).max(1);
    let grouped = |codec: &str, axis, rotate| CodecSpec {
        group: Some(group),
        axis,
        rotate,
        ..CodecSpec::named(codec)
    };
    let both = |name, codec: CodecSpec| Formats {
        name,
        key: codec.clone(),
        value: codec,
        residual: 0,
    };
    let plain = ["f32", "f16", "bf16"].map(|name| both(name, CodecSpec::named(name)));
    let fp8 = ["fp8_e4m3", "fp8_e5m2"].map(|name| both(name, grouped(name, None, None)));
    let int = ["int8", "int4", "int2"].map(|name| both(name, grouped(name, None, None)));
    let mut all: Vec<_> = plain.into_iter().chain(fp8).chain(int).collect();
    all.push(both("int4 rotated", grouped("int4", None, Some(true))));
    let by_channel = grouped("int4", Some(Axis::Channel), None);
    all.push(both("int4 by channel", by_channel.clone()));
    all.push(Formats {
        name: "KIVI",
        key: by_channel,
        value: grouped("int4", None, None),
        residual: group,
    });
    all
}

/// Every combination for a model on a device.
pub fn combinations(model: &DecoderSpec, device: &Device, formats: &[Formats]) -> Vec<Combination> {
    let shape = model.attention(0);
    let (window, rank) = (32, (shape.kv_heads * shape.value / 2).max(1));
    let mut all = Vec::new();
    for variant in registry::variants() {
        let mut cache = CacheConfig {
            variant: Some(variant.name().to_owned()),
            capacity: Some(Capacity::Tokens(8 * window)),
            ..CacheConfig::default()
        };
        let mut name = variant.name().to_owned();
        let unwindowed = shape.visibility.window().is_none();
        if variant.options().contains(&"window") && unwindowed {
            cache.window = Some(window);
            name += &format!(", window = {window}");
        }
        if variant.options().contains(&"kv_lora_rank") && shape.latent.is_none() {
            cache.kv_lora_rank = Some(rank);
            name += &format!(", kv_lora_rank = {rank}");
        }
        for &layout in variant.layouts() {
            let paged = layout == "paged";
            cache.layout = (layout != "none").then(|| layout.to_owned());
            cache.options.clear();
            if paged {
                cache.options.insert("page_size".into(), 32.into());
            }
            all.push(Combination {
                variant: name.clone(),
                layout,
                outcomes: formats.iter().map(|f| outcome(model, &cache, device, f)).collect(),
            });
        }
    }
    all
}

fn outcome(model: &DecoderSpec, cache: &CacheConfig, device: &Device, formats: &Formats) -> Outcome {
    let stores = cache.layout.is_some();
    if !stores {
        // Nothing is stored in any format.
        return match formats.key == CodecSpec::exact() {
            true => Outcome::Exact,
            false => Outcome::Refused(format!(
                "{} has no rows to store",
                cache.variant.as_deref().unwrap_or("")
            )),
        };
    }
    let with = |value: Option<CodecSpec>| CacheConfig {
        key: Some(formats.key.clone()),
        value,
        residual: (formats.residual > 0).then_some(formats.residual),
        ..cache.clone()
    };
    // Where values are a part of the keys they have no format.
    let plan = CachePlan::new(model, &with(Some(formats.value.clone())), device);
    let plan = plan.or_else(|error| match error {
        crate::EngineError::Setting(_) => CachePlan::new(model, &with(None), device),
        other => Err(other),
    });
    let spec = match plan.and_then(|plan| plan.spec()) {
        Ok(spec) => spec,
        Err(error) => return Outcome::Refused(error.to_string()),
    };
    let Exactness::Lossy(reasons) = spec.exactness else {
        return Outcome::Exact;
    };
    let layer = &spec.layers[0];
    let (bits, error) = cost(layer.row, formats);
    Outcome::Lossy {
        bits,
        error,
        variant: reasons.iter().any(|reason| !reason.contains("bits a value")),
    }
}

/// Bits of a value, and the largest error of a number in a row whose numbers are not larger than 1.
fn cost(row: RowSpec, formats: &Formats) -> (f64, f32) {
    let parts = [(&formats.key, row.key), (&formats.value, row.stored_value_dim())];
    let mut total = (0.0, 0.0_f32);
    for (codec, dim) in parts.into_iter().filter(|(_, dim)| *dim > 0) {
        if let Ok(codec) = find(codec) {
            total.0 += codec.format(dim).bits(dim) * dim as f64;
            total.1 = total.1.max(codec.max_error(dim, 1.0));
        }
    }
    (total.0 / (row.key + row.stored_value_dim()) as f64, total.1)
}
