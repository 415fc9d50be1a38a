//! MLP-Mixer: Tolstikhin et al. 2021.

use heedful_attention::conformance::Property;
use heedful_attention::mechanisms::mlp_mixer::MlpMixer;

use super::*;

fn mixer() -> AnyAttention {
    init(&MlpMixerConfig::default().with_hidden(5).into(), &spec(Role::Encoder, 2))
}

#[test]
fn channels_are_mixed_alike_and_not_with_each_other() {
    let x = Array::random("x", &[1, 7, 6]);
    let order = [4, 0, 5, 2, 1, 3];
    let permuted = |x: &Array| Array::from_fn([1, 7, 6], |[_, i, c]| x.at(&[0, i, order[c]]));
    let [plain, found] = [&x, &permuted(&x)].map(|x| context(&mixer(), self_attention(x)));
    assert_same("outputs", &found.values, &permuted(&plain).values, 1e-6);
}

#[test]
fn a_shorter_sequence_is_one_that_ends_in_zeros() {
    let x = Array::random("x", &[2, 8, 6]);
    let zeros = Array::from_fn([2, 8, 6], |[b, i, c]| if i < 5 { x.at(&[b, i, c]) } else { 0.0 });
    let [short, long] = [&x.slice(0..5), &zeros].map(|x| context(&mixer(), self_attention(x)));
    assert_same("outputs", &short.values, &long.slice(0..5).values, 1e-6);
}

#[test]
fn units_far_above_0_are_a_linear_map_of_positions() {
    let mut attention = mixer();
    let inner = attention.get_mut::<MlpMixer>().unwrap();
    let (first, second) = (Array::read(inner.hidden_weight.val()), Array::read(inner.mixing_weight.val()));
    inner.hidden_bias = parameter(&Array::from_fn([5], |_| 20.0));
    let x = Array::random("x", &[1, 8, 6]);
    let unit = |unit: usize, c: usize| 20.0 + (0..8).map(|j| first.at(&[unit, j]) * x.at(&[0, j, c])).sum::<f64>();
    let expected = Array::from_fn([1, 8, 6], |[_, i, c]| (0..5).map(|u| second.at(&[i, u]) * unit(u, c)).sum());
    assert_same("outputs", &context(&attention, self_attention(&x)).values, &expected.values, 1e-5);
}

/// With biases that are not 0.
fn biased(attention: &mut AnyAttention) {
    let inner = attention.get_mut::<MlpMixer>().unwrap();
    inner.hidden_bias = parameter(&Array::random("b1", &[5]));
    inner.mixing_bias = parameter(&Array::random("b2", &[8]));
}

#[test]
fn biases_are_those_of_the_formula() {
    let config = AnyMechanism::from(MlpMixerConfig::default().with_hidden(5));
    let built = config.clone();
    let build = move |spec: &_, key: &_, device: &_| {
        let mut attention = built.init(spec, key, device);
        biased(&mut attention);
        attention
    };
    let subject = Subject::new(spec(Role::Encoder, 2), build, &flex().device).computing(&config);
    Property::Formula.check(&subject).unwrap();
}

#[test]
fn a_row_in_which_nothing_is_seen_is_0() {
    let mut attention = mixer();
    biased(&mut attention);
    let x = Array::random("x", &[2, 6, 6]);
    let found = context(&attention, self_attention(&x).visibility(Visibility::padding(vec![0, 4])));
    assert_same("outputs", found.row(&[0]), &[0.0; 36], 0.0);
    assert!(found.row(&[1]).iter().all(|y| *y != 0.0));
}
