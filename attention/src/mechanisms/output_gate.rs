//! Gates on head outputs (Qiu et al. 2025, position `G1`).
//!
//! `o_h[i] = g_h[i] ⊙ sum_j w_h[i, j] v_h[j]` with `g_h[i] = σ(x_i W_g^h)`: a query-dependent sigmoid gate multiplies the attention output of each head before
//! the output projection. A query without a relevant key can close its gate, instead of putting its weight on an irrelevant key such as the first one. Gates
//! are elementwise (one per channel of a head) or headwise.
//!
//! Any mechanism can supply scores and weights: `alibi@output-gate`, `dot-product@local-1d@output-gate`, or `output-gate` for `dot-product@output-gate`. Time
//! and decoding state equal those of the gated attention (default: dot-product attention); the gate caches nothing.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/output-gate.svg")]

use burn::tensor::activation::sigmoid;

use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::{LogitsRef, shared_in_order};

/// Granularity of the gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateForm {
    /// One gate per channel of each head.
    #[default]
    Elementwise,
    /// One gate per head.
    Headwise,
}

/// Configuration of [`OutputGate`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct OutputGateConfig {
    /// Granularity of the gates (default: `elementwise`, each channel of each head).
    pub form: GateForm,
    /// Initial bias of the gates. If given, gate weights start at 0, so all gates start at `σ(bias)`: 10 starts with open gates (default: no bias, and weights
    /// initialised like other projections, as in the paper). A model whose `initialisation` is `normal`, `normal-tables` or `scaled` redraws the gate weights.
    pub bias: Option<f64>,
    /// Gated attention: a mechanism with scores, a mixture of such mechanisms, or a pattern or normaliser over them (default: dot-product attention).
    pub logits: AnyMechanism,
}

/// Logits of another mechanism, with gates on the head outputs.
///
/// Should be created with [`OutputGateConfig`].
#[derive(Module, Debug)]
pub struct OutputGate {
    /// The gated attention, exactly one entry.
    // A list, because a module cannot contain itself otherwise.
    pub logits: Vec<AnyLogits>,
    /// Gate projection before the sigmoid, `[C, H D]`, or `[C, H]` for headwise gates.
    pub output_gate: Linear,
    heads: usize,
}

impl Mechanism for OutputGateConfig {
    type Module = LogitsOf<OutputGate>;
    const NAME: &'static str = "output-gate";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "OutputGate",
        description: "Multiplies each head's output by a query-dependent sigmoid gate, over any logits, pattern and normaliser.",
        source: "Qiu et al. 2025",
        links: &["https://arxiv.org/abs/2505.06708", "https://github.com/qiuzh20/gated_attention"],
        kind: Kind::Gate,
        cross: true,
        differences: &[
            "The released code computes queries and gates by one projection; here gates have their own projection, `output_gate`.",
            "Other activations, additive gates and the other gate positions of the paper's comparison are not implemented.",
        ],
        tensors: &[
            (
                "output_gate.weight",
                "gate projection of head outputs [d_in, d_out]; heads lie side by side in d_out, with one channel per head for headwise gates",
            ),
            ("output_gate.bias", "bias of the gates; heads lie side by side"),
        ],
        ..Card::DEFAULT
    };

    /// # Errors
    /// If the bias is not finite.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        if let Some(bias) = self.bias.filter(|bias| !bias.is_finite()) {
            return Err(spec.check(Self::NAME).refuse("bias", bias, "give a finite number, or leave it out"));
        }
        Ok(())
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> OutputGate {
        let logits = self.logits.init_logits(spec, &key.named("logits"), device).expect("validated: what is gated has logits");
        let width = match self.form {
            GateForm::Elementwise => spec.query_width(),
            GateForm::Headwise => spec.heads,
        };
        let mut output_gate = init::linear(spec.d_model, width, false, &key.named("output_gate"), device);
        if let Some(bias) = self.bias {
            output_gate.weight = Param::from_tensor(Tensor::zeros([spec.d_model, width], device));
            output_gate.bias = Some(Init::Constant(bias as f32).parameter([width], key, device));
        }
        OutputGate { logits: vec![logits], output_gate, heads: spec.heads }
    }

    /// Qiu et al. 2025: sigmoid of a projection of the query's token.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().gate(|query| {
            let open = match self.form {
                GateForm::Elementwise => query.projected("output_gate", query.element()),
                GateForm::Headwise => vec![query.mapped("output_gate", query.element())[query.head]],
            };
            open.into_iter().map(formula::sigmoid).collect()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let [weights, biases] = match self.form {
            GateForm::Elementwise => ["d q", "q"],
            GateForm::Headwise => ["d H", "H"],
        };
        let gates = ParameterFormula::trained(&[(1, weights)]);
        let gates = if self.bias.is_some() { gates.plus(ParameterFormula::trained(&[(1, biases)])) } else { gates };
        Some(self.logits.parameters()?.plus(gates))
    }
}

impl Logits for OutputGate {
    fn abilities(&self) -> LogitAbilities {
        self.logits[0].abilities()
    }

    fn inner(&self) -> Option<LogitsRef<'_>> {
        Some(&self.logits[0])
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        self.logits[0].terms(query, keys, span, positions)
    }

    /// A gate over a gate is the product of both.
    fn gate(&self, query: &Tensor<3>) -> Option<Tensor<4>> {
        let own = split_heads(sigmoid(linear(query.clone(), &self.output_gate)), self.heads);
        Some(match self.logits[0].gate(query) {
            Some(inner) => inner * own,
            None => own,
        })
    }

    fn sharing_with(self, earlier: &Self) -> Self {
        Self { logits: shared_in_order(self.logits, &earlier.logits), ..self }
    }
}
