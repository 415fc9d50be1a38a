//! Checks of options.

use crate::contract::error::ConfigError;
use crate::contract::placement::Placement;

/// Checks options of one mechanism in its place. Errors name both.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    attention: &'a str,
    placement: &'a Placement,
}

impl Placement {
    /// Checks options of the mechanism called `attention` that is to stand here.
    pub fn check<'a>(&'a self, attention: &'a str) -> Check<'a> {
        Check { attention, placement: self }
    }
}

impl Check<'_> {
    /// The error of an option that is wrong, with what to write instead.
    pub fn wrong(&self, option: &'static str, value: impl ToString, remedy: impl Into<String>) -> ConfigError {
        let (place, attention) = (self.placement.to_string(), self.attention.to_owned());
        ConfigError::Option { place, attention, option, value: value.to_string(), remedy: remedy.into() }
    }

    /// Refuses 0.
    ///
    /// # Errors
    /// The option with the remedy.
    pub fn at_least_one(&self, option: &'static str, value: usize) -> Result<(), ConfigError> {
        if value == 0 { Err(self.wrong(option, value, "give at least 1")) } else { Ok(()) }
    }

    /// Refuses 0 where a number is given.
    ///
    /// # Errors
    /// The option with the remedy.
    pub fn at_least_one_if_given(&self, option: &'static str, value: Option<usize>) -> Result<(), ConfigError> {
        if value == Some(0) { Err(self.wrong(option, 0, "give at least 1, or leave it out")) } else { Ok(()) }
    }

    /// Refuses negative and infinite numbers, and what is none.
    ///
    /// # Errors
    /// The option with the remedy.
    pub fn non_negative(&self, option: &'static str, value: f64) -> Result<(), ConfigError> {
        let is_possible = value.is_finite() && value >= 0.0;
        if is_possible { Ok(()) } else { Err(self.wrong(option, value, "give a number of at least 0")) }
    }

    /// Refuses 0, negative and infinite numbers, and what is none.
    ///
    /// # Errors
    /// The option with the remedy.
    pub fn positive(&self, option: &'static str, value: f64) -> Result<(), ConfigError> {
        let is_possible = value.is_finite() && value > 0.0;
        if is_possible { Ok(()) } else { Err(self.wrong(option, value, "give a number greater than 0")) }
    }
}
