//! Expected values of tiny models, as the reference implementation computed them (`tests/golden`).

use std::path::{Path, PathBuf};

/// One golden folder, `expected.safetensors` read.
pub struct Golden {
    /// The folder: `config.json`, `model.safetensors`, ...
    pub folder: PathBuf,
    /// The prompt.
    pub prompt: Vec<u32>,
    /// What greedy decoding continues it with.
    pub greedy: Vec<u32>,
    /// Logits of every position of prompt and continuation, from one uncached pass.
    pub logits: Vec<Vec<f32>>,
    bytes: Vec<u8>,
}

impl Golden {
    /// Reads a folder.
    pub fn load(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join("expected.safetensors")).unwrap();
        let mut golden = Self {
            folder: folder.to_path_buf(),
            prompt: Vec::new(),
            greedy: Vec::new(),
            logits: Vec::new(),
            bytes,
        };
        golden.prompt = golden.ids("input_ids");
        golden.greedy = golden.ids("greedy_ids");
        let (shape, logits) = golden.floats("logits").unwrap();
        golden.logits = logits.chunks(shape[1]).map(<[f32]>::to_vec).collect();
        golden
    }

    /// Prompt and continuation.
    pub fn tokens(&self) -> Vec<u32> {
        self.prompt.iter().chain(&self.greedy).copied().collect()
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        let file = safetensors::SafeTensors::deserialize(&self.bytes).unwrap();
        let data = file.tensor(name).unwrap().data().to_vec();
        let ids = data.chunks_exact(8);
        ids.map(|b| i64::from_le_bytes(b.try_into().unwrap()) as u32).collect()
    }

    /// An f32 tensor, if the file has it: its shape and its numbers.
    pub fn floats(&self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        floats(&self.bytes, name)
    }
}

/// An f32 tensor of a safetensors file, if the file has it: its shape and its numbers.
pub fn floats(file: &[u8], name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
    let file = safetensors::SafeTensors::deserialize(file).unwrap();
    let tensor = file.tensor(name).ok()?;
    let data = tensor.data().chunks_exact(4);
    let data = data.map(|b| f32::from_le_bytes(b.try_into().unwrap()));
    Some((tensor.shape().to_vec(), data.collect()))
}
