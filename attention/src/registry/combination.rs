//! Valid combinations of mechanisms, and valid places of each mechanism.
//!
//! The cards of mechanisms decide; nothing here lists them by name.
use crate::contract::error::ConfigError;
use crate::contract::layer_spec::{LayerSpec, Role};
use crate::description::{AnyMechanism, Kind};

impl AnyMechanism {
    /// Inner mechanism of a mechanism after an `@`.
    pub fn inner(&self) -> Option<&Self> {
        if self.card().kind.is_over_logits() { self.members().into_iter().next() } else { None }
    }

    /// Whether the mechanism is a softmax over logits that can be mixed with others. The Gaussian counts: the softmax of its logarithm is its renormalised
    /// density. A pattern does not: its logits can be mixed, but not its mask.
    pub(crate) fn has_logits(&self) -> bool {
        self.card().kind == Kind::Scores
    }

    /// Whether the mechanism supports a soft span: logits and mixtures of logits.
    pub fn can_be_spanned(&self) -> bool {
        matches!(self.card().kind, Kind::Scores | Kind::Mixture)
    }

    /// Whether a pattern can restrict the mechanism: logits, mixtures of logits, maps, normalisers and gates over them, and patterns, which then intersect.
    pub(crate) fn can_be_restricted(&self) -> bool {
        matches!(self.card().kind, Kind::Scores | Kind::Mixture | Kind::Pattern | Kind::ScoreMap | Kind::Normaliser | Kind::Gate)
    }

    /// Whether the mechanism supports a normaliser: exact logits, mixtures of such, and patterns, maps of scores and gates over these.
    pub(crate) fn can_be_normalised(&self) -> bool {
        match self.card().kind {
            Kind::Scores | Kind::Mixture => self.has_whole_scores(),
            Kind::Pattern | Kind::ScoreMap | Kind::Gate => self.inner().is_some_and(Self::can_be_normalised),
            Kind::SoftSpan | Kind::Normaliser | Kind::Heads | Kind::Whole => false,
        }
    }

    /// Whether the mechanism supports a map of scores: exact logits, mixtures of such, and patterns, normalisers and gates over these.
    pub(crate) fn can_be_mapped(&self) -> bool {
        match self.card().kind {
            Kind::Scores | Kind::Mixture => self.has_whole_scores(),
            Kind::Pattern | Kind::Normaliser | Kind::Gate => self.inner().is_some_and(Self::can_be_mapped),
            Kind::SoftSpan | Kind::ScoreMap | Kind::Heads | Kind::Whole => false,
        }
    }

    /// Whether the mechanism is one softmax over scores that others can combine: logits, mixtures of logits, and patterns and maps of scores over these.
    pub(crate) fn has_one_softmax(&self) -> bool {
        match self.card().kind {
            Kind::Scores | Kind::Mixture => true,
            Kind::Pattern | Kind::ScoreMap => self.inner().is_some_and(Self::has_one_softmax),
            Kind::SoftSpan | Kind::Normaliser | Kind::Gate | Kind::Heads | Kind::Whole => false,
        }
    }

    /// Checks whether the mechanism `over`, of this kind, can be put over this mechanism.
    pub(crate) fn check_under(&self, over: &str, kind: Kind, spec: &LayerSpec) -> Result<(), ConfigError> {
        let (is_able, advice): (fn(&Self) -> bool, _) = match kind {
            Kind::Pattern => (
                Self::can_be_restricted,
                "restrict an attention that has logits, a mixture of such, what changes or normalises these, or another pattern",
            ),
            Kind::ScoreMap => {
                (Self::can_be_mapped, "take an attention that has scores, a mixture of such, or a pattern or a normaliser over them")
            }
            Kind::Normaliser => {
                (Self::can_be_normalised, "normalise an attention that has scores, a mixture of such, or a pattern over them")
            }
            Kind::Gate => {
                (Self::can_be_restricted, "gate an attention that has scores, a mixture of such, or a pattern or normaliser over them")
            }
            Kind::Heads => (Self::has_one_softmax, "give an attention that has scores, a mixture of such, or a pattern over them"),
            Kind::Scores | Kind::Mixture | Kind::SoftSpan | Kind::Whole => return Ok(()),
        };
        if is_able(self) {
            return Ok(());
        }
        let remedy = format!("{advice}: {}", Self::families_that(is_able));
        Err(spec.check(over).refuse("logits", self.name(), remedy))
    }

    /// Whether the mechanism supports causal attention; otherwise it serves only encoders and cross-attention.
    pub fn can_be_causal(&self) -> bool {
        self.card().causal
    }

    /// Comma-separated names of the families that satisfy `is_able` with default options, for error messages.
    pub(crate) fn families_that(is_able: impl Fn(&Self) -> bool) -> String {
        let able = Self::all().into_iter().filter(|config| config.card().kind != Kind::Mixture && is_able(config));
        let mut families: Vec<_> = able.map(|config| config.family()).collect();
        families.dedup();
        families.join(", ")
    }

