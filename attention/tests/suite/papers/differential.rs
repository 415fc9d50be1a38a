//! The Differential Transformer: Ye et al. 2025.

use heedful_attention::conformance::Subject;
use heedful_attention::mechanisms::differential::{Differential, lambda_init};

use super::*;

fn inner(attention: &mut AnyAttention) -> &mut SoftmaxAttention<Differential> {
    attention.get_mut().expect("it is a differential attention")
}

fn set_vectors(heads: &mut Differential, value: f64) {
    let of = |old: &burn::module::Param<Tensor<1>>| parameter(&Array::from_fn(old.dims(), |_| value));
    (heads.lambda_q1, heads.lambda_k1) = (of(&heads.lambda_q1), of(&heads.lambda_k1));
    (heads.lambda_q2, heads.lambda_k2) = (of(&heads.lambda_q2), of(&heads.lambda_k2));
}

/// Signed weights `[B, H, Q, K]`.
fn signed(attention: &AnyAttention, x: &Array) -> Array {
    let mut shown = Vec::new();
    let mut listener = |_: &str, observation: Observation| match observation {
        Observation::SignedWeights(weights) => shown.push(Array::read(weights)),
        Observation::Weights(_) => panic!("signed weights are no weights"),
        _ => {}
    };
    attention.forward(self_attention(x), &mut Probe::listening(&mut listener));
    assert_eq!(shown.len(), 1);
    shown.remove(0)
}

#[test]
fn lambda_begins_at_what_the_paper_says_for_each_layer() {
    for (layer, expected) in [(0, 0.2), (1, 0.8 - 0.6 * (-0.3f64).exp()), (2, 0.8 - 0.6 * (-0.6f64).exp())] {
        assert!((lambda_init(layer) - expected).abs() < 1e-12);
        let mut attention = init(&parse("differential"), &spec(Role::Decoder, 2).at_layer(layer, 3));
        set_vectors(&mut inner(&mut attention).logits, 0.0);
        assert_same("lambda", &Array::read(inner(&mut attention).logits.lambda()).values, &[expected], 1e-6);
    }
    let mut chosen = init(&DifferentialConfig::default().with_lambda_init(0.5).into(), &spec(Role::Decoder, 2).at_layer(2, 3));
    set_vectors(&mut inner(&mut chosen).logits, 0.0);
    assert_same("lambda", &Array::read(inner(&mut chosen).logits.lambda()).values, &[0.5], 1e-6);
}

#[test]
fn without_norm_and_subtraction_it_is_one_softmax_over_half_the_width() {
    let config = DifferentialConfig::default().with_norm(false).with_lambda_init(0.0);
    let place = spec(Role::Decoder, 2);
    let mut attention = init(&AnyMechanism::from(config), &place);
    let heads = inner(&mut attention);
    set_vectors(&mut heads.logits, 0.0);
    let mut plain = SoftmaxAttention::new(heads.logits.first.clone(), &place, &RandomKey::from_seed(2), &flex().device);
    (plain.value, plain.output) = (heads.value.clone(), heads.output.clone());
    let x = Array::random("x", &[2, 6, 6]);
    assert_same("context", &context(&attention, self_attention(&x)).values, &context(&plain, self_attention(&x)).values, 1e-6);
}

#[test]
fn what_both_softmaxes_give_cancels() {
    // Of an even width both softmaxes can have the same scores.
    let place = spec(Role::Decoder, 2).with_head_width(Some(4));
    let mut attention = init(&AnyMechanism::from(DifferentialConfig::default().with_norm(false)), &place);
    let heads = inner(&mut attention);
    heads.logits.second = heads.logits.first.clone();
    let lambda = Array::read(heads.logits.lambda()).values[0];
    let mut plain = SoftmaxAttention::new(heads.logits.first.clone(), &place, &RandomKey::from_seed(2), &flex().device);
    (plain.value, plain.output) = (heads.value.clone(), heads.output.clone());
    let x = Array::random("x", &[2, 6, 6]);
    let expected: Vec<f64> = context(&plain, self_attention(&x)).values.iter().map(|y| (1.0 - lambda) * y).collect();
    assert_same("context", &context(&attention, self_attention(&x)).values, &expected, 1e-5);
}

#[test]
fn rows_of_signed_weights_sum_to_one_less_lambda() {
    let mut attention = init(&parse("differential"), &spec(Role::Decoder, 2));
    set_vectors(&mut inner(&mut attention).logits, 0.3);
    let lambda = Array::read(inner(&mut attention).logits.lambda()).values[0];
    let weights = signed(&attention, &Array::random("x", &[2, 6, 6]));
    assert_eq!(weights.shape, [2, 2, 6, 6]);
    for (b, h, i) in (0..2).flat_map(|b| (0..2).flat_map(move |h| (0..6).map(move |i| (b, h, i)))) {
        let row = weights.row(&[b, h, i]);
        assert_same("sum", &[row.iter().sum()], &[1.0 - lambda], 1e-5);
        assert_same("future", &row[i + 1..], &vec![0.0; 5 - i], 0.0);
    }
}

#[test]
fn the_norm_takes_the_size_of_values_away() {
    let mut attention = init(&parse("differential"), &spec(Role::Decoder, 2));
    let x = Array::random("x", &[2, 6, 6]);
    let before = context(&attention, self_attention(&x));
    let value = &mut inner(&mut attention).value;
    value.weight = parameter(&Array::read(value.weight.val() * 100.0));
    let after = context(&attention, self_attention(&x));
    // But for the small number beside the mean square, which matters to what is small.
    let far = after.values.iter().zip(&before.values).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    let size = after.values.iter().map(|a| a * a).sum::<f64>().sqrt();
    assert!(far < 0.01 * size, "{far} of {size}");
}

#[test]
fn vectors_of_zeros_stay_where_they_are() {
    let mut subject = Subject::of(&parse("differential"), spec(Role::Decoder, 2), &flex().device);
    let case = subject.case("saddle", 2, 5);
    let moves = |subject: &Subject<AnyAttention>| {
        let gradients = subject.gradients(&case, |input| input).parameters;
        let of_vectors: Vec<f64> =
            gradients.iter().filter(|(path, _)| path.contains("lambda_")).flat_map(|(_, gradient)| gradient.values.clone()).collect();
        assert_eq!(of_vectors.len(), 6);
        of_vectors.iter().any(|gradient| *gradient != 0.0)
    };
    assert!(moves(&subject), "normal vectors have a gradient");
    let heads = &mut subject.tracked.get_mut::<SoftmaxAttention<Differential>>().unwrap().logits;
    for vector in [&mut heads.lambda_q1, &mut heads.lambda_k1, &mut heads.lambda_q2, &mut heads.lambda_k2] {
        *vector = burn::module::Param::from_tensor(vector.val().zeros_like());
    }
    assert!(!moves(&subject));
}
