//! Linear attention: Katharopoulos et al. 2020.

use heedful_attention::engine::recurrence::RecurrentState;

use super::*;

fn linear(role: Role) -> AnyAttention {
    init(&LinearAttentionConfig::default().into(), &spec(role, 2))
}

#[test]
fn every_weight_is_positive_and_rows_are_distributions() {
    let found = weights(&linear(Role::Decoder), self_attention(&Array::random("x", &[2, 7, 6])));
    for (b, h, i) in (0..2).flat_map(|b| (0..2).flat_map(move |h| (0..7).map(move |i| (b, h, i)))) {
        let row = found.row(&[b, h, i]);
        assert!(row[..=i].iter().all(|&weight| weight > 0.0) && row[i + 1..].iter().all(|&weight| weight == 0.0), "{row:?}");
        assert_same("sum", &[row.iter().sum()], &[1.0], 1e-6);
    }
}

#[test]
fn the_last_position_of_causal_attention_sees_what_all_see_without_an_order() {
    let (x, attention) = (Array::random("x", &[2, 7, 6]), linear(Role::Encoder));
    let causal = context(&attention, self_attention(&x).visibility(Visibility::causal()));
    let whole = context(&attention, self_attention(&x));
    for b in 0..2 {
        assert_same("last position", causal.row(&[b, 6]), whole.row(&[b, 6]), 1e-5);
        assert!(causal.row(&[b, 2]).iter().zip(whole.row(&[b, 2])).any(|(a, b)| (a - b).abs() > 1e-3), "others see more");
    }
}

#[test]
fn an_order_of_keys_does_not_matter() {
    let (query, memory) = (Array::random("query", &[1, 4, 6]), Array::random("memory", &[1, 5, 6]));
    let order = [3, 0, 4, 1, 2];
    let permuted = Array::from_fn([1, 5, 6], |[b, j, c]| memory.at(&[b, order[j], c]));
    let attention = linear(Role::Cross);
    let found = context(&attention, cross_attention(&query, &permuted));
    assert_same("permuted", &found.values, &context(&attention, cross_attention(&query, &memory)).values, 1e-5);
}

#[test]
fn the_state_is_as_large_after_any_number_of_steps() {
    let attention = linear(Role::Decoder);
    let mut state = attention.state(&DecodingStart::self_attention(2, 100));
    for step in 1..=20 {
        attention.step(Array::random("x", &[2, step % 3 + 1, 6]).tensor(&flex().device), &mut state, &mut Probe::off());
        let bytes = state.get::<RecurrentState>().unwrap().bytes();
        // Two rows, two heads, three channels of keys, three of values and the sum of the keys.
        assert_eq!(bytes, 2 * 2 * 3 * (3 + 1) * 4, "after {step} steps");
    }
}
