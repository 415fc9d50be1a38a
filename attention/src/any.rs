//! All mechanisms as one type, chosen by configuration.
//!
//! Adding a mechanism with logits is its file and one line in `softmax_mechanisms!`; any other is its file and a variant of [`AnyAttention`].

use std::fmt;
use std::str::FromStr;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::abilities::Abilities;
use crate::contract::{Attention, AttentionInput, AttentionOutput, Positions};
use crate::engine::LogitTerms;
use crate::error::ConfigError;
use crate::logits::{LogitFacts, Logits};
use crate::mechanisms::dot_product::{DotProduct, DotProductConfig};
use crate::mechanisms::gaussian::{Gaussian, GaussianConfig};
use crate::mechanisms::mixture::{Mixture, MixtureConfig, MixtureWeights};
use crate::mechanisms::synthesizer_dense::{SynthesizerDense, SynthesizerDenseConfig};
use crate::mechanisms::synthesizer_factorized_dense::{SynthesizerFactorizedDense, SynthesizerFactorizedDenseConfig};
use crate::mechanisms::synthesizer_factorized_random::{SynthesizerFactorizedRandom, SynthesizerFactorizedRandomConfig};
use crate::mechanisms::synthesizer_random::{SynthesizerRandom, SynthesizerRandomConfig};
use crate::memory::KeyValueState;
use crate::placement::{Placement, Role};
use crate::probe::Probe;
use crate::random::RandomKey;
use crate::softmax_attention::SoftmaxAttention;
use crate::visibility::Span;

