//! Linformer: Wang et al. 2020.

use std::panic::{AssertUnwindSafe, catch_unwind};

use heedful_attention::mechanisms::linformer::{Linformer, Sharing};
use heedful_attention::mechanisms::sequence_projection::ProjectionKind;
use heedful_attention::tensors::read::read;

use super::*;
use crate::variants::Variant;

fn config(rank: usize, sharing: Sharing) -> AnyMechanism {
    AnyMechanism::from(LinformerConfig::default().with_rank(rank).with_sharing(sharing))
}

fn linformer(attention: &mut AnyAttention) -> &mut Linformer {
    attention.get_mut().expect("it is a linformer")
}

/// A linformer, of `E = F`, with the given matrix `[k, 8]` for all heads.
fn with_slots(role: Role, matrix: &Array) -> AnyAttention {
    let mut attention = init(&config(matrix.shape[0], Sharing::KeyValue), &spec(role, 2));
    let matrix = Array { shape: [vec![1], matrix.shape.clone()].concat(), values: matrix.values.clone() };
    linformer(&mut attention).key_slots.matrix = Some(parameter(&matrix));
    attention
}

/// Dot-product attention with the projections of a linformer.
fn dense(mut attention: AnyAttention, role: Role) -> AnyAttention {
    let mut dense = init(&parse("dot-product"), &spec(role, 2));
    let source = linformer(&mut attention);
    let target = softmax(&mut dense);
    (target.value, target.output) = (source.value.clone(), source.output.clone());
    let logits = target.logits.get_mut::<DotProduct>().unwrap();
    (logits.query, logits.key) = (source.query.clone(), source.key.clone());
    dense
}

#[test]
fn identity_projections_give_dense_attention() {
    let attention = with_slots(Role::Encoder, &identity(8));
    let x = Array::random("x", &[2, 8, 6]);
    let expected = context(&dense(attention.clone(), Role::Encoder), self_attention(&x));
    assert_same("context", &context(&attention, self_attention(&x)).values, &expected.values, 1e-5);
}

#[test]
fn averages_of_blocks_give_attention_to_pooled_keys_and_values() {
    let pool = Array::from_fn([4, 8], |[slot, j]| if j / 2 == slot { 0.5 } else { 0.0 });
    let attention = with_slots(Role::Cross, &pool);
    let (x, memory) = (Array::random("x", &[2, 5, 6]), Array::random("m", &[2, 8, 6]));
    let pooled = Array::from_fn([2, 4, 6], |[b, slot, c]| (memory.at(&[b, 2 * slot, c]) + memory.at(&[b, 2 * slot + 1, c])) / 2.0);
    let expected = context(&dense(attention.clone(), Role::Cross), cross_attention(&x, &pooled));
    assert_same("context", &context(&attention, cross_attention(&x, &memory)).values, &expected.values, 1e-5);
}

/// A linformer with windows of two positions.
fn with_windows(role: Role, kind: ProjectionKind) -> AnyAttention {
    let config = LinformerConfig::default().with_rank(4).with_projection(kind);
    init(&AnyMechanism::from(config), &spec(role, 2))
}

#[test]
fn means_of_windows_are_a_matrix_of_averages_and_an_averaging_convolution() {
    let (x, memory) = (Array::random("x", &[2, 5, 6]), Array::random("m", &[2, 8, 6]));
    let averages = Array::from_fn([4, 8], |[slot, j]| if j / 2 == slot { 0.5 } else { 0.0 });
    let expected = context(&with_slots(Role::Cross, &averages), cross_attention(&x, &memory));
    let means = with_windows(Role::Cross, ProjectionKind::MeanPooling);
    assert_same("means", &context(&means, cross_attention(&x, &memory)).values, &expected.values, 1e-5);
    let mut convolution = with_windows(Role::Cross, ProjectionKind::Convolution);
    let inner = linformer(&mut convolution);
    // Two positions of three channels.
    let kernel = Array::from_fn([1, 6, 3], |[_, row, channel]| if row % 3 == channel { 0.5 } else { 0.0 });
    inner.key_slots.matrix = Some(parameter(&kernel));
    inner.value_slots.as_mut().expect("values have a kernel of their own").matrix = Some(parameter(&kernel));
    assert_same("convolution", &context(&convolution, cross_attention(&x, &memory)).values, &expected.values, 1e-5);
}

