//! The formula of a mechanism, for one query of one head, in double precision.
//!
//! A mechanism says it in [`Mechanism::formula`](crate::description::Mechanism::formula) by closures over a [`Query`]: plain loops over numbers, as the paper's
//! section has them. They call nothing of the engine and no tensor operation, and no code by which the mechanism itself is computed; otherwise an error would
//! stand on both sides of the comparison. [`PlainAttention`] has the values of parameters and puts the shared part around them.
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

/// What a mechanism's paper says, as far as it differs from `softmax(logits) V` over all visible keys.
///
/// A mechanism that scores keys gives [`logit`](Self::logit), a pattern [`shows`](Self::shows), a map of scores [`mapped`](Self::mapped), a normaliser
/// [`weights`](Self::weights), a gate [`gate`](Self::gate). What is over other logits and gives no logit has that of these, and what any member hides is hidden.
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
    /// The score of a key that is shown. Names of parameters are those in the module of the logits.
    pub fn logit(mut self, logit: impl Fn(&Query, usize) -> f64 + 'a) -> Self {
        self.logit = Some(Box::new(logit));
        self
    }

    /// What the score of what the mechanism is over becomes.
    pub fn mapped(mut self, mapped: impl Fn(f64) -> f64 + 'a) -> Self {
        self.mapped = Some(Box::new(mapped));
        self
    }

    /// Whether the mechanism itself shows a key, of positions and head alone (unless told otherwise: yes).
    pub fn shows(mut self, shows: impl Fn(&Query, usize) -> bool + 'a) -> Self {
        self.shows = Some(Box::new(shows));
        self
    }

    /// The weights of all keys, where they are no softmax of the [scores](Query::scores). Of a mechanism that is no pattern or normaliser it holds where the
    /// mechanism stands by itself. Names of parameters are paths in the attention, such as `logits.AdaptiveSpan.span`.
    pub fn weights(mut self, weights: impl Fn(&Query) -> Vec<f64> + 'a) -> Self {
        self.weights = Some(Box::new(weights));
        self
    }

    /// What is summed of a key, `[D]`, where it is not the head's part of the map `value`. Names of parameters are paths in the attention.
    pub fn value(mut self, value: impl Fn(&Query, usize) -> Vec<f64> + 'a) -> Self {
        self.value = Some(Box::new(value));
        self
    }

    /// What the head gives the map `output`, `[D]`, where it is no sum of values weighed by key. Names of parameters are paths in the attention.
    pub fn head(mut self, head: impl Fn(&Query) -> Vec<f64> + 'a) -> Self {
        self.head = Some(Box::new(head));
        self
    }

    /// What the sum of values is multiplied with, `[D]`, or `[1]` for the whole head. Names of parameters are those in the module of the logits.
    pub fn gate(mut self, gate: impl Fn(&Query) -> Vec<f64> + 'a) -> Self {
        self.gate = Some(Box::new(gate));
        self
    }
}

/// A query of one batch row in one head, and what its formula may read.
#[derive(Clone)]
pub struct Query<'a> {
    attention: &'a PlainAttention,
    case: &'a Case,
    view: &'a View,
    /// Begins the paths of the mechanism's parameters; empty, or with a dot at the end.
    path: String,
    spec: LayerSpec,
    /// Where the query stands, if that is not its place in the sequence.
    standing: Option<usize>,
    /// The batch row.
    pub row: usize,
    /// The head.
    pub head: usize,
    /// Which query of the row, padding included.
    pub index: usize,
}

impl<'a> Query<'a> {
    pub(super) fn new(attention: &'a PlainAttention, case: &'a Case, view: &'a View, [row, head, index]: [usize; 3]) -> Self {
        Self { attention, case, view, path: String::new(), spec: attention.spec, standing: None, row, head, index }
    }

    /// The query of another index in the same row and head.
    pub fn at(&self, index: usize) -> Self {
        Self { index, standing: None, ..self.clone() }
    }

    /// The same query at another position than its own in the sequence without padding.
    pub fn standing_at(&self, position: usize) -> Self {
        Self { standing: Some(position), ..self.clone() }
    }

    /// The query of another head in the same row, at the same index.
    pub fn of_head(&self, head: usize) -> Self {
        Self { head, ..self.clone() }
    }

    /// The query as a mechanism within the attention sees it that stands elsewhere: with heads of another width.
    pub fn placed(&self, spec: LayerSpec) -> Self {
        Self { spec, ..self.clone() }
    }

    /// Where the mechanism stands.
    pub fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    /// How many keys there are, hidden ones included.
    pub fn keys(&self) -> usize {
        self.case.keys()
    }

