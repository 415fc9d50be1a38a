//! Strided and fixed sparse attention: Child et al. 2019.

use std::collections::BTreeSet;

use heedful_attention::mechanisms::local_1d::LocalOneD;
use heedful_attention::mechanisms::sparse_fixed::{Summaries, SummariesWithin};
use heedful_attention::mechanisms::sparse_strided::{Column, NearColumn};
use heedful_attention::softmax_attention::pattern::{Factorised, Integration, Near, Pattern};

use super::image_transformer::{check_hints, equal};
use super::*;

fn place(heads: usize, layer: usize) -> LayerSpec {
    spec(Role::Decoder, heads).at_layer(layer, 2)
}

fn strided(stride: usize, integration: Integration) -> SparseStridedConfig {
    SparseStridedConfig::default().with_stride(stride).with_integration(integration)
}

fn fixed(stride: usize, summary: usize, integration: Integration) -> SparseFixedConfig {
    SparseFixedConfig::default().with_stride(stride).with_summary(summary).with_integration(integration)
}

fn neighbourhood(stride: usize) -> Near {
    Near { farthest: stride, block: stride }
}

fn own_block(stride: usize) -> LocalOneD {
    LocalOneD { query_block: stride, memory_block: 0 }
}

/// Keys that each query sees together with the causal mask.
fn sets(pattern: &dyn Pattern, head: usize, length: usize) -> Vec<Vec<usize>> {
    (0..length).map(|i| (0..=i).filter(|&j| pattern.sees(head, i, j)).collect()).collect()
}

/// Whether `i` is reached from `j` by a step of `first` and then one of `second`.
fn reaches(first: &[Vec<usize>], second: &[Vec<usize>], i: usize, j: usize) -> bool {
    second[i].iter().any(|&a| first[a].contains(&j))
}

#[test]
fn the_factors_of_the_strided_pattern_are_those_of_the_paper() {
    for stride in [1, 2, 5, 8, 40] {
        let (near, column) = (sets(&neighbourhood(stride), 0, 33), sets(&Column { stride }, 0, 33));
        for i in 0..33usize {
            assert_eq!(near[i], (i.saturating_sub(stride)..=i).collect::<Vec<_>>());
            assert_eq!(near[i].len(), (stride + 1).min(i + 1));
            assert_eq!(column[i], (0..=i).filter(|j| (i - j) % stride == 0).collect::<Vec<_>>());
            assert_eq!(column[i].len(), i / stride + 1);
        }
        check_hints(&neighbourhood(stride), 1, 33);
        check_hints(&Column { stride }, 1, 33);
    }
}

#[test]
fn the_factors_of_the_fixed_pattern_are_those_of_the_paper() {
    for (stride, summary) in [(1, 1), (4, 1), (4, 2), (6, 3), (5, 5), (40, 8)] {
        let summaries = Summaries { stride, summary, sub_blocks: 1, apart: 1 };
        let (block, columns) = (sets(&own_block(stride), 0, 33), sets(&summaries, 0, 33));
        for i in 0..33 {
            assert_eq!(block[i], (i / stride * stride..=i).collect::<Vec<_>>());
            // Besides the paper's residues l - c, ..., l - 1 the own position, so that no row is empty.
            let expected: Vec<usize> = (0..=i).filter(|&j| j % stride >= stride - summary || j == i).collect();
            assert_eq!(columns[i], expected);
        }
        check_hints(&own_block(stride), 1, 33);
        check_hints(&summaries, 1, 33);
    }
}

#[test]
fn two_steps_of_the_strided_pattern_reach_everything_in_either_order() {
    let (near, column) = (sets(&neighbourhood(8), 0, 64), sets(&Column { stride: 8 }, 0, 64));
    for (i, j) in (0..64).flat_map(|i| (0..=i).map(move |j| (i, j))) {
        assert!(reaches(&near, &column, i, j) && reaches(&column, &near, i, j), "{j} to {i}");
    }
}

#[test]
fn the_fixed_pattern_reaches_other_blocks_only_in_the_order_of_the_layers() {
    let place = |layer| place(1, layer);
    let layers = [0, 1].map(|layer| sets(&fixed(8, 1, Integration::Interleaved).pattern(&place(layer)), 0, 64));
    let pairs = || (0..64).flat_map(|i| (0..i / 8 * 8).map(move |j| (i, j)));
    let unreached = pairs().filter(|&(i, j)| !reaches(&layers[0], &layers[1], i, j)).count();
    assert_eq!(unreached, 0);
    let wrong_order = pairs().filter(|&(i, j)| !reaches(&layers[1], &layers[0], i, j)).count();
    // The own position, which A2 has here, leads to no other block.
    assert_eq!((pairs().count(), wrong_order), (1792, 1568));
}

