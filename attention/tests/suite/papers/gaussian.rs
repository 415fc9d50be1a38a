//! Hard-coded Gaussian attention: You et al. 2020.

use heedful_attention::mechanisms::gaussian::{GaussianExecution, Normalisation};

use super::*;
use heedful_attention::description::case::parameters;

fn place(role: Role, heads: usize) -> LayerSpec {
    LayerSpec::new(role, 3 * heads, heads).with_max_length(64)
}

fn gaussian(config: GaussianConfig, place: LayerSpec) -> AnyAttention {
    init(&AnyMechanism::from(config), &place)
}

fn centred(offsets: &[f64]) -> GaussianConfig {
    GaussianConfig::default().with_offsets(offsets.to_vec())
}

fn sequence(heads: usize, length: usize) -> Array {
    Array::random("x", &[1, length, 3 * heads])
}

/// φ at the distances that the paper prints.
const DENSITY: [f64; 5] = [0.0540, 0.2420, 0.3989, 0.2420, 0.0540];

#[test]
fn interior_rows_are_the_density_around_the_shifted_position() {
    let offsets = [-1.0, 0.0, 1.0];
    let weights = weights(&gaussian(centred(&offsets), place(Role::Encoder, 3)), self_attention(&sequence(3, 20)));
    for (h, offset) in offsets.into_iter().enumerate() {
        let first = (10.0 + offset) as usize - 2;
        assert_same("row 10", &weights.row(&[0, h, 10])[first..first + 5], &DENSITY, 5e-5);
        assert_same("sum of row 10", &[weights.row(&[0, h, 10]).iter().sum()], &[1.0], 1e-6);
    }
}

#[test]
fn rows_at_borders_sum_to_less_than_one() {
    let causal = |offset: f64| {
        let attention = gaussian(centred(&[offset]), place(Role::Decoder, 1));
        weights(&attention, self_attention(&sequence(1, 20)).visibility(Visibility::causal()))
    };
    let sum = |weights: &Array, i: usize| weights.row(&[0, 0, i]).iter().sum::<f64>();
    assert_same("decoder, centre i", &[sum(&causal(0.0), 19)], &[0.699], 5e-4);
    assert_same("decoder, centre i - 1", &[sum(&causal(-1.0), 19)], &[0.941], 5e-4);
    assert_same("first decoder token, centre -1", &[sum(&causal(-1.0), 0)], &[0.242], 5e-4);
    let encoder = weights(&gaussian(centred(&[-1.0]), place(Role::Encoder, 1)), self_attention(&sequence(1, 20)));
    assert_same("first encoder token, centre -1", &[sum(&encoder, 0)], &[0.301], 5e-4);
}

#[test]
fn the_first_decoder_row_is_the_density_at_one_and_at_zero() {
    let attention = gaussian(GaussianConfig::default(), place(Role::Decoder, 2));
    let weights = weights(&attention, self_attention(&sequence(2, 3)).visibility(Visibility::causal()));
    assert_same("head at i - 1", weights.row(&[0, 0, 0]), &[0.2420, 0.0, 0.0], 5e-5);
    assert_same("head at i", weights.row(&[0, 1, 0]), &[0.3989, 0.0, 0.0], 5e-5);
}

#[test]
fn renormalised_rows_sum_to_one_and_keep_their_ratios() {
    let config = centred(&[-1.0, 0.0]).with_normalisation(Normalisation::Renormalise);
    let input = || self_attention(&sequence(2, 9)).visibility(Visibility::causal());
    let renormalised = weights(&gaussian(config, place(Role::Decoder, 2)), input());
    let raw = weights(&gaussian(centred(&[-1.0, 0.0]), place(Role::Decoder, 2)), input());
    for (h, i) in (0..2).flat_map(|h| (0..9).map(move |i| (h, i))) {
        let sum: f64 = raw.row(&[0, h, i]).iter().sum();
        let expected: Vec<f64> = raw.row(&[0, h, i]).iter().map(|weight| weight / sum).collect();
        assert_same("row", renormalised.row(&[0, h, i]), &expected, 1e-6);
    }
}

