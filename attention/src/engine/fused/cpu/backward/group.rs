//! The contribution of a key group to the gradients, on the vector unit.

use std::ops::Range;

use burn::tensor::DType;
use pulp::{Arch, Simd, WithSimd};

use super::super::kernel::{Aligned, Matrix, Sparsity, Transposed, add_product, padded, product, transposed_tiles, widened_tiles};
use super::super::layout::{BackwardInputs, Inputs, Placed, Places, Sizes, is_triangle, of_plane, shift};
use super::super::terms::{BiasOfGroup, BiasOfPlanes, End, Scratch, TermGradients, Terms, TileIndex};
use super::weights::{pick, weigh, weigh_above, weigh_each};
use crate::contract::visibility::{TILE, Tile};
use crate::engine::dropout::WeightDropout;
use crate::engine::exponential::exp;
use crate::engine::fused::plan::Part;
use crate::engine::{Normaliser, greatest_log_ratio};

/// Backward inputs of one batch row and head, by place in one part.
pub(super) struct PlaneSide<'a> {
    /// Batch row and head.
    place: [usize; 2],
    pub terms: Terms<'a>,
    /// `[tiles, TILE, padded factor]`.
    queries: Aligned,
    /// Gradient of the context, `[tiles, TILE, padded value]`.
    gradient: Aligned,
    /// Log-sum-exp; thresholds of an entmax.
    pub log_sum_exp: Vec<f32>,
    /// Amount subtracted from the gradients of each query's weights.
    pub dots: Vec<f32>,
    /// Index of its keys among the given ones.
    keys: usize,
}

impl<'a> PlaneSide<'a> {
    pub(super) fn new(
        inputs: Inputs<'a>,
        given: BackwardInputs<'a>,
        dots: &[f32],
        part: &'a Part,
        [plane, keys_place]: [usize; 2],
    ) -> Self {
        let Sizes { heads, queries, keys, factor, value, .. } = inputs.sizes;
        let (row, head) = (plane / heads, plane % heads);
        let places = Places::new(part.queries.as_ref(), row, head, queries);
        let key_places = Places::new(part.keys.as_ref(), row, head, keys);
        Self {
            place: [row, head],
            terms: Terms::new(&inputs, row, head, [places, key_places]),
            queries: widened_tiles(places.rows(inputs.queries.of(row, head), factor).matrix(), places.len(), factor),
            gradient: widened_tiles(places.rows(given.gradient.of(row, head), value).matrix(), places.len(), value),
            log_sum_exp: places.numbers(of_plane(given.log_sum_exp, plane, queries)),
            dots: places.numbers(of_plane(dots, plane, queries)),
            keys: keys_place,
        }
    }
}

/// Backward inputs of the keys and values of one batch row and key head, by place in one part.
pub(super) struct KeySide<'a> {
    pub places: Places<'a>,
    /// Index of their gradients in their family.
    pub shared: usize,
    keys: Placed<'a>,
    values: Placed<'a>,
}

impl<'a> KeySide<'a> {
    /// Those that a plane reads.
    pub(super) fn new(inputs: Inputs<'a>, part: &'a Part, [plane, shared]: [usize; 2]) -> Self {
        let Sizes { heads, keys, factor, value, .. } = inputs.sizes;
        let (row, head) = (plane / heads, plane % heads);
        let places = Places::new(part.keys.as_ref(), row, head, keys);
        Self {
            places,
            shared,
            keys: places.rows(inputs.keys.of(row, head), factor),
            values: places.rows(inputs.values.of(row, head), value),
        }
    }

    /// Number of tiles.
    pub(super) fn tiles(&self) -> usize {
        self.places.len().div_ceil(TILE)
    }
}

/// Keys and values of a key group, in the layout of the products.
pub(super) struct GroupKeys {
    /// `[tiles, factor, TILE]`.
    keys_transposed: Aligned,
    /// `[tiles, value, TILE]`.
    values_transposed: Aligned,
    /// `[tiles, TILE, padded factor]`.
    keys: Aligned,
}

impl GroupKeys {
    pub(super) fn new(side: &KeySide, tiles: &Range<usize>, Sizes { factor, value, .. }: Sizes) -> Self {
        let count = (tiles.end * TILE).min(side.places.len()) - tiles.start * TILE;
        let [keys, values] = [&side.keys, &side.values].map(|rows| rows.matrix().rows_from(tiles.start * TILE));
        Self {
            keys_transposed: transposed_tiles(keys, count, factor),
            values_transposed: transposed_tiles(values, count, value),
            keys: widened_tiles(keys, count, factor),
        }
    }
}

/// Contribution of a key group, by place, in rows of padded width.
pub(super) struct GroupGradients {
    /// To each plane.
    pub planes: Vec<OfPlane>,
    /// To all keys and values that the planes read.
    pub keys: Vec<KeyValueGradients>,
}

/// Contribution of a key group to one batch row and head.
pub(super) struct OfPlane {
    /// First query tile that sees one of the keys.
    pub first_query: usize,
    /// From there to the last such tile.
    pub queries: Aligned,
    pub terms: TermGradients,
}

