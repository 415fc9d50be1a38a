//! A mechanism of any type, with its options.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use burn::tensor::Device;
use heedful_random::RandomKey;
use serde::{Serialize, Serializer};

use super::{AnyAttention, AnyLogits, Card, Idle, Mechanism, Positioning};
use crate::contract::error::ConfigError;
use crate::contract::layer_spec::{LayerSpec, Role};
use crate::description::Formula;
use crate::description::parameter_formula::ParameterFormula;

/// A mechanism and its options: a table with the key `name`, e.g. `{ name = "synthesizer-random", trainable = false }`.
///
/// It is parsed from a name, converted from a mechanism's configuration, or read from a file:
///
/// ```
/// use heedful_attention::mechanisms::linformer::LinformerConfig;
/// use heedful_attention::description::AnyMechanism;
///
/// let by_name: AnyMechanism = "synthesizer-random+dot-product".parse()?;
/// let typed = AnyMechanism::from(LinformerConfig::default().with_rank(32));
/// assert_eq!(typed.name(), "linformer");
/// assert_eq!(typed.get::<LinformerConfig>().unwrap().rank, Some(32));
/// # Ok::<(), heedful_attention::contract::error::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyMechanism(Arc<dyn ErasedMechanism>);

/// A [`Mechanism`] behind a pointer, with the methods that are not forwarded unchanged.
trait ErasedMechanism: Told {
    fn config(&self) -> &dyn Any;
    fn equals(&self, other: &dyn Any) -> bool;
    fn family(&self) -> &'static str;
    fn card(&self) -> Card;
    fn drawn(&self) -> AnyMechanism;
    fn resolved(&self, max_length: usize) -> AnyMechanism;
    fn over(&self, logits: AnyMechanism) -> Option<AnyMechanism>;
    fn validate_options(&self, spec: &LayerSpec) -> Result<(), ConfigError>;
    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention;
    fn init_logits(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Option<AnyLogits>;
    fn options(&self) -> &dyn erased_serde::Serialize;
}

impl<M: Mechanism> ErasedMechanism for M {
    fn config(&self) -> &dyn Any {
        self
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<M>() == Some(self)
    }

    fn family(&self) -> &'static str {
        M::NAME
    }

    fn card(&self) -> Card {
        M::CARD
    }

    fn drawn(&self) -> AnyMechanism {
        self.clone().drawn().into()
    }

    fn resolved(&self, max_length: usize) -> AnyMechanism {
        self.clone().resolved(max_length).into()
    }

    fn over(&self, logits: AnyMechanism) -> Option<AnyMechanism> {
        self.clone().over(logits).map(AnyMechanism::from)
    }

    fn validate_options(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        self.validate(spec)?;
        self.validate_inner(spec)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        let attention = self.attention(spec, key, device);
        if attention.as_softmax().is_some() { attention } else { attention.named(M::CARD.variant) }
    }

    fn init_logits(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        let logits = self.logits(spec, key, device)?;
        Some(if M::CARD.kind.has_module() { logits.named(M::CARD.variant) } else { logits })
    }

    fn options(&self) -> &dyn erased_serde::Serialize {
        self
    }
}

