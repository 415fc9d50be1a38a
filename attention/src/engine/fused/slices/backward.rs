//! The gradients.

use std::ops::Range;

use burn::tensor::DType;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::kernel::{Aligned, Matrix, Transposed, Triangle, add_product, padded, product, transposed_tiles, widened_tiles};
use super::terms::{At, BiasOfGroup, BiasOfPlanes, End, Scratch, TermGradients, Terms, TermsOfPlane};
use super::{Inputs, Placed, Places, Planes, Rows, Sizes, is_triangle, of_plane, rows_of_planes, shift};
use crate::dropout::WeightDropout;
use crate::engine::fused::plan::Part;
use crate::engine::greatest_log_ratio;
use crate::engine::normaliser::logistic;
use crate::exponential::exp;
use crate::visibility::{TILE, Tile};

/// What the forward pass gave, and the gradient of the context.
#[derive(Clone, Copy)]
pub(in super::super) struct Given<'a> {
    pub context: Rows<'a>,
    pub gradient: Rows<'a>,
    /// `[B, H, Q]`.
    pub log_sum_exp: &'a [f32],
}

/// Gradients of [`Inputs`]; of what is absent they are empty.
pub(in super::super) struct Gradients {
    /// `[B, Q, H, R]`.
    pub queries: Vec<f32>,
    /// `[B, K, H, R]`.
    pub keys: Vec<f32>,
    /// `[B, K, H, D]`.
    pub values: Vec<f32>,
    pub bias: Vec<f32>,
    /// Of the scale of the bias, by key: `[B|1, H|1, K]`, as many planes as the bias has.
    pub bias_scale: Vec<f32>,
    pub relative_queries: Vec<f32>,
    pub relative_keys: Vec<f32>,
    pub left: Vec<f32>,
    pub right: Vec<f32>,
    pub spans: Vec<f32>,
}

/// Groups of keys that the backward pass of one attention is divided into, at least. It does not depend on the number of threads, so that sums do not.
const GROUPS: usize = 16;

/// Gradients of the inputs from that of the context.
pub(in super::super) fn backward(inputs: Inputs, given: Given) -> Gradients {
    let Sizes { batch, heads, queries, keys, factor, relative, pairs: [left, right], value } = inputs.sizes;
    let count = |planes: Option<Planes>| planes.map_or(0, |planes| planes.numbers.len());
    let bias = inputs.trained_bias();
    let mut gradients = Gradients {
        queries: vec![0.0; batch * heads * queries * factor],
        keys: vec![0.0; batch * heads * keys * factor],
        values: vec![0.0; batch * heads * keys * value],
        bias: vec![0.0; count(bias)],
        bias_scale: vec![0.0; bias.filter(|_| inputs.bias_scale.is_some()).map_or(0, |bias| bias.rows * bias.heads * keys)],
        relative_queries: vec![0.0; batch * heads * queries * relative],
        relative_keys: vec![0.0; count(inputs.relative_keys)],
        left: vec![0.0; inputs.left.len()],
        right: vec![0.0; inputs.right.len()],
        spans: vec![0.0; count(inputs.spans)],
    };
    let rows = |numbers, width| rows_of_planes(numbers, [batch, heads, width]);
    let of_planes =
        rows(&mut gradients.queries, factor).into_iter().zip(rows(&mut gradients.keys, factor)).zip(rows(&mut gradients.values, value));
    let mut planes: Vec<PlaneGradients> = of_planes
        .enumerate()
        .map(|(plane, ((queries, keys), values))| PlaneGradients { plane, queries, keys, values, terms: TermGradients::default() })
        .collect();
    match bias {
        Some(bias) => {
            let count = bias.rows * bias.heads;
            let biases = split(&mut gradients.bias, count).zip(split(&mut gradients.bias_scale, count));
            let mut families: Vec<Family> =
                biases.map(|(numbers, scale)| Family { planes: Vec::new(), bias: BiasOfPlanes { numbers, scale } }).collect();
            for plane in planes.drain(..) {
                families[bias.index(plane.plane / heads, plane.plane % heads)].planes.push(plane);
            }
            families.par_iter_mut().for_each(|Family { planes, bias }| differentiate(inputs, given, planes, Some((bias, count))));
            planes.extend(families.into_iter().flat_map(|family| family.planes));
            planes.sort_unstable_by_key(|plane| plane.plane);
        }
        None => planes.par_chunks_mut(1).for_each(|plane| differentiate(inputs, given, plane, None)),
    }
    let terms: Vec<TermGradients> = planes.into_iter().map(|plane| plane.terms).collect();
    for (plane, terms) in terms.iter().enumerate() {
        let own = |planes: Option<Planes>, count: usize| {
            let (index, size) =
                planes.map_or((0, 0), |planes| (planes.index(plane / heads, plane % heads), count / (planes.rows * planes.heads)));
            index * size..(index + 1) * size
        };
        let table = own(inputs.relative_keys, gradients.relative_keys.len());
        let spans = own(inputs.spans, gradients.spans.len());
        terms.finish(
            inputs.sizes,
            TermsOfPlane {
                relative_queries: &mut gradients.relative_queries[plane * queries * relative..][..queries * relative],
                relative_keys: &mut gradients.relative_keys[table],
                left: &mut gradients.left[plane * queries * left..][..queries * left],
                right: &mut gradients.right[plane * queries * right..][..queries * right],
                spans: &mut gradients.spans[spans],
            },
        );
    }
    gradients
}

