//! Attention Free Transformer: Zhai et al. 2021.

use heedful_attention::mechanisms::aft::{Aft, AftForm};

use super::*;

fn aft(form: AftForm) -> AftConfig {
    AftConfig::default().with_form(form).with_init_std(2.0)
}

fn inner(attention: &mut AnyAttention) -> &mut Aft {
    attention.get_mut().expect("it is this attention")
}

#[test]
fn without_keys_and_biases_it_is_the_gated_mean_so_far() {
    let mut attention = init(&aft(AftForm::Simple).into(), &spec(Role::Decoder, 2));
    let gates = Array::random("gates", &[6, 6]);
    let own = inner(&mut attention);
    own.key = linear(&Array::from_fn([6, 6], |_| 0.0));
    (own.query, own.value, own.output) = (linear(&gates), linear(&identity(6)), linear(&identity(6)));
    let x = Array::random("x", &[1, 7, 6]);
    let expected = Array::from_fn([1, 7, 6], |[_, i, c]| {
        let gate: f64 = (0..6).map(|row| x.at(&[0, i, row]) * gates.at(&[row, c])).sum();
        let mean = (0..=i).map(|j| x.at(&[0, j, c])).sum::<f64>() / (i + 1) as f64;
        mean / (1.0 + (-gate).exp())
    });
    assert_same("outputs", &context(&attention, self_attention(&x)).values, &expected.values, 1e-6);
}

#[test]
fn a_number_that_all_keys_of_a_channel_have_more_changes_nothing() {
    for form in [AftForm::Full, AftForm::Local, AftForm::Simple] {
        let mut attention = init(&aft(form).into(), &spec(Role::Decoder, 2));
        // The last channel is 1 everywhere, and keys have what it adds to them.
        let mut x = Array::random("x", &[2, 7, 6]);
        x.values.chunks_mut(6).for_each(|element| element[5] = 1.0);
        let before = context(&attention, self_attention(&x));
        let mut weight = Array::read(inner(&mut attention).key.weight.val());
        weight.row_mut(&[5]).iter_mut().for_each(|weight| *weight += 300.0);
        inner(&mut attention).key = linear(&weight);
        // Keys of about 300 are rounded to some 1e-5.
        assert_same(&format!("{form:?}"), &context(&attention, self_attention(&x)).values, &before.values, 1e-4);
    }
}

#[test]
fn factors_stand_for_the_table_of_their_products() {
    let place = spec(Role::Decoder, 2);
    let mut factors = init(&aft(AftForm::Full).with_rank(3).into(), &place);
    let mut table = init(&aft(AftForm::Full).with_factorised(false).into(), &place);
    let own = inner(&mut factors);
    let [u, v] = [&own.query_position, &own.key_position].map(|factor| Array::read(factor.as_ref().unwrap().val()));
    let product = |[i, j]: [usize; 2]| (0..3).map(|r| u.at(&[i, r]) * v.at(&[j, r])).sum();
    inner(&mut table).position_table = Some(parameter(&Array::from_fn([8, 8], product)));
    let x = Array::random("x", &[2, 8, 6]);
    for visibility in [Visibility::all(), Visibility::causal().and(Visibility::padding(vec![8, 5]))] {
        let [found, expected] = [&table, &factors].map(|attention| context(attention, self_attention(&x).visibility(visibility.clone())));
        assert_same(&format!("{visibility:?}"), &found.values, &expected.values, 1e-5);
    }
}

#[test]
fn biases_of_a_window_are_those_of_all_pairs_that_are_near() {
    let x = Array::random("x", &[1, 8, 6]);
    for (window, role) in [1, 3, 8].into_iter().flat_map(|window| [(window, Role::Encoder), (window, Role::Decoder)]) {
        let mut local = init(&aft(AftForm::Local).with_window(window).into(), &spec(role, 2));
        let mut table = init(&aft(AftForm::Full).with_factorised(false).into(), &spec(role, 2));
        let own = inner(&mut local);
        let [u, v] = [&own.query_position, &own.key_position].map(|factor| Array::read(factor.as_ref().unwrap().val()));
        let product = |i: usize, j: usize| (0..u.shape[1]).map(|r| u.at(&[i, r]) * v.at(&[j, r])).sum();
        let near = Array::from_fn([8, 8], |[i, j]| if i.abs_diff(j) < window { product(i, j) } else { 0.0 });
        inner(&mut table).position_table = Some(parameter(&near));
        let [found, expected] = [&local, &table].map(|attention| context(attention, self_attention(&x)));
        assert_same(&format!("window {window}, {role:?}"), &found.values, &expected.values, 1e-5);
    }
}

#[test]
fn without_biases_the_state_is_as_large_after_any_number_of_steps() {
    let attention = init(&aft(AftForm::Simple).into(), &spec(Role::Decoder, 2));
    let mut state = attention.state(&DecodingStart::self_attention(2, 100));
    for step in 1..=10 {
        attention.step(Array::random("x", &[2, step % 3 + 1, 6]).tensor(&flex().device), &mut state, &mut Probe::off());
        // Two rows, a mean and its score of six channels.
        assert_eq!(attention.state_bytes(&state), Some(2 * 2 * 6 * 4), "after {step} steps");
    }
    let attention = init(&aft(AftForm::Full).into(), &spec(Role::Decoder, 2));
    let mut state = attention.state(&DecodingStart::self_attention(2, 8));
    attention.step(Array::random("x", &[2, 5, 6]).tensor(&flex().device), &mut state, &mut Probe::off());
    assert_eq!(attention.state_bytes(&state), Some(2 * 5 * 2 * 6 * 4), "keys and values of five positions");
}