/// Writes the configuration and the module of every mechanism that has logits, and what they share.
macro_rules! softmax_mechanisms {
    ($($(#[$doc:meta])* $name:literal $variant:ident($config:ty)),* $(,)?) => {
        /// Which mechanism, and its options: a table with the key `name`, e.g. `{ name = "synthesizer-random", trainable = false }`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        #[non_exhaustive]
        pub enum AttentionConfig {
            $($(#[$doc])* #[serde(rename = $name)] $variant($config),)*
            /// Hard-coded Gaussian attention.
            #[serde(rename = "gaussian")]
            Gaussian(GaussianConfig),
        }

        /// Logits of any mechanism that has them.
        #[derive(Module, Debug)]
        pub enum AnyLogits {
            $($(#[$doc])* $variant($variant),)*
        }

        impl AttentionConfig {
            /// Name of the family, without the members of a mixture.
            pub fn family(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    Self::Gaussian(_) => "gaussian",
                }
            }

            /// The logits alone, for mechanisms that have them.
            pub fn init_logits(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
                match self {
                    $(Self::$variant(config) => Some(AnyLogits::$variant(config.init(placement, key, device))),)*
                    Self::Gaussian(_) => None,
                }
            }

            fn validate_options(&self, placement: &Placement) -> Result<(), ConfigError> {
                match self {
                    $(Self::$variant(config) => config.validate(placement),)*
                    Self::Gaussian(config) => config.validate(placement),
                }
            }
        }

        impl Logits for AnyLogits {
            fn facts(&self) -> LogitFacts {
                match self { $(Self::$variant(logits) => logits.facts(),)* }
            }

            fn keys(&self, memory: Tensor<3>) -> Option<Tensor<4>> {
                match self { $(Self::$variant(logits) => logits.keys(memory),)* }
            }

            fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
                match self { $(Self::$variant(logits) => logits.terms(query, keys, span, positions),)* }
            }
        }
    };
}

softmax_mechanisms! {
    /// Scaled dot-product attention.
    "dot-product" DotProduct(DotProductConfig),
    /// Dense Synthesizer.
    "synthesizer-dense" SynthesizerDense(SynthesizerDenseConfig),
    /// Random Synthesizer.
    "synthesizer-random" SynthesizerRandom(SynthesizerRandomConfig),
    /// Factorized Dense Synthesizer.
    "synthesizer-factorized-dense" SynthesizerFactorizedDense(SynthesizerFactorizedDenseConfig),
    /// Factorized Random Synthesizer.
    "synthesizer-factorized-random" SynthesizerFactorizedRandom(SynthesizerFactorizedRandomConfig),
    /// Weighted sum of logits of several mechanisms.
    "mixture" Mixture(MixtureConfig),
}

impl Default for AttentionConfig {
    fn default() -> Self {
        Self::DotProduct(DotProductConfig::default())
    }
}

impl AttentionConfig {
    /// Names that [`from_str`](Self::from_str) understands by themselves; names of mechanisms with logits can also be joined by `+`.
    pub const NAMES: [&str; 7] = [
        "dot-product",
        "synthesizer-dense",
        "synthesizer-random",
        "synthesizer-random-fixed",
        "synthesizer-factorized-dense",
        "synthesizer-factorized-random",
        "gaussian",
    ];

    /// One configuration of every family, with default options.
    pub fn all() -> Vec<Self> {
        let mixture = "synthesizer-random+dot-product";
        let names = Self::NAMES.into_iter().chain([mixture]);
        names.map(|name| name.parse().expect("the names in this list are known")).collect()
    }

    /// The name by which the mechanism is known in options, tables and folders; a mixture's is that of its members joined by `+`, that of a random
    /// synthesizer which is not trained ends in `-fixed`.
    pub fn name(&self) -> String {
        match self {
            Self::SynthesizerRandom(random) if !random.trainable => format!("{}-fixed", self.family()),
            Self::Mixture(mixture) => {
                let members: Vec<_> = mixture.members.iter().map(Self::name).collect();
                members.join("+")
            }
            _ => self.family().to_owned(),
        }
    }

    /// Whether the mechanism is a softmax over logits that can be mixed with others.
    pub fn has_logits(&self) -> bool {
        !matches!(self, Self::Gaussian(_) | Self::Mixture(_))
    }

    /// Checks the options, and whether the mechanism is defined for its place in the model.
    ///
    /// # Errors
    /// An impossible option or place, naming both and the remedy. After `Ok`, building does not fail.
    pub fn validate(&self, placement: &Placement) -> Result<(), ConfigError> {
        if placement.heads == 0 || !placement.d_model.is_multiple_of(placement.heads) {
            return Err(ConfigError::Option {
                place: placement.to_string(),
                attention: self.name(),
                option: "heads",
                value: placement.heads.to_string(),
                remedy: format!("give a divisor of d_model = {}", placement.d_model),
            });
        }
        if !(0.0..1.0).contains(&placement.dropout) {
            return Err(ConfigError::Option {
                place: placement.to_string(),
                attention: self.name(),
                option: "dropout",
                value: placement.dropout.to_string(),
                remedy: "give a probability of at least 0 and less than 1".to_owned(),
            });
        }
        self.validate_options(placement)?;
        if placement.role == Role::Cross && !self.can_cross() {
            return Err(ConfigError::Unable {
                place: placement.to_string(),
                attention: self.name(),
                wanted: "used as cross-attention",
                remedy: "use dot-product or gaussian there; synthesizers have one row of logits for each position of one sequence",
            });
        }
        Ok(())
    }

    fn can_cross(&self) -> bool {
        match self {
            Self::DotProduct(_) | Self::Gaussian(_) => true,
            Self::Mixture(mixture) => mixture.members.iter().all(Self::can_cross),
            _ => false,
        }
    }

    /// Initialises the mechanism.
    ///
    /// # Panics
    /// If the configuration is not valid for the placement.
    pub fn init(&self, placement: &Placement, key: &RandomKey, device: &Device) -> AnyAttention {
        tracing::debug!(attention = %self.name(), %placement, "initialising");
        match self {
            Self::Gaussian(config) => AnyAttention::Gaussian(config.init(placement, key, device)),
            _ => {
                let logits = self.init_logits(placement, &key.named("logits"), device);
                let logits = logits.expect("every mechanism but the Gaussian has logits");
                AnyAttention::Softmax(SoftmaxAttention::new(logits, placement, key, device))
            }
        }
    }
}

impl fmt::Display for AttentionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl FromStr for AttentionConfig {
    type Err = ConfigError;

    /// Reads a name, with default options. `a+b` is the mixture of `a` and `b`, with softmax-normalised weights. `random`, `dense`,
    /// `factorized-random` and `factorized-dense` are short for the synthesizers; `synthesizer-random-fixed` is the random synthesizer that is not trained.
    fn from_str(name: &str) -> Result<Self, ConfigError> {
        if name.contains('+') {
            let members = name.split('+').map(Self::from_str).collect::<Result<_, _>>()?;
            return Ok(Self::Mixture(MixtureConfig { members, weights: MixtureWeights::default() }));
        }
        Ok(match name {
            "dot-product" => Self::DotProduct(DotProductConfig::default()),
            "synthesizer-dense" | "dense" => Self::SynthesizerDense(SynthesizerDenseConfig::default()),
            "synthesizer-random" | "random" => Self::SynthesizerRandom(SynthesizerRandomConfig::default()),
            "synthesizer-random-fixed" | "random-fixed" => {
                Self::SynthesizerRandom(SynthesizerRandomConfig { trainable: false, ..Default::default() })
            }
            "synthesizer-factorized-dense" | "factorized-dense" => {
                Self::SynthesizerFactorizedDense(SynthesizerFactorizedDenseConfig::default())
            }
            "synthesizer-factorized-random" | "factorized-random" => {
                Self::SynthesizerFactorizedRandom(SynthesizerFactorizedRandomConfig::default())
            }
            "gaussian" => Self::Gaussian(GaussianConfig::default()),
            _ => {
                return Err(ConfigError::UnknownAttention { name: name.to_owned(), known: Self::NAMES.join(", ") });
            }
        })
    }
}

/// Any mechanism.
// A model has few of them, and a module in a box is none.
#[allow(clippy::large_enum_variant)]
#[derive(Module, Debug)]
pub enum AnyAttention {
    /// A softmax over logits.
    Softmax(SoftmaxAttention<AnyLogits>),
    /// Hard-coded Gaussian attention.
    Gaussian(Gaussian),
}

/// State of any mechanism.
#[derive(Clone, Debug)]
pub enum AnyState {
    /// Keys and values.
    KeyValue(KeyValueState),
}

impl Attention for AnyAttention {
    type State = AnyState;

    fn abilities(&self) -> Abilities {
        match self {
            Self::Softmax(attention) => attention.abilities(),
            Self::Gaussian(attention) => attention.abilities(),
        }
    }

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        match self {
            Self::Softmax(attention) => attention.forward(input, probe),
            Self::Gaussian(attention) => attention.forward(input, probe),
        }
    }

    fn state(&self, batch: usize, capacity: usize, memory: Option<Tensor<3>>) -> AnyState {
        AnyState::KeyValue(match self {
            Self::Softmax(attention) => attention.state(batch, capacity, memory),
            Self::Gaussian(attention) => attention.state(batch, capacity, memory),
        })
    }

    fn step(&self, chunk: AttentionInput, state: &mut AnyState, probe: &mut Probe) -> AttentionOutput {
        let AnyState::KeyValue(state) = state;
        match self {
            Self::Softmax(attention) => attention.step(chunk, state, probe),
            Self::Gaussian(attention) => attention.step(chunk, state, probe),
        }
    }

    fn select(&self, state: &mut AnyState, rows: &[usize]) {
        let AnyState::KeyValue(state) = state;
        match self {
            Self::Softmax(attention) => attention.select(state, rows),
            Self::Gaussian(attention) => attention.select(state, rows),
        }
    }
}
