//! Performer: attention by positive random features, FAVOR+ (Choromanski et al. 2021, sections 2.2 to 2.4).
//!
//! `phi(x)_r = exp(w_r . x' - |x'|^2 / 2) / sqrt(F)` with `x' = x / D^(1/4)` and `F` normal vectors `w_r`. The expectation of `phi(q) . phi(k)` is
//! `exp(q . k / sqrt(D))`, the unnormalised weight of dot-product attention. So the mechanism estimates dot-product attention in time linear in the length.
//! Directions that are orthogonal in blocks of `D` reduce the variance compared with independent ones. With `relu` the features are `relu(w_r . x') + 1/1000`,
//! which do not estimate a softmax.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/performer.svg")]

use burn::module::RunningState;
use burn::tensor::activation::relu;

use crate::description::formula::{log_sum_of_products, softmax};
use crate::engine::linear::projected;
use crate::engine::recurrence::in_32_bits;
use crate::mechanisms::feature_attention::{FeatureAttention, Features, OfLogarithms, Side};
use crate::mechanisms::prelude::*;

/// Constant added to features that may all be 0.
const FLOOR: f64 = 1e-3;

/// Feature map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RandomFeatureKind {
    /// `exp(w . x' - |x'|^2 / 2)`, which estimate a softmax.
    #[default]
    Softmax,
    /// `relu(w . x') + 1/1000` (section 2.2, generalised attention).
    Relu,
}

/// Source of the directions of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// Drawn once, and saved with the model.
    #[default]
    Fixed,
    /// Drawn anew for each call with a random key, as in training; otherwise the saved directions.
    PerCall,
}

/// Configuration of Performer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct PerformerConfig {
    /// Random features per head, `F`, at least 1 (default: `D ln D` rounded down, for heads of width `D`).
    pub features: Option<usize>,
    /// Feature map (default: the estimate of a softmax).
    pub kind: RandomFeatureKind,
    /// Whether directions are orthogonal in blocks of `D` (default: yes).
    pub orthogonal: bool,
    /// Source of the directions (default: fixed).
    pub directions: Directions,
}

impl Default for PerformerConfig {
    fn default() -> Self {
        Self { features: None, kind: RandomFeatureKind::Softmax, orthogonal: true, directions: Directions::Fixed }
    }
}

/// Positive random features.
///
/// Should be created with [`PerformerConfig`].
#[derive(Module, Debug)]
pub struct RandomFeatures {
    /// Directions `w`, shared by the heads, `[F, D]`, not trained.
    pub directions: RunningState<Tensor<2>>,
    #[module(skip)]
    kind: RandomFeatureKind,
    orthogonal: bool,
    draws: bool,
}

impl PerformerConfig {
    /// Number of features for this head width.
    fn count(&self, d_head: usize) -> usize {
        self.features.unwrap_or_else(|| ((d_head as f64 * (d_head as f64).ln()) as usize).max(1))
    }
}

/// Normal directions `[F, D]`. Orthogonal directions are rows of random rotations with the lengths of independent ones.
fn drawn([count, width]: [usize; 2], orthogonal: bool, key: &RandomKey, device: &Device) -> Tensor<2> {
    let rows = Init::Normal(1.0).values(count * width, key);
    let rows =
        if orthogonal { orthogonalised(&rows, width, &Init::Normal(1.0).values(count * width, &key.named("lengths"))) } else { rows };
    Tensor::from_data(TensorData::new(rows, [count, width]), device)
}

