//! Packed number formats in whole models: how far they move the logits, and what is refused when a config is loaded.

use super::*;
use burn::tensor::{Device, Tensor, TensorData};
use kvlab_core::{Accept, Chunk, KvCache, LayerId, Query, Rows, SeqId, Span};

fn refused(text: &str) -> String {
    let text = format!("schema = 1\nname = \"x\"\n{text}");
    match config(&text) {
        Ok(config) => Engine::load(&config, &mut |_, _| {}).err().unwrap().to_string(),
        Err(errors) => errors.to_string(),
    }
}

fn both(codec: &str) -> String {
    format!("key = {codec}\nvalue = {codec}")
}

/// T31, and T41 for windows: more bits are closer, in one pass and in chunks.
#[test]
fn t31_t41_more_bits_are_closer() {
    let x = tokens(24, 8);
    for window in ["", "\nsliding_window = 6"] {
        let geometry = format!("{GQA}{window}");
        let family = if window.is_empty() { "llama" } else { "mistral" };
        let want = reference(family, &geometry, &x);
        let error = |codec: &str, chunk| {
            let mut engine = engine(&tiny(family, &geometry, &both(codec)));
            distance(&logits(&mut engine, &x, chunk), &want)
        };
        for rotate in [false, true] {
            let options = format!("group = 8, scheme = \"asymmetric\", rotate = {rotate}");
            let of = |name| [0, 5].map(|chunk| error(&format!("{{ codec = \"{name}\", {options} }}"), chunk));
            let (int8, int4, int2) = (of("int8"), of("int4"), of("int2"));
            for chunk in [0, 1] {
                // Logits reach 4.6; bf16 rows move them by 0.025.
                assert!(int8[chunk] < 0.05, "{int8:?}");
                assert!(
                    4.0 * int8[chunk] < int4[chunk] && int4[chunk] < int2[chunk],
                    "{int8:?} {int4:?} {int2:?}"
                );
            }
        }
        assert!(error("\"fp8_e4m3\"", 0) < error("\"fp8_e5m2\"", 0));
    }
}

/// T39, T41: groups over time begin at fixed positions, and a query finds the rows as they are when its own is there. So
/// the logits are the same in whatever chunks the tokens come, across every border of a group, of the residual and of a
/// page (but for a code that rounding tips over); and they differ from those of exact rows: rows are really packed.
#[test]
fn t39_t41_groups_over_time_do_not_depend_on_chunks() {
    let kivi = "key = { codec = \"int4\", group = 8, axis = \"channel\", scheme = \"asymmetric\" }\n\
                value = { codec = \"int4\", group = 8 }\nresidual = 5";
    let x = tokens(40, 4);
    let exact = reference("llama", GQA, &x);
    for layout in ["", "\nlayout = \"paged\"\npage_size = 8"] {
        let cache = format!("{kivi}{layout}");
        let of = |chunk| logits(&mut engine(&tiny("llama", GQA, &cache)), &x, chunk);
        let whole = of(0);
        for chunk in [1, 3, 8, 13] {
            let d = distance(&of(chunk), &whole);
            assert!(d < 1e-3, "{layout}: chunks of {chunk} moved a logit by {d}");
        }
        assert!(distance(&whole[..12], &exact[..12]) < 0.05, "open rows are in f16");
        assert!(distance(&whole[13..], &exact[13..]) > 0.05, "packed rows are not");
    }
}

/// A cache of one layer without a model: four query heads on two KV heads of 64.
fn one_layer(cache: &str, capacity: usize) -> Box<dyn KvCache> {
    let geometry = "num_key_value_heads = 2\nhead_dim = 64\nmax_position_embeddings = 4096";
    let text = tiny("llama", geometry, cache).replace("num_hidden_layers = 2", "num_hidden_layers = 1");
    let mut config = config(&format!("schema = 1\nname = \"x\"\n{text}")).unwrap();
    config.cache.capacity = Some(kvlab_config::Capacity::Tokens(capacity));
    let device = Device::flex();
    let origin = kvlab_engine::Origin::open(&config.model).unwrap();
    let plan = kvlab_engine::CachePlan::new(&origin.spec, &config.cache, &device).unwrap();
    plan.build().unwrap()
}

/// Feeds rows `[tokens][heads * dim]`, the same for every head, and returns the outputs `[tokens][dim]` of the first.
fn feed(cache: &mut dyn KvCache, seq: SeqId, keys: &[Vec<f32>], values: &[Vec<f32>], scale: f32) -> Vec<Vec<f32>> {
    let n = keys.len();
    let tensor = |rows: &[Vec<f32>], heads: usize| {
        let all: Vec<f32> = rows.iter().flat_map(|row| row.repeat(heads)).collect();
        Tensor::<3>::from_data(TensorData::new(all, [n, heads, 64]), &Device::flex())
    };
    let ids = vec![1; n];
    let mut step = cache.begin(&[Chunk { seq, tokens: &ids }]).unwrap();
    let rows = Rows {
        key: tensor(keys, 2),
        value: Some(tensor(values, 2)),
    };
    let out = step
        .extend_attend(LayerId(0), rows, Query::new(tensor(keys, 4), scale))
        .unwrap();
    step.commit(Accept::All).unwrap();
    let out = out.out.narrow(1, 0, 1).into_data().try_to_vec::<f32>().unwrap();
    out.chunks(64).map(<[f32]>::to_vec).collect()
}