#[test]
fn windows_of_equal_positions_are_attention_to_one_of_each() {
    let (x, memory) = (Array::random("x", &[2, 5, 6]), Array::random("m", &[2, 4, 6]));
    let twice = Array::from_fn([2, 8, 6], |[b, j, c]| memory.at(&[b, j / 2, c]));
    let attention = with_windows(Role::Cross, ProjectionKind::MaxPooling);
    let expected = context(&dense(attention.clone(), Role::Cross), cross_attention(&x, &memory));
    assert_same("greatest", &context(&attention, cross_attention(&x, &twice)).values, &expected.values, 1e-5);
}

#[test]
fn a_window_that_shows_nothing_is_no_slot() {
    for kind in [ProjectionKind::MeanPooling, ProjectionKind::MaxPooling, ProjectionKind::Convolution] {
        let attention = with_windows(Role::Encoder, kind);
        let x = Array::random("x", &[1, 8, 6]);
        let short = context(&attention, self_attention(&x.slice(0..3)));
        let padded = context(&attention, self_attention(&x).visibility(Visibility::padding(vec![3])));
        assert_same(&format!("{kind:?}: padded on the right"), &padded.slice(0..3).values, &short.values, 1e-6);
        let late = context(&attention, self_attention(&x.slice(3..8)));
        let positions = Positions::default().with_left_padding([3]);
        let input = self_attention(&x).visibility(Visibility::left_padding(vec![3])).positions(positions);
        assert_same(&format!("{kind:?}: padded on the left"), &context(&attention, input).slice(3..8).values, &late.values, 1e-6);
        let nothing = context(&attention, self_attention(&x).visibility(Visibility::padding(vec![0])));
        assert_same(&format!("{kind:?}: nothing is seen"), &nothing.values, &[0.0; 8 * 6], 0.0);
    }
}

#[test]
fn pooling_has_no_parameters_and_a_convolution_a_kernel_for_each_matrix() {
    let count = |kind, sharing| {
        let config = LinformerConfig::default().with_rank(4).with_projection(kind).with_sharing(sharing);
        init(&AnyMechanism::from(config), &spec(Role::Encoder, 2)).num_params() - 4 * 6 * 6
    };
    assert_eq!(count(ProjectionKind::MeanPooling, Sharing::Headwise), 0);
    assert_eq!(count(ProjectionKind::MaxPooling, Sharing::Headwise), 0);
    for (sharing, kernels) in [(Sharing::None, 4), (Sharing::Headwise, 2), (Sharing::KeyValue, 1)] {
        assert_eq!(count(ProjectionKind::Convolution, sharing), kernels * 2 * 3 * 3, "{sharing:?}");
    }
}

#[test]
fn projections_of_zero_give_zero_and_no_mean() {
    let attention = with_slots(Role::Encoder, &Array::from_fn([3, 8], |_| 0.0));
    let found = context(&attention, self_attention(&Array::random("x", &[2, 5, 6])));
    assert_same("context", &found.values, &[0.0; 2 * 5 * 6], 0.0);
}

#[test]
fn permuting_positions_together_with_columns_permutes_outputs() {
    let order = [3, 0, 7, 5, 1, 2, 4, 6];
    let matrix = Array::random("E", &[3, 8]);
    let permuted = Array::from_fn([3, 8], |[slot, j]| matrix.at(&[slot, order[j]]));
    let x = Array::random("x", &[1, 8, 6]);
    let reordered = |x: &Array| Array::from_fn([1, 8, 6], |[_, i, c]| x.at(&[0, order[i], c]));
    let plain = context(&with_slots(Role::Encoder, &matrix), self_attention(&x));
    let found = context(&with_slots(Role::Encoder, &permuted), self_attention(&reordered(&x)));
    assert_same("context", &found.values, &reordered(&plain).values, 1e-5);
}

#[test]
fn a_short_sequence_equals_its_padding_to_the_maximal_length() {
    for sharing in [Sharing::None, Sharing::Headwise] {
        let attention = init(&config(3, sharing), &spec(Role::Encoder, 2));
        let x = Array::random("x", &[1, 8, 6]);
        let short = context(&attention, self_attention(&x.slice(0..5)));
        let padded = context(&attention, self_attention(&x).visibility(Visibility::padding(vec![5])));
        assert_same("padded on the right", &padded.slice(0..5).values, &short.values, 1e-6);
        let late = context(&attention, self_attention(&x.slice(3..8)));
        let positions = Positions::default().with_left_padding([3]);
        let input = self_attention(&x).visibility(Visibility::left_padding(vec![3])).positions(positions);
        assert_same("padded on the left", &context(&attention, input).slice(3..8).values, &late.values, 1e-6);
    }
}

