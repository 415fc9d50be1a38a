//! The gradients.

use std::sync::Mutex;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::kernel::{Matrix, Transposed, add_product, padded, transposed_tiles, widened_tiles};
use super::terms::{At, Scratch, TermGradients, Terms};
use super::{Context, Inputs, Places, Planes, Sizes, of_plane, shift};
use crate::dropout::WeightDropout;
use crate::engine::fused::plan::Part;
use crate::exponential::exp;
use crate::visibility::TILE;

/// Gradients of [`Inputs`]; of what is absent they are empty.
pub(in super::super) struct Gradients {
    pub queries: Vec<f32>,
    pub keys: Vec<f32>,
    pub values: Vec<f32>,
    pub bias: Vec<f32>,
    pub relative_queries: Vec<f32>,
    pub relative_keys: Vec<f32>,
    pub spans: Vec<f32>,
}

/// Groups of keys that the backward pass of one attention is divided into, at least. It does not depend on the number of threads, so that sums do not.
const GROUPS: usize = 16;

/// Gradients of the inputs from that of the context. `forward` is what [`forward`](super::forward) gave.
pub(in super::super) fn backward(inputs: Inputs, forward: Context<&[f32]>, gradient: &[f32]) -> Gradients {
    let Sizes { batch, heads, queries, keys, factor, relative, value } = inputs.sizes;
    let count = |planes: Option<Planes>| planes.map_or(0, |planes| planes.numbers.len());
    let mut gradients = Gradients {
        queries: vec![0.0; batch * heads * queries * factor],
        keys: vec![0.0; batch * heads * keys * factor],
        values: vec![0.0; batch * heads * keys * value],
        bias: vec![0.0; count(inputs.bias)],
        relative_queries: vec![0.0; batch * heads * queries * relative],
        relative_keys: vec![0.0; count(inputs.relative_keys)],
        spans: vec![0.0; count(inputs.spans)],
    };
    let of_bias: Vec<Mutex<&mut [f32]>> = match inputs.bias {
        Some(bias) => split(&mut gradients.bias, bias.rows * bias.heads).map(Mutex::new).collect(),
        None => Vec::new(),
    };
    let of_planes = split(&mut gradients.queries, batch * heads)
        .zip(split(&mut gradients.keys, batch * heads))
        .zip(split(&mut gradients.values, batch * heads));
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
            differentiate_plane(inputs, forward, gradient, plane, gradients, bias.as_deref_mut().map(|bias| &mut **bias));
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
            relative,
            queries,
            &mut gradients.relative_queries[plane * queries * relative..][..queries * relative],
            &mut gradients.relative_keys[table],
            &mut gradients.spans[spans],
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
    queries: &'a mut [f32],
    keys: &'a mut [f32],
    values: &'a mut [f32],
    terms: TermGradients,
}

fn differentiate_plane(
    inputs: Inputs,
    forward: Context<&[f32]>,
    gradient: &[f32],
    plane: usize,
    gradients: &mut PlaneGradients,
    mut of_bias: Option<&mut [f32]>,
) {
    let Sizes { heads, queries, keys, factor, value, .. } = inputs.sizes;
    let (row, head) = (plane / heads, plane % heads);
    let gradient = of_plane(gradient, plane, queries * value);
    let context = of_plane(forward.context, plane, queries * value);
    let log_sum_exp = of_plane(forward.log_sum_exp, plane, queries);
    let product = |(a, b): (&[f32], &[f32])| a.iter().zip(b).map(|(a, b)| a * b).sum();
    let dots: Vec<f32> = context.chunks(value).zip(gradient.chunks(value)).map(product).collect();
    for part in &*inputs.plan.parts {
        let places = Places::new(part.queries.as_ref(), row, head, queries);
        let key_places = Places::new(part.keys.as_ref(), row, head, keys);
        let terms = Terms::new(&inputs, row, head, [places, key_places]);
        let side = QuerySide {
            queries: widened_tiles(&places.rows(of_plane(inputs.queries, plane, queries * factor), factor), factor),
            gradient: widened_tiles(&places.rows(gradient, value), value),
            log_sum_exp: places.rows(log_sum_exp, 1).into_owned(),
            dots: places.rows(&dots, 1).into_owned(),
        };
        let own_keys = key_places.rows(of_plane(inputs.keys, plane, keys * factor), factor);
        let own_values = key_places.rows(of_plane(inputs.values, plane, keys * value), value);
        // Each group of keys has gradients of all queries of its own, which are added up in order: the sum does not depend on who computes what.
        let groups = if of_bias.is_some() { 1 } else { GROUPS.div_ceil(inputs.sizes.batch * heads) };
        let tiles = key_places.len().div_ceil(TILE);
        let group = tiles.div_ceil(groups.clamp(1, tiles.max(1))).max(1);
        let differentiate = |first: usize, of_bias: Option<&mut [f32]>| {
            let end = (first + group).min(tiles);
            let rows = |width: usize| first * TILE * width..(end * TILE).min(key_places.len()) * width;
            let mut result = GroupGradients {
                queries: vec![0.0; side.queries.len()],
                keys: vec![0.0; (end - first) * TILE * padded(factor)],
                values: vec![0.0; (end - first) * TILE * padded(value)],
                terms: TermGradients::new(&terms, queries),
            };
            Arch::new().dispatch(BackwardGroup {
                sizes: inputs.sizes,
                dropout: inputs.plan.dropout.as_ref(),
                part,
                place: [row, head, first],
                tiles: end - first,
                terms: &terms,
                side: &side,
                keys: &own_keys[rows(factor)],
                values: &own_values[rows(value)],
                gradients: &mut result,
                of_bias,
            });
            result
        };
        let found: Vec<GroupGradients> = match of_bias.as_deref_mut() {
            Some(of_bias) => vec![differentiate(0, Some(of_bias))],
            None => (0..tiles).step_by(group).collect::<Vec<_>>().into_par_iter().map(|first| differentiate(first, None)).collect(),
        };
        let [mut of_keys, mut of_values] = [Vec::new(), Vec::new()];
        for found in found {
            places.add_rows(&found.queries, padded(factor).max(1), gradients.queries, factor);
            of_keys.extend(found.keys);
            of_values.extend(found.values);
            gradients.terms.add_all(&found.terms);
        }
        key_places.add_rows(&of_keys, padded(factor).max(1), gradients.keys, factor);
        key_places.add_rows(&of_values, padded(value), gradients.values, value);
    }
}

