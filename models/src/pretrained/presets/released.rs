//! Models with released weights.

use heedful_attention::prelude::*;

use super::{Preset, Size, of_paper};
use crate::architectures::classifier::{ClassifierConfig, Pooling};
use crate::architectures::language_model::LanguageModelConfig;
use crate::architectures::vision::VisionConfig;
use crate::block::BlockConfig;
use crate::block::initialisation::Initialisation;
use crate::block::layout::LayerAttention;
use crate::parts::embedding::EmbeddingScale;
use crate::parts::feed_forward::Activation;
use crate::parts::norm::{NormConfig, NormKind};
use crate::parts::position::PositionConfig;
use crate::parts::residual::NormOrder;

/// Default initial deviation of weights.
const DEVIATION: f64 = 0.02;

/// GPT-2 with 12 layers (Radford et al. 2019) and 50,257 byte pairs.
pub fn gpt2(size: Size) -> Preset<LanguageModelConfig> {
    let model = LanguageModelConfig {
        vocabulary: size.of(50_257, 64),
        attention: AnyMechanism::default().into(),
        layers: size.of(12, 2),
        block: BlockConfig {
            norm: NormConfig::default().with_epsilon(1e-5),
            norm_order: NormOrder::Pre,
            activation: Activation::GeluTanh,
            qkv_bias: true,
            attention_output_bias: true,
            attention_dropout: size.of(0.1, 0.0),
            ..size.block(768, 12, 3072, 1024, 0.1)
        },
        positions: PositionConfig::Learned,
        embedding_scale: EmbeddingScale::None,
        initialisation: Initialisation::NormalTables { deviation: DEVIATION, scaled_branches: true },
        ..LanguageModelConfig::default()
    };
    let published = Some(124.439_808);
    of_paper("Radford et al. 2019, section 2.3 and released configuration", size, model, size.of(1024, 16), 0, published)
}

/// The base model of BERT (Devlin et al. 2019), with 30,522 uncased word pieces, two outputs, and the pre-trained pooler of the class token. The parameter
/// count excludes the outputs.
pub fn bert_base(size: Size) -> Preset<ClassifierConfig> {
    let model = ClassifierConfig {
        vocabulary: size.of(30_522, 64),
        outputs: 2,
        attention: AnyMechanism::default().into(),
        layers: size.of(12, 2),
        block: BlockConfig {
            norm: NormConfig::default().with_epsilon(1e-12),
            norm_order: NormOrder::Post,
            activation: Activation::Gelu,
            qkv_bias: true,
            attention_output_bias: true,
            attention_dropout: size.of(0.1, 0.0),
            ..size.block(768, 12, 3072, 512, 0.1)
        },
        positions: PositionConfig::Learned,
        embedding_scale: EmbeddingScale::None,
        embedding_norm: true,
        initialisation: Initialisation::NormalTables { deviation: DEVIATION, scaled_branches: false },
        pooling: Pooling::ClassToken,
        pooler: true,
        segments: true,
        ..ClassifierConfig::default()
    };
    let published = Some(109.482_240);
    of_paper("Devlin et al. 2019, section 3 and released configuration", size, model, size.of(512, 16), 0, published)
}

/// The base Vision Transformer with patches of 16 by 16 pixels (Dosovitskiy et al. 2021), for the 1,000 classes of ImageNet.
pub fn vit_b16(size: Size) -> Preset<VisionConfig> {
    let (pixels, patch) = (size.of(224, 16), size.of(16, 4));
    let length = (pixels / patch) * (pixels / patch) + 1;
    let model = VisionConfig {
        height: pixels,
        width: pixels,
        channels: 3,
        patch,
        classes: size.of(1000, 10),
        attention: AnyMechanism::default().into(),
        layers: size.of(12, 2),
        block: BlockConfig {
            norm: NormConfig::default().with_epsilon(1e-12),
            norm_order: NormOrder::Pre,
            activation: Activation::Gelu,
            qkv_bias: true,
            attention_output_bias: true,
            max_length: length,
            ..size.block(768, 12, 3072, length, 0.0)
        },
        positions: PositionConfig::Learned,
        initialisation: Initialisation::NormalTables { deviation: DEVIATION, scaled_branches: false },
        pooling: Pooling::ClassToken,
        ..VisionConfig::default()
    };
    let published = Some(86.567_656);
    of_paper("Dosovitskiy et al. 2021, table 1 and released configuration", size, model, length, 0, published)
}

/// A mechanism from its configuration-file table.
fn mechanism(table: &str) -> AnyMechanism {
    toml::from_str(table).unwrap_or_else(|error| panic!("the mechanism of a preset, {table}: {error}"))
}

