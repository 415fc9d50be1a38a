//! Mechanisms of one's own, in the toolkit's experiments by their names.

pub mod distance_power;
pub mod recency;

use heedful_attention::registry;

/// Makes the mechanisms known.
pub fn register() {
    registry::register::<recency::RecencyConfig>().expect("no other mechanism is called `recency`");
    registry::register::<distance_power::DistancePowerConfig>().expect("no other mechanism is called `distance-power`");
}