/// `numbers` in `count` equal parts, which may be empty.
fn split(mut numbers: &mut [f32], count: usize) -> impl Iterator<Item = &mut [f32]> {
    let size = numbers.len() / count;
    (0..count).map(move |_| {
        let (part, rest) = std::mem::take(&mut numbers).split_at_mut(size);
        numbers = rest;
        part
    })
}

/// The planes that share a bias, in order, and its gradient.
struct Family<'a> {
    planes: Vec<PlaneGradients<'a>>,
    bias: BiasOfPlanes<'a>,
}

/// Gradients of one batch row and head.
struct PlaneGradients<'a> {
    plane: usize,
    queries: Vec<&'a mut [f32]>,
    keys: Vec<&'a mut [f32]>,
    values: Vec<&'a mut [f32]>,
    terms: TermGradients,
}

impl PlaneGradients<'_> {
    /// Adds what a group of keys contributes, whose first tile is `first`.
    fn add(&mut self, side: &PlaneSide, sizes: Sizes, first: usize, found: &GroupGradients) {
        let [places, key_places] = side.terms.places;
        let (factor, value) = (padded(sizes.factor), padded(sizes.value));
        places.add_rows(found.first_query * TILE, &found.queries, factor, &mut self.queries);
        key_places.add_rows(first * TILE, &found.keys, factor, &mut self.keys);
        key_places.add_rows(first * TILE, &found.values, value, &mut self.values);
        self.terms.add_all(&found.terms);
    }
}

