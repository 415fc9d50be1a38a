//! The context.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::entmax::{Above, thresholds};
use super::kernel::{Aligned, Matrix, Sparsity, add_product, padded};
use super::layout::{Inputs, Places, Sizes, of_plane, rows_of_planes};
use super::packed::Packed;
use super::scores::Scores;
use super::terms::{Scratch, TileIndex};
use crate::contract::visibility::TILE;
use crate::engine::Normaliser;
use crate::engine::dropout::WeightDropout;
use crate::engine::exponential::{exp, exponentials, largest, picked};

/// Context and log-sum-exp; the latter is infinite without visible keys within the span, 0 without division by the sum, and the threshold for an entmax.
pub(crate) struct Context {
    /// `[B, Q, H, D]`: heads are adjacent, as the following projection reads them.
    pub context: Vec<f32>,
    /// `[B, H, Q]`.
    pub log_sum_exp: Vec<f32>,
}

pub(crate) fn forward(inputs: Inputs) -> Context {
    let Sizes { batch, heads, queries, value, .. } = inputs.sizes;
    let mut context = vec![0.0; batch * queries * heads * value];
    let mut log_sum_exp = vec![0.0; batch * heads * queries];
    let epsilon = if let Normaliser::Softpick { epsilon } = inputs.plan.normaliser { epsilon } else { 0.0 };
    let of_planes = rows_of_planes(&mut context, [batch, heads, value]).into_par_iter().zip(log_sum_exp.par_chunks_mut(queries));
    each_plane(inputs, of_planes, |plane, packed, (context, log_sum_exp)| {
        if let Normaliser::Entmax { power } = inputs.plan.normaliser {
            log_sum_exp.copy_from_slice(&thresholds(inputs, plane, packed, power));
            State::new(context).meet(inputs, plane, packed, Some(Above { thresholds: log_sum_exp, power, is_slope: false }));
            return;
        }
        let mut state = State::new(context);
        state.meet(inputs, plane, packed, None);
        for (at, context) in state.sums.into_iter().enumerate() {
            let total = state.totals[at];
            let share = if !inputs.plan.is_normalised() {
                log_sum_exp[at] = 0.0;
                exp(state.tops[at])
            } else if total > 0.0 && state.tops[at] > inputs.plan.least_visible {
                let sum = total + epsilon;
                log_sum_exp[at] = state.tops[at] + sum.ln();
                1.0 / sum
            } else {
                // Recomputed weights are then 0.
                log_sum_exp[at] = f32::INFINITY;
                0.0
            };
            context.iter_mut().for_each(|number| *number *= share);
        }
    });
    Context { context, log_sum_exp }
}

/// Calls `each` with each plane, its packed keys and values, and its entry of `items`.
pub(super) fn each_plane<T: Send>(inputs: Inputs, items: impl IndexedParallelIterator<Item = T>, each: impl Fn(usize, &Packed, T) + Sync) {
    let group = inputs.sizes.group();
    items.chunks(group).enumerate().for_each(|(number, items)| {
        let packed = Packed::new(inputs, number);
        items.into_par_iter().enumerate().for_each(|(member, item)| each(number * group + member, &packed, item));
    });
}

/// Running sums over the keys met by the queries of a plane, divided by `e^top`: of weights, and of weighted values.
pub(super) struct State<'a> {
    tops: Vec<f32>,
    pub totals: Vec<f32>,
    pub sums: Vec<&'a mut [f32]>,
}

/// [`State`] of the queries of a part, by place. Rows of values have their padded width.
struct PartState<'a> {
    places: Places<'a>,
    tops: Vec<f32>,
    totals: Vec<f32>,
    sums: Aligned,
}

impl<'a> State<'a> {
    /// Initial state; `sums` are 0.
    pub(super) fn new(sums: Vec<&'a mut [f32]>) -> Self {
        Self { tops: vec![f32::NEG_INFINITY; sums.len()], totals: vec![0.0; sums.len()], sums }
    }

    /// Meets the keys of all parts.
    pub(super) fn meet(&mut self, inputs: Inputs, plane: usize, packed: &Packed, above: Option<Above>) {
        for part in 0..inputs.plan.parts.len() {
            self.join(&attend(inputs, part, plane, packed, above), inputs.sizes.value);
        }
    }

