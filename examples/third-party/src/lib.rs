//! A mechanism of one's own, in the toolkit's experiments by its name.

pub mod recency;

/// Makes the mechanism known.
pub fn register() {
    heedful_attention::registry::register::<recency::RecencyConfig>().expect("no other mechanism is called `recency`");
}