#[test]
fn rows_of_weights_sum_to_one_over_the_slots() {
    let attention = init(&config(3, Sharing::Headwise), &spec(Role::Cross, 2));
    let mut shown = Vec::new();
    let mut listener = |_: &str, observation: Observation| match observation {
        Observation::SlotWeights(weights) => shown.push(Array::read(weights)),
        Observation::Executed(_) => {}
        other => panic!("{other:?}"),
    };
    let input = cross_attention(&Array::random("x", &[2, 5, 6]), &Array::random("m", &[2, 7, 6]));
    attention.forward(input, &mut Probe::listening(&mut listener));
    let [weights] = &shown[..] else { panic!("weights of slots were shown {} times", shown.len()) };
    assert_eq!(weights.shape, [2, 2, 5, 3]);
    weights.values.chunks(3).for_each(|row| assert_same("sum", &[row.iter().sum()], &[1.0], 1e-5));
}

#[test]
fn a_hidden_key_has_a_gradient_of_exactly_zero() {
    let config = config(3, Sharing::Headwise);
    let variant = Variant { name: "linformer".to_owned(), config, role: Role::Cross, normalised: false, shares_keys: false };
    let subject = variant.subject(2, &flex());
    let case = subject.case("hidden", 1, 3);
    let gradients = subject.gradients(&case, |input| input.visibility(Visibility::padding(vec![4])));
    let memory = gradients.memory.expect("cross-attention has a memory");
    for j in 0..6 {
        let hidden = memory.row(&[0, j]).iter().all(|&gradient| gradient == 0.0);
        assert_eq!(hidden, j >= 4, "key {j}: {:?}", memory.row(&[0, j]));
    }
}

fn message<T>(attempt: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(attempt)) else { panic!("it was accepted") };
    let text = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
    panic.downcast_ref::<String>().cloned().or(text).unwrap_or_default()
}

#[test]
fn a_view_that_differs_between_queries_or_heads_is_refused() {
    let attention = init(&config(3, Sharing::Headwise), &spec(Role::Encoder, 2));
    let x = Array::random("x", &[1, 5, 6]);
    for visibility in [Visibility::causal(), Visibility::window(1, 1), Visibility::pattern(|h, _, j| h == 0 || j > 1)] {
        let refused = message(|| context(&attention, self_attention(&x).visibility(visibility.clone())));
        assert!(refused.contains("causal attention is impossible"), "{visibility:?}: {refused}");
    }
}

#[test]
fn a_state_holds_the_slots_of_its_memory_and_nothing_else() {
    let attention = init(&config(3, Sharing::Headwise), &spec(Role::Cross, 2));
    let attention = attention.get::<Linformer>().unwrap();
    let device = flex().device;
    let start = DecodingStart::cross_attention(Array::random("m", &[2, 8, 6]).tensor(&device), Visibility::all());
    let mut state = attention.state(&start);
    attention.step(Array::random("x", &[2, 1, 6]).tensor(&device), &mut state, &mut Probe::off());
    assert_eq!(state.bytes(), 2 * (2 * 3 * 6) * 4, "keys and values of two rows, three slots of width 6");
}

#[test]
fn sharing_decides_the_number_of_matrices() {
    let place = spec(Role::Encoder, 2).at_layer(0, 2);
    let key = RandomKey::from_seed(1);
    for (sharing, in_a_layer, in_all) in
        [(Sharing::None, 4, 8), (Sharing::Headwise, 2, 4), (Sharing::KeyValue, 1, 2), (Sharing::Layerwise, 1, 1)]
    {
        let config = config(3, sharing);
        let build = |layer: usize| config.init(&place.at_layer(layer, place.layers), &key.numbered(layer as u64), &flex().device);
        let (first, second) = (build(0), build(1));
        assert_eq!(first.num_params(), 4 * 6 * 6 + in_a_layer * 3 * 8, "{sharing:?}");
        let mut second = second.sharing_with(&first);
        let mut first = first;
        let (first, second) = (&linformer(&mut first).key_slots, &linformer(&mut second).key_slots);
        let [a, b] = [first, second].map(|slots| slots.matrix.clone().expect("the projection is trained"));
        assert_eq!(a.id == b.id, in_all == 1, "{sharing:?}");
        assert_eq!(read(a.val()) == read(b.val()), in_all == 1, "{sharing:?}");
    }
}

#[test]
fn layers_of_another_rank_share_nothing() {
    let build = |rank| init(&config(rank, Sharing::Layerwise), &spec(Role::Encoder, 2));
    let mut second = build(4).sharing_with(&build(3));
    assert_eq!(linformer(&mut second).key_slots.shape(), [1, 4, 8]);
}