    /// Continues with the state of a part.
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

/// Attends within one part.
fn attend<'a>(inputs: Inputs<'a>, part: usize, plane: usize, packed: &Packed, above: Option<Above>) -> PartState<'a> {
    let value = inputs.sizes.value;
    let columns = padded(value);
    let scores = Scores::new(inputs, part, plane, packed);
    let places = scores.terms.places[0];
    let values = packed.values(inputs, part, plane);
    let count = places.len();
    let of_places = above.map(|above| places.numbers(above.thresholds));
    let above = above.zip(of_places.as_deref()).map(|(above, thresholds)| Above { thresholds, ..above });
    // A softpick never divides by less than 1.
    let lowest = if matches!(inputs.plan.normaliser, Normaliser::Softpick { .. }) { 0.0 } else { f32::NEG_INFINITY };
    let mut state = PartState { places, tops: vec![lowest; count], totals: vec![0.0; count], sums: Aligned::zeros(count * columns) };
    let arch = Arch::new();
    let of_tiles = state.sums.par_chunks_mut(TILE * columns).zip(state.tops.par_chunks_mut(TILE)).zip(state.totals.par_chunks_mut(TILE));
    let scratch = || (Aligned::zeros(TILE * TILE), Scratch::default());
    of_tiles.enumerate().for_each_init(scratch, |(weights, scratch), (queries_tile, ((sums, tops), totals))| {
        arch.dispatch(ForwardTile {
            value,
            dropout: inputs.plan.dropout.as_ref(),
            normaliser: inputs.plan.normaliser,
            least_visible: inputs.plan.least_visible,
            above: above.map(|above| above.from(queries_tile * TILE)),
            queries_tile,
            scores: &scores,
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
    /// Width of the values.
    value: usize,
    dropout: Option<&'a WeightDropout>,
    normaliser: Normaliser,
    least_visible: f32,
    /// Of an entmax.
    above: Option<Above<'a>>,
    queries_tile: usize,
    scores: &'a Scores<'a>,
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
        let Self { value, dropout, normaliser, least_visible, above, queries_tile, scores, values, weights, scratch, sums, tops, totals } =
            self;
        let (height, columns) = (tops.len(), padded(value));
        for tile in scores.met_by_queries(queries_tile) {
            let at = TileIndex { queries: queries_tile, keys: tile.index as usize, height };
            if scores.terms.are_beyond(at) {
                continue;
            }
            let is_triangle = scores.logits(simd, at, tile.visible, weights, scratch);
            match (normaliser.per_key(), normaliser) {
                (Some(each), _) => {
                    each.weigh(&mut weights[..height * TILE]);
                    tops.fill(0.0);
                }
                (None, Normaliser::Entmax { .. }) => {
                    if let Some(above) = above {
                        above.weigh(weights, totals);
                    }
                    tops.fill(0.0);
                }
                (None, Normaliser::Softpick { .. }) => meet(weights, (sums, columns), tops, totals, Some(least_visible)),
                (None, _) => meet(weights, (sums, columns), tops, totals, None),
            }
            if let Some(dropout) = dropout {
                let ([queries, keys], [row, head]) = (scores.terms.places, scores.place);
                for (place, weights) in weights.chunks_exact_mut(TILE).take(height).enumerate() {
                    let drawn = dropout.row(row, head, queries.index(at.queries * TILE + place));
                    keys.each(at.keys, |place, key| weights[place] *= drawn.factor(key));
                }
            }
            let values = Matrix { numbers: of_plane(values, at.keys, TILE * columns), stride: columns };
            let weights = Matrix { numbers: weights, stride: TILE };
            let triangle = if is_triangle { Sparsity::TriangleOfLeft } else { Sparsity::None };
            add_product(simd, [height, columns, TILE], triangle, weights, values, sums);
        }
    }
}

/// Replaces the logits of a tile by weights divided by `e^top`: exponentials, or for a softpick, given its least visible logit, its differences. Earlier sums
/// are divided accordingly.
#[inline(always)]
fn meet(logits: &mut [f32], (sums, columns): (&mut [f32], usize), tops: &mut [f32], totals: &mut [f32], of_softpick: Option<f32>) {
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
        totals[at] += match of_softpick {
            Some(least_visible) => picked(logits, top, least_visible),
            None => exponentials(logits, top),
        };
    }
}
