//! The context.

use burn::tensor::DType;
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::kernel::{Aligned, Matrix, Triangle, add_product, padded, product, transposed_tiles, widened_tiles};
use super::terms::{At, Scratch, Terms};
use super::{Inputs, Places, Sizes, is_triangle, of_plane, rows_of_planes, shift};
use crate::dropout::WeightDropout;
use crate::engine::Normaliser;
use crate::engine::fused::plan::Part;
use crate::exponential::{exp, exponentials, largest, picked};
use crate::visibility::{TILE, least_visible_logit};

/// Context and log-sum-exp, which is infinite where no key is visible, and 0 where rows are not divided by their sum.
pub(in super::super) struct Context {
    /// `[B, Q, H, D]`: heads side by side, as the projection after them reads them.
    pub context: Vec<f32>,
    /// `[B, H, Q]`.
    pub log_sum_exp: Vec<f32>,
}

pub(in super::super) fn forward(inputs: Inputs) -> Context {
    let Sizes { batch, heads, queries, value, .. } = inputs.sizes;
    let mut context = vec![0.0; batch * queries * heads * value];
    let mut log_sum_exp = vec![0.0; batch * heads * queries];
    let epsilon = if let Normaliser::Softpick { epsilon } = inputs.plan.normaliser { epsilon } else { 0.0 };
    let of_planes =
        rows_of_planes(&mut context, [batch, heads, value]).into_par_iter().zip(log_sum_exp.par_chunks_mut(queries)).enumerate();
    of_planes.for_each(|(plane, (context, log_sum_exp))| {
        let mut state = State { tops: vec![f32::NEG_INFINITY; queries], totals: vec![0.0; queries], sums: context };
        for part in &*inputs.plan.parts {
            state.join(&attend(inputs, part, plane), value);
        }
        for (at, context) in state.sums.into_iter().enumerate() {
            let total = state.totals[at];
            let share = if !inputs.plan.is_normalised() {
                log_sum_exp[at] = 0.0;
                exp(state.tops[at])
            } else if total > 0.0 {
                let sum = total + epsilon;
                log_sum_exp[at] = state.tops[at] + sum.ln();
                1.0 / sum
            } else {
                // Weights that are recomputed from it are 0.
                log_sum_exp[at] = f32::INFINITY;
                0.0
            };
            context.iter_mut().for_each(|number| *number *= share);
        }
    });
    Context { context, log_sum_exp }
}

/// Sums over the keys that queries have met, all divided by `e^top`: of weights, and of weighted values.
struct State<'a> {
    tops: Vec<f32>,
    totals: Vec<f32>,
    sums: Vec<&'a mut [f32]>,
}

/// [`State`] of the queries of a part, by place. Rows of values have their padded width.
struct PartState<'a> {
    places: Places<'a>,
    tops: Vec<f32>,
    totals: Vec<f32>,
    sums: Aligned,
}

impl State<'_> {
    /// Goes on with what the queries of a part have met.
    fn join(&mut self, part: &PartState, value: usize) {
        let columns = padded(value);
        for place in 0..part.places.len() {
            let (index, top) = (part.places.index(place), part.tops[place]);
            if top == f32::NEG_INFINITY {
                continue;
            }
            let joint = self.tops[index].max(top);
            let (kept, own) = (exp(self.tops[index] - joint), exp(top - joint));
            self.totals[index] = self.totals[index] * kept + part.totals[place] * own;
            self.tops[index] = joint;
            self.sums[index].iter_mut().zip(&part.sums[place * columns..]).for_each(|(sum, number)| *sum = *sum * kept + number * own);
        }
    }
}

/// What the queries of one part meet.
fn attend<'a>(inputs: Inputs<'a>, part: &'a Part, plane: usize) -> PartState<'a> {
    let Sizes { heads, queries, keys, factor, value, .. } = inputs.sizes;
    let (row, head) = (plane / heads, plane % heads);
    let places = Places::new(part.queries.as_ref(), row, head, queries);
    let key_places = Places::new(part.keys.as_ref(), row, head, keys);
    let columns = padded(value);
    let query_rows = places.rows(inputs.queries.of(row, head), factor);
    let keys_transposed = transposed_tiles(key_places.rows(inputs.keys.of(row, head), factor).matrix(), key_places.len(), factor);
    let values = widened_tiles(key_places.rows(inputs.values.of(row, head), value).matrix(), key_places.len(), value);
    let terms = Terms::new(&inputs, row, head, [places, key_places]);
    let count = places.len();
    // A softpick never divides by less than 1.
    let lowest = if matches!(inputs.plan.normaliser, Normaliser::Softpick { .. }) { 0.0 } else { f32::NEG_INFINITY };
    let mut state = PartState { places, tops: vec![lowest; count], totals: vec![0.0; count], sums: Aligned::zeros(count * columns) };
    let arch = Arch::new();
    let of_tiles = state.sums.par_chunks_mut(TILE * columns).zip(state.tops.par_chunks_mut(TILE)).zip(state.totals.par_chunks_mut(TILE));
    let scratch = || (Aligned::zeros(TILE * TILE), Scratch::default());
    of_tiles.enumerate().for_each_init(scratch, |(weights, scratch), (tile, ((sums, tops), totals))| {
        arch.dispatch(ForwardTile {
            sizes: inputs.sizes,
            dropout: inputs.plan.dropout.as_ref(),
            normaliser: inputs.plan.normaliser,
            part,
            place: [row, head, tile],
            terms: &terms,
            queries: query_rows.matrix().rows_from(tile * TILE),
            keys_transposed: &keys_transposed,
            values: &values,
            weights,
            scratch,
            sums,
            tops,
            totals,
        });
    });
    state
}

