//! Laws of every codec: within its bound, its bytes as predicted, row by row.

#![allow(clippy::unwrap_used)]

use super::*;
use burn::tensor::{DType, TensorData};
use proptest::prelude::*;
use serde_json::json;

pub(super) fn codec(name: &str, pairs: serde_json::Value) -> &'static dyn Codec {
    made(name, pairs).unwrap()
}

fn made(name: &str, pairs: serde_json::Value) -> Result<&'static dyn Codec, String> {
    make(name, &Options(pairs.as_object().unwrap().clone().into_iter().collect()))
}

fn tensor(rows: &[Vec<f32>]) -> Tensor<3> {
    let data = TensorData::new(rows.concat(), [rows.len(), 1, rows[0].len()]);
    Tensor::from_data(data, (&Device::flex(), DType::F32))
}

fn numbers(t: Tensor<3>) -> Vec<f32> {
    t.into_data().try_into_vec().unwrap()
}

/// A vector, followed by as many others of its numbers as the codec packs together.
fn block(codec: &dyn Codec, vector: &[f32]) -> Vec<Vec<f32>> {
    let turned = |i: usize| [&vector[i % vector.len()..], &vector[..i % vector.len()]].concat();
    (0..codec.block()).map(turned).collect()
}

/// What is left of a vector.
fn passed(codec: &dyn Codec, vector: &[f32]) -> Vec<f32> {
    let mut back = numbers(codec.decode(&codec.encode(tensor(&block(codec, vector)))));
    back.truncate(vector.len());
    back
}

fn worst(a: &[f32], b: &[f32]) -> f32 {
    let pairs = a.iter().zip(b);
    pairs.fold(0.0, |max, (a, b)| {
        if (a - b).is_nan() {
            f32::INFINITY
        } else {
            max.max((a - b).abs())
        }
    })
}

/// Every codec with each of its options, for vectors of 64 and more.
fn every() -> Vec<&'static dyn Codec> {
    let mut all: Vec<_> = ALL.iter().map(|family| codec(family.name, json!({}))).collect();
    for name in ["int8", "int4", "int2"] {
        for scheme in ["symmetric", "asymmetric"] {
            for scale in ["f16", "f32"] {
                for rotate in [false, true] {
                    let options = json!({"group": 16, "scheme": scheme, "scale": scale, "rotate": rotate});
                    all.push(codec(name, options));
                }
            }
            all.push(codec(name, json!({"scheme": scheme, "clip": true})));
            all.push(codec(name, json!({"scheme": scheme, "axis": "channel", "group": 4})));
            let options =
                json!({"scheme": scheme, "axis": "channel", "group": 8, "rotate": true, "clip": true, "scale": "f32"});
            all.push(codec(name, options));
        }
    }
    for name in ["fp8_e4m3", "fp8_e5m2"] {
        all.push(codec(name, json!({"scale": "none"})));
        all.push(codec(name, json!({"scale": "f32", "group": 16})));
        all.push(codec(name, json!({"rotate": true})));
    }
    all
}

/// Vectors that lay traps: sign of a scale, empty range, rounding of the metadata, ends of the formats.
fn adversarial() -> Vec<Vec<f32>> {
    let from = |f: fn(usize) -> f32| (0..64).map(f).collect::<Vec<f32>>();
    vec![
        from(|_| 0.0),
        from(|_| -0.0),
        from(|_| 0.1),
        from(|_| -3.3),
        from(|i| if i == 37 { 90.0 } else { 0.01 * i as f32 }),
        from(|i| if i == 37 { -90.0 } else { 0.01 * i as f32 }),
        from(|i| -(i as f32) - 0.5),
        from(|i| i as f32 / 63.0 - 0.5),
        from(|i| if i % 2 == 0 { 1.0 } else { -1.0 }),
        from(|i| 1000.0 + 0.01 * i as f32),
        from(|i| -1000.0 - 0.01 * i as f32),
        from(|i| f32::from_bits(i as u32 * 77)),
        from(|i| 1e-7 * i as f32),
        from(|i| 900.0 * (i as f32 - 32.0)),
        from(|i| if i == 63 { 7e-8 } else { -6e-8 }),
        from(|i| 2.0_f32.powi(i as i32 % 20 - 10) * if i % 3 == 0 { -1.0 } else { 1.0 }),
    ]
}

