//! Rotary positions: Su et al. 2021; and what follows for the ways to scale them.

use heedful_attention::engine::reference::logits;
use heedful_attention::mechanisms::rotary::{PairLayout, Rotary, RotaryScaling};

use super::*;

/// Two heads of width 6.
fn place() -> LayerSpec {
    spec(Role::Decoder, 2).with_d_model(12)
}

fn rotary(config: RotaryConfig) -> AnyAttention {
    init(&AnyMechanism::from(config), &place())
}

fn of(attention: &mut AnyAttention) -> &mut Rotary {
    softmax(attention).logits.get_mut::<Rotary>().unwrap()
}

/// Keys `[B, H, N, D]` of a sequence that begins at a position.
fn keys(attention: &AnyAttention, sequence: &Array, start: usize) -> Array {
    let logits = &attention.as_softmax().unwrap().logits;
    Array::read(logits.keys(sequence.tensor(&flex().device), &Positions::from_start(start)).unwrap())
}

/// Scores `[B, H, N, N]` of a sequence for itself, queries and keys from their positions on.
fn scores(attention: &AnyAttention, sequence: &Array, [query_start, key_start]: [usize; 2]) -> Array {
    let logits_of = &attention.as_softmax().unwrap().logits;
    let x: Tensor<3> = sequence.tensor(&flex().device);
    let length = sequence.shape[1];
    let keys = logits_of.keys(x.clone(), &Positions::from_start(key_start));
    let span = Span { query_start, queries: length, key_start, keys: length };
    Array::read(logits(logits_of.terms(x, keys, span, &Positions::from_start(query_start)), length))
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn norms_stay_and_position_0_is_the_identity() {
    let mut plain = init(&parse("dot-product"), &place());
    let x = Array::random("x", &[2, 5, 12]);
    for layout in [PairLayout::Half, PairLayout::Interleaved] {
        let mut attention = rotary(RotaryConfig::default().with_layout(layout));
        softmax(&mut plain).logits.get_mut::<DotProduct>().unwrap().key = of(&mut attention).key.clone();
        let (expected, found) = (keys(&plain, &x, 0), keys(&attention, &x, 0));
        let far = keys(&attention, &x, 77);
        for (row, head, position) in (0..2).flat_map(|row| (0..2).flat_map(move |head| (0..5).map(move |p| (row, head, p)))) {
            let at = [row, head, position];
            assert_same("norm", &[norm(found.row(&at)), norm(far.row(&at))], &[norm(expected.row(&at)); 2], 1e-5);
            let moved: f64 = found.row(&at).iter().zip(expected.row(&at)).map(|(a, b)| (a - b).abs()).sum();
            assert_eq!(moved == 0.0, position == 0, "position {position} moved by {moved}");
        }
    }
}

#[test]
fn of_equal_elements_only_the_distance_counts() {
    let x = Array::from_fn([1, 7, 12], |[_, _, c]| 0.5 - 0.1 * c as f64);
    let found = scores(&rotary(RotaryConfig::default()), &x, [0, 0]);
    for head in 0..2 {
        let at = |i: usize, j: usize| found.at(&[0, head, i, j]);
        for (i, j) in (1..7).flat_map(|i| (1..7).map(move |j| (i, j))) {
            assert!((at(i, j) - at(i - 1, j - 1)).abs() < 1e-5, "head {head}, query {i}, key {j}");
        }
        assert!((at(0, 0) - at(1, 0)).abs() > 1e-4, "the distance matters");
    }
}

#[test]
fn a_constant_added_to_all_positions_changes_nothing() {
    let x = Array::random("x", &[1, 6, 12]);
    let attention = rotary(RotaryConfig::default());
    let here = scores(&attention, &x, [4, 0]);
    assert_same("scores", &scores(&attention, &x, [1238, 1234]).values, &here.values, 1e-5);
    let apart = scores(&attention, &x, [5, 0]);
    assert!(here.values.iter().zip(&apart.values).any(|(a, b)| (a - b).abs() > 1e-2), "the distance matters");
}

#[test]
fn the_layouts_are_one_permutation_of_the_projections_apart() {
    let (mut half, mut interleaved) =
        (rotary(RotaryConfig::default()), rotary(RotaryConfig::default().with_layout(PairLayout::Interleaved)));
    // Channel 2 c of the paper is channel c of the first half, and 2 c + 1 is channel c of the second.
    let permuted = |columns: Array| {
        let source = |column: usize| column / 6 * 6 + column % 6 % 2 * 3 + column % 6 / 2;
        linear(&Array::from_fn([12, 12], |[row, column]| columns.at(&[row, source(column)])))
    };
    let own = of(&mut half);
    let [query, key] = [&own.query, &own.key].map(|map| permuted(Array::read(map.weight.val())));
    (of(&mut interleaved).query, of(&mut interleaved).key) = (query, key);
    let (from, to) = (softmax(&mut half), softmax(&mut interleaved));
    (to.value, to.output) = (from.value.clone(), from.output.clone());
    let x = Array::random("x", &[2, 8, 12]);
    let [half, interleaved] = [half, interleaved].map(|attention| context(&attention, self_attention(&x)));
    assert_same("context", &interleaved.values, &half.values, 1e-6);
}

#[test]
fn channels_beyond_the_fraction_are_those_of_dot_product_attention() {
    let x = Array::random("x", &[1, 5, 12]);
    let mut plain = init(&parse("dot-product"), &place());
    // 2 of the 6 channels of a head.
    let mut part = rotary(RotaryConfig::default().with_fraction(0.34));
    softmax(&mut plain).logits.get_mut::<DotProduct>().unwrap().key = of(&mut part).key.clone();
    let (expected, found) = (keys(&plain, &x, 0), keys(&part, &x, 3));
    for (head, position) in (0..2).flat_map(|head| (0..5).map(move |position| (head, position))) {
        let [found, expected] = [&found, &expected].map(|keys| keys.row(&[0, head, position]));
        assert_eq!(found[2..], expected[2..], "head {head}, position {position}");
        assert!(found[0] != expected[0] && found[1] != expected[1], "head {head}, position {position}");
    }
}

#[test]
fn a_factor_of_one_makes_every_scaling_the_identity() {
    let x = Array::random("x", &[1, 8, 12]);
    let contexts = |scaling| context(&rotary(RotaryConfig::default().with_scaling(scaling)), self_attention(&x)).values;
    let plain = contexts(RotaryScaling::None);
    for factor in [1.0, 4.0] {
        let (low_freq_factor, high_freq_factor, original_max_position_embeddings) = (1.0, 4.0, 16);
        let (beta_fast, beta_slow, attention_factor, truncate) = (32.0, 1.0, None, true);
        for scaling in [
            RotaryScaling::Linear { factor },
            RotaryScaling::Ntk { factor },
            RotaryScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings },
            RotaryScaling::Yarn {
                factor,
                original_max_position_embeddings,
                beta_fast,
                beta_slow,
                attention_factor,
                mscale: None,
                mscale_all_dim: None,
                truncate,
            },
        ] {
            let found = contexts(scaling);
            let is_same = found.iter().zip(&plain).all(|(a, b)| (a - b).abs() < 1e-6);
            assert_eq!(is_same, factor == 1.0, "{scaling:?}");
        }
    }
}

/// Chen et al. 2023: positions are divided by the factor.
#[test]
fn interpolated_positions_lie_between_those_of_training() {
    let x = Array::random("x", &[1, 1, 12]);
    let (plain, interpolated) =
        (rotary(RotaryConfig::default()), rotary(RotaryConfig::default().with_scaling(RotaryScaling::Linear { factor: 4.0 })));
    for position in [1, 5, 9] {
        assert_same("keys", &keys(&interpolated, &x, 4 * position).values, &keys(&plain, &x, position).values, 1e-6);
    }
}
