//! The gradients.

mod group;
mod weights;

use std::ops::Range;
use std::slice;

use rayon::prelude::*;

use self::group::{BiasGradient, GroupGradients, GroupKeys, KeySide, KeyValueGradients, OfPlane, PlaneSide, differentiate_group};
use super::entmax::means;
use super::kernel::padded;
use super::layout::{BackwardInputs, Inputs, Places, Planes, Sizes, rows_of_planes};
use super::terms::{BiasOfPlanes, TermGradients, TermsOfPlane};
use crate::contract::visibility::TILE;
use crate::engine::Normaliser;
use crate::engine::fused::plan::Part;

/// Gradients of [`Inputs`]; empty for absent inputs.
pub(crate) struct Gradients {
    /// `[B, Q, H, R]`.
    pub queries: Vec<f32>,
    /// `[B, K, G, R]`.
    pub keys: Vec<f32>,
    /// `[B, K, G, D]`.
    pub values: Vec<f32>,
    pub bias: Vec<f32>,
    /// Gradient of the bias scale, by key: `[B|1, H|1, K]`, with as many planes as the bias.
    pub bias_scale: Vec<f32>,
    pub relative_queries: Vec<f32>,
    pub relative_keys: Vec<f32>,
    pub left: Vec<f32>,
    pub right: Vec<f32>,
    pub spans: Vec<f32>,
}

/// Minimum number of key groups in the backward pass of one attention. It does not depend on the number of threads, so neither do sums.
pub const GROUPS: usize = 16;

/// Gradients of the inputs from that of the context.
pub(crate) fn backward(inputs: Inputs, given: BackwardInputs) -> Gradients {
    let Sizes { batch, heads, shared, queries, keys, factor, relative, pairs: [left, right], value } = inputs.sizes;
    let count = |planes: Option<Planes>| planes.map_or(0, |planes| planes.numbers.len());
    let bias = inputs.trained_bias();
    let dots = dots(inputs, given);
    let mut gradients = Gradients {
        queries: vec![0.0; batch * heads * queries * factor],
        keys: vec![0.0; batch * shared * keys * factor],
        values: vec![0.0; batch * shared * keys * value],
        bias: vec![0.0; count(bias)],
        bias_scale: vec![0.0; bias.filter(|_| inputs.bias_scale.is_some()).map_or(0, |bias| bias.rows * bias.heads * keys)],
        relative_queries: vec![0.0; batch * heads * queries * relative],
        relative_keys: vec![0.0; count(inputs.relative_keys)],
        left: vec![0.0; inputs.left.len()],
        right: vec![0.0; inputs.right.len()],
        spans: vec![0.0; count(inputs.spans)],
    };
    let biases = bias.map_or(0, |bias| bias.rows * bias.heads);
    let of_biases = split(&mut gradients.bias, biases).zip(split(&mut gradients.bias_scale, biases));
    let of_biases = of_biases.map(|(numbers, scale)| BiasOfPlanes { numbers, scale });
    let of_keys = rows_of_planes(&mut gradients.keys, [batch, shared, factor]);
    let of_values = rows_of_planes(&mut gradients.values, [batch, shared, value]);
    let of_keys = of_keys.into_iter().zip(of_values).enumerate();
    let of_keys = of_keys.map(|(number, (keys, values))| KeyGradients { plane: number * inputs.sizes.group(), keys, values });
    let of_queries = rows_of_planes(&mut gradients.queries, [batch, heads, factor]).into_iter();
    let mut families = families(inputs, of_queries, of_keys, of_biases);
    let count = families.len();
    families.par_iter_mut().for_each(|family| differentiate(inputs, given, &dots, family, count));
    let mut planes: Vec<PlaneGradients> = families.into_iter().flat_map(|family| family.members).flat_map(|member| member.planes).collect();
    planes.sort_unstable_by_key(|plane| plane.plane);
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

/// Amount subtracted from the gradients of a query's weights, `[B, H, Q]`: the product of context and gradient, which accounts for the division by the sum, or
/// the effect of the threshold.
fn dots(inputs: Inputs, given: BackwardInputs) -> Vec<f32> {
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

/// Splits `numbers` into `count` equal parts, which may be empty.
fn split(mut numbers: &mut [f32], count: usize) -> impl Iterator<Item = &mut [f32]> {
    let size = numbers.len() / count.max(1);
    (0..count).map(move |_| {
        let (part, rest) = std::mem::take(&mut numbers).split_at_mut(size);
        numbers = rest;
        part
    })
}

/// All planes that add to the same gradients of keys and values, or to the same bias. Families are differentiated in parallel, their members sequentially.
#[derive(Default)]
struct Family<'a> {
    members: Vec<Member<'a>>,
    /// In the order of batch rows and heads.
    keys: Vec<KeyGradients<'a>>,
}

/// The planes that share a bias, in order, and its gradient; or one plane without a trained bias.
#[derive(Default)]
struct Member<'a> {
    planes: Vec<PlaneGradients<'a>>,
    bias: Option<BiasOfPlanes<'a>>,
}

