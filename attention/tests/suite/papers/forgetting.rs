//! The Forgetting Transformer: Lin et al. 2025.

use heedful_attention::mechanisms::alibi::Alibi;
use heedful_attention::mechanisms::forgetting::{ForgetGate, Forgetting};

use super::*;

fn forgetting(config: ForgettingConfig) -> AnyAttention {
    init(&AnyMechanism::from(config), &spec(Role::Decoder, 2))
}

/// Gates that all begin at `σ(bias)`, and depend on the elements by `weight` `[C, H]`.
fn set_gates(attention: &mut AnyAttention, weight: &Array, bias: f64) {
    let logits = softmax(attention).logits.get_mut::<Forgetting>().unwrap();
    logits.forget = Some(Linear { weight: parameter(weight), bias: Some(parameter(&Array::from_fn([2], |_| bias))) });
}

/// The shared projections and those of queries and keys.
fn projections(attention: &mut AnyAttention) -> [Linear; 4] {
    let attention = softmax(attention);
    let logits = attention.logits.get::<Forgetting>().unwrap();
    [&attention.value, &attention.output, &logits.query, &logits.key].map(Clone::clone)
}

#[test]
fn fixed_gates_are_linear_biases() {
    let config = ForgettingConfig::default().with_gate(ForgetGate::Fixed).with_decay_times([2.0, 16.0]);
    let mut attention = forgetting(config);
    let slopes = AlibiConfig::default().with_slopes(vec![1.0 / 2.0, 1.0 / 16.0]);
    let mut linear_biases = init(&AnyMechanism::from(slopes), &spec(Role::Decoder, 2));
    let [value, output, query, key] = projections(&mut attention);
    let inner = softmax(&mut linear_biases);
    (inner.value, inner.output) = (value, output);
    let logits = inner.logits.get_mut::<Alibi>().unwrap();
    (logits.query, logits.key) = (query, key);
    let x = Array::random("x", &[2, 8, 6]);
    assert_same("context", &context(&attention, self_attention(&x)).values, &context(&linear_biases, self_attention(&x)).values, 1e-5);
}

#[test]
fn open_gates_forget_nothing() {
    let mut attention = forgetting(ForgettingConfig::default());
    set_gates(&mut attention, &Array::from_fn([6, 2], |_| 0.0), 80.0);
    let mut plain = init(&parse("dot-product"), &spec(Role::Decoder, 2));
    let [value, output, query, key] = projections(&mut attention);
    let inner = softmax(&mut plain);
    (inner.value, inner.output) = (value, output);
    let logits = inner.logits.get_mut::<DotProduct>().unwrap();
    (logits.query, logits.key) = (query, key);
    let x = Array::random("x", &[2, 8, 6]);
    assert_same("context", &context(&attention, self_attention(&x)).values, &context(&plain, self_attention(&x)).values, 1e-5);
}

#[test]
fn a_closed_gate_hides_what_came_before_it_and_not_its_own_position() {
    let mut attention = forgetting(ForgettingConfig::default());
    // The first channel of an element says how far its gate is open.
    set_gates(&mut attention, &Array::from_fn([6, 2], |[row, _]| if row == 0 { 80.0 } else { 0.0 }), 0.0);
    let sequence = |name: &str| {
        let content = Array::random(name, &[1, 8, 6]);
        Array::from_fn([1, 8, 6], |[_, i, c]| match (c, i) {
            (0, 4) => -1.0,
            (0, _) => 1.0,
            // What comes from the gate on is the same in all of them.
            _ if i >= 4 => Array::random("x", &[1, 8, 6]).at(&[0, i, c]),
            _ => content.at(&[0, i, c]),
        })
    };
    let found = weights(&attention, self_attention(&sequence("x")));
    for (head, query) in (0..2).flat_map(|head| (4..8).map(move |query| (head, query))) {
        let row = found.row(&[0, head, query]);
        assert_same("weights before the gate", &row[..4], &[0.0; 4], 1e-12);
        assert!(row[4] > 0.0, "the position of the gate sees itself and is seen: {row:?}");
        assert!(found.row(&[0, head, 3])[..4].iter().all(|&weight| weight > 0.0), "earlier queries see their past");
    }
    let [one, other] = ["x", "another past"].map(|name| context(&attention, self_attention(&sequence(name))));
    assert_same("outputs from the gate on", &other.row(&[0])[24..], &one.row(&[0])[24..], 1e-6);
    assert!(crate::array::same("before", &other.row(&[0])[..24], &one.row(&[0])[..24], 1e-3).is_err(), "the past differs");
}
