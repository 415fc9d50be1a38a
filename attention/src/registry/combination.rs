//! What can be combined with what, and where each mechanism can stand.
//!
//! The cards of mechanisms decide; nothing here lists them by name.

use super::{AnyMechanism, Kind};
use crate::error::ConfigError;
use crate::placement::{Placement, Role};

impl AnyMechanism {
    /// Of a mechanism that is a pattern of visibility, the attention whose logits it restricts.
    pub fn restricted(&self) -> Option<&Self> {
        if self.card().kind == Kind::Pattern { self.members().into_iter().next() } else { None }
    }

    /// Whether the mechanism is a softmax over logits that can be mixed with others. The Gaussian counts: the softmax of its logarithm is its
    /// renormalised density. A pattern does not: its logits can be mixed, what it hides cannot.
    pub fn has_logits(&self) -> bool {
        self.card().kind == Kind::Scores
    }

    /// Whether the mechanism can have a soft span: logits and mixtures of logits.
    pub fn can_be_spanned(&self) -> bool {
        matches!(self.card().kind, Kind::Scores | Kind::Mixture)
    }

    /// Whether the mechanism can be restricted by a pattern: logits, mixtures of logits, and patterns, which then intersect.
    pub fn can_be_restricted(&self) -> bool {
        matches!(self.card().kind, Kind::Scores | Kind::Mixture | Kind::Pattern)
    }

    /// Whether the mechanism can be kept from seeing the future: without that it is for encoders and cross-attention only.
    pub fn can_be_causal(&self) -> bool {
        self.card().causal
    }

    /// Names of the families of which `is_able` holds with default options, comma separated: what errors advise.
    pub(crate) fn families_that(is_able: impl Fn(&Self) -> bool) -> String {
        let able = Self::all().into_iter().filter(|config| config.card().kind != Kind::Mixture && is_able(config));
        let mut families: Vec<_> = able.map(|config| config.family()).collect();
        families.dedup();
        families.join(", ")
    }

    /// Checks the options, and whether the mechanism is defined for its place in the model.
    ///
    /// # Errors
    /// An impossible option or place, naming both and the remedy. After `Ok`, building does not fail.
    pub fn validate(&self, placement: &Placement) -> Result<(), ConfigError> {
        let name = self.name();
        let check = placement.check(&name);
        if placement.heads == 0 || !placement.d_model.is_multiple_of(placement.heads) {
            return Err(check.wrong("heads", placement.heads, format!("give a divisor of d_model = {}", placement.d_model)));
        }
        if !(0.0..1.0).contains(&placement.dropout) {
            return Err(check.wrong("dropout", placement.dropout, "give a probability of at least 0 and less than 1"));
        }
        self.validate_options(placement)?;
        if placement.role == Role::Cross && !self.can_cross() {
            return Err(ConfigError::Unable {
                place: placement.to_string(),
                attention: self.name(),
                wanted: "used as cross-attention",
                remedy: format!(
                    "use {} there; the others are tied to the positions of one sequence",
                    either(&Self::families_that(Self::can_cross))
                ),
            });
        }
        if placement.role == Role::Decoder && !self.can_be_causal() {
            return Err(ConfigError::Unable {
                place: placement.to_string(),
                attention: self.name(),
                wanted: "causal",
                remedy: "it mixes the future in; use it in encoders and as cross-attention, and another mechanism here".to_owned(),
            });
        }
        Ok(())
    }
}

/// `a, b or c` of `a, b, c`.
fn either(list: &str) -> String {
    list.rsplit_once(", ").map_or_else(|| list.to_owned(), |(first, last)| format!("{first} or {last}"))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::abilities::Causality;
    use crate::contract::Attention;
    use crate::random::RandomKey;
    use crate::registry::Card;

    #[test]
    fn what_a_line_says_is_what_is_built() {
        let key = RandomKey::from_seed(1);
        for config in AnyMechanism::all() {
            let Card { kind, causal, .. } = config.card();
            let role = if causal { Role::Decoder } else { Role::Encoder };
            let placement = Placement { role, layer: 0, layers: 1, d_model: 6, heads: 2, max_length: 8, dropout: 0.0 };
            let abilities = config.init(&placement, &key, &Device::flex()).abilities();
            assert_eq!(config.can_cross(), abilities.cross_attention, "{config}: cross-attention");
            assert_eq!(causal, abilities.causality != Causality::Impossible, "{config}: causality");
            let logits = config.init_logits(&placement, &key, &Device::flex());
            assert_eq!(kind != Kind::Whole, logits.is_some(), "{config} is {kind:?}");
            assert_eq!(kind == Kind::Pattern, config.restricted().is_some(), "{config} is {kind:?}");
            assert_eq!(kind == Kind::Pattern, config.clone().over(AnyMechanism::default()).is_some(), "{config} is {kind:?}");
            assert_eq!(kind == Kind::Mixture, config.family() == "mixture", "{config} is {kind:?}");
        }
    }

    #[test]
    fn the_refusal_of_a_cross_attention_names_those_that_can() {
        let placement = Placement { role: Role::Cross, layer: 0, layers: 1, d_model: 6, heads: 2, max_length: 8, dropout: 0.0 };
        let error = AnyMechanism::all().iter().find_map(|config| config.validate(&placement).err()).unwrap().to_string();
        for config in AnyMechanism::all() {
            let is_named = error.contains(&format!(" {}", config.name()));
            let is_mentioned = error.contains(&format!(": {} cannot", config.name()));
            assert_eq!(is_named && !is_mentioned, config.validate(&placement).is_ok(), "{config}: {error}");
        }
    }
}
