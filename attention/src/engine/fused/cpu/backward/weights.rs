//! Weights from logits, and gradients of logits from those of weights, tile by tile.

use super::super::terms::{Terms, TileIndex};
use super::group::PlaneSide;
use crate::contract::visibility::TILE;
use crate::engine::dropout::WeightDropout;
use crate::engine::entmax::power_and_slope;
use crate::engine::exponential::exp;
use crate::engine::per_key::PerKey;
use crate::engine::softpick::difference;

/// [`weigh`] for independently weighted keys.
#[inline(always)]
pub(super) fn weigh_each(
    each: PerKey,
    weights: &mut [f32],
    slopes: &mut [f32],
    terms: &Terms,
    dropout: Option<(&WeightDropout, [usize; 2])>,
    TileIndex { queries, keys, height }: TileIndex,
) {
    for (at, (weights, slopes)) in weights.chunks_exact_mut(TILE).zip(slopes.chunks_exact_mut(TILE)).take(height).enumerate() {
        let drawn = dropout.map(|(dropout, [row, head])| dropout.row(row, head, terms.places[0].index(queries * TILE + at)));
        each.differentiate(weights, slopes);
        let Some(drawn) = drawn else { continue };
        terms.places[1].each(keys, |place, key| {
            let factor = drawn.factor(key);
            weights[place] *= factor;
            slopes[place] *= factor;
        });
    }
}

/// Returns the weights after dropout and the gradients of the logits, from logits and the weight gradients after dropout.
#[inline(always)]
pub(super) fn weigh(
    weights: &mut [f32],
    slopes: &mut [f32],
    side: &PlaneSide,
    dropout: Option<(&WeightDropout, [usize; 2])>,
    TileIndex { queries, keys, height }: TileIndex,
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

/// [`weigh`] of a softpick.
#[inline(always)]
pub(super) fn pick(
    weights: &mut [f32],
    slopes: &mut [f32],
    side: &PlaneSide,
    dropout: Option<(&WeightDropout, [usize; 2])>,
    TileIndex { queries, keys, height }: TileIndex,
) {
    let terms = &side.terms;
    let rows = weights.chunks_exact_mut(TILE).zip(slopes.chunks_exact_mut(TILE)).take(height).enumerate();
    let mut factors = [1.0; TILE];
    for (at, (weights, slopes)) in rows {
        let place = queries * TILE + at;
        let (log_sum, dot) = (side.log_sum_exp[place], side.dots[place]);
        if let Some((dropout, [row, head])) = dropout {
            let drawn = dropout.row(row, head, terms.places[0].index(place));
            terms.places[1].each(keys, |place, key| factors[place] = drawn.factor(key));
        }
        let one = exp(-log_sum);
        for ((weight, slope), factor) in weights.iter_mut().zip(slopes).zip(&factors) {
            let score = *weight;
            let exponential = exp(score - log_sum);
            // Scores below 0 have no weight and reduce the sum; at 0 all slopes vanish.
            let by_weights = if score > 0.0 { *slope * factor - dot } else { dot };
            *slope = if score == 0.0 { 0.0 } else { exponential * by_weights };
            *weight = if score <= 0.0 { 0.0 } else { difference(score, one, exponential) * factor };
        }
    }
}

/// [`weigh`] of an entmax.
#[inline(always)]
pub(super) fn weigh_above(
    power: u32,
    weights: &mut [f32],
    slopes: &mut [f32],
    side: &PlaneSide,
    dropout: Option<(&WeightDropout, [usize; 2])>,
    TileIndex { queries, keys, height }: TileIndex,
) {
    let (terms, share) = (&side.terms, 1.0 / power as f32);
    let rows = weights.chunks_exact_mut(TILE).zip(slopes.chunks_exact_mut(TILE)).take(height).enumerate();
    let mut factors = [1.0; TILE];
    for (at, (weights, slopes)) in rows {
        let place = queries * TILE + at;
        let (threshold, mean) = (side.log_sum_exp[place], side.dots[place]);
        if let Some((dropout, [row, head])) = dropout {
            let drawn = dropout.row(row, head, terms.places[0].index(place));
            terms.places[1].each(keys, |place, key| factors[place] = drawn.factor(key));
        }
        for ((weight, slope), factor) in weights.iter_mut().zip(slopes).zip(&factors) {
            let [own, by_score] = power_and_slope(*weight * share - threshold, power);
            *slope = by_score * (*slope * factor - mean);
            *weight = own * factor;
        }
    }
}
