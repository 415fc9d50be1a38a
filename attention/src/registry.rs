//! All mechanisms by name: built-in and custom ones.
//!
//! All metadata about a mechanism is in its file, in the [`Mechanism`] trait of its configuration. A new built-in mechanism needs only its file and a line in
//! `built_in!`; custom ones are added by [`register`].

mod combination;
pub mod constraints;
mod inline_options;
mod naming;
mod reading;

use std::sync::{PoisonError, RwLock};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::description::{AnyMechanism, Card, Mechanism};

/// Defines the list of built-in mechanisms and reads their options with the format's own errors, which type erasure would reduce to plain text.
macro_rules! built_in {
    ($($module:ident::$config:ident,)*) => {
        /// Configurations of the built-in mechanisms.
        pub(crate) mod configurations {
            $(pub use crate::mechanisms::$module::$config;)*
        }
        $(use configurations::$config;)*

        const BUILT_IN: &[Entry] = &[$(Entry::of::<$config>()),*];
        const FAMILIES: &[&str] = &[$(<$config>::NAME),*];

        fn deserialize<'de, D: Deserializer<'de>>(family: &str, options: D) -> Result<AnyMechanism, D::Error> {
            $(
                if family == <$config>::NAME {
                    return <$config>::deserialize(options).map(AnyMechanism::from);
                }
            )*
            match entries().iter().find(|entry| entry.name == family) {
                Some(entry) => (entry.deserialize)(&mut <dyn erased_serde::Deserializer>::erase(options)).map_err(D::Error::custom),
                None => Err(D::Error::unknown_variant(family, families())),
            }
        }
    };
}

// In list order. The first one is the default.
built_in! {
    dot_product::DotProductConfig,
    synthesizer_dense::SynthesizerDenseConfig,
    synthesizer_random::SynthesizerRandomConfig,
    synthesizer_factorized_dense::SynthesizerFactorizedDenseConfig,
    synthesizer_factorized_random::SynthesizerFactorizedRandomConfig,
    relative::RelativeConfig,
    learned_relative::LearnedRelativeConfig,
    alibi::AlibiConfig,
    rotary::RotaryConfig,
    t5_bias::T5BiasConfig,
    forgetting::ForgettingConfig,
    shaw::ShawConfig,
    shared_qk::SharedQkConfig,
    adaptive_span::AdaptiveSpanConfig,
    uniform::UniformConfig,
    mixture::MixtureConfig,
    soft_cap::SoftCapConfig,
    sigmoid::SigmoidConfig,
    softmax_plus_one::SoftmaxPlusOneConfig,
    learned_sink::LearnedSinkConfig,
    softpick::SoftpickConfig,
    entmax::EntmaxConfig,
    relu::ReluConfig,
    sliding_window::SlidingWindowConfig,
    streaming_llm::StreamingLlmConfig,
    local_1d::LocalOneDConfig,
    local_2d::LocalTwoDConfig,
    sparse_strided::SparseStridedConfig,
    sparse_fixed::SparseFixedConfig,
    output_gate::OutputGateConfig,
    differential::DifferentialConfig,
    talking_heads::TalkingHeadsConfig,
    gaussian::GaussianConfig,
    mla::MlaConfig,
    lsh::LshConfig,
    linformer::LinformerConfig,
    linear_attention::LinearAttentionConfig,
    performer::PerformerConfig,
    cosformer::CosformerConfig,
    retnet::RetnetConfig,
    gla::GlaConfig,
    simple_gla::SimpleGlaConfig,
    mamba_2::MambaTwoConfig,
    delta_net::DeltaNetConfig,
    gated_delta_net::GatedDeltaNetConfig,
    lightweight_conv::LightweightConvConfig,
    dynamic_conv::DynamicConvConfig,
    base_conv::BaseConvConfig,
    aft::AftConfig,
    fnet::FnetConfig,
    gmlp::GmlpConfig,
    mlp_mixer::MlpMixerConfig,
    none::NoneConfig,
}

