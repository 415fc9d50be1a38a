//! You, Sun and Iyyer 2020: `N(j; γ i + o, σ²)`, in double precision.

use std::f64::consts::PI;

use super::{GaussianConfig, GaussianExecution, Normalisation};
use crate::contract::layer_spec::Role;
use crate::description::formula::{Formula, Query, distribution};

/// Densities as weights; as scores, their logarithms.
pub(super) fn of(config: &GaussianConfig) -> Formula<'_> {
    let weights = |query: &Query| {
        let density = |key| if query.sees(key) { density(config, query, key) } else { 0.0 };
        let densities = (0..query.keys()).map(density).collect();
        if config.normalisation == Normalisation::Renormalise { distribution(densities) } else { densities }
    };
    Formula::default().logit(|query, key| density(config, query, key).ln()).weights(weights)
}

fn density(config: &GaussianConfig, query: &Query, key: usize) -> f64 {
    let role = query.spec().role;
    let offset = match &config.offsets {
        Some(offsets) => number(offsets, query),
        None if role == Role::Decoder => [-1.0, 0.0][query.head % 2],
        None => [-1.0, 1.0][query.head % 2],
    };
    let deviation = number(&config.deviations, query);
    // In self-attention queries and keys share the padding, so the distance is unchanged.
    let (i, ratio) = if role == Role::Cross { (query.position(), config.length_ratio) } else { (query.index, 1.0) };
    let centre = ratio * i as f64 + offset;
    let density = (-(key as f64 - centre).powi(2) / (2.0 * deviation * deviation)).exp() / (deviation * (2.0 * PI).sqrt());
    let steps = (key as f64 - centre.round()).abs();
    match config.execution {
        GaussianExecution::Dense => density,
        GaussianExecution::Banded if steps <= config.window as f64 => density,
        GaussianExecution::Index if steps == 0.0 => 1.0,
        _ => 0.0,
    }
}

/// Number for the head from a list: one for all, a table of layers and heads, one per head, one per layer, or repeated over the heads.
fn number(list: &[f64], query: &Query) -> f64 {
    let (place, head) = (query.spec(), query.head);
    match list.len() {
        1 => list[0],
        count if count == place.heads * place.layers => list[place.layer * place.heads + head],
        count if count == place.heads => list[head],
        count if count == place.layers => list[place.layer],
        count => list[head % count],
    }
}
