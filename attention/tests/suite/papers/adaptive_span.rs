//! Adaptive attention span: Sukhbaatar et al. 2019.

use std::sync::Arc;

use heedful_attention::description::AnyState;
use heedful_attention::description::restricted::{PatternExecution, Restricted};
use heedful_attention::mechanisms::adaptive_span::{AdaptiveSpan, SpanKind, SpanOrigin};
use heedful_attention::mechanisms::mixture::MixtureWeights;
use heedful_attention::mechanisms::synthesizer_random::SynthesizerRandom;
use heedful_attention::softmax_attention::kv_cache::KeyValueState;
use heedful_attention::softmax_attention::pattern::Pattern;

use super::*;
use crate::variants::mixture;

/// A decoder whose longest span is 40.
fn place() -> LayerSpec {
    spec(Role::Decoder, 2).with_max_length(40)
}

fn logits(attention: &mut AnyAttention) -> &mut AdaptiveSpan {
    softmax(attention).logits.get_mut().unwrap()
}

/// An attention with these spans of its two heads, in positions.
fn with_spans(config: AdaptiveSpanConfig, spans: [f64; 2]) -> AnyAttention {
    let mut attention = init(&AnyMechanism::from(config), &place());
    logits(&mut attention).span = Some(parameter(&Array { shape: vec![2], values: spans.map(|span| span / 40.0).to_vec() }));
    attention
}

fn config(ramp: f64) -> AdaptiveSpanConfig {
    AdaptiveSpanConfig::default().with_ramp(ramp)
}

/// `m_z` of the distances `0..30` for both heads, `[H, 30]`.
fn ramp_of(attention: &mut AnyAttention) -> Array {
    let span = Span { query_start: 29, queries: 1, key_start: 0, keys: 30 };
    let factors = logits(attention).soft_span(&Tensor::zeros([1, 1, 6], &flex().device), span).unwrap();
    let factors = Array::read(factors.factors(1, 30));
    Array::from_fn([2, 30], |[h, distance]| factors.at(&[0, h, 0, 29 - distance]))
}

fn causal(x: &Array) -> AttentionInput {
    self_attention(x).visibility(Visibility::causal())
}

#[test]
fn a_span_as_long_as_allowed_is_the_base_model() {
    let x = Array::random("x", &[2, 12, 6]);
    for max_span in [5, 40] {
        let mut attention = init(&AnyMechanism::from(config(4.0).with_max_span(max_span)), &place());
        logits(&mut attention).span = Some(parameter(&Array { shape: vec![2], values: vec![1.0; 2] }));
        let base = AnyMechanism::from(LearnedRelativeConfig::default().with_max_distance(max_span));
        let mut base = init(&base, &place());
        let (over, plain) = (softmax(&mut attention), softmax(&mut base));
        let span = over.logits.get::<AdaptiveSpan>().unwrap();
        plain.logits = span.logits[0].clone();
        (plain.value, plain.output) = (over.value.clone(), over.output.clone());
        let [found, expected] = [&attention, &base].map(|attention| context(attention, causal(&x)));
        assert_same(&format!("S = {max_span}"), &found.values, &expected.values, 1e-6);
    }
}

#[test]
fn a_ramp_of_no_width_is_a_hard_window() {
    for (origin, farthest) in [(SpanOrigin::Code, [4, 8]), (SpanOrigin::Paper, [3, 7])] {
        let mut attention = with_spans(config(1e-3).with_origin(origin), [3.0, 7.0]);
        let ramp = ramp_of(&mut attention);
        let hard = Array::from_fn([2, 30], |[h, distance]| f64::from(distance <= farthest[h]));
        // A span is a fraction in single precision, of which a ramp this steep shows the last digit.
        assert_same(&format!("{origin:?}"), &ramp.values, &hard.values, 1e-3);
    }
}

