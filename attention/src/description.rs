//! Descriptions of mechanisms: the trait of their configurations, their cards, type erasure, counts of operations and parameters, and the paper's formula in
//! double precision.

mod any;
pub mod array;
pub mod case;
mod erased;
pub mod formula;
mod initialised;
mod mechanism;
mod module;
pub mod multiplications;
pub mod parameter_formula;
mod plain;
pub mod restricted;
pub mod view;

pub use self::any::AnyMechanism;
pub use self::case::Case;
pub use self::erased::{AnyAttention, AnyLogits, AnyState};
pub use self::formula::{Formula, Query};
pub use self::initialised::{AttentionOf, HeadsOf, Initialised, LogitsOf};
pub use self::mechanism::{Card, Idle, Kind, Mechanism, Over, Positioning, Size};
pub use self::plain::PlainAttention;