    /// The element of the query, `x_i` `[C]`.
    pub fn element(&self) -> &'a [f64] {
        self.case.query.row(&[self.row, self.index])
    }

    /// The element of a key, `m_j` `[C]`.
    pub fn attended(&self, key: usize) -> &'a [f64] {
        self.case.memory.as_ref().unwrap_or(&self.case.query).row(&[self.row, key])
    }

    /// The place of the query in its sequence without the padding before it.
    pub fn position(&self) -> usize {
        self.standing.unwrap_or_else(|| self.index.saturating_sub(self.view.padding(self.row)))
    }

    /// The place of a key in its sequence without the padding before it.
    pub fn position_of(&self, key: usize) -> usize {
        // A memory is not padded before its first element.
        if self.case.memory.is_some() { key } else { key.saturating_sub(self.view.padding(self.row)) }
    }

    /// How far a key is away.
    pub fn distance(&self, key: usize) -> usize {
        self.position().abs_diff(self.position_of(key))
    }

    /// Whether the call lets the query see a key, whatever the mechanism shows.
    pub fn sees(&self, key: usize) -> bool {
        (self.view.visible)(self.row, self.head, self.index, key)
    }

    /// A parameter by its name.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn parameter(&self, name: &str) -> &'a Array {
        self.attention.parameter(&format!("{}{name}", self.path))
    }

    /// `x W`, or `x W + b`, of a linear map, all its outputs.
    ///
    /// # Panics
    /// If there is no such map.
    pub fn mapped(&self, map: &str, x: &[f64]) -> Vec<f64> {
        let outputs = self.parameter(&format!("{map}.weight")).shape[1];
        self.outputs(map, x, 0..outputs)
    }

    /// The part of `x W`, or `x W + b`, that belongs to the head, `[D]`; several heads may share it.
    ///
    /// # Panics
    /// If there is no such map.
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

    /// The score that another mechanism gives a key, whose parameters are at a place below those of the one that asks: `members.0`.
    ///
    /// # Panics
    /// If it gives no formula, or one without a logit.
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

    /// The query with the parameters of a mechanism at a place, and the place of what that mechanism is over.
    fn within<'p>(&self, mechanism: &AnyMechanism, place: &'p str) -> (Self, &'p str) {
        // What has no module has no part in the paths of what it is over.
        if !mechanism.card().kind.has_module() {
            return (self.clone(), place);
        }
        let path = format!("{}{place}.{}.", self.path, mechanism.card().variant);
        (Self { path, ..self.clone() }, "logits.0")
    }

    /// Multiplies what a head gives with the gates of a mechanism at a place and of what it is over.
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
    /// If one of them gives no formula.
    pub fn shows(&self, mechanism: &AnyMechanism, key: usize) -> bool {
        own(mechanism).shows.is_none_or(|shows| shows(self, key)) && mechanism.members().into_iter().all(|member| self.shows(member, key))
    }

    /// The scores of all keys in the whole attention; `None` where a key is hidden, by the call or by the mechanism.
    pub fn scores(&self) -> Vec<Option<f64>> {
        let mechanism = &self.attention.mechanism;
        let score = |key| (self.sees(key) && self.shows(mechanism, key)).then(|| self.logit(mechanism, "logits", key));
        (0..self.keys()).map(score).collect()
    }

    /// The weights by the mechanism's formula, or by that of a normaliser within it.
    fn weights_by(&self, mechanism: &AnyMechanism) -> Option<Vec<f64>> {
        if let Some(weights) = own(mechanism).weights {
            return Some(weights(self));
        }
        self.weights_by(mechanism.inner().filter(|inner| inner.card().kind.is_over_logits())?)
    }

    /// What the head gives, `[D]`, and the weights of keys, if it has them.
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

/// `ln sum_r e^(a_r + b_r)`, the logarithm of the scalar product of numbers of which these are the logarithms.
pub fn log_sum_of_products(a: &[f64], b: &[f64]) -> f64 {
    let sums = || a.iter().zip(b).map(|(a, b)| a + b);
    let largest = sums().fold(f64::NEG_INFINITY, f64::max);
    sums().map(|sum| (sum - largest).exp()).sum::<f64>().ln() + largest
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln(1 + e^x)`, of numbers too whose exponential double precision does not hold.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `ln(1 / (1 + e^-x))`, of numbers too for which the quotient is 0.
pub fn log_sigmoid(x: f64) -> f64 {
    -softplus(-x)
}

/// The softmax over the keys that are shown; 0 for others, and where none is shown.
pub fn softmax(scores: &[Option<f64>]) -> Vec<f64> {
    let largest = scores.iter().flatten().fold(f64::NEG_INFINITY, |largest, &score| largest.max(score));
    distribution(scores.iter().map(|score| score.map_or(0.0, |score| (score - largest).exp())).collect())
}

/// The numbers divided by their sum, unless that is 0.
pub fn distribution(mut numbers: Vec<f64>) -> Vec<f64> {
    let sum: f64 = numbers.iter().sum();
    if sum > 0.0 {
        numbers.iter_mut().for_each(|number| *number /= sum);
    }
    numbers
}