/// T43: fewer bits are fewer bytes in use, and at the peak too, which counts what a kernel unpacks.
#[test]
fn t43_the_peak_includes_what_is_unpacked() {
    let rows: Vec<Vec<f32>> = (0..700)
        .map(|i| (0..64).map(|j| ((i * 7 + j * 13) % 29) as f32 / 14.0 - 1.0).collect())
        .collect();
    let usage = |cache: &str| {
        let mut cache = one_layer(cache, 2100);
        let seq = cache.open(&[]).unwrap().seq;
        for _ in 0..3 {
            feed(cache.as_mut(), seq, &rows, &rows, 0.125);
        }
        cache.usage()
    };
    let [int4, int8, f16, f32] = ["\"int4\"", "\"int8\"", "\"f16\"", "\"f32\""].map(|codec| usage(&both(codec)));
    assert!(int4.used() < int8.used() && int8.used() < f16.used() && f16.used() < f32.used());
    assert!(int4.peak < int8.peak && int8.peak < f16.peak && f16.peak < f32.peak);
    // Rows that a step holds before they are committed: 700 of 2 x 2 x 64 values.
    let held = 700 * 2 * 2 * 64 * 4;
    assert!(f32.peak.0 >= f32.reserved.0 + held, "{} of {}", f32.peak, f32.reserved);
    assert!(int4.peak > int4.reserved, "a step and a kernel hold something");
    let kivi = usage("key = { codec = \"int4\", axis = \"channel\" }\nvalue = \"int4\"\nresidual = 64");
    assert!(
        int4.used() < kivi.used() && kivi.peak < f16.peak,
        "open rows are counted"
    );
}

/// T44: 64 pairs behind orthonormal keys; query i gets value i back. Nothing is lost in full precision or in 8 bits, and
/// no format loses the prompt's part alone.
#[test]
fn t44_recall() {
    // Rows of a Hadamard matrix are orthogonal: sign by the parity of the common bits.
    let sign = |i: usize, j: usize| {
        if (i & j).count_ones().is_multiple_of(2) {
            1.0
        } else {
            -1.0
        }
    };
    let keys: Vec<Vec<f32>> = (0..64).map(|i| (0..64).map(|j| sign(i, j) / 8.0).collect()).collect();
    let values: Vec<Vec<f32>> = (0..64)
        .map(|i| (0..64).map(|j| f32::from(u8::from(i == (j * 37) % 64))).collect())
        .collect();
    let largest = |row: &[f32]| (0..64).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    let lost = |cache: &str| {
        let mut cache = one_layer(cache, 128);
        let seq = cache.open(&[]).unwrap().seq;
        feed(cache.as_mut(), seq, &keys[..48], &values[..48], 20.0);
        for i in 48..64 {
            feed(cache.as_mut(), seq, &keys[i..=i], &values[i..=i], 20.0);
        }
        // Each key asks for its value, in a step that is not committed.
        let asked = (0..64).filter(|&i| {
            let q = TensorData::new(keys[i].repeat(4), [1, 4, 64]);
            let mut query = Query::new(Tensor::<3>::from_data(q, &Device::flex()), 20.0);
            query.span = Span::Past;
            let mut step = cache.begin(&[Chunk { seq, tokens: &[1] }]).unwrap();
            let out = step.attend(LayerId(0), query).unwrap().out;
            let out = out.narrow(1, 0, 1).into_data().try_to_vec::<f32>().unwrap();
            largest(&out) != largest(&values[i])
        });
        asked.collect::<Vec<usize>>()
    };
    for exact in ["\"f32\"", "\"f16\"", "\"int8\"", "\"fp8_e4m3\""] {
        assert_eq!(lost(&both(exact)), [0; 0], "{exact}");
    }
    for coarse in [
        both("\"int4\""),
        both("\"int2\""),
        both("{ codec = \"int4\", rotate = true }"),
        "key = { codec = \"int4\", axis = \"channel\" }\nvalue = \"int4\"\nresidual = 8".to_owned(),
    ] {
        let lost = lost(&coarse);
        println!("{}: lost at depths {lost:?}", coarse.replace('\n', ", "));
        let of_prompt = lost.iter().filter(|&&i| i < 48).count();
        assert!(of_prompt < 48 || lost.len() == 64, "{coarse}: the prompt alone is lost");
    }
}

