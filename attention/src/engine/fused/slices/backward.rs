//! The gradients.

use std::sync::Mutex;

use burn::tensor::DType;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::kernel::{Aligned, Matrix, Transposed, Triangle, add_product, padded, product, transposed_tiles, widened_tiles};
use super::terms::{At, End, Scratch, TermGradients, Terms, TermsOfPlane};
use super::{Inputs, Places, Planes, Rows, Sizes, is_triangle, of_plane, rows_of_planes, shift};
use crate::dropout::WeightDropout;
use crate::engine::fused::plan::Part;
use crate::engine::greatest_log_ratio;
use crate::engine::normaliser::logistic;
use crate::exponential::exp;
use crate::visibility::TILE;

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
    let mut gradients = Gradients {
        queries: vec![0.0; batch * heads * queries * factor],
        keys: vec![0.0; batch * heads * keys * factor],
        values: vec![0.0; batch * heads * keys * value],
        bias: vec![0.0; count(inputs.bias)],
        relative_queries: vec![0.0; batch * heads * queries * relative],
        relative_keys: vec![0.0; count(inputs.relative_keys)],
        left: vec![0.0; inputs.left.len()],
        right: vec![0.0; inputs.right.len()],
        spans: vec![0.0; count(inputs.spans)],
    };
    let of_bias: Vec<Mutex<&mut [f32]>> = match inputs.bias {
        Some(bias) => split(&mut gradients.bias, bias.rows * bias.heads).map(Mutex::new).collect(),
        None => Vec::new(),
    };
    let rows = |numbers, width| rows_of_planes(numbers, [batch, heads, width]);
    let of_planes =
        rows(&mut gradients.queries, factor).into_iter().zip(rows(&mut gradients.keys, factor)).zip(rows(&mut gradients.values, value));
    let mut planes: Vec<PlaneGradients> =
        of_planes.map(|((queries, keys), values)| PlaneGradients { queries, keys, values, terms: TermGradients::default() }).collect();
    // Planes that share a bias come one after the other, so that their sum has one order.
    let turn = |plane: usize| match inputs.bias {
        Some(bias) if bias.rows == 1 && bias.heads == 1 => plane,
        Some(bias) if bias.rows == 1 => plane / heads,
        Some(bias) if bias.heads == 1 => plane % heads,
        _ => 0,
    };
    for now in 0..=(0..batch * heads).map(turn).max().unwrap_or(0) {
        planes.par_iter_mut().enumerate().filter(|(plane, _)| turn(*plane) == now).for_each(|(plane, gradients)| {
            let bias = inputs.bias.map(|bias| &of_bias[bias.index(plane / heads, plane % heads)]);
            let mut bias = bias.map(|bias| bias.lock().expect("no panic happens while a bias is locked"));
            differentiate_plane(inputs, given, plane, gradients, bias.as_deref_mut().map(|bias| &mut **bias));
        });
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

/// Gradients of one batch row and head.
struct PlaneGradients<'a> {
    queries: Vec<&'a mut [f32]>,
    keys: Vec<&'a mut [f32]>,
    values: Vec<&'a mut [f32]>,
    terms: TermGradients,
}

