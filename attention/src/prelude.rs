//! What most programs need: `use heedful_attention::prelude::*;`

pub use crate::contract::{Attention, AttentionInput, AttentionOutput, Losses, Positions};
pub use crate::engine::{Content, LogitTerms};
pub use crate::error::ConfigError;
pub use crate::init::Init;
pub use crate::layer::{AttentionConfig, AttentionLayer, Cache};
pub use crate::logits::{LogitFacts, Logits};
pub use crate::mask::Mask;
pub use crate::parameter_formula::ParameterFormula;
pub use crate::placement::{Placement, Role};
pub use crate::probe::Probe;
pub use crate::registry::configurations::*;
pub use crate::registry::{AnyAttention, AnyLogits, AnyMechanism, Card, Kind, Mechanism, register};
pub use crate::softmax_attention::SoftmaxAttention;
pub use crate::visibility::{Span, Visibility};
pub use heedful_random::RandomKey;
