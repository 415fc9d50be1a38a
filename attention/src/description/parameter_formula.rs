//! Parameter counts of a mechanism, as formulas in its sizes.
//!
//! Letters are those of [`letters`](crate::registry::letters). For unusual head sizes, `q` = `H D` and `g` = `G D` for `G` key and value heads.

use std::fmt;

use crate::contract::layer_spec::LayerSpec;
use crate::description::AnyMechanism;
use crate::description::Kind;

/// Parameter counts of one attention, as sums of terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterFormula {
    /// Trained parameters.
    pub trained: TermSum,
    /// Frozen parameters.
    pub fixed: TermSum,
}

/// Parameter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParameterCount {
    /// Number of trained parameters.
    pub trained: u128,
    /// Number of frozen parameters.
    pub fixed: u128,
}

/// A sum such as `4 d^2 + H L^2`: products of sizes with coefficients. It is displayed for usual head sizes.
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

    /// Value for these letters, saturating at the maximum; a letter without a value counts as 1.
    fn value(&self, letters: &[(&'static str, usize)]) -> u128 {
        let factor = |factor: &str| {
            let (base, power) = factor.split_once('^').unwrap_or((factor, "1"));
            let value = letters.iter().find(|(letter, _)| *letter == base).map_or(1, |(_, value)| *value as u128);
            value.saturating_pow(power.parse().unwrap_or(1))
        };
        let term = |&(coefficient, product): &(usize, &str)| product.split(' ').map(factor).fold(coefficient as u128, u128::saturating_mul);
        self.0.iter().map(term).fold(0, u128::saturating_add)
    }

    /// The same for usual heads, with total width `d` and separate keys and values: `q` and `g` then equal `d`.
    fn at_usual_sizes(&self) -> Self {
        let mut usual = Self::default();
        for &(coefficient, product) in &self.0 {
            let product = match product {
                "d q" | "d g" => "d^2",
                "q" | "g" => "d",
                "q L" => "d L",
                "q a" => "d a",
                "q b" => "d b",
                other => other,
            };
            usual.add(Self(vec![(coefficient, product)]));
        }
        usual
    }

    /// Sum of both halves, each with heads of half the width; for odd widths they differ by one channel. `None` if a term contains the head width more than
    /// once.
    fn of_halves(&self) -> Option<Self> {
        let of_term = |&(coefficient, product): &(usize, &'static str)| {
            let widths = product.split(' ').filter(|factor| factor.starts_with(['D', 'q', 'g'])).collect::<Vec<_>>();
            match widths[..] {
                [] => Some((2 * coefficient, product)),
                ["D" | "q" | "g"] => Some((coefficient, product)),
                _ => None,
            }
        };
        self.0.iter().map(of_term).collect::<Option<_>>().map(Self)
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
        for (index, (coefficient, product)) in self.at_usual_sizes().0.into_iter().enumerate() {
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
    /// No parameters.
    pub fn none() -> Self {
        Self::default()
    }

    /// Trained parameters: coefficients and products of letters, `(4, "d^2")`.
    pub fn trained(terms: &[(usize, &'static str)]) -> Self {
        Self { trained: TermSum::of(terms), fixed: TermSum::default() }
    }

    /// Frozen parameters.
    pub fn fixed(terms: &[(usize, &'static str)]) -> Self {
        Self { trained: TermSum::default(), fixed: TermSum::of(terms) }
    }

    /// Projections of queries and keys, without biases.
    pub fn query_key() -> Self {
        Self::trained(&[(1, "d q"), (1, "d g")])
    }

    /// Biases of the query and key projections.
    pub fn query_key_biases() -> Self {
        Self::trained(&[(1, "q"), (1, "g")])
    }

    /// Parameters of two such mechanisms, each with heads of half the width; `None` if they are not such a sum.
    pub(crate) fn of_halves(&self) -> Option<Self> {
        Some(Self { trained: self.trained.of_halves()?, fixed: self.fixed.of_halves()? })
    }

    /// Sum of both.
    pub fn plus(mut self, other: Self) -> Self {
        self.trained.add(other.trained);
        self.fixed.add(other.fixed);
        self
    }
}

impl AnyMechanism {
    /// Parameter count of the attention; `None` if the mechanism does not report it.
    pub fn parameter_formula(&self) -> Option<ParameterFormula> {
        let own = self.parameters()?;
        if self.card().kind == Kind::Whole {
            return Some(own);
        }
        let biases =
            if self.projections_have_biases() { ParameterFormula::trained(&[(1, "g"), (1, "d")]) } else { ParameterFormula::none() };
        Some(ParameterFormula::trained(&[(1, "d q"), (1, "d g")]).plus(own).plus(biases))
    }

    /// Parameter count of the attention at a place, without building it; `None` as in [`parameter_formula`](Self::parameter_formula). The configuration need
    /// not be valid, and sizes are unlimited.
    pub fn parameters_at(&self, spec: &LayerSpec) -> Option<ParameterCount> {
        Some(self.count(&self.parameter_formula()?.plus(self.biases_at(spec)), spec))
    }

    /// Number of [these](Self::parameters_at) that a layer shares with the other layers of a stack, so that a stack stores them once. The projections of a
    /// layerwise `linformer` are not counted here.
    pub fn shared_parameters_at(&self, spec: &LayerSpec) -> ParameterCount {
        self.count(&self.shared_parameters(), spec)
    }

    fn count(&self, formula: &ParameterFormula, spec: &LayerSpec) -> ParameterCount {
        let LayerSpec { d_model, heads, max_length, .. } = *spec;
        let (q, g) = (spec.query_width(), spec.key_width());
        let mut letters = vec![("d", d_model), ("H", heads), ("D", spec.d_head()), ("q", q), ("g", g), ("L", max_length)];
        letters.extend(self.letters_at(spec));
        ParameterCount { trained: formula.trained.value(&letters), fixed: formula.fixed.value(&letters) }
    }

    /// Parameters of the biases that the layer specification requests beyond the mechanism's own.
    fn biases_at(&self, spec: &LayerSpec) -> ParameterFormula {
        let mut biases = ParameterFormula::none();
        if spec.qkv_bias {
            biases = biases.plus(self.query_key_biases().unwrap_or_default());
        }
        if !self.projections_have_biases() {
            let terms = [(spec.qkv_bias, "g"), (spec.output_bias, "d")];
            let terms: Vec<_> = terms.into_iter().filter(|(asked, _)| *asked).map(|(_, product)| (1, product)).collect();
            biases = biases.plus(ParameterFormula::trained(&terms));
        }
        biases
    }
}
