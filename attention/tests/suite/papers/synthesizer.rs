//! Synthesizer: Tay et al. 2021.

use std::collections::BTreeSet;

use burn::optim::{GradientsParams, SgdConfig};
use heedful_attention::engine::reference::logits;
use heedful_attention::mechanisms::mixture::{Mixture, MixtureWeights};
use heedful_attention::mechanisms::synthesizer_dense::SynthesizerDense;
use heedful_attention::mechanisms::synthesizer_factorized_dense::SynthesizerFactorizedDense;
use heedful_attention::mechanisms::synthesizer_factorized_random::SynthesizerFactorizedRandom;
use heedful_attention::mechanisms::synthesizer_random::SynthesizerRandom;

use super::*;
use crate::variants::mixture;
use heedful_attention::description::case::parameters;

fn place() -> LayerSpec {
    spec(Role::Encoder, 2)
}

fn random_with(table: &Array) -> AnyAttention {
    let mut attention = init(&parse("random"), &place());
    let logits = softmax(&mut attention).logits.get_mut::<SynthesizerRandom>().unwrap();
    logits.table = Some(parameter(table));
    attention
}

/// The logits of a mechanism for one sequence, `[B | 1, H, N, N]`.
fn logits_of(attention: &AnyAttention, sequence: &Array) -> Array {
    let attention = attention.as_softmax().expect("it has logits");
    let query = sequence.tensor::<3>(&flex().device);
    let length = sequence.shape[1];
    let keys = attention.logits.keys(query.clone(), &Positions::default());
    Array::read(logits(attention.logits.terms(query, keys, Span::whole(length, length), &Positions::default()), length))
}

#[test]
fn random_with_a_zero_table_is_the_running_mean() {
    let config = AnyMechanism::from(SynthesizerRandomConfig::default().with_trainable(true).with_init_std(0.0));
    let weights = weights(&init(&config, &place()), self_attention(&Array::random("x", &[1, 6, 6])).visibility(Visibility::causal()));
    for (h, i) in (0..2).flat_map(|h| (0..6).map(move |i| (h, i))) {
        let expected: Vec<f64> = (0..6).map(|j| if j <= i { 1.0 / (i + 1) as f64 } else { 0.0 }).collect();
        assert_same("weights", weights.row(&[0, h, i]), &expected, 1e-6);
    }
}

#[test]
fn random_with_a_large_diagonal_attends_to_itself() {
    let attention = random_with(&Array::from_fn([2, 8, 8], |[_, i, j]| if i == j { 1000.0 } else { 0.0 }));
    let weights = weights(&attention, self_attention(&Array::random("x", &[1, 6, 6])));
    for i in 0..6 {
        let expected: Vec<f64> = (0..6).map(|j| f64::from(i == j)).collect();
        assert_same("weights", weights.row(&[0, 0, i]), &expected, 1e-6);
    }
}

