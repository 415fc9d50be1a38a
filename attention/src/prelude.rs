//! Common imports: `use heedful_attention::prelude::*;`

pub use crate::contract::abilities::{Abilities, Causality};
pub use crate::contract::decoding_position::DecodingStart;
pub use crate::contract::engine::Engine;
pub use crate::contract::error::ConfigError;
pub use crate::contract::init::Init;
pub use crate::contract::layer_spec::{LayerSpec, Role};
pub use crate::contract::mask::Mask;
pub use crate::contract::probe::{Observation, Probe};
pub use crate::contract::visibility::{Span, Visibility};
pub use crate::contract::{Attention, AttentionInput, AttentionOutput, Check, Losses, Positions};
pub use crate::description::AnyMechanism;
pub use crate::description::parameter_formula::ParameterFormula;
pub use crate::description::{AnyAttention, AnyLogits};
pub use crate::description::{AttentionOf, Card, HeadsOf, Kind, LogitsOf, Mechanism};
pub use crate::engine::{Content, LogitTerms};
pub use crate::layer::{AttentionConfig, AttentionLayer, Cache};
pub use crate::registry::configurations::*;
pub use crate::registry::register;
pub use crate::softmax_attention::SoftmaxAttention;
pub use crate::softmax_attention::logits::{LogitAbilities, Logits};
pub use heedful_random::RandomKey;
