//! Wang et al. 2020, in double precision: `softmax(q (E K)^T / sqrt(D)) (F V)`, one slot at a time.

use super::{LinformerConfig, Sharing};
use crate::description::array::Array;
use crate::description::formula::{Formula, Query, dot, softmax};
use crate::mechanisms::sequence_projection::ProjectionKind;

pub(super) fn of(config: &LinformerConfig) -> Formula<'_> {
    Formula::default().head(move |query| {
        let length = query.spec().max_length;
        let rank = config.rank.unwrap_or((length / 4).clamp(length.min(2), 64));
        let window = length.div_ceil(rank);
        let slots = if config.projection == ProjectionKind::Linear { rank } else { length.div_ceil(window) };
        let name = if config.trainable { "matrix" } else { "frozen_matrix" };
        let of_values = match config.sharing {
            Sharing::None | Sharing::Headwise => "value_slots",
            Sharing::KeyValue | Sharing::Layerwise => "key_slots",
        };
        let slot = |slots: &str, map: &str, slot: usize| match config.projection {
            ProjectionKind::Linear => Some(mixed(query, query.parameter(&format!("{slots}.{name}")), map, slot)),
            ProjectionKind::Convolution => convolved(query, query.parameter(&format!("{slots}.{name}")), map, window, slot),
            ProjectionKind::MeanPooling => pooled(query, map, window, slot, |numbers| numbers.iter().sum::<f64>() / numbers.len() as f64),
            ProjectionKind::MaxPooling => {
                pooled(query, map, window, slot, |numbers| numbers.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b)))
            }
        };
        let q = query.projected("query", query.element());
        let scores: Vec<_> = (0..slots).map(|at| slot("key_slots", "key", at).map(|key| dot(&q, &key) / (q.len() as f64).sqrt())).collect();
        let mut head = vec![0.0; q.len()];
        for (at, weight) in softmax(&scores).into_iter().enumerate() {
            if let Some(value) = slot(of_values, "value", at) {
                head.iter_mut().zip(value).for_each(|(out, v)| *out += weight * v);
            }
        }
        head
    })
}

/// Visible keys, with their projections.
fn seen<'q>(query: &'q Query, map: &'q str) -> impl Iterator<Item = (usize, Vec<f64>)> + 'q {
    let keys = (0..query.keys()).filter(move |&key| query.sees(key));
    keys.map(move |key| (query.position_of(key), query.projected(map, query.attended(key))))
}

/// Matrix index of a head: all heads can share one.
fn matrix(query: &Query, matrices: &Array) -> usize {
    if matrices.shape[0] > 1 { query.head } else { 0 }
}

/// A slot of a linear projection.
fn mixed(query: &Query, mix: &Array, map: &str, slot: usize) -> Vec<f64> {
    let mut sum = vec![0.0; query.spec().d_head()];
    for (position, x) in seen(query, map) {
        let share = mix.at(&[matrix(query, mix), slot, position]);
        sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += share * x);
    }
    sum
}

/// A slot of a convolution, if its window shows a position.
fn convolved(query: &Query, kernel: &Array, map: &str, window: usize, slot: usize) -> Option<Vec<f64>> {
    let width = query.spec().d_head();
    let members: Vec<_> = seen(query, map).filter(|(position, _)| position / window == slot).collect();
    let mut sum = vec![0.0; width];
    for (position, x) in &members {
        for (channel, x) in x.iter().enumerate() {
            let row = position % window * width + channel;
            sum.iter_mut().enumerate().for_each(|(out, sum)| *sum += x * kernel.at(&[matrix(query, kernel), row, out]));
        }
    }
    (!members.is_empty()).then_some(sum)
}

/// A slot of pooling, channel by channel, if its window shows a position.
fn pooled(query: &Query, map: &str, window: usize, slot: usize, pool: impl Fn(&[f64]) -> f64) -> Option<Vec<f64>> {
    let members: Vec<_> = seen(query, map).filter(|(position, _)| position / window == slot).map(|(_, x)| x).collect();
    let channel = |channel: usize| pool(&members.iter().map(|x| x[channel]).collect::<Vec<_>>());
    (!members.is_empty()).then(|| (0..query.spec().d_head()).map(channel).collect())
}
