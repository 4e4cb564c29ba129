//! Runs the same tokens with and without a cache, and keeps what the layers computed.

use crate::ExplainError;
use crate::attention::{Rule, Steps, attend};
use crate::trace::{Chunk, Counts, Keeps, Layer, Numbers};
use crate::watch::{Call, Pass, cube, pass};
use kvlab_core::{LayerId, LayerSpec, Retention, SeqId, TokenId, Value};
use kvlab_engine::{Engine, EngineError};

/// The most that an attention output may be off: 1e-4, more only where values are greater than 1.
const ATTENTION: f64 = 1e-4;

/// The most that logits with and without the cache may differ, in the same way.
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

/// One layer while it is recorded: rows by position, heads back to back.
struct Rows {
    spec: LayerSpec,
    key: Vec<Vec<f32>>,
    value: Vec<Vec<f32>>,
    stored: Vec<Vec<usize>>,
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
        let pairs = fresh.logits.iter().zip(&cached.logits);
        let off = pairs.fold(0.0, |max: f64, (a, b)| max.max(f64::from((a - b).abs())));
        let allowed = LOGITS * fresh.logits.iter().fold(1.0, |max: f64, x| max.max(f64::from(x.abs())));
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

fn call(pass: &Pass, layer: LayerId) -> Option<&Call> {
    pass.calls.iter().find(|call| call.layer == layer)
}

impl Rows {
    fn new(spec: &LayerSpec) -> Result<Self, ExplainError> {
        let own = matches!(spec.row.value, Value::Own(_));
        let formats = [("keys", &spec.key, true), ("values", &spec.value, own)];
        if let Some((what, format, _)) = formats.into_iter().find(|(_, f, used)| *used && f.name != "f32") {
            return Err(ExplainError::Format {
                layer: spec.layer,
                what,
                format: format.name.clone(),
            });
        }
        Ok(Self {
            spec: spec.clone(),
            key: Vec::new(),
            value: Vec::new(),
            stored: Vec::new(),
        })
    }

    /// The new rows of a pass, in the form in which the cache stores them.
    fn add(&mut self, pass: &Pass) -> Result<(), ExplainError> {
        let Some(call) = call(pass, self.spec.layer) else {
            return Err(self.unshown("the model does not attend in it"));
        };
        let row = self.spec.row;
        let [tokens, given, _] = call.key.dims();
        // `mha` on grouped weights stores the row of a KV head once for each query head that shares it.
        let head = |h: usize| h * given / row.heads;
        for token in 0..tokens {
            let key = (0..row.heads).flat_map(|h| call.key.at(token, head(h)));
            self.key.push(key.copied().collect());
            let value = (0..row.heads).flat_map(|h| match &call.value {
                Some(value) => value.at(token, head(h)),
                None => &call.key.at(token, head(h))[..row.value_dim()],
            });
            self.value.push(value.copied().collect());
        }
        Ok(())
    }

    /// Which rows the cache holds now; and whether they are the recorded ones.
    fn compare(&mut self, engine: &mut Engine, seq: SeqId) -> Result<(), ExplainError> {
        let inspected = engine.cache().inspect(seq, self.spec.layer);
        let inspected = inspected.map_err(EngineError::from)?;
        let key = cube(inspected.rows.key)?;
        for (row, &position) in inspected.positions.iter().enumerate() {
            let held = (0..self.spec.row.heads).flat_map(|h| key.at(row, h));
            let recorded = self.key.get(position).map_or(&[][..], Vec::as_slice);
            let off = held
                .zip(recorded)
                .map(|(a, b)| f64::from((a - b).abs()))
                .fold(0.0, f64::max);
            if off > 0.0 || recorded.is_empty() {
                return Err(self.differs("stored key", off, 0.0, &engine.spec().variant));
            }
        }
        self.stored.push(inspected.positions);
        Ok(())
    }