/// What the backward pass of a head reads of its queries, by place.
struct QuerySide {
    /// `[tiles, TILE, padded factor]`.
    queries: Vec<f32>,
    /// Gradient of the context, `[tiles, TILE, padded value]`.
    gradient: Vec<f32>,
    log_sum_exp: Vec<f32>,
    /// Products of context and gradient.
    dots: Vec<f32>,
}

/// What a group of keys contributes, by place, in rows of padded width.
struct GroupGradients {
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    terms: TermGradients,
}

struct BackwardGroup<'a> {
    sizes: Sizes,
    dropout: Option<&'a WeightDropout>,
    part: &'a Part,
    /// Batch row, head, and number of the first tile of keys.
    place: [usize; 3],
    /// Number of tiles of keys.
    tiles: usize,
    terms: &'a Terms<'a>,
    side: &'a QuerySide,
    keys: &'a [f32],
    values: &'a [f32],
    gradients: &'a mut GroupGradients,
    of_bias: Option<&'a mut [f32]>,
}

impl WithSimd for BackwardGroup<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sizes, dropout, part, place: [row, head, first], tiles, terms, side, keys, values, gradients, mut of_bias } = self;
        let Sizes { factor, value, .. } = sizes;
        let (factor_columns, value_columns) = (padded(factor), padded(value));
        let keys_transposed = transposed_tiles(keys, factor);
        let values_transposed = transposed_tiles(values, value);
        let keys = widened_tiles(keys, factor);
        let (mut weights, mut slopes) = (vec![0.0; TILE * TILE], vec![0.0; TILE * TILE]);
        let mut scratch = Scratch::default();
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
                if terms.is_beyond_spans(at) {
                    continue;
                }
                let queries = Matrix { numbers: tile_of(&side.queries, queries_tile, factor_columns), stride: factor_columns };
                let gradient = Matrix { numbers: tile_of(&side.gradient, queries_tile, value_columns), stride: value_columns };
                weights.fill(0.0);
                add_product(simd, [height, TILE, factor], queries, keys_transposed, &mut weights);
                terms.add(simd, at, &mut weights, &mut scratch);
                shift(&mut weights, &part.tiles, tile.pairs);
                slopes.fill(0.0);
                add_product(simd, [height, TILE, value], gradient, values_transposed, &mut slopes);
                let dropout = dropout.map(|dropout| (dropout, [row, head]));
                differentiate(&mut weights, &mut slopes, side, terms, dropout, at);
                let transposed = |numbers| Transposed(Matrix { numbers, stride: TILE });
                add_product(simd, [TILE, value_columns, height], transposed(&weights), gradient, value_sums);
                add_product(simd, [TILE, factor_columns, height], transposed(&slopes), queries, key_sums);
                let sums = &mut gradients.queries[queries_tile * TILE * factor_columns..];
                add_product(simd, [height, factor_columns, TILE], Matrix { numbers: &slopes, stride: TILE }, keys, sums);
                gradients.terms.add(simd, terms, at, &slopes, of_bias.as_deref_mut(), &mut scratch);
            }
        }
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
