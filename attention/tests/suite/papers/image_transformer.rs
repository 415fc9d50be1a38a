//! Local attention in one and two dimensions: Parmar et al. 2018.

use heedful_attention::mechanisms::local_2d::BlockRaster;
use heedful_attention::softmax_attention::pattern::Pattern;

use super::*;
use crate::variants::{local_1d, local_2d};

/// The keys that a query sees together with the causal mask.
fn causal(pattern: &dyn Pattern, i: usize) -> Vec<usize> {
    (0..=i).filter(|&j| pattern.sees(0, i, j)).collect()
}

/// That what a pattern names for execution holds what it shows, and that nothing is farther back than its reach.
fn hints_hold(pattern: &dyn Pattern, head: usize, length: usize) {
    for keys in [0..length, 2..length - 1] {
        for i in 0..length {
            let block: Vec<usize> = (0..length).filter(|&p| pattern.block(head, p) == pattern.block(head, i)).collect();
            let candidates = pattern.candidates(head, &block, keys.clone());
            assert!(candidates.is_sorted() && candidates.iter().all(|j| keys.contains(j)), "{pattern:?}: {candidates:?}");
            let missed = keys.clone().find(|j| pattern.sees(head, i, *j) && candidates.binary_search(j).is_err());
            assert_eq!(missed, None, "{pattern:?}: query {i}");
        }
    }
    if let Some(reach) = pattern.reach() {
        let beyond = (0..length).find(|&i| (0..i).any(|j| pattern.sees(head, i, j) && i - j > reach));
        assert_eq!(beyond, None, "{pattern:?}: reach {reach}");
    }
}

/// Whether two attentions with the same parameters give the same under a visibility.
pub(super) fn equal(found: &AnyMechanism, expected: &AnyMechanism, place: &LayerSpec, visibility: &Visibility) {
    let x = Array::random("x", &[2, place.max_length, place.d_model]);
    let run = |config| context(&init(config, place), self_attention(&x).visibility(visibility.clone())).values;
    assert_same(&format!("{found:?}"), &run(found), &run(expected), 1e-5);
}

pub(super) fn check_hints(pattern: &dyn Pattern, heads: usize, length: usize) {
    (0..heads).for_each(|head| hints_hold(pattern, head, length));
}

#[test]
fn the_visible_set_in_one_dimension_is_that_of_the_formula() {
    for (query_block, memory_block) in [(1, 1), (3, 3), (4, 4), (4, 2), (5, 0), (2, 7), (30, 30)] {
        let pattern = local_1d(query_block, Some(memory_block)).pattern(512);
        for i in 0..23 {
            let block = i / query_block;
            let expected: Vec<usize> = ((block * query_block).saturating_sub(memory_block)..=i).collect();
            assert_eq!(causal(&pattern, i), expected, "blocks of {query_block}, memory {memory_block}, query {i}");
            if query_block == memory_block {
                let previous: Vec<usize> = (block.saturating_sub(1) * query_block..=i).collect();
                assert_eq!(expected, previous, "{{ j : (b - 1) l_q <= j <= i }}");
            }
        }
        check_hints(&pattern, 1, 23);
    }
}

#[test]
fn the_first_block_and_a_sequence_of_less_than_two_are_fully_causal() {
    let pattern = local_1d(8, None).pattern(512);
    for i in 0..15 {
        assert_eq!(causal(&pattern, i).len(), i + 1);
    }
    assert_eq!(causal(&pattern, 16).len(), 9);
}

#[test]
fn a_block_as_long_as_the_sequence_is_full_attention() {
    let place = spec(Role::Decoder, 2);
    for visibility in [Visibility::causal(), Visibility::all()] {
        for query_block in [8, 20] {
            equal(&AnyMechanism::from(local_1d(query_block, None)), &parse("dot-product"), &place, &visibility);
        }
        equal(&AnyMechanism::from(local_2d(4, [2, 4], [0, 0])), &parse("dot-product"), &place, &visibility);
    }
}

