//! What the toolkit knows about a mechanism.

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

/// A configuration of a mechanism, and with it everything that the toolkit knows about the mechanism.
///
/// Options are the fields of the configuration. They should have defaults and refuse unknown fields: `#[serde(default, deny_unknown_fields)]`.
///
/// A mechanism that scores keys initialises [`LogitsOf`](super::LogitsOf), and the registry puts the shared projections and the softmax around them; any other
/// initialises [`AttentionOf`](super::AttentionOf). A type of a user's own becomes known by [`register`](crate::registry::register).
pub trait Mechanism: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What [`init`](Self::init) gives: [`LogitsOf`](super::LogitsOf) of the type of its logits, or [`AttentionOf`](super::AttentionOf) its type.
    type Module: Initialised;

    /// Name in configurations, of lower-case letters, digits and `-`.
    const NAME: &'static str;

    /// Whether its logits have projections `query` and `key` of the layer spec's widths and with the biases that it asks for. This is the default of
    /// [`has_free_heads`](Self::has_free_heads), [`parameters`](Self::parameters) and [`query_key_biases`](Self::query_key_biases). Default: they do not.
    const QUERY_KEY: bool = false;

    /// What does not depend on options.
    const CARD: Card;

    /// The field of the logits that it is over, of what stands behind an `@`: the default of [`members`](Self::members) and [`over`](Self::over). Default: it has
    /// none.
    const OVER: Option<Over<Self>> = None;

    /// The size that follows the maximal length of the model where the options give none: the default of [`size`](Self::size), [`drawn`](Self::drawn),
    /// [`resolved`](Self::resolved) and [`validate`](Self::validate). Default: no size does, or not one alone.
    const SIZE: Option<Size<Self>> = None;

    /// Names in lists, with the options that they stand for. Default: [`NAME`](Self::NAME) with the default options.
    fn named() -> Vec<(&'static str, Self)> {
        vec![(Self::NAME, Self::default())]
    }

    /// What it does with these options, in one sentence, for lists of all names. Default: the sentence of the card.
    fn description(&self) -> &'static str {
        Self::CARD.description
    }

    /// What lists of all mechanisms show. Default: what has a name.
    fn examples() -> Vec<Self> {
        Self::named().into_iter().map(|(_, config)| config).collect()
    }

    /// Its [`SIZE`](Self::SIZE) in a model of this maximal length.
    ///
    /// # Panics
    /// If it has none.
    fn size(&self, max_length: usize) -> usize {
        let Size { given, default, .. } = Self::SIZE.expect("the mechanism has a size");
        given(self).unwrap_or_else(|| default(max_length))
    }

    /// The same with sizes that are visible in a picture of 32 positions. Default: with that of [`SIZE`](Self::SIZE).
    fn drawn(self) -> Self {
        match Self::SIZE {
            Some(Size { with, drawn, .. }) => with(self, drawn),
            None => self,
        }
    }

    /// Which of its [names](Self::named) these options have, whatever it is over. Default: [`NAME`](Self::NAME).
    fn own_name(&self) -> &'static str {
        Self::NAME
    }

    /// The name with these options. Default: [`own_name`](Self::own_name), behind the logits and `@` where it stands behind an `@` and is over other than the
    /// default logits.
    fn name(&self) -> String {
        match self.members().first().map(|logits| logits.name()) {
            Some(logits) if Self::CARD.kind.is_over_logits() && logits != AnyMechanism::default().name() => {
                format!("{logits}@{}", self.own_name())
            }
            _ => self.own_name().to_owned(),
        }
    }

    /// The mechanisms whose logits this one uses. What stands behind an `@` has one, what it is [`OVER`](Self::OVER). Default: none but
    /// that.
    fn members(&self) -> Vec<&AnyMechanism> {
        Self::OVER.iter().map(|over| (over.logits)(self)).collect()
    }

    /// The same over other logits, of what stands behind an `@`. Default: with these as what it is [`OVER`](Self::OVER), if it does.
    fn over(self, logits: AnyMechanism) -> Option<Self> {
        Some((Self::OVER?.with)(self, logits))
    }

    /// The same with a number for every size that follows the maximal length of the model where the options give none, in its members too. It is initialised to the
    /// same attention. Default: with its [`SIZE`](Self::SIZE), over what it is over.
    fn resolved(self, max_length: usize) -> Self {
        let size = Self::SIZE.map(|Size { with, .. }| (with, self.size(max_length)));
        let own = size.map_or(self.clone(), |(with, size)| with(self, size));
        match own.members().first().map(|logits| logits.resolved(max_length)) {
            Some(logits) => own.clone().over(logits).unwrap_or(own),
            None => own,
        }
    }

    /// Whether it attends to another sequence. Default: as on its card, if all members do.
    fn can_cross(&self) -> bool {
        Self::CARD.cross && self.members().into_iter().all(AnyMechanism::can_cross)
    }

    /// Whether it takes the widths of heads, and the number of heads of keys and values, from the layer spec's [`d_head`](LayerSpec::d_head),
    /// [`query_width`](LayerSpec::query_width) and [`key_width`](LayerSpec::key_width). A mechanism that does not is refused where these sizes differ from the
    /// usual ones.
    /// Default: if it has [`QUERY_KEY`](Self::QUERY_KEY), its card says so, or if all members do and there are some.
    fn has_free_heads(&self) -> bool {
        let members = self.members();
        Self::QUERY_KEY || Self::CARD.free_heads || !members.is_empty() && members.into_iter().all(AnyMechanism::has_free_heads)
    }

    /// Whether scores are known as they are, and not up to a number that all keys of a query share: a softmax does not see it, everything else that can be put
    /// over scores does. Default: if those of all members are.
    fn has_whole_scores(&self) -> bool {
        self.members().into_iter().all(AnyMechanism::has_whole_scores)
    }

    /// What scores know of where queries and keys stand. Default: as on its card; otherwise of all members, what knows most, and without members, positions in
    /// the sequence.
    fn positioning(&self) -> Positioning {
        let of_members = || self.members().into_iter().map(AnyMechanism::positioning).max();
        Self::CARD.positioning.or_else(of_members).unwrap_or(Positioning::Sequence)
    }

    /// Whether the shared projections of values and output have biases. Default: if those of a member have.
    fn projections_have_biases(&self) -> bool {
        self.members().into_iter().any(AnyMechanism::projections_have_biases)
    }

    /// What a name stands for that joins those of several mechanisms by `+`. Default: not this mechanism.
    fn joining(_members: &[AnyMechanism]) -> Option<Self> {
        None
    }

    /// Checks its own options for a place in a model; [what it is over](Self::validate_inner) is checked after them. Default: all are possible but an empty
    /// [`SIZE`](Self::SIZE).
    ///
    /// # Errors
    /// An impossible option, naming the remedy. After `Ok`, building does not fail.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        match Self::SIZE {
            Some(Size { option, given, .. }) => spec.check(Self::NAME).at_least_one_if_given(option, given(self)),
            None => Ok(()),
        }
    }

    /// Checks what stands before the `@`: whether it goes with a mechanism of this [kind](Card::kind), and whether it is valid itself.
    ///
    /// # Errors
    /// Logits that it cannot be over, naming those that it can, or an impossible option of these.
    fn validate_inner(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        match self.members().first() {
            Some(logits) if Self::CARD.kind.is_over_logits() => {
                logits.check_under(Self::NAME, Self::CARD.kind, spec)?;
                logits.validate(spec)
            }
            _ => Ok(()),
        }
    }

    /// Initialises its [`Module`](Self::Module), with weights that are drawn by the key.
    ///
    /// # Panics
    /// If the configuration is not valid for the layer spec.
    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> <Self::Module as Initialised>::Module;

    /// The logits, of a mechanism that has them. Default: those of its [`Module`](Self::Module), if these are [`LogitsOf`](super::LogitsOf).
    ///
    /// # Panics
    /// If the configuration is not valid for the layer spec.
    fn logits(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Option<AnyLogits> {
        Self::Module::logits(self, spec, key, device)
    }

    /// The attention. Default: the [`Module`](Self::Module), around which come projections and softmax where it has none.
    ///
    /// # Panics
    /// If the configuration is not valid for the layer spec.
    fn attention(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        Self::Module::attention(self, spec, key, device)
    }

    /// What it computes, as its paper says it: a plain computation in double precision, which the conformance suite compares outputs with. Default: none is
    /// known, and the suite does not ask.
    fn formula(&self) -> Option<Formula<'_>> {
        None
    }

    /// How many parameters it has: of the logits alone, if it is a softmax over logits, otherwise of the whole attention. Default: those of what it is over, of
    /// what stands behind an `@`; those of the projections, if it has [`QUERY_KEY`](Self::QUERY_KEY); unknown for all others.
    fn parameters(&self) -> Option<ParameterFormula> {
        match Self::CARD.kind.is_over_logits() {
            true => self.members().first()?.parameters(),
            false => Self::QUERY_KEY.then(ParameterFormula::query_key),
        }
    }

    /// Those of its [`parameters`](Self::parameters) that all layers of a stack have in common
    /// ([`Attention::sharing_with`](crate::contract::Attention::sharing_with)). Default: those that its members have in common.
    fn shared_parameters(&self) -> ParameterFormula {
        self.members().into_iter().map(AnyMechanism::shared_parameters).fold(ParameterFormula::none(), ParameterFormula::plus)
    }

    /// Parameters of the biases that [`LayerSpec::qkv_bias`] gives the projections of queries and keys, of a mechanism that gives them; `None`: it does not, and is
    /// refused where the layer spec asks for biases. Default: those of [`QUERY_KEY`](Self::QUERY_KEY), or of all members, if there are some and all of them give
    /// theirs.
    fn query_key_biases(&self) -> Option<ParameterFormula> {
        if Self::QUERY_KEY {
            return Some(ParameterFormula::query_key_biases());
        }
        let members = self.members();
        let (first, others) = members.split_first()?;
        others.iter().try_fold(first.query_key_biases()?, |sum, member| Some(sum.plus(member.query_key_biases()?)))
    }

    /// Values of the letters of [`parameters`](Self::parameters) that options decide. Default: those of the members.
    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        self.members().into_iter().flat_map(|member| member.letters(max_length)).collect()
    }

    /// Values of the letters of [`parameters`](Self::parameters) that options decide together with a place in a model. Default: those of
    /// [`letters`](Self::letters).
    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        self.letters(spec.max_length)
    }

    /// What it does not do on sequences of at most this length, which is what it is for, and the options that then change nothing. What a [pattern](Kind::Pattern)
    /// hides is counted and need not be told. Default: it does all on sequences of any length.
    fn idle(&self, _spec: &LayerSpec, _length: usize) -> Option<Idle> {
        None
    }

    /// Why an option changes nothing in this role with the other options as they are. Default: every option has an effect.
    fn without_effect(&self, _option: &str, _role: Role) -> Option<&'static str> {
        None
    }
}

