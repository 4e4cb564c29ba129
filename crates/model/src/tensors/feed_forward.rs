//! The tensors of a feed-forward network, and of experts.

use super::{LayerTensors, LinearPlan, Role, TensorPlan, list_linear};
use crate::families::ExpertStorage;
use crate::spec::{ExpertsPlan, FeedForwardPlan, MlpPlan, Scoring};

/// What a layer does after its attention.
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
pub(crate) enum FeedForwardTensors {
    Dense(MlpTensors),
    Experts(ExpertsTensors),
}

/// A feed-forward network.
pub(crate) struct MlpTensors {
    pub(crate) plan: MlpPlan,
    pub(crate) into: MlpInput,
    pub(crate) down: LinearPlan,
}

/// The projections into a feed-forward network.
pub(crate) enum MlpInput {
    Plain(LinearPlan),
    Gated {
        gate: LinearPlan,
        up: LinearPlan,
    },
    /// The gate's outputs, then the others.
    Fused(LinearPlan),
}

/// A mixture of experts.
pub(crate) struct ExpertsTensors {
    pub(crate) plan: ExpertsPlan,
    pub(crate) router: LinearPlan,
    /// `[experts]`
    pub(crate) correction: Option<TensorPlan>,
    pub(crate) experts: StoredExperts,
    pub(crate) shared: Option<MlpTensors>,
}

/// Experts as they lie in a file.
#[expect(clippy::large_enum_variant, reason = "one for each layer")]
pub(crate) enum StoredExperts {
    Separate(Vec<MlpTensors>),
    Stacked { gate_up: StackPlan, down: StackPlan },
}

/// A projection of every expert, `[experts, in, out]`, and its biases, `[experts, out]`.
pub(crate) struct StackPlan {
    pub(crate) weight: TensorPlan,
    pub(crate) bias: Option<TensorPlan>,
    /// Outputs and inputs.
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl LayerTensors<'_> {
    /// The feed-forward network or the experts.
    pub(crate) fn feed_forward(&self) -> FeedForwardTensors {
        match self.plan.mlp {
            FeedForwardPlan::Dense(plan) => FeedForwardTensors::Dense(self.mlp(plan, None)),
            FeedForwardPlan::Experts(plan) => FeedForwardTensors::Experts(self.experts(plan)),
        }
    }

    /// A network under the names of a dense layer, or under `prefix` and the last part of them.
    fn mlp(&self, plan: MlpPlan, prefix: Option<&str>) -> MlpTensors {
        let stem = |name: &str| match prefix {
            Some(prefix) => format!("{prefix}.{}", name.rsplit('.').next().unwrap_or(name)),
            None => name.to_owned(),
        };
        let into = |name: &str, rows| self.linear(&stem(name), rows, self.hidden, plan.bias);
        let (gate, up) = (self.names.gate, self.names.up);
        let input = match plan.gated {
            false => MlpInput::Plain(into(up, plan.intermediate)),
            true if gate.is_empty() => MlpInput::Fused(into(up, 2 * plan.intermediate)),
            true => MlpInput::Gated {
                gate: into(gate, plan.intermediate),
                up: into(up, plan.intermediate),
            },
        };
        MlpTensors {
            plan,
            into: input,
            down: self.linear(&stem(self.names.down), self.hidden, plan.intermediate, plan.bias),
        }
    }

    fn experts(&self, plan: ExpertsPlan) -> ExpertsTensors {
        let (names, inner) = (&self.names.experts, plan.expert.intermediate);
        let experts = match names.storage {
            ExpertStorage::Separate(prefix) => {
                let expert = |e: usize| self.mlp(plan.expert, Some(&format!("{prefix}{e}")));
                StoredExperts::Separate((0..plan.count).map(expert).collect())
            }
            ExpertStorage::Stacked { gate_up, down, bias } => {
                let bias = plan.expert.bias.then_some(bias);
                let widths = 1 + usize::from(plan.expert.gated);
                StoredExperts::Stacked {
                    gate_up: self.stack(gate_up, bias, [plan.count, self.hidden, widths * inner]),
                    down: self.stack(down, bias, [plan.count, inner, self.hidden]),
                }
            }
        };
        let corrected = plan.routing.scoring == Scoring::CorrectedSigmoid;
        ExpertsTensors {
            plan,
            router: self.linear(names.router, plan.count, self.hidden, plan.router_bias),
            correction: corrected.then(|| self.bare(names.correction, vec![plan.count], Role::Bias)),
            experts,
            shared: plan.shared.map(|shared| self.mlp(shared, Some(names.shared))),
        }
    }

    fn stack(&self, stem: &str, bias: Option<&str>, [experts, cols, rows]: [usize; 3]) -> StackPlan {
        let role = Role::Matrix { fan_in: cols };
        StackPlan {
            weight: self.bare(stem, vec![experts, cols, rows], role),
            bias: bias.map(|end| self.bare(&format!("{stem}{end}"), vec![experts, rows], Role::Bias)),
            rows,
            cols,
        }
    }

    /// A tensor of the layer whose name is whole without `.weight` or `.bias`.
    pub(super) fn bare(&self, name: &str, shape: Vec<usize>, role: Role) -> TensorPlan {
        TensorPlan {
            name: format!("{}{name}", self.prefix),
            shape,
            role,
        }
    }
}

impl FeedForwardTensors {
    /// Every tensor, in the order of loading.
    pub(super) fn list(self, all: &mut Vec<TensorPlan>) {
        match self {
            Self::Dense(mlp) => mlp.list(all),
            Self::Experts(tensors) => {
                list_linear(tensors.router, all);
                all.extend(tensors.correction);
                match tensors.experts {
                    StoredExperts::Separate(experts) => experts.into_iter().for_each(|expert| expert.list(all)),
                    StoredExperts::Stacked { gate_up, down } => {
                        for stack in [gate_up, down] {
                            all.push(stack.weight);
                            all.extend(stack.bias);
                        }
                    }
                }
                tensors.shared.into_iter().for_each(|shared| shared.list(all));
            }
        }
    }
}

impl MlpTensors {
    fn list(self, all: &mut Vec<TensorPlan>) {
        match self.into {
            MlpInput::Plain(into) | MlpInput::Fused(into) => list_linear(into, all),
            MlpInput::Gated { gate, up } => {
                list_linear(gate, all);
                list_linear(up, all);
            }
        }
        list_linear(self.down, all);
    }
}
