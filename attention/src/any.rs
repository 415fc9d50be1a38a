//! All mechanisms as one type, chosen by configuration.
//!
//! Adding a mechanism is its file and one line in `mechanisms!`.

mod combination;
mod naming;

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::combination::{Facts, Kind};
use crate::abilities::Abilities;
use crate::contract::{Attention, AttentionInput, AttentionOutput, Losses, Positions};
use crate::engine::blocked::Blocks;
use crate::engine::fused::Part;
use crate::engine::{LogitTerms, SoftSpan};
use crate::error::ConfigError;
use crate::kernel_attention::KernelAttention;
use crate::logits::{LogitFacts, Logits};
use crate::mechanisms::adaptive_span::{AdaptiveSpan, AdaptiveSpanConfig};
use crate::mechanisms::dot_product::{DotProduct, DotProductConfig};
use crate::mechanisms::dynamic_conv::{DynamicConv, DynamicConvConfig};
use crate::mechanisms::gaussian::{Gaussian, GaussianConfig, GaussianLogits};
use crate::mechanisms::learned_relative::{LearnedRelative, LearnedRelativeConfig};
use crate::mechanisms::lightweight_conv::{LightweightConv, LightweightConvConfig};
use crate::mechanisms::linformer::{Linformer, LinformerConfig};
use crate::mechanisms::local_1d::LocalOneDConfig;
use crate::mechanisms::local_2d::LocalTwoDConfig;
use crate::mechanisms::lsh::{Lsh, LshConfig};
use crate::mechanisms::mixture::{Mixture, MixtureConfig};
use crate::mechanisms::relative::{Relative, RelativeConfig};
use crate::mechanisms::sparse_fixed::SparseFixedConfig;
use crate::mechanisms::sparse_strided::SparseStridedConfig;
use crate::mechanisms::synthesizer_dense::{SynthesizerDense, SynthesizerDenseConfig};
use crate::mechanisms::synthesizer_factorized_dense::{SynthesizerFactorizedDense, SynthesizerFactorizedDenseConfig};
use crate::mechanisms::synthesizer_factorized_random::{SynthesizerFactorizedRandom, SynthesizerFactorizedRandomConfig};
use crate::mechanisms::synthesizer_random::{SynthesizerRandom, SynthesizerRandomConfig};
use crate::mechanisms::uniform::{Uniform, UniformConfig};
use crate::memory::KeyValueState;
use crate::placement::Placement;
use crate::probe::Probe;
use crate::progress::DecodingStart;
use crate::random::RandomKey;
use crate::restricted::Restricted;
use crate::softmax_attention::SoftmaxAttention;
use crate::visibility::{Span, Visibility};