/// Writes the methods of [`AnyMechanism`] that forward to [`Mechanism`], from one list.
macro_rules! told {
    (
        $($(#[$doc:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*
    ) => {
        trait Told: Any + Debug + Send + Sync {
            $(fn $name(&self, $($argument: $type),*) -> $result;)*
        }

        impl<M: Mechanism> Told for M {
            $(fn $name(&self, $($argument: $type),*) -> $result {
                Mechanism::$name(self, $($argument),*)
            })*
        }

        impl AnyMechanism {
            $($(#[$doc])* $visibility fn $name(&self, $($argument: $type),*) -> $result {
                self.0.$name($($argument),*)
            })*
        }
    };
}

told! {
    /// Name of the mechanism in options, tables and folders. A mixture joins the names of its members by `+`. A pattern or other mechanism over logits is
    /// prefixed by their name and `@`, unless they are dot-product attention.
    pub fn name() -> String;
    /// One-sentence description of the mechanism with its options.
    pub fn description() -> &'static str;
    /// Mechanisms whose logits this one uses.
    pub fn members() -> Vec<&AnyMechanism>;
    /// Whether the mechanism supports cross-attention; a mixture does if all members do.
    pub fn can_cross() -> bool;
    /// Whether heads can share keys and values, and have any width.
    pub fn has_free_heads() -> bool;
    /// As [`Mechanism::has_whole_scores`].
    pub(crate) fn has_whole_scores() -> bool;
    /// As [`Mechanism::positioning`].
    pub(crate) fn positioning() -> Positioning;
    /// Whether the shared projections of values and output have biases.
    pub(crate) fn projections_have_biases() -> bool;
    /// As [`Mechanism::formula`], without the formulas of the members.
    pub(crate) fn formula() -> Option<Formula<'_>>;
    /// As [`Mechanism::parameters`].
    pub(crate) fn parameters() -> Option<ParameterFormula>;
    /// As [`Mechanism::shared_parameters`].
    pub(crate) fn shared_parameters() -> ParameterFormula;
    /// As [`Mechanism::query_key_biases`].
    pub(crate) fn query_key_biases() -> Option<ParameterFormula>;
    /// As [`Mechanism::letters`].
    pub(crate) fn letters(max_length: usize) -> Vec<(&'static str, usize)>;
    /// As [`Mechanism::letters_at`].
    pub(crate) fn letters_at(spec: &LayerSpec) -> Vec<(&'static str, usize)>;
    /// As [`Mechanism::idle`].
    pub fn idle(spec: &LayerSpec, length: usize) -> Option<Idle>;
    /// Reason why an option has no effect in this role with the other options as they are.
    pub fn without_effect(option: &str, role: Role) -> Option<&'static str>;
}

impl<M: Mechanism> From<M> for AnyMechanism {
    fn from(config: M) -> Self {
        Self(Arc::new(config))
    }
}

impl PartialEq for AnyMechanism {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(other.0.config())
    }
}

impl AnyMechanism {
    /// The configuration, if it has this type.
    pub fn get<M: Mechanism>(&self) -> Option<&M> {
        self.0.config().downcast_ref()
    }

    /// Family name, without the members of a mixture.
    pub fn family(&self) -> &'static str {
        self.0.family()
    }

    /// Properties that do not depend on options.
    pub fn card(&self) -> Card {
        self.0.card()
    }

    /// Whether it supports bidirectional attention; otherwise it serves only decoders.
    pub fn can_see_ahead(&self) -> bool {
        self.card().sees_ahead
    }

    /// Whether the reference engine and the fused engine both support it.
    pub fn has_engines(&self) -> bool {
        self.card().has_engines
    }

    /// As [`Card::sizes`].
    pub fn sizes(&self) -> &'static [&'static str] {
        self.card().sizes
    }

    /// The same mechanism with sizes visible in a picture of 32 positions.
    pub fn drawn(&self) -> Self {
        self.0.drawn()
    }

    /// The same mechanism with explicit numbers for all sizes that default from the model's maximal length, such as the window of `sliding-window`.
    ///
    /// ```
    /// use heedful_attention::mechanisms::sliding_window::SlidingWindowConfig;
    /// use heedful_attention::description::AnyMechanism;
    ///
    /// let by_default: AnyMechanism = "sliding-window".parse()?;
    /// assert_eq!(by_default.resolved(64), SlidingWindowConfig::default().with_window(16).into());
    /// # Ok::<(), heedful_attention::contract::error::ConfigError>(())
    /// ```
    pub fn resolved(&self, max_length: usize) -> Self {
        self.0.resolved(max_length)
    }

    /// The same mechanism over other logits; `None` if it does not follow an `@`.
    pub fn over(&self, logits: Self) -> Option<Self> {
        self.0.over(logits)
    }

    pub(crate) fn validate_options(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        self.0.validate_options(spec)
    }

    /// Initialises the mechanism.
    ///
    /// # Panics
    /// If the configuration is not valid for the layer spec.
    pub fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        tracing::debug!(attention = %self.name(), options = ?self.resolved(spec.max_length), %spec, "initialising");
        self.0.init(spec, key, device)
    }

    /// Initialises only the logits, for mechanisms that have logits.
    pub fn init_logits(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        self.0.init_logits(spec, key, device)
    }

    /// Initialises only the logits, for a mechanism validated to have them.
    pub(crate) fn init_scores(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyLogits {
        self.init_logits(spec, key, device).expect("validated: what another mechanism is over has logits")
    }

    /// Whether the mechanism and all its members define a formula.
    pub fn has_formula(&self) -> bool {
        self.formula().is_some() && self.members().into_iter().all(Self::has_formula)
    }

    /// Whether the projections of queries, keys, values and output support the biases that a layer specification requests.
    pub fn has_biases_on_demand(&self) -> bool {
        self.query_key_biases().is_some()
    }

    /// Writes the options: the table without `name`.
    ///
    /// # Errors
    /// Those of the serialiser.
    pub fn serialize_options<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.options().serialize(serializer)
    }
}

impl Serialize for AnyMechanism {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Table<'a> {
            name: &'a str,
            #[serde(flatten)]
            options: &'a dyn erased_serde::Serialize,
        }
        Table { name: self.family(), options: self.0.options() }.serialize(serializer)
    }
}