/// Common structure of the decoders of Llama, Mistral, Gemma and Qwen: no biases, gated feed-forward networks, positions only in the attention.
fn decoder(size: Size, vocabulary: usize, layers: usize, attention: impl Into<LayerAttention>, block: BlockConfig) -> LanguageModelConfig {
    LanguageModelConfig {
        vocabulary: size.of(vocabulary, 64),
        attention: attention.into(),
        layers: size.of(layers, 2),
        block: BlockConfig { gated_feed_forward: true, feed_forward_bias: false, ..block },
        positions: PositionConfig::None,
        embedding_scale: EmbeddingScale::None,
        initialisation: Initialisation::NormalTables { deviation: DEVIATION, scaled_branches: false },
        ..LanguageModelConfig::default()
    }
}

/// RMSNorm before the sublayers and SwiGLU.
fn swiglu(epsilon: f64, kv_heads: usize, block: BlockConfig) -> BlockConfig {
    BlockConfig {
        norm: NormConfig::new(NormKind::Rms).with_epsilon(epsilon),
        norm_order: NormOrder::Pre,
        activation: Activation::Silu,
        kv_heads: Some(kv_heads),
        ..block
    }
}

/// Llama 3 with 8 billion parameters (Grattafiori et al. 2024).
pub fn llama_3_8b(size: Size) -> Preset<LanguageModelConfig> {
    let block = swiglu(1e-5, size.of(8, 2), size.block(4096, 32, 14_336, 8192, 0.0));
    let attention = mechanism("name = 'rotary'\nbase = 500_000.0");
    let model = LanguageModelConfig { tied: false, ..decoder(size, 128_256, 32, attention, block) };
    of_paper("Grattafiori et al. 2024, table 3 and released configuration", size, model, size.of(8192, 16), 0, Some(8_030.261_248))
}

/// Mistral 7B, version 0.1 (Jiang et al. 2023), with a window of 4,096 positions in all layers.
pub fn mistral_7b(size: Size) -> Preset<LanguageModelConfig> {
    let block = swiglu(1e-5, size.of(8, 2), size.block(4096, 32, 14_336, 32_768, 0.0));
    let window = SlidingWindowConfig::default().with_window(size.of(4096, 8)).with_logits(mechanism("name = 'rotary'"));
    let model = LanguageModelConfig { tied: false, ..decoder(size, 32_000, 32, AnyMechanism::from(window), block) };
    of_paper("Jiang et al. 2023, table 1 and released configuration", size, model, size.of(8192, 16), 0, Some(7_241.732_096))
}

/// Qwen 3 with 0.6 billion parameters (Yang et al. 2025), with QK norm.
pub fn qwen_3_0_6b(size: Size) -> Preset<LanguageModelConfig> {
    let block = BlockConfig { head_width: Some(size.of(128, 16)), ..size.block(1024, 16, 3072, 40_960, 0.0) };
    let attention = mechanism("name = 'rotary'\nbase = 1_000_000.0\nqk_norm = 'rms'");
    let model = decoder(size, 151_936, 28, attention, swiglu(1e-6, size.of(8, 2), block));
    of_paper("Yang et al. 2025, table 1 and released configuration", size, model, size.of(32_768, 16), 0, Some(596.049_920))
}

/// Gemma 2 with 2.6 billion parameters (Gemma Team 2024). Every second layer, starting with the first, has a window of 4,096 positions, and all scores and
/// logits are soft-capped.
pub fn gemma_2_2b(size: Size) -> Preset<LanguageModelConfig> {
    let global = mechanism("name = 'soft-cap'\ncap = 50.0\nlogits = { name = 'rotary' }");
    let local = SlidingWindowConfig::default().with_window(size.of(4096, 8)).with_logits(global.clone());
    let block = BlockConfig {
        norm: NormConfig::new(NormKind::RmsPlusOne),
        norm_order: NormOrder::Sandwich,
        activation: Activation::GeluTanh,
        kv_heads: Some(size.of(4, 2)),
        head_width: Some(size.of(256, 16)),
        ..size.block(2304, 8, 9216, 8192, 0.0)
    };
    let model = LanguageModelConfig {
        embedding_scale: EmbeddingScale::Sqrt,
        logit_softcap: Some(30.0),
        ..decoder(size, 256_000, 26, LayerAttention::Each(vec![local.into(), global]), block)
    };
    of_paper("Gemma Team 2024, table 1 and released configuration", size, model, size.of(8192, 16), 0, Some(2_614.341_888))
}
