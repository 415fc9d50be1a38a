//! All mechanisms by name: the built-in ones and those of users.
//!
//! Everything that the toolkit knows about a mechanism stands in its file, in the [`Mechanism`] that its configuration implements. Adding a built-in one is
//! its file and its line in `built_in!`; one of a user's own becomes known by [`register`].

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

/// Writes the list of the toolkit's mechanisms, and reads their options with the format's own errors, which type erasure would make plain texts.
macro_rules! built_in {
    ($($module:ident::$config:ident,)*) => {
        /// The configurations of the toolkit's mechanisms.
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

// In the order of lists. The first one is the default.
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
/// Names of all families, once there are some of users.
static ALL_FAMILIES: RwLock<&[&str]> = RwLock::new(FAMILIES);

/// Names of all families.
fn families() -> &'static [&'static str] {
    *ALL_FAMILIES.read().unwrap_or_else(PoisonError::into_inner)
}

/// Why a mechanism cannot be registered.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name is that of another mechanism.
    #[error("`{0}` already names a mechanism: give yours another name, or the alias another spelling")]
    Taken(&'static str),
    /// The name cannot stand in `a+b@c`.
    #[error("`{0}` is no name of a mechanism: use lower-case letters, digits and `-`")]
    Malformed(&'static str),
    /// Its card says no variant.
    #[error("the card of `{0}` has no `variant`: give the part of parameters' paths that says the mechanism")]
    NoVariant(&'static str),
}

/// Makes a mechanism known by its name: in configurations, in mixtures and patterns if it has logits, in every experiment, report and test that asks for
/// mechanisms by name. To be called before any of these.
///
/// # Errors
/// If a name or another spelling is taken, or is none, or the card has no variant.
pub fn register<M: Mechanism>() -> Result<(), RegistryError> {
    let entry = Entry::of::<M>();
    let (named, aliases) = ((entry.named)(), entry.card.aliases);
    let names: Vec<&'static str> = named.iter().map(|(name, _)| *name).collect();
    let other_name = (!names.contains(&M::NAME)).then_some(M::NAME);
    let answers: Vec<_> = names.iter().copied().chain(other_name).chain(aliases.iter().map(|alias| alias.0)).collect();
    loop {
        // What a mechanism says of itself is code of its own, which may parse names: it does not run while the list is locked.
        let known = entries();
        check_names(&answers, &known)?;
        if M::CARD.variant.is_empty() {
            return Err(RegistryError::NoVariant(M::NAME));
        }
        let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
        if BUILT_IN.len() + own.len() != known.len() {
            // Another thread has registered one meanwhile.
            continue;
        }
        own.push(entry);
        let families = BUILT_IN.iter().chain(own.iter()).map(|entry| entry.name).collect::<Vec<_>>();
        // Errors of serde need a list that lives as long as the program: one is leaked for each registered mechanism.
        *ALL_FAMILIES.write().unwrap_or_else(PoisonError::into_inner) = families.leak();
        return Ok(());
    }
}

/// Checks what a mechanism is to answer to, names and their other spellings.
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

/// The built-in mechanisms and those that were registered.
fn entries() -> Vec<Entry> {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    BUILT_IN.iter().chain(own.iter()).copied().collect()
}

/// Names that stand for one mechanism, and their other spellings.
pub fn names_and_aliases() -> Vec<&'static str> {
    let aliases = entries().into_iter().flat_map(|entry| entry.card.aliases.iter().map(|alias| alias.0));
    AnyMechanism::names().into_iter().chain(aliases).collect()
}

/// Parameters that are kept in `[0, 1]`, as [`Card::fractions`] says.
pub(crate) fn fractions() -> Vec<(&'static str, &'static str)> {
    entries().into_iter().flat_map(|entry| entry.card.fractions.iter().copied()).collect()
}

/// Parameters that do not decay, as [`Card::without_decay`] says, each expression once.
pub fn without_decay() -> Vec<&'static str> {
    let mut expressions = Vec::new();
    for expression in entries().into_iter().flat_map(|entry| entry.card.without_decay) {
        if !expressions.contains(expression) {
            expressions.push(*expression);
        }
    }
    expressions
}

/// What the parameters mean that several mechanisms have: projections and norms, by the end of their paths.
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

/// What the parameters of all mechanisms mean, by the end of their paths.
pub fn tensors() -> Vec<(&'static str, &'static str)> {
    let own = entries().into_iter().flat_map(|entry| entry.card.tensors.iter().copied());
    SHARED_TENSORS.iter().copied().chain(own).collect()
}

/// What the own parameters of a family mean, by the end of their paths.
pub fn tensors_of(family: &str) -> &'static [(&'static str, &'static str)] {
    entries().iter().find(|entry| entry.name == family).map_or(&[], |entry| entry.card.tensors)
}

/// Letters of formulas that all mechanisms have.
const SHARED_LETTERS: &[(&str, &str)] = &[
    ("n", "length of the sequence"),
    ("d", "width of the model"),
    ("H", "number of heads"),
    ("D", "width of a head, `d / H`"),
    ("L", "maximal length of the model"),
];

/// What the letters mean in formulas of time, state and parameters, of all mechanisms. There is one alphabet: a letter means the same everywhere.
pub fn letters() -> Vec<(&'static str, &'static str)> {
    let mut letters = SHARED_LETTERS.to_vec();
    for letter in entries().into_iter().flat_map(|entry| entry.card.letters) {
        if !letters.contains(letter) {
            letters.push(*letter);
        }
    }
    letters
}

/// A mechanism without its type.
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

    /// Whether it answers to this name.
    fn has(&self, name: &str) -> bool {
        self.name == name || (self.named)().iter().any(|(known, _)| *known == name) || self.card.aliases.iter().any(|alias| alias.0 == name)
    }
}