fn check_bound(codec: &dyn Codec, vector: &[f32]) {
    let max_abs = vector.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
    let back = passed(codec, vector);
    let (error, allowed) = (worst(vector, &back), codec.max_error(vector.len(), max_abs));
    assert!(
        error <= allowed,
        "{}: off by {error:e}, allowed {allowed:e}\n{vector:?}\n{back:?}",
        codec.name()
    );
    assert!(
        back.iter().all(|x| x.is_finite()) || allowed.is_infinite(),
        "{}: {back:?}",
        codec.name()
    );
}

#[test]
fn traps_stay_within_the_bound() {
    for codec in every() {
        for vector in adversarial() {
            check_bound(codec, &vector);
        }
    }
}

proptest! {
    #[test]
    fn anything_stays_within_the_bound(
        vector in prop::collection::vec(-1.0_f32..1.0, 64),
        magnitude in -20..16,
    ) {
        let vector: Vec<_> = vector.into_iter().map(|x| x * 2.0_f32.powi(magnitude)).collect();
        for codec in every() {
            check_bound(codec, &vector);
        }
    }
}

fn random(seed: u32, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 * 2.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// T31.
#[test]
fn more_bits_are_closer() {
    for scheme in ["symmetric", "asymmetric"] {
        for seed in 1..50 {
            let vector = random(seed, 64);
            let error = |name| worst(&vector, &passed(codec(name, json!({"scheme": scheme})), &vector));
            let (int8, int4, int2) = (error("int8"), error("int4"), error("int2"));
            assert!(8.0 * int8 < int4 && 2.0 * int4 < int2, "{scheme}: {int8} {int4} {int2}");
        }
    }
}

/// The bound is not so loose that it means nothing.
#[test]
fn the_bound_is_nearly_reached() {
    for (name, scheme) in [
        ("int8", "symmetric"),
        ("int4", "symmetric"),
        ("int4", "asymmetric"),
        ("int2", "asymmetric"),
    ] {
        let codec = codec(name, json!({"scheme": scheme}));
        let mut worst_error: f32 = 0.0;
        for seed in 1..200 {
            let mut vector = random(seed, 32);
            (vector[0], vector[1]) = (1.0, -1.0);
            worst_error = worst_error.max(worst(&vector, &passed(codec, &vector)));
        }
        assert!(
            worst_error > 0.9 * codec.max_error(32, 1.0),
            "{name} {scheme}: {worst_error}"
        );
    }
    for (name, allowed) in [
        ("int8", 1.0 / 254.0),
        ("int4", 1.0 / 14.0),
        ("fp8_e4m3", 1.0 / 16.0),
        ("fp8_e5m2", 1.0 / 8.0),
    ] {
        let bound = codec(name, json!({})).max_error(64, 1.0);
        assert!((bound / allowed - 1.0).abs() < 2e-3, "{name}: {bound}");
    }
}

/// T97.
#[test]
fn bits_of_a_value() {
    let bits = |name, options| {
        let format = codec(name, options).format(128);
        format.bits(128)
    };
    assert_eq!(bits("int4", json!({})), 4.5);
    assert_eq!(bits("int4", json!({"scheme": "asymmetric"})), 5.0);
    assert_eq!(bits("int8", json!({})), 8.5);
    assert_eq!(bits("int2", json!({})), 3.0);
    assert_eq!(bits("int2", json!({"scale": "f32", "group": 64})), 3.0);
    assert_eq!(bits("fp8_e4m3", json!({})), 8.125);
    assert_eq!(bits("fp8_e5m2", json!({"scale": "none"})), 8.0);
}

/// Also for vectors that do not end at a byte.
#[test]
fn bytes_are_as_predicted() {
    let mut cases: Vec<_> = every().into_iter().flat_map(|c| [(c, 64), (c, 80), (c, 576)]).collect();
    cases.push((codec("int4", json!({"group": 7})), 7));
    cases.push((codec("int2", json!({"group": 3})), 9));
    for (codec, dim) in cases {
        let device = Device::flex();
        if codec.check(&[dim], &device).is_err() {
            continue;
        }
        let format = codec.format(dim);
        let slots = 5 * codec.block();
        let planes = codec.allocate([slots, 3, dim], &device);
        let bytes: u64 = planes.iter().map(|plane| plane.bytes().0).sum();
        assert_eq!(
            bytes,
            3 * (format.payload(dim) * slots as u64 + format.metadata(dim, slots)).0,
            "{} of {dim}",
            codec.name()
        );
        let rows = [block(codec, &random(5, dim)), block(codec, &random(6, dim))].concat();
        let encoded = codec.encode(tensor(&rows));
        let shapes = |planes: &[Plane]| planes.iter().map(|p| p.dims()[2]).collect::<Vec<_>>();
        assert_eq!(shapes(&encoded), shapes(&planes), "{} of {dim}", codec.name());
        assert_eq!(codec.decode(&encoded).dims(), [rows.len(), 1, dim]);
        // What was never written is zero.
        assert!(
            numbers(codec.decode(&planes)).iter().all(|&x| x == 0.0),
            "{} of {dim}",
            codec.name()
        );
    }
}

fn raw(planes: Vec<Plane>) -> Vec<Vec<u8>> {
    let bytes = planes.into_iter().map(|plane| match plane {
        Plane::Float(t) => t.into_data().as_bytes().to_vec(),
        Plane::Int(t) => t.into_data().as_bytes().to_vec(),
    });
    bytes.collect()
}

/// T39.
#[test]
fn chunks_give_the_same_codes() {
    for codec in every() {
        let block = codec.block();
        // More than a thread encodes at a time.
        let rows: Vec<_> = (0..300_usize.next_multiple_of(block))
            .map(|seed| random(seed as u32 + 1, 64))
            .collect();
        let whole = raw(codec.encode(tensor(&rows)));
        let chunks: Vec<_> = rows
            .chunks(3 * block)
            .map(|chunk| raw(codec.encode(tensor(chunk))))
            .collect();
        let joined = (0..whole.len()).map(|plane| chunks.iter().flat_map(|c| c[plane].clone()).collect());
        assert_eq!(whole, joined.collect::<Vec<Vec<u8>>>(), "{}", codec.name());
        let store = crate::LayerStore {
            key: codec.encode(tensor(&rows)),
            value: Vec::new(),
        };
        let view = store.rows(2 * block, 3 * block).key;
        let part = codec.encode(tensor(&rows[2 * block..5 * block]));
        assert_eq!(
            numbers(codec.decode(&view)),
            numbers(codec.decode(&part)),
            "{}: a view",
            codec.name()
        );
    }
}

#[test]
fn a_broken_model_is_not_hidden() {
    for codec in every() {
        for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut vector = vec![1.0; 64];
            vector[20] = poison;
            let back = passed(codec, &vector);
            assert!(!back[20].is_finite(), "{}: {poison} became {}", codec.name(), back[20]);
        }
    }
}

