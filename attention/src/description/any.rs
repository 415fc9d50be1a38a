//! A mechanism of any type, with its options.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use burn::tensor::Device;
use heedful_random::RandomKey;
use serde::{Serialize, Serializer};

use super::{AnyAttention, AnyLogits, Card, Idle, Mechanism, Positioning};
use crate::contract::error::ConfigError;
use crate::contract::placement::{Placement, Role};
use crate::description::Formula;
use crate::description::parameter_formula::ParameterFormula;

/// Which mechanism, and its options: a table with the key `name`, e.g. `{ name = "synthesizer-random", trainable = false }`.
///
/// It is made from a name, from the configuration of a mechanism, or read from a file:
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

/// A [`Mechanism`] behind a pointer.
trait ErasedMechanism: Any + Debug + Send + Sync {
    fn config(&self) -> &dyn Any;
    fn equals(&self, other: &dyn Any) -> bool;
    fn family(&self) -> &'static str;
    fn card(&self) -> Card;
    fn drawn(&self) -> AnyMechanism;
    fn resolved(&self, max_length: usize) -> AnyMechanism;
    fn name(&self) -> String;
    fn description(&self) -> &'static str;
    fn members(&self) -> Vec<&AnyMechanism>;
    fn over(&self, logits: AnyMechanism) -> Option<AnyMechanism>;
    fn can_cross(&self) -> bool;
    fn can_see_ahead(&self) -> bool;
    fn has_free_heads(&self) -> bool;
    fn has_whole_scores(&self) -> bool;
    fn positioning(&self) -> Positioning;
    fn projections_have_biases(&self) -> bool;
    fn validate(&self, placement: &Placement) -> Result<(), ConfigError>;
    fn logits(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Option<AnyLogits>;
    fn attention(&self, placement: &Placement, key: &RandomKey, device: &Device) -> AnyAttention;
    fn formula(&self) -> Option<Formula<'_>>;
    fn parameters(&self) -> Option<ParameterFormula>;
    fn shared_parameters(&self) -> ParameterFormula;
    fn query_key_biases(&self) -> Option<ParameterFormula>;
    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)>;
    fn letters_at(&self, placement: &Placement) -> Vec<(&'static str, usize)>;
    fn has_engines(&self) -> bool;
    fn sizes(&self) -> &'static [&'static str];
    fn idle(&self, placement: &Placement, length: usize) -> Option<Idle>;
    fn without_effect(&self, option: &str, role: Role) -> Option<&'static str>;
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
        M::card()
    }

    fn drawn(&self) -> AnyMechanism {
        self.clone().drawn().into()
    }

    fn resolved(&self, max_length: usize) -> AnyMechanism {
        self.clone().resolved(max_length).into()
    }

    fn name(&self) -> String {
        Mechanism::name(self)
    }

    fn members(&self) -> Vec<&AnyMechanism> {
        Mechanism::members(self)
    }

    fn over(&self, logits: AnyMechanism) -> Option<AnyMechanism> {
        self.clone().over(logits).map(AnyMechanism::from)
    }

    fn can_cross(&self) -> bool {
        Mechanism::can_cross(self)
    }

    fn can_see_ahead(&self) -> bool {
        M::can_see_ahead()
    }

    fn description(&self) -> &'static str {
        Mechanism::description(self)
    }

    fn has_free_heads(&self) -> bool {
        Mechanism::has_free_heads(self)
    }

    fn has_whole_scores(&self) -> bool {
        Mechanism::has_whole_scores(self)
    }

    fn positioning(&self) -> Positioning {
        Mechanism::positioning(self)
    }

    fn projections_have_biases(&self) -> bool {
        Mechanism::projections_have_biases(self)
    }

    fn validate(&self, placement: &Placement) -> Result<(), ConfigError> {
        Mechanism::validate(self, placement)
    }

    fn logits(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        let logits = Mechanism::logits(self, placement, key, device)?;
        Some(if M::card().kind.has_module() { logits.named(M::card().variant) } else { logits })
    }

    fn attention(&self, placement: &Placement, key: &RandomKey, device: &Device) -> AnyAttention {
        let attention = Mechanism::attention(self, placement, key, device);
        if attention.as_softmax().is_some() { attention } else { attention.named(M::card().variant) }
    }

    fn formula(&self) -> Option<Formula<'_>> {
        Mechanism::formula(self)
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Mechanism::parameters(self)
    }

    fn shared_parameters(&self) -> ParameterFormula {
        Mechanism::shared_parameters(self)
    }

    fn query_key_biases(&self) -> Option<ParameterFormula> {
        Mechanism::query_key_biases(self)
    }

    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        Mechanism::letters(self, max_length)
    }

    fn letters_at(&self, placement: &Placement) -> Vec<(&'static str, usize)> {
        Mechanism::letters_at(self, placement)
    }

    fn has_engines(&self) -> bool {
        Mechanism::has_engines(self)
    }

    fn sizes(&self) -> &'static [&'static str] {
        M::sizes()
    }

    fn idle(&self, placement: &Placement, length: usize) -> Option<Idle> {
        Mechanism::idle(self, placement, length)
    }

    fn without_effect(&self, option: &str, role: Role) -> Option<&'static str> {
        Mechanism::without_effect(self, option, role)
    }

    fn options(&self) -> &dyn erased_serde::Serialize {
        self
    }
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
    /// The configuration, if it is of this type.
    pub fn get<M: Mechanism>(&self) -> Option<&M> {
        self.0.config().downcast_ref()
    }

    /// Name of the family, without the members of a mixture.
    pub fn family(&self) -> &'static str {
        self.0.family()
    }

    /// What does not depend on options.
    pub fn card(&self) -> Card {
        self.0.card()
    }

    /// The same with sizes that are visible in a picture of 32 positions.
    pub fn drawn(&self) -> Self {
        self.0.drawn()
    }

    /// The same with a number for every size that follows the maximal length of the model, such as the window of `sliding-window`, where the options give none.
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

    /// The name by which the mechanism is known in options, tables and folders; a mixture's is that of its members joined by `+`, and that of a pattern
    /// or what else is over logits begins with these and `@` if they are not dot-product attention's.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// What the mechanism does with its options, in one sentence.
    pub fn description(&self) -> &'static str {
        self.0.description()
    }

    /// The mechanisms whose logits this one uses.
    pub fn members(&self) -> Vec<&Self> {
        self.0.members()
    }

    /// The same over other logits; `None` if the mechanism does not stand behind an `@`.
    pub fn over(&self, logits: Self) -> Option<Self> {
        self.0.over(logits)
    }

    /// Whether the mechanism can attend to another sequence; a mixture can if all members can.
    pub fn can_cross(&self) -> bool {
        self.0.can_cross()
    }

    /// Whether it can attend to what comes after a query: without that it is for decoders only.
    pub fn can_see_ahead(&self) -> bool {
        self.0.can_see_ahead()
    }

    /// Whether its heads can share keys and values, and have any width.
    pub fn has_free_heads(&self) -> bool {
        self.0.has_free_heads()
    }

    /// As [`Mechanism::has_whole_scores`].
    pub(crate) fn has_whole_scores(&self) -> bool {
        self.0.has_whole_scores()
    }

    /// As [`Mechanism::positioning`].
    pub(crate) fn positioning(&self) -> Positioning {
        self.0.positioning()
    }

    /// Whether the shared projections of values and output have biases.
    pub(crate) fn projections_have_biases(&self) -> bool {
        self.0.projections_have_biases()
    }

    pub(crate) fn validate_options(&self, placement: &Placement) -> Result<(), ConfigError> {
        self.0.validate(placement)
    }

    /// Initialises the mechanism.
    ///
    /// # Panics
    /// If the configuration is not valid for the placement.
    pub fn init(&self, placement: &Placement, key: &RandomKey, device: &Device) -> AnyAttention {
        tracing::debug!(attention = %self.name(), %placement, "initialising");
        self.0.attention(placement, key, device)
    }

    /// The logits alone, for mechanisms that have them.
    pub fn init_logits(&self, placement: &Placement, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        self.0.logits(placement, key, device)
    }

    /// As [`Mechanism::formula`], without those of the members.
    pub(crate) fn formula(&self) -> Option<Formula<'_>> {
        self.0.formula()
    }

    /// Whether it gives its formula, and all its members do.
    pub fn has_formula(&self) -> bool {
        self.formula().is_some() && self.members().into_iter().all(Self::has_formula)
    }

    /// As [`Mechanism::parameters`].
    pub(crate) fn parameters(&self) -> Option<ParameterFormula> {
        self.0.parameters()
    }

    /// As [`Mechanism::shared_parameters`].
    pub(crate) fn shared_parameters(&self) -> ParameterFormula {
        self.0.shared_parameters()
    }

    /// As [`Mechanism::query_key_biases`].
    pub(crate) fn query_key_biases(&self) -> Option<ParameterFormula> {
        self.0.query_key_biases()
    }

    /// Whether the projections of queries, keys, values and output have the biases that a placement asks for.
    pub fn has_biases_on_demand(&self) -> bool {
        self.query_key_biases().is_some()
    }

    /// As [`Mechanism::letters`].
    pub(crate) fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        self.0.letters(max_length)
    }

    /// As [`Mechanism::letters_at`].
    pub(crate) fn letters_at(&self, placement: &Placement) -> Vec<(&'static str, usize)> {
        self.0.letters_at(placement)
    }

    /// Whether the reference engine and the fused engine can both compute it.
    pub fn has_engines(&self) -> bool {
        self.0.has_engines()
    }

    /// As [`Mechanism::sizes`].
    pub fn sizes(&self) -> &'static [&'static str] {
        self.0.sizes()
    }

    /// As [`Mechanism::idle`].
    pub fn idle(&self, placement: &Placement, length: usize) -> Option<Idle> {
        self.0.idle(placement, length)
    }

    /// Why an option changes nothing in this role with the other options as they are.
    pub fn without_effect(&self, option: &str, role: Role) -> Option<&'static str> {
        self.0.without_effect(option, role)
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