/// Gradients of one batch row and head.
struct PlaneGradients<'a> {
    plane: usize,
    /// Index of its keys and values in its family.
    keys: usize,
    queries: Vec<&'a mut [f32]>,
    terms: TermGradients,
}

/// Gradients of the keys and values of one batch row and key head.
struct KeyGradients<'a> {
    /// The first plane that reads them.
    plane: usize,
    keys: Vec<&'a mut [f32]>,
    values: Vec<&'a mut [f32]>,
}

/// Families of the gradients of all planes, keys and trained biases, each in index order.
fn families<'a>(
    inputs: Inputs,
    of_queries: impl Iterator<Item = Vec<&'a mut [f32]>>,
    of_keys: impl Iterator<Item = KeyGradients<'a>>,
    of_biases: impl Iterator<Item = BiasOfPlanes<'a>>,
) -> Vec<Family<'a>> {
    let Sizes { batch, shared, .. } = inputs.sizes;
    let (group, bias) = (inputs.sizes.group(), inputs.trained_bias());
    // A bias shared by batch rows or heads joins them into one family.
    let rows = bias.map_or(batch, |bias| bias.rows);
    let [across, within] = if bias.is_some_and(|bias| bias.heads == 1) { [1, 1] } else { [shared, group] };
    let family = |row: usize, head: usize| (if rows == 1 { 0 } else { row }) * across + if across == 1 { 0 } else { head };
    let mut families: Vec<Family> = (0..rows * across).map(|_| Family::default()).collect();
    families.iter_mut().for_each(|family| family.members.resize_with(within, Member::default));
    let mut places = Vec::new();
    for (number, of_keys) in of_keys.enumerate() {
        let family = family(number / shared, number % shared);
        places.push([family, families[family].keys.len()]);
        families[family].keys.push(of_keys);
    }
    for (plane, queries) in of_queries.enumerate() {
        let [family, keys] = places[plane / group];
        families[family].members[plane % within].planes.push(PlaneGradients { plane, keys, queries, terms: TermGradients::default() });
    }
    for (number, of_bias) in of_biases.enumerate() {
        let [row, head] = bias.map_or([0, 0], |bias| [number / bias.heads, number % bias.heads]);
        families[family(row, head / group)].members[head % within].bias = Some(of_bias);
    }
    families
}

impl PlaneGradients<'_> {
    /// Adds the contribution of a key group.
    fn add(&mut self, side: &PlaneSide, sizes: Sizes, found: &OfPlane) {
        side.terms.places[0].add_rows(found.first_query * TILE, &found.queries, padded(sizes.factor), &mut self.queries);
        self.terms.add_all(&found.terms);
    }
}

impl KeyGradients<'_> {
    /// Adds the contribution of a group that starts at tile `first`.
    fn add(&mut self, places: Places, sizes: Sizes, first: usize, found: &KeyValueGradients) {
        places.add_rows(first * TILE, &found.keys, padded(sizes.factor), &mut self.keys);
        places.add_rows(first * TILE, &found.values, padded(sizes.value), &mut self.values);
    }
}

/// One part of a backward pass.
#[derive(Clone, Copy)]
struct Pass<'a> {
    inputs: Inputs<'a>,
    given: BackwardInputs<'a>,
    dots: &'a [f32],
    part: &'a Part,
    /// Number of families that are differentiated in parallel.
    families: usize,
}

