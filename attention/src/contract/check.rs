//! Validation of options.

use crate::contract::error::ConfigError;
use crate::contract::layer_spec::LayerSpec;

/// Validates options of a model, or of one mechanism at its place. Errors name both.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    name: &'a str,
    spec: Option<&'a LayerSpec>,
}

impl LayerSpec {
    /// Validator for the mechanism `attention` at this place.
    pub fn check<'a>(&'a self, attention: &'a str) -> Check<'a> {
        Check { name: attention, spec: Some(self) }
    }
}

impl<'a> Check<'a> {
    /// Validator for the model or model part `name`.
    pub const fn of(name: &'a str) -> Self {
        Self { name, spec: None }
    }

    /// Error for an invalid option, with a remedy.
    pub fn refuse(&self, option: &'static str, value: impl ToString, remedy: impl Into<String>) -> ConfigError {
        let owner = self.spec.map_or_else(|| self.name.to_owned(), |spec| format!("{spec}: {}", self.name));
        ConfigError::Option { owner, option, value: value.to_string(), remedy: remedy.into() }
    }

    /// Refuses 0.
    ///
    /// # Errors
    /// The option with the remedy.
    pub fn at_least_one(&self, option: &'static str, value: usize) -> Result<(), ConfigError> {
        if value == 0 { Err(self.refuse(option, value, "give at least 1")) } else { Ok(()) }
    }

    /// Refuses 0 where a number is given.
    ///
    /// # Errors
    /// The option with the remedy.
    pub fn at_least_one_if_given(&self, option: &'static str, value: Option<usize>) -> Result<(), ConfigError> {
        if value == Some(0) { Err(self.refuse(option, 0, "give at least 1, or leave it out")) } else { Ok(()) }
    }

    /// Refuses negative, infinite and NaN values.
    ///
    /// # Errors
    /// The option with the remedy.
    pub fn non_negative(&self, option: &'static str, value: f64) -> Result<(), ConfigError> {
        let is_possible = value.is_finite() && value >= 0.0;
        if is_possible { Ok(()) } else { Err(self.refuse(option, value, "give a number of at least 0")) }
    }

    /// Refuses 0, negative, infinite and NaN values.
    ///
    /// # Errors
    /// The option with the remedy.
    pub fn positive(&self, option: &'static str, value: f64) -> Result<(), ConfigError> {
        let is_possible = value.is_finite() && value > 0.0;
        if is_possible { Ok(()) } else { Err(self.refuse(option, value, "give a number greater than 0")) }
    }

    /// Refuses numbers outside `[0, 1)`.
    ///
    /// # Errors
    /// The option with the remedy.
    pub fn probability(&self, option: &'static str, value: f64) -> Result<(), ConfigError> {
        let is_possible = (0.0..1.0).contains(&value);
        if is_possible { Ok(()) } else { Err(self.refuse(option, value, "give a probability of at least 0 and less than 1")) }
    }
}