    fn finish(
        self,
        variant: &str,
        with: &[Pass],
        without: &[Pass],
        chunks: &[Chunk],
    ) -> Result<(Layer, f64), ExplainError> {
        let first = with.first().and_then(|pass| call(pass, self.spec.layer));
        let Some(first) = first else {
            return Err(self.unshown("the model does not attend in it"));
        };
        let mut layer = self.outline(first);
        let mut all = Lists::default();
        let mut deviation = 0.0_f64;
        let greatest = self
            .value
            .iter()
            .flatten()
            .fold(1.0, |max: f64, v| max.max(f64::from(v.abs())));
        for pass in with {
            let Some(call) = call(pass, self.spec.layer) else {
                return Err(self.unshown("the model does not attend in it"));
            };
            for token in 0..pass.tokens {
                let visible = layer.visible(pass.first + token);
                let (mut q, mut out) = (Vec::new(), Vec::new());
                for head in 0..layer.query_heads {
                    let steps = self.steps(call, token, head, &visible);
                    let used = call.out.at(token, head);
                    let pairs = steps.out.iter().zip(used);
                    deviation = pairs.fold(deviation, |max, (a, b)| max.max((a - f64::from(*b)).abs()));
                    q.extend(call.query.at(token, head).iter().copied().map(f64::from));
                    out.extend(used.iter().copied().map(f64::from));
                    all.scores.push(steps.scores);
                    all.weights.push(steps.weights);
                }
                all.q.push(q);
                all.out.push(out);
            }
        }
        let allowed = ATTENTION * greatest;
        if deviation.is_nan() || deviation > allowed {
            return Err(self.differs("attention output", deviation, allowed, variant));
        }
        layer.with = self.counts(&layer, with, chunks);
        layer.without = self.counts(&layer, without, chunks);
        let wide = |rows: &[Vec<f32>]| -> Vec<Vec<f64>> {
            rows.iter()
                .map(|row| row.iter().copied().map(f64::from).collect())
                .collect()
        };
        layer.k = Numbers::round(&wide(&self.key));
        layer.v = (!layer.latent).then(|| Numbers::round(&wide(&self.value)));
        layer.q = Numbers::round(&all.q);
        layer.out = Numbers::round(&all.out);
        layer.scores = Numbers::round(&all.scores);
        layer.weights = Numbers::round_to(3, &all.weights);
        layer.stored = self.stored;
        Ok((layer, deviation))
    }

    /// The layer's sizes and rules, without numbers.
    fn outline(&self, call: &Call) -> Layer {
        let row = self.spec.row;
        let none = Numbers::default;
        Layer {
            layer: self.spec.layer.0,
            query_heads: call.query.dims()[1],
            heads: row.heads,
            key: row.key,
            value: row.value_dim(),
            latent: matches!(row.value, Value::PrefixOfKey(_)),
            bytes: self.spec.per_token().0,
            sees: self.spec.visibility.window(),
            keeps: match self.spec.retention {
                Retention::All => None,
                Retention::Window { window, sinks } => Some(Keeps {
                    window: window.get(),
                    sinks,
                }),
            },
            scale: f64::from(call.scale),
            softcap: call.softcap.map(f64::from),
            sink: call.sinks.is_some(),
            k: none(),
            v: None,
            q: none(),
            out: none(),
            scores: none(),
            weights: none(),
            stored: Vec::new(),
            with: Vec::new(),
            without: Vec::new(),
        }
    }

    fn steps(&self, call: &Call, token: usize, head: usize, visible: &[usize]) -> Steps {
        let (heads, key, value) = (self.spec.row.heads, self.spec.row.key, self.spec.row.value_dim());
        let kv = head * heads / call.query.dims()[1];
        let rows: Vec<(&[f32], &[f32])> = visible
            .iter()
            .map(|&row| {
                (
                    &self.key[row][kv * key..][..key],
                    &self.value[row][kv * value..][..value],
                )
            })
            .collect();
        let rule = Rule {
            scale: f64::from(call.scale),
            softcap: call.softcap.map(f64::from),
            sink: call.sinks.as_ref().map(|sinks| f64::from(sinks[head])),
        };
        attend(call.query.at(token, head), &rows, rule)
    }

    /// What the passes computed here. A token is new in the pass that first had it.
    fn counts(&self, layer: &Layer, passes: &[Pass], chunks: &[Chunk]) -> Vec<Counts> {
        let count = |(pass, chunk): (&Pass, &Chunk)| {
            let mut counts = Counts::default();
            for call in pass.calls.iter().filter(|call| call.layer == self.spec.layer) {
                counts.rows += call.key.dims()[0];
                for position in (pass.first..).take(call.query.dims()[0]) {
                    let seen = layer.visible(position).len();
                    match position < chunk.first {
                        true => counts.again += seen,
                        false => counts.new += seen,
                    }
                }
            }
            counts
        };
        passes.iter().zip(chunks).map(count).collect()
    }

    fn unshown(&self, reason: &'static str) -> ExplainError {
        ExplainError::Unshown {
            variant: self.spec.variant.clone(),
            layer: self.spec.layer,
            reason,
        }
    }

    fn differs(&self, what: &'static str, error: f64, allowed: f64, variant: &str) -> ExplainError {
        ExplainError::Differs {
            variant: variant.to_owned(),
            layer: self.spec.layer,
            what,
            error,
            allowed,
        }
    }
}

#[derive(Default)]
struct Lists {
    q: Vec<Vec<f64>>,
    out: Vec<Vec<f64>>,
    scores: Vec<Vec<f64>>,
    weights: Vec<Vec<f64>>,
}
