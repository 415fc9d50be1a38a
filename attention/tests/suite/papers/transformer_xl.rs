//! Transformer-XL: Dai et al. 2019.

use heedful_attention::engine::reference::logits;
use heedful_attention::engine::relative_shift;
use heedful_attention::mechanisms::relative::Relative;

use super::*;

fn place() -> LayerSpec {
    spec(Role::Decoder, 2)
}

/// Relative attention whose global biases are as large as its contents.
fn relative(config: RelativeConfig, seed: u64) -> AnyAttention {
    let config = AnyMechanism::from(config);
    config.validate(&place()).unwrap();
    let mut attention = config.init(&place(), &RandomKey::from_seed(seed), &flex().device);
    let logits = softmax(&mut attention).logits.get_mut::<Relative>().unwrap();
    logits.content_bias = parameter(&Array::random("u", &[2, 3]));
    logits.position_bias = parameter(&Array::random("v", &[2, 3]));
    attention
}

/// The sequence attends to what was carried over, and to itself, causally.
fn segment(sequence: &Array, carried: &Array) -> AttentionInput {
    let device = flex().device;
    AttentionInput::segment(sequence.tensor(&device), carried.tensor(&device)).visibility(Visibility::causal())
}

#[test]
fn the_shift_equals_a_double_loop_over_distances() {
    for (length, memory) in [1, 4, 5].into_iter().flat_map(|length| [0, 1, 3].map(|memory| (length, memory))) {
        let keys = memory + length;
        let scores = Array::random("scores", &[2, 3, length, length + keys - 1]);
        let shifted = Array::read(relative_shift(scores.tensor(&flex().device), keys));
        for (b, h, i, j) in
            (0..2).flat_map(|b| (0..3).flat_map(move |h| (0..length).flat_map(move |i| (0..keys).map(move |j| (b, h, i, j)))))
        {
            // The columns begin with the distance of the last query from the first key.
            let column = (keys - 1) as i64 - (i as i64 + memory as i64 - j as i64);
            let expected = scores.at(&[b, h, i, column as usize]) as f32;
            assert_eq!(shifted.at(&[b, h, i, j]) as f32, expected, "length {length}, memory {memory}, query {i}, key {j}");
        }
    }
}

#[test]
fn without_positions_and_biases_it_is_dot_product_attention_over_memory_and_segment() {
    let mut attention = relative(RelativeConfig::default(), 1);
    let mut plain = init(&parse("dot-product"), &place());
    {
        let (inner, plain) = (softmax(&mut attention), softmax(&mut plain));
        let logits = inner.logits.get_mut::<Relative>().unwrap();
        let plain_logits = plain.logits.get_mut::<DotProduct>().unwrap();
        logits.position.weight = parameter(&Array::from_fn([6, 6], |_| 0.0));
        logits.content_bias = parameter(&Array::from_fn([2, 3], |_| 0.0));
        logits.position_bias = parameter(&Array::from_fn([2, 3], |_| 0.0));
        (plain_logits.query, plain_logits.key) = (logits.query.clone(), logits.key.clone());
        (plain.value, plain.output) = (inner.value.clone(), inner.output.clone());
    }
    let (x, carried) = (Array::random("x", &[2, 5, 6]), Array::random("carried", &[2, 3, 6]));
    let [found, expected] = [attention, plain].map(|attention| context(&attention, segment(&x, &carried)));
    assert_same("context", &found.values, &expected.values, 1e-6);
}

#[test]
fn segments_with_memory_equal_one_long_segment_through_two_layers() {
    let layers = [1, 2].map(|seed| relative(RelativeConfig::default(), seed));
    let x = Array::random("x", &[2, 8, 6]);
    let whole = |layer: &AnyAttention, x: &Array| context(layer, self_attention(x).visibility(Visibility::causal()));
    let hidden = whole(&layers[0], &x);
    let expected = whole(&layers[1], &hidden);
    // Segments of 4 and of 2: the memory is as long as a segment, and longer.
    for length in [4, 2] {
        for start in (length..8).step_by(length) {
            let found = context(&layers[0], segment(&x.slice(start..start + length), &x.slice(0..start)));
            assert_same("first layer", &found.values, &hidden.slice(start..start + length).values, 1e-5);
            let found = context(&layers[1], segment(&found, &hidden.slice(0..start)));
            assert_same("second layer", &found.values, &expected.slice(start..start + length).values, 1e-5);
        }
    }
}

#[test]
fn memory_may_be_longer_than_any_sequence_in_training() {
    let attention = relative(RelativeConfig::default(), 1);
    assert_eq!(attention.abilities().max_length, None);
    let x = Array::random("x", &[1, 60, 6]);
    let whole = context(&attention, self_attention(&x).visibility(Visibility::causal()));
    let found = context(&attention, segment(&x.slice(56..60), &x.slice(0..56)));
    assert_same("context", &found.values, &whole.slice(56..60).values, 1e-5);
}