/// Differentiates planes that share the gradient of a bias, which comes with the number of those that there are; or one plane by itself.
fn differentiate(inputs: Inputs, given: Given, planes: &mut [PlaneGradients], mut of_bias: Option<(&mut BiasOfPlanes, usize)>) {
    let is_in_order = matches!(&*inputs.plan.parts, [part] if part.is_in_order());
    for part in &*inputs.plan.parts {
        let sides: Vec<PlaneSide> = planes.iter().map(|plane| PlaneSide::new(inputs, given, part, plane.plane)).collect();
        let tiles = sides[0].terms.places[1].len().div_ceil(TILE);
        match &mut of_bias {
            // Each group of keys has gradients of all queries of its own, which are added up in order: the sum does not depend on who computes what.
            None => {
                let group = size_of_groups(tiles, GROUPS.div_ceil(inputs.sizes.batch * inputs.sizes.heads));
                let groups: Vec<usize> = (0..tiles).step_by(group).collect();
                let found: Vec<Vec<GroupGradients>> = groups
                    .par_iter()
                    .map(|&first| differentiate_group(inputs, part, &sides, first..(first + group).min(tiles), BiasGradient::None))
                    .collect();
                for (first, found) in groups.into_iter().zip(found) {
                    planes[0].add(&sides[0], inputs.sizes, first, &found[0]);
                }
            }
            // Tile by tile, the gradients of the bias by all planes are added up before they are written.
            Some((bias, share)) if is_in_order => {
                // Sums over keys are made in one piece where there are any beside those of the bias.
                let count = if inputs.sizes.has_terms_of_queries() || inputs.spans.is_some() { 1 } else { GROUPS.div_ceil(*share) };
                let group = size_of_groups(tiles, count);
                let groups: Vec<BiasOfGroup> = bias.groups(inputs.sizes.keys, tiles, group);
                let found: Vec<(usize, Vec<GroupGradients>)> = groups
                    .into_par_iter()
                    .map(|bias| {
                        let first = bias.first;
                        let tiles = first..(first + group).min(tiles);
                        (first, differentiate_group(inputs, part, &sides, tiles, BiasGradient::InOrder(bias)))
                    })
                    .collect();
                for (first, found) in found {
                    for ((plane, side), found) in planes.iter_mut().zip(&sides).zip(found) {
                        plane.add(side, inputs.sizes, first, &found);
                    }
                }
            }
            Some((bias, _)) => {
                for (plane, side) in planes.iter_mut().zip(&sides) {
                    let tiles = side.terms.places[1].len().div_ceil(TILE);
                    let found = differentiate_group(inputs, part, std::slice::from_ref(side), 0..tiles, BiasGradient::Scattered(bias));
                    plane.add(side, inputs.sizes, 0, &found[0]);
                }
            }
        }
    }
}

/// Tiles of a group, of `groups` groups.
fn size_of_groups(tiles: usize, groups: usize) -> usize {
    tiles.div_ceil(groups.clamp(1, tiles.max(1))).max(1)
}

/// What the backward pass reads of one batch row and head, by place in one part.
struct PlaneSide<'a> {
    /// Batch row and head.
    place: [usize; 2],
    terms: Terms<'a>,
    /// `[tiles, TILE, padded factor]`.
    queries: Aligned,
    /// Gradient of the context, `[tiles, TILE, padded value]`.
    gradient: Aligned,
    log_sum_exp: Vec<f32>,
    /// Products of context and gradient.
    dots: Vec<f32>,
    keys: Placed<'a>,
    values: Placed<'a>,
}

impl<'a> PlaneSide<'a> {
    fn new(inputs: Inputs<'a>, given: Given<'a>, part: &'a Part, plane: usize) -> Self {
        let Sizes { heads, queries, keys, factor, value, .. } = inputs.sizes;
        let (row, head) = (plane / heads, plane % heads);
        let (gradient, context) = (given.gradient.of(row, head), given.context.of(row, head));
        let dot = |query| gradient.row(query, value).iter().zip(context.row(query, value)).map(|(a, b)| a * b).sum();
        let dots: Vec<f32> = if inputs.plan.is_normalised() { (0..queries).map(dot).collect() } else { vec![0.0; queries] };
        let places = Places::new(part.queries.as_ref(), row, head, queries);
        let key_places = Places::new(part.keys.as_ref(), row, head, keys);
        Self {
            place: [row, head],
            terms: Terms::new(&inputs, row, head, [places, key_places]),
            queries: widened_tiles(places.rows(inputs.queries.of(row, head), factor).matrix(), places.len(), factor),
            gradient: widened_tiles(places.rows(gradient, value).matrix(), places.len(), value),
            log_sum_exp: places.numbers(of_plane(given.log_sum_exp, plane, queries)),
            dots: places.numbers(&dots),
            keys: key_places.rows(inputs.keys.of(row, head), factor),
            values: key_places.rows(inputs.values.of(row, head), value),
        }
    }
}