static OWN: RwLock<Vec<Entry>> = RwLock::new(Vec::new());
/// Names of all families, including custom ones.
static ALL_FAMILIES: RwLock<&[&str]> = RwLock::new(FAMILIES);

/// Names of all families.
fn families() -> &'static [&'static str] {
    *ALL_FAMILIES.read().unwrap_or_else(PoisonError::into_inner)
}

/// Reason why a mechanism cannot be registered.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistryError {
    /// Another mechanism uses the name.
    #[error("`{0}` already names a mechanism: give yours another name, or the alias another spelling")]
    Taken(&'static str),
    /// The name is not valid in `a+b@c`.
    #[error("`{0}` is no name of a mechanism: use lower-case letters, digits and `-`")]
    Malformed(&'static str),
    /// The card has no variant.
    #[error("the card of `{0}` has no `variant`: give the part of parameters' paths that says the mechanism")]
    NoVariant(&'static str),
}

/// Registers a mechanism by name: for configurations, for mixtures and patterns if it has logits, and for every experiment, report and test that looks up
/// mechanisms by name. Call it before any of these.
///
/// # Errors
/// If a name or alias is taken or malformed, or the card has no variant.
pub fn register<M: Mechanism>() -> Result<(), RegistryError> {
    let entry = Entry::of::<M>();
    let (named, aliases) = ((entry.named)(), entry.card.aliases);
    let names: Vec<&'static str> = named.iter().map(|(name, _)| *name).collect();
    let other_name = (!names.contains(&M::NAME)).then_some(M::NAME);
    let answers: Vec<_> = names.iter().copied().chain(other_name).chain(aliases.iter().map(|alias| alias.0)).collect();
    loop {
        // Metadata of a mechanism comes from custom code, which may parse names: it does not run while the list is locked.
        let known = entries();
        check_names(&answers, &known)?;
        if M::CARD.variant.is_empty() {
            return Err(RegistryError::NoVariant(M::NAME));
        }
        let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
        if BUILT_IN.len() + own.len() != known.len() {
            // Another thread registered a mechanism meanwhile.
            continue;
        }
        own.push(entry);
        let families = BUILT_IN.iter().chain(own.iter()).map(|entry| entry.name).collect::<Vec<_>>();
        // Serde errors need a list with static lifetime: one is leaked per registered mechanism.
        *ALL_FAMILIES.write().unwrap_or_else(PoisonError::into_inner) = families.leak();
        return Ok(());
    }
}

/// Validates the names and aliases of a mechanism.
fn check_names(answers: &[&'static str], known: &[Entry]) -> Result<(), RegistryError> {
    for (at, &name) in answers.iter().enumerate() {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
            return Err(RegistryError::Malformed(name));
        }
        if answers[..at].contains(&name) || known.iter().any(|known| known.has(name)) {
            return Err(RegistryError::Taken(name));
        }
    }
    Ok(())
}

/// Built-in and registered mechanisms.
fn entries() -> Vec<Entry> {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    BUILT_IN.iter().chain(own.iter()).copied().collect()
}

/// Names of single mechanisms, and their aliases.
pub fn names_and_aliases() -> Vec<&'static str> {
    let aliases = entries().into_iter().flat_map(|entry| entry.card.aliases.iter().map(|alias| alias.0));
    AnyMechanism::names().into_iter().chain(aliases).collect()
}

/// Parameters clamped to `[0, 1]`, from [`Card::fractions`].
pub(crate) fn fractions() -> Vec<(&'static str, &'static str)> {
    entries().into_iter().flat_map(|entry| entry.card.fractions.iter().copied()).collect()
}

/// Parameters without weight decay, from [`Card::without_decay`], each expression once.
pub fn without_decay() -> Vec<&'static str> {
    let mut expressions = Vec::new();
    for expression in entries().into_iter().flat_map(|entry| entry.card.without_decay) {
        if !expressions.contains(expression) {
            expressions.push(*expression);
        }
    }
    expressions
}