fn differentiate(inputs: Inputs, given: BackwardInputs, dots: &[f32], Family { members, keys: of_keys }: &mut Family, families: usize) {
    let is_in_order = matches!(&*inputs.plan.parts, [part] if part.is_in_order());
    for part in &*inputs.plan.parts {
        let pass = Pass { inputs, given, dots, part, families };
        if inputs.trained_bias().is_some() && !is_in_order {
            members.iter_mut().for_each(|member| pass.scatter(member, of_keys));
        } else if part.has_keys_in_one_order() {
            let sides = of_keys.iter().enumerate().map(|(place, of_keys)| KeySide::new(inputs, part, [of_keys.plane, place]));
            let sides: Vec<KeySide> = sides.collect();
            pass.differentiate(members, &sides, of_keys);
        } else {
            for member in members.iter_mut() {
                let sides: Vec<KeySide> = member.planes.iter().map(|plane| KeySide::new(inputs, part, [plane.plane, plane.keys])).collect();
                pass.differentiate(slice::from_mut(member), &sides, of_keys);
            }
        }
    }
}

impl Pass<'_> {
    /// Differentiates members whose planes read these keys, by groups of key tiles.
    fn differentiate(self, members: &mut [Member], keys: &[KeySide], of_keys: &mut [KeyGradients]) {
        let Self { inputs, given, dots, part, families } = self;
        let sizes = inputs.sizes;
        let tiles = keys[0].tiles();
        // With a bias each group stores the query gradients of all planes, if any: then there is one group.
        let has_one_group = inputs.trained_bias().is_some() && (sizes.has_terms_of_queries() || inputs.spans.is_some());
        let group = size_of_groups(tiles, if has_one_group { 1 } else { GROUPS.div_ceil(families) });
        let groups: Vec<Range<usize>> = (0..tiles).step_by(group).map(|first| first..(first + group).min(tiles)).collect();
        let pack = |tiles: &Range<usize>| keys.iter().map(|side| GroupKeys::new(side, tiles, sizes)).collect::<Vec<_>>();
        // All members read the keys packed for the first.
        let packed: Option<Vec<Vec<GroupKeys>>> = (members.len() > 1).then(|| groups.par_iter().map(pack).collect());
        for Member { planes, bias } in members {
            let place = |plane: &PlaneGradients| keys.iter().position(|side| side.shared == plane.keys).expect("its keys are given");
            let sides: Vec<PlaneSide> =
                planes.iter().map(|plane| PlaneSide::new(inputs, given, dots, part, [plane.plane, place(plane)])).collect();
            // Tile by tile, the bias gradients of all planes are summed before they are written.
            let of_bias: Vec<BiasGradient> = match bias {
                Some(bias) => bias.groups(sizes.keys, tiles, group).into_iter().map(BiasGradient::InOrder).collect(),
                None => groups.iter().map(|_| BiasGradient::None).collect(),
            };
            // Each key group has its own gradients of all queries, which are summed in order: the sum does not depend on the threads.
            let found: Vec<GroupGradients> = groups
                .par_iter()
                .zip(of_bias)
                .enumerate()
                .map(|(index, (tiles, of_bias))| {
                    let own;
                    let keys = match &packed {
                        Some(packed) => &packed[index],
                        None => {
                            own = pack(tiles);
                            &own
                        }
                    };
                    differentiate_group(inputs, part, &sides, keys, tiles.clone(), of_bias)
                })
                .collect();
            for (tiles, found) in groups.iter().zip(&found) {
                planes.iter_mut().zip(&sides).zip(&found.planes).for_each(|((plane, side), found)| plane.add(side, sizes, found));
                keys.iter().zip(&found.keys).for_each(|(side, found)| of_keys[side.shared].add(side.places, sizes, tiles.start, found));
            }
        }
    }

    /// Differentiates planes one by one, with scattered bias gradients.
    fn scatter(self, Member { planes, bias }: &mut Member, of_keys: &mut [KeyGradients]) {
        let Self { inputs, given, dots, part, .. } = self;
        let bias = bias.as_mut().expect("there is a trained bias");
        for plane in planes {
            let keys = KeySide::new(inputs, part, [plane.plane, plane.keys]);
            let side = PlaneSide::new(inputs, given, dots, part, [plane.plane, 0]);
            let tiles = 0..keys.tiles();
            let packed = GroupKeys::new(&keys, &tiles, inputs.sizes);
            let found = differentiate_group(inputs, part, slice::from_ref(&side), &[packed], tiles, BiasGradient::Scattered(bias));
            plane.add(&side, inputs.sizes, &found.planes[0]);
            of_keys[plane.keys].add(keys.places, inputs.sizes, 0, &found.keys[0]);
        }
    }
}

/// Tiles per group, for `groups` groups.
fn size_of_groups(tiles: usize, groups: usize) -> usize {
    tiles.div_ceil(groups.clamp(1, tiles.max(1))).max(1)
}