#[test]
fn the_order_of_generation_is_blocks_row_by_row_and_back() {
    let order = BlockRaster { width: 24, block: [4, 6] };
    let (generation, raster) = (order.generation_order(12), order.raster_order(12));
    assert_eq!(generation.len(), 12 * 24);
    for (position, &index) in generation.iter().enumerate() {
        assert_eq!(raster[index], position);
        assert_eq!(order.position(order.cell(position)), position);
        assert_eq!(order.cell(position), [index / 24, index % 24]);
    }
    // The second block begins at the top, right of the first; the fifth, in the next row of blocks.
    assert_eq!([generation[0], generation[5], generation[6], generation[24], generation[4 * 24]], [0, 5, 24, 6, 4 * 24]);
}

#[test]
#[should_panic(expected = "pad it")]
fn an_image_that_is_not_made_of_whole_blocks_has_no_order() {
    BlockRaster { width: 4, block: [2, 2] }.generation_order(3);
}

#[test]
fn the_visible_set_in_two_dimensions_is_the_memory_block_without_the_future() {
    let ([height, width], [up, beside]) = ([4, 6], [3, 5]);
    let config = local_2d(24, [height, width], [up, beside]);
    let (pattern, order) = (config.pattern(512), BlockRaster { width: 24, block: [height, width] });
    let mut pairs = 0;
    for i in 0..12 * 24 {
        let [row, column] = order.cell(i);
        let (top, left) = (row / height * height, column / width * width);
        // Rows above with flanges to both sides; at the rows of the block columns to the left, none to the right.
        let mut expected = Vec::new();
        for r in top.saturating_sub(up)..top {
            expected.extend((left.saturating_sub(beside)..(left + width + beside).min(24)).map(|c| order.position([r, c])));
        }
        for r in top..top + height {
            expected.extend((left.saturating_sub(beside)..left).map(|c| order.position([r, c])));
            expected.extend((left..left + width).filter(|&c| (r, c) <= (row, column)).map(|c| order.position([r, c])));
        }
        expected.sort_unstable();
        assert!(expected.iter().all(|&j| j <= i), "query {i} sees a key that is not generated yet");
        assert_eq!(causal(&pattern, i), expected, "query {i}");
        pairs += expected.len();
    }
    assert!(pairs > 12 * 24 * 20, "{pairs}");
}

#[test]
fn hints_of_execution_hold_in_two_dimensions() {
    for (block, memory) in [([4, 6], [3, 5]), ([2, 3], [3, 1]), ([1, 12], [0, 0]), ([2, 4], [5, 20])] {
        check_hints(&local_2d(12, block, memory).pattern(512), 1, 5 * 24 + 7);
    }
}

#[test]
fn without_flanges_a_block_sees_itself() {
    let pattern = local_2d(12, [2, 4], [0, 0]).pattern(512);
    for i in 0..48 {
        assert_eq!(causal(&pattern, i), (i / 8 * 8..=i).collect::<Vec<_>>());
    }
}

#[test]
fn a_changed_element_moves_no_earlier_step_of_generation() {
    let place = spec(Role::Decoder, 2).with_max_length(24);
    for config in [AnyMechanism::from(local_1d(4, None)), AnyMechanism::from(local_2d(6, [2, 3], [1, 2])), parse("random@local-1d")] {
        let attention = init(&config, &place);
        let x = Array::random("x", &[1, 24, 6]);
        let input = |x: &Array| AttentionInput::self_attention(x.tensor(&flex().device)).visibility(Visibility::causal());
        let before = context(&attention, input(&x));
        for t in 0..24 {
            let mut changed = x.clone();
            changed.row_mut(&[0, t]).iter_mut().for_each(|x| *x = 1.0 - 2.0 * *x);
            let after = context(&attention, input(&changed));
            assert_eq!(after.slice(0..t), before.slice(0..t), "{config}, element {t}");
            assert_ne!(after.row(&[0, t]), before.row(&[0, t]), "{config}, element {t}");
        }
    }
}

#[test]
fn weights_are_zero_outside_of_the_memory_block() {
    let place = spec(Role::Decoder, 2).with_max_length(12);
    let config = local_1d(3, Some(2));
    let pattern = config.pattern(512);
    let shown = weights(&init(&AnyMechanism::from(config), &place), self_attention(&Array::random("x", &[1, 12, 6])));
    for (h, i, j) in (0..2).flat_map(|h| (0..12).flat_map(move |i| (0..12).map(move |j| (h, i, j)))) {
        assert_eq!(shown.at(&[0, h, i, j]) > 0.0, j <= i && pattern.sees(h, i, j), "query {i}, key {j}");
    }
}
