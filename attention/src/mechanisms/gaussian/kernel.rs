//! Gaussian weights and logits in closed form.

use super::{GaussianExecution, Normalisation};
use crate::engine::{GaussianShape, GaussianWeights};
use crate::mechanisms::prelude::*;

/// The closed form of the weights.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) offsets: Vec<f64>,
    pub(super) deviations: Vec<f64>,
    pub(super) ratio: f64,
    pub(super) cross: bool,
    pub(super) normalisation: Normalisation,
    pub(super) execution: GaussianExecution,
    pub(super) window: usize,
}

impl Kernel {
    pub(super) fn centre(&self, head: usize, position: usize) -> f64 {
        self.ratio * position as f64 + self.offsets[head]
    }

    /// Weights of keys in one head. The limit σ → 0 keeps only the nearest key, with weight 1.
    pub(super) fn gaussian(&self, head: usize) -> GaussianShape {
        match self.execution {
            GaussianExecution::Index => GaussianShape { deviation: f64::INFINITY, window: 0.0 },
            GaussianExecution::Banded => GaussianShape { deviation: self.deviations[head], window: self.window as f64 },
            GaussianExecution::Dense => GaussianShape { deviation: self.deviations[head], window: f64::INFINITY },
        }
    }

    /// Weights of a span that begins with the first key.
    pub(super) fn gaussians(&self, heads: usize, span: Span, positions: &Positions) -> GaussianWeights {
        let queries = &(span.query_start..span.query_start + span.queries);
        let centres = self.query_shifts(positions).into_iter().flat_map(|shift| {
            let of_head = move |head| queries.clone().map(move |i| self.centre(head, i.saturating_sub(shift)));
            (0..heads).flat_map(of_head).collect::<Vec<_>>()
        });
        let renormalise = self.normalisation == Normalisation::Renormalise;
        GaussianWeights::new((0..heads).map(|head| self.gaussian(head)).collect(), span.queries, centres.collect(), renormalise)
    }

    /// Log densities of a span up to a constant per head, `[B|1, H, Q, K]`.
    fn exponents(&self, heads: usize, span: Span, positions: &Positions, device: &Device) -> Tensor<4> {
        let rows = self.query_shifts(positions);
        let mut values = Vec::with_capacity(rows.len() * heads * span.queries * span.keys);
        for shift in &rows {
            for head in 0..heads {
                for i in span.query_start..span.query_start + span.queries {
                    let (centre, deviation) = (self.centre(head, i.saturating_sub(*shift)), self.deviations[head]);
                    let keys = span.key_start..span.key_start + span.keys;
                    values.extend(keys.map(|j| (-0.5 * ((j as f64 - centre) / deviation).powi(2)) as f32));
                }
            }
        }
        Tensor::from_data(TensorData::new(values, [rows.len(), heads, span.queries, span.keys]), device)
    }

    /// Offset of query indices from positions, per batch row: in cross-attention a left-padded row counts queries from its first real one. In self-attention
    /// queries and keys share the padding, so the shift cancels.
    pub(super) fn query_shifts(&self, positions: &Positions) -> Vec<usize> {
        match &positions.left_padding {
            Some(counts) if self.cross => counts.to_vec(),
            _ => vec![0],
        }
    }

    /// Half-width of the band of keys for one query, around the rounded centre.
    pub(super) fn half_width(&self) -> usize {
        if self.execution == GaussianExecution::Index { 0 } else { self.window }
    }
}

/// Log Gaussian density, up to a constant per head.
///
/// Should be created with [`GaussianConfig::init_logits`](super::GaussianConfig::init_logits).
#[derive(Module, Debug)]
pub struct GaussianLogits {
    #[module(skip)]
    pub(super) kernel: Kernel,
    pub(super) heads: usize,
}

impl Logits for GaussianLogits {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: true, max_length: None, remembers_keys: false, auxiliary_losses: false }
    }

    fn terms(&self, query: Tensor<3>, _keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        LogitTerms::bias(self.kernel.exponents(self.heads, span, positions, &query.device()).cast(query.dtype()))
    }

    fn multiplications(&self, _d_head: f64) -> f64 {
        1.0
    }
}
