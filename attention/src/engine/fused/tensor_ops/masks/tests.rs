use std::collections::BTreeMap;

use burn::backend::TensorMetadata;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

use super::*;
use crate::contract::visibility::{Span, TileLevels, TileMapBuilder, VISIBLE, Visibility};
use crate::engine::fused::plan::Order;
use crate::engine::fused::tensor_ops::tests::{adapter, numbers};

const HEADS: usize = 2;
/// Bytes of a mask of [`SPAN`], in whole tiles.
const BYTES: usize = 4 * 128 * 128;
const SPAN: [usize; 2] = [70, 70];

fn in_order(map: TileMap) -> Arc<[Part]> {
    Arc::new([Part::in_order(Arc::new(map))])
}

fn parts(visibility: &Visibility, [queries, keys]: [usize; 2]) -> Arc<[Part]> {
    in_order(TileMap::new(visibility, Span::whole(queries, keys), HEADS))
}

fn mask(masks: &Masks, parts: &Arc<[Part]>, queries: Range<usize>, keys: usize) -> CubeTensor {
    masks.mask::<CubeBackend>(parts, Strip { queries: &queries, keys, device: &adapter(), dtype: DType::F32 })
}

fn is_same(one: &CubeTensor, other: &CubeTensor) -> bool {
    one.handle.memory.descriptor() == other.handle.memory.descriptor()
}

/// Compares the device's mask from tiles with the host's, pair by pair; returns the numbers that are not hidden.
fn check(parts: &Arc<[Part]>, queries: Range<usize>, keys: usize, name: &str) -> Vec<f32> {
    let device = adapter();
    let found = mask(&Masks::new(0), parts, queries.clone(), keys);
    let (wanted, shape) = of_pairs::<CubeBackend>(parts, &Strip { queries: &queries, keys, device: &device, dtype: DType::F32 });
    assert_eq!(found.shape().dims(), shape, "{name}");
    assert!(numbers::<CubeBackend>(found) == wanted, "{name}: queries {queries:?} of {keys} keys");
    wanted.into_iter().filter(|&number| number > hidden_logit(DType::F32)).collect()
}

#[test]
fn masks_of_tiles_are_those_of_their_pairs() {
    let (queries, keys) = (200, 130);
    let of_rows = 2;
    let all = queries * keys;
    // What they are, and the pairs that they show of all rows and heads that they tell apart.
    let causal: usize = (0..queries).map(|query| keys.min(query + 1)).sum();
    let local: usize = (0..queries).map(|query| keys.min(query + 4).saturating_sub(query.saturating_sub(30))).sum();
    let cases = [
        (Visibility::all(), all),
        (Visibility::causal(), causal),
        (Visibility::window(30, 3), local),
        (Visibility::padding(vec![0, 90]), 90 * queries),
        (Visibility::left_padding(vec![129, 64]), (1 + 66) * queries),
        (Visibility::causal().and(Visibility::padding(vec![keys; 2])), causal * of_rows),
        (Visibility::pattern(|head, _, key| key % 2 == head), all),
    ];
    for (visibility, shown) in cases {
        let (name, parts) = (format!("{visibility:?}"), parts(&visibility, [queries, keys]));
        let visible = [0..128, 128..200].map(|chunk| check(&parts, chunk, keys, &name)).concat();
        assert!(visible.iter().all(|&number| number == 0.0) && visible.len() == shown, "{name} shows {} pairs", visible.len());
        check(&parts, 70..75, keys, &name);
    }
}

#[test]
fn masks_of_levels_have_their_shifts() {
    let levels = |place: usize| {
        let mut levels: Box<TileLevels> = Box::new([0; PAIRS]);
        (levels[place], levels[3 * TILE + 5]) = (VISIBLE, 2);
        levels
    };
    let mut builder = TileMapBuilder::new(1, 1, &[-0.5]);
    builder.begin_plane();
    builder.push(TILE, BTreeMap::from([(0, levels(0)), (1, levels(1))]));
    builder.push(6, BTreeMap::from([(1, levels(2))]));
    let visible = check(&in_order(builder.finish()), 0..70, 70, "levels");
    assert_eq!(visible, [0.0, 0.0, -0.5, -0.5, 0.0, -0.5]);
}

#[test]
fn a_mask_is_made_once_and_forgotten_with_what_it_is_of() {
    let masks = Masks::new(100 * BYTES);
    let [causal, all] = [Visibility::causal(), Visibility::all()].map(|visibility| parts(&visibility, [200, 70]));
    let first = mask(&masks, &causal, 0..128, 70);
    assert!(is_same(&first, &mask(&masks, &causal, 0..128, 70)), "it is made twice");
    let in_other_plan: Arc<[Part]> = Arc::new([Part::in_order(causal[0].tiles.clone())]);
    assert!(is_same(&first, &mask(&masks, &in_other_plan, 0..128, 70)), "each layer has its own");
    let others = [mask(&masks, &causal, 128..200, 70), mask(&masks, &all, 0..128, 70)];
    assert!(others.iter().all(|other| !is_same(&first, other)), "different queries or tiles have the same");
    assert_eq!(masks.lock().len(), 3);

    // Places that are not indices: parts are distinguished.
    let reversed = Order::new(1, vec![(0..70).rev().collect()]);
    let ordered: Arc<[Part]> = Arc::new([Part { keys: Some(reversed), ..causal[0].clone() }]);
    let of_ordered = mask(&masks, &ordered, 0..128, 70);
    assert!(!is_same(&first, &of_ordered) && is_same(&of_ordered, &mask(&masks, &ordered, 0..128, 70)));
    assert!(numbers::<CubeBackend>(first) != numbers::<CubeBackend>(of_ordered));
    assert_eq!(masks.lock().len(), 4);

    drop((causal, in_other_plan, ordered));
    mask(&masks, &all, 128..200, 70);
    assert_eq!(masks.lock().len(), 2, "masks of dropped plans stay");
}

#[test]
fn the_oldest_mask_goes_where_there_are_too_many() {
    let plans = [Visibility::causal(), Visibility::all(), Visibility::window(1, 1)].map(|visibility| parts(&visibility, SPAN));
    let masks = Masks::new(2 * BYTES);
    let made = || plans.each_ref().map(|plan| mask(&masks, plan, 0..70, 70));
    // The first ones are kept alive, or others could reuse their addresses.
    let [first, second, third] = made();
    assert!(is_same(&third, &mask(&masks, &plans[2], 0..70, 70)) && is_same(&second, &mask(&masks, &plans[1], 0..70, 70)));
    assert!(!is_same(&first, &mask(&masks, &plans[0], 0..70, 70)), "more is kept than there is room for");
    assert!(!is_same(&second, &mask(&masks, &plans[1], 0..70, 70)), "not the oldest one went");

    let small = Masks::new(BYTES - 1);
    mask(&small, &plans[0], 0..70, 70);
    assert!(small.lock().is_empty(), "a mask is kept that is larger than the room for all");
}
