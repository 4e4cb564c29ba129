//! Feed-forward networks and experts from their tensors.

use super::{Reader, transposed};
use crate::ModelError;
use crate::experts::Experts;
use crate::host::HostLinear;
use crate::mlp::{FeedForward, Mlp};
use crate::place::Place;
use crate::spec::Activation;
use crate::tensors::{ExpertsTensors, FeedForwardTensors, MlpInput, MlpTensors, StackPlan, StoredExperts};
use kvlab_core::Matrix;

impl Reader<'_> {
    pub(crate) fn feed_forward(
        &mut self,
        tensors: FeedForwardTensors,
        place: &Place,
    ) -> Result<FeedForward, ModelError> {
        Ok(match tensors {
            FeedForwardTensors::Dense(tensors) => FeedForward::Dense(self.mlp(&tensors, place)?),
            FeedForwardTensors::Experts(tensors) => FeedForward::Experts(self.experts(&tensors, place)?),
        })
    }

    fn mlp(&mut self, tensors: &MlpTensors, place: &Place) -> Result<Mlp, ModelError> {
        let inner = tensors.plan.intermediate;
        let (gate, up) = match &tensors.into {
            MlpInput::Plain(up) => (None, self.linear(up)?),
            MlpInput::Gated { gate, up } => (Some(self.linear(gate)?), self.linear(up)?),
            MlpInput::Fused(both) => {
                let both = self.linear(both)?;
                (Some(both.rows(0..inner)), both.rows(inner..2 * inner))
            }
        };
        let down = self.linear(&tensors.down)?;
        placed(tensors.plan.activation, gate, up, down, place)
    }

    fn experts(&mut self, tensors: &ExpertsTensors, place: &Place) -> Result<Experts, ModelError> {
        let plan = tensors.plan;
        let router = self.linear(&tensors.router)?.place_f32(place)?;
        let correction = self.optional(tensors.correction.as_ref())?;
        let experts = match &tensors.experts {
            StoredExperts::Separate(experts) => {
                let experts = experts.iter().map(|expert| self.mlp(expert, place));
                experts.collect::<Result<Vec<_>, _>>()?
            }
            StoredExperts::Stacked { gate_up, down } => {
                let (gate_up, down) = (self.stack(gate_up)?, self.stack(down)?);
                let expert = |(into, down): (HostLinear, HostLinear)| {
                    let (gate, up) = match plan.expert.gated {
                        true => (Some(every_other(&into, 0)), every_other(&into, 1)),
                        false => (None, into),
                    };
                    placed(plan.expert.activation, gate, up, down, place)
                };
                gate_up.into_iter().zip(down).map(expert).collect::<Result<_, _>>()?
            }
        };
        let shared = tensors.shared.as_ref().map(|shared| self.mlp(shared, place));
        Ok(Experts {
            plan,
            router,
            correction: correction.unwrap_or_else(|| vec![0.0; plan.count]),
            experts,
            shared: shared.transpose()?,
        })
    }

    /// The projection of each expert, `[out, in]`.
    fn stack(&mut self, stack: &StackPlan) -> Result<Vec<HostLinear>, ModelError> {
        let &StackPlan { rows, cols, .. } = stack;
        let weights = self.tensor(&stack.weight)?;
        let biases = self.optional(stack.bias.as_ref())?;
        let linear = |(expert, weight): (usize, &[f32])| {
            let data = transposed(weight, cols, rows);
            let bias = biases.as_ref().map(|b| b[expert * rows..(expert + 1) * rows].to_vec());
            HostLinear::dense(Matrix { rows, cols, data }, bias)
        };
        Ok(weights.chunks_exact(rows * cols).enumerate().map(linear).collect())
    }
}

/// Every other output of a projection.
fn every_other(linear: &HostLinear, first: usize) -> HostLinear {
    linear.reordered((first..linear.weight.rows()).step_by(2))
}

fn placed(
    activation: Activation,
    gate: Option<HostLinear>,
    up: HostLinear,
    down: HostLinear,
    place: &Place,
) -> Result<Mlp, ModelError> {
    Ok(Mlp {
        activation,
        gate: gate.map(|gate| gate.place(place)).transpose()?,
        up: up.place(place)?,
        down: down.place(place)?,
    })
}
