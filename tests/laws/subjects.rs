//! Every variant, layout and codec as a subject of the laws.

use burn::tensor::{Device, Tensor};
use kvlab_core::{
    Accept, AttentionShape, Chunk, KvCache, LatentShape, LayerId, Query, Retention, RowSpec, Rows, Seal, SeqId, Value,
    Visibility,
};
use kvlab_store::{BuildError, Codec, Grouped, LayerPlan, Options, Plan, StoredCache, Variant, codec};
use kvlab_testkit::{Layer, Size, Subject};
use serde_json::json;
use std::num::NonZeroUsize;

fn heads(query_heads: usize, kv_heads: usize) -> AttentionShape {
    AttentionShape {
        hidden: 32,
        query_heads,
        kv_heads,
        key: 8,
        value: 6,
        rotary: 8,
        latent: None,
        visibility: Visibility::Causal,
    }
}

fn windowed(window: usize, shape: AttentionShape) -> AttentionShape {
    AttentionShape {
        visibility: Visibility::Window(NonZeroUsize::new(window).unwrap()),
        ..shape
    }
}

fn latent() -> AttentionShape {
    AttentionShape {
        latent: Some(LatentShape { rank: 6, rope: 4 }),
        ..heads(4, 4)
    }
}

fn options(pairs: serde_json::Value) -> Options {
    let pairs = pairs.as_object().unwrap().clone();
    Options(pairs.into_iter().collect())
}

/// Variant, shape of its layers, options.
fn cases() -> Vec<(&'static str, AttentionShape, Options)> {
    let none = Options::default;
    vec![
        ("none", heads(4, 2), none()),
        ("none", windowed(4, heads(4, 2)), none()),
        ("mha", heads(4, 4), none()),
        ("mha", heads(4, 2), none()),
        ("gqa", heads(4, 2), none()),
        ("gqa", heads(6, 3), none()),
        ("gqa", windowed(4, heads(4, 2)), none()),
        ("mqa", heads(4, 1), none()),
        ("swa", windowed(1, heads(4, 2)), none()),
        ("swa", windowed(4, heads(4, 2)), none()),
        ("swa", heads(4, 2), options(json!({"window": 4}))),
        ("swa", heads(4, 4), options(json!({"window": 3, "sinks": 2}))),
        (
            "swa",
            windowed(8, heads(4, 2)),
            options(json!({"window": 4, "sinks": 1})),
        ),
        ("swa", latent(), options(json!({"window": 5}))),
        ("mla", latent(), none()),
        ("mla", windowed(4, latent()), none()),
    ]
}

fn plan(variant: &dyn Variant, shape: &AttentionShape, options: &Options, layers: usize) -> Plan {
    let fit = variant.fit(shape, options).unwrap();
    Plan {
        layers: (0..layers)
            .map(|layer| LayerPlan {
                layer: LayerId(layer),
                shape: shape.clone(),
                row: fit.row,
                codecs: [codec::EXACT; 2],
            })
            .collect(),
        layout: String::new(),
        page_size: 4,
        prefix_sharing: true,
        residual: 0,
        capacity: 0,
        sequences: 0,
        retention: fit.retention,
        exactness: fit.exactness,
        kernels: kvlab_kernels::ALL,
        device: Device::flex(),
    }
}

/// The rows that the model hands over: its own, whatever is made of them.
fn layer(shape: &AttentionShape, retention: Retention) -> Layer {
    Layer {
        row: shape.native_row(),
        query_heads: shape.query_heads,
        visibility: shape.visibility,
        retention,
    }
}

/// Of attention in f32. What a codec rounds away is in [`Subject::stored`].
const TOLERANCE: f64 = 2e-5;

/// What a cache leaves of the rows of a sequence: those that are packed, and those that are not yet.
fn through([key, value]: [&dyn Codec; 2], seal: Option<&Seal>, device: &Device, rows: Rows) -> Rows {
    let pass = |codec: &dyn Codec, rows: Tensor<3>| {
        let len = rows.dims()[0];
        let packed = seal.map_or(len, |seal| seal.sealed(len));
        // Packed rows were open ones first.
        let open = codec::open(device);
        let rows = match seal {
            Some(_) => open.decode(&open.encode(rows)),
            None => rows,
        };
        let part = |codec: &dyn Codec, from: usize, n: usize| {
            (n > 0).then(|| codec.decode(&codec.encode(rows.clone().narrow(0, from, n))))
        };
        let parts = [
            part(codec, 0, packed),
            part(if seal.is_some() { open } else { codec }, packed, len - packed),
        ];
        Tensor::cat(parts.into_iter().flatten().collect(), 0)
    };
    Rows {
        key: pass(key, rows.key),
        value: rows.value.map(|rows| pass(value, rows)),
    }
}