#[test]
fn saturation_is_finite() {
    let vector: Vec<_> = (0..64).map(|i| if i % 2 == 0 { 3e38 } else { -3e38 }).collect();
    for codec in every()
        .into_iter()
        .filter(|codec| !codec.name().starts_with("f16") && codec.name() != "bf16")
    {
        let (back, bound) = (passed(codec, &vector), codec.max_error(64, 3e38));
        let rotated = codec.name().contains("rotate");
        assert!(
            rotated || back.iter().all(|x| x.is_finite()),
            "{}: {back:?}",
            codec.name()
        );
        assert!(worst(&vector, &back) <= bound, "{}", codec.name());
    }
    let big = passed(codec("int8", json!({"scheme": "asymmetric"})), &[1e6; 32]);
    assert!(big.iter().all(|&x| x == 65_504.0), "{big:?}");
}

fn squared_error(codec: &dyn Codec, vector: &[f32]) -> f32 {
    let back = passed(codec, vector);
    vector.iter().zip(&back).map(|(a, b)| (a - b).powi(2)).sum()
}

/// Never worse over a group, and clearly better on numbers that pile up around zero.
#[test]
fn clipping_lowers_the_squared_error() {
    for name in ["int8", "int4", "int2"] {
        for scheme in ["symmetric", "asymmetric"] {
            let error = |clip: bool, vector: &[f32]| {
                squared_error(
                    codec(name, json!({"scheme": scheme, "clip": clip, "group": 64})),
                    vector,
                )
            };
            let (mut plain, mut clipped) = (0.0, 0.0);
            for seed in 1..40 {
                let vector: Vec<_> = random(seed, 64).into_iter().map(|x| x * x * x).collect();
                let (a, b) = (error(false, &vector), error(true, &vector));
                assert!(b <= a * (1.0 + 1e-4), "{name} {scheme}: {b} {a}");
                (plain, clipped) = (plain + a, clipped + b);
            }
            assert!(
                name == "int8" || clipped < 0.95 * plain,
                "{name} {scheme}: {clipped} {plain}"
            );
        }
    }
}

