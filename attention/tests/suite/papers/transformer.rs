//! Scaled dot-product attention: Vaswani et al. 2017.

use heedful_attention::mechanisms::dot_product::DotProduct;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::visibility::Visibility;

use super::{assert_same, context, cross_attention, identity, init, linear, self_attention, softmax, weights};
use crate::array::Array;
use crate::backends::flex;
use crate::variants::{Variant, parse, placement};

#[test]
fn one_head_with_identity_projections_is_plain_attention() {
    let place = Placement { d_model: 4, ..placement(Role::Encoder, 1) };
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
    let attention = init(&parse("dot-product"), &placement(Role::Cross, 2));
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
    let variant = Variant { name: "dot-product".to_owned(), config: parse("dot-product"), role: Role::Cross, normalised: true };
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
    let attention = init(&parse("dot-product"), &placement(Role::Encoder, 2));
    let mut x = Array::random("x", &[1, 5, 6]);
    x.values.iter_mut().for_each(|x| *x *= 1e6);
    let weights = weights(&attention, self_attention(&x).visibility(Visibility::causal()));
    for (h, i) in (0..2).flat_map(|h| (0..5).map(move |i| (h, i))) {
        let row = weights.row(&[0, h, i]);
        assert_same("sum", &[row.iter().sum()], &[1.0], 1e-5);
        assert_same("hidden", &row[i + 1..], &vec![0.0; 4 - i], 0.0);
    }
}
