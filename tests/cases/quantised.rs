//! Packed number formats in whole models: how far they move the logits, and what is refused when a config is loaded.

use super::*;

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
    let reason = refused(&tiny(
        "llama",
        GQA,
        &both("{ codec = \"int8\", group = 8, axis = \"channel\" }"),
    ));
    assert!(reason.contains("not built yet"), "{reason}");
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
