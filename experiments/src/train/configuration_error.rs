//! Values of the training configuration that are refused.

use heedful_models::training::optimiser::OptimiserError;
use thiserror::Error;

/// A value of the training configuration that cannot be used.
#[derive(Debug, Error, PartialEq)]
#[error("training configuration, `{field}`: {reason}")]
pub struct ConfigurationError {
    /// The field, as a dotted path below the training table (`schedule.warmup`).
    pub field: String,
    /// What is wrong with the value, and which values are allowed.
    pub reason: String,
}

impl ConfigurationError {
    /// The error of `field`, with the reason in words.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

impl From<OptimiserError> for ConfigurationError {
    fn from(OptimiserError { field, reason }: OptimiserError) -> Self {
        Self::new(format!("optimiser.{field}"), reason)
    }
}

/// Fails with the error of `field` unless `holds`.
pub(crate) fn ensure(holds: bool, field: &str, reason: impl FnOnce() -> String) -> Result<(), ConfigurationError> {
    if holds { Ok(()) } else { Err(ConfigurationError::new(field, reason())) }
}
