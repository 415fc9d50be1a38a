//! Lightweight and dynamic convolutions: Wu et al. 2019.

use heedful_attention::mechanisms::convolution_attention::{ConvolutionAttention, ConvolutionExecution, KernelSizes};
use heedful_attention::mechanisms::dynamic_conv::DynamicConv;
use heedful_attention::mechanisms::lightweight_conv::LightweightConv;

use super::*;

fn light(taps: usize) -> LightweightConvConfig {
    LightweightConvConfig::default().with_kernel(KernelSizes::All(taps)).with_glu(false)
}

fn dynamic(taps: usize) -> DynamicConvConfig {
    DynamicConvConfig::default().with_kernel(KernelSizes::All(taps)).with_glu(false)
}

/// A lightweight convolution with the given logits `[H, k]` of taps and no other parameters: its projections are the identity.
fn with_kernel(config: LightweightConvConfig, role: Role, logits: &Array) -> AnyAttention {
    let mut attention = init(&AnyMechanism::from(config), &spec(role, 2));
    let inner = attention.get_mut::<ConvolutionAttention<LightweightConv>>().unwrap();
    inner.kernel.weight = parameter(logits);
    (inner.input, inner.output) = (linear(&identity(6)), linear(&identity(6)));
    attention
}

#[test]
fn a_kernel_at_the_centre_alone_is_the_identity() {
    let x = Array::random("x", &[2, 7, 6]);
    for (role, taps, centre) in [(Role::Encoder, 3, 1), (Role::Encoder, 5, 2), (Role::Encoder, 4, 2), (Role::Decoder, 4, 3)] {
        let logits = Array::from_fn([2, taps], |[_, tap]| if tap == centre { 100.0 } else { 0.0 });
        let found = context(&with_kernel(light(taps), role, &logits), self_attention(&x));
        assert_same(&format!("{role:?}, {taps} taps"), &found.values, &x.values, 1e-6);
    }
}

#[test]
fn equal_logits_are_a_moving_average_over_zeros_at_the_borders() {
    let x = Array::random("x", &[1, 6, 6]);
    for (role, back, ahead) in [(Role::Encoder, 2, 2), (Role::Decoder, 4, 0)] {
        let found = context(&with_kernel(light(5), role, &Array::from_fn([2, 5], |_| 0.7)), self_attention(&x));
        let mean = |[b, i, c]: [usize; 3]| (i.saturating_sub(back)..6.min(i + ahead + 1)).map(|j| x.at(&[b, j, c])).sum::<f64>() / 5.0;
        assert_same(&format!("{role:?}"), &found.values, &Array::from_fn([1, 6, 6], mean).values, 1e-6);
    }
}

#[test]
fn renormalised_rows_are_a_softmax_over_the_visible_taps() {
    let logits = Array::random("kernel", &[2, 5]);
    let config = light(5).with_renormalise_padding(true);
    let x = Array::random("x", &[1, 6, 6]);
    let found = weights(&with_kernel(config, Role::Encoder, &logits), self_attention(&x).visibility(Visibility::padding(vec![5])));
    for (h, i) in (0..2).flat_map(|h| (0..6).map(move |i| (h, i))) {
        let shown = |j: usize| j < 5 && j + 2 >= i && j <= i + 2;
        let exponential = |j: usize| if shown(j) { logits.at(&[h, j + 2 - i]).exp() } else { 0.0 };
        let sum: f64 = (0..6).map(exponential).sum();
        let expected: Vec<f64> = (0..6).map(|j| exponential(j) / sum).collect();
        assert_same(&format!("head {h}, query {i}"), found.row(&[0, h, i]), &expected, 1e-6);
    }
}

/// A lightweight and a dynamic convolution with the same projections, the dynamic one's kernel being a bias.
fn constant_dynamic(logits: &Array, role: Role) -> AnyAttention {
    let config = dynamic(logits.shape[1]).with_kernel_bias(true);
    let mut attention = init(&AnyMechanism::from(config), &spec(role, 2));
    let inner = attention.get_mut::<ConvolutionAttention<DynamicConv>>().unwrap();
    let taps = logits.values.len();
    inner.kernel.predictor.weight = parameter(&Array::from_fn([6, taps], |_| 0.0));
    inner.kernel.predictor.bias = Some(parameter(&Array { shape: vec![taps], values: logits.values.clone() }));
    (inner.input, inner.output) = (linear(&identity(6)), linear(&identity(6)));
    attention
}

#[test]
fn a_dynamic_kernel_without_weights_is_a_lightweight_kernel() {
    let x = Array::random("x", &[2, 7, 6]);
    for role in [Role::Encoder, Role::Decoder] {
        for (what, logits) in [("uniform", Array::from_fn([2, 3], |_| 0.0)), ("biased", Array::random("kernel", &[2, 3]))] {
            let found = context(&constant_dynamic(&logits, role), self_attention(&x));
            let expected = context(&with_kernel(light(3), role, &logits), self_attention(&x));
            assert_same(&format!("{what}, {role:?}"), &found.values, &expected.values, 1e-6);
        }
    }
}

