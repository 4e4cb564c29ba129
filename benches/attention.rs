//! Attention of one layer over the catalogue, for each kernel and codec: what a step costs behind a cache, warm. For cold
//! caches and the machine's bandwidth, see the bench `decode`.
//!
//! `cargo bench --bench attention`, or with a filter: `cargo bench --bench attention -- "smollm2 decode @ 2048/cpu"`.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use burn::tensor::Device;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kvlab_core::{Accept, Chunk, KvCache, LayerId, Query, Rows, SeqId, TokenId, Value};
use kvlab_engine::registry;
use kvlab_kernels::{cpu::Cpu, reference::Reference};
use kvlab_store::{Codec, Kernel, LayerPlan, Options, Plan, codec};
use kvlab_testkit::catalogue::{Case, real};
use serde_json::json;

/// Each kernel alone.
const KERNELS: [&[&dyn Kernel]; 2] = [&[&Cpu::BEST], &[&Reference]];

/// A cache for one layer, `depth` tokens full.
fn filled(
    case: &Case,
    codec: &'static dyn Codec,
    kernels: &'static [&'static dyn Kernel],
) -> (Box<dyn KvCache>, SeqId) {
    let own = if case.shape.latent.is_some() { "mla" } else { "gqa" };
    let variant = registry::variant(own).unwrap();
    let options = Options(
        case.shape
            .latent
            .is_none()
            .then(|| ("num_key_value_heads".to_owned(), case.shape.kv_heads.into()))
            .into_iter()
            .collect(),
    );
    let fit = variant.fit(&case.shape, &options).unwrap();
    let plan = Plan {
        layers: vec![LayerPlan {
            layer: LayerId(0),
            shape: case.shape.clone(),
            row: fit.row,
            codecs: [codec; 2],
        }],
        layout: if case.shape.visibility.window().is_some() {
            "ring"
        } else {
            "contiguous"
        }
        .into(),
        page_size: 16,
        prefix_sharing: false,
        residual: 0,
        capacity: case.depth + case.chunk,
        sequences: 1,
        retention: fit.retention,
        exactness: fit.exactness,
        kernels,
        device: Device::flex(),
    };
    let mut cache = variant.build(&plan).unwrap();
    let seq = cache.open(&[]).unwrap().seq;
    if case.depth > 0 {
        let tokens: Vec<TokenId> = vec![0; case.depth];
        let mut step = cache.begin(&[Chunk { seq, tokens: &tokens }]).unwrap();
        step.extend(LayerId(0), rows(case, case.depth)).unwrap();
        step.commit(Accept::All).unwrap();
    }
    (cache, seq)
}

fn random(shape: [usize; 3]) -> burn::tensor::Tensor<3> {
    burn::tensor::Tensor::random(shape, burn::tensor::Distribution::Uniform(-1.0, 1.0), &Device::flex())
}

fn rows(case: &Case, tokens: usize) -> Rows {
    let row = case.shape.native_row();
    Rows {
        key: random([tokens, row.heads, row.key]),
        value: match row.value {
            Value::Own(dim) => Some(random([tokens, row.heads, dim])),
            Value::PrefixOfKey(_) => None,
        },
    }
}

fn attention(c: &mut Criterion) {
    for case in real() {
        let row = case.shape.native_row();
        let mut group = c.benchmark_group(case.name);
        group.sample_size(20);
        for family in codec::ALL {
            // A latent of 512 + 64 values shares no scale between its parts in groups of 32.
            let options = if family.name.starts_with("fp8") {
                json!({ "group": 64 })
            } else {
                json!({})
            };
            let options = Options(options.as_object().cloned().unwrap_or_default().into_iter().collect());
            let codec = codec::make(family.name, &options).unwrap();
            for kernels in KERNELS {
                let (mut cache, seq) = filled(&case, codec, kernels);
                let seen = case.shape.visibility.window().map_or(case.depth, |w| case.depth.min(w));
                let bytes = cache.spec().per_token() * seen as u64;
                group.throughput(Throughput::Bytes(bytes.0.max(1)));
                let tokens: Vec<TokenId> = vec![0; case.chunk];
                group.bench_function(format!("{}/{}", kernels[0].name(), codec.name()), |b| {
                    b.iter_batched(
                        || {
                            (
                                rows(&case, case.chunk),
                                random([case.chunk, case.shape.query_heads, row.key]),
                            )
                        },
                        |(rows, q)| {
                            let mut step = cache.begin(&[Chunk { seq, tokens: &tokens }]).unwrap();
                            step.extend_attend(LayerId(0), rows, Query::new(q, 0.125)).unwrap()
                        },
                        BatchSize::SmallInput,
                    );
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, attention);
criterion_main!(benches);
