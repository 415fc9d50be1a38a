//! The trait of mechanism configurations, and their cards.

use std::fmt::Debug;

use burn::tensor::Device;
use heedful_random::RandomKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{AnyAttention, AnyLogits, AnyMechanism, Initialised};
use crate::contract::error::ConfigError;
use crate::contract::layer_spec::{LayerSpec, Role};
use crate::description::Formula;
use crate::description::parameter_formula::ParameterFormula;

/// Configuration of a mechanism, with all metadata about it.
///
/// Options are the fields of the configuration. They should have defaults and refuse unknown fields: `#[serde(default, deny_unknown_fields)]`.
///
/// A mechanism that scores keys initialises [`LogitsOf`](super::LogitsOf), which the registry wraps in the shared projections and the softmax; any other
/// initialises [`AttentionOf`](super::AttentionOf). Custom types are added by [`register`](crate::registry::register).
pub trait Mechanism: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Return type of [`init`](Self::init): [`LogitsOf`](super::LogitsOf) with the type of the logits, or [`AttentionOf`](super::AttentionOf) with that of the
    /// attention.
    type Module: Initialised;

    /// Name in configurations: lower-case letters, digits and `-`.
    const NAME: &'static str;

    /// Whether its logits have projections `query` and `key` with the widths and biases of the layer specification. This sets the defaults of
    /// [`has_free_heads`](Self::has_free_heads), [`parameters`](Self::parameters) and [`query_key_biases`](Self::query_key_biases). Default: no.
    const QUERY_KEY: bool = false;

    /// Properties that do not depend on options.
    const CARD: Card;

    /// Field of the inner logits, for a mechanism after an `@`; it sets the defaults of [`members`](Self::members) and [`over`](Self::over). Default: none.
    const OVER: Option<Over<Self>> = None;

    /// Size that defaults from the model's maximal length; it sets the defaults of [`size`](Self::size), [`drawn`](Self::drawn), [`resolved`](Self::resolved)
    /// and [`validate`](Self::validate). Default: none, or several.
    const SIZE: Option<Size<Self>> = None;

    /// Names in lists, with their options. Default: [`NAME`](Self::NAME) with the default options.
    fn named() -> Vec<(&'static str, Self)> {
        vec![(Self::NAME, Self::default())]
    }

    /// One-sentence description with these options, for lists of all names. Default: the sentence of the card.
    fn description(&self) -> &'static str {
        Self::CARD.description
    }

    /// Configurations in lists of all mechanisms. Default: all named ones.
    fn examples() -> Vec<Self> {
        Self::named().into_iter().map(|(_, config)| config).collect()
    }

    /// Its [`SIZE`](Self::SIZE) in a model with this maximal length.
    ///
    /// # Panics
    /// If it has no such size.
    fn size(&self, max_length: usize) -> usize {
        let Size { given, default, .. } = Self::SIZE.expect("the mechanism has a size");
        given(self).unwrap_or_else(|| default(max_length))
    }

    /// The same mechanism with sizes visible in a picture of 32 positions. Default: sets [`SIZE`](Self::SIZE).
    fn drawn(self) -> Self {
        match Self::SIZE {
            Some(Size { with, drawn, .. }) => with(self, drawn),
            None => self,
        }
    }

    /// Which of its [names](Self::named) matches these options, for any inner logits. Default: [`NAME`](Self::NAME).
    fn own_name(&self) -> &'static str {
        Self::NAME
    }

    /// Name with these options. Default: [`own_name`](Self::own_name), prefixed by the logits' name and `@` if the mechanism follows an `@` and its logits are
    /// not the default.
    fn name(&self) -> String {
        match self.members().first().map(|logits| logits.name()) {
            Some(logits) if Self::CARD.kind.is_over_logits() && logits != AnyMechanism::default().name() => {
                format!("{logits}@{}", self.own_name())
            }
            _ => self.own_name().to_owned(),
        }
    }

    /// Mechanisms whose logits this one uses. A mechanism after an `@` has one member, its [`OVER`](Self::OVER). Default: only that member.
    fn members(&self) -> Vec<&AnyMechanism> {
        Self::OVER.iter().map(|over| (over.logits)(self)).collect()
    }

    /// The same mechanism over other logits, if it follows an `@`. Default: replaces its [`OVER`](Self::OVER), if any.
    fn over(self, logits: AnyMechanism) -> Option<Self> {
        Some((Self::OVER?.with)(self, logits))
    }

    /// The same mechanism with explicit numbers for all sizes that default from the model's maximal length, members included. It initialises the same
    /// attention. Default: sets its [`SIZE`](Self::SIZE), and resolves its [`OVER`](Self::OVER).
    fn resolved(self, max_length: usize) -> Self {
        let size = Self::SIZE.map(|Size { with, .. }| (with, self.size(max_length)));
        let own = size.map_or(self.clone(), |(with, size)| with(self, size));
        match own.members().first().map(|logits| logits.resolved(max_length)) {
            Some(logits) => own.clone().over(logits).unwrap_or(own),
            None => own,
        }
    }

    /// Whether it supports cross-attention. Default: as on its card, if all members support it.
    fn can_cross(&self) -> bool {
        Self::CARD.cross && self.members().into_iter().all(AnyMechanism::can_cross)
    }

    /// Whether it takes head widths and the number of key and value heads from the layer specification's [`d_head`](LayerSpec::d_head),
    /// [`query_width`](LayerSpec::query_width) and [`key_width`](LayerSpec::key_width). Other mechanisms are refused if these sizes differ from the usual ones.
    /// Default: yes if it has [`QUERY_KEY`](Self::QUERY_KEY), its card declares it, or all members do and there are members.
    fn has_free_heads(&self) -> bool {
        let members = self.members();
        Self::QUERY_KEY || Self::CARD.free_heads || !members.is_empty() && members.into_iter().all(AnyMechanism::has_free_heads)
    }

    /// Whether scores are exact, not only up to a constant shared by all keys of a query. A softmax ignores such a constant; other mechanisms over scores do
    /// not. Default: yes if all members' scores are exact.
    fn has_whole_scores(&self) -> bool {
        self.members().into_iter().all(AnyMechanism::has_whole_scores)
    }

    /// Positional information in the scores. Default: as on its card; otherwise the strongest of all members; without members, positions in the sequence.
    fn positioning(&self) -> Positioning {
        let of_members = || self.members().into_iter().map(AnyMechanism::positioning).max();
        Self::CARD.positioning.or_else(of_members).unwrap_or(Positioning::Sequence)
    }

    /// Whether the shared value and output projections have biases. Default: yes if those of a member have.
    fn projections_have_biases(&self) -> bool {
        self.members().into_iter().any(AnyMechanism::projections_have_biases)
    }

    /// Mechanism for a name that joins several mechanisms by `+`. Default: not this mechanism.
    fn joining(_members: &[AnyMechanism]) -> Option<Self> {
        None
    }

    /// Validates its own options for a place in a model, before its [inner mechanism](Self::validate_inner). Default: only an empty [`SIZE`](Self::SIZE) is
    /// refused.
    ///
    /// # Errors
    /// An invalid option, with the remedy. After `Ok`, initialisation does not fail.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        match Self::SIZE {
            Some(Size { option, given, .. }) => spec.check(Self::NAME).at_least_one_if_given(option, given(self)),
            None => Ok(()),
        }
    }

    /// Validates the mechanism before the `@`: its compatibility with this [kind](Card::kind), and its own options.
    ///
    /// # Errors
    /// Unsupported logits, with the supported ones, or an invalid option of the logits.
    fn validate_inner(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        match self.members().first() {
            Some(logits) if Self::CARD.kind.is_over_logits() => {
                logits.check_under(Self::NAME, Self::CARD.kind, spec)?;
                logits.validate(spec)
            }
            _ => Ok(()),
        }
    }

    /// Initialises its [`Module`](Self::Module), with weights drawn from the key.
    ///
    /// # Panics
    /// If the configuration is not valid for the layer spec.
    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> <Self::Module as Initialised>::Module;

    /// Initialises the logits, for mechanisms with logits. Default: those of its [`Module`](Self::Module), if it is [`LogitsOf`](super::LogitsOf).
    ///
    /// # Panics
    /// If the configuration is not valid for the layer spec.
    fn logits(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        Self::Module::logits(self, spec, key, device)
    }

    /// Initialises the attention. Default: the [`Module`](Self::Module), wrapped in projections and softmax as needed.
    ///
    /// # Panics
    /// If the configuration is not valid for the layer spec.
    fn attention(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        Self::Module::attention(self, spec, key, device)
    }

    /// The paper's formula: a plain computation in double precision, which the conformance suite compares with outputs. Default: `None`, and the suite skips
    /// the comparison.
    fn formula(&self) -> Option<Formula<'_>> {
        None
    }

    /// Number of parameters: of the logits for a softmax over logits, otherwise of the whole attention. Default: that of the inner logits for a mechanism after
    /// an `@`; that of the projections with [`QUERY_KEY`](Self::QUERY_KEY); otherwise unknown.
    fn parameters(&self) -> Option<ParameterFormula> {
        match Self::CARD.kind.is_over_logits() {
            true => self.members().first()?.parameters(),
            false => Self::QUERY_KEY.then(ParameterFormula::query_key),
        }
    }

    /// Those of its [`parameters`](Self::parameters) that all layers of a stack share ([`Attention::sharing_with`](crate::contract::Attention::sharing_with)).
    /// Default: those that its members share.
    fn shared_parameters(&self) -> ParameterFormula {
        self.members().into_iter().map(AnyMechanism::shared_parameters).fold(ParameterFormula::none(), ParameterFormula::plus)
    }

    /// Parameters of the biases that [`LayerSpec::qkv_bias`] adds to the query and key projections; `None` if the mechanism does not support such biases and is
    /// refused when they are requested. Default: those of [`QUERY_KEY`](Self::QUERY_KEY), or of all members, if there are members and all support them.
    fn query_key_biases(&self) -> Option<ParameterFormula> {
        if Self::QUERY_KEY {
            return Some(ParameterFormula::query_key_biases());
        }
        let members = self.members();
        let (first, others) = members.split_first()?;
        others.iter().try_fold(first.query_key_biases()?, |sum, member| Some(sum.plus(member.query_key_biases()?)))
    }

    /// Values of the letters of [`parameters`](Self::parameters) that depend on options. Default: those of the members.
    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        self.members().into_iter().flat_map(|member| member.letters(max_length)).collect()
    }

    /// Values of the letters of [`parameters`](Self::parameters) that depend on options and on the place in a model. Default: those of
    /// [`letters`](Self::letters).
    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        self.letters(spec.max_length)
    }

    /// Core function that is inactive on sequences of at most this length, and the options that then have no effect. Keys hidden by a [pattern](Kind::Pattern)
    /// are counted separately. Default: `None`, active at any length.
    fn idle(&self, _spec: &LayerSpec, _length: usize) -> Option<Idle> {
        None
    }

    /// Reason why an option has no effect in this role with the other options as they are. Default: every option has an effect.
    fn without_effect(&self, _option: &str, _role: Role) -> Option<&'static str> {
        None
    }
}