#[test]
fn dynamic_weights_depend_on_the_query_alone() {
    // With a tap for every distance: a dense synthesizer whose logits are those of relative positions.
    let attention = init(&AnyMechanism::from(dynamic(2 * 6 - 1)), &spec(Role::Encoder, 2));
    let x = Array::random("x", &[1, 6, 6]);
    let before = weights(&attention, self_attention(&x));
    for t in 0..6 {
        let mut changed = x.clone();
        changed.row_mut(&[0, t]).iter_mut().for_each(|x| *x = 2.0 - 3.0 * *x);
        let after = weights(&attention, self_attention(&changed));
        for (h, i) in (0..2).flat_map(|h| (0..6).map(move |i| (h, i))) {
            let unmoved = before.row(&[0, h, i]) == after.row(&[0, h, i]);
            assert_eq!(unmoved, i != t, "element {t} changes, head {h}, query {i}");
            assert!(after.row(&[0, h, i]).iter().all(|&weight| weight > 0.0), "a distance has no tap");
        }
    }
}

#[test]
fn permuting_channels_within_a_head_commutes_with_the_convolution() {
    let attention = with_kernel(light(3), Role::Encoder, &Array::random("kernel", &[2, 3]));
    let x = Array::random("x", &[1, 6, 6]);
    let plain = context(&attention, self_attention(&x));
    let permuted = |x: &Array, order: [usize; 6]| Array::from_fn([1, 6, 6], |[b, i, c]| x.at(&[b, i, order[c]]));
    let differs = |order| {
        let found = context(&attention, self_attention(&permuted(&x, order)));
        found.values.iter().zip(&permuted(&plain, order).values).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    assert!(differs([2, 0, 1, 4, 3, 5]) < 1e-6);
    assert!(differs([0, 1, 3, 2, 4, 5]) > 1e-2, "channels of two heads were exchanged");
}

#[test]
fn expanded_and_unfolded_are_the_same_sum() {
    let x = Array::random("x", &[3, 8, 6]);
    let views = [
        Visibility::all(),
        Visibility::causal(),
        Visibility::padding(vec![8, 5, 1]).and(Visibility::causal()),
        Visibility::left_padding(vec![0, 3, 7]),
        Visibility::causal().shifted(vec![0, 2, 5].into()),
        Visibility::window(1, 2),
        Visibility::pattern(|h, i, j| (h + i + j) % 3 != 0),
    ];
    for (taps, role) in [1, 3, 4, 31].into_iter().flat_map(|taps| [(taps, Role::Encoder), (taps, Role::Decoder)]) {
        for renormalise_padding in [false, true] {
            let pair = [ConvolutionExecution::Expanded, ConvolutionExecution::Unfolded].map(|execution| {
                let light = light(taps).with_renormalise_padding(renormalise_padding).with_execution(execution);
                let dynamic = dynamic(taps).with_renormalise_padding(renormalise_padding).with_execution(execution);
                [AnyMechanism::from(light), AnyMechanism::from(dynamic)].map(|config| init(&config, &spec(role, 2)))
            });
            for (visibility, mechanism) in views.iter().flat_map(|visibility| [(visibility, 0), (visibility, 1)]) {
                let run = |attention: &AnyAttention| context(attention, self_attention(&x).visibility(visibility.clone()));
                let what = format!("{taps} taps, {role:?}, mechanism {mechanism}, {visibility:?}");
                assert_same(&what, &run(&pair[1][mechanism]).values, &run(&pair[0][mechanism]).values, 1e-6);
            }
        }
    }
}

#[test]
fn a_shifted_sequence_gives_shifted_outputs_where_no_tap_leaves_it() {
    let attention = with_kernel(light(5), Role::Encoder, &Array::random("kernel", &[2, 5]));
    let x = Array::random("x", &[1, 12, 6]);
    let early = context(&attention, self_attention(&x.slice(0..10)));
    let late = context(&attention, self_attention(&x.slice(2..12)));
    assert_same("interior", &late.slice(2..6).values, &early.slice(4..8).values, 1e-6);
}

#[test]
fn taps_reach_into_what_is_carried_over() {
    let x = Array::random("x", &[2, 8, 6]);
    let device = flex().device;
    for taps in [1, 3, 5, 31] {
        for config in [AnyMechanism::from(light(taps)), AnyMechanism::from(dynamic(taps))] {
            let attention = init(&config, &spec(Role::Decoder, 2));
            let whole = context(&attention, self_attention(&x).visibility(Visibility::causal()));
            let input = AttentionInput::segment(x.slice(5..8).tensor(&device), x.slice(0..5).tensor(&device));
            let found = context(&attention, input.visibility(Visibility::causal()));
            assert_same(&format!("{config}, {taps} taps"), &found.values, &whole.slice(5..8).values, 1e-6);
        }
    }
}

#[test]
fn a_state_does_not_grow_beyond_the_kernel() {
    let attention = init(&AnyMechanism::from(light(4)), &spec(Role::Decoder, 2));
    let attention = attention.get::<ConvolutionAttention<LightweightConv>>().unwrap();
    let mut state = attention.state(&DecodingStart::self_attention(1, 100));
    let x = Array::random("x", &[1, 1, 6]).tensor::<3>(&flex().device);
    for _ in 0..20 {
        attention.step(x.clone(), &mut state, &mut Probe::off());
    }
    assert_eq!(state.values().dims()[2], 4, "three inputs before the last one, and that");
    assert!(state.bytes() <= 6 * 6 * 4, "and room for half as many");
}
