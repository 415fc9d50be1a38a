//! DeltaNet and Gated DeltaNet: Yang et al. 2024b and 2025.

use burn::tensor::TensorData;
use heedful_attention::engine::recurrence::{Recurrence, RecurrentState};
use heedful_attention::mechanisms::delta_rule::DeltaRule;
use heedful_attention::mechanisms::gated_norm::HeadNorm;
use heedful_attention::mechanisms::gated_recurrence::GatedRecurrence;
use heedful_attention::mechanisms::recurrent_attention::RecurrentAttention;

use super::*;

/// Contexts `[N, D]` of one head, where each element writes by the delta rule with its strength and asks with its own key.
fn recalled(keys: &[[f32; 4]], values: &[[f32; 2]], asked: &[[f32; 4]], strength: f32) -> Array {
    let tensor = |numbers: Vec<f32>, width: usize| {
        let length = numbers.len() / width;
        Tensor::<4>::from_data(TensorData::new(numbers, [1, 1, length, width]), &flex().device)
    };
    let recurrence = Recurrence {
        queries: tensor(asked.concat(), 4),
        keys: tensor(keys.concat(), 4),
        values: tensor(values.concat(), 2),
        log_decay: None,
        strengths: Some(tensor(vec![strength; keys.len()], 1)),
        normalised: false,
    };
    Array::read(recurrence.execute(None).context)
}

const UNITS: [[f32; 4]; 4] = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]];

#[test]
fn the_second_value_of_a_key_replaces_the_first() {
    let key = [0.6, 0.0, 0.8, 0.0];
    let found = recalled(&[key, key], &[[1.0, 2.0], [-3.0, 5.0]], &[key, key], 1.0);
    assert_same("first and second", &found.values, &[1.0, 2.0, -3.0, 5.0], 1e-6);
}

#[test]
fn as_many_values_as_channels_are_recalled_and_one_more_disturbs_them() {
    let values = [[1.0, 0.5], [2.0, -1.0], [0.3, 0.7], [-4.0, 1.5]];
    let mut keys = UNITS.to_vec();
    let (mut written, mut asked) = (values.to_vec(), UNITS.to_vec());
    // Strength 0 would be needed to only ask; a key of 0 writes nothing.
    keys.extend([[0.0; 4]; 4]);
    written.extend([[9.0; 2]; 4]);
    asked.extend(UNITS);
    let found = recalled(&keys, &written, &asked, 1.0);
    for (index, value) in values.iter().enumerate() {
        assert_same(&format!("key {index}"), found.row(&[0, 0, 4 + index]), &value.map(f64::from), 1e-6);
    }
    keys[4] = [0.5; 4];
    let disturbed = recalled(&keys, &written, &asked, 1.0);
    assert!((0..4).all(|index| (disturbed.at(&[0, 0, 4 + index, 0]) - f64::from(values[index][0])).abs() > 0.1));
}

#[test]
fn a_strength_of_two_turns_the_sign_of_what_a_key_holds() {
    let key = UNITS[0];
    let found = recalled(&[key; 4], &[[1.0, 3.0], [0.0; 2], [0.0; 2], [0.0; 2]], &[key; 4], 2.0);
    assert_same("signs in turn", &found.values, &[2.0, 6.0, -2.0, -6.0, 2.0, 6.0, -2.0, -6.0], 1e-6);
}

#[test]
fn without_decay_a_gated_network_is_one_without_gates() {
    let plain = init(&DeltaNetConfig::default().with_norm(HeadNorm::Rms).into(), &spec(Role::Decoder, 2));
    let gated = GatedDeltaNetConfig::default().with_norm(HeadNorm::Rms).with_gate(false).with_key_expansion(1.0).with_value_expansion(1);
    let mut gated = init(&gated.into(), &spec(Role::Decoder, 2));
    let x = Array::random("x", &[2, 7, 6]);
    let expected = context(&plain, self_attention(&x));
    let decays = context(&gated, self_attention(&x));
    assert!(decays.values.iter().zip(&expected.values).any(|(a, b)| (a - b).abs() > 1e-4), "the decay is felt");
    let inner = gated.get_mut::<RecurrentAttention<GatedRecurrence<DeltaRule>>>().unwrap();
    inner.mixer.rule.decay.as_mut().unwrap().a_log = parameter(&Array::from_fn([2], |_| -80.0));
    assert_same("without decay", &context(&gated, self_attention(&x)).values, &expected.values, 1e-6);
}

#[test]
fn the_state_holds_a_matrix_for_each_head_and_the_tail_of_the_convolutions() {
    let attention = init(&DeltaNetConfig::default().into(), &spec(Role::Decoder, 2));
    let mut state = attention.state(&DecodingStart::self_attention(2, 100));
    for step in 1..=10 {
        attention.step(Array::random("x", &[2, step % 3 + 1, 6]).tensor(&flex().device), &mut state, &mut Probe::off());
        // Two rows: two heads of 3 by 3, and three elements of 18 channels.
        assert_eq!(state.get::<RecurrentState>().unwrap().bytes(), 2 * (2 * 3 * 3 + 3 * 18) * 4, "after {step} steps");
    }
}
