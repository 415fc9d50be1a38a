//! Relative position biases: Raffel et al. 2020.

use heedful_attention::engine::reference::logits;
use heedful_attention::mechanisms::t5_bias::T5Bias;

use super::*;

/// Two heads of width 3.
fn place(role: Role) -> LayerSpec {
    spec(role, 2)
}

fn t5(role: Role) -> AnyAttention {
    init(&AnyMechanism::from(T5BiasConfig::default()), &place(role))
}

fn of(attention: &mut AnyAttention) -> &mut T5Bias {
    softmax(attention).logits.get_mut::<T5Bias>().unwrap()
}

fn zeros<const D: usize>(shape: [usize; D]) -> Array {
    Array::from_fn(shape, |_| 0.0)
}

/// Scores `[1, 2, N, N]` without contents: the biases.
fn biases(mut attention: AnyAttention, length: usize) -> Array {
    of(&mut attention).query = linear(&zeros([6, 6]));
    let own = &attention.as_softmax().unwrap().logits;
    let x: Tensor<3> = Array::random("x", &[1, length, 6]).tensor(&flex().device);
    let keys = own.keys(x.clone(), &Positions::default());
    Array::read(logits(own.terms(x, keys, Span::whole(length, length), &Positions::default()), length))
}

#[test]
fn equal_distances_have_equal_biases_and_far_ones_share_the_last() {
    for (role, last) in [(Role::Decoder, 113), (Role::Encoder, 91)] {
        let found = biases(t5(role), 140);
        for head in 0..2 {
            let at = |i: usize, j: usize| found.at(&[0, head, i, j]);
            for (i, j) in (1..140).flat_map(|i| (1..140).map(move |j| (i, j))) {
                assert_eq!(at(i, j), at(i - 1, j - 1), "{role:?}, head {head}, query {i}, key {j}");
            }
            let behind: Vec<f64> = (0..140).map(|distance| at(139, 139 - distance)).collect();
            assert!(behind[last..].iter().all(|bias| *bias == behind[139]), "{role:?}: beyond {last}");
            assert_ne!(behind[last - 1], behind[last]);
            assert_ne!(at(0, 5), at(5, 0), "{role:?}: before and after differ");
        }
    }
}

#[test]
fn without_biases_it_is_dot_product_attention_without_a_scale() {
    let (mut attention, mut plain) = (t5(Role::Encoder), init(&parse("dot-product"), &place(Role::Encoder)));
    of(&mut attention).relative_attention_bias = parameter(&zeros([32, 2]));
    let (from, to) = (softmax(&mut attention), softmax(&mut plain));
    let own = from.logits.get_mut::<T5Bias>().unwrap();
    let logits = to.logits.get_mut::<DotProduct>().unwrap();
    // Heads are 3 wide: what one divides by sqrt(3) the other's weights are larger by.
    let weight = Array::read(own.query.weight.val());
    logits.query = linear(&Array::from_fn([6, 6], |at| weight.at(&at) * 3f64.sqrt()));
    logits.key = own.key.clone();
    (to.value, to.output) = (from.value.clone(), from.output.clone());
    let x = Array::random("x", &[2, 7, 6]);
    let [found, expected] = [attention, plain].map(|attention| context(&attention, self_attention(&x)));
    assert_same("context", &found.values, &expected.values, 1e-6);
}

#[test]
fn a_constant_added_to_all_biases_of_a_head_changes_nothing() {
    let x = Array::random("x", &[1, 8, 6]);
    let mut attention = t5(Role::Encoder);
    let before = weights(&attention, self_attention(&x));
    let table = Array::read(of(&mut attention).relative_attention_bias.val());
    let added = [2.0, -1.0];
    of(&mut attention).relative_attention_bias =
        parameter(&Array::from_fn([32, 2], |[bucket, head]| table.at(&[bucket, head]) + added[head]));
    assert_same("weights", &weights(&attention, self_attention(&x)).values, &before.values, 1e-6);
}

#[test]
fn initial_scores_are_as_large_as_with_a_scale() {
    let deviation = |values: &[f64]| (values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64).sqrt();
    let place = LayerSpec::new(Role::Encoder, 256, 4);
    let mut attention = init(&AnyMechanism::from(T5BiasConfig::default()), &place);
    let own = of(&mut attention);
    // 1 / sqrt(256 * 64), 1 / sqrt(256).
    for (what, map, expected) in [("queries", &own.query, 1.0 / 128.0), ("keys", &own.key, 1.0 / 16.0)] {
        let found = deviation(&Array::read(map.weight.val()).values);
        assert!((found / expected - 1.0).abs() < 0.02, "{what}: {found}");
    }
    let found = deviation(&Array::read(own.relative_attention_bias.val()).values);
    assert!((found * 16.0 - 1.0).abs() < 0.25, "biases: {found}");
    assert_eq!(attention.num_params(), 4 * 256 * 256 + 32 * 4);
}