/// Where the heads of a layer look, relative to the query.
fn offsets_of(config: GaussianConfig, place: LayerSpec) -> Vec<f64> {
    // At σ = 1 the nearest integer to the centre of an interior row has the largest weight.
    let weights = weights(&gaussian(config, place), self_attention(&sequence(place.heads, 30)));
    let largest = |h| {
        let row: &[f64] = weights.row(&[0, h, 15]);
        let at = (0..30).max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("the row is not empty");
        at as f64 - 15.0
    };
    (0..place.heads).map(largest).collect()
}

#[test]
fn lists_of_offsets_are_read_as_in_the_authors_code() {
    let layer = |layer, layers| place(Role::Encoder, 4).at_layer(layer, layers);
    // One number, a full table, per head, per layer, and a list that is repeated over the heads, tried in this order.
    assert_eq!(offsets_of(centred(&[2.0]), layer(1, 3)), [2.0; 4]);
    let table: Vec<f64> = (0..12).map(f64::from).collect();
    assert_eq!(offsets_of(centred(&table), layer(1, 3)), [4.0, 5.0, 6.0, 7.0]);
    assert_eq!(offsets_of(centred(&[-2.0, -1.0, 1.0, 2.0]), layer(1, 3)), [-2.0, -1.0, 1.0, 2.0]);
    assert_eq!(offsets_of(centred(&[-1.0, 0.0, 1.0]), layer(2, 3)), [1.0; 4]);
    assert_eq!(offsets_of(centred(&[-1.0, 1.0]), layer(0, 3)), [-1.0, 1.0, -1.0, 1.0]);
    assert_eq!(offsets_of(centred(&[-1.0, 1.0]), layer(1, 2)), [1.0; 4], "two numbers in a model of two layers are one per layer");
    assert_eq!(offsets_of(centred(&[-2.0, -1.0, 1.0, 2.0]), layer(1, 4)), [-2.0, -1.0, 1.0, 2.0], "as many heads as layers: per head");
}

#[test]
fn without_a_list_heads_look_beside_or_behind_whatever_the_number_of_layers() {
    for layers in [1, 2, 4] {
        let of = |role| offsets_of(GaussianConfig::default(), place(role, 4).at_layer(layers - 1, layers));
        assert_eq!(of(Role::Encoder), [-1.0, 1.0, -1.0, 1.0]);
        assert_eq!(of(Role::Decoder), [-1.0, 0.0, -1.0, 0.0]);
    }
}

#[test]
fn deviations_are_spread_like_offsets() {
    let config = centred(&[0.0]).with_deviations(vec![0.5, 2.0]);
    let weights = weights(&gaussian(config, place(Role::Encoder, 2)), self_attention(&sequence(2, 30)));
    assert_same("peaks", &[weights.at(&[0, 0, 15, 15]), weights.at(&[0, 1, 15, 15])], &[0.7979, 0.1995], 5e-5);
}

#[test]
fn a_band_of_thirteen_keys_equals_the_dense_product() {
    for normalisation in [Normalisation::None, Normalisation::Renormalise] {
        for (role, causal) in [(Role::Encoder, false), (Role::Decoder, true)] {
            let dense = GaussianConfig::default().with_normalisation(normalisation).with_offsets(vec![-1.0, 0.5]);
            let run = |config: GaussianConfig| {
                let visibility = if causal { Visibility::causal() } else { Visibility::padding(vec![25]) };
                let context = context(&gaussian(config, place(role, 2)), self_attention(&sequence(2, 30)).visibility(visibility));
                context.slice(0..25)
            };
            let expected = run(dense.clone());
            for window in [6, 7, 40] {
                let banded = run(dense.clone().with_execution(GaussianExecution::Banded).with_window(window));
                assert_same(&format!("window {window}"), &banded.values, &expected.values, 1e-6);
            }
            let narrow = run(dense.clone().with_execution(GaussianExecution::Banded).with_window(1));
            assert_ne!(narrow, expected, "a band of three is another sum");
        }
    }
}

