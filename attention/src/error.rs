//! Errors of configurations.

use thiserror::Error;

use crate::placement::Placement;

/// A configuration that cannot be built, with the remedy.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name that no mechanism carries.
    #[error("unknown attention `{name}`; known are {known}")]
    UnknownAttention {
        /// The name as given.
        name: String,
        /// All names, comma separated.
        known: String,
    },
    /// An option whose value is out of its range.
    #[error("{place}: {attention}: `{option}` is {value}: {remedy}")]
    Option {
        /// Where in the model, e.g. `decoder layer 3, self-attention`.
        place: String,
        /// Name of the mechanism.
        attention: String,
        /// Name of the option.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// What to write instead.
        remedy: String,
    },
    /// A mechanism in a place that it is not defined for.
    #[error("{place}: {attention} cannot be {wanted}: {remedy}")]
    Unable {
        /// Where in the model.
        place: String,
        /// Name of the mechanism.
        attention: String,
        /// What was asked of it, e.g. `used as cross-attention`.
        wanted: &'static str,
        /// What to do instead.
        remedy: String,
    },
}

/// Checks options of one mechanism in its place.
pub(crate) struct Check<'a> {
    pub(crate) attention: &'a str,
    pub(crate) placement: &'a Placement,
}

impl Check<'_> {
    pub(crate) fn wrong(&self, option: &'static str, value: impl ToString, remedy: impl Into<String>) -> ConfigError {
        let (place, attention) = (self.placement.to_string(), self.attention.to_owned());
        ConfigError::Option { place, attention, option, value: value.to_string(), remedy: remedy.into() }
    }

    pub(crate) fn at_least_one(&self, option: &'static str, value: usize) -> Result<(), ConfigError> {
        if value == 0 { Err(self.wrong(option, value, "give at least 1")) } else { Ok(()) }
    }

    pub(crate) fn at_least_one_if_given(&self, option: &'static str, value: Option<usize>) -> Result<(), ConfigError> {
        if value == Some(0) { Err(self.wrong(option, 0, "give at least 1, or leave it out")) } else { Ok(()) }
    }

    pub(crate) fn non_negative(&self, option: &'static str, value: f64) -> Result<(), ConfigError> {
        let is_possible = value.is_finite() && value >= 0.0;
        if is_possible { Ok(()) } else { Err(self.wrong(option, value, "give a number of at least 0")) }
    }
}
