//! A decoder from its tensors: read one, change it, put it onto the device, read the next.

mod feed_forward;

use crate::decoder::{Block, Decoder};
use crate::host::{HostLinear, HostWeight};
use crate::linear::{Linear, Weight};
use crate::norm::Norm;
use crate::place::Place;
use crate::rope::RopeTable;
use crate::source::Source;
use crate::tensors::{LinearPlan, NormTensors, TensorPlan};
use crate::{BuildOptions, DecoderSpec, LatentMode, ModelError};
use burn::tensor::{DType, Device, Tensor};
use kvlab_core::{Adaptation, Matrix};

/// Reads tensors and reports progress.
pub(crate) struct Reader<'a> {
    source: &'a mut dyn Source,
    /// Whether weights may stay packed.
    packed: bool,
    progress: &'a mut dyn FnMut(usize, usize),
    done: usize,
    total: usize,
}

impl Reader<'_> {
    pub(crate) fn tensor(&mut self, plan: &TensorPlan) -> Result<Vec<f32>, ModelError> {
        let data = self.source.read(plan)?;
        self.read_one();
        Ok(data)
    }

    fn read_one(&mut self) {
        self.done += 1;
        (self.progress)(self.done, self.total);
    }

    pub(crate) fn optional(&mut self, plan: Option<&TensorPlan>) -> Result<Option<Vec<f32>>, ModelError> {
        plan.map(|plan| self.tensor(plan)).transpose()
    }

    /// A projection, `[out, in]` whatever the file has; packed where it may stay so.
    pub(crate) fn linear(&mut self, plan: &LinearPlan) -> Result<HostLinear, ModelError> {
        if !plan.in_out
            && let Some(weight) = self.packed(&plan.weight)?
        {
            let bias = self.optional(plan.bias.as_ref())?;
            return Ok(HostLinear { weight, bias });
        }
        self.dense(plan)
    }

    /// A matrix in the format of the file, where it may stay so.
    fn packed(&mut self, plan: &TensorPlan) -> Result<Option<HostWeight>, ModelError> {
        if !self.packed {
            return Ok(None);
        }
        let rows = self.source.packed(plan)?;
        if rows.is_some() {
            self.read_one();
        }
        Ok(rows.map(HostWeight::Packed))
    }

    /// A projection in f32, `[out, in]` whatever the file has.
    pub(crate) fn dense(&mut self, plan: &LinearPlan) -> Result<HostLinear, ModelError> {
        let &LinearPlan { rows, cols, in_out, .. } = plan;
        let mut data = self.tensor(&plan.weight)?;
        if in_out {
            data = transposed(&data, cols, rows);
        }
        let bias = self.optional(plan.bias.as_ref())?;
        Ok(HostLinear::dense(Matrix { rows, cols, data }, bias))
    }

    pub(crate) fn norm(&mut self, tensors: &NormTensors, place: &Place) -> Result<Norm, ModelError> {
        let weight = self.tensor(&tensors.weight)?;
        let bias = self.optional(tensors.bias.as_ref())?;
        Ok(Norm::new(tensors.plan, weight, bias, place))
    }

    pub(crate) fn norms(&mut self, tensors: &[NormTensors; 2], place: &Place) -> Result<[Norm; 2], ModelError> {
        Ok([self.norm(&tensors[0], place)?, self.norm(&tensors[1], place)?])
    }
}

/// `[rows, cols]` to `[cols, rows]`.
pub(crate) fn transposed(data: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    let mut out = vec![0.0; data.len()];
    // In tiles, so that neither side runs over more lines of the cache than it holds.
    const TILE: usize = 32;
    for r0 in (0..rows).step_by(TILE) {
        for c0 in (0..cols).step_by(TILE) {
            for r in r0..(r0 + TILE).min(rows) {
                for c in c0..(c0 + TILE).min(cols) {
                    out[c * rows + r] = data[r * cols + c];
                }
            }
        }
    }
    out
}

/// The decoder of a spec, with the tensors of a source.
pub(crate) fn build(
    spec: DecoderSpec,
    source: &mut dyn Source,
    options: &BuildOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Decoder, ModelError> {
    let adaptations = options.adaptations.len();
    if adaptations != 0 && adaptations != spec.layers() {
        return Err(ModelError::Adaptations {
            layers: spec.layers(),
            got: adaptations,
        });
    }
    if !matches!(options.dtype, DType::F32 | DType::F16 | DType::BF16) {
        return Err(ModelError::Dtype(format!("{:?}", options.dtype)));
    }
    let place = Place::new(options);
    let ropes = rope_tables(&spec, source, &place)?;
    let total = spec.tensors().len();
    let mut reader = Reader {
        source,
        packed: options.packed && options.dtype == DType::F32 && options.device == Device::flex(),
        progress,
        done: 0,
        total,
    };
    let table = |reader: &mut Reader<'_>, plan: &TensorPlan| {
        let data = reader.tensor(plan)?;
        Ok::<Tensor<2>, ModelError>(place.tensor(data, [plan.shape[0], plan.shape[1]]))
    };
    let embedding = match reader.packed(&spec.embedding())? {
        Some(weight) => weight.place(&place)?,
        None => Weight::Tensor(table(&mut reader, &spec.embedding())?),
    };
    let positions = spec
        .position_embedding()
        .map(|plan| table(&mut reader, &plan))
        .transpose()?;
    let blocks = (0..spec.layers()).map(|layer| {
        let adaptation = options.adaptations.get(layer).unwrap_or(&Adaptation::Keep);
        block(&spec, layer, adaptation, &mut reader, &place)
    });
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    let final_norm = reader.norm(&spec.final_norm(), &place)?;
    let head = match spec.head() {
        Some(plan) => reader.linear(&plan)?.place(&place)?,
        None => Linear::new(embedding.clone(), None),
    };
    Ok(Decoder {
        device: place.device.clone(),
        dtype: place.dtype,
        embedding,
        positions,
        ropes,
        blocks,
        final_norm,
        head,
        weight_bytes: place.bytes(),
        latent_mode: LatentMode::Auto,
        spec,
    })
}

fn rope_tables(spec: &DecoderSpec, source: &mut dyn Source, place: &Place) -> Result<Vec<RopeTable>, ModelError> {
    // A file has one set of divisors, and so a model with one rotary embedding.
    let divisors = match spec.ropes.as_slice() {
        [rope] => source.rope_divisors(rope.rotary / 2)?,
        _ => None,
    };
    let table = |rope| RopeTable::new(rope, divisors.as_deref(), spec.max_positions, &place.device);
    spec.ropes.iter().map(table).collect()
}

fn block(
    spec: &DecoderSpec,
    layer: usize,
    adaptation: &Adaptation,
    reader: &mut Reader<'_>,
    place: &Place,
) -> Result<Block, ModelError> {
    let tensors = spec.layer_tensors(layer);
    let attention = reader.attention(spec, layer, adaptation, place)?;
    let [attention_norm, mlp_norm] = reader.norms(&tensors.pre_norms(), place)?;
    let post_norms = tensors
        .post_norms()
        .map(|norms| reader.norms(&norms, place))
        .transpose()?;
    let mlp = reader.feed_forward(tensors.feed_forward(), place)?;
    Ok(Block {
        attention_norm,
        attention,
        mlp_norm,
        mlp,
        post_norms,
        parallel: tensors.plan.parallel,
        branch_scale: tensors.plan.branch_scale,
    })
}