/// Field of a configuration with the inner logits.
#[derive(Clone, Copy, Debug)]
pub struct Over<C> {
    /// The logits.
    pub logits: fn(&C) -> &AnyMechanism,
    /// The same configuration with other logits.
    pub with: fn(C, AnyMechanism) -> C,
}

/// A size that defaults from the model's maximal length.
#[derive(Clone, Copy, Debug)]
pub struct Size<C> {
    /// Name of the option, one of the [sizes](Card::sizes).
    pub option: &'static str,
    /// The configured number.
    pub given: fn(&C) -> Option<usize>,
    /// The same configuration with this number.
    pub with: fn(C, usize) -> C,
    /// The default in a model with this maximal length.
    pub default: fn(usize) -> usize,
    /// The number for a picture of 32 positions.
    pub drawn: usize,
}

/// Inactivity of a mechanism on short sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Description that follows its name, such as `hashes nothing`.
    pub what: &'static str,
    /// The [sizes](Card::sizes) that cause it; the first one determines the others by default.
    pub sizes: &'static [&'static str],
    /// Options that then have no effect.
    pub options: &'static [&'static str],
}

/// Properties of a mechanism that do not depend on options.
///
/// [`Card::DEFAULT`] holds the usual values: scores of keys of the same sequence, with support for causality, quadratic time, and cached keys and values. A
/// mechanism sets `variant`, `description`, `source` and unusual values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Name in parameter paths: `Softmax.logits.<variant>`. It must not change, so that weight files stay readable.
    pub variant: &'static str,
    /// One-sentence description.
    pub description: &'static str,
    /// Paper and section, e.g. `Vaswani et al. 2017, section 3.2.1`.
    pub source: &'static str,
    /// Addresses of the papers in the order of `source`, such as `https://arxiv.org/abs/2108.12409`, then of released code on GitHub.
    pub links: &'static [&'static str],
    /// Combination with other mechanisms.
    pub kind: Kind,
    /// Whether it supports cross-attention.
    pub cross: bool,
    /// Whether it supports causal attention.
    pub causal: bool,
    /// Order of the time of one layer and one sequence with default options, without the common projections, `n d^2`: `n^2 d`. The letters are those of
    /// [`letters`](crate::registry::letters).
    pub time: &'static str,
    /// Numbers in the decoding state of one layer and one sequence with default options. With shared key and value heads, `d` is their total width.
    pub state: &'static str,
    /// Mechanism-specific letters of formulas, with their meanings. A letter has the same meaning in all mechanisms.
    pub letters: &'static [(&'static str, &'static str)],
    /// Differences from code released by the paper's authors or others, one sentence each; empty if none is known.
    pub differences: &'static [&'static str],
    /// Other spellings of names in [`Mechanism::named`]: spelling and name.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Whether it supports bidirectional attention; otherwise it serves only decoders.
    pub sees_ahead: bool,
    /// Whether [heads are free](Mechanism::has_free_heads) without [`QUERY_KEY`](Mechanism::QUERY_KEY).
    pub free_heads: bool,
    /// Positional information in the scores, if [`Mechanism::positioning`] is not that of the members or positions in the sequence.
    pub positioning: Option<Positioning>,
    /// Whether the reference engine and the fused engine both support it.
    pub has_engines: bool,
    /// Options that set the visible part of a sequence: sizes of windows, blocks and chunks, strides, ranks, spans. Values too large for a data set change the
    /// mechanism.
    pub sizes: &'static [&'static str],
    /// Meaning and shape of its own parameters: end of the path and a phrase, as in `("table", "logits [heads, query, key]")`. Parameters of shared projections
    /// and members are omitted.
    pub tensors: &'static [(&'static str, &'static str)],
    /// Parameters clamped to `[0, 1]` after every optimiser step, by the container type of their module (`Struct:Mine`) and the field name.
    pub fractions: &'static [(&'static str, &'static str)],
    /// Parameters excluded from weight decay by default, as regular expressions over paths: those that are not weights of a linear map. Several mechanisms can
    /// share an expression.
    pub without_decay: &'static [&'static str],
}

