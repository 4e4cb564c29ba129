//! Weights that a variant has changed, checked before anything is built from them.

use crate::ModelError;
use kvlab_core::{Adaptation, AttentionWeights, HeadWeights, LatentWeights, LayerId, Matrix};

/// What the weights of a layer must fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    pub(crate) layer: LayerId,
    pub(crate) hidden: usize,
    pub(crate) query_heads: usize,
    /// Values of a key.
    pub(crate) key: usize,
    /// How many of them turn.
    pub(crate) rotary: usize,
    pub(crate) value: usize,
    /// Of the native latent, which has a norm of its own that stays with the model.
    pub(crate) latent_rank: Option<usize>,
}

impl Fit {
    pub(crate) fn refuse(&self, reason: impl Into<String>) -> ModelError {
        ModelError::Adaptation {
            layer: self.layer,
            reason: reason.into(),
        }
    }

    /// The weights of a layer after its adaptation.
    pub(crate) fn adapted(
        &self,
        adaptation: &Adaptation,
        weights: AttentionWeights,
    ) -> Result<AttentionWeights, ModelError> {
        match (adaptation, &weights) {
            (Adaptation::Keep, _) | (Adaptation::ExpandLatent, AttentionWeights::Latent(_)) => Ok(weights),
            (Adaptation::ExpandLatent, AttentionWeights::Heads(_)) => {
                Err(self.refuse("there is no latent to expand: its keys and values are projected per head"))
            }
            (Adaptation::Weights(change), _) => {
                let changed = change(weights).map_err(|reason| self.refuse(reason))?;
                match (&changed, self.latent_rank) {
                    (AttentionWeights::Heads(_), Some(_)) => {
                        let reason = "keys and values per head cannot replace its latent, which is normed before it \
                                      is expanded; `ExpandLatent` expands it exactly";
                        return Err(self.refuse(reason));
                    }
                    (AttentionWeights::Latent(latent), Some(rank)) if latent.down.rows != rank => {
                        let reason = format!(
                            "a latent of rank {} cannot replace one of {rank}: the norm of the latent has {rank} weights",
                            latent.down.rows
                        );
                        return Err(self.refuse(reason));
                    }
                    (AttentionWeights::Heads(heads), None) => self.check_heads(heads)?,
                    (AttentionWeights::Latent(latent), _) => self.check_latent(latent)?,
                }
                Ok(changed)
            }
        }
    }

    fn check_heads(&self, w: &HeadWeights) -> Result<(), ModelError> {
        if w.heads == 0 || !self.query_heads.is_multiple_of(w.heads) {
            let reason = format!(
                "{} KV heads cannot be shared evenly by {} query heads",
                w.heads, self.query_heads
            );
            return Err(self.refuse(reason));
        }
        self.matrix("keys", &w.key, w.heads * self.key, self.hidden)?;
        self.matrix("values", &w.value, w.heads * self.value, self.hidden)?;
        self.bias("keys", w.key_bias.as_ref(), w.heads * self.key)?;
        self.bias("values", w.value_bias.as_ref(), w.heads * self.value)
    }

    fn check_latent(&self, w: &LatentWeights) -> Result<(), ModelError> {
        let rank = w.down.rows;
        if rank == 0 {
            return Err(self.refuse("a latent of rank 0"));
        }
        let blocks = if self.rotary == 0 { 0 } else { w.rope_blocks };
        if self.rotary > 0 && (blocks == 0 || !self.query_heads.is_multiple_of(blocks)) {
            let reason = format!(
                "{blocks} rope blocks cannot be shared evenly by {} query heads",
                self.query_heads
            );
            return Err(self.refuse(reason));
        }
        self.matrix("the latent", &w.down, rank, self.hidden)?;
        self.matrix("the rope blocks", &w.rope, blocks * self.rotary, self.hidden)?;
        self.matrix("up_key", &w.up_key, self.query_heads * (self.key - self.rotary), rank)?;
        self.matrix("up_value", &w.up_value, self.query_heads * self.value, rank)?;
        self.bias("the rope blocks", w.rope_bias.as_ref(), blocks * self.rotary)?;
        self.bias("values", w.value_bias.as_ref(), self.query_heads * self.value)
    }

    fn matrix(&self, what: &str, m: &Matrix, rows: usize, cols: usize) -> Result<(), ModelError> {
        // A matrix without rows may leave its width open.
        let fits = m.rows == rows && (m.cols == cols || rows == 0) && m.data.len() == m.rows * m.cols;
        if fits {
            return Ok(());
        }
        let (got, len) = ((m.rows, m.cols), m.data.len());
        Err(self.refuse(format!(
            "{what}: {rows} x {cols} expected, {} x {} with {len} values given",
            got.0, got.1
        )))
    }

    fn bias(&self, what: &str, bias: Option<&Vec<f32>>, rows: usize) -> Result<(), ModelError> {
        match bias {
            Some(bias) if bias.len() != rows => {
                Err(self.refuse(format!("bias of {what}: {rows} values expected, {} given", bias.len())))
            }
            _ => Ok(()),
        }
    }
}
