//! Subject of the checks: an attention on a device, and inputs for it.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use burn::tensor::{Device, Tensor};
use heedful_random::RandomKey;

use crate::contract::abilities::Causality;
use crate::contract::engine::Executed;
use crate::contract::layer_spec::{LayerSpec, Role};
use crate::contract::probe::{Observation, Probe};
use crate::contract::visibility::{Span, Visibility};
use crate::contract::{Attention, AttentionInput, AttentionOutput};
use crate::description::AnyMechanism;
use crate::description::array::Array;
use crate::description::case::parameters;
use crate::description::{AnyAttention, Case};
use crate::engine::Normaliser;
use crate::softmax_attention::logits::Logits;

type Build<A> = dyn Fn(&LayerSpec, &RandomKey, &Device) -> A;

/// An attention with the same weights on a device without and on a device with autodiff.
pub struct Subject<A> {
    /// Attention on the device without autodiff.
    pub attention: A,
    /// Attention on the device with autodiff.
    pub tracked: A,
    /// The device without autodiff.
    pub device: Device,
    /// Place of the attention.
    pub spec: LayerSpec,
    /// Whether the weights of a row with a visible key sum to 1 (default: yes).
    pub normalised: bool,
    /// Whether outputs are linear in the dropped weights, so that dropout keeps their mean (default: yes).
    pub linear: bool,
    /// Tolerance for numbers that the contract requires to stay equal (default: 0).
    pub unmoved: f64,
    /// Factor of the tolerances for results computed in different ways (default: 1).
    pub rounding: f64,
    /// Length at which the mechanism changes its behaviour, if any.
    pub border: Option<usize>,
    /// Minimum number of heads of the mechanism (default: 1).
    pub fewest_heads: usize,
    /// Mechanism of the attention, if known, for comparison with its formula.
    pub mechanism: Option<AnyMechanism>,
    build: Rc<Build<A>>,
}

impl Subject<AnyAttention> {
    /// Subject of a mechanism, also compared with the mechanism's [formula](crate::description::Mechanism::formula), if defined.
    ///
    /// Metadata of the mechanism need not be repeated. The minimum number of heads is the smallest for which its options are valid. A softmax attention with a
    /// normaliser, a sink or a soft span whose weights do not sum to 1 is [unnormalised](Self::unnormalised). Its [border](Self::with_border) is the minimum
    /// distance at which the mechanism itself hides a key. Other changes at a length, such as a clamped distance, and unnormalised weights of other attentions
    /// must be declared.
    ///
    /// Sequences and dropout are as in [`Subject::new`].
    ///
    /// # Panics
    /// If the configuration is not valid for the layer spec.
    pub fn of(mechanism: &AnyMechanism, spec: LayerSpec, device: &Device) -> Self {
        let built = mechanism.clone();
        let subject = Self::new(spec, move |spec, key, device| built.init(spec, key, device), device).computing(mechanism);
        let heads = 1..=subject.spec.heads;
        let fewest_heads = heads.clone().find(|&heads| mechanism.validate(&subject.spec_with(heads)).is_ok()).unwrap_or(*heads.end());
        let Some(softmax) = subject.attention.as_softmax() else { return Self { fewest_heads, ..subject } };
        let logits = &softmax.logits;
        let sums_to_one = matches!(logits.normaliser(), Normaliser::Softmax | Normaliser::Entmax { .. });
        let query = Tensor::zeros([1, 1, subject.spec.d_model], device);
        let normalised = sums_to_one && logits.sink().is_none() && logits.soft_span(&query, Span::whole(1, 1)).is_none();
        let border = logits.visibility().and_then(|seen| border_of(&seen, &subject.spec));
        Self { fewest_heads, normalised, border, ..subject }
    }
}

/// Minimum distance at which an earlier key is hidden from a query in some head.
fn border_of(seen: &Visibility, spec: &LayerSpec) -> Option<usize> {
    let is_hidden = |distance: usize| {
        (distance..spec.max_length).any(|query| (0..spec.heads).any(|head| !seen.is_visible(0, head, query, query - distance)))
    };
    (1..spec.max_length).find(|&distance| is_hidden(distance))
}

impl<A: Attention> Subject<A> {
    /// Attention created by `build` from a place, a key and a device, as in the models' `init_with`.
    ///
    /// Sequences have length `spec.max_length`, so a small value (8) keeps the checks fast. Dropout is checked with `spec.dropout`, if greater than 0.
    pub fn new(spec: LayerSpec, build: impl Fn(&LayerSpec, &RandomKey, &Device) -> A + 'static, device: &Device) -> Self {
        Self::from_shared(spec, Rc::new(build), device)
    }

