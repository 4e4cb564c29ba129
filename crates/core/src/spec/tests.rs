//! The accounting against figures that the field knows.

use super::*;

fn spec(layers: usize, row: RowSpec, format: Format) -> CacheSpec {
    let layers = (0..layers).map(|i| LayerSpec {
        layer: LayerId(i),
        variant: "test".into(),
        layout: "contiguous".into(),
        query_heads: 32,
        row,
        visibility: Visibility::Causal,
        retention: Retention::All,
        key: format.clone(),
        value: format.clone(),
        rows_per_sequence: 131_072,
        page_size: 0,
        seal: None,
    });
    CacheSpec {
        variant: "test".into(),
        layers: layers.collect(),
        capacity: 131_072,
        sequences: 1,
        exactness: Exactness::Exact,
    }
}

fn heads(heads: usize, dim: usize) -> RowSpec {
    RowSpec {
        heads,
        key: dim,
        value: Value::Own(dim),
    }
}

/// Llama 3.1 8B: 32 layers, 8 KV heads of 128, f16.
#[test]
fn llama_3_1_8b_in_f16() {
    let f16 = Format::plain("f16", 16);
    let gqa = spec(32, heads(8, 128), f16.clone());
    assert_eq!(gqa.per_token(), Bytes(128 << 10));
    assert_eq!(gqa.used_at(8192), Bytes(1 << 30));
    assert_eq!(gqa.used_at(131_072), Bytes(16 << 30));
    assert_eq!(gqa.allocated(), Bytes(16 << 30));
    let mha = spec(32, heads(32, 128), f16.clone());
    assert_eq!(mha.per_token(), Bytes(512 << 10));
    let mqa = spec(32, heads(1, 128), f16);
    assert_eq!(mqa.per_token(), Bytes(16 << 10));
}

/// DeepSeek-V3: 61 layers, latent 512 + rope 64, stored once: not twice.
#[test]
fn deepseek_v3_in_bf16() {
    let row = RowSpec {
        heads: 1,
        key: 576,
        value: Value::PrefixOfKey(512),
    };
    let mla = spec(61, row, Format::plain("bf16", 16));
    assert_eq!(mla.per_token(), Bytes(70_272));
}

/// int4 in groups of 32: 4.5 bits with an f16 scale, 5.0 with a zero point too (T97).
#[test]
fn bits_per_value_count_scales_and_zero_points() {
    let int4 = |metadata_bits| Format {
        name: "int4".into(),
        payload_bits: 4,
        group: 32,
        per_channel: false,
        metadata_bits,
    };
    let bits = |f: &Format| 8.0 * (f.payload(128) + f.metadata(128, 1)).0 as f64 / 128.0;
    assert_eq!(bits(&int4(16)), 4.5);
    assert_eq!(bits(&int4(32)), 5.0);
}

#[test]
fn a_window_stops_growing() {
    let mut swa = spec(1, heads(2, 8), Format::plain("f32", 32));
    swa.layers[0].rows_per_sequence = 6;
    let per_token = 2 * 2 * 8 * 4;
    assert_eq!(swa.used_at(5), Bytes(5 * per_token));
    assert_eq!(swa.used_at(100), Bytes(6 * per_token));
}
