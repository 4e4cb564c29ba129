//! Which experts a token goes to, and how much each counts.

use crate::spec::{ExpertsPlan, GroupPlan, Scoring};

/// The chosen experts of one token and their weights, best first, from the router's outputs. Of equals the first wins.
pub(super) fn experts(plan: &ExpertsPlan, outputs: &[f32], correction: &[f32]) -> Vec<(usize, f32)> {
    let routing = plan.routing;
    let outputs = outputs.iter().map(|&x| f64::from(x));
    let scores: Vec<f64> = match routing.scoring {
        Scoring::Softmax => softmax(&outputs.collect::<Vec<_>>()),
        Scoring::SoftmaxOfChosen => outputs.collect(),
        Scoring::CorrectedSigmoid => outputs.map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
    };
    let corrected = scores.iter().zip(correction).map(|(s, c)| s + f64::from(*c));
    let mut merits: Vec<f64> = corrected.collect();
    if let Some(groups) = routing.groups {
        shut_groups(&mut merits, groups);
    }
    let chosen = best(&merits, plan.chosen);
    let mut weights: Vec<f64> = chosen.iter().map(|&expert| scores[expert]).collect();
    if routing.scoring == Scoring::SoftmaxOfChosen {
        weights = softmax(&weights);
    }
    let sum = match routing.normalised {
        true => weights.iter().sum::<f64>() + 1e-20,
        false => 1.0,
    };
    let weight = |w: f64| (w / sum * f64::from(routing.factor)) as f32;
    chosen.into_iter().zip(weights.into_iter().map(weight)).collect()
}

/// Puts the experts of all but the best groups out of reach.
fn shut_groups(merits: &mut [f64], groups: GroupPlan) {
    let size = merits.len() / groups.count;
    let merit = |group: &[f64]| best(group, groups.best).into_iter().map(|e| group[e]).sum::<f64>();
    let of_groups: Vec<f64> = merits.chunks_exact(size).map(merit).collect();
    let open = best(&of_groups, groups.chosen);
    for (group, merits) in merits.chunks_exact_mut(size).enumerate() {
        if !open.contains(&group) {
            merits.fill(f64::NEG_INFINITY);
        }
    }
}

/// The places of the largest values, largest first.
fn best(values: &[f64], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    places.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    places.truncate(count);
    places
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = x.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Activation, MlpPlan, Routing};

    fn plan(chosen: usize, routing: Routing) -> ExpertsPlan {
        ExpertsPlan {
            count: 6,
            chosen,
            routing,
            router_bias: false,
            expert: MlpPlan {
                intermediate: 1,
                activation: Activation::Silu,
                gated: true,
                bias: false,
            },
            shared: None,
        }
    }

    const SOFTMAX: Routing = Routing {
        scoring: Scoring::Softmax,
        groups: None,
        normalised: false,
        factor: 1.0,
    };

    fn check(plan: &ExpertsPlan, outputs: [f64; 6], correction: [f32; 6], want: &[(usize, f64)]) {
        let got = experts(plan, &outputs.map(|x| x as f32), &correction);
        let places = |all: &mut dyn Iterator<Item = usize>| all.collect::<Vec<_>>();
        assert_eq!(
            places(&mut got.iter().map(|g| g.0)),
            places(&mut want.iter().map(|w| w.0))
        );
        for (got, want) in got.iter().zip(want) {
            assert!((f64::from(got.1) - want.1).abs() < 1e-6, "{got:?}, {want:?} expected");
        }
    }

    /// Logarithms of 1, 4, 2, 4, 8, 1: a softmax of twentieths.
    fn twentieths() -> [f64; 6] {
        [1.0_f64, 4.0, 2.0, 4.0, 8.0, 1.0].map(f64::ln)
    }

    #[test]
    fn the_largest_of_a_softmax_count_as_much_as_they_have() {
        let none = [0.0; 6];
        check(&plan(2, SOFTMAX), twentieths(), none, &[(4, 0.4), (1, 0.2)]);
        let scaled = Routing { factor: 2.5, ..SOFTMAX };
        check(&plan(2, scaled), twentieths(), none, &[(4, 1.0), (1, 0.5)]);
        let normalised = Routing {
            normalised: true,
            ..SOFTMAX
        };
        check(
            &plan(3, normalised),
            twentieths(),
            none,
            &[(4, 0.5), (1, 0.25), (3, 0.25)],
        );
    }

    #[test]
    fn a_softmax_of_the_chosen_is_the_normalised_softmax() {
        let of_chosen = Routing {
            scoring: Scoring::SoftmaxOfChosen,
            ..SOFTMAX
        };
        check(
            &plan(3, of_chosen),
            twentieths(),
            [0.0; 6],
            &[(4, 0.5), (1, 0.25), (3, 0.25)],
        );
    }

    /// Groups (1, 4), (2, 4), (8, 1): by the best expert the last one and the first, by two the last and the second.
    #[test]
    fn only_experts_of_the_best_groups_are_chosen() {
        let groups = |chosen, best| Routing {
            groups: Some(GroupPlan { count: 3, chosen, best }),
            ..SOFTMAX
        };
        let none = [0.0; 6];
        check(
            &plan(3, groups(2, 1)),
            twentieths(),
            none,
            &[(4, 0.4), (1, 0.2), (0, 0.05)],
        );
        check(
            &plan(3, groups(2, 2)),
            twentieths(),
            none,
            &[(4, 0.4), (3, 0.2), (2, 0.1)],
        );
        check(&plan(2, groups(1, 1)), twentieths(), none, &[(4, 0.4), (5, 0.05)]);
    }

    /// Sigmoids 0.1, 0.8, 0.5, 0.5, 0.9, 0.2: the correction decides who is chosen, and not how much it counts.
    #[test]
    fn a_correction_is_for_the_choice_only() {
        let outputs = [0.1_f64, 0.8, 0.5, 0.5, 0.9, 0.2].map(|p| (p / (1.0 - p)).ln());
        let sigmoid = Routing {
            scoring: Scoring::CorrectedSigmoid,
            ..SOFTMAX
        };
        check(&plan(2, sigmoid), outputs, [0.0; 6], &[(4, 0.9), (1, 0.8)]);
        let correction = [0.0, -0.5, 0.0, 0.2, 0.0, 0.0];
        check(&plan(2, sigmoid), outputs, correction, &[(4, 0.9), (3, 0.5)]);
        let whole = Routing {
            normalised: true,
            factor: 2.8,
            groups: Some(GroupPlan {
                count: 3,
                chosen: 2,
                best: 2,
            }),
            ..sigmoid
        };
        // Groups of 0.4, 1.2 and 1.1: the first is shut.
        check(&plan(2, whole), outputs, correction, &[(4, 1.8), (3, 1.0)]);
    }
}
