//! Common imports: `use heedful_models::prelude::*;`
//!
//! It includes the [prelude of attention](heedful_attention::prelude).

pub use heedful_attention::prelude::*;

pub use crate::architectures::classifier::{Classifier, ClassifierConfig, Pooling, Sentences};
pub use crate::architectures::language_model::{LanguageModel, LanguageModelConfig};
pub use crate::architectures::seq2seq::{Padded, Scores, Seq2SeqConfig, Seq2SeqTransformer, Tying};
pub use crate::architectures::vision::{VisionConfig, VisionTransformer};
pub use crate::block::layer_sharing::DepthConfig;
pub use crate::block::layout::{AttentionLayout, CrossAttention, CrossLayout, LayerAttention};
pub use crate::block::{BlockConfig, FeedForwardIn};
pub use crate::generation::{BeamSearch, GenerationConfig, Hypothesis, Sampling, SpecialTokens};
pub use crate::parts::adaptive_softmax::AdaptiveConfig;
pub use crate::parts::embedding::EmbeddingScale;
pub use crate::parts::feed_forward::Activation;
pub use crate::parts::norm::{NormConfig, NormKind};
pub use crate::parts::position::PositionConfig;
pub use crate::parts::residual::NormOrder;
pub use crate::pretrained::presets;
pub use crate::training::weights::{Match, load, save};