#[test]
fn two_merged_layers_reach_everything() {
    let place = place(1, 0);
    let patterns: [Factorised; 2] = [strided(8, Integration::Merged).pattern(&place), fixed(8, 2, Integration::Merged).pattern(&place)];
    for pattern in patterns {
        let merged = sets(&pattern, 0, 64);
        for (i, j) in (0..64).flat_map(|i| (0..=i).map(move |j| (i, j))) {
            assert!(reaches(&merged, &merged, i, j), "{pattern:?}: {j} to {i}");
        }
    }
}

#[test]
fn integrations_give_layers_and_heads_their_factors() {
    let (near, column) = (sets(&neighbourhood(4), 0, 20), sets(&Column { stride: 4 }, 0, 20));
    let either: Vec<Vec<usize>> = (0..20).map(|i| (0..=i).filter(|j| near[i].contains(j) || column[i].contains(j)).collect()).collect();
    let found = |integration, heads, layer, head| sets(&strided(4, integration).pattern(&place(heads, layer)), head, 20);
    for head in 0..3 {
        assert_eq!(found(Integration::Interleaved, 3, 0, head), near);
        assert_eq!(found(Integration::Interleaved, 3, 1, head), column);
        assert_eq!(found(Integration::Merged, 3, 1, head), either);
    }
    assert_eq!(
        (0..4).map(|head| found(Integration::Heads, 4, 0, head)).collect::<Vec<_>>(),
        [&near, &column, &near, &column].map(Clone::clone)
    );
    assert_eq!((0..3).map(|head| found(Integration::Heads, 3, 0, head)).collect::<Vec<_>>(), [&near, &column, &either].map(Clone::clone));
    assert_eq!(found(Integration::Heads, 1, 0, 0), either);
}

/// Keys that query `i` reaches by a step of each of these factors, of which the last one is the step that ends in `i`.
fn reached(factors: &[&[Vec<usize>]], i: usize) -> BTreeSet<usize> {
    factors.iter().rev().fold(BTreeSet::from([i]), |at, sets| at.into_iter().flat_map(|a| sets[a].iter().copied()).collect())
}

#[test]
fn three_factors_of_the_strided_pattern_take_steps_of_powers_of_the_stride() {
    let layers = [0, 1, 2].map(|layer| {
        let pattern = strided(4, Integration::Interleaved).with_factors(3).pattern(&place(1, layer));
        check_hints(&pattern, 1, 64);
        sets(&pattern, 0, 64)
    });
    for i in 0..64usize {
        let keys = |sees: &dyn Fn(usize) -> bool| (0..=i).filter(|j| sees(i - j)).collect::<Vec<_>>();
        assert_eq!(layers[0][i], keys(&|distance| distance <= 4));
        assert_eq!(layers[1][i], keys(&|distance| distance % 4 == 0 && distance <= 16));
        assert_eq!(layers[2][i], keys(&|distance| distance % 16 == 0));
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let factors = order.map(|factor| &layers[factor][..]);
            assert_eq!(reached(&factors, i), (0..=i).collect::<BTreeSet<_>>(), "{order:?} to {i}");
        }
    }
    assert!(reached(&[&layers[0], &layers[2]], 63).len() < 64, "two of three factors do not reach everything");
}

#[test]
fn three_factors_of_the_fixed_pattern_summarise_summaries() {
    let layers = [0, 1, 2].map(|layer| {
        let pattern = fixed(4, 1, Integration::Interleaved).with_factors(3).pattern(&place(1, layer));
        check_hints(&pattern, 1, 64);
        sets(&pattern, 0, 64)
    });
    for i in 0..64 {
        let keys = |sees: &dyn Fn(usize) -> bool| (0..=i).filter(|&j| j == i || sees(j)).collect::<Vec<_>>();
        assert_eq!(layers[0][i], keys(&|j| j / 4 == i / 4));
        assert_eq!(layers[1][i], keys(&|j| j / 16 == i / 16 && j % 4 == 3));
        assert_eq!(layers[2][i], keys(&|j| j % 16 == 15));
        let found = reached(&[&layers[0], &layers[1], &layers[2]], i);
        assert!((0..i / 4 * 4).all(|j| found.contains(&j)), "to {i}: {found:?}");
    }
}

