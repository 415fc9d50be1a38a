//! Relative position representations: Shaw, Uszkoreit and Vaswani 2018.

use heedful_attention::mechanisms::shaw::Shaw;

use super::*;

fn place() -> LayerSpec {
    spec(Role::Encoder, 2)
}

fn shaw(farthest: usize) -> AnyAttention {
    init(&AnyMechanism::from(ShawConfig::default().with_max_relative_position(farthest)), &place())
}

fn of(attention: &mut AnyAttention) -> &mut Shaw {
    softmax(attention).logits.get_mut::<Shaw>().unwrap()
}

/// Dot-product attention with the same projections.
fn plain(attention: &mut AnyAttention) -> AnyAttention {
    let mut plain = init(&parse("dot-product"), &place());
    let (from, to) = (softmax(attention), softmax(&mut plain));
    (to.value, to.output) = (from.value.clone(), from.output.clone());
    let own = from.logits.get_mut::<Shaw>().unwrap();
    let logits = to.logits.get_mut::<DotProduct>().unwrap();
    (logits.query, logits.key) = (own.query.clone(), own.key.clone());
    plain
}

#[test]
fn one_vector_for_all_keys_or_none_is_dot_product_attention() {
    let x = Array::random("x", &[2, 7, 6]);
    for farthest in [0, 3] {
        let mut attention = shaw(farthest);
        let is_plain = |attention: &mut AnyAttention| {
            let expected = context(&plain(attention), self_attention(&x));
            context(attention, self_attention(&x)).values.iter().zip(&expected.values).all(|(a, b)| (a - b).abs() < 1e-6)
        };
        assert_eq!(is_plain(&mut attention), farthest == 0, "up to {farthest}");
        of(&mut attention).relative_keys = parameter(&Array::from_fn([2 * farthest + 1, 3], |_| 0.0));
        assert!(is_plain(&mut attention), "up to {farthest}, vectors of 0");
    }
}

#[test]
fn distances_are_clipped_on_both_sides() {
    // Equal contents: what differs between keys is their distance.
    let x = Array::from_fn([1, 8, 6], |[_, _, c]| 0.5 + c as f64);
    let mut attention = shaw(2);
    of(&mut attention).relative_keys = parameter(&Array::random("vectors", &[5, 3]));
    let found = weights(&attention, self_attention(&x));
    for head in 0..2 {
        let (first, last) = (found.row(&[0, head, 0]), found.row(&[0, head, 7]));
        assert_same("distances 2 to 7 behind", &last[..5], &[last[5]; 5], 1e-6);
        assert_same("distances 2 to 7 ahead", &first[3..], &[first[2]; 5], 1e-6);
        // Five vectors, five ratios to the weight of the own position.
        let ratios = [last[5] / last[7], last[6] / last[7], 1.0, first[1] / first[0], first[2] / first[0]];
        for (a, b) in (0..5).flat_map(|a| (0..a).map(move |b| (a, b))) {
            assert!((ratios[a] - ratios[b]).abs() > 1e-4, "head {head}: {ratios:?}");
        }
        for (i, j) in (0..8).flat_map(|i| (0..8usize).map(move |j| (i, j))) {
            let row = found.row(&[0, head, i]);
            let clipped = (j as i64 - i as i64).clamp(-2, 2) + 2;
            assert_same("ratio to the own position", &[row[j] / row[i]], &[ratios[clipped as usize]], 1e-4);
        }
    }
}

#[test]
fn a_clip_beyond_the_sequence_changes_nothing() {
    let x = Array::random("x", &[1, 6, 6]);
    let table = Array::random("vectors", &[41, 3]);
    let found = [5, 20].map(|farthest| {
        let mut attention = shaw(farthest);
        // The vector of a distance is the same in both.
        let own = Array::from_fn([2 * farthest + 1, 3], |[row, c]| table.at(&[row + 20 - farthest, c]));
        of(&mut attention).relative_keys = parameter(&own);
        context(&attention, self_attention(&x))
    });
    assert_eq!(found[0], found[1]);
}

#[test]
fn heads_share_the_vectors() {
    let attention = init(&parse("shaw"), &place());
    // W_Q, W_K, W_V and W_O, and vectors of the distances -16 to 16.
    assert_eq!(attention.num_params(), 4 * 36 + 33 * 3);
}
