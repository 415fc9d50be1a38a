//! The gradients.

mod group;
mod weights;

use rayon::prelude::*;

use self::group::{BiasGradient, GroupGradients, PlaneSide, differentiate_group};
use super::kernel::padded;
use super::terms::{BiasOfGroup, BiasOfPlanes, TermGradients, TermsOfPlane};
use super::thresholds::means;
use super::{Inputs, Planes, Rows, Sizes, rows_of_planes};
use crate::engine::Normaliser;
use crate::visibility::TILE;

/// What the forward pass gave, and the gradient of the context.
#[derive(Clone, Copy)]
pub(in super::super) struct Given<'a> {
    pub context: Rows<'a>,
    pub gradient: Rows<'a>,
    /// `[B, H, Q]`; of an entmax, thresholds.
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
    let dots = dots(inputs, given);
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
            families.par_iter_mut().for_each(|Family { planes, bias }| differentiate(inputs, given, &dots, planes, Some((bias, count))));
            planes.extend(families.into_iter().flat_map(|family| family.planes));
            planes.sort_unstable_by_key(|plane| plane.plane);
        }
        None => planes.par_chunks_mut(1).for_each(|plane| differentiate(inputs, given, &dots, plane, None)),
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

/// What a query takes from the gradients of all its weights, `[B, H, Q]`: the product of context and gradient, by which the sum counts that weights are divided
/// by, or what the threshold moves.
fn dots(inputs: Inputs, given: Given) -> Vec<f32> {
    let Sizes { batch, heads, queries, value, .. } = inputs.sizes;
    if let Normaliser::Entmax { power } = inputs.plan.normaliser {
        return means(inputs, given, power);
    }
    let mut dots = vec![0.0; batch * heads * queries];
    if inputs.plan.is_normalised() {
        dots.par_chunks_mut(queries).enumerate().for_each(|(plane, dots)| {
            let (gradient, context) = (given.gradient.of(plane / heads, plane % heads), given.context.of(plane / heads, plane % heads));
            for (query, dot) in dots.iter_mut().enumerate() {
                *dot = gradient.row(query, value).iter().zip(context.row(query, value)).map(|(a, b)| a * b).sum();
            }
        });
    }
    dots
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

/// Differentiates the planes that share a bias, given its gradient and how many biases there are; or one plane without a trained bias.
fn differentiate(
    inputs: Inputs,
    given: Given,
    dots: &[f32],
    planes: &mut [PlaneGradients],
    mut of_bias: Option<(&mut BiasOfPlanes, usize)>,
) {
    let is_in_order = matches!(&*inputs.plan.parts, [part] if part.is_in_order());
    for part in &*inputs.plan.parts {
        let sides: Vec<PlaneSide> = planes.iter().map(|plane| PlaneSide::new(inputs, given, dots, part, plane.plane)).collect();
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
                // Each group holds the gradients of the queries of all planes, where there are any: then there is one.
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
