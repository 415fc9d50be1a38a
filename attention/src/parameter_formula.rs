//! How many parameters a mechanism has, as a formula in its sizes.
//!
//! Letters: `d` = `d_model`, `H` heads, `D` = `d / H`, `L` maximal length, and the options that a size follows from: `k` the rank, `a` and `b` the
//! factors of the Factorized Dense Synthesizer, `S` the longest distance, `t` the taps of a kernel, `r` the rounds and `c` half the buckets of LSH attention.

use std::fmt;

use crate::any::AttentionConfig;
use crate::mechanisms::adaptive_span::SpanKind;
use crate::mechanisms::linformer::Sharing;
use crate::mechanisms::lsh::BucketCount;
use crate::mechanisms::mixture::MixtureWeights;
use crate::placement::Placement;

/// Numbers of parameters of one attention, as sums of terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterFormula {
    /// Parameters that training changes.
    pub trained: TermSum,
    /// Parameters that stay as they were drawn.
    pub fixed: TermSum,
}

/// Numbers of parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParameterCount {
    /// Of those that training changes.
    pub trained: u128,
    /// Of those that stay as they were drawn.
    pub fixed: u128,
}

/// A sum such as `4 d^2 + H L^2`: products of sizes with their coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TermSum(Vec<(usize, &'static str)>);