/// Gradients of the keys and values of a group: sums over the planes that read them.
pub(super) struct KeyValueGradients {
    pub keys: Aligned,
    pub values: Aligned,
}

/// Destination of the bias gradient.
pub(super) enum BiasGradient<'a, 'b> {
    /// There is none.
    None,
    /// Tiles of the group in order, each written once.
    InOrder(BiasOfGroup<'a>),
    /// Scattered places, by addition.
    Scattered(&'a mut BiasOfPlanes<'b>),
}

/// Mutual contributions of a key group and the planes.
pub(super) fn differentiate_group(
    inputs: Inputs,
    part: &Part,
    sides: &[PlaneSide],
    keys: &[GroupKeys],
    tiles: Range<usize>,
    of_bias: BiasGradient,
) -> GroupGradients {
    let Sizes { queries, factor, value, .. } = inputs.sizes;
    let of_plane = |side: &PlaneSide| {
        let [row, head] = side.place;
        let met = tiles.clone().flat_map(|tile| part.tiles.met_by_keys(row, head, tile)).map(|tile| tile.index as usize);
        let [first_met, end_met] = met.fold([usize::MAX, 0], |[first, end], tile| [first.min(tile), end.max(tile + 1)]);
        let first_met = first_met.min(end_met);
        OfPlane {
            first_query: first_met,
            queries: Aligned::zeros((end_met - first_met) * TILE * padded(factor)),
            terms: TermGradients::new(&side.terms, queries),
        }
    };
    let of_keys = |_: &GroupKeys| KeyValueGradients {
        keys: Aligned::zeros(tiles.len() * TILE * padded(factor)),
        values: Aligned::zeros(tiles.len() * TILE * padded(value)),
    };
    let mut gradients = GroupGradients { planes: sides.iter().map(of_plane).collect(), keys: keys.iter().map(of_keys).collect() };
    Arch::new().dispatch(BackwardGroup {
        sizes: inputs.sizes,
        dropout: inputs.plan.dropout.as_ref(),
        normaliser: inputs.plan.normaliser,
        part,
        tiles,
        sides,
        keys,
        gradients: &mut gradients,
        of_bias,
    });
    gradients
}

struct BackwardGroup<'a, 'b, 'c> {
    sizes: Sizes,
    dropout: Option<&'a WeightDropout>,
    normaliser: Normaliser,
    part: &'a Part,
    /// Of keys.
    tiles: Range<usize>,
    sides: &'a [PlaneSide<'a>],
    keys: &'a [GroupKeys],
    gradients: &'a mut GroupGradients,
    of_bias: BiasGradient<'b, 'c>,
}

