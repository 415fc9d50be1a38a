//! Names of mechanisms and their meanings.

use std::fmt;
use std::str::FromStr;

use super::entries;
use crate::contract::error::ConfigError;
use crate::description::{AnyMechanism, Kind};

impl AnyMechanism {
    /// Names of all families, the values of the field `name` in configurations.
    pub fn families() -> &'static [&'static str] {
        super::families()
    }

    /// Names that [`from_str`](Self::from_str) accepts; names of mechanisms with logits can also be joined by `+`.
    pub fn names() -> Vec<&'static str> {
        entries().iter().flat_map(|entry| (entry.named)()).map(|(name, _)| name).collect()
    }

    /// One configuration per name, with default options, and a mixture.
    pub fn all() -> Vec<Self> {
        let (mixtures, others): (Vec<_>, Vec<_>) = entries().into_iter().partition(|entry| entry.card.kind == Kind::Mixture);
        others.into_iter().chain(mixtures).flat_map(|entry| (entry.examples)()).collect()
    }

    /// A family with its default options; a mixture then has no members.
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

    /// Parses a name, with default options. `a+b` is the mixture of `a` and `b`, with softmax-normalised weights. `random`, `dense`, `factorized-random` and
    /// `factorized-dense` abbreviate the synthesizers. `synthesizer-random-fixed` is the untrained random synthesizer, `adaptive-span-fixed` the untrained
    /// span, `lsh-random` LSH attention with content-independent buckets. `logits@pattern` restricts logits, which may be a mixture, by a pattern:
    /// `a+b@local-1d`. `logits@soft-cap` bounds them. `logits@normaliser` replaces the softmax: `a+b@sigmoid`, `a@local-1d@sigmoid`. `logits@gate` gates the
    /// head outputs: `a@output-gate`. `logits@heads` computes heads by other means than one softmax: `a@differential`. Options of the whole may follow in
    /// braces: see [`with_options`](Self::with_options).
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
