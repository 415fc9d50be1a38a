//! Rectified weights: softpick (Zuhri, Fuadi and Aji 2025) and ReLU attention (Wortsman, Lee, Gilmer and Kornblith 2023).

use heedful_attention::mechanisms::synthesizer_random::SynthesizerRandom;

use super::*;
use crate::array::finite;

const LENGTH: usize = 8;

fn place() -> LayerSpec {
    spec(Role::Encoder, 1)
}

/// Weights of a query whose keys have these scores.
pub(super) fn weights_of(normaliser: impl Into<AnyMechanism>, scores: [f64; LENGTH]) -> Vec<f64> {
    let mut attention = init(&normaliser.into().over(parse("random")).unwrap(), &place());
    let table = Array::from_fn([1, LENGTH, LENGTH], |[_, _, key]| scores[key]);
    attention.logits_mut::<SynthesizerRandom>().unwrap().table = Some(parameter(&table));
    weights(&attention, self_attention(&Array::random("sequence", &[1, LENGTH, 3]))).row(&[0, 0, 3]).to_vec()
}

const MIXED: [f64; LENGTH] = [1.0, -2.0, 0.5, 0.0, -0.1, 3.0, 0.01, -7.0];

#[test]
fn softpick_gives_weight_to_positive_scores_alone_and_its_rows_sum_to_less_than_1() {
    let found = weights_of(SoftpickConfig::default(), MIXED);
    assert!(found.iter().zip(MIXED).all(|(&weight, score)| (weight > 0.0) == (score > 0.0)), "{found:?}");
    let sum: f64 = MIXED.iter().map(|score| score.exp_m1().abs()).sum();
    let expected: Vec<f64> = MIXED.iter().map(|score| score.exp_m1().max(0.0) / sum).collect();
    assert_same("weights", &found, &expected, 1e-6);
    assert!(found.iter().sum::<f64>() < 0.95);
    let found = weights_of(SoftpickConfig::default(), [0.7; LENGTH]);
    assert_same("equal scores", &found, &[1.0 / LENGTH as f64; LENGTH], 1e-6);
}

#[test]
fn softpick_of_scores_up_to_0_is_0_however_low_they_are() {
    for scores in [[0.0; LENGTH], [-1.0; LENGTH], [-500.0; LENGTH], [-1e6, -3.0, -0.0, -90.0, -88.0, -200.0, -1e-9, 0.0]] {
        assert_eq!(weights_of(SoftpickConfig::default(), scores), [0.0; LENGTH], "{scores:?}");
    }
}

#[test]
fn softpick_keeps_its_digits_where_scores_are_tiny_and_its_range_where_they_are_large() {
    let tiny = MIXED.map(|score| 1e-4 * score);
    let sum: f64 = tiny.iter().map(|score: &f64| score.exp_m1().abs()).sum();
    let expected: Vec<f64> = tiny.iter().map(|score| score.exp_m1().max(0.0) / (sum + 1e-8)).collect();
    assert_same("tiny", &weights_of(SoftpickConfig::default().with_epsilon(1e-8), tiny), &expected, 1e-5);
    let large = [500.0, 499.0, -500.0, 3.0, 0.0, 0.0, 0.0, 0.0];
    let second = 1.0 / (1.0 + 1f64.exp());
    assert_same("large", &weights_of(SoftpickConfig::default(), large), &[1.0 - second, second, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 1e-5);
}

#[test]
fn keys_without_a_weight_have_a_gradient_by_softpick_and_none_by_relu() {
    let scores = Array::from_fn([1, LENGTH, LENGTH], |[_, _, key]| MIXED[key]);
    for (normaliser, has_gradient) in [("softpick", true), ("relu", false), ("relu-squared", false)] {
        let mechanism = parse(normaliser).over(parse("random")).unwrap();
        let mut subject = Subject::of(&mechanism, place(), &flex().device);
        let table = parameter(&scores).map(|table| burn::tensor::Tensor::from_inner(table).require_grad());
        subject.tracked.logits_mut::<SynthesizerRandom>().unwrap().table = Some(table);
        let case = subject.case("gradients", 1, LENGTH);
        let gradients = subject.gradients(&case, |input| input);
        let found = &gradients.parameters["Softmax.logits.SynthesizerRandom.table"];
        finite(normaliser, &found.values).unwrap();
        for (key, score) in MIXED.into_iter().enumerate().filter(|(_, score)| *score < 0.0) {
            let is_there = (0..LENGTH).any(|query| found.at(&[0, query, key]).abs() > 1e-6);
            assert_eq!(is_there, has_gradient, "{normaliser}: key {key} with the score {score}");
        }
    }
}

#[test]
fn relu_attention_divides_positive_scores_by_the_length_of_the_model() {
    for (power, name) in [(1, "relu"), (2, "relu-squared")] {
        let expected = |length: f64| MIXED.map(|score| score.max(0.0).powi(power) / length);
        assert_same(name, &weights_of(parse(name), MIXED), &expected(LENGTH as f64), 1e-6);
        let longer = ReluConfig::default().with_power(power as usize).with_length(32);
        assert_same(name, &weights_of(longer, MIXED), &expected(32.0), 1e-6);
    }
}

#[test]
fn a_shift_of_all_scores_changes_what_is_rectified() {
    let shifted = MIXED.map(|score| score + 0.5);
    let differs = |name| crate::array::same(name, &weights_of(parse(name), MIXED), &weights_of(parse(name), shifted), 1e-3).is_err();
    assert!(differs("softpick") && differs("relu") && differs("relu-squared"));
}
