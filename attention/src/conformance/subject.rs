//! What the properties are checked on: an attention on a device, and inputs for it.

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

/// An attention, twice with the same weights: on a device without and with autodiff.
pub struct Subject<A> {
    /// On the device without autodiff.
    pub attention: A,
    /// On the device with autodiff.
    pub tracked: A,
    /// The device without autodiff.
    pub device: Device,
    /// Where the attention stands.
    pub spec: LayerSpec,
    /// Whether the weights of a row with a visible key sum to 1 (unless told otherwise: yes).
    pub normalised: bool,
    /// Whether outputs are linear in the weights that dropout drops, so that it keeps their mean (unless told otherwise: yes).
    pub linear: bool,
    /// By how much numbers may differ of which the contract says that they do not move (unless told otherwise: 0).
    pub unmoved: f64,
    /// Factor of the tolerances for results that are computed in different ways (unless told otherwise: 1).
    pub rounding: f64,
    /// Length at which the mechanism changes what it does, if there is one.
    pub border: Option<usize>,
    /// The fewest heads that the mechanism is defined for (unless told otherwise: 1).
    pub fewest_heads: usize,
    /// The mechanism of the attention, if it is known: the suite compares with its formula.
    pub mechanism: Option<AnyMechanism>,
    build: Rc<Build<A>>,
}

impl Subject<AnyAttention> {
    /// The attention of a mechanism. It is also compared with the mechanism's [formula](crate::description::Mechanism::formula), if there is one.
    ///
    /// What the mechanism says of itself need not be repeated. The fewest heads are those with which its options are valid. Of a softmax attention, a
    /// normaliser, a sink or a soft span whose weights do not sum to 1 make it [unnormalised](Self::unnormalised), and the
    /// [border](Self::with_border) is the least distance at which the mechanism itself hides a key. What else changes at a length, such as a clamped distance,
    /// and weights of other attentions that are no distribution, are to be told.
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

/// The least distance at which a key behind a query is hidden from it in a head.
fn border_of(seen: &Visibility, spec: &LayerSpec) -> Option<usize> {
    let is_hidden = |distance: usize| {
        (distance..spec.max_length).any(|query| (0..spec.heads).any(|head| !seen.is_visible(0, head, query, query - distance)))
    };
    (1..spec.max_length).find(|&distance| is_hidden(distance))
}

impl<A: Attention> Subject<A> {
    /// The attention that `build` makes from a place, a key and a device: what models take in their `init_with`.
    ///
    /// Sequences are as long as `spec.max_length`, so a small one (8) keeps the checks fast. Dropout is checked with `spec.dropout`, which has to be
    /// greater than 0 for that.
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

    /// Of an attention that is to compute what a mechanism does, and has the parameters of it: if the mechanism gives its formula, that is asked too.
    pub fn computing(mut self, mechanism: &AnyMechanism) -> Self {
        self.mechanism = Some(mechanism.clone());
        self
    }

    /// Of a mechanism whose weights are no distribution: their sum is not asked.
    pub fn unnormalised(mut self) -> Self {
        self.normalised = false;
        self
    }

    /// Of a mechanism that does not sum its weighted values alone, such as one that normalises the sum: whether dropout keeps the mean of its outputs is not
    /// asked.
    pub fn nonlinear(mut self) -> Self {
        self.linear = false;
        self
    }

    /// On a device that does not give the same numbers bit for bit: what must not move may do so by this much.
    pub fn unmoved_within(mut self, tolerance: f64) -> Self {
        self.unmoved = tolerance;
        self
    }

    /// For a device that rounds the factors of 32-bit products to fewer bits, as CUDA does (TF32): multiplies the tolerances for results that are computed in
    /// different ways by `factor`.
    pub fn rounding(mut self, factor: f64) -> Self {
        self.rounding = factor;
        self
    }

    /// A tolerance of sums of 32-bit floats, on this device.
    pub(super) fn close(&self, tolerance: f64) -> f64 {
        self.rounding * tolerance
    }

    /// Of a mechanism that does something else beyond so many elements (a block, a window): asks for lengths around it.
    pub fn with_border(mut self, length: usize) -> Self {
        self.border = Some(length);
        self
    }

    /// Of a mechanism that is not defined for a single head: the fewest that it is defined for.
    pub fn with_fewest_heads(mut self, heads: usize) -> Self {
        self.fewest_heads = heads;
        self
    }

    /// The same mechanism on the device without autodiff, from another key.
    pub fn rebuilt(&self, key: &RandomKey) -> A {
        (self.build)(&self.spec, key, &self.device)
    }

    /// Where it would stand with the given number of heads of the same width, which share at most as many heads of keys and values as there are.
    fn spec_with(&self, heads: usize) -> LayerSpec {
        let LayerSpec { d_model, heads: own, kv_heads, .. } = self.spec;
        self.spec.with_d_model(d_model / own * heads).with_n_heads(heads).with_kv_heads(kv_heads.map(|shared| shared.min(heads)))
    }

    /// The same mechanism there.
    pub fn with_heads(&self, heads: usize) -> Self {
        let spec = self.spec_with(heads);
        let &Self { normalised, linear, unmoved, rounding, border, fewest_heads, .. } = self;
        let mechanism = self.mechanism.clone();
        let built = Self::from_shared(spec, self.build.clone(), &self.device);
        Self { normalised, linear, unmoved, rounding, border, fewest_heads, mechanism, ..built }
    }

    /// Whether it attends to another sequence.
    pub fn is_cross(&self) -> bool {
        self.spec.role == Role::Cross
    }

    /// Whether it is a self-attention that can be kept from seeing the future.
    pub fn is_causal(&self) -> bool {
        !self.is_cross() && self.attention.abilities().causality != Causality::Impossible
    }

    /// Whether it decodes step by step where it stands.
    pub fn decodes(&self) -> bool {
        self.attention.abilities().steps && (self.is_cross() || self.is_causal())
    }

    /// What an attention of this kind sees in a model: the past, or a whole memory.
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

    /// Context and all weights that were shown.
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

    /// How an input is executed, where there are engines to choose from.
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

/// Which attention it is and where it stands, as reports begin.
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

/// Fixed coefficients by which outputs are weighted into a loss.
pub fn coefficients(shape: &[usize]) -> Array {
    Array::random("coefficients", shape)
}

/// Gradients of the inputs and of every parameter that has one.
#[derive(Clone, Debug)]
pub struct CaseGradients {
    /// `[B, Q, C]`.
    pub query: Array,
    /// `[B, K, C]`; absent for self-attention.
    pub memory: Option<Array>,
    /// By the path in the module.
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
