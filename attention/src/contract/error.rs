//! Errors of configurations.

use thiserror::Error;

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
    #[error("{owner}: `{option}` is {value}: {remedy}")]
    Option {
        /// Whose option it is, e.g. `decoder layer 3, self-attention: linformer`, or `language model`.
        owner: String,
        /// Name of the option.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// What to write instead.
        remedy: String,
    },
    /// Options behind a name that cannot be read, or that the mechanism does not have.
    #[error("{attention}: the options `{options}` cannot be used: {problem}")]
    Options {
        /// Name of the mechanism.
        attention: String,
        /// The options as given.
        options: String,
        /// What is wrong.
        problem: String,
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