/// What a group of keys contributes, by place, in rows of padded width.
struct GroupGradients {
    /// The first tile of queries that sees one of the keys.
    first_query: usize,
    /// From there to the last tile that does.
    queries: Aligned,
    keys: Aligned,
    values: Aligned,
    terms: TermGradients,
}

/// Where the gradient of the bias goes.
enum BiasGradient<'a, 'b> {
    /// There is none.
    None,
    /// To tiles of the group, of which each is written once.
    InOrder(BiasOfGroup<'a>),
    /// To places anywhere, where it is added.
    Scattered(&'a mut BiasOfPlanes<'b>),
}

/// What a group of keys contributes to each of the planes.
fn differentiate_group(
    inputs: Inputs,
    part: &Part,
    sides: &[PlaneSide],
    tiles: Range<usize>,
    of_bias: BiasGradient,
) -> Vec<GroupGradients> {
    let Sizes { queries, factor, value, .. } = inputs.sizes;
    let empty = |side: &PlaneSide| {
        let [row, head] = side.place;
        let met = tiles.clone().flat_map(|tile| part.tiles.met_by_keys(row, head, tile)).map(|tile| tile.index as usize);
        let [first_met, end_met] = met.fold([usize::MAX, 0], |[first, end], tile| [first.min(tile), end.max(tile + 1)]);
        let first_met = first_met.min(end_met);
        GroupGradients {
            first_query: first_met,
            queries: Aligned::zeros((end_met - first_met) * TILE * padded(factor)),
            keys: Aligned::zeros(tiles.len() * TILE * padded(factor)),
            values: Aligned::zeros(tiles.len() * TILE * padded(value)),
            terms: TermGradients::new(&side.terms, queries),
        }
    };
    let mut gradients: Vec<GroupGradients> = sides.iter().map(empty).collect();
    Arch::new().dispatch(BackwardGroup {
        sizes: inputs.sizes,
        dropout: inputs.plan.dropout.as_ref(),
        bias_of_each: inputs.plan.normaliser.bias_of_each(),
        part,
        tiles,
        sides,
        gradients: &mut gradients,
        of_bias,
    });
    gradients
}

struct BackwardGroup<'a, 'b, 'c> {
    sizes: Sizes,
    dropout: Option<&'a WeightDropout>,
    /// What is added to the scores of keys that are weighed each by itself.
    bias_of_each: Option<f32>,
    part: &'a Part,
    /// Of keys.
    tiles: Range<usize>,
    sides: &'a [PlaneSide<'a>],
    gradients: &'a mut [GroupGradients],
    of_bias: BiasGradient<'b, 'c>,
}

/// The keys of a group of one plane, as products read them.
struct GroupKeys {
    /// `[tiles, factor, TILE]`.
    keys_transposed: Aligned,
    /// `[tiles, value, TILE]`.
    values_transposed: Aligned,
    /// `[tiles, TILE, padded factor]`.
    keys: Aligned,
}

