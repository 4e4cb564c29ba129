//! The rows of a sequence outside of any cache, bit for bit.

use crate::{CacheError, CacheSpec, LayerId, LayerSpec};
use burn::tensor::TensorData;

/// What a cache stores of one sequence.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The spec of the cache that it is from.
    pub spec: CacheSpec,
    /// Tokens that the sequence has seen.
    pub len: usize,
    /// One entry a layer of the spec.
    pub layers: Vec<SavedLayer>,
}

/// One layer of it.
#[derive(Clone, Debug)]
pub struct SavedLayer {
    /// Which.
    pub layer: LayerId,
    /// Positions of the packed rows, ascending: those that a window dropped are missing.
    pub positions: Vec<usize>,
    /// The tensors that they lie in, in an order that the spec decides, and those of the open rows.
    pub planes: Vec<SavedPlane>,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedPlane {
    /// Its name within the layer (`"key.0"`: codes; `"key.1"`: scales; `"open.key.0"`).
    pub name: String,
    /// `[rows or groups of rows, heads, width]`.
    pub data: TensorData,
}

impl Saved {
    /// Whether a cache of this spec stores the same rows: the same variant, geometry, window and formats in every
    /// layer. How much room it has, and how that is laid out, does not matter.
    ///
    /// # Errors
    /// [`CacheError::Saved`] with the first difference.
    pub fn check(&self, spec: &CacheSpec) -> Result<(), CacheError> {
        let differ = |what: String| Err(CacheError::Saved(what));
        let ids = |spec: &CacheSpec| spec.layers.iter().map(|l| l.layer).collect::<Vec<_>>();
        if ids(&self.spec) != ids(spec) || self.layers.len() != spec.layers.len() {
            return differ(format!(
                "they have {} layers, and this cache {}",
                self.spec.layers.len(),
                spec.layers.len()
            ));
        }
        let pairs = self.spec.layers.iter().zip(&spec.layers);
        for (theirs, ours) in pairs {
            if let Some(what) = difference(theirs, ours) {
                return differ(format!("{}: {what}", ours.layer));
            }
        }
        if self.len > spec.capacity && spec.layers.iter().any(|l| l.rows_per_sequence >= spec.capacity) {
            return differ(format!(
                "they are of {} tokens, and cache.capacity is {}",
                self.len, spec.capacity
            ));
        }
        Ok(())
    }
}

fn difference(theirs: &LayerSpec, ours: &LayerSpec) -> Option<String> {
    let say = |what: &str, theirs: String, ours: String| Some(format!("{what} {theirs}, here {ours}"));
    if theirs.variant != ours.variant {
        return say("variant", theirs.variant.clone(), ours.variant.clone());
    }
    if (theirs.query_heads, theirs.row) != (ours.query_heads, ours.row) {
        let text = |l: &LayerSpec| {
            let row = l.row;
            let (keys, values) = (row.key, row.value_dim());
            format!(
                "{} query heads and rows of {} x ({keys} + {values}) values",
                l.query_heads, row.heads
            )
        };
        return say("attention of", text(theirs), text(ours));
    }
    if theirs.visibility != ours.visibility {
        return say(
            "visibility",
            format!("{:?}", theirs.visibility),
            format!("{:?}", ours.visibility),
        );
    }
    if theirs.retention != ours.retention {
        return say(
            "retention",
            format!("{:?}", theirs.retention),
            format!("{:?}", ours.retention),
        );
    }
    if theirs.key != ours.key {
        return say("keys as", theirs.key.name.clone(), ours.key.name.clone());
    }
    if theirs.value != ours.value {
        return say("values as", theirs.value.name.clone(), ours.value.name.clone());
    }
    (theirs.seal != ours.seal).then(|| format!("residual or group {:?}, here {:?}", theirs.seal, ours.seal))
}