#[test]
fn the_ramp_falls_from_one_to_zero_with_slope_one_over_its_width() {
    for (origin, first) in [(SpanOrigin::Code, 1.0), (SpanOrigin::Paper, 0.0)] {
        for spans in [[0.0, 6.0], [2.4, 9.7]] {
            let mut attention = with_spans(config(8.0).with_origin(origin), spans);
            let ramp = ramp_of(&mut attention);
            for (h, span) in spans.into_iter().enumerate() {
                let row = ramp.row(&[h]);
                for (distance, pair) in row.windows(2).enumerate() {
                    let slope = pair[0] - pair[1];
                    assert!((-1e-6..=1.0 / 8.0 + 1e-6).contains(&slope), "{row:?}");
                    let x = distance as f64 - first;
                    if x >= span && x + 1.0 <= span + 8.0 {
                        assert_same("slope on the ramp", &[slope], &[1.0 / 8.0], 1e-5);
                    }
                }
                let seen = row.iter().filter(|&&factor| factor > 0.0).count();
                assert!(seen <= span.ceil() as usize + 8 + usize::from(first == 1.0), "{seen} keys: {row:?}");
                assert_eq!(row[0], 1.0);
            }
        }
    }
}

#[test]
fn a_span_of_zero_sees_as_many_earlier_keys_as_the_ramp_is_wide() {
    for (origin, count) in [(SpanOrigin::Code, 8), (SpanOrigin::Paper, 7)] {
        let config = config(8.0).with_origin(origin).with_own_position(false);
        let mut attention = with_spans(config, [0.0, 0.0]);
        let ramp = ramp_of(&mut attention);
        assert_eq!(ramp.row(&[0]).iter().filter(|&&factor| factor > 0.0).count(), count, "{origin:?}");
        let nearest = if origin == SpanOrigin::Code { 1.0 } else { 7.0 / 8.0 };
        assert_eq!(ramp.row(&[0])[..2], [0.0, nearest]);
    }
}

#[test]
fn weights_are_softmax_times_ramp_renormalised() {
    let mut attention = with_spans(config(3.0).with_logits(parse("dot-product")), [0.0, 4.5]);
    let x = Array::random("x", &[2, 12, 6]);
    let shown = weights(&attention, causal(&x));
    let ramp = ramp_of(&mut attention);
    let mut plain = init(&parse("dot-product"), &place());
    softmax(&mut plain).logits = logits(&mut attention).logits[0].clone();
    let plain = weights(&plain, causal(&x));
    for (b, h, i) in (0..2).flat_map(|b| (0..2).flat_map(move |h| (0..12).map(move |i| (b, h, i)))) {
        let masked: Vec<f64> = (0..12).map(|j| if j <= i { plain.at(&[b, h, i, j]) * ramp.at(&[h, i - j]) } else { 0.0 }).collect();
        let sum: f64 = masked.iter().sum();
        let expected: Vec<f64> = masked.iter().map(|weight| weight / sum).collect();
        assert_same("weights", shown.row(&[b, h, i]), &expected, 1e-6);
        assert_same("sum", &[shown.row(&[b, h, i]).iter().sum()], &[1.0], 1e-6);
    }
}

#[test]
fn a_key_outside_of_the_span_cannot_drown_those_inside() {
    let mut attention = with_spans(config(2.0).with_logits(parse("random")), [1.0, 1.0]);
    // The first key would have all the weight, beyond the range of exponentials.
    let table = logits(&mut attention).logits[0].get_mut::<SynthesizerRandom>().unwrap();
    table.table = Some(parameter(&Array::from_fn([2, 40, 40], |[_, _, j]| if j == 0 { 500.0 } else { 0.0 })));
    let shown = weights(&attention, causal(&Array::random("x", &[1, 8, 6])));
    // Code origin, z = 1, R = 2: the ramp is 1, 1, 1, 1/2.
    assert_same("last row", shown.row(&[0, 0, 7]), &[0.0, 0.0, 0.0, 0.0, 1.0 / 7.0, 2.0 / 7.0, 2.0 / 7.0, 2.0 / 7.0], 1e-6);
}

#[test]
fn hidden_keys_stay_hidden_where_the_span_leaves_none() {
    let attention = with_spans(config(2.0), [0.0, 0.0]);
    let far = Visibility::pattern(|_, _, j| j == 0);
    let shown = weights(&attention, self_attention(&Array::random("x", &[1, 8, 6])).visibility(far));
    assert_eq!(shown.row(&[0, 1, 2])[0], 1.0, "distance 2 is on the ramp");
    for i in 3..8 {
        assert_eq!(shown.row(&[0, 1, i]), [0.0; 8], "what is in view is out of reach");
    }
}

