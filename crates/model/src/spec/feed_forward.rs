//! The feed-forward network of a layer, as data: one for all tokens, or experts and how they are chosen.

/// What a layer does after its attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeedForwardPlan {
    /// One network for every token.
    Dense(MlpPlan),
    /// A few of many networks for each token.
    Experts(ExpertsPlan),
}

/// A feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlpPlan {
    /// `intermediate_size`.
    pub intermediate: usize,
    /// The activation.
    pub activation: Activation,
    /// `down(act(gate x) * up x)` instead of `down(act(up x))` (Shazeer, GLU variants, 2020).
    pub gated: bool,
    /// Whether its projections have a bias.
    pub bias: bool,
}

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x * Phi(x)`.
    Gelu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` (`gelu_new`, `gelu_pytorch_tanh`).
    GeluTanh,
    /// `g * sigmoid(alpha * g)` with `g = min(x, limit)`; of a gated network, the other factor is
    /// `1 + min(max(up x, -limit), limit)` (gpt-oss).
    ClampedSwish {
        /// `swiglu_alpha`.
        alpha: f32,
        /// `swiglu_limit`.
        limit: f32,
    },
}

/// A mixture of experts (Shazeer et al., 2017): the output is the weighted sum of the chosen ones, and of those that
/// every token uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertsPlan {
    /// How many there are to choose from.
    pub count: usize,
    /// `num_experts_per_tok`.
    pub chosen: usize,
    /// How they are chosen and weighted.
    pub routing: Routing,
    /// Whether the router has a bias.
    pub router_bias: bool,
    /// Each of them.
    pub expert: MlpPlan,
    /// The network that every token uses: `n_shared_experts` experts side by side (DeepSeek).
    pub shared: Option<MlpPlan>,
}

/// How experts are chosen for a token, and how much each counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// What becomes of the router's outputs.
    pub scoring: Scoring,
    /// Only experts of a few groups may be chosen.
    pub groups: Option<GroupPlan>,
    /// `norm_topk_prob`: the weights of the chosen are divided by their sum.
    pub normalised: bool,
    /// `routed_scaling_factor`.
    pub factor: f32,
}

/// What becomes of the router's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scoring {
    /// Softmax over all experts (DeepSeek-V2).
    Softmax,
    /// Softmax over the chosen ones (gpt-oss).
    SoftmaxOfChosen,
    /// Sigmoid of each; a learned correction is added to it for the choice, and not for the weight (DeepSeek-V3).
    CorrectedSigmoid,
}

/// Groups of experts that lie side by side (DeepSeek-V2, 2024, section 2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// `n_group`.
    pub count: usize,
    /// `topk_group`: how many of them experts are chosen from.
    pub chosen: usize,
    /// A group is as good as the sum of so many of its best experts.
    pub best: usize,
}
