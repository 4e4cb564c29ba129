//! The attention of one layer: projections here, rows and scores in the cache.

mod adapt;
mod heads;
mod latent;
mod load;

pub(crate) use heads::HeadAttention;
pub(crate) use latent::{LatentAttention, QueryProjection};

use crate::ModelError;
use crate::linear::Linear;
use crate::norm::Norm;
use crate::rope::Rotation;
use burn::tensor::{DType, Tensor};
use kvlab_core::{LayerId, Query, Step};

/// How latent attention looks at the rows of its own step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatentMode {
    /// Whichever takes fewer multiplications: see [`Decoder::set_latent_mode`](crate::Decoder::set_latent_mode).
    #[default]
    Auto,
    /// Queries are brought into the space of the latent, and all rows are read as stored.
    Absorbed,
    /// The rows of the step are expanded to a key and a value per head; older ones are read as stored, and the two
    /// parts are merged. The cache must answer `lse`.
    Expanded,
}

/// The attention of one layer.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub(crate) layer: LayerId,
    pub(crate) kind: Kind,
    pub(crate) output: Linear,
    /// Index of the layer's rotary embedding.
    pub(crate) rope: Option<usize>,
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    /// `[query heads]`, f32.
    pub(crate) sinks: Option<Tensor<1>>,
}

/// Where keys and values come from.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
pub(crate) enum Kind {
    Heads(HeadAttention),
    Latent(LatentAttention),
}

/// What attention needs to know of the step it is called in.
pub(crate) struct Call<'a, 's> {
    pub(crate) step: &'a mut (dyn Step + 's),
    pub(crate) layer: LayerId,
    pub(crate) rotation: Option<&'a Rotation>,
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    pub(crate) sinks: Option<&'a Tensor<1>>,
    pub(crate) mode: LatentMode,
    /// Tokens of a chunk, if all chunks are of the same length; a guess where they are not.
    pub(crate) chunk: usize,
}

/// What is the same for all layers of a step.
pub(crate) struct Context<'a> {
    pub(crate) rotations: &'a [Rotation],
    pub(crate) mode: LatentMode,
    pub(crate) chunk: usize,
}

impl Attention {
    /// What it needs of a step.
    pub(crate) fn call<'a, 's>(&'a self, step: &'a mut (dyn Step + 's), context: &'a Context<'_>) -> Call<'a, 's> {
        Call {
            step,
            layer: self.layer,
            rotation: self.rope.map(|rope| &context.rotations[rope]),
            scale: self.scale,
            softcap: self.softcap,
            sinks: self.sinks.as_ref(),
            mode: context.mode,
            chunk: context.chunk,
        }
    }

    /// `[tokens, hidden]` to the same.
    pub(crate) fn forward(&self, x: Tensor<2>, call: Call<'_, '_>) -> Result<Tensor<2>, ModelError> {
        let dtype = x.dtype();
        let out = match &self.kind {
            Kind::Heads(heads) => heads.forward(x, call)?,
            Kind::Latent(latent) => latent.forward(x, call)?,
        };
        let [tokens, heads, value] = out.dims();
        Ok(self.output.forward(out.cast(dtype).reshape([tokens, heads * value])))
    }
}

impl Call<'_, '_> {
    /// A query over all visible rows.
    pub(crate) fn query(&self, q: Tensor<3>) -> Query {
        Query {
            softcap: self.softcap,
            sinks: self.sinks.cloned(),
            ..Query::new(q, self.scale)
        }
    }
}

/// Norms each head and turns it, in f32; `[tokens, heads, dim]`, in the number format it came in.
pub(crate) fn norm_and_rotate(x: Tensor<3>, norm: Option<&Norm>, rotation: Option<&Rotation>) -> Tensor<3> {
    let dtype = x.dtype();
    let x = match norm {
        Some(norm) => norm.forward(x),
        None => x,
    };
    match rotation {
        Some(rotation) => rotation.apply(x.cast(DType::F32)).cast(dtype),
        None => x.cast(dtype),
    }
}