fn differentiate_plane(inputs: Inputs, given: Given, plane: usize, gradients: &mut PlaneGradients, mut of_bias: Option<&mut [f32]>) {
    let Sizes { heads, queries, keys, factor, value, .. } = inputs.sizes;
    let (row, head) = (plane / heads, plane % heads);
    let (gradient, context) = (given.gradient.of(row, head), given.context.of(row, head));
    let log_sum_exp = of_plane(given.log_sum_exp, plane, queries);
    let dot = |query| gradient.row(query, value).iter().zip(context.row(query, value)).map(|(a, b)| a * b).sum();
    let dots: Vec<f32> = if inputs.plan.is_normalised() { (0..queries).map(dot).collect() } else { vec![0.0; queries] };
    for part in &*inputs.plan.parts {
        let places = Places::new(part.queries.as_ref(), row, head, queries);
        let key_places = Places::new(part.keys.as_ref(), row, head, keys);
        let terms = Terms::new(&inputs, row, head, [places, key_places]);
        let side = QuerySide {
            queries: widened_tiles(places.rows(inputs.queries.of(row, head), factor).matrix(), places.len(), factor),
            gradient: widened_tiles(places.rows(gradient, value).matrix(), places.len(), value),
            log_sum_exp: places.numbers(log_sum_exp),
            dots: places.numbers(&dots),
        };
        let own_keys = key_places.rows(inputs.keys.of(row, head), factor);
        let own_values = key_places.rows(inputs.values.of(row, head), value);
        // Each group of keys has gradients of all queries of its own, which are added up in order: the sum does not depend on who computes what.
        let groups = if of_bias.is_some() { 1 } else { GROUPS.div_ceil(inputs.sizes.batch * heads) };
        let tiles = key_places.len().div_ceil(TILE);
        let group = tiles.div_ceil(groups.clamp(1, tiles.max(1))).max(1);
        let differentiate = |first: usize, of_bias: Option<&mut [f32]>| {
            let end = (first + group).min(tiles);
            let met = (first..end).flat_map(|tile| part.tiles.met_by_keys(row, head, tile)).map(|tile| tile.index as usize);
            let [first_met, end_met] = met.fold([usize::MAX, 0], |[first, end], tile| [first.min(tile), end.max(tile + 1)]);
            let first_met = first_met.min(end_met);
            let mut result = GroupGradients {
                first_query: first_met,
                queries: Aligned::zeros((end_met - first_met) * TILE * padded(factor)),
                keys: Aligned::zeros((end - first) * TILE * padded(factor)),
                values: Aligned::zeros((end - first) * TILE * padded(value)),
                terms: TermGradients::new(&terms, queries),
            };
            Arch::new().dispatch(BackwardGroup {
                sizes: inputs.sizes,
                dropout: inputs.plan.dropout.as_ref(),
                bias_of_each: inputs.plan.normaliser.bias_of_each(),
                part,
                place: [row, head, first],
                tiles: end - first,
                terms: &terms,
                side: &side,
                count: (end * TILE).min(key_places.len()) - first * TILE,
                keys: own_keys.matrix().rows_from(first * TILE),
                values: own_values.matrix().rows_from(first * TILE),
                gradients: &mut result,
                of_bias,
            });
            result
        };
        let found: Vec<GroupGradients> = match of_bias.as_deref_mut() {
            Some(of_bias) => vec![differentiate(0, Some(of_bias))],
            None => (0..tiles).step_by(group).collect::<Vec<_>>().into_par_iter().map(|first| differentiate(first, None)).collect(),
        };
        for (index, found) in found.into_iter().enumerate() {
            places.add_rows(found.first_query * TILE, &found.queries, padded(factor), &mut gradients.queries);
            key_places.add_rows(index * group * TILE, &found.keys, padded(factor), &mut gradients.keys);
            key_places.add_rows(index * group * TILE, &found.values, padded(value), &mut gradients.values);
            gradients.terms.add_all(&found.terms);
        }
    }
}

/// What the backward pass of a head reads of its queries, by place.
struct QuerySide {
    /// `[tiles, TILE, padded factor]`.
    queries: Aligned,
    /// Gradient of the context, `[tiles, TILE, padded value]`.
    gradient: Aligned,
    log_sum_exp: Vec<f32>,
    /// Products of context and gradient.
    dots: Vec<f32>,
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

struct BackwardGroup<'a> {
    sizes: Sizes,
    dropout: Option<&'a WeightDropout>,
    /// What is added to the scores of keys that are weighed each by itself.
    bias_of_each: Option<f32>,
    part: &'a Part,
    /// Batch row, head, and number of the first tile of keys.
    place: [usize; 3],
    /// Number of tiles of keys.
    tiles: usize,
    terms: &'a Terms<'a>,
    side: &'a QuerySide,
    /// Number of keys.
    count: usize,
    keys: Matrix<'a>,
    values: Matrix<'a>,
    gradients: &'a mut GroupGradients,
    of_bias: Option<&'a mut [f32]>,
}