#[test]
fn without_its_own_position_the_first_token_sees_nothing_and_no_token_itself() {
    let attention = with_spans(config(4.0).with_own_position(false), [2.0, 5.0]);
    let x = Array::random("x", &[1, 6, 6]);
    let shown = weights(&attention, causal(&x));
    assert_eq!(shown.row(&[0, 0, 0]), [0.0; 6]);
    for i in 1..6 {
        let row = shown.row(&[0, 1, i]);
        assert_eq!(row[i], 0.0);
        assert_same("sum", &[row.iter().sum()], &[1.0], 1e-6);
    }
    let device = flex().device.autodiff();
    let config = AnyMechanism::from(config(4.0).with_own_position(false));
    let attention = config.init(&place(), &RandomKey::from_seed(1), &device);
    let input = AttentionInput::self_attention(x.tensor(&device)).visibility(Visibility::causal());
    // A large loss: a division by a tiny sum would make its gradient infinite.
    let gradients = (attention.forward(input, &mut Probe::off()).context * 1e6).sum().backward();
    let gradients = heedful_attention::description::case::parameters(&attention, Some(&gradients));
    for (path, gradient) in gradients {
        assert!(gradient.values.iter().all(|value| value.is_finite()), "{path}: {:?}", gradient.values);
    }
}

#[test]
fn outputs_depend_on_nothing_beyond_the_reach() {
    let mut attention = with_spans(config(3.0), [1.2, 4.0]);
    assert_eq!(logits(&mut attention).reach(), Some(7), "z = 4, R = 3, code origin");
    let x = Array::random("x", &[1, 16, 6]);
    let plain = context(&attention, causal(&x));
    for moved in 0..16 {
        let mut changed = x.clone();
        changed.row_mut(&[0, moved]).iter_mut().for_each(|x| *x = 3.0 - *x);
        let after = context(&attention, causal(&changed));
        for t in 0..16 {
            let depends = after.row(&[0, t]) != plain.row(&[0, t]);
            assert_eq!(depends, moved <= t && t - moved <= 7, "output {t} when element {moved} changes");
        }
    }
}

#[test]
fn reach_ends_where_the_ramp_does() {
    let reach = |config: AdaptiveSpanConfig, spans| logits(&mut with_spans(config, spans)).reach().unwrap();
    assert_eq!(reach(config(32.0), [0.0, 0.0]), 32);
    assert_eq!(reach(config(3.0), [2.0, 2.5]), 6);
    assert_eq!(reach(config(3.0).with_origin(SpanOrigin::Paper), [2.0, 2.5]), 5);
    assert_eq!(reach(config(32.0), [40.0, 0.0]), 40, "never beyond the longest span");
    let over = |name: &str| config(3.0).with_logits(parse(name));
    assert_eq!(reach(over("dot-product"), [2.0, 2.5]), 6);
    let near = LearnedRelativeConfig::default().with_max_distance(2);
    let near = config(3.0).with_logits(AnyMechanism::from(near));
    assert_eq!(reach(near, [2.0, 2.5]), 2, "nor beyond that of the logits");
    for kind in [SpanKind::Dynamic, SpanKind::Fixed] {
        let config = config(4.0).with_kind(kind).with_initial(0.25).with_max_span(20);
        let mut attention = init(&AnyMechanism::from(config), &place());
        assert_eq!(logits(&mut attention).reach(), Some(if kind == SpanKind::Dynamic { 20 } else { 9 }), "{kind:?}");
    }
}

/// Positions that are remembered, and bytes that are held.
fn held(state: &AnyState) -> (usize, usize) {
    let state = state.get::<KeyValueState>().expect("it is that of a softmax attention");
    (state.values().dims()[2], state.bytes())
}

#[test]
fn the_cache_holds_what_can_be_reached_and_decodes_as_if_it_held_all() {
    let attention = with_spans(config(3.0), [0.5, 2.0]);
    let x = Array::random("x", &[2, 20, 6]);
    // One pass over the whole sequence cuts nothing.
    let whole = context(&attention, causal(&x));
    let mut state = attention.state(&DecodingStart::self_attention(2, 20));
    for t in 0..20 {
        let query = x.slice(t..t + 1).tensor(&flex().device);
        let found = Array::read(attention.step(query, &mut state, &mut Probe::off()).context);
        assert_same(&format!("step {t}"), &found.values, &whole.slice(t..t + 1).values, 1e-6);
        // z = 2, R = 3: five keys back and the own one, of keys and values, two rows, width 6, four bytes, and room for half as many.
        let (remembered, bytes) = held(&state);
        assert_eq!(remembered, (t + 1).min(6), "step {t}");
        assert!(bytes <= remembered * 3 / 2 * 2 * 2 * 6 * 4, "step {t}: {bytes} bytes");
    }
}

