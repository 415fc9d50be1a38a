//! Talking-heads attention (Shazeer et al. 2020, section 4).
//!
//! `w_h = softmax_h( sum_g P[g, h] logits_g )` and `o_h = ( sum_g R[g, h] w_g ) V_h`: heads mix their logits before the softmax by a trained matrix `P`
//! `[H, H]`, and their weights after it by `R`. The mask of a head applies after the first mixing. With two identity matrices this is plain attention; either
//! mixing can be disabled.
//!
//! All logits and weights are materialised, in training several times: `n^2 H` numbers each, with any engine, since mixing needs all heads of a pair. The two
//! mixings take `2 n^2 H^2` multiplications. Patterns hide keys but save nothing.
//!
//! Any mechanism can supply the logits: `relative@talking-heads`, `dot-product@local-1d@talking-heads`, or `talking-heads` for `dot-product@talking-heads`.
//! Dropout acts on mixed weights.
//!
//! Magnitudes of the attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/talking-heads.svg")]

use burn::tensor::activation::softmax;

use crate::description::array::Array;
use crate::engine::{AttentionProgram, Dropout, Weighting, reference};
use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::LogitsRef;
use crate::softmax_attention::{HeadCall, Heads};

/// Initialisation of the mixing matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MixingInit {
    /// At random with variance `1 / H` (the released code).
    #[default]
    Random,
    /// Identity: plain attention at first.
    Identity,
}

/// Configuration of [`TalkingHeads`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct TalkingHeadsConfig {
    /// Whether heads mix their logits (default: yes).
    pub mix_logits: bool,
    /// Whether heads mix their weights (default: yes).
    pub mix_weights: bool,
    /// Initialisation of the mixing matrices (default: random).
    pub init: MixingInit,
    /// Mechanism that scores the keys: an attention with scores, a mixture of such attentions, or a pattern over them (default: dot-product attention).
    pub logits: AnyMechanism,
}

impl Default for TalkingHeadsConfig {
    fn default() -> Self {
        Self { mix_logits: true, mix_weights: true, init: MixingInit::default(), logits: AnyMechanism::default() }
    }
}

/// Heads that mix their logits and weights.
///
/// Should be created with [`TalkingHeadsConfig`].
#[derive(Module, Debug)]
pub struct TalkingHeads {
    /// The mixed attention.
    pub scores: AnyLogits,
    /// `P`, `[H, H]`: weight of the logits of a head (row) in another head (column).
    pub logit_mixing: Option<Param<Tensor<2>>>,
    /// `R`, `[H, H]`: weight of the weights of a head (row) in another head (column).
    pub weight_mixing: Option<Param<Tensor<2>>>,
}

impl Mechanism for TalkingHeadsConfig {
    type Module = HeadsOf<TalkingHeads>;
    const NAME: &'static str = "talking-heads";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "TalkingHeads",
        description: "Mixes logits across heads before the softmax and weights after it, over any logits and pattern.",
        source: "Shazeer et al. 2020, section 4",
        links: &[
            "https://arxiv.org/abs/2003.02436",
            "https://github.com/tensorflow/mesh/blob/master/mesh_tensorflow/transformer/transformer_layers.py",
        ],
        kind: Kind::Heads,
        cross: true,
        time: "n^2 (d + H^2)",
        differences: &[
            "The paper uses separate head counts for queries and keys, for the softmax and for values; here there is one count.",
            "The released code adds position biases after the first mixing; here the first mixing includes the logits' position biases, and additive masks apply after it.",
            "Mixing matrices start uniform; the released code draws them truncated normal with the same variance.",
            "Input-dependent mixing is not implemented.",
        ],
        tensors: &[
            ("logit_mixing", "mixing matrix of logits [from head, to head]"),
            ("weight_mixing", "mixing matrix of weights [from head, to head]"),
        ],
        without_decay: &[r"\.(logit|weight)_mixing$"],
        // Both engines compute this mechanism alike, with all logits of all heads materialised.
        has_engines: false,
        ..Card::DEFAULT
    };

    /// # Errors
    /// If both mixings are disabled.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        if !self.mix_logits && !self.mix_weights {
            let remedy = format!("mix logits or weights, or use {} itself", self.logits);
            return Err(spec.check(Self::NAME).refuse("mix_weights", false, remedy));
        }
        Ok(())
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> TalkingHeads {
        let heads = spec.heads;
        let mixing = |name| match self.init {
            // For a square matrix this has the variance 1 / H.
            MixingInit::Random => Init::XavierUniform { fan_in: heads, fan_out: heads }.parameter([heads, heads], &key.named(name), device),
            MixingInit::Identity => Param::from_tensor(Tensor::eye(heads, device)),
        };
        let scores = self.logits.init_logits(spec, &key.named("scores"), device);
        TalkingHeads {
            scores: scores.expect("validated: what is mixed has logits"),
            logit_mixing: self.mix_logits.then(|| mixing("logit_mixing")),
            weight_mixing: self.mix_weights.then(|| mixing("weight_mixing")),
        }
    }

    /// Shazeer et al. 2020, section 4.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().head(|query| {
            let heads = query.spec().heads;
            let share = |mixing: Option<&Array>, from: usize, to: usize| match mixing {
                Some(mixing) => mixing.at(&[from, to]),
                None => f64::from(from == to),
            };
            let logit_mixing = self.mix_logits.then(|| query.parameter("logits.logit_mixing"));
            let weight_mixing = self.mix_weights.then(|| query.parameter("logits.weight_mixing"));
            let logits = |g: usize, key: usize| query.of_head(g).logit(&self.logits, "logits.scores", key);
            let weights_of = |g: usize| {
                let own = query.of_head(g);
                let is_seen = |key: usize| own.sees(key) && own.shows(&self.logits, key);
                let mixed = |key: usize| (0..heads).map(|from| share(logit_mixing, from, g) * logits(from, key)).sum::<f64>();
                formula::softmax(&(0..query.keys()).map(|key| is_seen(key).then(|| mixed(key))).collect::<Vec<_>>())
            };
            let mut head = vec![0.0; query.spec().d_head()];
            for (g, weights) in (0..heads).map(|g| (g, weights_of(g))) {
                for (key, weight) in weights.into_iter().enumerate() {
                    let value = query.projected("value", query.attended(key));
                    head.iter_mut().zip(value).for_each(|(sum, value)| *sum += share(weight_mixing, g, query.head) * weight * value);
                }
            }
            head
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let mixings = usize::from(self.mix_logits) + usize::from(self.mix_weights);
        Some(self.logits.parameters()?.plus(ParameterFormula::trained(&[(mixings, "H^2")])))
    }
}

