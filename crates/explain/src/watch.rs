//! Watches one forward pass: which rows and queries go into the cache, and what comes back.
//!
//! The model sees a [`Step`] as always; this one hands everything on and keeps a handle on each tensor. Neither the
//! model nor any cache knows of it.

use crate::ExplainError;
use burn::tensor::{DType, Int, Tensor};
use kvlab_core::{Accept, Attended, CacheError, Chunk, LayerId, Query, Rows, SeqId, Span, Step, StepReport, TokenId};
use kvlab_engine::{Engine, EngineError};
use kvlab_model::Wanted;

/// A tensor of three dimensions on the host.
#[derive(Clone, Debug)]
pub(crate) struct Cube {
    dims: [usize; 3],
    data: Vec<f32>,
}

impl Cube {
    /// `[tokens, heads, dim]`.
    pub(crate) fn dims(&self) -> [usize; 3] {
        self.dims
    }

    /// The vector of one token and head.
    pub(crate) fn at(&self, token: usize, head: usize) -> &[f32] {
        let [_, heads, dim] = self.dims;
        &self.data[(token * heads + head) * dim..][..dim]
    }
}

/// The attention of one layer in one pass.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) layer: LayerId,
    /// The new rows: keys, and values where they are their own.
    pub(crate) key: Cube,
    pub(crate) value: Option<Cube>,
    pub(crate) query: Cube,
    pub(crate) out: Cube,
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    /// One score for each query head.
    pub(crate) sinks: Option<Vec<f32>>,
}

/// A forward pass over one chunk.
#[derive(Debug)]
pub(crate) struct Pass {
    /// Position of its first token.
    pub(crate) first: usize,
    /// Its tokens.
    pub(crate) tokens: usize,
    /// One for each layer, in the order in which they ran.
    pub(crate) calls: Vec<Call>,
    /// Logits after its last token.
    pub(crate) logits: Vec<f32>,
}

/// Feeds `tokens` to a sequence of the engine's cache in one step, and commits it.
///
/// # Errors
/// Whatever model or cache report; [`ExplainError::Unshown`] for attention in parts.
pub(crate) fn pass(engine: &mut Engine, seq: SeqId, tokens: &[TokenId]) -> Result<Pass, ExplainError> {
    let decoder = engine.decoder();
    let variant = engine.spec().variant.clone();
    let cache = engine.cache();
    let first = cache.len(seq).map_err(EngineError::from)?;
    let step = cache.begin(&[Chunk { seq, tokens }]).map_err(EngineError::from)?;
    let mut watch = Watch {
        step,
        rows: Vec::new(),
        queries: Vec::new(),
        in_parts: None,
    };
    // All rows are wanted: then MLA reads its rows as they are stored, also in a prefill (see `set_latent_mode`).
    let wanted: Vec<usize> = (0..tokens.len()).collect();
    let logits = decoder.forward(tokens, &mut watch, Wanted::Rows(&wanted));
    let logits = logits.map_err(EngineError::from)?;
    let Watch {
        step,
        rows,
        queries,
        in_parts,
    } = watch;
    let unshown = |layer, reason| {
        let variant = variant.clone();
        Err(ExplainError::Unshown { variant, layer, reason })
    };
    if let Some(layer) = in_parts {
        return unshown(layer, "it attends to old and new rows in two parts");
    }
    step.commit(Accept::All).map_err(EngineError::from)?;
    let mut calls = Vec::with_capacity(queries.len());
    for (layer, query, out) in queries {
        let Some((_, new)) = rows.iter().find(|(of, _)| *of == layer) else {
            return unshown(layer, "it reads the rows of another layer");
        };
        calls.push(Call {
            layer,
            key: cube(new.key.clone())?,
            value: new.value.clone().map(cube).transpose()?,
            query: cube(query.q)?,
            out: cube(out)?,
            scale: query.scale,
            softcap: query.softcap,
            sinks: query.sinks.map(host).transpose()?,
        });
    }
    let vocab = logits.dims()[1];
    let logits = host(logits)?.split_off((tokens.len() - 1) * vocab);
    if logits.iter().any(|logit| !logit.is_finite()) {
        return Err(EngineError::NotFinite {
            position: first + tokens.len() - 1,
            cache: variant,
        }
        .into());
    }
    Ok(Pass {
        first,
        tokens: tokens.len(),
        calls,
        logits,
    })
}

/// Copies numbers to the host; it waits for the device.
pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, EngineError> {
    let data = tensor.cast(DType::F32).try_into_data();
    let data = data.map_err(|e| EngineError::Execution(format!("{e:?}")))?;
    data.try_to_vec::<f32>()
        .map_err(|e| EngineError::Execution(format!("{e:?}")))
}

pub(crate) fn cube(tensor: Tensor<3>) -> Result<Cube, EngineError> {
    Ok(Cube {
        dims: tensor.dims(),
        data: host(tensor)?,
    })
}

/// A step that is looked at.
struct Watch<'a> {
    step: Box<dyn Step + 'a>,
    rows: Vec<(LayerId, Rows)>,
    queries: Vec<(LayerId, Query, Tensor<3>)>,
    /// A layer whose attention came in parts.
    in_parts: Option<LayerId>,
}

impl Watch<'_> {
    fn seen(&mut self, layer: LayerId, query: Query, attended: &Attended) {
        if query.span != Span::All {
            self.in_parts = Some(layer);
        }
        self.queries.push((layer, query, attended.out.clone()));
    }
}

impl Step for Watch<'_> {
    fn positions(&self) -> &Tensor<1, Int> {
        self.step.positions()
    }

    fn extend(&mut self, layer: LayerId, rows: Rows) -> Result<(), CacheError> {
        self.rows.push((layer, rows.clone()));
        self.step.extend(layer, rows)
    }

    fn attend(&mut self, layer: LayerId, query: Query) -> Result<Attended, CacheError> {
        let attended = self.step.attend(layer, query.clone())?;
        self.seen(layer, query, &attended);
        Ok(attended)
    }

    fn attend_fresh(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError> {
        self.in_parts = Some(layer);
        self.step.attend_fresh(layer, rows, query)
    }

    fn extend_attend(&mut self, layer: LayerId, rows: Rows, query: Query) -> Result<Attended, CacheError> {
        self.rows.push((layer, rows.clone()));
        let attended = self.step.extend_attend(layer, rows, query.clone())?;
        self.seen(layer, query, &attended);
        Ok(attended)
    }

    fn ready(&self) -> Result<(), CacheError> {
        self.step.ready()
    }

    fn commit(self: Box<Self>, accepted: Accept) -> Result<StepReport, CacheError> {
        self.step.commit(accepted)
    }
}
