//! Tensors out of a checkpoint, and which of them nobody asked for.

use super::Source;
use crate::host::PackedRows;
use crate::place::format;
use crate::rope::DIVISORS;
use crate::tensors::TensorPlan;
use crate::{DecoderSpec, ModelError};
use kvlab_weights::{Checkpoint, TensorInfo};
use std::collections::HashSet;

/// A checkpoint, and the names that were read.
pub(crate) struct CheckpointSource<'a> {
    checkpoint: &'a Checkpoint,
    /// What a file of the bare model leaves out of every name.
    base: &'static str,
    used: HashSet<String>,
}

impl<'a> CheckpointSource<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint, spec: &DecoderSpec) -> Self {
        Self {
            checkpoint,
            base: spec.names.base,
            used: HashSet::new(),
        }
    }

    /// Tensors of the file that were not read and that may matter, sorted.
    ///
    /// Passed over are the known buffers of a family, and the head where it is tied: then the embedding is the
    /// head, as in Hugging Face, whatever the file holds under the head's name.
    pub(crate) fn unused(&self, spec: &DecoderSpec) -> Vec<String> {
        let tied = format!("{}.weight", spec.names.head);
        let harmless =
            |name: &str| spec.names.buffers.iter().any(|end| name.ends_with(end)) || (spec.tied_head && name == tied);
        let names = self
            .checkpoint
            .names()
            .filter(|name| !self.used.contains(*name) && !harmless(name));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort_unstable();
        names
    }

    /// The name that the file has for a tensor, and its format; the shape is what it must be.
    fn find(&self, plan: &TensorPlan) -> Result<Option<TensorInfo>, ModelError> {
        let bare = plan.name.strip_prefix(self.base);
        let names = [Some(plan.name.as_str()), bare].into_iter().flatten();
        let info = names.filter_map(|name| self.checkpoint.info(name)).next();
        match info {
            Some(info) if info.shape != plan.shape => Err(ModelError::TensorShape {
                name: info.name,
                expected: plan.shape.clone(),
                got: info.shape,
            }),
            info => Ok(info),
        }
    }

    fn read_shaped(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(info) = self.checkpoint.info(name) else {
            return Ok(None);
        };
        if info.shape != shape {
            return Err(ModelError::TensorShape {
                name: name.into(),
                expected: shape.to_vec(),
                got: info.shape,
            });
        }
        let data = self.checkpoint.f32(name)?.data;
        self.used.insert(name.into());
        Ok(Some(data))
    }
}

impl Source for CheckpointSource<'_> {
    fn read(&mut self, plan: &TensorPlan) -> Result<Vec<f32>, ModelError> {
        let Some(info) = self.find(plan)? else {
            return Err(ModelError::MissingTensor {
                name: plan.name.clone(),
                why: format!("the config implies one of shape {:?}", plan.shape),
            });
        };
        let data = self.checkpoint.f32(&info.name)?.data;
        self.checkpoint.release(&info.name);
        self.used.insert(info.name);
        Ok(data)
    }

    fn packed(&mut self, plan: &TensorPlan) -> Result<Option<PackedRows>, ModelError> {
        let (Some(info), &[rows, cols]) = (self.find(plan)?, plan.shape.as_slice()) else {
            return Ok(None);
        };
        if format(info.dtype).is_none() {
            return Ok(None);
        }
        let Some(bytes) = self.checkpoint.packed(&info.name) else {
            return Ok(None);
        };
        let bytes = bytes.into_owned();
        self.checkpoint.release(&info.name);
        self.used.insert(info.name);
        Ok(Some(PackedRows {
            dtype: info.dtype,
            rows,
            cols,
            bytes,
        }))
    }

    fn rope_divisors(&mut self, pairs: usize) -> Result<Option<Vec<f32>>, ModelError> {
        self.read_shaped(DIVISORS, &[pairs])
    }
}
