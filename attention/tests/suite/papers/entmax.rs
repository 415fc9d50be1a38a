//! Sparse weights: sparsemax (Martins and Astudillo 2016) and entmax (Peters, Niculae and Martins 2019).

use heedful_attention::engine::{AttentionProgram, Normaliser, Weighting, reference};

use super::rectified::weights_of;
use super::*;

// The numbers of the package are those of `entmax` 1.3, in double precision: `entmax15(z)` and `sparsemax(z)` for `z` = MIXED, and `z.grad` after
// `(weights * counts).sum().backward()`.
const ENTMAX: [f64; 8] = [0.338695955, 0.0, 0.110208002, 0.006720049, 0.001022459, 0.535788727, 0.007564808, 0.0];
const SPARSEMAX: [f64; 8] = [0.35, 0.0, 0.0, 0.0, 0.0, 0.65, 0.0, 0.0];
const ENTMAX_GRADIENT: [f64; 8] = [-0.332756166, 0.0, 0.374545289, -0.014080974, -0.040665987, 0.167059109, -0.154101271, 0.0];
const SPARSEMAX_GRADIENT: [f64; 8] = [-0.4, 0.0, 0.0, 0.0, 0.0, 0.4, 0.0, 0.0];

const MIXED: [f64; 8] = [1.0, -2.0, 0.5, 0.0, -0.1, 1.3, 0.01, -7.0];

#[test]
fn weights_are_those_of_the_package_of_the_authors() {
    for (name, expected) in [("entmax", ENTMAX), ("sparsemax", SPARSEMAX)] {
        let found = weights_of(parse(name), MIXED);
        assert_same(name, &found, &expected, 1e-6);
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-6);
    }
}

#[test]
fn a_key_that_is_far_ahead_has_all_weight_and_equal_keys_have_equal_weights() {
    for (name, gap) in [("entmax", 2.0), ("sparsemax", 1.0)] {
        let scores = |ahead: f64| std::array::from_fn(|key| if key == 5 { ahead } else { 0.0 });
        let alone = std::array::from_fn::<_, 8, _>(|key| f64::from(u8::from(key == 5)));
        assert_eq!(weights_of(parse(name), scores(gap + 1e-3)), alone, "{name}");
        assert!(weights_of(parse(name), scores(gap - 1e-2)).iter().all(|&weight| weight > 0.0), "{name}");
        assert_same(name, &weights_of(parse(name), [0.7; 8]), &[0.125; 8], 1e-6);
    }
}

#[test]
fn a_shift_of_all_scores_changes_nothing() {
    for name in ["entmax", "sparsemax"] {
        assert_same(name, &weights_of(parse(name), MIXED.map(|score| score + 3.0)), &weights_of(parse(name), MIXED), 2e-6);
    }
}

#[test]
fn weights_come_near_those_of_a_softmax_as_alpha_comes_near_1() {
    let sum: f64 = MIXED.iter().map(|score| score.exp()).sum();
    let softmax = MIXED.map(|score| score.exp() / sum);
    let distance = |alpha| {
        let found = weights_of(EntmaxConfig::default().with_alpha(alpha), MIXED);
        found.iter().zip(softmax).map(|(a, b)| (a - b).abs()).sum::<f64>()
    };
    let distances = [2.0, 1.5, 1.333, 1.25, 1.125].map(distance);
    assert!(distances.is_sorted_by(|a, b| a > b) && distances[4] < 0.15, "{distances:?}");
}

/// What the loss takes each weight times.
const COUNTS: [f64; 8] = [0.3, -1.0, 2.0, 0.7, -0.4, 1.1, -0.9, 0.2];

#[test]
fn gradients_are_those_of_the_package_of_the_authors() {
    let device = flex().device.autodiff();
    for (power, expected) in [(2, ENTMAX_GRADIENT), (1, SPARSEMAX_GRADIENT)] {
        let scores = Array::from_fn([1, 1, 1, 8], |[_, _, _, key]| MIXED[key]).tensor::<4>(&device).require_grad();
        let program = AttentionProgram {
            weighting: Weighting::Scores(LogitTerms::bias(scores.clone()), Normaliser::Entmax { power }),
            mask: None,
            soft_span: None,
            values: Array::from_fn([1, 1, 8, 1], |[_, _, key, _]| COUNTS[key]).tensor(&device),
            dropout: None,
        };
        let gradients = reference::attend(program, &mut Probe::off()).sum().backward();
        let found = Array::read(scores.grad(&gradients).expect("scores have a gradient"));
        assert_same(&format!("power {power}"), &found.values, &expected, 1e-6);
    }
}