#[test]
fn factors_of_any_number_say_which_keys_to_look_at() {
    for step in [1, 3, 4] {
        check_hints(&NearColumn { step, stride: 3 }, 1, 40);
    }
    let summaries = Summaries { stride: 4, summary: 1, sub_blocks: 3, apart: 2 };
    for within in [8, 16, usize::MAX] {
        check_hints(&SummariesWithin { summaries, within, together: 2 }, 7, 40);
    }
    let place = place(3, 0);
    let merged = strided(3, Integration::Merged).with_factors(3).pattern(&place);
    let parts = merged.parts();
    assert_eq!(parts.len(), 3);
    for (i, j) in (0..40).flat_map(|i| (0..40).map(move |j| (i, j))) {
        let shown = parts.iter().filter(|part| part.sees(0, i, j)).count();
        assert_eq!(shown, usize::from(merged.sees(0, i, j)), "query {i}, key {j}");
    }
    parts.iter().for_each(|part| check_hints(&**part, 1, 40));
    check_hints(&merged, 3, 40);
    check_hints(&fixed(3, 1, Integration::Merged).with_factors(3).pattern(&place), 3, 40);
}

#[test]
fn heads_have_three_factors_in_turn_and_those_left_over_have_all() {
    let factors: [Vec<Vec<usize>>; 3] =
        [0, 1, 2].map(|layer| sets(&strided(3, Integration::Interleaved).with_factors(3).pattern(&place(1, layer)), 0, 30));
    let any = sets(&strided(3, Integration::Merged).with_factors(3).pattern(&place(1, 0)), 0, 30);
    let by_heads = strided(3, Integration::Heads).with_factors(3).pattern(&place(8, 0));
    for (head, expected) in factors.iter().chain(&factors).chain([&any, &any]).enumerate() {
        assert_eq!(&sets(&by_heads, head, 30), expected, "head {head}");
    }
    check_hints(&by_heads, 8, 30);
    let fixed = fixed(6, 2, Integration::Heads).with_factors(3).pattern(&place(6, 0));
    let residues = |head: usize| (0..6).filter(|&j| fixed.sees(head, 35, j + 24)).collect::<Vec<_>>();
    assert_eq!([1, 4].map(residues), [vec![4, 5], vec![2, 3]], "each turn of the factors has a sub-block");
}

#[test]
fn layers_have_factors_at_a_ratio() {
    let (near, column) = (sets(&neighbourhood(4), 0, 20), sets(&Column { stride: 4 }, 0, 20));
    let layer = |ratio: Option<Vec<usize>>, layer| {
        let config = strided(4, Integration::Interleaved).with_ratio(ratio);
        sets(&config.pattern(&spec(Role::Decoder, 2).at_layer(layer, 9)), 1, 20)
    };
    for index in 0..9 {
        assert_eq!(layer(Some(vec![3, 1]), index), if index % 4 == 3 { column.clone() } else { near.clone() }, "layer {index}");
        assert_eq!(layer(Some(vec![1, 1]), index), layer(None, index), "layer {index}");
    }
    let summaries = |index| {
        let config = fixed(4, 1, Integration::Interleaved).with_factors(3).with_ratio(vec![1, 2, 1]);
        sets(&config.pattern(&spec(Role::Decoder, 2).at_layer(index, 8)), 0, 40)
    };
    assert_eq!((summaries(1), summaries(3)), (summaries(2), summaries(7)));
    assert!(summaries(0) != summaries(1) && summaries(2) != summaries(3));
}

#[test]
fn heads_have_summaries_of_their_own_from_the_end_of_the_block() {
    let residues = |config: SparseFixedConfig, heads: usize, head: usize| -> Vec<usize> {
        let pattern = config.pattern(&place(heads, 1));
        // From a position of a later block that is no summary of any head.
        (0..8).filter(|&j| pattern.sees(head, 80, j)).collect()
    };
    let merged = |head| residues(fixed(8, 2, Integration::Merged), 6, head);
    assert_eq!([merged(0), merged(1), merged(2), merged(3), merged(4)], [vec![6, 7], vec![4, 5], vec![2, 3], vec![0, 1], vec![6, 7]]);
    let by_heads = |head| residues(fixed(8, 2, Integration::Heads), 5, head);
    assert_eq!([by_heads(0), by_heads(1), by_heads(2), by_heads(3), by_heads(4)], [vec![], vec![6, 7], vec![], vec![4, 5], vec![2, 3]]);
    let shared = fixed(8, 2, Integration::Merged).with_separate_summaries(false);
    assert!((0..6).all(|head| residues(shared.clone(), 6, head) == [6, 7]));
}

