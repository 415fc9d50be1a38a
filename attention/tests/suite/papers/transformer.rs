//! Scaled dot-product attention: Vaswani et al. 2017.

use heedful_attention::softmax_attention::kv_cache::KeyValueState;

use super::*;
use crate::variants::Variant;

#[test]
fn one_head_with_identity_projections_is_plain_attention() {
    let place = spec(Role::Encoder, 1).with_d_model(4);
    let mut attention = init(&parse("dot-product"), &place);
    let inner = softmax(&mut attention);
    (inner.value, inner.output) = (linear(&identity(4)), linear(&identity(4)));
    let logits = inner.logits.get_mut::<DotProduct>().unwrap();
    (logits.query, logits.key) = (linear(&identity(4)), linear(&identity(4)));
    let x = Array::random("x", &[1, 5, 4]);
    let found = context(&attention, self_attention(&x));
    for i in 0..5 {
        // softmax(x x^T / sqrt(4)) x
        let scores: Vec<f64> = (0..5).map(|j| (0..4).map(|c| x.at(&[0, i, c]) * x.at(&[0, j, c])).sum::<f64>() / 2.0).collect();
        let sum: f64 = scores.iter().map(|s| s.exp()).sum();
        let expected: Vec<f64> = (0..4).map(|c| (0..5).map(|j| scores[j].exp() / sum * x.at(&[0, j, c])).sum()).collect();
        assert_same("context", found.row(&[0, i]), &expected, 1e-5);
    }
}

#[test]
fn permuting_keys_does_nothing_and_permuting_queries_permutes_outputs() {
    let attention = init(&parse("dot-product"), &spec(Role::Cross, 2));
    let (query, memory) = (Array::random("x", &[1, 5, 6]), Array::random("m", &[1, 7, 6]));
    let permuted = |x: &Array, order: &[usize]| Array::from_fn([1, order.len(), 6], |[_, i, c]| x.at(&[0, order[i], c]));
    let plain = context(&attention, cross_attention(&query, &memory));
    let keys = context(&attention, cross_attention(&query, &permuted(&memory, &[3, 0, 6, 5, 1, 2, 4])));
    assert_same("keys permuted", &keys.values, &plain.values, 1e-5);
    let order = [4, 2, 0, 1, 3];
    let queries = context(&attention, cross_attention(&permuted(&query, &order), &memory));
    assert_same("queries permuted", &queries.values, &permuted(&plain, &order).values, 1e-5);
}

#[test]
fn a_hidden_key_has_a_gradient_of_exactly_zero() {
    let variant =
        Variant { name: "dot-product".to_owned(), config: parse("dot-product"), role: Role::Cross, normalised: true, shares_keys: false };
    let subject = variant.subject(2, &flex());
    let case = subject.case("hidden", 1, 3);
    let gradients = subject.gradients(&case, |input| input.visibility(Visibility::padding(vec![4])));
    let memory = gradients.memory.expect("cross-attention has a memory");
    for j in 0..6 {
        let hidden = memory.row(&[0, j]).iter().all(|&gradient| gradient == 0.0);
        assert_eq!(hidden, j >= 4, "key {j}: {:?}", memory.row(&[0, j]));
    }
}

#[test]
fn logits_of_any_size_give_finite_weights() {
    let attention = init(&parse("dot-product"), &spec(Role::Encoder, 2));
    let mut x = Array::random("x", &[1, 5, 6]);
    x.values.iter_mut().for_each(|x| *x *= 1e6);
    let weights = weights(&attention, self_attention(&x).visibility(Visibility::causal()));
    for (h, i) in (0..2).flat_map(|h| (0..5).map(move |i| (h, i))) {
        let row = weights.row(&[0, h, i]);
        assert_same("sum", &[row.iter().sum()], &[1.0], 1e-5);
        assert_same("hidden", &row[i + 1..], &vec![0.0; 4 - i], 0.0);
    }
}

/// Shazeer 2019 and Ainslie et al. 2023: heads of a group read one head of keys and values.
#[test]
fn grouped_heads_are_heads_with_copies_of_their_keys_and_values() {
    let place = spec(Role::Decoder, 4);
    let mut grouped = init(&parse("dot-product"), &place.with_kv_heads(Some(2)));
    let mut whole = init(&parse("dot-product"), &place);
    let copied = |map: &Linear| {
        let columns = Array::read(map.weight.val());
        // Heads are 3 wide: 0 and 1 read the first of two, 2 and 3 the second.
        linear(&Array::from_fn([12, 12], |[row, column]| columns.at(&[row, column / 6 * 3 + column % 3])))
    };
    let from = softmax(&mut grouped);
    let to = softmax(&mut whole);
    (to.value, to.output) = (copied(&from.value), from.output.clone());
    let own = from.logits.get_mut::<DotProduct>().unwrap();
    let logits = to.logits.get_mut::<DotProduct>().unwrap();
    (logits.query, logits.key) = (own.query.clone(), copied(&own.key));
    let x = Array::random("x", &[2, 6, 12]);
    assert_same("context", &context(&grouped, self_attention(&x)).values, &context(&whole, self_attention(&x)).values, 1e-6);
}

#[test]
fn a_state_holds_only_the_heads_of_keys_and_values() {
    let bytes = |kv_heads| {
        let attention = init(&parse("dot-product"), &spec(Role::Decoder, 4).with_kv_heads(Some(kv_heads)));
        let mut state = attention.state(&DecodingStart::self_attention(2, 8));
        attention.step(Array::random("x", &[2, 8, 12]).tensor(&flex().device), &mut state, &mut Probe::off());
        state.get::<KeyValueState>().unwrap().bytes()
    };
    // Keys and values of two rows, eight positions and three channels a head, four bytes each.
    assert_eq!([4, 2, 1].map(bytes), [4, 2, 1].map(|heads| heads * 2 * 2 * 8 * 3 * 4));
}