/// Writes the configuration, the module and the state of every mechanism, and what they share.
///
/// `logits` lists the mechanisms that are logits in a [`SoftmaxAttention`], with the [`Kind`] that says how they combine; `whole` lists those that are
/// attentions of their own, with the logits that stand for them in combinations, if there are any. Each line also says where the mechanism can stand:
/// `cross`, whether it attends to another sequence, and `causal`, whether it can be kept from seeing the future (logits always can).
macro_rules! mechanisms {
    (
        logits {
            $($(#[$doc:meta])* $name:literal $variant:ident($config:ty) -> $logits:ty { $kind:ident, cross: $cross:literal },)*
        }
        whole {
            $(
                $(#[$whole_doc:meta])* $whole_name:literal $whole:ident($whole_config:ty) -> $module:ty
                { cross: $whole_cross:literal, causal: $causal:literal $(, $(#[$own_doc:meta])* logits: $own:ident($own_logits:ty))? },
            )*
        }
    ) => {
        /// Which mechanism, and its options: a table with the key `name`, e.g. `{ name = "synthesizer-random", trainable = false }`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        #[non_exhaustive]
        pub enum AttentionConfig {
            $($(#[$doc])* #[serde(rename = $name)] $variant($config),)*
            $($(#[$whole_doc])* #[serde(rename = $whole_name)] $whole($whole_config),)*
        }

        $(impl From<$config> for AttentionConfig {
            fn from(config: $config) -> Self {
                Self::$variant(config)
            }
        })*
        $(impl From<$whole_config> for AttentionConfig {
            fn from(config: $whole_config) -> Self {
                Self::$whole(config)
            }
        })*

        /// Names of all families, as they stand in configurations.
        const FAMILIES: &[&str] = &[$($name,)* $($whole_name,)*];

        impl AttentionConfig {
            /// Name of the family, without the members of a mixture.
            pub fn family(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                    $(Self::$whole(_) => $whole_name,)*
                }
            }

            /// What the mechanism can be combined with and where it can stand.
            fn facts(&self) -> Facts {
                match self {
                    $(Self::$variant(_) => Facts { kind: Kind::$kind, cross: $cross, causal: true },)*
                    $(Self::$whole(_) => Facts { kind: mechanisms!(@kind $($own)?), cross: $whole_cross, causal: $causal },)*
                }
            }

            /// Reads the options of a family: what stands in its table beside `name`.
            ///
            /// Unlike [`Deserialize`], which has to read a whole table before it knows the family, this hands each option to the format's own
            /// deserialiser, so that an error can say where the option stands.
            ///
            /// # Errors
            /// An unknown family or option, or a value of the wrong type.
            pub fn deserialize_options<'de, D: Deserializer<'de>>(family: &str, options: D) -> Result<Self, D::Error> {
                match family {
                    $($name => <$config>::deserialize(options).map(Self::$variant),)*
                    $($whole_name => <$whole_config>::deserialize(options).map(Self::$whole),)*
                    _ => Err(serde::de::Error::unknown_variant(family, FAMILIES)),
                }
            }

            /// Writes the options: the table without `name`.
            ///
            /// # Errors
            /// Those of the serialiser.
            pub fn serialize_options<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(config) => config.serialize(serializer),)*
                    $(Self::$whole(config) => config.serialize(serializer),)*
                }
            }

            fn validate_options(&self, placement: &Placement) -> Result<(), ConfigError> {
                match self {
                    $(Self::$variant(config) => config.validate(placement),)*
                    $(Self::$whole(config) => config.validate(placement),)*
                }
            }

            /// Initialises the mechanism.
            ///
            /// # Panics
            /// If the configuration is not valid for the placement.
            pub fn init(&self, placement: &Placement, key: &RandomKey, device: &Device) -> AnyAttention {
                tracing::debug!(attention = %self.name(), %placement, "initialising");
                match self {
                    $(Self::$variant(config) => {
                        let logits = AnyLogits::$variant(config.init(placement, &key.named("logits"), device));
                        AnyAttention::Softmax(SoftmaxAttention::new(logits, placement, key, device))
                    })*
                    $(Self::$whole(config) => AnyAttention::$whole(config.init(placement, key, device)),)*
                }
            }

            /// The logits alone, for mechanisms that have them.
            pub fn init_logits(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
                match self {
                    $(Self::$variant(config) => Some(AnyLogits::$variant(config.init(placement, key, device))),)*
                    $($(Self::$whole(config) => Some(AnyLogits::$own(config.init_logits(placement))),)?)*
                    _ => None,
                }
            }
        }

        /// Logits of any mechanism that has them.
        // A model has few of them, and a module in a box is none.
        #[allow(clippy::large_enum_variant)]
        #[derive(Module, Debug)]
        pub enum AnyLogits {
            $($(#[$doc])* $variant($logits),)*
            $($($(#[$own_doc])* $own($own_logits),)?)*
        }

        impl Logits for AnyLogits {
            fn facts(&self) -> LogitFacts {
                match self { $(Self::$variant(logits) => logits.facts(),)* $($(Self::$own(logits) => logits.facts(),)?)* }
            }

            fn projections_have_biases(&self) -> bool {
                match self {
                    $(Self::$variant(logits) => logits.projections_have_biases(),)*
                    $($(Self::$own(logits) => logits.projections_have_biases(),)?)*
                }
            }

            fn keys(&self, memory: Tensor<3>) -> Option<Tensor<4>> {
                match self { $(Self::$variant(logits) => logits.keys(memory),)* $($(Self::$own(logits) => logits.keys(memory),)?)* }
            }

            fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
                match self {
                    $(Self::$variant(logits) => logits.terms(query, keys, span, positions),)*
                    $($(Self::$own(logits) => logits.terms(query, keys, span, positions),)?)*
                }
            }

            fn visibility(&self) -> Option<Visibility> {
                match self { $(Self::$variant(logits) => logits.visibility(),)* $($(Self::$own(logits) => logits.visibility(),)?)* }
            }

            fn spans(&self, query: &Tensor<3>) -> Option<Tensor<3>> {
                match self { $(Self::$variant(logits) => logits.spans(query),)* $($(Self::$own(logits) => logits.spans(query),)?)* }
            }

            fn soft_span(&self, query: &Tensor<3>, span: Span) -> Option<SoftSpan> {
                match self {
                    $(Self::$variant(logits) => logits.soft_span(query, span),)*
                    $($(Self::$own(logits) => logits.soft_span(query, span),)?)*
                }
            }

            fn reach(&self) -> Option<usize> {
                match self { $(Self::$variant(logits) => logits.reach(),)* $($(Self::$own(logits) => logits.reach(),)?)* }
            }

            fn blocks(&self, seen: &Visibility, span: Span, positions: &Positions, values: &Tensor<4>) -> Option<Vec<Blocks>> {
                match self {
                    $(Self::$variant(logits) => logits.blocks(seen, span, positions, values),)*
                    $($(Self::$own(logits) => logits.blocks(seen, span, positions, values),)?)*
                }
            }

            fn parts(&self, seen: &Visibility, span: Span, positions: &Positions, heads: usize) -> Option<Arc<[Part]>> {
                match self {
                    $(Self::$variant(logits) => logits.parts(seen, span, positions, heads),)*
                    $($(Self::$own(logits) => logits.parts(seen, span, positions, heads),)?)*
                }
            }

            fn time(&self) -> &'static str {
                match self { $(Self::$variant(logits) => logits.time(),)* $($(Self::$own(logits) => logits.time(),)?)* }
            }

            fn losses(&self, query: &Tensor<3>) -> Losses {
                match self { $(Self::$variant(logits) => logits.losses(query),)* $($(Self::$own(logits) => logits.losses(query),)?)* }
            }
        }

        /// Any mechanism.
        // A model has few of them, and a module in a box is none.
        #[allow(clippy::large_enum_variant)]
        #[derive(Module, Debug)]
        pub enum AnyAttention {
            /// A softmax over logits.
            Softmax(SoftmaxAttention<AnyLogits>),
            $($(#[$whole_doc])* $whole($module),)*
        }

        /// State of any mechanism.
        #[derive(Clone, Debug)]
        pub enum AnyState {
            /// Of a softmax over logits.
            Softmax(KeyValueState),
            $($(#[$whole_doc])* $whole(<$module as Attention>::State),)*
        }

        impl Attention for AnyAttention {
            type State = AnyState;

            fn abilities(&self) -> Abilities {
                match self {
                    Self::Softmax(attention) => attention.abilities(),
                    $(Self::$whole(attention) => attention.abilities(),)*
                }
            }

            fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
                match self {
                    Self::Softmax(attention) => attention.forward(input, probe),
                    $(Self::$whole(attention) => attention.forward(input, probe),)*
                }
            }

            fn state(&self, start: &DecodingStart) -> AnyState {
                match self {
                    Self::Softmax(attention) => AnyState::Softmax(attention.state(start)),
                    $(Self::$whole(attention) => AnyState::$whole(attention.state(start)),)*
                }
            }

            fn step(&self, query: Tensor<3>, state: &mut AnyState, probe: &mut Probe) -> AttentionOutput {
                match (self, state) {
                    (Self::Softmax(attention), AnyState::Softmax(state)) => attention.step(query, state, probe),
                    $((Self::$whole(attention), AnyState::$whole(state)) => attention.step(query, state, probe),)*
                    _ => panic!("the state is that of another mechanism"),
                }
            }

            fn select(&self, state: &mut AnyState, rows: &[usize]) {
                match (self, state) {
                    (Self::Softmax(attention), AnyState::Softmax(state)) => attention.select(state, rows),
                    $((Self::$whole(attention), AnyState::$whole(state)) => attention.select(state, rows),)*
                    _ => panic!("the state is that of another mechanism"),
                }
            }

            fn sharing_with(self, earlier: &Self) -> Self {
                match (self, earlier) {
                    (Self::Softmax(attention), Self::Softmax(earlier)) => Self::Softmax(attention.sharing_with(earlier)),
                    $((Self::$whole(attention), Self::$whole(earlier)) => Self::$whole(attention.sharing_with(earlier)),)*
                    (attention, _) => attention,
                }
            }
        }
    };
    (@kind) => { Kind::Whole };
    (@kind $own:ident) => { Kind::Scores };
}

mechanisms! {
    logits {
        /// Scaled dot-product attention.
        "dot-product" DotProduct(DotProductConfig) -> DotProduct { Scores, cross: true },
        /// Dense Synthesizer.
        "synthesizer-dense" SynthesizerDense(SynthesizerDenseConfig) -> SynthesizerDense { Scores, cross: false },
        /// Random Synthesizer.
        "synthesizer-random" SynthesizerRandom(SynthesizerRandomConfig) -> SynthesizerRandom { Scores, cross: false },
        /// Factorized Dense Synthesizer.
        "synthesizer-factorized-dense" SynthesizerFactorizedDense(SynthesizerFactorizedDenseConfig) -> SynthesizerFactorizedDense {
            Scores, cross: false
        },
        /// Factorized Random Synthesizer.
        "synthesizer-factorized-random" SynthesizerFactorizedRandom(SynthesizerFactorizedRandomConfig) -> SynthesizerFactorizedRandom {
            Scores, cross: false
        },
        /// Relative positions of Transformer-XL.
        "relative" Relative(RelativeConfig) -> Relative { Scores, cross: false },
        /// Learned relative positions.
        "learned-relative" LearnedRelative(LearnedRelativeConfig) -> LearnedRelative { Scores, cross: false },
        /// Adaptive attention span.
        "adaptive-span" AdaptiveSpan(AdaptiveSpanConfig) -> AdaptiveSpan { SoftSpan, cross: false },
        /// Uniform averaging of what is visible.
        "uniform" Uniform(UniformConfig) -> Uniform { Scores, cross: true },
        /// Weighted sum of logits of several mechanisms.
        "mixture" Mixture(MixtureConfig) -> Mixture { Mixture, cross: true },
        /// Logits restricted to one-dimensional blocks.
        "local-1d" LocalOneD(LocalOneDConfig) -> Restricted { Pattern, cross: false },
        /// Logits restricted to two-dimensional blocks.
        "local-2d" LocalTwoD(LocalTwoDConfig) -> Restricted { Pattern, cross: false },
        /// Logits restricted to the strided pattern.
        "sparse-strided" SparseStrided(SparseStridedConfig) -> Restricted { Pattern, cross: false },
        /// Logits restricted to the fixed pattern.
        "sparse-fixed" SparseFixed(SparseFixedConfig) -> Restricted { Pattern, cross: false },
    }
    whole {
        /// Hard-coded Gaussian attention.
        "gaussian" Gaussian(GaussianConfig) -> Gaussian {
            cross: true, causal: true,
            /// Logarithm of the Gaussian density.
            logits: Gaussian(GaussianLogits)
        },
        /// LSH attention of Reformer.
        "lsh" Lsh(LshConfig) -> Lsh { cross: false, causal: true },
        /// Linformer: low-rank projections of keys and values.
        "linformer" Linformer(LinformerConfig) -> Linformer { cross: true, causal: false },
        /// Lightweight convolution.
        "lightweight-conv" LightweightConv(LightweightConvConfig) -> KernelAttention<LightweightConv> { cross: false, causal: true },
        /// Dynamic convolution.
        "dynamic-conv" DynamicConv(DynamicConvConfig) -> KernelAttention<DynamicConv> { cross: false, causal: true },
    }
}

impl Default for AttentionConfig {
    fn default() -> Self {
        Self::DotProduct(DotProductConfig::default())
    }
}

/// What the macro makes of a mechanism that is added later.
#[cfg(test)]
#[allow(dead_code, reason = "made for two mechanisms, of which the test asks a few things")]
mod tests {
    use super::*;
    use crate::placement::Role;

    mechanisms! {
        logits {
            /// One with logits.
            "dot-product" DotProduct(DotProductConfig) -> DotProduct { Scores, cross: true },
        }
        whole {
            /// One without, which no list names.
            "mine" Mine(LightweightConvConfig) -> KernelAttention<LightweightConv> { cross: false, causal: true },
        }
    }

    impl AttentionConfig {
        fn name(&self) -> String {
            self.family().to_owned()
        }
    }

    #[test]
    fn a_whole_mechanism_has_no_logits_unless_its_line_names_them() {
        let placement = Placement { role: Role::Decoder, layer: 0, layers: 1, d_model: 4, heads: 2, max_length: 8, dropout: 0.0 };
        let (key, device) = (RandomKey::from_seed(1), Device::flex());
        let [mine, other] =
            [AttentionConfig::Mine(LightweightConvConfig::default()), AttentionConfig::DotProduct(DotProductConfig::default())];
        for (config, kind) in [(mine, Kind::Whole), (other, Kind::Scores)] {
            assert_eq!(config.facts().kind, kind);
            assert_eq!(config.init_logits(&placement, &key, &device).is_some(), kind == Kind::Scores);
        }
    }
}