/// A large channel costs the others nothing where each has its own scale.
#[test]
fn a_channel_of_its_own_is_cheap() {
    let large = |i| {
        let mut row = random(i, 64);
        row[7] += 100.0;
        row
    };
    let rows: Vec<_> = (1..33).map(large).collect();
    let error = |axis| {
        let codec = codec("int4", json!({"axis": axis, "scheme": "asymmetric"}));
        worst(&rows.concat(), &numbers(codec.decode(&codec.encode(tensor(&rows)))))
    };
    assert!(10.0 * error("channel") < error("token"));
}

/// A rotation makes one outlier cheap.
#[test]
fn rotation_helps_against_an_outlier() {
    let mut vector: Vec<_> = random(3, 64);
    vector[9] = 50.0;
    let error = |options| squared_error(codec("int4", options), &vector);
    let (plain, rotated) = (error(json!({"group": 64})), error(json!({"group": 64, "rotate": true})));
    assert!(2.0 * rotated < plain, "{rotated} {plain}");
}

/// T32, T79.
#[test]
fn groups_that_do_not_fit_are_refused() {
    let refuse = |options, parts: &[usize]| codec("int8", options).check(parts, &Device::flex()).unwrap_err();
    for (dim, group) in [(80, 64), (96, 64), (8, 32), (7, 2)] {
        let reason = refuse(json!({"group": group}), &[dim]);
        assert!(
            reason.contains(&dim.to_string()) && reason.contains(&group.to_string()),
            "{reason}"
        );
    }
    assert!(refuse(json!({"group": 64}), &[80]).ends_with("group = 16 divides both"));
    let reason = refuse(json!({"group": 14}), &[20, 8]);
    assert!(
        reason.contains("20 latent") && reason.contains("8 that rotate"),
        "{reason}"
    );
    assert!(refuse(json!({"group": 16}), &[20, 8]).ends_with("group = 4 divides both"));
    assert!(refuse(json!({"group": 1, "rotate": true}), &[7]).contains("rotate"));
    assert!(refuse(json!({"group": 2, "rotate": true}), &[6, 2]).contains("rotate"));
    let fine = |options, parts: &[usize]| codec("int8", options).check(parts, &Device::flex()).unwrap();
    fine(json!({"group": 4, "rotate": true}), &[20, 8]);
    fine(json!({}), &[512, 64]);
    fine(json!({}), &[]);
    fine(json!({}), &[0]);
    let fp8 = codec("fp8_e4m3", json!({}));
    assert!(
        fp8.check(&[512, 64], &Device::flex())
            .unwrap_err()
            .contains("group = 64")
    );
    assert_eq!(
        codec("fp8_e4m3", json!({"scale": "none"})).check(&[512, 64], &Device::flex()),
        Ok(())
    );
}

#[test]
fn options_are_checked() {
    let refused = |name, options, word: &str| {
        let reason = made(name, options).map(|c| c.name()).unwrap_err();
        assert!(reason.contains(word), "{reason}");
    };
    refused("int8", json!({"axis": "row"}), "token, channel");
    refused("int8", json!({"scheme": "odd"}), "symmetric, asymmetric");
    refused("int8", json!({"group": 0}), "at least 1");
    refused("int8", json!({"group": "x"}), "whole number");
    refused("int8", json!({"rotate": 1}), "true or false");
    refused("int8", json!({"clip": 1}), "true or false");
    refused("int8", json!({"clap": true}), "no option clap");
    refused("f16", json!({"group": 32}), "has no options");
    refused("int3", json!({}), "known are f32, ");
    refused("fp8_e4m3", json!({"scale": "none", "group": 32}), "no effect");
}

/// One name, one format: what is left out and what is the default are the same.
#[test]
fn names_say_what_differs() {
    assert_eq!(codec("int4", json!({})).name(), "int4");
    let same = json!({"group": 32, "axis": "token", "rotate": false, "scheme": "symmetric", "scale": "f16"});
    assert_eq!(codec("int4", same).name(), "int4");
    let other = json!({"rotate": true, "scale": "f32", "group": 16});
    assert_eq!(
        codec("int4", other.clone()).name(),
        "int4(group=16,scale=f32,rotate=true)"
    );
    assert!(
        std::ptr::eq(codec("int4", other.clone()).name(), codec("int4", other).name()),
        "made once"
    );
}