/// Gram-Schmidt process: makes each row of width `width` orthogonal to the earlier rows of its block and scales it to its entry of `lengths`.
fn orthogonalised(rows: &[f32], width: usize, lengths: &[f32]) -> Vec<f32> {
    let length = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>().sqrt();
    let in_64_bits = |row: &[f32]| -> Vec<f64> { row.iter().map(|&x| f64::from(x)).collect() };
    let mut result = Vec::with_capacity(rows.len());
    for block in rows.chunks(width * width).zip(lengths.chunks(width * width)) {
        let mut units: Vec<Vec<f64>> = Vec::with_capacity(width);
        for (row, of_length) in block.0.chunks(width).zip(block.1.chunks(width)) {
            let mut row = in_64_bits(row);
            // Twice, since rounding errors of a nearly dependent row would not be orthogonal.
            for _ in 0..2 {
                for unit in &units {
                    let along = dot(&row, unit);
                    row.iter_mut().zip(unit).for_each(|(x, unit)| *x -= along * unit);
                }
            }
            let (own, wanted) = (length(&row), length(&in_64_bits(of_length)));
            result.extend(row.iter().map(|x| (x / own * wanted) as f32));
            units.push(row.into_iter().map(|x| x / own).collect());
        }
    }
    result
}

impl RandomFeatures {
    /// `w . x'` `[B, H, N, F]` and `|x'|^2` `[B, H, N, 1]` of `x` `[B, H, N, D]`.
    fn projected(&self, x: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let directions = in_32_bits(self.directions.value());
        let [count, width] = directions.dims();
        let x = in_32_bits(x) * (width as f64).powf(-0.25);
        let [batch, heads, length, _] = x.dims();
        // One product: a decoding step has one row per head.
        let rows = x.clone().reshape([batch * heads * length, width]);
        let along = projected(rows, directions.swap_dims(0, 1)).reshape([batch, heads, length, count]);
        (along, x.square().sum_dim(3))
    }

    /// Constant subtracted from key exponents: they are at most `|w|^2 / 2`, about `D / 2`, and exponentials above 88 overflow 32 bits.
    fn offset(&self) -> f64 {
        (self.directions.value().dims()[1] as f64 / 2.0 - 32.0).max(0.0)
    }
}

impl Features for RandomFeatures {
    fn width(&self, _: usize) -> usize {
        self.directions.value().dims()[0]
    }

    fn features(&self, x: Tensor<4>, side: Side, _: &Positions) -> Tensor<4> {
        let (along, squares) = self.projected(x);
        let [.., count] = along.dims();
        if self.kind == RandomFeatureKind::Relu {
            return (relu(along) + FLOOR) * (count as f64).powf(-0.5);
        }
        let exponents = along - squares * 0.5;
        let exponents = match side {
            // Shifts the maximum of a query to 0, without gradient: a factor of the whole row.
            Side::Queries => {
                let greatest = exponents.clone().detach().max_dim(3);
                exponents - greatest
            }
            Side::Keys => exponents - self.offset(),
        };
        exponents.exp() * (count as f64).powf(-0.5)
    }

    fn logarithms(&self) -> Option<OfLogarithms<'_>> {
        let of = move |x: Tensor<4>, side: Side, _: &Positions| {
            let (along, squares) = self.projected(x);
            let [.., count] = along.dims();
            match side {
                // The square of a query is a factor of the whole row.
                Side::Queries => along,
                Side::Keys => along - squares * 0.5 - (self.offset() + 0.5 * (count as f64).ln()),
            }
        };
        (self.kind == RandomFeatureKind::Softmax).then(|| Box::new(of) as OfLogarithms)
    }

    fn redrawn(&self, key: &RandomKey) -> Option<Self> {
        let directions = self.directions.value();
        let drawn = || drawn(directions.dims(), self.orthogonal, key, &directions.device());
        self.draws.then(|| Self { directions: RunningState::new(drawn()), ..self.clone() })
    }

    fn draws(&self) -> bool {
        self.draws
    }

    fn multiplications(&self, d_head: usize) -> usize {
        self.width(d_head) * d_head
    }
}