impl WithSimd for BackwardGroup<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sizes, dropout, bias_of_each, part, tiles, sides, gradients, mut of_bias } = self;
        let Sizes { factor, value, .. } = sizes;
        let (factor_columns, value_columns) = (padded(factor), padded(value));
        let keys_of_group = |side: &PlaneSide| {
            let count = (tiles.end * TILE).min(side.terms.places[1].len()) - tiles.start * TILE;
            let [keys, values] = [&side.keys, &side.values].map(|rows| rows.matrix().rows_from(tiles.start * TILE));
            GroupKeys {
                keys_transposed: transposed_tiles(keys, count, factor),
                values_transposed: transposed_tiles(values, count, value),
                keys: widened_tiles(keys, count, factor),
            }
        };
        let group_keys: Vec<GroupKeys> = sides.iter().map(keys_of_group).collect();
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
            // The next tile of queries that sees something of the keys in any of the planes.
            while let Some(next) = met.iter().filter_map(|met| met.first()).map(|tile| tile.index).min() {
                let queries_tile = next as usize;
                let mut is_first = true;
                for (((side, gradients), group_keys), met) in sides.iter().zip(&mut *gradients).zip(&group_keys).zip(&mut met) {
                    let Some((tile, rest)) = met.split_first().filter(|(tile, _)| tile.index == next) else { continue };
                    *met = rest;
                    let terms = &side.terms;
                    let height = TILE.min(side.dots.len() - queries_tile * TILE);
                    let at = At { queries: queries_tile, keys: keys_tile, height };
                    if terms.are_beyond(at) {
                        continue;
                    }
                    let key_sums = &mut gradients.keys[index * TILE * factor_columns..][..TILE * factor_columns];
                    let value_sums = &mut gradients.values[index * TILE * value_columns..][..TILE * value_columns];
                    let keys_transposed = Matrix { numbers: tile_of(&group_keys.keys_transposed, index, factor), stride: TILE };
                    let values_transposed = Matrix { numbers: tile_of(&group_keys.values_transposed, index, value), stride: TILE };
                    let keys = Matrix { numbers: tile_of(&group_keys.keys, index, factor_columns), stride: factor_columns };
                    let queries = Matrix { numbers: tile_of(&side.queries, queries_tile, factor_columns), stride: factor_columns };
                    let gradient = Matrix { numbers: tile_of(&side.gradient, queries_tile, value_columns), stride: value_columns };
                    let is_triangle = is_triangle(&part.tiles, tile.pairs);
                    let triangle = |of: Triangle| if is_triangle { of } else { Triangle::None };
                    product(simd, [height, TILE, factor], triangle(Triangle::OfResult), queries, keys_transposed, &mut weights);
                    terms.add(simd, at, &mut weights, &mut scratch);
                    shift(&mut weights, &part.tiles, tile.pairs);
                    ends.clear();
                    terms.limit(at, &mut weights, |place, score| ends.push(End { place, score }));
                    if is_triangle {
                        // The product leaves out what another tile may have left here.
                        slopes.fill(0.0);
                    }
                    if terms.have_gradients(factor) {
                        product(simd, [height, TILE, value], triangle(Triangle::OfResult), gradient, values_transposed, &mut slopes);
                    }
                    let dropout = dropout.map(|dropout| (dropout, side.place));
                    for end in &ends {
                        let (query, slope) = slope_of_end(*end, &slopes, side, dropout, at);
                        gradients.terms.add_end(terms, query, slope);
                    }
                    match bias_of_each {
                        Some(bias) => weigh_each(bias, &mut weights, &mut slopes, terms, dropout, at),
                        None => weigh(&mut weights, &mut slopes, side, dropout, at),
                    }
                    let transposed = |numbers| Transposed(Matrix { numbers, stride: TILE });
                    let above = triangle(Triangle::OfTransposedLeft);
                    add_product(simd, [TILE, value_columns, height], above, transposed(&weights), gradient, value_sums);
                    add_product(simd, [TILE, factor_columns, height], above, transposed(&slopes), queries, key_sums);
                    let sums = &mut gradients.queries[(queries_tile - gradients.first_query) * TILE * factor_columns..];
                    let own_slopes = Matrix { numbers: &slopes, stride: TILE };
                    add_product(simd, [height, factor_columns, TILE], triangle(Triangle::OfLeft), own_slopes, keys, sums);
                    gradients.terms.add(simd, terms, at, &slopes, &mut scratch);
                    match &mut of_bias {
                        BiasGradient::None => {}
                        BiasGradient::Scattered(of_bias) => terms.add_to_bias(at, &slopes, of_bias),
                        BiasGradient::InOrder(_) if is_first => bias_slopes.copy_from_slice(&slopes),
                        BiasGradient::InOrder(_) => bias_slopes.iter_mut().zip(&*slopes).for_each(|(sum, slope)| *sum += slope),
                    }
                    is_first = false;
                }
                if let BiasGradient::InOrder(of_bias) = &mut of_bias
                    && !is_first
                {
                    let at = At { queries: queries_tile, keys: keys_tile, height: TILE };
                    sides[0].terms.write_to_bias(at, &bias_slopes, of_bias);
                }
            }
        }
    }
}