/// The field of a configuration that holds the logits which the mechanism is over.
#[derive(Clone, Copy, Debug)]
pub struct Over<C> {
    /// The logits.
    pub logits: fn(&C) -> &AnyMechanism,
    /// The same configuration with other logits.
    pub with: fn(C, AnyMechanism) -> C,
}

/// A size that follows the maximal length of the model where the options give none.
#[derive(Clone, Copy, Debug)]
pub struct Size<C> {
    /// The option, one of the [sizes](Card::sizes).
    pub option: &'static str,
    /// The number that the configuration gives.
    pub given: fn(&C) -> Option<usize>,
    /// The same configuration with this number.
    pub with: fn(C, usize) -> C,
    /// The number in a model of a maximal length.
    pub default: fn(usize) -> usize,
    /// The number that is visible in a picture of 32 positions.
    pub drawn: usize,
}

/// What a mechanism does not do on short sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// In words that follow its name, such as `hashes nothing`.
    pub what: &'static str,
    /// The [sizes](Card::sizes) that it comes from, the one first that the others follow if none is given.
    pub sizes: &'static [&'static str],
    /// Options whose values change nothing then.
    pub options: &'static [&'static str],
}

/// What is true of a mechanism whatever its options are.
///
/// The usual values are [`Card::DEFAULT`]: scores of keys of the own sequence, which can be kept from seeing the future, in quadratic time with keys and values
/// remembered. A mechanism gives its `variant`, `description` and `source`, and what is unusual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Name in the paths of parameters: `Softmax.logits.<variant>`. It stays, so that files of weights can be read.
    pub variant: &'static str,
    /// What it does, in one sentence.
    pub description: &'static str,
    /// Paper and section, e.g. `Vaswani et al. 2017, section 3.2.1`.
    pub source: &'static str,
    /// Addresses of the papers, such as `https://arxiv.org/abs/2108.12409`, in the order of `source`, then of released code, which is on GitHub.
    pub links: &'static [&'static str],
    /// How it combines with others.
    pub kind: Kind,
    /// Whether it attends to another sequence.
    pub cross: bool,
    /// Whether it can be kept from seeing the future.
    pub causal: bool,
    /// Order of the time of one layer and one sequence with default options, without the projections that all have, `n d^2`: `n^2 d`. The letters are those of
    /// [`letters`](crate::registry::letters).
    pub time: &'static str,
    /// Numbers that decoding holds for one layer and one sequence with default options. Where heads share keys and values, `d` is the width of the shared ones.
    pub state: &'static str,
    /// Letters of formulas that not all mechanisms have, with what they mean. In all mechanisms a letter means the same.
    pub letters: &'static [(&'static str, &'static str)],
    /// What differs from the code that the paper's authors or others released, one sentence for each; empty if nothing is known to differ.
    pub differences: &'static [&'static str],
    /// Other spellings of names in [`Mechanism::named`]: spelling and name.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Whether it can attend to what comes after a query. Without that it is for decoders only.
    pub sees_ahead: bool,
    /// Whether [heads are free](Mechanism::has_free_heads) though it has no [`QUERY_KEY`](Mechanism::QUERY_KEY).
    pub free_heads: bool,
    /// What scores know of where queries and keys stand, where [`Mechanism::positioning`] is not that of members or of positions in the sequence.
    pub positioning: Option<Positioning>,
    /// Whether the reference engine and the fused engine can both compute it.
    pub has_engines: bool,
    /// Options that say how much of a sequence is seen: sizes of windows, blocks and chunks, strides, ranks, spans. Too great ones for the sequences of a data set
    /// make the mechanism another one.
    pub sizes: &'static [&'static str],
    /// What its own parameters mean and which shape they have: the end of their path and a sentence, as in `("table", "logits [heads, query, key]")`. Those of
    /// shared projections and of members need not be repeated.
    pub tensors: &'static [(&'static str, &'static str)],
    /// Parameters that are kept in `[0, 1]` after every step of an optimiser, by the container type of their module (`Struct:Mine`) and the name of the field.
    pub fractions: &'static [(&'static str, &'static str)],
    /// Parameters that no optimiser lets decay unless it is told otherwise, as regular expressions over paths: those that are not the weights of a linear map.
    /// Several mechanisms may give the same expression.
    pub without_decay: &'static [&'static str],
}