impl Card {
    /// Usual values, without `variant`, `description` and `source`.
    pub const DEFAULT: Self = Self {
        variant: "",
        description: "",
        source: "",
        links: &[],
        kind: Kind::Scores,
        cross: false,
        causal: true,
        time: "n^2 d",
        state: "2 n d",
        letters: &[],
        differences: &[],
        aliases: &[],
        sees_ahead: true,
        free_heads: false,
        positioning: None,
        has_engines: true,
        sizes: &[],
        tensors: &[],
        fractions: &[],
        without_decay: &[],
    };

    /// Usual values of a pattern.
    pub const PATTERN: Self = Self { kind: Kind::Pattern, ..Self::DEFAULT };

    /// Usual values of a normaliser.
    pub const NORMALISER: Self = Self { kind: Kind::Normaliser, cross: true, ..Self::DEFAULT };
}

/// Positional information in the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Positioning {
    /// Nothing.
    None,
    /// Distances. At a place with a [cache](LayerSpec::cache), they are those inside the cache.
    Movable,
    /// Positions in the sequence.
    Sequence,
    /// Positions and the current sequence length: no key in between may have been evicted.
    Length,
}

/// Combination of a mechanism with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Scores keys: its logits support mixtures, soft spans and patterns.
    Scores,
    /// Sums the scores of its members.
    Mixture,
    /// Limits the distance of keys scored by another mechanism.
    SoftSpan,
    /// Hides keys from the scores of another mechanism.
    Pattern,
    /// Maps the scores of another mechanism one by one.
    ScoreMap,
    /// Normalises the scores of another mechanism by a function other than a softmax.
    Normaliser,
    /// Gates the head outputs of another mechanism.
    Gate,
    /// Computes heads from the scores of another mechanism, not by a single softmax; nothing can be put over it.
    Heads,
    /// Has no logits and stands alone.
    Whole,
}

impl Kind {
    /// Whether it follows an `@`: it changes the scores of another mechanism, or their results.
    pub fn is_over_logits(self) -> bool {
        matches!(self, Self::Pattern | Self::ScoreMap | Self::Normaliser | Self::Gate | Self::Heads)
    }

    /// Whether it has its own module, and so appears in parameter paths. Otherwise parameter names do not change.
    pub fn has_module(self) -> bool {
        !matches!(self, Self::ScoreMap | Self::Normaliser)
    }
}
