//! Tests of the attention crate.
//!
//! * [`activations`] compares slopes of non-linearities with double precision on every backend.
//! * [`conformance`] asks the properties of the crate's module of that name of every mechanism on every backend.
//! * [`claims`] pins which property is asked of which variant.
//! * [`formula`] compares every mechanism with the formula that its file gives, in plain double-precision loops; [`gradients`] differentiates it.
//! * [`default_sizes`] asks that mechanisms hide something in short models too.
//! * [`blocked`] and [`fused`] compare the executions of the engine, [`linear`] the linear maps with those of Burn;
//!   [`read`] asks that what was read of a tensor stays as it was.
//! * [`executions`] holds what tests of the engine's executions share.
//! * [`grouped`] compares heads that share keys and values with heads that have copies of them.
//! * [`large_inputs`] multiplies inputs, and compares outputs and gradients with the formulas.
//! * [`heads`] has heads of two softmaxes that a user makes.
//! * [`papers`] holds the checks that follow from the papers, mechanism by mechanism.
//! * [`recurrence`] has a mechanism that is no matrix of pairs, and compares the executions of recurrences with double precision.
//! * [`registry`] asks that what is known of a mechanism stands in its file alone.
//! * [`rotary`] gives scores keys that depend on where they stand.
//! * [`sixteen_bits`] compares the fused execution in 16 bits with that in 32.
//! * [`span_ends`] is about gradients of spans where they have no derivative.
//! * [`sabotage`] breaks an attention in one way after the other and shows that the property in question notices.

use heedful_attention::conformance::{properties, subject};
use heedful_attention::description::array;

/// The arm for the type of a mechanism's configuration.
macro_rules! by_type {
    ($config:expr; $($name:pat_param in $type:ty => $arm:expr),*; else => $default:expr) => {{
        let mechanism: &heedful_attention::description::AnyMechanism = $config;
        $(if let Some($name) = mechanism.get::<$type>() { $arm } else)* { $default }
    }};
}

mod activations;
mod backends;
mod blocked;
mod claims;
mod configuration;
mod conformance;
mod default_sizes;
mod executions;
mod formula;
mod fused;
mod fused_borders;
mod gradients;
mod grouped;
mod heads;
mod large_inputs;
mod linear;
mod papers;
mod parameter_formula;
mod pictures;
mod read;
mod recurrence;
mod registry;
mod rotary;
mod sabotage;
mod sixteen_bits;
mod span_ends;
mod variants;
