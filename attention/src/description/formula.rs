//! Formula of a mechanism for one query of one head, in double precision.
//!
//! A mechanism defines it in [`Mechanism::formula`](crate::description::Mechanism::formula) by closures over a [`Query`]: plain loops over numbers, like the
//! paper's section. The closures call neither the engine nor tensor operations nor the mechanism's own code; otherwise both sides of the comparison would share
//! an error. [`PlainAttention`] supplies parameter values and the shared part.
//!
//! ```
//! use heedful_attention::description::formula::{Formula, dot};
//!
//! /// Vaswani et al. 2017, section 3.2.1.
//! fn formula() -> Formula<'static> {
//!     Formula::default().logit(|query, key| {
//!         let (q, k) = (query.projected("query", query.element()), query.projected("key", query.attended(key)));
//!         dot(&q, &k) / (q.len() as f64).sqrt()
//!     })
//! }
//! ```

use std::fmt;

use crate::contract::layer_spec::LayerSpec;
use crate::description::AnyMechanism;
use crate::description::Case;
use crate::description::PlainAttention;
use crate::description::array::Array;
use crate::description::view::View;

/// A function of a query.
type OfQuery<'a, T> = Box<dyn Fn(&Query) -> T + 'a>;
/// A function of a query and the index of a key.
type OfPair<'a, T> = Box<dyn Fn(&Query, usize) -> T + 'a>;

/// A mechanism's formula, as far as it differs from `softmax(logits) V` over all visible keys.
///
/// A mechanism that scores keys defines [`logit`](Self::logit), a pattern [`shows`](Self::shows), a map of scores [`mapped`](Self::mapped), a normaliser
/// [`weights`](Self::weights), a gate [`gate`](Self::gate). A mechanism over other logits without its own logit uses theirs; a key that any member hides is
/// hidden.
#[derive(Default)]
pub struct Formula<'a> {
    logit: Option<OfPair<'a, f64>>,
    mapped: Option<Box<dyn Fn(f64) -> f64 + 'a>>,
    shows: Option<OfPair<'a, bool>>,
    weights: Option<OfQuery<'a, Vec<f64>>>,
    value: Option<OfPair<'a, Vec<f64>>>,
    head: Option<OfQuery<'a, Vec<f64>>>,
    gate: Option<OfQuery<'a, Vec<f64>>>,
}

impl fmt::Debug for Formula<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { logit, mapped, shows, weights, value, head, gate } = self;
        let given =
            [logit.is_some(), mapped.is_some(), shows.is_some(), weights.is_some(), value.is_some(), head.is_some(), gate.is_some()];
        let names = ["logit", "mapped", "shows", "weights", "value", "head", "gate"];
        f.debug_list().entries(names.iter().zip(given).filter(|part| part.1).map(|part| part.0)).finish()
    }
}

impl<'a> Formula<'a> {
    /// Score of a visible key. Parameter names are those in the module of the logits.
    pub fn logit(mut self, logit: impl Fn(&Query, usize) -> f64 + 'a) -> Self {
        self.logit = Some(Box::new(logit));
        self
    }

    /// Map of the inner mechanism's score.
    pub fn mapped(mut self, mapped: impl Fn(f64) -> f64 + 'a) -> Self {
        self.mapped = Some(Box::new(mapped));
        self
    }

    /// Whether the mechanism itself shows a key, from positions and head only (default: yes).
    pub fn shows(mut self, shows: impl Fn(&Query, usize) -> bool + 'a) -> Self {
        self.shows = Some(Box::new(shows));
        self
    }

    /// Weights of all keys, if they are not a softmax of the [scores](Query::scores). For mechanisms other than patterns and normalisers, this applies only
    /// when the mechanism stands alone. Parameter names are paths in the attention, such as `logits.AdaptiveSpan.span`.
    pub fn weights(mut self, weights: impl Fn(&Query) -> Vec<f64> + 'a) -> Self {
        self.weights = Some(Box::new(weights));
        self
    }

    /// Value of a key, `[D]`, if it is not the head's part of the map `value`. Parameter names are paths in the attention.
    pub fn value(mut self, value: impl Fn(&Query, usize) -> Vec<f64> + 'a) -> Self {
        self.value = Some(Box::new(value));
        self
    }

    /// Input of the map `output` from the head, `[D]`, if it is not a weighted sum of values. Parameter names are paths in the attention.
    pub fn head(mut self, head: impl Fn(&Query) -> Vec<f64> + 'a) -> Self {
        self.head = Some(Box::new(head));
        self
    }

    /// Factor of the weighted sum of values, `[D]`, or `[1]` for the whole head. Parameter names are those in the module of the logits.
    pub fn gate(mut self, gate: impl Fn(&Query) -> Vec<f64> + 'a) -> Self {
        self.gate = Some(Box::new(gate));
        self
    }
}

