//! Runs the same tokens with and without a cache, and keeps what the layers computed.

use crate::ExplainError;
use crate::layer::{Rows, greatest};
use crate::trace::{Chunk, Layer};
use crate::watch::{Pass, pass};
use kvlab_core::{LayerId, TokenId};
use kvlab_engine::{Engine, EngineError};

/// The most that logits with and without the cache may differ: 1e-3, more only where logits are greater than 1.
const LOGITS: f64 = 1e-3;

/// Which tokens the passes after the first one are fed.
pub(crate) enum Then<'a> {
    /// The likeliest token, so many times; the last one is not fed.
    Generate(usize),
    /// These.
    Feed(&'a [TokenId]),
}

/// What an engine did.
pub(crate) struct Recording {
    /// The tokens after the prompt; the last one was not fed.
    pub(crate) generated: Vec<TokenId>,
    pub(crate) passes: Vec<Chunk>,
    /// Logits after each pass.
    pub(crate) logits: Vec<Vec<f32>>,
    /// Bytes in use after each pass.
    pub(crate) bytes: Vec<u64>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) deviation: f64,
    pub(crate) difference: f64,
}

/// Feeds `prompt` in one pass and every later token in its own, with the cache; then the same passes without it, each
/// over all tokens so far. `layers` are those to keep.
///
/// # Errors
/// What model and cache report; [`ExplainError::Differs`] if a number to be shown is not what the model used.
pub(crate) fn record(
    engine: &mut Engine,
    prompt: &[TokenId],
    then: Then<'_>,
    layers: &[usize],
) -> Result<Recording, ExplainError> {
    let mut rows = Vec::with_capacity(layers.len());
    for &layer in layers {
        let spec = engine.spec().layer(LayerId(layer)).map_err(EngineError::from)?;
        rows.push(Rows::new(spec)?);
    }
    let seq = engine.cache().open(&[]).map_err(EngineError::from)?.seq;
    let mut tokens = prompt.to_vec();
    let (mut passes, mut bytes, mut generated) = (Vec::new(), Vec::new(), Vec::new());
    let steps = match then {
        Then::Generate(n) => n,
        Then::Feed(tokens) => tokens.len(),
    };
    let mut next = 0;
    for step in 0..steps {
        let done = pass(engine, seq, &tokens[next..])?;
        next = tokens.len();
        bytes.push(engine.usage().used().0);
        for layer in &mut rows {
            layer.add(&done)?;
            layer.compare(engine, seq)?;
        }
        let token = match then {
            Then::Generate(_) => likeliest(&done.logits),
            Then::Feed(given) => given[step],
        };
        generated.push(token);
        tokens.push(token);
        passes.push(done);
    }
    engine.cache().close(seq).map_err(EngineError::from)?;
    let chunks: Vec<Chunk> = passes
        .iter()
        .map(|pass| Chunk {
            first: pass.first,
            tokens: pass.tokens,
        })
        .collect();
    let (without, difference) = without(engine, &tokens, &passes)?;
    let variant = engine.spec().variant.clone();
    let (mut shown, mut deviation) = (Vec::with_capacity(rows.len()), 0.0_f64);
    for layer in rows {
        let (layer, off) = layer.finish(&variant, &passes, &without, &chunks)?;
        deviation = deviation.max(off);
        shown.push(layer);
    }
    Ok(Recording {
        generated,
        passes: chunks,
        logits: passes.into_iter().map(|pass| pass.logits).collect(),
        bytes,
        layers: shown,
        deviation,
        difference,
    })
}

/// The passes again, each as the first one of a new sequence: everything is computed from the beginning. Also how far
/// the logits are from those with the cache.
fn without(engine: &mut Engine, tokens: &[TokenId], with: &[Pass]) -> Result<(Vec<Pass>, f64), ExplainError> {
    let (mut passes, mut difference) = (Vec::with_capacity(with.len()), 0.0_f64);
    for cached in with {
        let seq = engine.cache().open(&[]).map_err(EngineError::from)?.seq;
        let fresh = pass(engine, seq, &tokens[..cached.first + cached.tokens])?;
        engine.cache().close(seq).map_err(EngineError::from)?;
        let logits = fresh.logits.iter().copied().map(f64::from);
        let off = greatest(logits.clone().zip(&cached.logits).map(|(a, b)| a - f64::from(*b)));
        let allowed = LOGITS * greatest(logits).max(1.0);
        if off > allowed {
            return Err(ExplainError::Differs {
                variant: engine.spec().variant.clone(),
                layer: LayerId(engine.model().layers().saturating_sub(1)),
                what: "logits without the cache",
                error: off,
                allowed,
            });
        }
        difference = difference.max(off);
        passes.push(fresh);
    }
    Ok((passes, difference))
}

fn likeliest(logits: &[f32]) -> TokenId {
    let best = logits.iter().enumerate().reduce(|a, b| if b.1 > a.1 { b } else { a });
    best.map_or(0, |(token, _)| token as TokenId)
}