/// How a cache stores rows.
#[derive(Clone, Copy)]
pub struct Formats {
    codecs: [&'static dyn Codec; 2],
    residual: usize,
}

impl Formats {
    fn one(codec: &'static dyn Codec) -> Self {
        Self {
            codecs: [codec; 2],
            residual: 0,
        }
    }

    fn exact(&self) -> bool {
        self.codecs.iter().all(|codec| codec.name() == "f32")
    }
}

impl std::fmt::Display for Formats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [key, value] = self.codecs.map(|codec| codec.name());
        write!(f, "{key}/{value}+{}", self.residual)
    }
}

fn make(name: &str, pairs: serde_json::Value) -> &'static dyn Codec {
    codec::make(name, &options(pairs)).unwrap()
}

/// Formats of fewer bits. Their groups fit every head size of the cases, and windows where they can.
fn packed() -> Vec<Formats> {
    let int8 = make("int8", json!({"group": 2}));
    let channel = make("int4", json!({"group": 4, "axis": "channel", "scheme": "asymmetric"}));
    let mixed = |key, value, residual| Formats {
        codecs: [key, value],
        residual,
    };
    vec![
        Formats::one(int8),
        Formats::one(make(
            "int4",
            json!({"group": 2, "scheme": "asymmetric", "rotate": true}),
        )),
        Formats::one(make("int2", json!({"group": 2, "scale": "f32"}))),
        Formats::one(make("fp8_e4m3", json!({"group": 2}))),
        Formats::one(make("fp8_e5m2", json!({"scale": "none"}))),
        mixed(int8, make("f16", json!({})), 0),
        // KIVI: keys by channel, values by token, the newest rows as they came.
        mixed(channel, make("int4", json!({"group": 2})), 3),
        Formats::one(make("int8", json!({"group": 2, "axis": "channel", "rotate": true}))),
        mixed(int8, int8, 2),
    ]
}

fn subject(
    variant: &'static dyn Variant,
    (shape, options): (&AttentionShape, &Options),
    layout: &'static str,
    formats: Formats,
    device: &Device,
) -> Result<Subject, BuildError> {
    let mut plan = plan(variant, shape, options, 2);
    plan.device = device.clone();
    plan.layout = layout.into();
    plan.residual = formats.residual;
    plan.prefix_sharing = formats.residual == 0;
    plan.layers.iter_mut().for_each(|l| l.codecs = formats.codecs);
    // A combination that does not work is refused before anything is allocated.
    let sized = Plan {
        capacity: 48,
        sequences: 1,
        ..plan.clone()
    };
    let seal = variant.spec(&sized)?.layers[0].seal.clone();
    let (device_, later) = (device.clone(), seal.is_some());
    Ok(Subject {
        name: format!("{} {layout} {formats} {shape:?} {options:?}", variant.name()),
        layers: vec![layer(shape, plan.retention); 2],
        tolerance: TOLERANCE,
        stored: (!formats.exact()).then(|| {
            let stored = move |rows| through(formats.codecs, seal.as_ref(), &device_, rows);
            Box::new(stored) as kvlab_testkit::Stored
        }),
        device: device.clone(),
        // Rows that are packed later have borders of their own.
        thorough: formats.exact() || later && variant.name() == "gqa",
        build: Box::new(move |size: Size| {
            let plan = Plan {
                capacity: size.capacity,
                sequences: size.sequences,
                ..plan.clone()
            };
            variant.build(&plan).unwrap()
        }),
    })
}

/// Every variant of the registry in every layout and codec that it takes.
pub fn cpu() -> Vec<Subject> {
    all(&Device::flex(), |_| true)
}

/// A variant that is not in the registry, in f32 on the processor, for rows with heads and for latent ones.
pub fn of(variant: &'static dyn Variant, options: serde_json::Value) -> Vec<Subject> {
    let options = self::options(options);
    let shapes = [heads(4, 2), heads(4, 4), windowed(4, heads(4, 2)), latent()];
    let subjects = shapes.iter().map(|shape| {
        subject(
            variant,
            (shape, &options),
            variant.layouts()[0],
            Formats::one(codec::EXACT),
            &Device::flex(),
        )
        .unwrap()
    });
    subjects.collect()
}

/// Layers of one shape, whole rows and pages of four, in f32 on the processor.
pub fn of_shape(shape: &AttentionShape) -> Vec<Subject> {
    let name = match (shape.latent, shape.visibility) {
        (Some(_), _) => "mla",
        (None, Visibility::Window(_)) => "swa",
        (None, Visibility::Causal) => "mha",
    };
    let variant = kvlab_engine::registry::variant(name).unwrap();
    let layouts = ["contiguous", "paged"].into_iter();
    layouts
        .map(|layout| {
            subject(
                variant,
                (shape, &Options::default()),
                layout,
                Formats::one(codec::EXACT),
                &Device::flex(),
            )
            .unwrap()
        })
        .collect()
}