/// A query of one batch row and head, with the inputs available to its formula.
#[derive(Clone)]
pub struct Query<'a> {
    attention: &'a PlainAttention,
    case: &'a Case,
    view: &'a View,
    /// Prefix of the mechanism's parameter paths; empty, or ending with a dot.
    path: String,
    spec: LayerSpec,
    /// Position of the query, if it differs from its place in the sequence.
    standing: Option<usize>,
    /// The batch row.
    pub row: usize,
    /// The head.
    pub head: usize,
    /// Index of the query in the row, including padding.
    pub index: usize,
}

impl<'a> Query<'a> {
    pub(super) fn new(attention: &'a PlainAttention, case: &'a Case, view: &'a View, [row, head, index]: [usize; 3]) -> Self {
        Self { attention, case, view, path: String::new(), spec: attention.spec, standing: None, row, head, index }
    }

    /// Query at another index in the same row and head.
    pub fn at(&self, index: usize) -> Self {
        Self { index, standing: None, ..self.clone() }
    }

    /// The same query at another position than its own in the unpadded sequence.
    pub fn standing_at(&self, position: usize) -> Self {
        Self { standing: Some(position), ..self.clone() }
    }

    /// Query of another head in the same row, at the same index.
    pub fn of_head(&self, head: usize) -> Self {
        Self { head, ..self.clone() }
    }

    /// The query as seen by an inner mechanism at another place, with another head width.
    pub fn placed(&self, spec: LayerSpec) -> Self {
        Self { spec, ..self.clone() }
    }

    /// Place of the mechanism.
    pub fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    /// Number of keys, including hidden ones.
    pub fn keys(&self) -> usize {
        self.case.keys()
    }

