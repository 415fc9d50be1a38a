//! Imports of mechanism files: the contract, the description of mechanisms, and the engine's score terms.

pub(crate) use burn::module::{Module, Param};
pub(crate) use burn::nn::Linear;
pub(crate) use burn::tensor::{Device, Int, Tensor, TensorData};
pub(crate) use derive_setters::Setters;
pub(crate) use heedful_random::RandomKey;
pub(crate) use serde::{Deserialize, Serialize};

pub(crate) use crate::contract::abilities::{Abilities, Causality};
pub(crate) use crate::contract::decoding_position::DecodingStart;
pub(crate) use crate::contract::engine::{Engine, Executed};
pub(crate) use crate::contract::error::ConfigError;
pub(crate) use crate::contract::init::{self, Init};
pub(crate) use crate::contract::layer_spec::{LayerSpec, Role};
pub(crate) use crate::contract::probe::{Observation, Probe};
pub(crate) use crate::contract::visibility::{Span, Visibility};
pub(crate) use crate::contract::{Attention, AttentionInput, AttentionOutput, Check, Losses, Positions, QueryKeyPairs, SinkCache};
pub(crate) use crate::description::formula::{self, Formula, Query, dot};
pub(crate) use crate::description::parameter_formula::ParameterFormula;
pub(crate) use crate::description::restricted::{PatternExecution, Restricted};
pub(crate) use crate::description::{
    AnyLogits, AnyMechanism, AttentionOf, Card, HeadsOf, Idle, Kind, LogitsOf, Mechanism, Over, Positioning, Size,
};
pub(crate) use crate::engine::heads::{merge_heads, split_heads};
pub(crate) use crate::engine::linear::{linear, linear_at};
pub(crate) use crate::engine::{Content, LogitTerms, Normaliser};
pub(crate) use crate::mechanisms::default_sizes::{near_root, near_square_root, quarter};
pub(crate) use crate::softmax_attention::logits::{LogitAbilities, Logits};
pub(crate) use crate::softmax_attention::pattern::{Factorised, Integration, Near, Pattern, turn};
