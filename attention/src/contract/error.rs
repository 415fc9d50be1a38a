//! Configuration errors.

use thiserror::Error;

/// A configuration that cannot be built, with a remedy.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// An unknown mechanism name.
    #[error("unknown attention `{name}`; known are {known}")]
    UnknownAttention {
        /// The given name.
        name: String,
        /// All names, comma separated.
        known: String,
    },
    /// An option with a value out of range.
    #[error("{owner}: `{option}` is {value}: {remedy}")]
    Option {
        /// Owner of the option, e.g. `decoder layer 3, self-attention: linformer`, or `language model`.
        owner: String,
        /// Name of the option.
        option: &'static str,
        /// The given value.
        value: String,
        /// Remedy.
        remedy: String,
    },
    /// Options after a name that cannot be parsed, or that the mechanism does not support.
    #[error("{attention}: the options `{options}` cannot be used: {problem}")]
    Options {
        /// Name of the mechanism.
        attention: String,
        /// The given options.
        options: String,
        /// Description of the problem.
        problem: String,
    },
    /// A mechanism in an unsupported place.
    #[error("{place}: {attention} cannot be {wanted}: {remedy}")]
    Unable {
        /// Place in the model.
        place: String,
        /// Name of the mechanism.
        attention: String,
        /// Requested use, e.g. `used as cross-attention`.
        wanted: &'static str,
        /// Remedy.
        remedy: String,
    },
}