impl Mechanism for PerformerConfig {
    type Module = AttentionOf<FeatureAttention<RandomFeatures>>;
    const NAME: &'static str = "performer";
    const CARD: Card = Card {
        variant: "Performer",
        description: "Estimates softmax attention by random features, in linear time.",
        source: "Choromanski et al. 2021, sections 2.2 to 2.4",
        links: &[
            "https://arxiv.org/abs/2009.14794",
            "https://github.com/google-research/google-research/tree/master/performer/fast_attention",
        ],
        kind: Kind::Whole,
        cross: true,
        time: "n F d",
        state: "F d + F H",
        letters: &[("F", "random features of a head, option `features`")],
        differences: &[
            "The authors' code subtracts the largest exponent of all keys and adds 1e-4 to features. That leaks later positions and is impossible in decoding steps; here a constant is subtracted from key exponents.",
            "Features outside the range of 32-bit floats are divided by their running maximum, which is independent of later keys.",
            "The paper also redraws directions at intervals during training; here they are drawn once, or for every training call.",
            "Dropout acts on the head outputs, since weights are not materialised; the authors' code applies none there.",
        ],
        tensors: &[("features.directions", "directions of the random features, which heads share [features, d_head]")],
        ..Card::DEFAULT
    };

    /// # Errors
    /// If `features` is 0.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        spec.check(Self::NAME).at_least_one("features", self.count(spec.d_head()))
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> FeatureAttention<RandomFeatures> {
        let shape = [self.count(spec.d_head()), spec.d_head()];
        let features = RandomFeatures {
            directions: RunningState::new(drawn(shape, self.orthogonal, &key.named("directions"), device)),
            kind: self.kind,
            orthogonal: self.orthogonal,
            draws: self.directions == Directions::PerCall,
        };
        FeatureAttention::new(features, true, spec, key, device)
    }

