//! Adaptive attention span (Sukhbaatar et al. 2019, section 2.2): each head learns its attention span.
//!
//! `weights_h[i, j] = m_z(x) e^s / sum_j m_z(x) e^s` over the logits `s` of another mechanism. The soft mask `m_z(x) = clamp((R + z - x) / R, 0, 1)` falls from
//! 1 to 0 on a ramp of width `R` behind the span `z = S z'`; keys farther away than `S` are hidden. `z'` in `[0, 1]` is a parameter of each head, a prediction
//! `σ(v · x_i + b)` for each query, or fixed. [`constraints`](crate::registry::constraints) clamp the parameter after every optimiser step. The auxiliary loss
//! `span`, `λ S mean(z')` per layer, shortens the span.
//!
//! Carried memory and the decoding state contribute only positions within the layer's longest span.
//!
//! `m_z` is not differentiable in `z` where a ramp begins or ends exactly at a key; at first (`z = 0`) this holds for every ramp of whole width. There the
//! gradient uses the slope `1 / R`, at both ends. A key at the very end has weight 0; its score enters only the gradient of the span, with at most 1e8 times
//! the sum of all others. If every key within the span is hidden, the gradient is 0.
//!
//! Adam normalises gradients by their magnitude, which weakens `λ`; the paper trains with Adagrad, and without weight decay on `z'`.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/adaptive-span.svg")]

use burn::tensor::activation::sigmoid;

use super::learned_relative::LearnedRelativeConfig;
use crate::description::formula::{distribution, softmax};
use crate::engine::{Ramp, SoftSpan, transposed};
use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::{LogitsRef, shared_in_order};

/// Source of the span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpanKind {
    /// A trained parameter of each head.
    #[default]
    Learned,
    /// Predicted from each query.
    Dynamic,
    /// The initial span, not trained.
    Fixed,
}

/// Origin of the distance `x` in the ramp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpanOrigin {
    /// The key before the query has `x = 0` (the released code).
    #[default]
    Code,
    /// The key before the query has `x = 1` (the paper's formula).
    Paper,
}

/// Name of the variant with an untrained span.
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
    /// Initial span as a fraction `z'` of the longest span, in `[0, 1]`, strictly between for dynamic spans (default: 0; dynamic spans: `σ(-4)`, about 0.018).
    pub initial: Option<f64>,
    /// Strength `λ` of the penalty, at least 0 (default 2e-6).
    pub penalty: f64,
    /// Source of the spans (default: learned).
    pub kind: SpanKind,
    /// Origin of the distance in the ramp (default: as in the released code).
    pub origin: SpanOrigin,
    /// Whether a query sees its own position (default: yes; in the paper it does not).
    pub own_position: bool,
    /// Attention that supplies the logits: a mechanism with logits, or a mixture (default: `learned-relative` up to `S`, the paper's base model).
    pub logits: Option<AnyMechanism>,
    /// Whether all layers of a stack share one table of relative positions, as in the released code (default: no). Explicitly named logits have their own
    /// option.
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

/// Logits of another mechanism with a soft span mask.
///
/// Should be created with [`AdaptiveSpanConfig`].
#[derive(Module, Debug)]
pub struct AdaptiveSpan {
    /// The logits, exactly one entry.
    pub logits: Vec<AnyLogits>,
    /// Learned spans `z'`, `[H]`, in `[0, 1]`.
    pub span: Option<Param<Tensor<1>>>,
    /// Predictor of dynamic spans, `[C, H]` with bias.
    pub gate: Option<Linear>,
    fixed: f64,
    heads: usize,
    max_span: usize,
    ramp: f64,
    /// Offset subtracted from the distance to obtain `x`.
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

    /// Longest span in a model with this maximal length.
    pub fn longest_at(&self, max_length: usize) -> usize {
        self.max_span.unwrap_or(max_length)
    }

    /// Width of the ramp in a model with this maximal length.
    pub fn ramp_at(&self, max_length: usize) -> f64 {
        self.ramp.unwrap_or_else(|| quarter(self.longest_at(max_length), 32).max(2) as f64)
    }
}

impl Mechanism for AdaptiveSpanConfig {
    type Module = LogitsOf<AdaptiveSpan>;
    const NAME: &'static str = "adaptive-span";
    const CARD: Card = Card {
        variant: "AdaptiveSpan",
        description: "Masks distant keys by a learned, dynamic or fixed attention span per head, over any logits.",
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
            "The released code hides the query's own position; here it is visible unless `own_position` is false. The first query then sees no key, and its weights are exactly 0.",
            "The first queries of the released code attend to the zeros of an empty cache; here missing positions are hidden.",
            "The released code cuts memory to multiples of 64 positions; here memory has the exact length.",
            "The dynamic span is not in the released code.",
            "The gradient at both ends of a ramp uses the slope `1 / R`, like `clamp` in PyTorch up to 2.13. From PyTorch 2.14 on, `clamp` passes no gradient there, so the released code trains differently.",
            "The released code adds 1e-8 to the sum of the weights; here the same bound, 1e8, limits the score of a key at the very end of a ramp.",
        ],
        sizes: &["initial", "max_span"],
        tensors: &[
            ("span", "learned spans as fractions of the longest [heads]"),
            ("gate.weight", "predictor of spans [d_in, heads]"),
            ("gate.bias", "bias of the predictor of spans [heads]"),
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
            SpanKind::Learned => "Masks distant keys by a learned attention span per head, over any logits.",
            SpanKind::Dynamic => "Masks distant keys by an attention span per head that each query predicts, over any logits.",
            SpanKind::Fixed => "Masks distant keys by a fixed attention span, not learned, over any logits.",
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
    /// If a number is out of range, no key would be visible, or the logits are invalid or missing.
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
            // A key with factor 0 is excluded from the softmax, so that its exponential cannot underflow all others.
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
        // The largest whole distance below the end of the ramp; with gradients, the end itself too, which has a slope.
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
