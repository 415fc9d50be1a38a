//! Adaptive attention span (Sukhbaatar et al. 2019, section 2.2): each head learns how far back it looks.
//!
//! `weights_h[i, j] = m_z(x) e^s / sum_j m_z(x) e^s` over the logits `s` of another mechanism, where `m_z(x) = clamp((R + z - x) / R, 0, 1)` falls from 1 to 0
//! on a ramp of width `R` behind the span `z = S z'`, and keys farther away than `S` are not seen at all. `z'` in `[0, 1]` is a parameter of each head (kept
//! there by [`constraints`](crate::registry::constraints) after every optimiser step), is predicted for each query as `σ(v · x_i + b)`, or is fixed. The loss `span`,
//! `λ S mean(z')` for each layer, shortens it.
//!
//! Of carried memory and of the decoding state only what the layer's longest span reaches takes part.
//!
//! Where a ramp begins or ends exactly at a key, as all of whole width do at first (`z = 0`), `m_z` has no derivative by `z`. The slope is `1 / R` there, at
//! both ends. A key at the very end has no weight, and its score counts in the gradient of the span alone, up to 1e8 times the sum of all others. Where what
//! the span leaves is hidden altogether, the gradient is 0.
//!
//! Adam divides gradients by their size and so blunts `λ`; the paper trains with Adagrad, and without weight decay on `z'`.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
//!
#![doc = include_str!("../../pictures/adaptive-span.svg")]

use burn::tensor::activation::sigmoid;

use super::learned_relative::LearnedRelativeConfig;
use crate::description::formula::{distribution, softmax};
use crate::engine::{Ramp, SoftSpan, transposed};
use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::{LogitsRef, shared_in_order};

/// Where a span comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpanKind {
    /// A parameter of each head.
    #[default]
    Learned,
    /// Predicted from each query.
    Dynamic,
    /// The initial span, not trained.
    Fixed,
}

/// From where on distances count in the ramp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpanOrigin {
    /// The key before the query has `x = 0` (the released code).
    #[default]
    Code,
    /// The key before the query has `x = 1` (the paper's formula).
    Paper,
}

/// Name of the span that is not trained.
const FIXED: &str = "adaptive-span-fixed";

/// Configuration of [`AdaptiveSpan`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct AdaptiveSpanConfig {
    /// Longest span `S`, at least 1 (default: the maximal length).
    pub max_span: Option<usize>,
    /// Width `R` of the ramp, greater than 0 (default: 32, or a quarter of the longest span if that is less, but at least 2).
    pub ramp: Option<f64>,
    /// Span at first as a fraction `z'` of the longest, in `[0, 1]`, strictly between for dynamic spans (default 0; for dynamic spans `σ(-4)`, about 0.018).
    pub initial: Option<f64>,
    /// Strength `λ` of the penalty, at least 0 (default 2e-6).
    pub penalty: f64,
    /// Where spans come from (default: learned).
    pub kind: SpanKind,
    /// From where on distances count (default: as in the released code).
    pub origin: SpanOrigin,
    /// Whether a query sees its own position (default). The paper's does not.
    pub own_position: bool,
    /// The attention whose logits are used: one that has logits, or a mixture (default: `learned-relative` up to `S`, the paper's base model).
    pub logits: Option<AnyMechanism>,
    /// Whether all layers of a stack have the same table of relative positions, as in the released code (default: each has its own). Logits that are named have
    /// an option of their own.
    pub shared_table: bool,
}

impl Default for AdaptiveSpanConfig {
    fn default() -> Self {
        Self {
            max_span: None,
            ramp: None,
            initial: None,
            penalty: 2e-6,
            kind: SpanKind::default(),
            origin: SpanOrigin::default(),
            own_position: true,
            logits: None,
            shared_table: false,
        }
    }
}

/// Logits of another mechanism with a soft span.
///
/// Should be created with [`AdaptiveSpanConfig`].
#[derive(Module, Debug)]
pub struct AdaptiveSpan {
    /// The logits; there is one.
    pub logits: Vec<AnyLogits>,
    /// Learned spans `z'`, `[H]`, in `[0, 1]`.
    pub span: Option<Param<Tensor<1>>>,
    /// Prediction of dynamic spans, `[C, H]` with bias.
    pub gate: Option<Linear>,
    fixed: f64,
    heads: usize,
    max_span: usize,
    ramp: f64,
    /// `x` is the distance less this.
    origin: f64,
    penalty: f64,
    own_position: bool,
}