#[test]
fn the_parts_of_merged_factors_show_each_pair_once() {
    for heads in [1, 3] {
        let merged = strided(4, Integration::Merged).pattern(&place(heads, 0));
        let parts = merged.parts();
        assert_eq!(parts.len(), 2);
        for (i, j) in (0..30).flat_map(|i| (0..30).map(move |j| (i, j))) {
            let shown = parts.iter().filter(|part| part.sees(0, i, j)).count();
            assert_eq!(shown, usize::from(merged.sees(0, i, j)), "query {i}, key {j}");
        }
        parts.iter().for_each(|part| check_hints(&**part, 1, 30));
    }
    // Apart from merging there is one pattern to a head, and the fixed pattern has the same blocks in both factors.
    assert!(strided(4, Integration::Heads).pattern(&place(3, 0)).parts().is_empty());
    assert!(fixed(4, 1, Integration::Merged).pattern(&place(3, 0)).parts().is_empty());
}

#[test]
fn every_query_sees_itself() {
    for integration in [Integration::Interleaved, Integration::Merged, Integration::Heads] {
        for layer in 0..2 {
            let place = place(3, layer);
            let patterns = [strided(5, integration).pattern(&place), fixed(6, 2, integration).pattern(&place)];
            for pattern in patterns {
                assert!((0..3).all(|head| (0..40).all(|i| pattern.sees(head, i, i))), "{pattern:?}");
                check_hints(&pattern, 3, 40);
            }
        }
    }
}

#[test]
fn at_the_limits_the_patterns_are_full_attention() {
    let dot_product = parse("dot-product");
    for visibility in [Visibility::causal(), Visibility::all()] {
        for stride in [7, 8, 100] {
            // The neighbourhood, and the own block where it holds the sequence.
            let local = strided(stride, Integration::Interleaved);
            equal(&AnyMechanism::from(local), &dot_product, &place(2, 0), &visibility);
        }
        equal(&AnyMechanism::from(fixed(8, 1, Integration::Interleaved)), &dot_product, &place(2, 0), &visibility);
        // Stride 1: the column is everything. As many summaries as positions: so are the summaries.
        equal(&AnyMechanism::from(strided(1, Integration::Interleaved)), &dot_product, &place(2, 1), &visibility);
        equal(&AnyMechanism::from(fixed(3, 3, Integration::Interleaved)), &dot_product, &place(2, 1), &visibility);
    }
}

#[test]
fn columns_are_causal_attention_over_the_transposed_sequence() {
    let (stride, length) = (4, 16);
    let place = place(2, 1).with_max_length(length);
    let x = Array::random("x", &[1, length, 6]);
    let found = context(
        &init(&AnyMechanism::from(strided(stride, Integration::Interleaved)), &place),
        self_attention(&x).visibility(Visibility::causal()),
    );
    // One batch row for each residue class.
    let columns = Array::from_fn([stride, length / stride, 6], |[column, row, c]| x.at(&[0, row * stride + column, c]));
    let expected = context(&init(&parse("dot-product"), &place), self_attention(&columns).visibility(Visibility::causal()));
    for i in 0..length {
        assert_same("context", found.row(&[0, i]), expected.row(&[i % stride, i / stride]), 1e-5);
    }
}

#[test]
fn the_pairs_of_the_published_settings_are_as_few_as_computed() {
    let visible = |pattern: &dyn Pattern, length: usize| -> usize {
        let blocks = (0..length).map(|i| pattern.candidates(0, &[i], 0..i + 1).into_iter().filter(|&j| pattern.sees(0, i, j)).count());
        blocks.sum()
    };
    let dense = |length: usize| (length * (length + 1) / 2) as f64;
    // CIFAR-10: 3072 elements, stride 96, both factors together.
    let length = 3072;
    let both = visible(&neighbourhood(96), length) + visible(&Column { stride: 96 }, length);
    assert!((both as f64 / dense(length) - 0.073).abs() < 0.001, "{}", both as f64 / dense(length));
    // enwik8: 12,288 characters, stride 128, 32 summaries.
    let length = 12_288;
    let one = place(1, 0).with_max_length(length);
    let merged = visible(&fixed(128, 32, Integration::Merged).pattern(&one), length);
    assert!((merged as f64 / dense(length) - 0.259).abs() < 0.005, "{}", merged as f64 / dense(length));
}