impl TermSum {
    fn of(terms: &[(usize, &'static str)]) -> Self {
        Self(terms.to_vec())
    }

    fn add(&mut self, other: Self) {
        for (coefficient, product) in other.0 {
            match self.0.iter_mut().find(|(_, known)| *known == product) {
                Some((sum, _)) => *sum += coefficient,
                None => self.0.push((coefficient, product)),
            }
        }
    }

    /// The value for these values of the letters, at most the greatest number there is; a letter without a value counts as 1.
    fn value(&self, letters: &[(&'static str, usize)]) -> u128 {
        let factor = |factor: &str| {
            let (base, power) = factor.split_once('^').unwrap_or((factor, "1"));
            let value = letters.iter().find(|(letter, _)| *letter == base).map_or(1, |(_, value)| *value as u128);
            value.saturating_pow(power.parse().unwrap_or(1))
        };
        let term = |&(coefficient, product): &(usize, &str)| product.split(' ').map(factor).fold(coefficient as u128, u128::saturating_mul);
        self.0.iter().map(term).fold(0, u128::saturating_add)
    }

    /// Whether there are no terms.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for TermSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("0");
        }
        for (index, &(coefficient, product)) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { " + " } else { "" })?;
            match coefficient {
                1 => f.write_str(product)?,
                _ => write!(f, "{coefficient} {product}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for ParameterFormula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.trained)?;
        if self.fixed.is_empty() { Ok(()) } else { write!(f, ", fixed {}", self.fixed) }
    }
}

impl ParameterFormula {
    fn trained(terms: &[(usize, &'static str)]) -> Self {
        Self { trained: TermSum::of(terms), fixed: TermSum::default() }
    }

    fn plus(mut self, other: Self) -> Self {
        self.trained.add(other.trained);
        self.fixed.add(other.fixed);
        self
    }
}

impl AttentionConfig {
    /// How many parameters the attention has; `None` for a family that is not in the list.
    pub fn parameter_formula(&self) -> Option<ParameterFormula> {
        let projections = ParameterFormula::trained(&[(2, "d^2")]);
        let trained = ParameterFormula::trained;
        match self {
            Self::Gaussian(_) => Some(projections),
            Self::Lsh(_) => Some(ParameterFormula { fixed: TermSum::of(&[(1, "r d c")]), ..trained(&[(3, "d^2")]) }),
            Self::Linformer(config) => {
                let matrices = TermSum::of(&[match config.sharing {
                    Sharing::None => (2, "H k L"),
                    Sharing::Headwise => (2, "k L"),
                    Sharing::KeyValue | Sharing::Layerwise => (1, "k L"),
                }]);
                let (own, fixed) = if config.trainable { (matrices, TermSum::default()) } else { (TermSum::default(), matrices) };
                Some(trained(&[(4, "d^2")]).plus(ParameterFormula { trained: own, fixed }))
            }
            Self::LightweightConv(config) => Some(convolution(config.glu).plus(trained(&[(1, "H t")]))),
            Self::DynamicConv(config) => {
                let bias = if config.kernel_bias { trained(&[(1, "H t")]) } else { ParameterFormula::default() };
                Some(convolution(config.glu).plus(trained(&[(1, "d H t")])).plus(bias))
            }
            _ => {
                let biases = if self.projections_have_biases() { trained(&[(2, "d")]) } else { ParameterFormula::default() };
                Some(projections.plus(self.logits_formula()?).plus(biases))
            }
        }
    }

    /// Whether the projections around the logits have biases.
    fn projections_have_biases(&self) -> bool {
        match self {
            Self::DotProduct(config) => config.bias,
            Self::Mixture(config) => config.members.iter().any(Self::projections_have_biases),
            Self::AdaptiveSpan(config) => config.logits.as_deref().is_some_and(Self::projections_have_biases),
            other => other.restricted().is_some_and(|logits| logits.projections_have_biases()),
        }
    }

    /// How many parameters the attention has at a place, without building it; `None` as of [`parameter_formula`](Self::parameter_formula). The configuration
    /// need not be valid, and no size is too large.
    pub fn parameters_at(&self, placement: &Placement) -> Option<ParameterCount> {
        let formula = self.parameter_formula()?;
        let Placement { d_model, heads, max_length, .. } = *placement;
        let mut letters = vec![("d", d_model), ("H", heads), ("D", d_model / heads.max(1)), ("L", max_length)];
        letters.extend(self.option_letters(max_length));
        Some(ParameterCount { trained: formula.trained.value(&letters), fixed: formula.fixed.value(&letters) })
    }

    /// Values of the letters that options decide.
    fn option_letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        match self {
            Self::SynthesizerFactorizedRandom(config) => vec![("k", config.rank)],
            Self::SynthesizerFactorizedDense(config) => {
                let a = max_length.isqrt().max(1);
                let [a, b] = config.factors.unwrap_or([a, max_length.div_ceil(a)]);
                vec![("a", a), ("b", b)]
            }
            Self::Linformer(config) => vec![("k", config.rank_at(max_length))],
            Self::LearnedRelative(config) => vec![("S", config.max_distance.unwrap_or(max_length))],
            Self::AdaptiveSpan(config) => match &config.logits {
                Some(logits) => logits.option_letters(max_length),
                None => vec![("S", config.max_span.unwrap_or(max_length))],
            },
            Self::LightweightConv(config) => vec![("t", config.kernel.at(0).unwrap_or(1))],
            Self::DynamicConv(config) => vec![("t", config.kernel.at(0).unwrap_or(1))],
            Self::Lsh(config) => {
                let buckets = match config.buckets {
                    None => max_length.saturating_mul(2).div_ceil(config.chunk.max(1)).saturating_add(1) / 2 * 2,
                    Some(BucketCount::One(count)) => count,
                    Some(BucketCount::Factorised([a, b])) => a.saturating_add(b),
                };
                vec![("r", config.rounds), ("c", buckets / 2)]
            }
            Self::Mixture(mixture) => mixture.members.iter().flat_map(|member| member.option_letters(max_length)).collect(),
            other => other.restricted().map(|logits| logits.option_letters(max_length)).unwrap_or_default(),
        }
    }

    /// Parameters of the logits alone.
    fn logits_formula(&self) -> Option<ParameterFormula> {
        let trained = ParameterFormula::trained;
        Some(match self {
            Self::DotProduct(config) if config.bias => trained(&[(2, "d^2"), (2, "d")]),
            Self::DotProduct(_) => trained(&[(2, "d^2")]),
            Self::SynthesizerDense(config) if config.per_head_output => trained(&[(1, "d^2"), (1, "d L")]),
            Self::SynthesizerDense(_) => trained(&[(1, "d^2"), (1, "D L")]),
            Self::SynthesizerRandom(config) if config.trainable => trained(&[(1, "H L^2")]),
            Self::SynthesizerRandom(_) => ParameterFormula { trained: TermSum::default(), fixed: TermSum::of(&[(1, "H L^2")]) },
            Self::SynthesizerFactorizedDense(_) => trained(&[(1, "d^2"), (1, "d a"), (1, "d b")]),
            Self::SynthesizerFactorizedRandom(_) => trained(&[(2, "H L k")]),
            Self::Uniform(_) | Self::Gaussian(_) => ParameterFormula::default(),
            Self::Relative(_) => trained(&[(3, "d^2"), (2, "d")]),
            Self::LearnedRelative(_) => trained(&[(2, "d^2"), (1, "D S"), (1, "D")]),
            Self::AdaptiveSpan(config) => {
                let base = || Self::LearnedRelative(Default::default());
                let logits = config.logits.as_deref().cloned().unwrap_or_else(base).logits_formula()?;
                logits.plus(match config.kind {
                    SpanKind::Learned => trained(&[(1, "H")]),
                    SpanKind::Dynamic => trained(&[(1, "d H"), (1, "H")]),
                    SpanKind::Fixed => ParameterFormula::default(),
                })
            }
            Self::Mixture(config) => {
                let weights = match config.weights {
                    // One per member and head.
                    MixtureWeights::Softmax => trained(&[(config.members.len(), "H")]),
                    MixtureWeights::Sum => ParameterFormula::default(),
                    MixtureWeights::Sigmoid => trained(&[(1, "1")]),
                };
                let mut sum = ParameterFormula::default();
                for member in &config.members {
                    sum = sum.plus(member.logits_formula()?);
                }
                sum.plus(weights)
            }
            // A pattern has the parameters of what it restricts; other families have no formula until they are given one, which a test asks for.
            other => other.restricted()?.logits_formula()?,
        })
    }
}

/// The projections around a convolution, which have biases.
fn convolution(glu: bool) -> ParameterFormula {
    let inputs = if glu { 2 } else { 1 };
    ParameterFormula::trained(&[(inputs + 1, "d^2"), (inputs + 1, "d")])
}
