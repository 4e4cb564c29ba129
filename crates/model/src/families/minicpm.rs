//! MiniCPM 3 (Hu et al., 2024): latent attention as in DeepSeek-V2, and scales on embedding, layers and head.

use super::deepseek::latent_decoder;
use crate::ModelError;
use crate::config::Keys;
use crate::rope::RopePairs;
use crate::spec::DecoderSpec;

/// The spec of a `minicpm3` config; rotates half-split pairs.
pub(super) fn minicpm3(keys: &Keys<'_>) -> Result<DecoderSpec, ModelError> {
    let mut spec = latent_decoder("minicpm3", keys, RopePairs::HalfSplit, 1e-5)?;
    spec.embedding_scale = Some(keys.optional_positive("scale_emb")?.unwrap_or(12.0) as f32);
    let depth = or_unless_null(keys, "scale_depth", 1.4)?;
    let branch = depth.map(|depth| (depth / (spec.layers() as f64).sqrt()) as f32);
    for layer in &mut spec.layers {
        layer.branch_scale = branch;
    }
    let base = or_unless_null(keys, "dim_model_base", 256.0)?;
    spec.head_scale = base.map(|base| (base / spec.hidden as f64) as f32);
    spec.tied_head = keys.flag_or("tie_word_embeddings", true)?;
    Ok(spec)
}

/// A number; a default where the key is missing, and nothing where it is null.
fn or_unless_null(keys: &Keys<'_>, key: &str, default: f64) -> Result<Option<f64>, ModelError> {
    let default = (!keys.has(key)).then_some(default);
    Ok(keys.optional_positive(key)?.or(default))
}
