//! Linear attention (Katharopoulos et al. 2020, section 3.2).
//!
//! `w_ij = phi(q_i) . phi(k_j) / sum_l phi(q_i) . phi(k_l)` with `phi(x) = elu(x) + 1`: products of positive features replace exponentials of products, and the
//! scores are not scaled. The sums over keys do not depend on the query, so time is linear in the length. Causal attention carries a state of fixed size
//! (section 3.3).
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/linear-attention.svg")]

use burn::tensor::activation::relu;

use crate::description::formula::{distribution, log_sum_of_products, softmax};
use crate::engine::elu::elu_plus_one;
use crate::engine::recurrence::in_32_bits;
use crate::mechanisms::feature_attention::{FeatureAttention, Features, OfLogarithms, Side};
use crate::mechanisms::prelude::*;

/// Channel-wise feature map of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureMap {
    /// `elu(x) + 1`: `x + 1` where `x > 0`, otherwise `e^x`.
    #[default]
    Elu,
    /// `max(x, 0)`.
    Relu,
}

/// Configuration of linear attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct LinearAttentionConfig {
    /// Feature map of queries and keys (default: `elu(x) + 1`).
    pub feature_map: FeatureMap,
    /// Whether the weights of a row are divided by their sum (default: yes).
    pub normalise: bool,
}

impl Default for LinearAttentionConfig {
    fn default() -> Self {
        Self { feature_map: FeatureMap::Elu, normalise: true }
    }
}

/// Channel-wise features.
///
/// Should be created with [`LinearAttentionConfig`].
#[derive(Module, Debug)]
pub struct ChannelFeatures {
    #[module(skip)]
    map: FeatureMap,
}

impl Features for ChannelFeatures {
    fn width(&self, d_head: usize) -> usize {
        d_head
    }

    fn features(&self, x: Tensor<4>, _: Side, _: &Positions) -> Tensor<4> {
        match self.map {
            FeatureMap::Elu => elu_plus_one(x),
            FeatureMap::Relu => relu(x),
        }
    }

    fn logarithms(&self) -> Option<OfLogarithms<'_>> {
        // One of the terms is constant: ln(x + 1) or 0 + x.
        let of = |x: Tensor<4>, _: Side, _: &Positions| {
            let x = in_32_bits(x);
            relu(x.clone()).log1p() + x.clamp_max(0.0)
        };
        (self.map == FeatureMap::Elu).then(|| Box::new(of) as OfLogarithms)
    }
}

impl Mechanism for LinearAttentionConfig {
    type Module = AttentionOf<FeatureAttention<ChannelFeatures>>;
    const NAME: &'static str = "linear-attention";
    const CARD: Card = Card {
        variant: "LinearAttention",
        description: "Weighs keys by products of positive feature maps, in linear time.",
        source: "Katharopoulos et al. 2020, section 3.2",
        links: &["https://arxiv.org/abs/2006.16236", "https://github.com/idiap/fast-transformers"],
        kind: Kind::Whole,
        cross: true,
        time: "n d D",
        state: "d D + d",
        differences: &[
            "The authors' code adds 1e-6 to the sums of weights; here a row whose weights sum to 0 is 0, and all other rows are unchanged.",
            "In the authors' code projections have biases; here they have none, as in the other mechanisms.",
            "Dropout acts on the head outputs, since weights are not materialised; the authors' code applies none there.",
        ],
        ..Card::DEFAULT
    };

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> FeatureAttention<ChannelFeatures> {
        FeatureAttention::new(ChannelFeatures { map: self.feature_map }, self.normalise, spec, key, device)
    }

    /// Katharopoulos et al. 2020, equations 5 and 7.
    fn formula(&self) -> Option<Formula<'_>> {
        // Logarithms, since exponentials of large numbers overflow double precision too.
        let logarithms = |x: Vec<f64>| x.into_iter().map(|x| if x > 0.0 { x.ln_1p() } else { x }).collect::<Vec<f64>>();
        if self.normalise && self.feature_map == FeatureMap::Elu {
            return Some(Formula::default().weights(move |query| {
                let q = logarithms(query.projected("query", query.element()));
                let similarity = |key: usize| log_sum_of_products(&q, &logarithms(query.projected("key", query.attended(key))));
                softmax(&(0..query.keys()).map(|key| query.sees(key).then(|| similarity(key))).collect::<Vec<_>>())
            }));
        }
        let feature = |x: &f64| match self.feature_map {
            FeatureMap::Elu if *x > 0.0 => x + 1.0,
            FeatureMap::Elu => x.exp(),
            FeatureMap::Relu => x.max(0.0),
        };
        Some(Formula::default().weights(move |query| {
            let q = query.projected("query", query.element());
            let similarity = |key: usize| {
                let k = query.projected("key", query.attended(key));
                q.iter().zip(&k).map(|(q, k)| feature(q) * feature(k)).sum::<f64>()
            };
            let weights = (0..query.keys()).map(|key| if query.sees(key) { similarity(key) } else { 0.0 }).collect();
            if self.normalise { distribution(weights) } else { weights }
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
    fn features_and_their_slopes_are_those_of_the_elu_plus_one() {
        let numbers = [-30.0f32, -1.5, -0.25, 0.0, 0.25, 2.0];
        let x = Tensor::<1>::from_data(numbers, &Device::flex().autodiff()).require_grad();
        let features =
            ChannelFeatures { map: FeatureMap::Elu }.features(x.clone().reshape([1, 1, 1, 6]), Side::Keys, &Positions::default());
        let found: Vec<f32> = features.clone().into_data().try_to_vec().unwrap();
        let slopes: Vec<f32> = x.grad(&features.sum().backward()).unwrap().into_data().try_to_vec().unwrap();
        for ((x, found), slope) in numbers.into_iter().zip(found).zip(slopes) {
            let (expected, expected_slope) = if x > 0.0 { (x + 1.0, 1.0) } else { (x.exp(), x.exp()) };
            assert!((found - expected).abs() < 1e-6 && (slope - expected_slope).abs() < 1e-6, "at {x}: {found}, slope {slope}");
        }
    }
}
