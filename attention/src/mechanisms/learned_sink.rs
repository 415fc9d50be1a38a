//! Softmax with a learned sink (OpenAI 2025, gpt-oss).
//!
//! `w[i, j] = exp(s[i, j]) / (exp(a_h) + sum_k exp(s[i, k]))`: each head has a learned scalar `a_h`, the logit of an extra key with value 0. A query without a
//! relevant key can assign most of the weight to this sink. Every query that sees a key sees the sink. The sink logit is not scaled, and neither distance
//! biases nor a soft cap affect it. With `a_h = 0` the mechanism equals `softmax-plus-one`. Any mechanism can supply the scores `s`: `alibi@learned-sink`, or
//! `learned-sink` for short. Time and decoding state equal those of the scores (default: dot-product attention).
//!
//! The context equals that of a softmax without a sink times `1 / (1 + exp(a_h - L))`, where `L` is the log-sum-exp of its scores. Names of the other
//! parameters do not include the sink, so a layer can load weights trained with a softmax.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/learned-sink.svg")]

use crate::mechanisms::prelude::*;

/// Configuration of a softmax with a learned sink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct LearnedSinkConfig {
    /// Standard deviation of the initial sink logits, whose mean is 0; at least 0 (default: 0.02, the initialisation of gpt-oss in the transformers library).
    pub init_std: f64,
    /// Mechanism that scores the keys (default: dot-product attention).
    pub logits: AnyMechanism,
}

impl Default for LearnedSinkConfig {
    fn default() -> Self {
        Self { init_std: 0.02, logits: AnyMechanism::default() }
    }
}

impl Mechanism for LearnedSinkConfig {
    type Module = AnyLogits;
    const NAME: &'static str = "learned-sink";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "LearnedSink",
        description: "Adds a learned logit per head to the denominator of the softmax, so that a query can attend to nothing, over any logits and pattern.",
        source: "OpenAI 2025, gpt-oss model card, section 2",
        links: &["https://arxiv.org/abs/2508.10925", "https://github.com/openai/gpt-oss"],
        tensors: &[("sink", "logits of the sinks [heads]")],
        without_decay: &[r"Softmax\.sink$"],
        ..Card::NORMALISER
    };

    /// # Errors
    /// If the standard deviation is negative or not finite.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        spec.check(Self::NAME).non_negative("init_std", self.init_std)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyLogits {
        self.logits.init_scores(spec, key, device).with_sink(Init::Normal(self.init_std as f32))
    }

    /// The released code of gpt-oss: the sink logit joins the row before the softmax, and its weight is dropped afterwards.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().weights(|query| {
            let (scores, sink) = (query.scores(), query.parameter("sink").at(&[query.head]));
            let largest = scores.iter().flatten().fold(sink, |largest, &score| largest.max(score));
            let sum = (sink - largest).exp() + scores.iter().flatten().map(|score| (score - largest).exp()).sum::<f64>();
            scores.into_iter().map(|score| score.map_or(0.0, |score| (score - largest).exp() / sum)).collect()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(self.logits.parameters()?.plus(ParameterFormula::trained(&[(1, "H")])))
    }
}