impl WithSimd for BackwardGroup<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sizes, dropout, normaliser, part, tiles, sides, keys, gradients, mut of_bias } = self;
        let Sizes { factor, value, .. } = sizes;
        let (factor_columns, value_columns) = (padded(factor), padded(value));
        let GroupGradients { planes: of_planes, keys: of_keys } = gradients;
        let (mut weights, mut slopes, mut bias_slopes) =
            (Aligned::zeros(TILE * TILE), Aligned::zeros(TILE * TILE), Aligned::zeros(TILE * TILE));
        let (mut scratch, mut ends) = (Scratch::default(), Vec::new());
        let tile_of = |numbers, index, width| of_plane(numbers, index, TILE * width);
        let mut met: Vec<&[Tile]> = vec![&[]; sides.len()];
        for (index, keys_tile) in tiles.clone().enumerate() {
            for (met, side) in met.iter_mut().zip(sides) {
                let [row, head] = side.place;
                *met = part.tiles.met_by_keys(row, head, keys_tile);
            }
            // The next query tile that sees a key in any of the planes.
            while let Some(next) = met.iter().filter_map(|met| met.first()).map(|tile| tile.index).min() {
                let queries_tile = next as usize;
                let mut is_first = true;
                for ((side, gradients), met) in sides.iter().zip(&mut *of_planes).zip(&mut met) {
                    let Some((tile, rest)) = met.split_first().filter(|(tile, _)| tile.index == next) else { continue };
                    *met = rest;
                    let terms = &side.terms;
                    let height = TILE.min(side.dots.len() - queries_tile * TILE);
                    let at = TileIndex { queries: queries_tile, keys: keys_tile, height };
                    if terms.are_beyond(at) {
                        continue;
                    }
                    let (group_keys, of_keys) = (&keys[side.keys], &mut of_keys[side.keys]);
                    let key_sums = &mut of_keys.keys[index * TILE * factor_columns..][..TILE * factor_columns];
                    let value_sums = &mut of_keys.values[index * TILE * value_columns..][..TILE * value_columns];
                    let keys_transposed = Matrix { numbers: tile_of(&group_keys.keys_transposed, index, factor), stride: TILE };
                    let values_transposed = Matrix { numbers: tile_of(&group_keys.values_transposed, index, value), stride: TILE };
                    let keys = Matrix { numbers: tile_of(&group_keys.keys, index, factor_columns), stride: factor_columns };
                    let queries = Matrix { numbers: tile_of(&side.queries, queries_tile, factor_columns), stride: factor_columns };
                    let gradient = Matrix { numbers: tile_of(&side.gradient, queries_tile, value_columns), stride: value_columns };
                    let is_triangle = is_triangle(&part.tiles, tile.visible);
                    let triangle = |of: Sparsity| if is_triangle { of } else { Sparsity::None };
                    product(simd, [height, TILE, factor], triangle(Sparsity::TriangleOfResult), queries, keys_transposed, &mut weights);
                    terms.add(simd, at, is_triangle, &mut weights, &mut scratch);
                    shift(&mut weights, &part.tiles, tile.visible);
                    ends.clear();
                    terms.limit(at, &mut weights, |place, score| ends.push(End { place, score }));
                    if is_triangle {
                        // The product skips entries that another tile may have left here.
                        slopes.fill(0.0);
                    }
                    if terms.have_gradients(factor) {
                        product(
                            simd,
                            [height, TILE, value],
                            triangle(Sparsity::TriangleOfResult),
                            gradient,
                            values_transposed,
                            &mut slopes,
                        );
                    }
                    let dropout = dropout.map(|dropout| (dropout, side.place));
                    for end in &ends {
                        let (query, slope) = slope_of_end(*end, &slopes, side, dropout, at);
                        gradients.terms.add_end(terms, query, slope);
                    }
                    match (normaliser.per_key(), normaliser) {
                        (Some(each), _) => weigh_each(each, &mut weights, &mut slopes, terms, dropout, at),
                        (None, Normaliser::Entmax { power }) => weigh_above(power, &mut weights, &mut slopes, side, dropout, at),
                        (None, Normaliser::Softpick { .. }) => pick(&mut weights, &mut slopes, side, dropout, at),
                        (None, _) => weigh(&mut weights, &mut slopes, side, dropout, at),
                    }
                    let is_capped_before_bias = terms.is_capped_before_bias();
                    if is_capped_before_bias {
                        add_to_bias(&mut of_bias, terms, at, &slopes, (&mut bias_slopes, is_first));
                    }
                    terms.differentiate_cap(at, &mut slopes, &scratch);
                    let transposed = |numbers| Transposed(Matrix { numbers, stride: TILE });
                    let above = triangle(Sparsity::TriangleOfTransposedLeft);
                    add_product(simd, [TILE, value_columns, height], above, transposed(&weights), gradient, value_sums);
                    add_product(simd, [TILE, factor_columns, height], above, transposed(&slopes), queries, key_sums);
                    let sums = &mut gradients.queries[(queries_tile - gradients.first_query) * TILE * factor_columns..];
                    let own_slopes = Matrix { numbers: &slopes, stride: TILE };
                    add_product(simd, [height, factor_columns, TILE], triangle(Sparsity::TriangleOfLeft), own_slopes, keys, sums);
                    gradients.terms.add(simd, terms, at, is_triangle, &slopes, &mut scratch);
                    if !is_capped_before_bias {
                        add_to_bias(&mut of_bias, terms, at, &slopes, (&mut bias_slopes, is_first));
                    }
                    is_first = false;
                }
                if let BiasGradient::InOrder(of_bias) = &mut of_bias
                    && !is_first
                {
                    let at = TileIndex { queries: queries_tile, keys: keys_tile, height: TILE };
                    sides[0].terms.write_to_bias(at, &bias_slopes, of_bias);
                }
            }
        }
    }
}

/// Adds the logit gradients `slopes` of a tile to those of the bias, or to the tile's sum over all planes, possibly as its first term.
#[inline(always)]
fn add_to_bias(of_bias: &mut BiasGradient, terms: &Terms, at: TileIndex, slopes: &[f32], (of_tile, is_first): (&mut [f32], bool)) {
    match of_bias {
        BiasGradient::None => {}
        BiasGradient::Scattered(of_bias) => terms.add_to_bias(at, slopes, of_bias),
        BiasGradient::InOrder(_) if is_first => of_tile.copy_from_slice(slopes),
        BiasGradient::InOrder(_) => of_tile.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += slope),
    }
}

/// The query of a key exactly at the end of its ramp, and the gradient by the factor of that key, from the weight gradients after dropout. The key has no
/// weight; its hypothetical weight at factor 1 is the slope.
fn slope_of_end(
    End { place, score }: End,
    slopes: &[f32],
    side: &PlaneSide,
    dropout: Option<(&WeightDropout, [usize; 2])>,
    TileIndex { queries, keys, .. }: TileIndex,
) -> (usize, f32) {
    let terms = &side.terms;
    let query = queries * TILE + place / TILE;
    let index = terms.places[0].index(query);
    let factor = dropout
        .map_or(1.0, |(dropout, [row, head])| dropout.row(row, head, index).factor(terms.places[1].index(keys * TILE + place % TILE)));
    let ratio = exp((score - side.log_sum_exp[query]).min(greatest_log_ratio(DType::F32)));
    (index, ratio * (slopes[place] * factor - side.dots[query]))
}
