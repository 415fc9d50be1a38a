//! How many parameters a mechanism has, as a formula in its sizes.
//!
//! Letters: `d` = `d_model`, `H` heads, `D` = `d / H`, `L` maximal length, and the options that a size follows from: `k` the rank, `a` and `b` the
//! factors of the Factorized Dense Synthesizer.

use std::fmt;

use crate::any::AttentionConfig;
use crate::mechanisms::mixture::MixtureWeights;

/// Numbers of parameters of one attention, as sums of terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterFormula {
    /// Parameters that training changes.
    pub trained: TermSum,
    /// Parameters that stay as they were drawn.
    pub fixed: TermSum,
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
        match self {
            Self::Gaussian(_) => Some(projections),
            _ => Some(projections.plus(self.logits_formula()?)),
        }
    }

    /// Parameters of the logits alone.
    fn logits_formula(&self) -> Option<ParameterFormula> {
        let trained = ParameterFormula::trained;
        Some(match self {
            Self::DotProduct(_) => trained(&[(2, "d^2")]),
            Self::SynthesizerDense(config) if config.per_head_output => trained(&[(1, "d^2"), (1, "d L")]),
            Self::SynthesizerDense(_) => trained(&[(1, "d^2"), (1, "D L")]),
            Self::SynthesizerRandom(config) if config.trainable => trained(&[(1, "H L^2")]),
            Self::SynthesizerRandom(_) => ParameterFormula { trained: TermSum::default(), fixed: TermSum::of(&[(1, "H L^2")]) },
            Self::SynthesizerFactorizedDense(_) => trained(&[(1, "d^2"), (1, "d a"), (1, "d b")]),
            Self::SynthesizerFactorizedRandom(_) => trained(&[(2, "H L k")]),
            Self::Uniform(_) | Self::Gaussian(_) => ParameterFormula::default(),
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
            #[allow(unreachable_patterns, reason = "a new family has no formula until it is given one; a test asks for it")]
            _ => return None,
        })
    }
}
