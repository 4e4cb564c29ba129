//! A mixture of experts: a few networks for each token, chosen on the host.

mod choose;

use crate::ModelError;
use crate::linear::Linear;
use crate::mlp::Mlp;
use crate::spec::ExpertsPlan;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};

/// Experts of one layer, and what chooses among them.
#[derive(Clone, Debug)]
pub(crate) struct Experts {
    pub(crate) plan: ExpertsPlan,
    /// `[hidden]` to `[experts]`, f32 whatever the format of the weights is: a rounded score is another choice.
    pub(crate) router: Linear,
    /// Added to the scores for the choice, one for each expert.
    pub(crate) correction: Vec<f32>,
    pub(crate) experts: Vec<Mlp>,
    pub(crate) shared: Option<Mlp>,
}

/// Which experts the tokens of a step go to. All tokens of an expert lie together, so that each expert runs once.
struct Assignment {
    /// The token in each place, `tokens * chosen` of them, expert after expert.
    tokens: Vec<i64>,
    /// The place of each token's experts, token after token.
    places: Vec<i64>,
    /// Their weights, token after token.
    weights: Vec<f32>,
    /// Experts that have tokens, and how many.
    runs: Vec<(usize, usize)>,
}

impl Experts {
    /// `[tokens, hidden]` to the same, f32.
    pub(crate) fn forward(&self, x: Tensor<2>) -> Result<Tensor<2>, ModelError> {
        let ([tokens, hidden], device, chosen) = (x.dims(), x.device(), self.plan.chosen);
        let scores = self.router.forward(x.clone().cast(DType::F32));
        let scores = scores.try_into_data().map_err(|e| ModelError::Device(e.to_string()))?;
        let scores = scores
            .try_to_vec::<f32>()
            .map_err(|e| ModelError::Device(format!("{e:?}")))?;
        let assignment = self.assign(&scores);

        let gathered = x.clone().select(0, indices(assignment.tokens, &device));
        let mut start = 0;
        let parts = assignment.runs.iter().map(|&(expert, count)| {
            let rows = gathered.clone().narrow(0, start, count);
            start += count;
            self.experts[expert].forward(rows).cast(DType::F32)
        });
        let outputs = Tensor::cat(parts.collect(), 0);
        let by_token = outputs
            .select(0, indices(assignment.places, &device))
            .reshape([tokens, chosen, hidden]);
        let weights = TensorData::new(assignment.weights, [tokens, chosen, 1]);
        let weights = Tensor::<3>::from_data(weights, (&device, DType::F32));
        let routed = (by_token * weights).sum_dim(1).reshape([tokens, hidden]);
        Ok(match &self.shared {
            Some(shared) => routed + shared.forward(x).cast(DType::F32),
            None => routed,
        })
    }

    /// From the router's outputs, token after token.
    fn assign(&self, scores: &[f32]) -> Assignment {
        let mut weights = Vec::new();
        let mut tokens_of = vec![Vec::new(); self.plan.count];
        for (token, scores) in scores.chunks_exact(self.plan.count).enumerate() {
            for (expert, weight) in choose::experts(&self.plan, scores, &self.correction) {
                tokens_of[expert].push((token, weights.len()));
                weights.push(weight);
            }
        }
        let mut places = vec![0; weights.len()];
        let mut tokens = Vec::with_capacity(weights.len());
        for &(token, choice) in tokens_of.iter().flatten() {
            places[choice] = tokens.len() as i64;
            tokens.push(token as i64);
        }
        let runs = tokens_of.iter().map(Vec::len).enumerate();
        Assignment {
            tokens,
            places,
            weights,
            runs: runs.filter(|&(_, count)| count > 0).collect(),
        }
    }
}

fn indices(indices: Vec<i64>, device: &Device) -> Tensor<1, Int> {
    let count = indices.len();
    Tensor::from_data(TensorData::new(indices, [count]), device)
}