#[test]
fn carried_memory_is_cut_to_the_reach() {
    let attention = with_spans(config(3.0), [0.5, 2.0]);
    let x = Array::random("x", &[2, 20, 6]);
    let whole = context(&attention, causal(&x));
    let device = flex().device;
    let input =
        || AttentionInput::segment(x.slice(14..20).tensor(&device), x.slice(0..14).tensor(&device)).visibility(Visibility::causal());
    assert_same("context", &context(&attention, input()).values, &whole.slice(14..20).values, 1e-6);
    let weights = weights(&attention, input());
    assert_eq!(weights.shape, [2, 2, 6, 14 + 6]);
    let beyond = weights.values.chunks(20).map(|row| row.iter().take_while(|&&weight| weight == 0.0).count()).min();
    assert!(beyond.is_some_and(|beyond| beyond >= 14 - 5), "at most five elements of the memory take part: {beyond:?}");
}

#[test]
fn the_penalty_is_lambda_times_the_mean_span_of_the_layer() {
    let device = flex().device.autodiff();
    let config = config(32.0).with_penalty(1e-3).with_initial(0.25);
    let attention = AnyMechanism::from(config).init(&place(), &RandomKey::from_seed(1), &device);
    assert!(attention.abilities().auxiliary_losses);
    let output = attention.forward(AttentionInput::self_attention(Array::random("x", &[1, 4, 6]).tensor(&device)), &mut Probe::off());
    let [(name, loss)] = output.losses.iter().collect::<Vec<_>>()[..] else { panic!("there is one loss") };
    assert_eq!(*name, "span");
    assert_same("loss", &Array::read(loss.clone()).values, &[1e-3 * 40.0 * 0.25], 1e-8);
    let gradients = heedful_attention::description::case::parameters(&attention, Some(&loss.backward()));
    assert_eq!(gradients.len(), 1, "the penalty moves spans only");
    // λ S / M
    assert_same("gradient", &gradients["Softmax.logits.AdaptiveSpan.span"].values, &[1e-3 * 40.0 / 2.0; 2], 1e-8);
}

#[test]
fn a_fixed_span_has_no_parameter_and_no_penalty() {
    let [fixed, learned] = ["adaptive-span-fixed", "adaptive-span"].map(|name| init(&parse(name), &place()));
    assert_eq!(fixed.num_params() + 2, learned.num_params());
    assert!(!fixed.abilities().auxiliary_losses);
    let input = || causal(&Array::random("x", &[2, 12, 6]));
    assert_eq!(fixed.forward(input(), &mut Probe::off()).losses.iter().count(), 0);
    assert_same("context", &context(&fixed, input()).values, &context(&learned, input()).values, 0.0);
}

#[test]
fn a_dynamic_span_that_ignores_its_query_is_a_learned_one() {
    let dynamic = config(4.0).with_kind(SpanKind::Dynamic).with_logits(parse("dot-product"));
    let mut dynamic = init(&AnyMechanism::from(dynamic), &place());
    let gate = logits(&mut dynamic).gate.as_mut().unwrap();
    *gate = burn::nn::Linear { bias: gate.bias.clone(), ..linear(&Array::from_fn([6, 2], |_| 0.0)) };
    let span = 40.0 / (1.0 + 4f64.exp());
    assert!((span / 40.0 - 0.018).abs() < 1e-4, "b = -4 is about 0.018 S");
    let mut learned = with_spans(config(4.0).with_logits(parse("dot-product")), [span, span]);
    logits(&mut learned).logits = logits(&mut dynamic).logits.clone();
    let input = || causal(&Array::random("x", &[2, 12, 6]));
    assert_same("context", &context(&dynamic, input()).values, &context(&learned, input()).values, 1e-5);
    let losses = |attention: &AnyAttention| Array::read(attention.forward(input(), &mut Probe::off()).losses.total().unwrap());
    assert_same("penalty", &losses(&dynamic).values, &losses(&learned).values, 1e-9);
}

