//! Normalised queries and keys: Henry et al. 2020, Dehghani et al. 2023.

use heedful_attention::engine::reference::logits;
use heedful_attention::mechanisms::qk_norm::QkNorm;
use heedful_attention::mechanisms::rotary::Rotary;

use super::*;

/// Two heads of width 4.
fn place() -> LayerSpec {
    spec(Role::Encoder, 2).with_d_model(8)
}

fn scores(attention: &AnyAttention, sequence: &Array) -> Array {
    let of = &attention.as_softmax().unwrap().logits;
    let x: Tensor<3> = sequence.tensor(&flex().device);
    let length = sequence.shape[1];
    let keys = of.keys(x.clone(), &Positions::default());
    Array::read(logits(of.terms(x, keys, Span::whole(length, length), &Positions::default()), length))
}

fn times(x: &Array, factor: f64) -> Array {
    Array { shape: x.shape.clone(), values: x.values.iter().map(|x| x * factor).collect() }
}

#[test]
fn the_size_of_elements_does_not_matter() {
    let x = Array::random("x", &[1, 6, 8]);
    for norm in [QkNorm::None, QkNorm::Rms, QkNorm::Layer] {
        let small = (norm != QkNorm::None).then_some(1e-12);
        let attention = init(&DotProductConfig::default().with_qk_norm(norm).with_qk_norm_epsilon(small).into(), &place());
        let (one, hundred) = (scores(&attention, &x), scores(&attention, &times(&x, 100.0)));
        let moved = one.values.iter().zip(&hundred.values).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert_eq!(moved < 1e-4, norm != QkNorm::None, "{norm:?}: {moved}");
    }
}

#[test]
fn no_score_exceeds_what_the_gains_allow() {
    let gains = [Array::random("query gain", &[4]), Array::random("key gain", &[4])];
    let mut attention = init(&DotProductConfig::default().with_qk_norm(QkNorm::Rms).into(), &place());
    let own = softmax(&mut attention).logits.get_mut::<DotProduct>().unwrap();
    let [query, key]: [Param<Tensor<1>>; 2] = [0, 1].map(|index| parameter(&gains[index]));
    (own.query_norm.as_mut().unwrap().gamma, own.key_norm.as_mut().unwrap().gamma) = (query, key);
    let largest = |gain: &Array| gain.values.iter().fold(0.0f64, |largest, gain| largest.max(gain.abs()));
    // sqrt(D) = 2.
    let bound = 2.0 * largest(&gains[0]) * largest(&gains[1]);
    let found = scores(&attention, &times(&Array::random("x", &[1, 40, 8]), 1e3));
    let largest = found.values.iter().fold(0.0f64, |largest, score| largest.max(score.abs()));
    assert!(largest <= bound * (1.0 + 1e-5) && largest > bound / 4.0, "{largest} of at most {bound}");
}

/// A rotation changes no norm: gains of 1 may come before it or after it, others may not.
#[test]
fn rotations_commute_with_a_norm_of_equal_gains_alone() {
    let x = Array::random("x", &[1, 6, 8]);
    let keys = |attention: &AnyAttention| {
        let keys = attention.as_softmax().unwrap().logits.keys(x.tensor(&flex().device), &Positions::from_start(5));
        Array::read(keys.unwrap())
    };
    let mut normalised = init(&RotaryConfig::default().with_qk_norm(QkNorm::Rms).into(), &place());
    let mut plain = init(&parse("rotary"), &place());
    fn of(attention: &mut AnyAttention) -> &mut Rotary {
        softmax(attention).logits.get_mut::<Rotary>().unwrap()
    }
    of(&mut plain).key = of(&mut normalised).key.clone();
    let turned = keys(&plain);
    for (equal, gain) in [(true, Array::from_fn([4], |_| 1.0)), (false, Array::from_fn([4], |[c]| 1.0 + c as f64))] {
        let after: Vec<f64> = turned
            .values
            .chunks(4)
            .flat_map(|head| {
                let root = (head.iter().map(|x| x * x).sum::<f64>() / 4.0 + 1e-6).sqrt();
                head.iter().zip(&gain.values).map(move |(x, gain)| x / root * gain).collect::<Vec<_>>()
            })
            .collect();
        of(&mut normalised).key_norm.as_mut().unwrap().gamma = parameter(&gain);
        let before = keys(&normalised).values;
        let is_same = before.iter().zip(&after).all(|(a, b)| (a - b).abs() < 1e-4);
        assert_eq!(is_same, equal, "{before:?}, {after:?}");
    }
}

/// Henry et al. 2020, equation 5: `g q k / (|q| |k|)`.
#[test]
fn equal_gains_are_one_factor_of_cosines() {
    let mut attention = init(&DotProductConfig::default().with_qk_norm(QkNorm::Rms).with_qk_norm_epsilon(1e-12).into(), &place());
    let plain = {
        let mut plain = init(&parse("dot-product"), &place());
        let from = softmax(&mut attention).logits.get_mut::<DotProduct>().unwrap();
        // g = 10: gains of sqrt(10 / sqrt(D)).
        let gain: Array = Array::from_fn([4], |_| 5f64.sqrt());
        from.query_norm.as_mut().unwrap().gamma = parameter(&gain);
        from.key_norm.as_mut().unwrap().gamma = parameter(&gain);
        let to = softmax(&mut plain).logits.get_mut::<DotProduct>().unwrap();
        (to.query, to.key) = (from.query.clone(), from.key.clone());
        plain
    };
    let x = Array::random("x", &[1, 5, 8]);
    let of = &plain.as_softmax().unwrap().logits;
    let device = flex().device;
    let keys = of.keys(x.tensor(&device), &Positions::default()).unwrap();
    let terms = of.terms(x.tensor(&device), Some(keys.clone()), Span::whole(5, 5), &Positions::default());
    let (queries, keys) = (Array::read(terms.content.unwrap().queries), Array::read(keys));
    let found = scores(&attention, &x);
    for (head, i, j) in (0..2).flat_map(|head| (0..5).flat_map(move |i| (0..5).map(move |j| (head, i, j)))) {
        let (q, k) = (queries.row(&[0, head, i]), keys.row(&[0, head, j]));
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let cosine = product(q, k) / (product(q, q) * product(k, k)).sqrt();
        assert_same("score", &[found.at(&[0, head, i, j])], &[10.0 * cosine], 1e-4);
    }
}

#[test]
fn without_a_norm_nothing_is_added() {
    let none = init(&AnyMechanism::from(DotProductConfig::default()), &place());
    let rms = init(&DotProductConfig::default().with_qk_norm(QkNorm::Rms).into(), &place());
    let x = Array::random("x", &[1, 5, 8]);
    let count = |attention: &AnyAttention| burn::module::Module::num_params(attention);
    assert_eq!((count(&none), count(&rms)), (4 * 64, 4 * 64 + 2 * 4));
    assert_ne!(context(&none, self_attention(&x)), context(&rms, self_attention(&x)));
}