impl AdaptiveSpanConfig {
    fn spanned(&self, spec: &LayerSpec) -> AnyMechanism {
        let base =
            || LearnedRelativeConfig { max_distance: Some(self.longest_at(spec.max_length)), shared_table: self.shared_table }.into();
        self.logits.clone().unwrap_or_else(base)
    }

    /// The longest span in a model of this maximal length.
    pub fn longest_at(&self, max_length: usize) -> usize {
        self.max_span.unwrap_or(max_length)
    }

    /// Width of the ramp in a model of this maximal length.
    pub fn ramp_at(&self, max_length: usize) -> f64 {
        self.ramp.unwrap_or_else(|| quarter(self.longest_at(max_length), 32).max(2) as f64)
    }
}

impl Mechanism for AdaptiveSpanConfig {
    type Module = LogitsOf<AdaptiveSpan>;
    const NAME: &'static str = "adaptive-span";
    const CARD: Card = Card {
        variant: "AdaptiveSpan",
        description: "Limits how far back each head looks, by a learned, dynamic or fixed span over any logits.",
        source: "Sukhbaatar et al. 2019, section 2.2",
        links: &["https://arxiv.org/abs/1905.07799", "https://github.com/facebookresearch/adaptive-span"],
        kind: Kind::SoftSpan,
        state: "2 (z + R) d",
        letters: &[
            ("S", "longest distance that is seen"),
            ("z", "longest span of the layer's heads"),
            ("R", "width of the ramp, option `ramp`, by default at most `S / 4`"),
        ],
        differences: &[
            "The released attention never sees the query's own position; here it is seen unless `own_position` is false (then the first query sees nothing and has weights of exactly 0).",
            "The first queries of the released code see the zeros of an empty cache; here what does not exist is never seen.",
            "The released code cuts memory to multiples of 64 positions; here it is cut to the position.",
            "The dynamic span is not in the released code.",
            "At both ends of a ramp the slope is `1 / R`, as that of the released `clamp` is with PyTorch up to 2.13; from 2.14 on `clamp` passes no gradient there, and the released code trains differently.",
            "The released code adds 1e-8 to the sum of the weights; here the same bound, 1e8, is put on the score of a key at the very end of a ramp.",
        ],
        sizes: &["initial", "max_span"],
        tensors: &[
            ("span", "learned spans as fractions of the longest [heads]"),
            ("gate.weight", "prediction of spans [d_in, heads]"),
            ("gate.bias", "bias of the prediction of spans [heads]"),
        ],
        fractions: &[("Struct:AdaptiveSpan", "span")],
        // Spans have a penalty of their own.
        without_decay: &[r"AdaptiveSpan\.span$"],
        ..Card::DEFAULT
    };

    fn drawn(self) -> Self {
        Self { initial: Some(0.25), ramp: Some(6.0), ..self }
    }

    fn named() -> Vec<(&'static str, Self)> {
        vec![(Self::NAME, Self::default()), (FIXED, Self { kind: SpanKind::Fixed, ..Self::default() })]
    }