struct ForwardTile<'a> {
    sizes: Sizes,
    dropout: Option<&'a WeightDropout>,
    normaliser: Normaliser,
    part: &'a Part,
    /// Batch row, head, and number of the tile of queries.
    place: [usize; 3],
    terms: &'a Terms<'a>,
    queries: Matrix<'a>,
    /// `[tiles, factor, TILE]`.
    keys_transposed: &'a [f32],
    /// `[tiles, TILE, padded value]`.
    values: &'a [f32],
    /// `[TILE, TILE]`.
    weights: &'a mut [f32],
    scratch: &'a mut Scratch,
    /// `[TILE, padded value]`.
    sums: &'a mut [f32],
    tops: &'a mut [f32],
    totals: &'a mut [f32],
}

impl WithSimd for ForwardTile<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sizes, dropout, normaliser, part, place: [row, head, queries_tile], terms, queries, keys_transposed, values, .. } = self;
        let Self { weights, scratch, sums, tops, totals, .. } = self;
        let Sizes { factor, value, .. } = sizes;
        let (height, columns) = (tops.len(), padded(value));
        for tile in part.tiles.met_by_queries(row, head, queries_tile) {
            let at = At { queries: queries_tile, keys: tile.index as usize, height };
            if terms.are_beyond(at) {
                continue;
            }
            let keys = Matrix { numbers: of_plane(keys_transposed, at.keys, TILE * factor), stride: TILE };
            let is_triangle = is_triangle(&part.tiles, tile.pairs);
            let triangle = |of: Triangle| if is_triangle { of } else { Triangle::None };
            product(simd, [height, TILE, factor], triangle(Triangle::OfResult), queries, keys, weights);
            terms.add(simd, at, weights, scratch);
            shift(weights, &part.tiles, tile.pairs);
            terms.limit(at, weights, |_, _| {});
            match (normaliser.each(), normaliser) {
                (Some(each), _) => {
                    each.weigh(&mut weights[..height * TILE]);
                    tops.fill(0.0);
                }
                (None, Normaliser::Softpick { .. }) => meet::<true>(weights, (sums, columns), tops, totals),
                (None, _) => meet::<false>(weights, (sums, columns), tops, totals),
            }
            if let Some(dropout) = dropout {
                let [queries, keys] = terms.places;
                for (place, weights) in weights.chunks_exact_mut(TILE).take(height).enumerate() {
                    let drawn = dropout.row(row, head, queries.index(at.queries * TILE + place));
                    keys.each(at.keys, |place, key| weights[place] *= drawn.factor(key));
                }
            }
            let values = Matrix { numbers: of_plane(values, at.keys, TILE * columns), stride: columns };
            let weights = Matrix { numbers: weights, stride: TILE };
            add_product(simd, [height, columns, TILE], triangle(Triangle::OfLeft), weights, values, sums);
        }
    }
}

/// Replaces the logits of a tile by weights, all divided by `e^top`: exponentials, or what a softpick has in their place. What the queries have met before is
/// divided by the same.
#[inline(always)]
fn meet<const PICKS: bool>(logits: &mut [f32], (sums, columns): (&mut [f32], usize), tops: &mut [f32], totals: &mut [f32]) {
    for (at, logits) in logits.chunks_exact_mut(TILE).take(tops.len()).enumerate() {
        let top = largest(logits).max(tops[at]);
        if top == f32::NEG_INFINITY {
            logits.fill(0.0);
            continue;
        }
        if tops[at] < top {
            let kept = exp(tops[at] - top);
            totals[at] *= kept;
            for sum in &mut sums[at * columns..][..columns] {
                *sum *= kept;
            }
            tops[at] = top;
        }
        totals[at] += if PICKS { picked(logits, top, least_visible_logit(DType::F32)) } else { exponentials(logits, top) };
    }
}