/// Mixes the heads of all pairs, `[B|1, H|1, Q, K]`, to `[B|1, H, Q, K]`.
fn mixed(pairs: Tensor<4>, mixing: Option<&Param<Tensor<2>>>) -> Tensor<4> {
    let Some(mixing) = mixing.map(Param::val) else { return pairs };
    let ([rows, _, queries, keys], heads) = (pairs.dims(), mixing.dims()[0]);
    let pairs = pairs.expand([rows, heads, queries, keys]).reshape([rows, heads, queries * keys]);
    mixing.transpose().unsqueeze::<3>().matmul(pairs).reshape([rows, heads, queries, keys])
}

impl Heads for TalkingHeads {
    fn scores(&self) -> Vec<LogitsRef<'_>> {
        vec![&self.scores]
    }

    fn have_weights(&self) -> bool {
        self.weight_mixing.is_none()
    }

    fn attend(&self, call: HeadCall, probe: &mut Probe) -> Tensor<4> {
        let (span, heads, probability) = (call.span(), call.heads(), call.dropout());
        let (visibility, added) = call.seen_through(&self.scores).without_additive(span);
        let HeadCall { query, keys, values, key_start, positions, random, .. } = call;
        let (dtype, device) = (values.dtype(), values.device());
        let terms = self.scores.terms(query, keys, span, &positions);
        let logits = mixed(reference::logits(terms, span.keys), self.logit_mixing.as_ref());
        let logits = match added {
            Some(bias) => logits + bias.to_device(&device).cast(dtype),
            None => logits,
        };
        let weights = match visibility.mask(span, heads, dtype, &device) {
            Some(mask) => {
                let weights = softmax(logits + mask.bias, 3);
                mask.has_key.map_or_else(|| weights.clone(), |has_key| weights.clone() * has_key)
            }
            None => softmax(logits, 3),
        };
        let weights = mixed(weights, self.weight_mixing.as_ref());
        probe.with_keys_before(key_start, |probe| {
            probe.observe(|| {
                let [rows, _, queries, keys] = weights.dims();
                let weights = weights.clone().expand([rows, heads, queries, keys]);
                if self.have_weights() { Observation::Weights(weights) } else { Observation::SignedWeights(weights) }
            });
        });
        let dropout = random.map(|key| Dropout { probability, key: key.named("weights") });
        let weighting = Weighting::Density { weights, renormalise: false };
        reference::attend(AttentionProgram { weighting, mask: None, soft_span: None, values, dropout }, &mut Probe::off())
    }

    fn head_multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        let mixings = [&self.logit_mixing, &self.weight_mixing].into_iter().flatten().count() as f64;
        pairs.dense() * (self.scores.multiplications(pairs.d_head()) + pairs.d_head() + mixings * pairs.heads as f64)
    }

    fn heads_sharing_with(self, earlier: &Self) -> Self {
        Self { scores: self.scores.sharing_with(&earlier.scores), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mixes_nothing_or_is_no_single_softmax_is_refused() {
        let place = LayerSpec::new(Role::Encoder, 8, 2).with_max_length(8);
        let nothing = TalkingHeadsConfig::default().with_mix_logits(false).with_mix_weights(false);
        let error = AnyMechanism::from(nothing).validate(&place).unwrap_err().to_string();
        assert!(error.contains("`mix_weights` is false: mix logits or weights, or use dot-product itself"), "{error}");
        for name in ["sigmoid", "output-gate", "adaptive-span", "lsh", "talking-heads"] {
            let error = format!("{name}@talking-heads").parse::<AnyMechanism>().unwrap().validate(&place).unwrap_err().to_string();
            assert!(error.contains("give an attention that has scores"), "{error}");
        }
    }

    #[test]
    fn random_mixings_have_the_variance_of_the_released_code() {
        let place = LayerSpec::new(Role::Encoder, 64, 64);
        let heads = TalkingHeadsConfig::default().init(&place, &RandomKey::from_seed(1), &Device::flex());
        for mixing in [heads.logit_mixing, heads.weight_mixing] {
            let numbers = Array::read(mixing.unwrap().val()).values;
            let variance = numbers.iter().map(|number| number * number).sum::<f64>() / numbers.len() as f64;
            assert!((variance * 64.0 - 1.0).abs() < 0.1, "{variance}");
        }
    }
}
