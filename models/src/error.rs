//! Errors of model configurations.

use thiserror::Error;

/// A model configuration that cannot be built, with the remedy.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// An attention's own options, or a mechanism in a place that it is not defined for.
    #[error(transparent)]
    Attention(#[from] heedful_attention::contract::error::ConfigError),
    /// An option of the model whose value is out of its range.
    #[error("{model}: `{option}` is {value}: {remedy}")]
    Option {
        /// Which model.
        model: &'static str,
        /// Name of the option.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// What to write instead.
        remedy: String,
    },
}

/// Checks options of one model.
pub(crate) struct Check(pub(crate) &'static str);

impl Check {
    pub(crate) fn wrong(&self, option: &'static str, value: impl ToString, remedy: impl Into<String>) -> ConfigError {
        ConfigError::Option { model: self.0, option, value: value.to_string(), remedy: remedy.into() }
    }

    pub(crate) fn at_least_one(&self, option: &'static str, value: usize) -> Result<(), ConfigError> {
        if value == 0 { Err(self.wrong(option, value, "give a number of at least 1")) } else { Ok(()) }
    }

    pub(crate) fn vocabulary(&self, option: &'static str, value: usize) -> Result<(), ConfigError> {
        if value == 0 { Err(self.wrong(option, value, "give the number of tokens of the tokeniser")) } else { Ok(()) }
    }

    pub(crate) fn probability(&self, option: &'static str, value: f64) -> Result<(), ConfigError> {
        if (0.0..1.0).contains(&value) {
            Ok(())
        } else {
            Err(self.wrong(option, value, "give a probability of at least 0 and less than 1"))
        }
    }
}