    fn from_shared(spec: LayerSpec, build: Rc<Build<A>>, device: &Device) -> Self {
        let key = RandomKey::from_seed(1);
        Self {
            attention: build(&spec, &key, device),
            tracked: build(&spec, &key, &device.clone().autodiff()),
            device: device.clone(),
            spec,
            normalised: true,
            linear: true,
            unmoved: 0.0,
            rounding: 1.0,
            border: None,
            fewest_heads: 1,
            mechanism: None,
            build,
        }
    }

    /// Declares that the attention computes a mechanism and has its parameters: if the mechanism defines its formula, that is also checked.
    pub fn computing(mut self, mechanism: &AnyMechanism) -> Self {
        self.mechanism = Some(mechanism.clone());
        self
    }

    /// For mechanisms whose weights do not sum to 1: skips the check of their sum.
    pub fn unnormalised(mut self) -> Self {
        self.normalised = false;
        self
    }

    /// For mechanisms that transform their weighted sums nonlinearly, such as by a norm: skips the check that dropout keeps the mean of the outputs.
    pub fn nonlinear(mut self) -> Self {
        self.linear = false;
        self
    }

    /// For devices without bit-reproducible results: sets the tolerance for numbers that must stay equal.
    pub fn unmoved_within(mut self, tolerance: f64) -> Self {
        self.unmoved = tolerance;
        self
    }

    /// For devices that round factors of 32-bit products to fewer bits, like CUDA (TF32): multiplies the tolerances for results computed in different ways by
    /// `factor`.
    pub fn rounding(mut self, factor: f64) -> Self {
        self.rounding = factor;
        self
    }

    /// Tolerance of sums of 32-bit floats on this device.
    pub(super) fn close(&self, tolerance: f64) -> f64 {
        self.rounding * tolerance
    }

    /// For mechanisms that change their behaviour beyond a length (a block, a window): checks lengths around it.
    pub fn with_border(mut self, length: usize) -> Self {
        self.border = Some(length);
        self
    }

    /// For mechanisms that do not support a single head: sets the minimum number of heads.
    pub fn with_fewest_heads(mut self, heads: usize) -> Self {
        self.fewest_heads = heads;
        self
    }

    /// The same mechanism on the device without autodiff, from another key.
    pub fn rebuilt(&self, key: &RandomKey) -> A {
        (self.build)(&self.spec, key, &self.device)
    }

    /// Place with the given number of heads of the same width, with at most as many key and value heads.
    fn spec_with(&self, heads: usize) -> LayerSpec {
        let LayerSpec { d_model, heads: own, kv_heads, .. } = self.spec;
        self.spec.with_d_model(d_model / own * heads).with_n_heads(heads).with_kv_heads(kv_heads.map(|shared| shared.min(heads)))
    }

    /// The same mechanism at that place.
    pub fn with_heads(&self, heads: usize) -> Self {
        let spec = self.spec_with(heads);
        let &Self { normalised, linear, unmoved, rounding, border, fewest_heads, .. } = self;
        let mechanism = self.mechanism.clone();
        let built = Self::from_shared(spec, self.build.clone(), &self.device);
        Self { normalised, linear, unmoved, rounding, border, fewest_heads, mechanism, ..built }
    }

    /// Whether it is cross-attention.
    pub fn is_cross(&self) -> bool {
        self.spec.role == Role::Cross
    }

    /// Whether it is self-attention with support for causality.
    pub fn is_causal(&self) -> bool {
        !self.is_cross() && self.attention.abilities().causality != Causality::Impossible
    }

    /// Whether it supports decoding at its place.
    pub fn decodes(&self) -> bool {
        self.attention.abilities().steps && (self.is_cross() || self.is_causal())
    }

    /// Usual visibility of such an attention in a model: the past, or a whole memory.
    pub fn usual(&self) -> Visibility {
        if self.is_causal() { Visibility::causal() } else { Visibility::all() }
    }

    /// A random case: `batch` rows of `length` queries, and for cross-attention a memory of six keys.
    pub fn case(&self, name: &str, batch: usize, length: usize) -> Case {
        let memory = self.is_cross().then(|| Array::random(&format!("{name}, memory"), &[batch, 6, self.spec.d_model]));
        Case { query: Array::random(name, &[batch, length, self.spec.d_model]), memory }
    }

    /// Context of an input.
    pub fn forward(&self, input: AttentionInput) -> Array {
        Array::read(self.attention.forward(input, &mut Probe::off()).context)
    }