#[test]
fn random_with_a_band_averages_its_neighbours() {
    let attention = random_with(&Array::from_fn([2, 8, 8], |[_, i, j]| if i.abs_diff(j) <= 1 { 0.0 } else { -1e4 }));
    let weights = weights(&attention, self_attention(&Array::random("x", &[1, 8, 6])));
    let third = 1.0 / 3.0;
    assert_same("interior row", weights.row(&[0, 1, 3]), &[0.0, 0.0, third, third, third, 0.0, 0.0, 0.0], 1e-6);
    assert_same("first row", weights.row(&[0, 1, 0]), &[0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 1e-6);
}

#[test]
fn weights_of_random_do_not_depend_on_the_input() {
    for config in [parse("random"), parse("factorized-random"), parse("random-fixed")] {
        let attention = init(&config, &place());
        let [one, other] = ["x", "y"].map(|name| weights(&attention, self_attention(&Array::random(name, &[2, 5, 6]))));
        assert_eq!(one, other);
        assert_eq!(one.shape[0], 1, "the softmax is computed once for the batch");
        assert_ne!(one.row(&[0, 0]), one.row(&[0, 1]), "heads have tables of their own");
    }
}

#[test]
fn a_constant_added_to_a_row_of_the_table_changes_nothing() {
    let table = Array::random("table", &[2, 8, 8]);
    let shifted = Array::from_fn([2, 8, 8], |[h, i, j]| table.at(&[h, i, j]) + (h + i) as f64);
    let input = || self_attention(&Array::random("x", &[2, 7, 6])).visibility(Visibility::causal());
    let [plain, shifted] = [table, shifted].map(|table| context(&random_with(&table), input()));
    assert_same("context", &shifted.values, &plain.values, 1e-5);
}

#[test]
fn gradients_of_the_table_sum_to_zero_per_row_and_are_zero_where_hidden() {
    let device = flex().device.autodiff();
    let attention = parse("random").init(&place(), &RandomKey::from_seed(1), &device);
    let query = Array::random("x", &[2, 6, 6]).tensor::<3>(&device);
    let input = heedful_attention::contract::AttentionInput::self_attention(query).visibility(Visibility::causal());
    let gradients = attention.forward(input, &mut Probe::off()).context.powi_scalar(2).sum().backward();
    let gradients = parameters(&attention, Some(&gradients));
    let table = &gradients["Softmax.logits.SynthesizerRandom.table"];
    assert!(table.row(&[0, 5]).iter().any(|gradient| gradient.abs() > 1e-3), "the table is trained");
    for (h, i) in (0..2).flat_map(|h| (0..8).map(move |i| (h, i))) {
        let row = table.row(&[h, i]);
        assert!(row.iter().sum::<f64>().abs() < 1e-5, "row {i}: {row:?}");
        for (j, &gradient) in row.iter().enumerate() {
            assert!(gradient == 0.0 || (j <= i && i < 6), "gradient of ({i}, {j}) is {gradient}");
        }
    }
}

#[test]
fn a_frozen_table_is_not_trained_but_saved() {
    let device = flex().device.autodiff();
    let [first, second] = [1, 2].map(|seed| parse("random-fixed").init(&place(), &RandomKey::from_seed(seed), &device));
    let path = "Softmax.logits.SynthesizerRandom.frozen_table";
    let before = parameters(&first, None);
    let query = Array::random("x", &[2, 6, 6]).tensor::<3>(&device);
    let input = heedful_attention::contract::AttentionInput::self_attention(query);
    // Also somebody who makes everything trainable must not reach the table.
    let first = first.unfreeze();
    let loss = first.forward(input, &mut Probe::off()).context.powi_scalar(2).sum();
    let gradients = GradientsParams::from_grads(loss.backward(), &first);
    let mut optimizer = SgdConfig::new().init();
    let trained = optimizer.step(0.1, first, gradients);
    let after = parameters(&trained, None);
    assert_eq!(after[path], before[path]);
    assert_ne!(after["Softmax.value.weight"], before["Softmax.value.weight"], "the step trained something");
    assert_ne!(parameters(&second, None)[path], before[path]);
    let loaded = second.load_record(trained.into_record());
    assert_eq!(parameters(&loaded, None), after);
}

/// Rank of a square matrix, by elimination with full pivoting.
fn rank(mut matrix: Vec<Vec<f64>>) -> usize {
    let mut rank = 0;
    let count = matrix.len();
    while rank < count {
        let pivots = (rank..count).flat_map(|row| (rank..count).map(move |column| (row, column)));
        let (row, column) = pivots.max_by(|&(a, b), &(c, d)| matrix[a][b].abs().total_cmp(&matrix[c][d].abs())).expect("not empty");
        if matrix[row][column].abs() < 1e-4 {
            break;
        }
        matrix.swap(rank, row);
        matrix.iter_mut().for_each(|row| row.swap(rank, column));
        let pivot = matrix[rank].clone();
        for row in &mut matrix[rank + 1..] {
            let factor = row[rank] / pivot[rank];
            row.iter_mut().zip(&pivot).for_each(|(a, p)| *a -= factor * p);
        }
        rank += 1;
    }
    rank
}

#[test]
fn factorized_random_logits_have_the_rank_of_their_factors() {
    let sequence = Array::random("x", &[1, 8, 6]);
    for k in [1, 2, 5] {
        let config = AnyMechanism::from(SynthesizerFactorizedRandomConfig::default().with_rank(k).with_init_std(1.0));
        let logits = logits_of(&init(&config, &place()), &sequence);
        for h in 0..2 {
            assert_eq!(rank((0..8).map(|i| logits.row(&[0, h, i]).to_vec()).collect()), k);
        }
    }
    let full = logits_of(&init(&parse("random"), &place()), &sequence);
    assert_eq!(rank((0..8).map(|i| full.row(&[0, 0, i]).to_vec()).collect()), 8);
}

#[test]
fn factorized_random_with_the_identity_is_random() {
    let config = AnyMechanism::from(SynthesizerFactorizedRandomConfig::default().with_rank(8).with_init_std(1.0));
    let mut attention = init(&config, &place());
    let factors = softmax(&mut attention).logits.get_mut::<SynthesizerFactorizedRandom>().unwrap();
    let table = Array::random("table", &[2, 8, 8]);
    factors.query_factor = parameter(&table);
    factors.key_factor = parameter(&Array::from_fn([2, 8, 8], |[_, i, j]| f64::from(i == j)));
    let input = || self_attention(&Array::random("x", &[2, 7, 6])).visibility(Visibility::causal());
    let expected = weights(&random_with(&table), input());
    assert_same("weights", &weights(&attention, input()).values, &expected.values, 1e-6);
}

#[test]
fn initial_logits_of_both_random_kinds_have_the_stated_deviation() {
    let wide = place().with_max_length(128);
    let factorized = SynthesizerFactorizedRandomConfig::default().with_rank(8).with_init_std(0.5);
    let random = SynthesizerRandomConfig::default().with_trainable(true).with_init_std(0.5);
    let sequence = Array::random("x", &[1, 128, 6]);
    for config in [AnyMechanism::from(factorized), AnyMechanism::from(random)] {
        let logits = logits_of(&init(&config, &wide), &sequence).values;
        let deviation = (logits.iter().map(|s| s * s).sum::<f64>() / logits.len() as f64).sqrt();
        assert!((deviation - 0.5).abs() < 0.05, "{config}: {deviation}");
    }
}

#[test]
fn a_row_of_dense_depends_only_on_its_own_token() {
    for name in ["dense", "factorized-dense"] {
        let attention = init(&parse(name), &place());
        let sequence = Array::random("x", &[1, 6, 6]);
        let before = weights(&attention, self_attention(&sequence));
        for j in 0..6 {
            let mut changed = sequence.clone();
            changed.row_mut(&[0, j]).iter_mut().for_each(|x| *x = 3.0 - *x);
            let after = weights(&attention, self_attention(&changed));
            for (h, i) in (0..2).flat_map(|h| (0..6).map(move |i| (h, i))).filter(|&(_, i)| i != j) {
                assert_eq!(after.row(&[0, h, i]), before.row(&[0, h, i]), "{name}: row {i} when token {j} changes");
            }
        }
    }
}

#[test]
fn dense_without_a_first_layer_is_uniform() {
    let mut attention = init(&parse("dense"), &place());
    let dense = softmax(&mut attention).logits.get_mut::<SynthesizerDense>().unwrap();
    dense.hidden = linear(&Array::from_fn([6, 6], |_| 0.0));
    let weights = weights(&attention, self_attention(&Array::random("x", &[1, 5, 6])));
    assert_same("weights", &weights.values, &[0.2; 50], 1e-6);
}

/// Factorized Dense whose hidden layer is 1 everywhere for an input of ones, so that the second layers are the factors themselves.
fn with_factors([a, b]: [usize; 2], block: impl Fn(usize) -> f64, tile: impl Fn(usize) -> f64) -> Array {
    let config = AnyMechanism::from(SynthesizerFactorizedDenseConfig::default().with_factors([a, b]));
    let mut attention = init(&config, &place());
    let factors = softmax(&mut attention).logits.get_mut::<SynthesizerFactorizedDense>().unwrap();
    factors.hidden = linear(&Array::from_fn([6, 6], |_| 1.0 / 6.0));
    factors.block = parameter(&Array::from_fn([2, 3, a], |[_, d, at]| if d == 0 { block(at) } else { 0.0 }));
    factors.tile = parameter(&Array::from_fn([2, 3, b], |[_, d, at]| if d == 0 { tile(at) } else { 0.0 }));
    logits_of(&attention, &Array::from_fn([1, 8, 6], |_| 1.0)).select(&[0])
}

#[test]
fn factorized_dense_gives_every_position_a_pair_of_its_own() {
    for factors in [[2, 4], [4, 2], [1, 8], [8, 1], [3, 3], [2, 5], [4, 4]] {
        // Powers of 2 times powers of 3 are equal only if both exponents are.
        let logits = with_factors(factors, |at| 2f64.powi(at as i32), |at| 3f64.powi(at as i32));
        let distinct: BTreeSet<i64> = logits.row(&[0, 0, 0]).iter().map(|s| s.round() as i64).collect();
        assert_eq!(distinct.len(), 8, "{factors:?}: {distinct:?}");
    }
}

#[test]
fn factorized_dense_repeats_one_factor_in_blocks_and_tiles_the_other() {
    let value = |at: usize| (at + 1) as f64;
    let blocks = with_factors([2, 4], value, |_| 1.0);
    assert_same("block-repeated", blocks.row(&[0, 1, 2]), &[1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0], 1e-5);
    let tiles = with_factors([2, 4], |_| 1.0, value);
    assert_same("tiled", tiles.row(&[0, 1, 2]), &[1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0], 1e-5);
}

#[test]
fn separate_first_layers_that_are_equal_are_one_that_both_factors_share() {
    let config = |separate| AnyMechanism::from(SynthesizerFactorizedDenseConfig::default().with_separate_hidden(separate));
    let input = || self_attention(&Array::random("x", &[2, 7, 6]));
    let (shared, mut separate) = (init(&config(false), &place()), init(&config(true), &place()));
    assert_eq!(separate.num_params() - shared.num_params(), 6 * 6);
    let expected = context(&shared, input()).values;
    let differs = |found: &[f64]| found.iter().zip(&expected).any(|(a, b)| (a - b).abs() > 1e-3);
    assert!(differs(&context(&separate, input()).values), "the tiled factor has a first layer of its own");
    let factors = softmax(&mut separate).logits.get_mut::<SynthesizerFactorizedDense>().unwrap();
    factors.tile_hidden = Some(factors.hidden.clone());
    assert_same("context", &context(&separate, input()).values, &expected, 1e-6);
}

#[test]
fn a_mixture_whose_weight_is_on_one_member_is_that_member() {
    for selected in 0..2 {
        let mut attention = init(&parse("random+dot-product"), &place());
        let mixture = softmax(&mut attention).logits.get_mut::<Mixture>().unwrap();
        mixture.head_weights = Some(parameter(&Array::from_fn([2, 2], |[m, _]| if m == selected { 0.0 } else { -200.0 })));
        assert_eq!(Array::read(mixture.weights().expect("softmax weights")).row(&[selected]), [1.0, 1.0]);
        let member = mixture.members[selected].clone();
        let mut alone = attention.clone();
        softmax(&mut alone).logits = member;
        let input = || self_attention(&Array::random("x", &[2, 6, 6])).visibility(Visibility::causal());
        assert_same("context", &context(&attention, input()).values, &context(&alone, input()).values, 1e-6);
    }
}

#[test]
fn a_sigmoid_mixture_at_its_end_is_dot_product_attention_and_begins_in_the_middle() {
    let mut attention = init(&mixture("dot-product+random", MixtureWeights::Sigmoid), &place());
    let mixture = softmax(&mut attention).logits.get_mut::<Mixture>().unwrap();
    assert_same("initial weights", &Array::read(mixture.weights().expect("sigmoid weights")).values, &[0.5, 0.5], 1e-6);
    mixture.layer_weight = Some(parameter(&Array { shape: vec![1], values: vec![-200.0] }));
    let member = mixture.members[0].clone();
    let mut alone = attention.clone();
    softmax(&mut alone).logits = member;
    let input = || self_attention(&Array::random("x", &[2, 6, 6])).visibility(Visibility::causal());
    assert_same("context", &context(&attention, input()).values, &context(&alone, input()).values, 1e-6);
}

#[test]
fn weights_of_a_softmax_mixture_begin_equal_and_sum_to_one() {
    let mut attention = init(&parse("random+dense+dot-product"), &place());
    let mixture = softmax(&mut attention).logits.get_mut::<Mixture>().unwrap();
    assert_same("initial weights", &Array::read(mixture.weights().expect("softmax weights")).values, &[1.0 / 3.0; 6], 1e-6);
    mixture.head_weights = Some(parameter(&Array::random("a", &[3, 2])));
    let weights = Array::read(mixture.weights().expect("softmax weights"));
    for h in 0..2 {
        assert_same("sum", &[(0..3).map(|m| weights.at(&[m, h])).sum()], &[1.0], 1e-6);
    }
}

#[test]
fn a_plain_sum_adds_the_logits_of_its_members() {
    let sequence = Array::random("x", &[2, 5, 6]);
    let mut attention = init(&mixture("random+dot-product", MixtureWeights::Sum), &place());
    let sum = logits_of(&attention, &sequence);
    let mixture = softmax(&mut attention).logits.get::<Mixture>().unwrap().clone();
    let [random, product] = [0, 1].map(|m| {
        let mut alone = attention.clone();
        softmax(&mut alone).logits = mixture.members[m].clone();
        logits_of(&alone, &sequence)
    });
    for b in 0..2 {
        let expected: Vec<f64> = random.row(&[0]).iter().zip(product.row(&[b])).map(|(a, b)| a + b).collect();
        assert_same("logits", sum.row(&[b]), &expected, 1e-5);
    }
}

#[test]
fn a_short_sequence_uses_the_first_rows_and_columns_of_the_tables() {
    let short = place().with_max_length(5);
    let cut = |values: &Array, rows: usize, columns: usize| Array::from_fn([values.shape[0], rows, columns], |index| values.at(&index));
    for name in ["random", "factorized-random", "dense"] {
        let mut long = init(&parse(name), &place());
        let mut sliced = long.clone();
        let mut cut_off = parse(name).init_logits(&short, &RandomKey::from_seed(7), &flex().device).unwrap();
        let logits = &softmax(&mut long).logits;
        if let (Some(long), Some(cut_off)) = (logits.get::<SynthesizerRandom>(), cut_off.get_mut::<SynthesizerRandom>()) {
            let table = Array::read(long.table.as_ref().expect("trained").val());
            cut_off.table = Some(parameter(&cut(&table, 5, 5)));
        } else if let (Some(long), Some(cut_off)) =
            (logits.get::<SynthesizerFactorizedRandom>(), cut_off.get_mut::<SynthesizerFactorizedRandom>())
        {
            cut_off.query_factor = parameter(&cut(&Array::read(long.query_factor.val()), 5, 2));
            cut_off.key_factor = parameter(&cut(&Array::read(long.key_factor.val()), 5, 2));
        } else {
            let (long, cut_off) = (logits.get::<SynthesizerDense>().unwrap(), cut_off.get_mut::<SynthesizerDense>().unwrap());
            cut_off.hidden = long.hidden.clone();
            cut_off.position = parameter(&cut(&Array::read(long.position.val()), 5, 3));
        }
        softmax(&mut sliced).logits = cut_off;
        assert_eq!(sliced.abilities().max_length, Some(5));
        let input = || self_attention(&Array::random("x", &[2, 5, 6])).visibility(Visibility::causal());
        assert_same(name, &context(&sliced, input()).values, &context(&long, input()).values, 1e-6);
    }
}

#[test]
fn parameters_are_as_many_as_the_papers_table_says() {
    // d_model C, heads H of width d, length L. Value and output projections have C^2 each.
    let (c, h, d, l) = (6, 2, 3, 8);
    let shared = 2 * c * c;
    let (a, b) = (2, 4);
    for (name, logits) in [
        ("dot-product", 2 * c * c),
        ("dense", h * (c * d + d * l)),
        ("random", h * l * l),
        ("factorized-dense", h * (c * d + d * (a + b))),
        ("factorized-random", h * 2 * l * (l / 4)),
        ("random+dot-product", h * l * l + 2 * c * c + 2 * h),
        ("gaussian", 0),
    ] {
        assert_eq!(init(&parse(name), &place()).num_params(), shared + logits, "{name}");
    }
    let config =
        AnyMechanism::from(heedful_attention::mechanisms::synthesizer_dense::SynthesizerDenseConfig::default().with_per_head_output(false));
    assert_eq!(init(&config, &place()).num_params(), shared + c * c + d * l, "shared W2");
    let sigmoid = mixture("dot-product+random", MixtureWeights::Sigmoid);
    assert_eq!(init(&sigmoid, &place()).num_params(), shared + h * l * l + 2 * c * c + 1, "one scalar per layer");
}
