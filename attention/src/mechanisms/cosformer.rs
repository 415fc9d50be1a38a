//! cosFormer (Qin et al. 2022, section 3).
//!
//! `w_ij` is proportional to `relu(q_i) . relu(k_j) cos(pi (i - j) / 2M)`: linear attention whose weights decrease with distance. Because
//! `cos(a - b) = cos a cos b + sin a sin b`, the weight is a product of features of twice the width, `[relu(x) cos(pi i / 2M), relu(x) sin(pi i / 2M)]`, and
//! time stays linear in the length. `M` is the maximal length, up to which no weight is negative.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/cosformer.svg")]

use std::f64::consts::FRAC_PI_2;

use burn::tensor::activation::relu;

use crate::description::formula::distribution;
use crate::engine::recurrence::in_32_bits;
use crate::mechanisms::feature_attention::{FeatureAttention, Features, Side};
use crate::mechanisms::prelude::*;

/// Configuration of cosFormer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct CosformerConfig {
    /// Whether weights decrease with distance (default: yes).
    pub reweighting: bool,
}

impl Default for CosformerConfig {
    fn default() -> Self {
        Self { reweighting: true }
    }
}

/// Position-dependent features.
///
/// Should be created with [`CosformerConfig`].
#[derive(Module, Debug)]
pub struct CosineFeatures {
    max_length: usize,
    reweighting: bool,
}

impl Features for CosineFeatures {
    fn width(&self, d_head: usize) -> usize {
        if self.reweighting { 2 * d_head } else { d_head }
    }

    fn features(&self, x: Tensor<4>, _: Side, positions: &Positions) -> Tensor<4> {
        let x = relu(in_32_bits(x));
        if !self.reweighting {
            return x;
        }
        let length = x.dims()[2];
        let table = |of: fn(f64) -> f64| {
            let angle = |position: usize| FRAC_PI_2 * position as f64 / self.max_length as f64;
            let rows = positions.left_padding.as_deref().unwrap_or(&[0]);
            let positions = |padding: usize| (positions.start..positions.start + length).map(move |index| index.saturating_sub(padding));
            let numbers: Vec<f32> =
                rows.iter().flat_map(|&padding| positions(padding)).map(|position| of(angle(position)) as f32).collect();
            Tensor::<4>::from_data(TensorData::new(numbers, [rows.len(), 1, length, 1]), &x.device())
        };
        Tensor::cat(vec![x.clone() * table(f64::cos), x.clone() * table(f64::sin)], 3)
    }

    fn max_length(&self) -> Option<usize> {
        self.reweighting.then_some(self.max_length)
    }
}

impl Mechanism for CosformerConfig {
    type Module = AttentionOf<FeatureAttention<CosineFeatures>>;
    const NAME: &'static str = "cosformer";
    const CARD: Card = Card {
        variant: "Cosformer",
        description: "Linear attention whose positive features are reweighted by the cosine of the distance.",
        source: "Qin et al. 2022, section 3",
        links: &["https://arxiv.org/abs/2202.08791", "https://github.com/OpenNLPLab/cosFormer"],
        kind: Kind::Whole,
        cross: true,
        time: "n d D",
        state: "2 d D + 2 d",
        differences: &[
            "In the authors' code M is the length of the current sequences, so padding and decoding steps change all weights; here M is the maximal length.",
            "The authors' code divides by sums of at least 1e-6; here a row whose weights sum to 0 is 0, and all other rows are unchanged.",
            "Projections have no biases; the authors' code has biases.",
            "Dropout acts on the head outputs, since weights are not materialised.",
        ],
        ..Card::DEFAULT
    };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> FeatureAttention<CosineFeatures> {
        let features = CosineFeatures { max_length: spec.max_length, reweighting: self.reweighting };
        FeatureAttention::new(features, true, spec, key, device)
    }

    /// Qin et al. 2022, section 3.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().weights(move |query| {
            let q = query.projected("query", query.element());
            let max_length = query.spec().max_length as f64;
            let weight = |key: usize| {
                let k = query.projected("key", query.attended(key));
                let product: f64 = q.iter().zip(&k).map(|(q, k)| q.max(0.0) * k.max(0.0)).sum();
                let distance = query.position() as f64 - query.position_of(key) as f64;
                if self.reweighting { product * (FRAC_PI_2 * distance / max_length).cos() } else { product }
            };
            distribution((0..query.keys()).map(|key| if query.sees(key) { weight(key) } else { 0.0 }).collect())
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(4, "d^2")]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_fall_with_the_distance_and_are_not_negative_up_to_the_greatest_length() {
        let features = CosineFeatures { max_length: 10, reweighting: true };
        let x = || Tensor::<4>::ones([1, 1, 1, 1], &Device::flex());
        let weight = |i: usize, j: usize| {
            let at = Positions::from_start;
            (features.features(x(), Side::Queries, &at(i)) * features.features(x(), Side::Keys, &at(j))).sum().into_scalar::<f32>()
        };
        assert!((weight(3, 3) - 1.0).abs() < 1e-6);
        assert!((weight(9, 4) - weight(4, 9)).abs() < 1e-6, "it knows the distance alone");
        assert!((weight(7, 2) - (std::f32::consts::FRAC_PI_2 / 2.0).cos()).abs() < 1e-6);
        assert!((1..10).all(|distance| weight(distance, 0) < weight(distance - 1, 0) && weight(distance, 0) > 0.0));
    }
}