    /// Validates the options and the place in the model.
    ///
    /// # Errors
    /// An invalid option or place, with both names and the remedy. After `Ok`, initialisation does not fail.
    pub fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let name = self.name();
        let check = spec.check(&name);
        let LayerSpec { d_model, heads, kv_heads, head_width, .. } = *spec;
        if heads == 0 || head_width.is_none() && !d_model.is_multiple_of(heads) {
            return Err(check.refuse("heads", heads, format!("give a divisor of d_model = {d_model}")));
        }
        check.at_least_one_if_given("head_width", head_width)?;
        if let Some(shared) = kv_heads
            && (shared == 0 || !heads.is_multiple_of(shared))
        {
            return Err(check.refuse("kv_heads", shared, format!("give a divisor of heads = {heads}")));
        }
        if spec.has_own_sizes() && !self.has_free_heads() {
            let able = either(&Self::families_that(Self::has_free_heads));
            let remedy = format!("leave kv_heads and head_width out, or use {able}, whose heads can share keys or have any width");
            let sizes = format!("{} of keys and values, {} wide", spec.n_kv_heads(), spec.d_head());
            return Err(check.refuse("heads", format!("{heads} with {sizes}"), remedy));
        }
        let asked = [("qkv_bias", spec.qkv_bias), ("output_bias", spec.output_bias)];
        if let Some((option, _)) = asked.into_iter().find(|(_, asked)| *asked)
            && !self.has_biases_on_demand()
        {
            let able = either(&Self::families_that(Self::has_biases_on_demand));
            let remedy = format!("leave it out, or use {able}, whose projections can have biases");
            return Err(check.refuse(option, true, remedy));
        }
        check.probability("dropout", spec.dropout)?;
        self.validate_options(spec)?;
        let unable = |wanted, remedy: &str| {
            let (place, attention, remedy) = (spec.to_string(), self.name(), remedy.to_owned());
            Err(ConfigError::Unable { place, attention, wanted, remedy })
        };
        match spec.role {
            Role::Cross if !self.can_cross() => {
                let able = either(&Self::families_that(Self::can_cross));
                unable("used as cross-attention", &format!("use {able} there; the others are tied to the positions of one sequence"))
            }
            Role::Decoder if !self.can_be_causal() => {
                unable("causal", "it mixes the future in; use it in encoders and as cross-attention, and another mechanism here")
            }
            Role::Encoder if !self.can_see_ahead() => {
                unable("bidirectional", "it goes along a sequence in one direction; use it in decoders, and another mechanism here")
            }
            _ => Ok(()),
        }
    }
}

/// `a, b or c` from `a, b, c`.
fn either(list: &str) -> String {
    list.rsplit_once(", ").map_or_else(|| list.to_owned(), |(first, last)| format!("{first} or {last}"))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use heedful_random::RandomKey;

    use super::*;
    use crate::contract::Attention;
    use crate::contract::abilities::Causality;
    use crate::description::Card;

    #[test]
    fn what_a_line_says_is_what_is_built() {
        let key = RandomKey::from_seed(1);
        for config in AnyMechanism::all() {
            let Card { kind, causal, .. } = config.card();
            let role = if causal { Role::Decoder } else { Role::Encoder };
            let spec = LayerSpec::new(role, 8, 2).with_max_length(8);
            let abilities = config.init(&spec, &key, &Device::flex()).abilities();
            assert_eq!(config.can_cross(), abilities.cross_attention, "{config}: cross-attention");
            assert_eq!(causal, abilities.causality != Causality::Impossible, "{config}: causality");
            let logits = config.init_logits(&spec, &key, &Device::flex());
            assert_eq!(!matches!(kind, Kind::Heads | Kind::Whole), logits.is_some(), "{config} is {kind:?}");
            let encoder = config.validate(&spec.with_role(Role::Encoder));
            assert_eq!(config.can_see_ahead(), encoder.is_ok(), "{config}: {encoder:?}");
            assert_eq!(!config.can_see_ahead(), abilities.causality == Causality::ByConstruction, "{config}: causality");
            assert_eq!(kind.is_over_logits(), config.inner().is_some(), "{config} is {kind:?}");
            assert_eq!(kind.is_over_logits(), config.clone().over(AnyMechanism::default()).is_some(), "{config} is {kind:?}");
            assert_eq!(kind == Kind::Mixture, config.family() == "mixture", "{config} is {kind:?}");
        }
    }

    #[test]
    fn the_refusal_of_a_cross_attention_names_those_that_can() {
        let spec = LayerSpec::new(Role::Cross, 6, 2).with_max_length(8);
        let error = AnyMechanism::all().iter().find_map(|config| config.validate(&spec).err()).unwrap().to_string();
        for config in AnyMechanism::all() {
            let is_named = error.contains(&format!(" {}", config.family()));
            let is_mentioned = error.contains(&format!(": {} cannot", config.family()));
            assert_eq!(is_named && !is_mentioned, config.validate(&spec).is_ok(), "{config}: {error}");
        }
    }
}