/// The query of a key at which its ramp just ends, and the gradient by the factor of that key, from the gradients of the weights after dropout. The key has
/// no weight; what it would have with the factor 1 is the slope.
fn slope_of_end(
    End { place, score }: End,
    slopes: &[f32],
    side: &PlaneSide,
    dropout: Option<(&WeightDropout, [usize; 2])>,
    At { queries, keys, .. }: At,
) -> (usize, f32) {
    let terms = &side.terms;
    let query = queries * TILE + place / TILE;
    let index = terms.places[0].index(query);
    let factor = dropout
        .map_or(1.0, |(dropout, [row, head])| dropout.row(row, head, index).factor(terms.places[1].index(keys * TILE + place % TILE)));
    let ratio = exp((score - side.log_sum_exp[query]).min(greatest_log_ratio(DType::F32)));
    (index, ratio * (slopes[place] * factor - side.dots[query]))
}

/// [`weigh`] where each key is weighed by itself, by the logistic function of its score and `bias`.
#[inline(always)]
fn weigh_each(
    bias: f32,
    weights: &mut [f32],
    slopes: &mut [f32],
    terms: &Terms,
    dropout: Option<(&WeightDropout, [usize; 2])>,
    At { queries, keys, height }: At,
) {
    for (at, (weights, slopes)) in weights.chunks_exact_mut(TILE).zip(slopes.chunks_exact_mut(TILE)).take(height).enumerate() {
        let drawn = dropout.map(|(dropout, [row, head])| dropout.row(row, head, terms.places[0].index(queries * TILE + at)));
        for (weight, slope) in weights.iter_mut().zip(&mut *slopes) {
            *weight = logistic(*weight + bias);
            *slope *= *weight * (1.0 - *weight);
        }
        let Some(drawn) = drawn else { continue };
        terms.places[1].each(keys, |place, key| {
            let factor = drawn.factor(key);
            weights[place] *= factor;
            slopes[place] *= factor;
        });
    }
}

/// From logits and the gradients of the weights after dropout: the weights after dropout, and the gradients of the logits.
#[inline(always)]
fn weigh(
    weights: &mut [f32],
    slopes: &mut [f32],
    side: &PlaneSide,
    dropout: Option<(&WeightDropout, [usize; 2])>,
    At { queries, keys, height }: At,
) {
    let terms = &side.terms;
    let rows = weights.chunks_exact_mut(TILE).zip(slopes.chunks_exact_mut(TILE)).take(height).enumerate();
    for (at, (weights, slopes)) in rows {
        let place = queries * TILE + at;
        let (log_sum_exp, dot) = (side.log_sum_exp[place], side.dots[place]);
        for weight in weights.iter_mut() {
            *weight = exp(*weight - log_sum_exp);
        }
        let Some((dropout, [row, head])) = dropout else {
            for (weight, slope) in weights.iter().zip(slopes) {
                *slope = weight * (*slope - dot);
            }
            continue;
        };
        let drawn = dropout.row(row, head, terms.places[0].index(place));
        terms.places[1].each(keys, |place, key| {
            let factor = drawn.factor(key);
            slopes[place] = weights[place] * (slopes[place] * factor - dot);
            weights[place] *= factor;
        });
    }
}