    /// Choromanski et al. 2021, section 2.3, with the drawn directions.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().weights(move |query| {
            let directions = query.parameter("features.directions");
            let [count, width] = [directions.shape[0], directions.shape[1]];
            // Logarithms, since exponentials of large numbers overflow double precision too.
            let features = |x: Vec<f64>| -> Vec<f64> {
                let x: Vec<f64> = x.iter().map(|x| x / (width as f64).powf(0.25)).collect();
                let half = dot(&x, &x) / 2.0;
                let along = |row: usize| (0..width).map(|channel| directions.at(&[row, channel]) * x[channel]).sum::<f64>();
                let feature = |row: usize| match self.kind {
                    RandomFeatureKind::Softmax => along(row) - half,
                    RandomFeatureKind::Relu => (along(row).max(0.0) + FLOOR).ln(),
                };
                (0..count).map(feature).collect()
            };
            let asked = features(query.projected("query", query.element()));
            let weight = |key: usize| log_sum_of_products(&asked, &features(query.projected("key", query.attended(key))));
            softmax(&(0..query.keys()).map(|key| query.sees(key).then(|| weight(key))).collect::<Vec<_>>())
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(4, "d^2")]).plus(ParameterFormula::fixed(&[(1, "F D")])))
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        vec![("F", self.count(spec.d_head()))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 8;

    fn features(count: usize, orthogonal: bool, seed: u64) -> RandomFeatures {
        let directions = drawn([count, WIDTH], orthogonal, &RandomKey::from_seed(seed), &Device::flex());
        RandomFeatures { directions: RunningState::new(directions), kind: RandomFeatureKind::Softmax, orthogonal, draws: false }
    }

    /// A query and a key.
    fn vectors() -> [Vec<f32>; 2] {
        [1, 2].map(|seed| Init::Normal(0.8).values(WIDTH, &RandomKey::from_seed(seed)))
    }

    /// Estimate of a weight from one draw. Both vectors are treated as keys, whose exponents are not shifted at this width.
    fn estimate(features: &RandomFeatures) -> f64 {
        let [query, key] = vectors().map(|x| {
            let x = Tensor::<1>::from_floats(x.as_slice(), &Device::flex()).reshape([1, 1, 1, WIDTH]);
            features.features(x, Side::Keys, &Positions::default())
        });
        f64::from((query * key).sum().into_scalar::<f32>())
    }

    #[test]
    fn products_of_features_estimate_exponentials_and_orthogonal_directions_do_it_better() {
        let [query, key] = vectors().map(|x| x.into_iter().map(f64::from).collect::<Vec<_>>());
        let exact = (dot(&query, &key) / (WIDTH as f64).sqrt()).exp();
        let draws = 8000;
        let [independent, orthogonal] = [false, true].map(|orthogonal| {
            let estimates: Vec<f64> = (0..draws).map(|seed| estimate(&features(2 * WIDTH, orthogonal, seed))).collect();
            let mean = estimates.iter().sum::<f64>() / draws as f64;
            let variance = estimates.iter().map(|found| (found - mean).powi(2)).sum::<f64>() / (draws - 1) as f64;
            let error = (variance / draws as f64).sqrt();
            assert!((mean - exact).abs() < 4.0 * error && error < 0.03 * exact, "{mean} for {exact}, within {error}");
            variance
        });
        assert!(orthogonal < 0.9 * independent, "variance {orthogonal} of orthogonal directions, {independent} of independent ones");
    }

    #[test]
    fn directions_are_orthogonal_in_blocks_and_as_long_as_normal_ones() {
        let rows: Vec<f32> = features(2 * WIDTH + 3, true, 1).directions.value().into_data().try_to_vec().unwrap();
        let rows: Vec<Vec<f64>> = rows.chunks(WIDTH).map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect();
        assert_eq!(rows.len(), 2 * WIDTH + 3);
        for block in rows.chunks(WIDTH) {
            for (index, row) in block.iter().enumerate() {
                assert!(block[..index].iter().all(|other| dot(row, other).abs() < 1e-5));
            }
        }
        let squares = |rows: &[Vec<f64>]| rows.iter().map(|row| dot(row, row)).sum::<f64>() / rows.len() as f64;
        let many: Vec<f32> = features(800, true, 2).directions.value().into_data().try_to_vec().unwrap();
        let many: Vec<Vec<f64>> = many.chunks(WIDTH).map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect();
        assert!((squares(&many) - WIDTH as f64).abs() < 0.5, "mean square length {}", squares(&many));
    }

    #[test]
    fn wide_heads_do_not_overflow() {
        let spec = LayerSpec::new(crate::contract::layer_spec::Role::Encoder, 256, 1);
        let features = PerformerConfig::default().init(&spec, &RandomKey::from_seed(1), &Device::flex()).features;
        let directions: Vec<f32> = features.directions.value().narrow(0, 0, 1).into_data().try_to_vec().unwrap();
        // The input with the largest possible exponent: the direction itself.
        let x = Tensor::<1>::from_floats(directions.as_slice(), &Device::flex()).reshape([1, 1, 1, 256]) * 4.0;
        let greatest: f32 = features.features(x, Side::Keys, &Positions::default()).max().into_scalar();
        assert!(greatest.is_finite() && greatest > 1.0, "{greatest}");
    }

    #[test]
    fn calls_with_a_key_draw_anew_where_they_are_to() {
        let spec = LayerSpec::new(crate::contract::layer_spec::Role::Encoder, 16, 2);
        let init = |directions| {
            let config = PerformerConfig::default().with_directions(directions);
            config.init(&spec, &RandomKey::from_seed(1), &Device::flex()).features
        };
        let key = RandomKey::from_seed(7);
        assert!(init(Directions::Fixed).redrawn(&key).is_none());
        let features = init(Directions::PerCall);
        let redrawn = |key: &RandomKey| features.redrawn(key).unwrap().directions.value().into_data();
        assert_eq!(redrawn(&key), redrawn(&key));
        assert_ne!(redrawn(&key), redrawn(&key.named("other")));
        assert_ne!(redrawn(&key), features.directions.value().into_data());
    }
}