    fn description(&self) -> &'static str {
        match self.kind {
            SpanKind::Learned => "Limits how far back each head looks by a learned span, over any logits.",
            SpanKind::Dynamic => "Limits how far back each head looks by a span that each query predicts, over any logits.",
            SpanKind::Fixed => "Limits how far back all heads look by a span that is given and not learned, over any logits.",
        }
    }

    fn name(&self) -> String {
        if self.kind == SpanKind::Fixed { FIXED } else { Self::NAME }.to_owned()
    }

    fn members(&self) -> Vec<&AnyMechanism> {
        self.logits.iter().collect()
    }

    fn resolved(self, max_length: usize) -> Self {
        let (max_span, ramp) = (Some(self.longest_at(max_length)), Some(self.ramp_at(max_length)));
        Self { max_span, ramp, logits: self.logits.map(|logits| logits.resolved(max_length)), ..self }
    }

    /// # Errors
    /// If a number is out of its range, no key would be seen, or the logits are wrong or not to be had.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one_if_given("max_span", self.max_span)?;
        check.non_negative("penalty", self.penalty)?;
        let ramp = self.ramp_at(spec.max_length);
        check.positive("ramp", ramp)?;
        if !self.own_position && self.origin == SpanOrigin::Paper && ramp <= 1.0 {
            return Err(check.refuse("ramp", ramp, "a span of 0 would see no key: give more than 1, or origin = \"code\""));
        }
        let is_possible = |z: f64| (0.0..=1.0).contains(&z) && !(self.kind == SpanKind::Dynamic && [0.0, 1.0].contains(&z));
        if let Some(initial) = self.initial.filter(|&initial| !is_possible(initial)) {
            let remedy = "give a fraction of the longest span, from 0 to 1, and strictly between for dynamic spans";
            return Err(check.refuse("initial", initial, remedy));
        }
        if self.shared_table && self.logits.is_some() {
            return Err(check.refuse(
                "shared_table",
                true,
                "it is of the base model; leave it out, or give the option of the logits that are named",
            ));
        }
        let logits = self.spanned(spec);
        if !logits.can_be_spanned() {
            let able = AnyMechanism::families_that(AnyMechanism::can_be_spanned);
            let remedy = format!("name an attention that has logits of its own, or a mixture of such: {able}");
            return Err(check.refuse("logits", logits.name(), remedy));
        }
        logits.validate(spec)
    }

    fn idle(&self, spec: &LayerSpec, length: usize) -> Option<Idle> {
        let span = self.max_span.unwrap_or(spec.max_length) as f64 * self.initial.unwrap_or(0.0);
        let is_whole = self.kind == SpanKind::Fixed && self.own_position && span >= length.saturating_sub(1) as f64;
        is_whole.then_some(Idle {
            what: "has a fixed span that covers all",
            sizes: Self::CARD.sizes,
            options: &["max_span", "initial", "ramp", "origin", "penalty", "kind"],
        })
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AdaptiveSpan {
        let heads = spec.heads;
        let logits = self.spanned(spec).init_logits(spec, &key.named("logits"), device);
        let initial = self.initial.unwrap_or(0.0);
        let gate = || {
            let bias = self.initial.map_or(-4.0, |initial| (initial / (1.0 - initial)).ln());
            let bias = Some(Init::Constant(bias as f32).parameter([heads], key, device));
            Linear { bias, ..init::linear(spec.d_model, heads, false, &key.named("gate"), device) }
        };
        AdaptiveSpan {
            logits: vec![logits.expect("validated: there are logits")],
            span: (self.kind == SpanKind::Learned).then(|| Init::Constant(initial as f32).parameter([heads], key, device)),
            gate: (self.kind == SpanKind::Dynamic).then(gate),
            fixed: initial,
            heads,
            max_span: self.longest_at(spec.max_length),
            ramp: self.ramp_at(spec.max_length),
            origin: if self.origin == SpanOrigin::Code { 1.0 } else { 0.0 },
            penalty: self.penalty,
            own_position: self.own_position,
        }
    }

    /// Sukhbaatar et al. 2019, section 2.2: weights in proportion to `min(max((R + z - x) / R, 0), 1) e^s`.
    fn formula(&self) -> Option<Formula<'_>> {
        let mask = |query: &Query, key| {
            let max_length = query.spec().max_length;
            let (longest, ramp, distance) = (self.longest_at(max_length), self.ramp_at(max_length), query.distance(key));
            if distance > longest || (distance == 0 && !self.own_position) {
                return 0.0;
            }
            let fraction = match self.kind {
                SpanKind::Learned => query.parameter("logits.AdaptiveSpan.span").at(&[query.head]),
                SpanKind::Dynamic => formula::sigmoid(query.mapped("logits.AdaptiveSpan.gate", query.element())[query.head]),
                SpanKind::Fixed => self.initial.unwrap_or(0.0),
            };
            let x = if self.origin == SpanOrigin::Code { distance as f64 - 1.0 } else { distance as f64 };
            ((ramp + longest as f64 * fraction - x) / ramp).clamp(0.0, 1.0)
        };
        let weights = move |query: &Query| {
            // A key with the factor 0 is no part of the softmax, lest its exponential make all others vanish.
            let factors: Vec<f64> = (0..query.keys()).map(|key| mask(query, key)).collect();
            let scores = query.scores().into_iter().zip(&factors).map(|(score, &factor)| score.filter(|_| factor > 0.0));
            let weights = softmax(&scores.collect::<Vec<_>>());
            distribution(weights.iter().zip(factors).map(|(weight, factor)| weight * factor).collect())
        };
        let logit = |query: &Query, key| query.logit(&self.spanned(query.spec()), "logits.0", key);
        let shows = |query: &Query, key| query.shows(&self.spanned(query.spec()), key);
        Some(Formula::default().logit(logit).shows(shows).weights(weights))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let spans = match self.kind {
            SpanKind::Learned => ParameterFormula::trained(&[(1, "H")]),
            SpanKind::Dynamic => ParameterFormula::trained(&[(1, "d H"), (1, "H")]),
            SpanKind::Fixed => ParameterFormula::none(),
        };
        let logits = self.logits.clone().unwrap_or_else(|| LearnedRelativeConfig::default().into());
        Some(logits.parameters()?.plus(spans))
    }

    fn shared_parameters(&self) -> ParameterFormula {
        let base = || LearnedRelativeConfig::default().with_shared_table(self.shared_table).shared_parameters();
        self.logits.as_ref().map_or_else(base, AnyMechanism::shared_parameters)
    }

    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        match &self.logits {
            Some(logits) => logits.letters(max_length),
            None => vec![("S", self.longest_at(max_length))],
        }
    }
}