impl WithSimd for BackwardGroup<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self {
            sizes,
            dropout,
            bias_of_each,
            part,
            place: [row, head, first],
            tiles,
            terms,
            side,
            count,
            keys,
            values,
            gradients,
            mut of_bias,
        } = self;
        let Sizes { factor, value, .. } = sizes;
        let (factor_columns, value_columns) = (padded(factor), padded(value));
        let keys_transposed = transposed_tiles(keys, count, factor);
        let values_transposed = transposed_tiles(values, count, value);
        let keys = widened_tiles(keys, count, factor);
        let (mut weights, mut slopes) = (Aligned::zeros(TILE * TILE), Aligned::zeros(TILE * TILE));
        let (mut scratch, mut ends) = (Scratch::default(), Vec::new());
        let tile_of = |numbers, index, width| of_plane(numbers, index, TILE * width);
        for index in 0..tiles {
            let key_sums = &mut gradients.keys[index * TILE * factor_columns..][..TILE * factor_columns];
            let value_sums = &mut gradients.values[index * TILE * value_columns..][..TILE * value_columns];
            let keys_transposed = Matrix { numbers: tile_of(&keys_transposed, index, factor), stride: TILE };
            let values_transposed = Matrix { numbers: tile_of(&values_transposed, index, value), stride: TILE };
            let keys = Matrix { numbers: tile_of(&keys, index, factor_columns), stride: factor_columns };
            for tile in part.tiles.met_by_keys(row, head, first + index) {
                let queries_tile = tile.index as usize;
                let height = TILE.min(side.dots.len() - queries_tile * TILE);
                let at = At { queries: queries_tile, keys: first + index, height };
                if terms.are_beyond(at) {
                    continue;
                }
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
                let dropout = dropout.map(|dropout| (dropout, [row, head]));
                for end in &ends {
                    let (query, slope) = slope_of_end(*end, &slopes, side, terms, dropout, at);
                    gradients.terms.add_end(terms, query, slope);
                }
                match bias_of_each {
                    Some(bias) => differentiate_each(bias, &mut weights, &mut slopes, terms, dropout, at),
                    None => differentiate(&mut weights, &mut slopes, side, terms, dropout, at),
                }
                let transposed = |numbers| Transposed(Matrix { numbers, stride: TILE });
                let above = triangle(Triangle::OfTransposedLeft);
                add_product(simd, [TILE, value_columns, height], above, transposed(&weights), gradient, value_sums);
                add_product(simd, [TILE, factor_columns, height], above, transposed(&slopes), queries, key_sums);
                let sums = &mut gradients.queries[(queries_tile - gradients.first_query) * TILE * factor_columns..];
                let own_slopes = Matrix { numbers: &slopes, stride: TILE };
                add_product(simd, [height, factor_columns, TILE], triangle(Triangle::OfLeft), own_slopes, keys, sums);
                gradients.terms.add(simd, terms, at, &slopes, of_bias.as_deref_mut(), &mut scratch);
            }
        }
    }
}

/// The query of a key at which its ramp just ends, and the gradient by the factor of that key, from the gradients of the weights after dropout. The key has
/// no weight; what it would have with the factor 1 is the slope.
fn slope_of_end(
    End { place, score }: End,
    slopes: &[f32],
    side: &QuerySide,
    terms: &Terms,
    dropout: Option<(&WeightDropout, [usize; 2])>,
    At { queries, keys, .. }: At,
) -> (usize, f32) {
    let query = queries * TILE + place / TILE;
    let index = terms.places[0].index(query);
    let factor = dropout
        .map_or(1.0, |(dropout, [row, head])| dropout.row(row, head, index).factor(terms.places[1].index(keys * TILE + place % TILE)));
    let ratio = exp((score - side.log_sum_exp[query]).min(greatest_log_ratio(DType::F32)));
    (index, ratio * (slopes[place] * factor - side.dots[query]))
}

/// [`differentiate`] where each key is weighed by itself, by the logistic function of its score and `bias`.
#[inline(always)]
fn differentiate_each(
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
fn differentiate(
    weights: &mut [f32],
    slopes: &mut [f32],
    side: &QuerySide,
    terms: &Terms,
    dropout: Option<(&WeightDropout, [usize; 2])>,
    At { queries, keys, height }: At,
) {
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