#[test]
fn spans_are_shown_to_a_probe() {
    let shown = |attention: &AnyAttention| {
        let mut shown = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Spans(spans) = observation {
                shown.push(Array::read(spans));
            }
        };
        attention.forward(causal(&Array::random("x", &[3, 5, 6])), &mut Probe::listening(&mut listener));
        shown
    };
    let learned = shown(&with_spans(config(4.0), [10.0, 30.0]));
    assert_eq!(learned.len(), 1);
    assert_eq!(learned[0].shape, [1, 2, 1]);
    assert_same("spans", &learned[0].values, &[10.0, 30.0], 1e-5);
    let dynamic = config(4.0).with_kind(SpanKind::Dynamic);
    assert_eq!(shown(&init(&AnyMechanism::from(dynamic), &place()))[0].shape, [3, 2, 5]);
    assert!(shown(&init(&parse("relative"), &place())).is_empty());
}

/// Shows a query itself and the position before it.
#[derive(Debug)]
struct TwoPositions;

impl Pattern for TwoPositions {
    fn sees(&self, _head: usize, query: usize, key: usize) -> bool {
        key + 1 >= query && key <= query
    }

    fn block(&self, _head: usize, query: usize) -> usize {
        query / 4
    }
}

#[test]
fn spans_are_shown_through_a_pattern_of_ones_own() {
    let mechanism = AnyMechanism::from(config(4.0));
    let inner = mechanism.init_logits(&place(), &RandomKey::from_seed(1), &flex().device).unwrap();
    let restricted = Restricted::new(inner, Arc::new(TwoPositions), PatternExecution::Masked);
    let attention = SoftmaxAttention::new(restricted, &place(), &RandomKey::from_seed(2), &flex().device);
    let mut shown = 0;
    let mut listener = |_: &str, observation: Observation| shown += usize::from(matches!(observation, Observation::Spans(_)));
    attention.forward(causal(&Array::random("x", &[3, 5, 6])), &mut Probe::listening(&mut listener));
    assert_eq!(shown, 1);
}

#[test]
fn impossible_spans_are_refused() {
    let refused = |config: AdaptiveSpanConfig, says: &[&str]| {
        let error = AnyMechanism::from(config).validate(&place()).unwrap_err().to_string();
        for part in ["decoder layer 1 of 1, self-attention", "adaptive-span"].iter().chain(says) {
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        }
    };
    refused(AdaptiveSpanConfig::default().with_max_span(0), &["`max_span` is 0", "at least 1"]);
    for ramp in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(AdaptiveSpanConfig::default().with_ramp(ramp), &["`ramp`", "greater than 0"]);
    }
    for initial in [-0.1, 1.1, f64::NAN] {
        refused(AdaptiveSpanConfig::default().with_initial(initial), &["`initial`", "from 0 to 1"]);
    }
    let dynamic = AdaptiveSpanConfig::default().with_kind(SpanKind::Dynamic).with_initial(0.0);
    refused(dynamic, &["`initial` is 0", "strictly between"]);
    refused(AdaptiveSpanConfig::default().with_penalty(-1.0), &["`penalty` is -1"]);
    let blind = config(1.0).with_own_position(false).with_origin(SpanOrigin::Paper);
    refused(blind, &["`ramp` is 1", "no key"]);
    let over = |logits: AnyMechanism| AdaptiveSpanConfig::default().with_logits(logits);
    refused(over(parse("adaptive-span")), &["`logits` is adaptive-span", "mixture"]);
    assert_eq!(AnyMechanism::from(over(parse("random+relative"))).validate(&place()), Ok(()));
    let near = AnyMechanism::from(LearnedRelativeConfig::default().with_max_distance(0));
    let error = AnyMechanism::from(over(near)).validate(&place()).unwrap_err().to_string();
    assert!(error.contains("learned-relative") && error.contains("`max_distance` is 0"), "{error}");
    let member = mixture("dot-product+adaptive-span", MixtureWeights::Sum);
    assert!(member.validate(&place()).unwrap_err().to_string().contains("`members` is adaptive-span"));
}
