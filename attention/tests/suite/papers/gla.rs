//! Gated linear attention: Yang et al. 2024.

use heedful_attention::contract::layer_spec::Role;
use heedful_attention::mechanisms::gated_norm::HeadNorm;
use heedful_attention::mechanisms::gated_recurrence::GatedRecurrence;
use heedful_attention::mechanisms::gla::{GatedLinear, GlaConfig};
use heedful_attention::mechanisms::recurrent_attention::RecurrentAttention;

use super::retnet::response;
use super::*;

/// By how much the first element still moves each output, where every channel has this bias of its rate and elements have no say.
fn response_with(bias: f64) -> Array {
    let config = GlaConfig::default().with_key_expansion(1.0).with_norm(HeadNorm::None).with_gate(false);
    let mut attention = init(&config.into(), &spec(Role::Decoder, 2));
    let inner = attention.get_mut::<RecurrentAttention<GatedRecurrence<GatedLinear>>>().unwrap();
    let GatedRecurrence { maps, rule, .. } = &mut inner.mixer;
    [&mut maps.query, &mut maps.key, &mut maps.value, &mut inner.output].into_iter().for_each(|map| *map = linear(&identity(6)));
    rule.rate_out = linear(&Array::from_fn([16, 6], |_| 0.0));
    rule.rate_out.bias = Some(parameter(&Array::from_fn([6], |_| bias)));
    response(&attention, 20, 6)
}

#[test]
fn half_of_the_past_is_forgotten_within_tau_elements_at_first() {
    let found = response_with(0.0);
    let half: Vec<f64> = found.row(&[1]).iter().map(|x| x / 2.0).collect();
    assert_same("16 elements later", found.row(&[17]), &half, 1e-5);
    assert!(half.iter().all(|x| x.abs() > 1e-3));
}

#[test]
fn open_gates_forget_nothing_and_closed_ones_all() {
    let open = response_with(60.0);
    assert_same("open", open.row(&[19]), open.row(&[1]), 1e-5);
    let closed = response_with(-16.0 * 200.0);
    assert!(closed.row(&[0]).iter().all(|x| x.abs() > 1e-3), "the first element reads itself");
    assert_same("closed", &closed.values[6..], &[0.0; 19 * 6], 0.0);
}

#[test]
fn the_default_has_keys_half_as_wide_as_values() {
    let place = spec(Role::Decoder, 2).with_d_model(16);
    let attention = init(&GlaConfig::default().into(), &place);
    let GatedRecurrence { maps, rule, .. } = &attention.get::<RecurrentAttention<GatedRecurrence<GatedLinear>>>().unwrap().mixer;
    assert_eq!((maps.key.weight.dims(), maps.value.weight.dims()), ([16, 8], [16, 16]));
    assert_eq!((rule.rate_in.weight.dims(), rule.rate_out.weight.dims()), ([16, 16], [16, 8]));
}
