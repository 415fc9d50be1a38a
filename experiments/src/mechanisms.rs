//! Which attentions an experiment compares, and with which options.

use heedful_attention::any::AttentionConfig;
use heedful_attention::contract::Attention;
use heedful_attention::error::ConfigError;
use heedful_attention::mechanisms::adaptive_span::{AdaptiveSpanConfig, SpanKind};
use heedful_attention::mechanisms::dot_product::DotProductConfig;
use heedful_attention::mechanisms::gaussian::GaussianConfig;
use heedful_attention::mechanisms::learned_relative::LearnedRelativeConfig;
use heedful_attention::mechanisms::mixture::MixtureWeights;
use heedful_attention::mechanisms::relative::RelativeConfig;
use heedful_attention::mechanisms::synthesizer_dense::SynthesizerDenseConfig;
use heedful_attention::mechanisms::synthesizer_factorized_dense::SynthesizerFactorizedDenseConfig;
use heedful_attention::mechanisms::synthesizer_factorized_random::SynthesizerFactorizedRandomConfig;
use heedful_attention::mechanisms::synthesizer_random::SynthesizerRandomConfig;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::random::RandomKey;
use serde::{Deserialize, Serialize};

/// Options of the mechanisms, one table each; they hold wherever the mechanism stands, also as a member of a mixture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct MechanismOptions {
    /// Scaled dot-product attention.
    pub dot_product: DotProductConfig,
    /// Dense Synthesizer.
    pub synthesizer_dense: SynthesizerDenseConfig,
    /// Random Synthesizer.
    pub synthesizer_random: SynthesizerRandomConfig,
    /// Factorized Dense Synthesizer.
    pub synthesizer_factorized_dense: SynthesizerFactorizedDenseConfig,
    /// Factorized Random Synthesizer.
    pub synthesizer_factorized_random: SynthesizerFactorizedRandomConfig,
    /// Relative positions of Transformer-XL.
    pub relative: RelativeConfig,
    /// Learned relative positions.
    pub learned_relative: LearnedRelativeConfig,
    /// Adaptive attention span.
    pub adaptive_span: AdaptiveSpanConfig,
    /// Mixtures, written `a+b`.
    pub mixture: MixtureOptions,
    /// Hard-coded Gaussian attention.
    pub gaussian: GaussianConfig,
}

/// Options of mixtures; the members are in the name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MixtureOptions {
    /// How the members are weighted: `softmax` (default), `sum` or `sigmoid`.
    pub weights: MixtureWeights,
}

impl MechanismOptions {
    /// The configuration of the attention called `name`, with these options.
    ///
    /// # Errors
    /// If no mechanism has this name.
    pub fn attention(&self, name: &str) -> Result<AttentionConfig, ConfigError> {
        Ok(self.with_options(name.parse()?))
    }

    fn with_options(&self, config: AttentionConfig) -> AttentionConfig {
        match config {
            AttentionConfig::DotProduct(_) => AttentionConfig::DotProduct(self.dot_product.clone()),
            AttentionConfig::SynthesizerDense(_) => AttentionConfig::SynthesizerDense(self.synthesizer_dense.clone()),
            // A name that says `-fixed` is not overruled by the default of the option.
            AttentionConfig::SynthesizerRandom(named) => AttentionConfig::SynthesizerRandom(SynthesizerRandomConfig {
                trainable: named.trainable && self.synthesizer_random.trainable,
                ..self.synthesizer_random.clone()
            }),
            AttentionConfig::SynthesizerFactorizedDense(_) => {
                AttentionConfig::SynthesizerFactorizedDense(self.synthesizer_factorized_dense.clone())
            }
            AttentionConfig::SynthesizerFactorizedRandom(_) => {
                AttentionConfig::SynthesizerFactorizedRandom(self.synthesizer_factorized_random.clone())
            }
            AttentionConfig::Gaussian(_) => AttentionConfig::Gaussian(self.gaussian.clone()),
            AttentionConfig::Relative(_) => AttentionConfig::Relative(self.relative.clone()),
            AttentionConfig::LearnedRelative(_) => AttentionConfig::LearnedRelative(self.learned_relative.clone()),
            // A name that says `-fixed` is not overruled either.
            AttentionConfig::AdaptiveSpan(named) => AttentionConfig::AdaptiveSpan(AdaptiveSpanConfig {
                kind: if named.kind == SpanKind::Fixed { named.kind } else { self.adaptive_span.kind },
                ..self.adaptive_span.clone()
            }),
            AttentionConfig::Mixture(mut mixture) => {
                mixture.weights = self.mixture.weights;
                mixture.members = mixture.members.into_iter().map(|member| self.with_options(member)).collect();
                AttentionConfig::Mixture(mixture)
            }
            other => other,
        }
    }
}

/// One line for each mechanism: its name and what it can do.
pub fn list() -> String {
    let placement = Placement { role: Role::Decoder, layer: 0, layers: 1, d_model: 8, heads: 2, max_length: 512, dropout: 0.0 };
    let device = burn::tensor::Device::flex();
    let mechanisms: Vec<_> = AttentionConfig::all()
        .into_iter()
        .map(|config| (config.name(), config.init(&placement, &RandomKey::from_seed(0), &device).abilities()))
        .collect();
    let width = mechanisms.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut lines: Vec<_> = mechanisms.iter().map(|(name, abilities)| format!("{name:width$}  {abilities}")).collect();
    lines.push(String::new());
    lines.push(
        "Names joined by + are mixtures of logits, e.g. synthesizer-random+dot-product; maximal lengths follow model.max_length."
            .to_owned(),
    );
    lines.push("Options: --set mechanisms.NAME.OPTION=VALUE, e.g. --set mechanisms.synthesizer-random.trainable=false".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_a_mechanism_alone_and_inside_a_mixture() {
        let mut options = MechanismOptions::default();
        options.synthesizer_random.trainable = false;
        options.mixture.weights = MixtureWeights::Sum;
        let frozen = AttentionConfig::SynthesizerRandom(SynthesizerRandomConfig { trainable: false, ..Default::default() });
        assert_eq!(options.attention("synthesizer-random").unwrap(), frozen);
        let AttentionConfig::Mixture(mixture) = options.attention("random+dot-product").unwrap() else {
            panic!("a name with + is a mixture")
        };
        assert_eq!(mixture.weights, MixtureWeights::Sum);
        assert_eq!(mixture.members[0], frozen);
    }

    #[test]
    fn options_of_spans_hold_for_the_fixed_twin_too() {
        let adaptive_span = AdaptiveSpanConfig { ramp: 4.0, kind: SpanKind::Dynamic, ..AdaptiveSpanConfig::default() };
        let options = MechanismOptions { adaptive_span, ..MechanismOptions::default() };
        for (name, kind) in [("adaptive-span", SpanKind::Dynamic), ("adaptive-span-fixed", SpanKind::Fixed)] {
            let expected = AdaptiveSpanConfig { ramp: 4.0, kind, ..AdaptiveSpanConfig::default() };
            assert_eq!(options.attention(name).unwrap(), AttentionConfig::AdaptiveSpan(expected));
        }
    }

    #[test]
    fn the_list_names_every_mechanism() {
        let list = list();
        for config in AttentionConfig::all() {
            assert!(list.contains(&config.name()), "{} is missing", config.name());
        }
    }
}