/// T97: what the config asks for is what is allocated. Two layers, two KV heads of 8 values.
#[test]
fn t97_bytes_of_a_token() {
    let engine = engine(&tiny(
        "llama",
        GQA,
        &both("{ codec = \"int4\", group = 8, scheme = \"asymmetric\" }"),
    ));
    assert_eq!(engine.spec().per_token().0, 2 * 2 * 2 * (4 + 2 + 2));
}

/// T32, T41, T79: what cannot be right is refused before anything is allocated.
#[test]
fn t32_t41_t79_refused_when_loaded() {
    let reason = refused(&tiny("llama", GQA, &both("\"int8\"")));
    assert!(
        reason.contains("head size of 8") && reason.contains("group of 32"),
        "{reason}"
    );
    let by_channel = both("{ codec = \"int8\", group = 8, axis = \"channel\" }");
    for (rest, words) in [
        ("layout = \"paged\"\npage_size = 12", ["page of 12", "page_size = 16"]),
        (
            "variant = \"swa\"\nwindow = 16\nlayout = \"ring\"",
            ["drops rows one by one", "paged"],
        ),
        (
            "variant = \"swa\"\nwindow = 16\nlayout = \"paged\"\nresidual = 9",
            ["window of 16", "residual = 9"],
        ),
        (
            "layout = \"paged\"\nprefix_sharing = true\nresidual = 4",
            ["prefix_sharing", "residual = 0"],
        ),
    ] {
        let reason = refused(&tiny("llama", GQA, &format!("{by_channel}\n{rest}")));
        assert!(words.iter().all(|word| reason.contains(word)), "{rest}: {reason}");
    }
    let reason = refused(&tiny("llama", GQA, "residual = 4"));
    assert!(reason.contains("residual = 4 has no effect"), "{reason}");
    let mixed = "key = { codec = \"int4\", group = 8, axis = \"channel\" }\nvalue = { codec = \"int4\", group = 4, axis = \"channel\" }";
    let reason = refused(&tiny("llama", GQA, mixed));
    assert!(reason.contains("8 and 4 tokens"), "{reason}");
    let reason = refused(&tiny(
        "llama",
        GQA,
        &both("{ codec = \"int8\", group = 8, scheme = \"odd\" }"),
    ));
    assert!(reason.contains("symmetric, asymmetric"), "{reason}");
    let latent = "num_key_value_heads = 4\nkv_lora_rank = 12\nqk_nope_head_dim = 8\nqk_rope_head_dim = 4\nv_head_dim = 6\n\
                  first_k_dense_replace = 2\nmax_position_embeddings = 64";
    let reason = refused(&tiny("deepseek_v2", latent, "key = { codec = \"int8\", group = 16 }"));
    assert!(
        reason.contains("12 latent") && reason.contains("4 that rotate"),
        "{reason}"
    );
    let x = tokens(20, 9);
    let mut mla = engine(&tiny("deepseek_v2", latent, "key = { codec = \"int8\", group = 4 }"));
    let error = distance(&logits(&mut mla, &x, 6), &reference("deepseek_v2", latent, &x));
    assert!(error > 0.0 && error < 0.1, "{error}");
}

/// A device without bytes holds codes in 32-bit words: the same numbers come back, and what does not fill words is
/// refused.
#[test]
fn packed_rows_on_wgpu() {
    crate::on_wgpu("cases::quantised::packed_rows_on_wgpu", || {
        let Ok(open) = kvlab_engine::OpenDevice::open(kvlab_config::Device::Wgpu(None)) else {
            return false;
        };
        let pass = |codec: &dyn kvlab_store::Codec, device: &burn::tensor::Device| {
            let rows: Vec<f32> = (0..3 * 2 * 32).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
            let rows = burn::tensor::TensorData::new(rows, [3, 2, 32]);
            let mut planes = codec.allocate([5, 2, 32], device);
            let encoded = codec.encode(burn::tensor::Tensor::from_data(rows, device));
            for (plane, rows) in planes.iter_mut().zip(encoded) {
                plane.write(1, rows);
            }
            let rows: Vec<_> = planes.iter().map(|plane| plane.rows(2, 2)).collect();
            codec.decode(&rows).into_data().try_to_vec::<f32>().unwrap()
        };
        let words = !open.device.supports_dtype(burn::tensor::DType::U8);
        for name in ["int8", "int4", "int2", "fp8_e4m3", "fp8_e5m2"] {
            let codec = kvlab_store::codec::make(name, &kvlab_store::Options::default()).unwrap();
            if let Err(reason) = codec.check(&[32], &open.device) {
                assert!(reason.contains("f16"), "{reason}");
                continue;
            }
            assert_eq!(
                pass(codec, &open.device),
                pass(codec, &burn::tensor::Device::flex()),
                "{name}"
            );
            let options = serde_json::json!({"group": 2});
            let options = kvlab_store::Options(options.as_object().unwrap().clone().into_iter().collect());
            let odd = kvlab_store::codec::make(name, &options)
                .unwrap()
                .check(&[6], &open.device);
            assert_eq!(odd.is_err(), words, "{name}: {odd:?}");
        }
        true
    });
}
