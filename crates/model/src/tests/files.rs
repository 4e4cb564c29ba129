//! Files with too few tensors, too many, or tensors under other names.

use super::golden::Expected;
use super::{assert_same, load, options, path, spec, tokens, uncached};
use crate::{BuildOptions, Decoder, ModelError};
use kvlab_weights::Checkpoint;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Tensors by name, f32.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn zeros(shape: &[usize]) -> (Vec<usize>, Vec<u8>) {
    (shape.to_vec(), vec![0; 4 * shape.iter().product::<usize>()])
}

/// A golden model whose file and config were changed.
fn changed(
    name: &str,
    changes: Value,
    options: &BuildOptions,
    edit: impl Fn(&mut Tensors),
) -> Result<Decoder, ModelError> {
    let golden = path(&format!("tests/golden/{name}"));
    let bytes = std::fs::read(golden.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Tensors = file
        .tensors()
        .into_iter()
        .map(|(name, v)| (name, (v.shape().to_vec(), v.data().to_vec())))
        .collect();
    edit(&mut tensors);
    let folder = tempfile::tempdir().unwrap();
    let views = tensors
        .iter()
        .map(|(name, (shape, data))| (name.clone(), TensorView::new(Dtype::F32, shape.clone(), data).unwrap()));
    let file = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
    std::fs::write(
        folder.path().join("config.json"),
        serde_json::to_vec(&super::config(name, &changes)).unwrap(),
    )
    .unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    Decoder::load(spec(name, &changes).unwrap(), &checkpoint, options, &mut |_, _| {})
}

fn renamed(tensors: &mut Tensors, f: impl Fn(&str) -> String) {
    *tensors = std::mem::take(tensors)
        .into_iter()
        .map(|(name, t)| (f(&name), t))
        .collect();
}

/// T81.
#[test]
fn the_head_may_be_missing_where_it_is_tied() {
    let no_head = |t: &mut Tensors| drop(t.remove("lm_head.weight"));
    let missing = changed("llama_mha", json!({}), &options(), no_head).unwrap_err();
    assert!(
        matches!(&missing, ModelError::MissingTensor { name, .. } if name == "lm_head.weight"),
        "{missing}"
    );
    changed("llama_mha", json!({ "tie_word_embeddings": true }), &options(), no_head).unwrap();
    // Both are there: the embedding is the head.
    let tied = "llama_gqa_smollm2_shape";
    let both = |t: &mut Tensors| drop(t.insert("lm_head.weight".into(), zeros(&[131, 72])));
    let decoder = changed(tied, json!({}), &options(), both).unwrap();
    let expected = Expected::open(tied);
    assert_same(
        &uncached(&decoder, &expected.tokens()),
        expected.logits(),
        5e-4,
        "tied, with a head in the file",
    );
}

/// T88.
#[test]
fn tensors_that_nothing_reads_are_refused() {
    let bias = "model.layers.1.self_attn.q_proj.bias";
    let more = |t: &mut Tensors| {
        t.insert(bias.into(), zeros(&[48]));
        t.insert("model.layers.0.self_attn.rotary_emb.inv_freq".into(), zeros(&[6]));
    };
    let refused = changed("llama_mha", json!({}), &options(), more).unwrap_err();
    assert!(
        matches!(&refused, ModelError::UnusedTensors { names, .. } if names == &[bias]),
        "{refused}"
    );
    let options = BuildOptions {
        allow_unused: true,
        ..options()
    };
    changed("llama_mha", json!({}), &options, more).unwrap();
}

#[test]
fn names_and_buffers_of_old_files_are_known() {
    // The first GPT-2 files are of the bare model, and hold the causal mask.
    let old = |t: &mut Tensors| {
        renamed(t, |name| name.strip_prefix("transformer.").unwrap_or(name).into());
        t.insert("h.0.attn.bias".into(), zeros(&[1, 1, 128, 128]));
        t.insert("h.0.attn.masked_bias".into(), zeros(&[1]));
    };
    let (decoder, tokens) = (
        changed("gpt2_mha", json!({}), &options(), old).unwrap(),
        tokens(10, 131),
    );
    let want = uncached(&load("gpt2_mha", &options()).unwrap(), &tokens);
    assert_same(&want, &uncached(&decoder, &tokens), 0.0, "gpt2 without its prefix");
}

#[test]
fn a_tensor_of_another_shape_is_named() {
    let wide = |t: &mut Tensors| drop(t.insert("model.norm.weight".into(), zeros(&[49])));
    let refused = changed("llama_mha", json!({}), &options(), wide)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("model.norm.weight") && refused.contains("[49]") && refused.contains("[48]"),
        "{refused}"
    );
}

/// T76: the divisors of a GGUF file take the place of scaling parameters, and are needed where there are none.
#[test]
fn rope_divisors_of_the_file_are_used() {
    let name = "llama_gqa_rope_llama3";
    let no_parameters = json!({ "rope_parameters": { "rope_type": "llama3", "rope_theta": 1e4 } });
    let missing = changed(name, no_parameters.clone(), &options(), |_| {})
        .unwrap_err()
        .to_string();
    assert!(missing.contains("rope_freqs.weight"), "{missing}");

    let rope = spec(name, &json!({})).unwrap().ropes.remove(0);
    let scaled = rope.frequencies(None).unwrap();
    let plain = (0..8).map(|i| 1e4_f64.powf(-2.0 * f64::from(i) / 16.0));
    let divisors: Vec<u8> = plain
        .zip(&scaled)
        .flat_map(|(p, s)| ((p / s) as f32).to_le_bytes())
        .collect();
    let with = |t: &mut Tensors| drop(t.insert("rope_freqs.weight".into(), (vec![8], divisors.clone())));
    let expected = Expected::open(name);
    for changes in [
        no_parameters,
        json!({ "rope_parameters": null, "rope_theta": 1e4 }),
        json!({}),
    ] {
        let decoder = changed(name, changes, &options(), with).unwrap();
        assert_same(
            &uncached(&decoder, &expected.tokens()),
            expected.logits(),
            5e-4,
            "divisors",
        );
    }
}
