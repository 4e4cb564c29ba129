//! The attention of each layer on its own, against that of an oracle: where a cache loses.

use crate::{Engine, EngineError};
use burn::tensor::{DType, Tensor};
use kvlab_core::{Accept, Chunk, LayerId, SeqId, TokenId};
use kvlab_model::{Probe, Wanted};

/// What an oracle's layers got and what their attention made of it, for one text. It stays on the device: for 1024 tokens of
/// 30 layers of 576 numbers it takes 140 MB.
pub struct Trace {
    /// For each layer what it got, `[tokens, hidden]`.
    inputs: Vec<Tensor<2>>,
    /// For each layer the output of its attention, `[tokens, hidden]`, f32.
    outputs: Vec<Tensor<2>>,
}

/// How far the attention output of one layer is from the oracle's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerDistance {
    /// Sum of the squares of all differences.
    pub squared_error: f64,
    /// Sum of the squares of the oracle's numbers.
    pub squared_norm: f64,
    /// Largest difference of a single number.
    pub max_difference: f64,
}

impl Engine {
    /// Feeds `tokens` to a new sequence at once, and keeps what each layer got and what its attention gave.
    ///
    /// # Errors
    /// As [`score`](Self::score).
    pub fn trace(&mut self, tokens: &[TokenId]) -> Result<Trace, EngineError> {
        let mut recorder = Recorder(Trace {
            inputs: Vec::new(),
            outputs: Vec::new(),
        });
        self.probed(tokens, 0, &mut recorder)?;
        Ok(recorder.0)
    }

    /// How far the attention of each layer is from the oracle's, over all `tokens`, fed in chunks of `chunk` tokens as
    /// by [`score`](Self::score).
    ///
    /// Every layer gets the hidden states of the oracle, and not those that the layers below it have disturbed already.
    /// So the numbers are of single layers: queries are exact, and what differs is what this layer's cache made of its own
    /// rows. (With its own hidden states, the error of a layer would be that of all layers below it as well, and grow
    /// with depth whatever the cache does; how the errors of all layers together end up is what the logits say.)
    ///
    /// # Errors
    /// As [`score`](Self::score); [`EngineError::Execution`] for the trace of another model or of other tokens.
    pub fn layer_distances(
        &mut self,
        tokens: &[TokenId],
        chunk: usize,
        oracle: &Trace,
    ) -> Result<Vec<LayerDistance>, EngineError> {
        let shape = [tokens.len(), self.model().hidden()];
        let fits = oracle.inputs.iter().all(|x| x.dims() == shape);
        if oracle.inputs.len() != self.model().layers() || !fits {
            let reason = "the oracle's layers are not those of this model and text".to_owned();
            return Err(EngineError::Execution(reason));
        }
        let mut comparer = Comparer {
            oracle,
            distances: vec![LayerDistance::default(); oracle.inputs.len()],
            from: 0,
            skip: 0,
            failed: None,
        };
        self.probed(tokens, chunk, &mut comparer)?;
        match comparer.failed {
            Some(reason) => Err(EngineError::Execution(reason)),
            None => Ok(comparer.distances),
        }
    }

    fn probed(&mut self, tokens: &[TokenId], chunk: usize, watch: &mut dyn Watch) -> Result<(), EngineError> {
        self.check_text(tokens)?;
        let seq = self.cache.open(&[])?.seq;
        let done = self.probed_in(seq, tokens, chunk, watch);
        self.cache.close(seq)?;
        done
    }

    fn probed_in(
        &mut self,
        seq: SeqId,
        tokens: &[TokenId],
        chunk: usize,
        watch: &mut dyn Watch,
    ) -> Result<(), EngineError> {
        let remembers = self.cache.capabilities().remembers;
        let chunk = if chunk == 0 { tokens.len() } else { chunk };
        for first in (0..tokens.len()).step_by(chunk) {
            let end = (first + chunk).min(tokens.len());
            let from = if remembers { first } else { 0 };
            let fed = &tokens[from..end];
            watch.chunk(from, first - from);
            let mut step = self.cache.begin(&[Chunk { seq, tokens: fed }])?;
            self.decoder
                .forward_probed(fed, step.as_mut(), Wanted::Rows(&[]), watch)?;
            step.commit(Accept::All)?;
        }
        Ok(())
    }
}

/// A probe that is told which tokens come next.
trait Watch: Probe {
    /// The next pass is over the tokens from `from` on, and the first `skip` of them were there before.
    fn chunk(&mut self, from: usize, skip: usize);
}

struct Recorder(Trace);

impl Watch for Recorder {
    fn chunk(&mut self, _: usize, _: usize) {}
}

impl Probe for Recorder {
    fn input(&mut self, _: LayerId, hidden: Tensor<2>) -> Tensor<2> {
        self.0.inputs.push(hidden.clone());
        hidden
    }

    fn attended(&mut self, _: LayerId, output: &Tensor<2>) {
        self.0.outputs.push(output.clone().cast(DType::F32));
    }
}

struct Comparer<'a> {
    oracle: &'a Trace,
    distances: Vec<LayerDistance>,
    from: usize,
    skip: usize,
    failed: Option<String>,
}

impl Watch for Comparer<'_> {
    fn chunk(&mut self, from: usize, skip: usize) {
        (self.from, self.skip) = (from, skip);
    }
}

impl Probe for Comparer<'_> {
    fn input(&mut self, layer: LayerId, hidden: Tensor<2>) -> Tensor<2> {
        let tokens = hidden.dims()[0];
        match self.oracle.inputs.get(layer.0) {
            Some(oracle) => oracle.clone().narrow(0, self.from, tokens),
            None => hidden,
        }
    }

    fn attended(&mut self, layer: LayerId, output: &Tensor<2>) {
        let new = output.dims()[0] - self.skip;
        let (Some(oracle), Some(distance)) = (self.oracle.outputs.get(layer.0), self.distances.get_mut(layer.0)) else {
            return;
        };
        let host = |x: Tensor<2>| -> Result<Vec<f32>, String> {
            let data = x.try_into_data().map_err(|e| format!("{e:?}"))?;
            data.try_to_vec::<f32>().map_err(|e| format!("{e:?}"))
        };
        let cell = host(output.clone().cast(DType::F32).narrow(0, self.skip, new));
        let oracle = host(oracle.clone().narrow(0, self.from + self.skip, new));
        let (cell, oracle) = match (cell, oracle) {
            (Ok(cell), Ok(oracle)) => (cell, oracle),
            (Err(error), _) | (_, Err(error)) => {
                self.failed = Some(error);
                return;
            }
        };
        if cell.iter().any(|x| !x.is_finite()) {
            self.failed = Some(format!("the attention of {layer} gave NaN or infinite values"));
        }
        for (cell, oracle) in cell.into_iter().zip(oracle) {
            let (cell, oracle) = (f64::from(cell), f64::from(oracle));
            let difference = cell - oracle;
            distance.squared_error += difference * difference;
            distance.squared_norm += oracle * oracle;
            distance.max_difference = distance.max_difference.max(difference.abs());
        }
    }
}
