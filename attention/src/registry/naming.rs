//! Names of mechanisms, and what names mean.

use std::fmt;
use std::str::FromStr;

use super::entries;
use crate::contract::error::ConfigError;
use crate::description::{AnyMechanism, Kind};

impl AnyMechanism {
    /// Names of all families, as they stand in the field `name` of configurations.
    pub fn families() -> &'static [&'static str] {
        super::families()
    }

    /// Names that [`from_str`](Self::from_str) understands by themselves; names of mechanisms with logits can also be joined by `+`.
    pub fn names() -> Vec<&'static str> {
        entries().iter().flat_map(|entry| (entry.named)()).map(|(name, _)| name).collect()
    }

    /// One configuration of every name, with default options, and a mixture.
    pub fn all() -> Vec<Self> {
        let (mixtures, others): (Vec<_>, Vec<_>) = entries().into_iter().partition(|entry| entry.card.kind == Kind::Mixture);
        others.into_iter().chain(mixtures).flat_map(|entry| (entry.examples)()).collect()
    }

    /// A family with its default options; a mixture has no members then.
    pub fn of_family(family: &str) -> Option<Self> {
        entries().iter().find(|entry| entry.name == family).map(|entry| (entry.default)())
    }
}

impl fmt::Display for AnyMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl FromStr for AnyMechanism {
    type Err = ConfigError;

    /// Reads a name, with default options. `a+b` is the mixture of `a` and `b`, with softmax-normalised weights. `random`, `dense`,
    /// `factorized-random` and `factorized-dense` are short for the synthesizers; `synthesizer-random-fixed` is the random synthesizer that is not trained,
    /// `adaptive-span-fixed` the span that is not, `lsh-random` LSH attention with buckets that do not depend on the content. `logits@pattern` restricts
    /// logits, which may be a mixture, by a pattern: `a+b@local-1d`. `logits@soft-cap` bounds them. `logits@normaliser` turns them into weights by another
    /// normaliser than a softmax: `a+b@sigmoid`, `a@local-1d@sigmoid`. `logits@gate` gates what the heads give: `a@output-gate`. `logits@heads` makes heads
    /// otherwise than by one softmax: `a@differential`. Options of the whole may follow it in braces: see [`with_options`](Self::with_options).
    fn from_str(name: &str) -> Result<Self, ConfigError> {
        if let (name, Some(options)) = Self::split_options(name) {
            return Self::from_str(name)?.with_options(&options);
        }
        if let Some((logits, over)) = name.rsplit_once('@') {
            let changed = Self::from_str(over)?.over(Self::from_str(logits)?);
            return changed.ok_or_else(|| {
                let able: Vec<_> = Self::all().into_iter().filter(|config| config.inner().is_some()).map(|able| able.name()).collect();
                ConfigError::UnknownAttention { name: format!("@{over}"), known: format!("@{}", able.join(", @")) }
            });
        }
        if name.contains('+') {
            let members = name.split('+').map(Self::from_str).collect::<Result<Vec<_>, _>>()?;
            return Ok(entries().iter().find_map(|entry| (entry.joining)(&members)).expect("one of the built-in mechanisms joins others"));
        }
        let entries = entries();
        let full = entries.iter().find_map(|entry| entry.card.aliases.iter().find(|alias| alias.0 == name)).map_or(name, |alias| alias.1);
        let known = entries.iter().flat_map(|entry| (entry.named)()).find(|(known, _)| *known == full);
        let unknown = || ConfigError::UnknownAttention { name: name.to_owned(), known: Self::names().join(", ") };
        known.map(|(_, config)| config).ok_or_else(unknown)
    }
}