impl Card {
    /// The usual values, without a `variant`, `description` and `source`.
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

    /// Those of a pattern.
    pub const PATTERN: Self = Self { kind: Kind::Pattern, ..Self::DEFAULT };

    /// Those of what takes the place of the softmax.
    pub const NORMALISER: Self = Self { kind: Kind::Normaliser, cross: true, ..Self::DEFAULT };
}

/// What scores know of where queries and keys stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Positioning {
    /// Nothing.
    None,
    /// Distances. Where the place of the mechanism has a [cache](LayerSpec::cache), they are those inside it.
    Movable,
    /// Positions in the sequence.
    Sequence,
    /// These, and how long the sequence is so far: no key in between may have been forgotten.
    Length,
}

/// How a mechanism combines with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It scores keys: its logits can be mixed, have a soft span, and be restricted.
    Scores,
    /// It sums the scores of its members.
    Mixture,
    /// It limits how far the scores of another mechanism reach.
    SoftSpan,
    /// It hides keys from the scores of another mechanism.
    Pattern,
    /// It changes the scores of another mechanism one by one.
    ScoreMap,
    /// It turns the scores of another mechanism into weights by something else than a softmax.
    Normaliser,
    /// It gates what the heads of another mechanism give.
    Gate,
    /// It makes heads of the scores of another mechanism otherwise than by one softmax; nothing is put over it.
    Heads,
    /// It has no logits and stands by itself alone.
    Whole,
}

impl Kind {
    /// Whether it stands behind an `@`: it changes what another mechanism's scores do, or what becomes of them.
    pub fn is_over_logits(self) -> bool {
        matches!(self, Self::Pattern | Self::ScoreMap | Self::Normaliser | Self::Gate | Self::Heads)
    }

    /// Whether it has a module of its own, and so a place in the paths of parameters. What has none leaves the names of parameters as they are.
    pub fn has_module(self) -> bool {
        !matches!(self, Self::ScoreMap | Self::Normaliser)
    }
}