    /// Input of the query, `x_i` `[C]`.
    pub fn element(&self) -> &'a [f64] {
        self.case.query.row(&[self.row, self.index])
    }

    /// Input of a key, `m_j` `[C]`.
    pub fn attended(&self, key: usize) -> &'a [f64] {
        self.case.memory.as_ref().unwrap_or(&self.case.query).row(&[self.row, key])
    }

    /// Position of the query in its sequence without left padding.
    pub fn position(&self) -> usize {
        self.standing.unwrap_or_else(|| self.index.saturating_sub(self.view.padding(self.row)))
    }

    /// Position of a key in its sequence without left padding.
    pub fn position_of(&self, key: usize) -> usize {
        // A memory has no left padding.
        if self.case.memory.is_some() { key } else { key.saturating_sub(self.view.padding(self.row)) }
    }

    /// Distance between query and key.
    pub fn distance(&self, key: usize) -> usize {
        self.position().abs_diff(self.position_of(key))
    }

    /// Whether the call lets the query see a key, before any restriction by the mechanism.
    pub fn sees(&self, key: usize) -> bool {
        (self.view.visible)(self.row, self.head, self.index, key)
    }

    /// A parameter by its name.
    ///
    /// # Panics
    /// If no parameter has this name.
    pub fn parameter(&self, name: &str) -> &'a Array {
        self.attention.parameter(&format!("{}{name}", self.path))
    }

    /// `x W`, or `x W + b`, of a linear map, with all outputs.
    ///
    /// # Panics
    /// If no such map exists.
    pub fn mapped(&self, map: &str, x: &[f64]) -> Vec<f64> {
        let outputs = self.parameter(&format!("{map}.weight")).shape[1];
        self.outputs(map, x, 0..outputs)
    }

    /// Part of `x W`, or `x W + b`, that belongs to the head, `[D]`; several heads can share it.
    ///
    /// # Panics
    /// If no such map exists.
    pub fn projected(&self, map: &str, x: &[f64]) -> Vec<f64> {
        let width = self.spec().d_head();
        let outputs = self.parameter(&format!("{map}.weight")).shape[1];
        let head = self.head * (outputs / width) / self.spec().heads;
        self.outputs(map, x, head * width..(head + 1) * width)
    }

    fn outputs(&self, map: &str, x: &[f64], columns: std::ops::Range<usize>) -> Vec<f64> {
        let weight = self.parameter(&format!("{map}.weight"));
        let bias = self.attention.find(&format!("{}{map}.bias", self.path));
        let output = |column| {
            let product: f64 = x.iter().enumerate().map(|(row, x)| x * weight.at(&[row, column])).sum();
            product + bias.map_or(0.0, |bias| bias.at(&[column]))
        };
        columns.map(output).collect()
    }

    /// Score of a key by another mechanism, whose parameters are at a path below the current one: `members.0`.
    ///
    /// # Panics
    /// If the mechanism defines no formula, or a formula without a logit.
    pub fn logit(&self, mechanism: &AnyMechanism, place: &str, key: usize) -> f64 {
        let (query, inner_place) = self.within(mechanism, place);
        let formula = own(mechanism);
        let logit = match (formula.logit, mechanism.inner()) {
            (Some(logit), _) => logit(&query, key),
            (None, Some(inner)) => query.logit(inner, inner_place, key),
            (None, None) => panic!("the formula of {mechanism} has no logit"),
        };
        formula.mapped.map_or(logit, |mapped| mapped(logit))
    }

    /// The query with the parameters of a mechanism at a path, and the path of its inner mechanism.
    fn within<'p>(&self, mechanism: &AnyMechanism, place: &'p str) -> (Self, &'p str) {
        // A mechanism without a module adds nothing to the parameter paths of its inner mechanism.
        if !mechanism.card().kind.has_module() {
            return (self.clone(), place);
        }
        let path = format!("{}{place}.{}.", self.path, mechanism.card().variant);
        (Self { path, ..self.clone() }, "logits.0")
    }

    /// Multiplies a head output by the gates of a mechanism at a path and of its inner mechanisms.
    fn pass_gates(&self, mechanism: &AnyMechanism, place: &str, head: &mut [f64]) {
        let (query, inner_place) = self.within(mechanism, place);
        if let Some(gate) = own(mechanism).gate {
            let open = gate(&query);
            head.iter_mut().zip(open.iter().cycle()).for_each(|(number, open)| *number *= open);
        }
        if let Some(inner) = mechanism.inner() {
            query.pass_gates(inner, inner_place, head);
        }
    }

    /// Whether another mechanism and all its members show a key.
    ///
    /// # Panics
    /// If any of them defines no formula.
    pub fn shows(&self, mechanism: &AnyMechanism, key: usize) -> bool {
        own(mechanism).shows.is_none_or(|shows| shows(self, key)) && mechanism.members().into_iter().all(|member| self.shows(member, key))
    }

    /// Scores of all keys in the whole attention; `None` for keys hidden by the call or the mechanism.
    pub fn scores(&self) -> Vec<Option<f64>> {
        let mechanism = &self.attention.mechanism;
        let score = |key| (self.sees(key) && self.shows(mechanism, key)).then(|| self.logit(mechanism, "logits", key));
        (0..self.keys()).map(score).collect()
    }

    /// Weights by the mechanism's formula, or by that of an inner normaliser.
    fn weights_by(&self, mechanism: &AnyMechanism) -> Option<Vec<f64>> {
        if let Some(weights) = own(mechanism).weights {
            return Some(weights(self));
        }
        self.weights_by(mechanism.inner().filter(|inner| inner.card().kind.is_over_logits())?)
    }

    /// Head output `[D]` and key weights, if any.
    pub(super) fn attend(&self) -> (Vec<f64>, Option<Vec<f64>>) {
        let mechanism = &self.attention.mechanism;
        let formula = own(mechanism);
        if let Some(head) = formula.head {
            return (head(self), None);
        }
        let weights = self.weights_by(mechanism).unwrap_or_else(|| softmax(&self.scores()));
        let mut sum = vec![0.0; self.spec().d_head()];
        for (key, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            let value = match &formula.value {
                Some(value) => value(self, key),
                None => self.projected("value", self.attended(key)),
            };
            sum.iter_mut().zip(value).for_each(|(sum, value)| *sum += weight * value);
        }
        self.pass_gates(mechanism, "logits", &mut sum);
        (sum, Some(weights))
    }
}

fn own(mechanism: &AnyMechanism) -> Formula<'_> {
    mechanism.formula().unwrap_or_else(|| panic!("{mechanism} gives no formula"))
}

/// The scalar product.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `ln sum_r e^(a_r + b_r)`, the log scalar product of two vectors of logarithms.
pub fn log_sum_of_products(a: &[f64], b: &[f64]) -> f64 {
    let sums = || a.iter().zip(b).map(|(a, b)| a + b);
    let largest = sums().fold(f64::NEG_INFINITY, f64::max);
    sums().map(|sum| (sum - largest).exp()).sum::<f64>().ln() + largest
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln(1 + e^x)`, also if the exponential overflows double precision.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `ln(1 / (1 + e^-x))`, also if the quotient underflows to 0.
pub fn log_sigmoid(x: f64) -> f64 {
    -softplus(-x)
}

/// Softmax over visible keys; 0 for others, and if no key is visible.
pub fn softmax(scores: &[Option<f64>]) -> Vec<f64> {
    let largest = scores.iter().flatten().fold(f64::NEG_INFINITY, |largest, &score| largest.max(score));
    distribution(scores.iter().map(|score| score.map_or(0.0, |score| (score - largest).exp())).collect())
}

/// Divides the numbers by their sum, unless it is 0.
pub fn distribution(mut numbers: Vec<f64>) -> Vec<f64> {
    let sum: f64 = numbers.iter().sum();
    if sum > 0.0 {
        numbers.iter_mut().for_each(|number| *number /= sum);
    }
    numbers
}