/// The same on a graphics device, if there is one: some of them, because software is slow at it.
pub fn wgpu() -> Option<Vec<Subject>> {
    let name = kvlab_config::Device::Wgpu(None);
    let device = kvlab_engine::OpenDevice::open(name).ok()?.device;
    let exact = all(&device, |name| name.contains(" f32/f32")).into_iter().step_by(5);
    let packed = all(&device, |name| {
        name.starts_with("gqa paged int") || name.starts_with("mla contiguous int8")
    });
    Some(exact.chain(packed.into_iter().step_by(3)).collect())
}

fn all(device: &Device, keep: impl Fn(&str) -> bool) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for (name, shape, options) in cases() {
        let variant = kvlab_engine::registry::variant(name).unwrap();
        for layout in variant.layouts() {
            let plain = ["f32", "f16", "bf16"].map(|name| Formats::one(make(name, json!({}))));
            for formats in plain.into_iter().chain(packed()) {
                // Rows that are not stored have no format.
                let pointless = *layout == "none" && !formats.exact();
                let key = format!("{name} {layout} {formats}");
                if !pointless && keep(&key) {
                    match subject(variant, (&shape, &options), layout, formats, device) {
                        Ok(subject) => subjects.push(subject),
                        Err(BuildError::Refused(_) | BuildError::Codec { .. }) => {}
                    }
                }
            }
        }
    }
    let hybrid = hybrid(device);
    subjects.extend(keep(&hybrid.name).then_some(hybrid));
    subjects
}

/// Layers 0 and 2 with a window in a ring, layer 1 with everything, layer 3 with a wider window.
fn hybrid(device: &Device) -> Subject {
    let shapes = [
        windowed(4, heads(4, 2)),
        heads(4, 2),
        windowed(4, heads(4, 2)),
        windowed(7, heads(4, 2)),
    ];
    let device_ = device.clone();
    Subject {
        name: "grouped ring+contiguous f32".into(),
        layers: shapes.iter().map(|s| layer(s, Retention::All)).collect(),
        tolerance: TOLERANCE,
        stored: None,
        device: device.clone(),
        thorough: true,
        build: Box::new(move |size| {
            let group = |variant: &str, layout: &str, ids: &[usize], shape: &AttentionShape| {
                let variant = kvlab_engine::registry::variant(variant).unwrap();
                let mut plan = plan(variant, shape, &Options::default(), ids.len());
                for (layer, id) in plan.layers.iter_mut().zip(ids) {
                    layer.layer = LayerId(*id);
                }
                plan.layout = layout.into();
                plan.capacity = size.capacity;
                plan.sequences = size.sequences;
                plan.device = device_.clone();
                variant.build(&plan).unwrap()
            };
            Box::new(Grouped::new(vec![
                group("swa", "ring", &[0, 2], &shapes[0]),
                group("gqa", "contiguous", &[1], &shapes[1]),
                group("swa", "ring", &[3], &shapes[3]),
            ]))
        }),
    }
}

/// Stored caches, for a look at their planes.
pub fn stored() -> Vec<(String, StoredCache)> {
    let mut caches = Vec::new();
    for layout in ["contiguous", "ring"] {
        let plain = ["f32", "f16"].map(|name| codec::make(name, &Options::default()).unwrap());
        for formats in plain.map(Formats::one).into_iter().chain(packed()) {
            let variant = kvlab_engine::registry::variant("swa").unwrap();
            let mut plan = plan(variant, &windowed(4, heads(4, 2)), &Options::default(), 2);
            plan.layers.iter_mut().for_each(|l| l.codecs = formats.codecs);
            plan.layout = layout.into();
            plan.residual = formats.residual;
            plan.capacity = 32;
            plan.sequences = 2;
            match plan.store("swa", |_, rows| rows) {
                Ok(cache) => caches.push((format!("{layout} {formats}"), cache)),
                Err(refused) => assert!(matches!(refused, BuildError::Refused(_)), "{refused}"),
            }
        }
    }
    caches
}

/// A step with numbers that do not matter.
pub fn feed(cache: &mut StoredCache, seq: SeqId, tokens: usize) {
    let device = Device::flex();
    let row: RowSpec = cache.spec().layers[0].row;
    let query_heads = cache.spec().layers[0].query_heads;
    let layers: Vec<_> = cache.spec().layers.iter().map(|l| l.layer).collect();
    let ids = vec![1; tokens];
    let mut step = cache.begin(&[Chunk { seq, tokens: &ids }]).unwrap();
    for layer in layers {
        let rows = Rows {
            key: Tensor::ones([tokens, row.heads, row.key], &device),
            value: match row.value {
                Value::Own(dim) => Some(Tensor::ones([tokens, row.heads, dim], &device)),
                Value::PrefixOfKey(_) => None,
            },
        };
        let query = Query::new(Tensor::ones([tokens, query_heads, row.key], &device), 1.0);
        step.extend_attend(layer, rows, query).unwrap();
    }
    step.commit(Accept::All).unwrap();
}
