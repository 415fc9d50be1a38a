//! What most programs need: `use heedful_models::prelude::*;`
//!
//! The [prelude of attention](heedful_attention::prelude) is part of it. [`ConfigError`] is that of models, which has attention's in it.

pub use heedful_attention::prelude::*;

pub use crate::adaptive::AdaptiveConfig;
pub use crate::block::{BlockConfig, FeedForwardIn};
pub use crate::classifier::{Classifier, ClassifierConfig, Pooling, Sentences};
pub use crate::depth::DepthConfig;
pub use crate::embedding::EmbeddingScale;
pub use crate::error::ConfigError;
pub use crate::feed_forward::Activation;
pub use crate::generation::{BeamSearch, GenerationConfig, Hypothesis, Sampling, SpecialTokens};
pub use crate::language_model::{LanguageModel, LanguageModelConfig};
pub use crate::layout::{AttentionLayout, CrossAttention, CrossLayout, LayerAttention};
pub use crate::norm::{NormConfig, NormKind};
pub use crate::position::PositionConfig;
pub use crate::presets;
pub use crate::residual::NormOrder;
pub use crate::seq2seq::{Padded, Scores, Seq2SeqConfig, Seq2SeqTransformer, Tying};
pub use crate::vision::{VisionConfig, VisionTransformer};
pub use crate::weights::{Match, load, save};