#[test]
fn index_is_the_limit_of_vanishing_deviation() {
    let offsets = vec![-1.0, 1.0];
    let run = |config: GaussianConfig| context(&gaussian(config, place(Role::Encoder, 2)), self_attention(&sequence(2, 10)));
    let index = run(centred(&offsets).with_execution(GaussianExecution::Index));
    let deviation = 0.05;
    let narrow = run(centred(&offsets).with_deviations(vec![deviation]));
    let scale = deviation * (2.0 * std::f64::consts::PI).sqrt();
    let expected: Vec<f64> = narrow.values.iter().map(|y| y * scale).collect();
    assert_same("context", &index.values, &expected, 1e-5);
}

#[test]
fn index_without_offset_copies_the_source_position() {
    let config = centred(&[0.0]).with_execution(GaussianExecution::Index);
    let (query, memory) = (sequence(2, 4), Array::random("m", &[1, 6, 6]));
    let weights = weights(&gaussian(config, place(Role::Cross, 2)), cross_attention(&query, &memory));
    for i in 0..4 {
        let expected: Vec<f64> = (0..6).map(|j| f64::from(i == j)).collect();
        assert_same("row", weights.row(&[0, 0, i]), &expected, 0.0);
    }
}

#[test]
fn the_length_ratio_scales_the_query_index_of_cross_attention_only() {
    let config = centred(&[1.0]).with_length_ratio(2.0);
    let (query, memory) = (sequence(1, 8), Array::random("m", &[1, 30, 3]));
    let cross = weights(&gaussian(config.clone(), place(Role::Cross, 1)), cross_attention(&query, &memory));
    assert_same("query 5 of cross-attention", &cross.row(&[0, 0, 5])[9..14], &DENSITY, 5e-5);
    let own = weights(&gaussian(config, place(Role::Encoder, 1)), self_attention(&sequence(1, 30)));
    assert_same("query 5 of self-attention", &own.row(&[0, 0, 5])[4..9], &DENSITY, 5e-5);
}

#[test]
fn shifting_the_sequence_shifts_the_interior_of_the_output() {
    let attention = gaussian(GaussianConfig::default(), place(Role::Encoder, 2));
    let long = sequence(2, 31);
    let [first, second] = [0, 1].map(|start| context(&attention, self_attention(&long.slice(start..start + 30))));
    assert_same("interior", &second.slice(9..19).values, &first.slice(10..20).values, 1e-5);
}

#[test]
fn the_output_does_not_depend_on_queries() {
    let attention = gaussian(GaussianConfig::default(), place(Role::Cross, 2));
    let memory = Array::random("m", &[1, 6, 6]);
    let [one, other] = ["x", "y"].map(|name| context(&attention, cross_attention(&Array::random(name, &[1, 5, 6]), &memory)));
    assert_eq!(one, other);
}

#[test]
fn nothing_is_learned_but_values_and_outputs() {
    let attention = gaussian(GaussianConfig::default(), place(Role::Encoder, 2));
    assert_eq!(parameters(&attention, None).into_keys().collect::<Vec<_>>(), ["Gaussian.output.weight", "Gaussian.value.weight"]);
    assert_eq!(attention.num_params(), 2 * 6 * 6);
}

#[test]
fn appended_padding_changes_nothing_at_real_positions() {
    let padded = sequence(2, 12);
    for execution in [GaussianExecution::Dense, GaussianExecution::Banded, GaussianExecution::Index] {
        let attention = gaussian(GaussianConfig::default().with_execution(execution), place(Role::Encoder, 2));
        let alone = context(&attention, self_attention(&padded.slice(0..7)));
        let beside = context(&attention, self_attention(&padded).visibility(Visibility::padding(vec![7])));
        assert_same(&format!("{execution:?}"), &beside.slice(0..7).values, &alone.values, 1e-6);
    }
}