/// Meaning of the parameters that several mechanisms share: projections and norms, by the end of their paths.
const SHARED_TENSORS: &[(&str, &str)] = &[
    ("query.weight", "query projection [d_in, d_out]; heads lie side by side in d_out"),
    ("key.weight", "key projection [d_in, d_out]; heads lie side by side in d_out"),
    ("value.weight", "value projection [d_in, d_out]; heads lie side by side in d_out"),
    ("query.bias", "bias of the query projection"),
    ("key.bias", "bias of the key projection"),
    ("value.bias", "bias of the value projection"),
    ("output.weight", "output projection [d_in, d_out]; heads lie side by side in d_in"),
    ("output.bias", "bias of the output projection"),
    ("query_norm.gamma", "gain of the norm of queries [d_head], the same for all heads"),
    ("query_norm.beta", "shift of the norm of queries [d_head], the same for all heads"),
    ("key_norm.gamma", "gain of the norm of keys [d_head], the same for all heads"),
    ("key_norm.beta", "shift of the norm of keys [d_head], the same for all heads"),
    ("input.weight", "input projection [d_in, d_out], values before gates; heads lie side by side among the values"),
    ("input.bias", "bias of the input projection"),
];

/// Meaning of the parameters of all mechanisms, by the end of their paths.
pub fn tensors() -> Vec<(&'static str, &'static str)> {
    let own = entries().into_iter().flat_map(|entry| entry.card.tensors.iter().copied());
    SHARED_TENSORS.iter().copied().chain(own).collect()
}

/// Meaning of a family's own parameters, by the end of their paths.
pub fn tensors_of(family: &str) -> &'static [(&'static str, &'static str)] {
    entries().iter().find(|entry| entry.name == family).map_or(&[], |entry| entry.card.tensors)
}

/// Letters of formulas that all mechanisms share.
const SHARED_LETTERS: &[(&str, &str)] = &[
    ("n", "length of the sequence"),
    ("d", "width of the model"),
    ("H", "number of heads"),
    ("D", "width of a head, `d / H`"),
    ("L", "maximal length of the model"),
];

/// Meaning of the letters in formulas of time, state and parameters, for all mechanisms. A letter has the same meaning everywhere.
pub fn letters() -> Vec<(&'static str, &'static str)> {
    let mut letters = SHARED_LETTERS.to_vec();
    for letter in entries().into_iter().flat_map(|entry| entry.card.letters) {
        if !letters.contains(letter) {
            letters.push(*letter);
        }
    }
    letters
}

/// A type-erased mechanism.
#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    card: Card,
    default: fn() -> AnyMechanism,
    named: fn() -> Vec<(&'static str, AnyMechanism)>,
    examples: fn() -> Vec<AnyMechanism>,
    joining: fn(&[AnyMechanism]) -> Option<AnyMechanism>,
    deserialize: fn(&mut dyn erased_serde::Deserializer) -> erased_serde::Result<AnyMechanism>,
}

impl Entry {
    const fn of<M: Mechanism>() -> Self {
        Self {
            name: M::NAME,
            card: M::CARD,
            default: || M::default().into(),
            named: || M::named().into_iter().map(|(name, config)| (name, config.into())).collect(),
            examples: || M::examples().into_iter().map(AnyMechanism::from).collect(),
            joining: |members| M::joining(members).map(AnyMechanism::from),
            deserialize: |options| M::deserialize(options).map(AnyMechanism::from),
        }
    }

    /// Whether it matches this name.
    fn has(&self, name: &str) -> bool {
        self.name == name || (self.named)().iter().any(|(known, _)| *known == name) || self.card.aliases.iter().any(|alias| alias.0 == name)
    }
}
