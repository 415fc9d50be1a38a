//! Retention: Sun et al. 2023.

use heedful_attention::engine::recurrence::RecurrentState;
use heedful_attention::mechanisms::gated_norm::HeadNorm;
use heedful_attention::mechanisms::gated_recurrence::GatedRecurrence;
use heedful_attention::mechanisms::recurrent_attention::RecurrentAttention;
use heedful_attention::mechanisms::retnet::Retention;

use super::*;

/// By how much a change of the first element moves the outputs, `[N, C]`, where all elements behind are equal.
pub(super) fn response<A: Attention>(attention: &A, length: usize, width: usize) -> Array {
    let row = Array::random("equal", &[width]);
    let sequence = |first: &Array| Array::from_fn([1, length, width], |[_, i, c]| if i == 0 { first.at(&[c]) } else { row.at(&[c]) });
    let [before, after] = ["before", "after"].map(|name| context(attention, self_attention(&sequence(&Array::random(name, &[width])))));
    Array::from_fn([length, width], |[i, c]| after.at(&[0, i, c]) - before.at(&[0, i, c]))
}

/// Makes all maps of an attention of this width the identity.
fn set_maps(attention: &mut AnyAttention, width: usize) {
    let RecurrentAttention { mixer, output, .. } = attention.get_mut::<RecurrentAttention<GatedRecurrence<Retention>>>().unwrap();
    let maps = &mut mixer.maps;
    [&mut maps.query, &mut maps.key, &mut maps.value, output].into_iter().for_each(|map| *map = linear(&identity(width)));
}

#[test]
fn what_a_head_keeps_fades_by_its_own_factor() {
    let config = RetnetConfig::default().with_norm(HeadNorm::None).with_gate(false).with_rotation(false).with_value_expansion(1);
    let mut attention = init(&config.into(), &spec(Role::Decoder, 2));
    set_maps(&mut attention, 6);
    let found = response(&attention, 9, 6);
    for (i, c) in (1..8).flat_map(|i| (0..6).map(move |c| (i, c))) {
        let gamma = if c < 3 { 31.0 / 32.0 } else { 63.0 / 64.0 };
        assert_same(&format!("position {i}, channel {c}"), &[found.at(&[i + 1, c])], &[gamma * found.at(&[i, c])], 1e-5);
        assert!(found.at(&[i, c]).abs() > 1e-3);
    }
}

#[test]
fn normalised_heads_do_not_grow_with_the_length() {
    let config = RetnetConfig::default().with_norm(HeadNorm::Rms).with_gate(false).with_value_expansion(1);
    let mut attention = init(&config.into(), &LayerSpec::new(Role::Decoder, 8, 2).with_max_length(64));
    // Without the small gains of the first weights, beside which the epsilon is felt.
    set_maps(&mut attention, 8);
    let found = context(&attention, self_attention(&Array::random("x", &[1, 64, 8])));
    for (i, head) in [0, 1, 63].into_iter().flat_map(|i| [(i, 0), (i, 1)]) {
        let squares: f64 = found.row(&[0, i])[4 * head..][..4].iter().map(|x| x * x).sum();
        assert_same(&format!("position {i}, head {head}"), &[(squares / 4.0).sqrt()], &[1.0], 1e-3);
    }
}

#[test]
fn a_shift_of_the_whole_sequence_changes_nothing() {
    // Rotations depend on distances alone: what begins later in a longer sequence gives the same where the state before it is empty.
    let attention = init(&RetnetConfig::default().into(), &LayerSpec::new(Role::Decoder, 8, 2).with_max_length(64));
    let x = Array::random("x", &[1, 12, 8]);
    let zeros_first = Array::from_fn([1, 17, 8], |[_, i, c]| if i < 5 { 0.0 } else { x.at(&[0, i - 5, c]) });
    let found = context(&attention, self_attention(&zeros_first)).slice(5..17);
    assert_same("shifted by 5", &found.values, &context(&attention, self_attention(&x)).values, 1e-5);
}

#[test]
fn the_state_is_as_large_after_any_number_of_steps() {
    let attention = init(&RetnetConfig::default().into(), &spec(Role::Decoder, 2));
    let mut state = attention.state(&DecodingStart::self_attention(2, 100));
    for step in 1..=10 {
        attention.step(Array::random("x", &[2, step % 3 + 1, 6]).tensor(&flex().device), &mut state, &mut Probe::off());
        // Two rows, two heads, three channels of keys, six of values.
        assert_eq!(state.get::<RecurrentState>().unwrap().bytes(), 2 * 2 * 3 * 6 * 4, "after {step} steps");
    }
}
