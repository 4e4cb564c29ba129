//! Models made for the tests: a random Hugging Face llama, and GGUF files of a few tensors.

use std::path::{Path, PathBuf};

use kvlab_weights::gguf::write::{Meta, Tensor, write_gguf};
use kvlab_weights::{Checkpoint, Dtype, WeightsError};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::tensor::{Dtype as Stored, TensorView};
use serde_json::json;

/// A safetensors file of f32 tensors.
pub fn safetensors(path: &Path, tensors: &[(String, Vec<usize>, Vec<f32>)]) {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, _, x)| x.iter().flat_map(|x| x.to_le_bytes()).collect())
        .collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        let view = TensorView::new(Stored::F32, shape.clone(), bytes).unwrap();
        (name.clone(), view)
    });
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

pub fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
}

/// A llama of 2 layers, 4 heads of 16, 2 KV heads, hidden 64, in a new folder.
pub fn llama_folder(tied: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": 40,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": null,
        "tie_word_embeddings": tied, "attention_bias": true, "mlp_bias": false, "hidden_act": "silu",
        "bos_token_id": 0, "eos_token_id": [1, 2],
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    safetensors(&folder.path().join("model.safetensors"), &llama_tensors(tied));
    folder
}

pub fn llama_tensors(tied: bool) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![40, 64]),
        ("model.norm.weight".to_owned(), vec![64]),
    ];
    if !tied {
        shapes.push(("lm_head.weight".to_owned(), vec![40, 64]));
    }
    for layer in 0..2 {
        for (name, shape) in [
            ("input_layernorm.weight", vec![64]),
            ("self_attn.q_proj.weight", vec![64, 64]),
            ("self_attn.q_proj.bias", vec![64]),
            ("self_attn.k_proj.weight", vec![32, 64]),
            ("self_attn.k_proj.bias", vec![32]),
            ("self_attn.v_proj.weight", vec![32, 64]),
            ("self_attn.o_proj.weight", vec![64, 64]),
            ("post_attention_layernorm.weight", vec![64]),
            ("mlp.gate_proj.weight", vec![96, 64]),
            ("mlp.up_proj.weight", vec![96, 64]),
            ("mlp.down_proj.weight", vec![64, 96]),
        ] {
            shapes.push((format!("model.layers.{layer}.{name}"), shape));
        }
    }
    let tensor = |(i, (name, shape)): (usize, (String, Vec<usize>))| {
        let data = random(i as u64, shape.iter().product());
        (name, shape, data)
    };
    shapes.into_iter().enumerate().map(tensor).collect()
}

/// A GGUF file to be changed and opened: the metadata of its architecture without a prefix.
#[derive(Clone)]
pub struct Gguf {
    pub metadata: Vec<(String, Meta)>,
    pub tensors: Vec<Tensor>,
}

impl Gguf {
    /// One layer, hidden 32, 4 heads of 8, 2 KV heads, vocabulary 10, without tensors of the layer.
    pub fn new(architecture: &str) -> Self {
        let mut gguf = Self {
            metadata: Vec::new(),
            tensors: Vec::new(),
        };
        gguf.set("general.architecture", architecture.into());
        for (key, n) in [
            ("block_count", 1),
            ("context_length", 64),
            ("embedding_length", 32),
            ("feed_forward_length", 48),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
        ] {
            gguf.set(&format!("{architecture}.{key}"), Meta::U32(n));
        }
        for key in ["layer_norm_rms_epsilon", "layer_norm_epsilon"] {
            let key = format!("{architecture}.attention.{key}");
            gguf.set(&key, Meta::F32(1e-5));
        }
        gguf.tensor("token_embd.weight", &[10, 32]);
        gguf.tensor("output_norm.weight", &[32]);
        gguf
    }

    pub fn set(&mut self, key: &str, value: Meta) {
        self.unset(key);
        self.metadata.push((key.to_owned(), value));
    }

    pub fn unset(&mut self, key: &str) {
        self.metadata.retain(|(name, _)| name != key);
    }

    /// Adds an f32 tensor that counts 0, 1, 2 ...
    pub fn tensor(&mut self, name: &str, shape: &[usize]) {
        let values: Vec<f32> = (0..shape.iter().product()).map(|i: usize| i as f32).collect();
        let tensor = Tensor::encode(name, shape, Dtype::F32, &values).unwrap();
        self.tensors.push(tensor);
    }

    pub fn open(&self) -> Result<Checkpoint, WeightsError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        write_gguf(&path, &self.metadata, &self.tensors).unwrap();
        Checkpoint::open(&path)
    }

    pub fn error(&self) -> String {
        self.open().unwrap_err().to_string()
    }
}

/// Opens bytes as a file of that name.
pub fn open_bytes(name: &str, bytes: &[u8]) -> Result<Checkpoint, WeightsError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    Checkpoint::open(&path)
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of all tensors with shape and data, for comparing two models.
pub fn everything(model: &Checkpoint) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let mut all: Vec<_> = model
        .names()
        .map(|name| {
            let tensor = model.f32(name).unwrap();
            assert_eq!(model.info(name).unwrap().shape, tensor.shape, "{name}");
            assert_eq!(tensor.shape.iter().product::<usize>(), tensor.data.len());
            (name.to_owned(), tensor.shape, tensor.data)
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}
