//! One layer while it is recorded, and the check that what it shows is what the model used.

use crate::ExplainError;
use crate::attention::{Rule, Steps, attend};
use crate::trace::{Chunk, Counts, Keeps, Layer, Numbers};
use crate::watch::{Call, Pass, cube};
use kvlab_core::{LayerId, LayerSpec, Retention, SeqId, Value};
use kvlab_engine::{Engine, EngineError};

/// The most that an attention output may be off: 1e-4, more only where values are greater than 1.
const ATTENTION: f64 = 1e-4;

/// The rows of a layer by position, heads back to back.
pub(crate) struct Rows {
    spec: LayerSpec,
    key: Vec<Vec<f32>>,
    value: Vec<Vec<f32>>,
    stored: Vec<Vec<usize>>,
}

fn call(pass: &Pass, layer: LayerId) -> Option<&Call> {
    pass.calls.iter().find(|call| call.layer == layer)
}

/// The greatest absolute value; infinite if one is not a number.
pub(crate) fn greatest(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(0.0, |max, x| if x.is_nan() { f64::INFINITY } else { max.max(x.abs()) })
}

impl Rows {
    /// None yet, of a layer whose rows can be shown.
    pub(crate) fn new(spec: &LayerSpec) -> Result<Self, ExplainError> {
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
    pub(crate) fn add(&mut self, pass: &Pass) -> Result<(), ExplainError> {
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
    pub(crate) fn compare(&mut self, engine: &mut Engine, seq: SeqId) -> Result<(), ExplainError> {
        let inspected = engine.cache().inspect(seq, self.spec.layer);
        let inspected = inspected.map_err(EngineError::from)?;
        let value = inspected.rows.value.map(cube).transpose()?;
        let planes = [
            ("stored key", Some(cube(inspected.rows.key)?), &self.key),
            ("stored value", value, &self.value),
        ];
        for (what, held, recorded) in planes {
            for (row, &position) in inspected.positions.iter().enumerate() {
                let (Some(held), Some(recorded)) = (&held, recorded.get(position)) else {
                    continue;
                };
                let held = (0..self.spec.row.heads).flat_map(|h| held.at(row, h));
                let off = greatest(held.zip(recorded).map(|(a, b)| f64::from(a - b)));
                if off != 0.0 {
                    return Err(self.differs(what, off, 0.0, &engine.spec().variant));
                }
            }
        }
        self.stored.push(inspected.positions);
        Ok(())
    }

    /// What is to be shown, and the greatest difference of an attention output.
    pub(crate) fn finish(
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
                    deviation = deviation.max(greatest(steps.out.iter().zip(used).map(|(a, b)| a - f64::from(*b))));
                    q.extend(call.query.at(token, head).iter().copied().map(f64::from));
                    out.extend(used.iter().copied().map(f64::from));
                    all.scores.push(steps.scores);
                    all.weights.push(steps.weights);
                }
                all.q.push(q);
                all.out.push(out);
            }
        }
        let allowed = ATTENTION * greatest(self.value.iter().flatten().copied().map(f64::from)).max(1.0);
        if deviation > allowed {
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
