//! Names of mechanisms, and what names mean.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::value::MapDeserializer;

use super::{AttentionConfig, FAMILIES};
use crate::error::ConfigError;
use crate::mechanisms::adaptive_span::{AdaptiveSpanConfig, SpanKind};
use crate::mechanisms::lsh::{Hashing, LshConfig};
use crate::mechanisms::mixture::{MixtureConfig, MixtureWeights};
use crate::mechanisms::synthesizer_random::SynthesizerRandomConfig;

impl AttentionConfig {
    /// Mechanisms that are another with one option changed: name and family.
    const TWINS: [(&str, &str); 3] =
        [("synthesizer-random-fixed", "synthesizer-random"), ("adaptive-span-fixed", "adaptive-span"), ("lsh-random", "lsh")];

    /// Names of all families, as they stand in the field `name` of configurations.
    pub fn families() -> &'static [&'static str] {
        FAMILIES
    }

    /// Names that [`from_str`](Self::from_str) understands by themselves; names of mechanisms with logits can also be joined by `+`.
    pub fn names() -> Vec<&'static str> {
        let named = FAMILIES.iter().copied().filter(|&family| family != "mixture");
        named
            .flat_map(|family| [family].into_iter().chain(Self::TWINS.iter().filter(move |twin| twin.1 == family).map(|twin| twin.0)))
            .collect()
    }

    /// One configuration of every family, with default options.
    pub fn all() -> Vec<Self> {
        let mixture = "synthesizer-random+dot-product";
        let names = Self::names().into_iter().chain([mixture]);
        names.map(|name| name.parse().expect("the names in this list are known")).collect()
    }

    /// The name by which the mechanism is known in options, tables and folders; a mixture's is that of its members joined by `+`, that of a random
    /// synthesizer or an adaptive span which is not trained ends in `-fixed`, that of LSH attention with random buckets in `-random`, and that of a pattern
    /// begins with its logits and `@` if these are not dot-product attention's.
    pub fn name(&self) -> String {
        match self {
            Self::SynthesizerRandom(random) if !random.trainable => format!("{}-fixed", self.family()),
            Self::AdaptiveSpan(span) if span.kind == SpanKind::Fixed => format!("{}-fixed", self.family()),
            Self::Lsh(lsh) if lsh.hashing == Hashing::Random => "lsh-random".to_owned(),
            Self::Mixture(mixture) => {
                let members: Vec<_> = mixture.members.iter().map(Self::name).collect();
                members.join("+")
            }
            _ => match self.restricted().map(Self::name) {
                Some(logits) if logits != "dot-product" => format!("{logits}@{}", self.family()),
                _ => self.family().to_owned(),
            },
        }
    }
}

impl fmt::Display for AttentionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl FromStr for AttentionConfig {
    type Err = ConfigError;

    /// Reads a name, with default options. `a+b` is the mixture of `a` and `b`, with softmax-normalised weights. `random`, `dense`,
    /// `factorized-random` and `factorized-dense` are short for the synthesizers; `synthesizer-random-fixed` is the random synthesizer that is not trained,
    /// `adaptive-span-fixed` the span that is not, `lsh-random` LSH attention with buckets that do not depend on the content. `logits@pattern` restricts
    /// logits, which may be a mixture, by a pattern: `a+b@local-1d`.
    fn from_str(name: &str) -> Result<Self, ConfigError> {
        if let Some((logits, pattern)) = name.rsplit_once('@') {
            let restricted = Self::from_str(pattern)?.over(Self::from_str(logits)?);
            return restricted.ok_or_else(|| {
                let patterns: Vec<_> = Self::all().into_iter().filter(|config| config.restricted().is_some()).map(|p| p.name()).collect();
                ConfigError::UnknownAttention { name: format!("@{pattern}"), known: format!("@{}", patterns.join(", @")) }
            });
        }
        if name.contains('+') {
            let members = name.split('+').map(Self::from_str).collect::<Result<_, _>>()?;
            return Ok(Self::Mixture(MixtureConfig { members, weights: MixtureWeights::default() }));
        }
        let name = match name {
            "random" | "dense" | "factorized-random" | "factorized-dense" | "random-fixed" => &format!("synthesizer-{name}"),
            _ => name,
        };
        if !Self::names().contains(&name) {
            return Err(ConfigError::UnknownAttention { name: name.to_owned(), known: Self::names().join(", ") });
        }
        Ok(match name {
            "synthesizer-random-fixed" => Self::SynthesizerRandom(SynthesizerRandomConfig { trainable: false, ..Default::default() }),
            "adaptive-span-fixed" => Self::AdaptiveSpan(AdaptiveSpanConfig { kind: SpanKind::Fixed, ..Default::default() }),
            "lsh-random" => Self::Lsh(LshConfig { hashing: Hashing::Random, ..Default::default() }),
            family => {
                let options = MapDeserializer::<_, serde::de::value::Error>::new([("name", family)].into_iter());
                Self::deserialize(options).expect("every mechanism that has a name of its own has default options")
            }
        })
    }
}