#[test]
fn a_constant_added_to_all_positions_changes_nothing() {
    let attention = relative(RelativeConfig::default(), 1);
    let attention = attention.as_softmax().unwrap();
    let (query, memory) = (Array::random("x", &[2, 4, 6]).tensor::<3>(&flex().device), Array::random("m", &[2, 7, 6]));
    let keys = attention.logits.keys(memory.tensor(&flex().device), &Positions::default());
    let at = |start: usize| {
        let span = Span { query_start: start + 3, queries: 4, key_start: start, keys: 7 };
        Array::read(logits(attention.logits.terms(query.clone(), keys.clone(), span, &Positions::from_start(start + 3)), span.keys))
    };
    assert_eq!(at(0), at(1000));
    let apart = Span { query_start: 4, queries: 4, key_start: 0, keys: 7 };
    let apart = Array::read(logits(attention.logits.terms(query.clone(), keys.clone(), apart, &Positions::from_start(4)), apart.keys));
    assert_ne!(at(0), apart, "the distance matters");
}

#[test]
fn the_gradient_of_carried_memory_is_exactly_zero() {
    let device = flex().device.autodiff();
    let attention = AnyMechanism::from(RelativeConfig::default()).init(&place(), &RandomKey::from_seed(1), &device);
    let sequence = Array::random("x", &[2, 4, 6]).tensor::<3>(&device).require_grad();
    let carried = Array::random("carried", &[2, 3, 6]).tensor::<3>(&device).require_grad();
    let input = AttentionInput::segment(sequence.clone(), carried.clone()).visibility(Visibility::causal());
    let gradients = attention.forward(input, &mut Probe::off()).context.powi_scalar(2).sum().backward();
    assert!(carried.grad(&gradients).is_none_or(|gradient| Array::read(gradient).values.iter().all(|&value| value == 0.0)));
    let own = Array::read(sequence.grad(&gradients).unwrap());
    assert!(own.values.iter().all(|&value| value != 0.0), "the segment itself is differentiated");
}

#[test]
fn steps_after_a_memory_equal_the_segment() {
    for same_length in [None, Some(3)] {
        let attention = relative(RelativeConfig::default().with_clamp_length(None).with_same_length(same_length), 1);
        let (x, carried) = (Array::random("x", &[2, 5, 6]), Array::random("carried", &[2, 4, 6]));
        let expected = context(&attention, segment(&x, &carried));
        let mut state = attention.state(&DecodingStart::self_attention(2, 9));
        let mut step = |part: &Array| Array::read(attention.step(part.tensor(&flex().device), &mut state, &mut Probe::off()).context);
        step(&carried);
        for i in 0..5 {
            let found = step(&x.slice(i..i + 1));
            assert_same(&format!("step {i}, {same_length:?}"), &found.values, &expected.slice(i..i + 1).values, 1e-5);
        }
    }
}

#[test]
fn a_clamp_of_the_greatest_distance_changes_nothing_and_a_shorter_one_shares_it() {
    let clamped = |clamp_length| {
        let attention = relative(RelativeConfig::default().with_clamp_length(clamp_length).with_same_length(None), 1);
        // Equal contents: what differs between keys is their distance.
        let x = Array::from_fn([1, 8, 6], |[_, _, c]| 0.5 + c as f64);
        weights(&attention, self_attention(&x))
    };
    assert_eq!(clamped(None), clamped(Some(7)));
    let two = clamped(Some(2));
    for h in 0..2 {
        let last = two.row(&[0, h, 7]);
        assert_same("distances 3 to 7", &last[..5], &[last[5]; 5], 1e-6);
        assert!((last[5] - last[6]).abs() > 1e-4, "distances 1 and 2 differ: {last:?}");
        let first = two.row(&[0, h, 0]);
        assert_same("distances -3 to -7", &first[3..], &[first[2]; 5], 1e-6);
        assert!((first[2] - last[5]).abs() > 1e-4, "before and after differ: {first:?}, {last:?}");
    }
}

/// How many keys each query of a segment of 4 sees.
fn visible_keys(same_length: Option<usize>, memory: usize) -> Vec<usize> {
    let attention = relative(RelativeConfig::default().with_clamp_length(None).with_same_length(same_length), 1);
    let weights = weights(&attention, segment(&Array::random("x", &[1, 4, 6]), &Array::random("carried", &[1, memory, 6])));
    // Only reached memory has a column at all.
    (0..4).map(|i| weights.row(&[0, 1, i]).iter().filter(|&&weight| weight > 0.0).count()).collect()
}

#[test]
fn queries_see_one_key_more_each_or_with_same_length_equally_many() {
    assert_eq!(visible_keys(None, 3), [4, 5, 6, 7]);
    assert_eq!(visible_keys(Some(4), 3), [4, 4, 4, 4], "the first query sees the whole memory");
    assert_eq!(visible_keys(Some(4), 6), [4, 4, 4, 4], "a longer memory changes nothing");
    assert_eq!(visible_keys(Some(4), 1), [2, 3, 4, 4], "there are no more keys at the beginning of a stream");
}

#[test]
fn parameters_are_those_of_the_paper() {
    let attention = init(&parse("relative"), &place());
    // W_Q, W_K, W_R, W_V and W_O, and u and v of each head.
    assert_eq!(attention.num_params(), 5 * 36 + 2 * 6);
}