    /// Context and all reported weights.
    pub fn observed(&self, input: AttentionInput) -> (Array, Vec<Array>) {
        let mut shown = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Weights(weights) = observation {
                shown.push(Array::read(weights));
            }
        };
        let context = self.attention.forward(input, &mut Probe::listening(&mut listener)).context;
        (Array::read(context), shown)
    }

    /// Executed engines for an input, if there is a choice.
    pub fn executed(&self, input: AttentionInput) -> Vec<Executed> {
        let mut found = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Executed(executed) = observation {
                found.push(executed);
            }
        };
        self.attention.forward(input, &mut Probe::listening(&mut listener));
        found
    }

    /// Gradients of `sum(context * coefficients)`.
    pub fn gradients(&self, case: &Case, prepare: impl Fn(AttentionInput) -> AttentionInput) -> CaseGradients {
        self.gradients_of(case, prepare, |output| {
            let coefficients = coefficients(&output.context.dims()).tensor(&output.context.device());
            (output.context * coefficients).sum()
        })
    }

    /// Gradients of a loss.
    pub fn gradients_of(
        &self,
        case: &Case,
        prepare: impl Fn(AttentionInput) -> AttentionInput,
        loss: impl Fn(AttentionOutput) -> Tensor<1>,
    ) -> CaseGradients {
        let device = self.device.clone().autodiff();
        let query = case.query.tensor::<3>(&device).require_grad();
        let memory = case.memory.as_ref().map(|memory| memory.tensor::<3>(&device).require_grad());
        let mut input = AttentionInput::self_attention(query.clone());
        input.memory = memory.clone();
        let gradients = loss(self.tracked.forward(prepare(input), &mut Probe::off())).backward();
        let read = |tensor: &Tensor<3>| match tensor.grad(&gradients) {
            Some(gradient) => Array::read(gradient),
            None => Array { shape: tensor.dims().to_vec(), values: vec![0.0; tensor.dims().iter().product()] },
        };
        CaseGradients { query: read(&query), memory: memory.as_ref().map(read), parameters: parameters(&self.tracked, Some(&gradients)) }
    }
}

/// The attention and its place, as in the header of reports.
impl<A: Attention> fmt::Display for Subject<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LayerSpec { role, d_model, heads, kv_heads, max_length, dropout, .. } = self.spec;
        match &self.mechanism {
            Some(mechanism) => write!(f, "{}", mechanism.name())?,
            None => write!(f, "{}", std::any::type_name::<A>())?,
        }
        write!(f, " ({role:?}, width {d_model}, {heads} heads")?;
        if let Some(shared) = kv_heads {
            write!(f, ", {shared} of keys and values")?;
        }
        write!(f, ", lengths up to {max_length}, dropout {dropout})")
    }
}

/// Fixed coefficients that weight outputs into a loss.
pub fn coefficients(shape: &[usize]) -> Array {
    Array::random("coefficients", shape)
}

/// Gradients of the inputs and of every parameter with a gradient.
#[derive(Clone, Debug)]
pub struct CaseGradients {
    /// `[B, Q, C]`.
    pub query: Array,
    /// `[B, K, C]`; absent for self-attention.
    pub memory: Option<Array>,
    /// Gradients by parameter path.
    pub parameters: BTreeMap<String, Array>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Subject<AnyAttention> {
        let spec = LayerSpec::new(Role::Decoder, 6, 2).with_max_length(8).with_dropout(0.3);
        Subject::of(&name.parse().unwrap(), spec, &Device::flex())
    }

    #[test]
    fn what_a_mechanism_says_of_itself_need_not_be_told() {
        for name in ["dot-product", "alibi", "entmax", "sparsemax", "sliding-window"] {
            assert!(of(name).normalised, "{name}");
        }
        for name in ["sigmoid", "relu", "softmax-plus-one", "softpick", "learned-sink", "adaptive-span"] {
            assert!(!of(name).normalised, "{name}");
        }
        assert_eq!(of("sliding-window{window=3}").border, Some(3));
        assert_eq!([of("sliding-window{window=8}").border, of("dot-product").border], [None, None]);
        assert_eq!(of("dot-product").fewest_heads, 1);
    }

    #[test]
    fn rows_of_blocks_that_hold_only_padding_need_not_sum_to_one() {
        let spec = LayerSpec::new(Role::Decoder, 8, 4).with_kv_heads(Some(2)).with_max_length(8);
        for name in ["local-1d", "alibi@local-1d"] {
            Subject::of(&name.parse().unwrap(), spec, &Device::flex()).check().unwrap();
        }
    }

    #[test]
    fn a_report_names_mechanism_and_layer_spec() {
        let report = of("alibi@sigmoid").check().unwrap();
        assert_eq!(report.subject(), "alibi@sigmoid (Decoder, width 6, 2 heads, lengths up to 8, dropout 0.3)");
        assert!(report.to_string().starts_with(report.subject()), "{report}");
    }
}