impl AdaptiveSpan {
    /// `z'`, `[B | 1, H, Q | 1]`.
    fn fractions(&self, query: &Tensor<3>) -> Tensor<3> {
        match (&self.span, &self.gate) {
            (Some(span), _) => span.val().reshape([1, self.heads, 1]),
            (None, Some(gate)) => transposed(sigmoid(gate.forward(query.clone()))),
            (None, None) => Tensor::full([1, self.heads, 1], self.fixed, (&query.device(), query.dtype())),
        }
    }
}

impl Logits for AdaptiveSpan {
    fn abilities(&self) -> LogitAbilities {
        let abilities = self.logits[0].abilities();
        let is_trained = self.span.is_some() || self.gate.is_some();
        LogitAbilities { cross_attention: false, auxiliary_losses: abilities.auxiliary_losses || is_trained, ..abilities }
    }

    fn inner(&self) -> Option<LogitsRef<'_>> {
        Some(&self.logits[0])
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        self.logits[0].terms(query, keys, span, positions)
    }

    fn spans(&self, query: &Tensor<3>) -> Option<Tensor<3>> {
        Some(self.fractions(query) * self.max_span as f64)
    }

    fn soft_span(&self, query: &Tensor<3>, span: Span) -> Option<SoftSpan> {
        let ramp = Ramp {
            width: self.ramp as f32,
            origin: self.origin as f32,
            nearest: usize::from(!self.own_position),
            farthest: self.max_span,
            offset: span.query_start as isize - span.key_start as isize,
        };
        Some(SoftSpan { spans: self.spans(query)?, ramp })
    }

    fn reach(&self) -> Option<usize> {
        let longest = match (&self.span, &self.gate) {
            (Some(span), _) => span.val().max().into_scalar::<f32>(),
            (None, Some(_)) => 1.0,
            (None, None) => self.fixed as f32,
        };
        // The greatest whole distance below the end of the ramp; where there are gradients, at the end too, which has a slope.
        let end = longest * self.max_span as f32 + (self.ramp + self.origin) as f32;
        let has_gradient = self.span.as_ref().is_some_and(|span| span.val().device().is_autodiff());
        let reach = if has_gradient { end.floor() } else { end.ceil() - 1.0 };
        let reach = (reach.max(0.0) as usize).min(self.max_span);
        Some(self.logits[0].reach().map_or(reach, |other| other.min(reach)))
    }

    fn multiplications(&self, d_head: f64) -> f64 {
        self.logits[0].multiplications(d_head) + 1.0
    }

    fn losses(&self, query: &Tensor<3>) -> Losses {
        let mut losses = self.logits[0].losses(query);
        if self.span.is_some() || self.gate.is_some() {
            losses.push("span", self.fractions(query).mean() * (self.penalty * self.max_span as f64));
        }
        losses
    }

    fn sharing_with(self, earlier: &Self) -> Self {
        Self { logits: shared_in_order(self.logits, &earlier.logits), ..self }
    }
}
