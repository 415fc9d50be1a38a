//! Gates on what heads give: Qiu et al. 2025.

use heedful_attention::conformance::Subject;
use heedful_attention::mechanisms::output_gate::{GateForm, OutputGate};

use super::*;

/// An attention, and the same without the gate.
fn pair(logits: &str, form: GateForm) -> [AnyAttention; 2] {
    let place = spec(Role::Decoder, 2);
    let gated = OutputGateConfig::default().with_form(form).with_logits(parse(logits));
    let mut gated = init(&AnyMechanism::from(gated), &place);
    let mut plain = init(&parse(logits), &place);
    let from = softmax(&mut gated);
    let to = softmax(&mut plain);
    (to.value, to.output) = (from.value.clone(), from.output.clone());
    to.logits = from.logits.get::<OutputGate>().unwrap().logits[0].clone();
    [gated, plain]
}

fn set_gate(attention: &mut AnyAttention, gate: Linear) {
    softmax(attention).logits.get_mut::<OutputGate>().unwrap().output_gate = gate;
}

/// All gates are `σ(bias)`.
fn constant(width: usize, bias: f64) -> Linear {
    let weight = parameter(&Array::from_fn([6, width], |_| 0.0));
    Linear { weight, bias: Some(parameter(&Array::from_fn([width], |_| bias))) }
}

#[test]
fn gates_that_do_not_look_halve_the_output_and_open_ones_change_nothing() {
    let x = Array::random("x", &[2, 5, 6]);
    for logits in ["dot-product", "alibi", "random@local-1d", "dot-product@sigmoid"] {
        for (form, width) in [(GateForm::Elementwise, 6), (GateForm::Headwise, 2)] {
            let [mut gated, plain] = pair(logits, form);
            let plain = context(&plain, self_attention(&x));
            for (bias, share) in [(0.0, 0.5), (80.0, 1.0), (-80.0, 0.0)] {
                set_gate(&mut gated, constant(width, bias));
                let expected: Vec<f64> = plain.values.iter().map(|y| share * y).collect();
                assert_same(&format!("{logits}, {form:?}, {bias}"), &context(&gated, self_attention(&x)).values, &expected, 1e-6);
            }
        }
    }
}

#[test]
fn a_gate_is_opened_by_the_querys_element_and_leaves_weights_as_they_are() {
    let [mut gated, plain] = pair("dot-product", GateForm::Headwise);
    // The first channel opens the gates of both heads.
    set_gate(&mut gated, linear(&Array::from_fn([6, 2], |[row, _]| if row == 0 { 80.0 } else { 0.0 })));
    let closed = |i: usize| i == 1 || i == 4;
    let content = Array::random("x", &[1, 6, 6]);
    let x = Array::from_fn([1, 6, 6], |[_, i, c]| match c {
        0 => f64::from(u8::from(!closed(i))) * 2.0 - 1.0,
        _ => content.at(&[0, i, c]),
    });
    let [found, expected] = [&gated, &plain].map(|attention| context(attention, self_attention(&x)));
    for i in 0..6 {
        let expected = if closed(i) { &[0.0; 6][..] } else { expected.row(&[0, i]) };
        assert_same(&format!("query {i}"), found.row(&[0, i]), expected, 1e-6);
    }
    let [found, expected] = [&gated, &plain].map(|attention| weights(attention, self_attention(&x)));
    assert_same("weights", &found.values, &expected.values, 0.0);
}

#[test]
fn gates_are_shown_as_they_are_for_each_channel_or_head() {
    let x = Array::random("x", &[2, 5, 6]);
    for (form, width) in [(GateForm::Elementwise, 3), (GateForm::Headwise, 1)] {
        let [mut gated, _] = pair("dot-product", form);
        set_gate(&mut gated, constant(2 * width, 1.0));
        let mut shown = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::HeadGates(open) = observation {
                shown.push(Array::read(open));
            }
        };
        heedful_attention::contract::Attention::forward(&gated, self_attention(&x), &mut Probe::listening(&mut listener));
        let [open] = &shown[..] else { panic!("gates were shown {} times", shown.len()) };
        assert_eq!(open.shape, [2, 2, 5, width]);
        assert!(open.values.iter().all(|open| (open - 1.0 / (1.0 + (-1f64).exp())).abs() < 1e-6), "{open:?}");
    }
}

#[test]
fn a_bias_lets_all_gates_begin_alike() {
    let config = OutputGateConfig::default().with_bias(10.0);
    let subject = Subject::of(&AnyMechanism::from(config), spec(Role::Decoder, 2), &flex().device);
    let gate = &subject.attention.logits::<OutputGate>().unwrap().output_gate;
    assert!(Array::read(gate.weight.val()).values.iter().all(|&weight| weight == 0.0));
    assert_eq!(Array::read(gate.bias.as_ref().unwrap().val()).values, [10.0; 6]);
}
