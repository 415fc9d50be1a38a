//! Which attentions an experiment compares, and with which options.

use heedful_attention::any::AttentionConfig;
use heedful_attention::contract::Attention;
use heedful_attention::error::ConfigError;
use heedful_attention::mechanisms::dot_product::DotProductConfig;
use heedful_attention::mechanisms::gaussian::GaussianConfig;
use heedful_attention::mechanisms::local_1d::LocalOneDConfig;
use heedful_attention::mechanisms::local_2d::LocalTwoDConfig;
use heedful_attention::mechanisms::mixture::MixtureWeights;
use heedful_attention::mechanisms::sparse_fixed::SparseFixedConfig;
use heedful_attention::mechanisms::sparse_strided::SparseStridedConfig;
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
    /// Mixtures, written `a+b`.
    pub mixture: MixtureOptions,
    /// Hard-coded Gaussian attention.
    pub gaussian: GaussianConfig,
    /// One-dimensional blocks. What a name puts before `@` overrules the option `logits` of a pattern.
    #[serde(rename = "local-1d")]
    pub local_1d: LocalOneDConfig,
    /// Two-dimensional blocks.
    #[serde(rename = "local-2d")]
    pub local_2d: LocalTwoDConfig,
    /// Strided sparse attention.
    pub sparse_strided: SparseStridedConfig,
    /// Fixed sparse attention.
    pub sparse_fixed: SparseFixedConfig,
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
            AttentionConfig::Mixture(mut mixture) => {
                mixture.weights = self.mixture.weights;
                mixture.members = mixture.members.into_iter().map(|member| self.with_options(member)).collect();
                AttentionConfig::Mixture(mixture)
            }
            AttentionConfig::LocalOneD(named) => AttentionConfig::LocalOneD(LocalOneDConfig {
                logits: self.logits(*named.logits, &self.local_1d.logits),
                ..self.local_1d.clone()
            }),
            AttentionConfig::LocalTwoD(named) => AttentionConfig::LocalTwoD(LocalTwoDConfig {
                logits: self.logits(*named.logits, &self.local_2d.logits),
                ..self.local_2d.clone()
            }),
            AttentionConfig::SparseStrided(named) => {
                let logits = self.logits(*named.logits, &self.sparse_strided.logits);
                AttentionConfig::SparseStrided(SparseStridedConfig { logits, ..self.sparse_strided.clone() })
            }
            AttentionConfig::SparseFixed(named) => {
                let logits = self.logits(*named.logits, &self.sparse_fixed.logits);
                AttentionConfig::SparseFixed(SparseFixedConfig { logits, ..self.sparse_fixed.clone() })
            }
            other => other,
        }
    }

    /// What a pattern restricts: what its name says, otherwise its option.
    fn logits(&self, named: AttentionConfig, option: &AttentionConfig) -> Box<AttentionConfig> {
        Box::new(if named == AttentionConfig::default() { option.clone() } else { self.with_options(named) })
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
    lines.push("A pattern restricts any logits, written LOGITS@PATTERN, e.g. synthesizer-random@sparse-strided.".to_owned());
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
    fn options_reach_patterns_and_what_they_restrict() {
        let mut options = MechanismOptions::default();
        options.sparse_fixed.stride = 16;
        options.synthesizer_random.trainable = false;
        *options.local_1d.logits = "uniform".parse().unwrap();
        let AttentionConfig::SparseFixed(fixed) = options.attention("random@sparse-fixed").unwrap() else {
            panic!("a pattern stands last")
        };
        assert_eq!((fixed.stride, fixed.logits.name().as_str()), (16, "synthesizer-random-fixed"));
        assert_eq!(options.attention("local-1d").unwrap().name(), "uniform@local-1d");
        assert_eq!(options.attention("dense@local-1d").unwrap().name(), "synthesizer-dense@local-1d");
        let text = toml::to_string(&options).unwrap();
        assert_eq!(toml::from_str::<MechanismOptions>(&text).unwrap(), options, "{text}");
    }

    #[test]
    fn the_list_names_every_mechanism() {
        let list = list();
        for config in AttentionConfig::all() {
            assert!(list.contains(&config.name()), "{} is missing", config.name());
        }
    }
}
