//! Models of papers by name, each with a `-tiny` twin of the same structure that trains on two cores.
//!
//! A preset is an ordinary configuration: change fields and build it. Vocabularies are those of the papers' data. If a paper prints a parameter count, the
//! preset matches it; the comments list known differences.
//!
//! ```
//! use burn::tensor::Device;
//! use heedful_models::prelude::*;
//! use heedful_models::pretrained::presets::Size;
//!
//! let preset = presets::transformer_xl_enwik8(Size::Tiny);
//! let model = preset.model.with_vocabulary(100).with_seed(1).build(&Device::flex())?;
//! # assert_eq!(model.embedding.tokens.weight.dims(), [100, 32]);
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! | function | model | paper |
//! |---|---|---|
//! | [`transformer_base`], [`transformer_big`] | encoder-decoder | Vaswani et al. 2017 |
//! | [`transformer_xl_wt103`], [`transformer_xl_enwik8`] | language model | Dai et al. 2019 |
//! | [`sparse_enwik8`] | language model | Child et al. 2019 |
//! | [`reformer_enwik8`] | language model | Kitaev et al. 2020 |
//! | [`universal_base`] | encoder-decoder | Dehghani et al. 2018 |
//! | [`gtrxl_12`] | language model | Parisotto et al. 2020 |
//! | [`image_transformer_cifar`] | language model | Parmar et al. 2018 |
//! | [`hc_sa_iwslt`] | encoder-decoder | You et al. 2020 |
//! | [`synthesizer_base`] | encoder-decoder | Tay et al. 2020 |
//! | [`gpt2`] | language model | Radford et al. 2019 |
//! | [`bert_base`] | classifier | Devlin et al. 2019 |
//! | [`vit_b16`] | classifier of images | Dosovitskiy et al. 2021 |
//! | [`llama_3_8b`] | language model | Grattafiori et al. 2024 |
//! | [`mistral_7b`] | language model | Jiang et al. 2023 |
//! | [`qwen_3_0_6b`] | language model | Yang et al. 2025 |
//! | [`gemma_2_2b`] | language model | Gemma Team 2024 |
//!
//! [`named`] looks presets up by name, for programs with name arguments.

mod released;

use heedful_attention::description::parameter_formula::ParameterCount;
use heedful_attention::mechanisms::lsh::BucketCount;
use heedful_attention::mechanisms::shared_qk::Scale;
use heedful_attention::prelude::*;

pub use self::released::{bert_base, gemma_2_2b, gpt2, llama_3_8b, mistral_7b, qwen_3_0_6b, vit_b16};
use crate::architectures::classifier::ClassifierConfig;
use crate::architectures::language_model::LanguageModelConfig;
use crate::architectures::seq2seq::{Seq2SeqConfig, Tying};
use crate::architectures::vision::VisionConfig;
use crate::block::BlockConfig;
use crate::block::initialisation::Initialisation;
use crate::block::layer_sharing::{DepthConfig, SharedConfig};
use crate::block::layout::{AttentionLayout, LayerAttention};
use crate::parts::embedding::EmbeddingScale;
use crate::parts::feed_forward::Activation;
use crate::parts::norm::NormConfig;
use crate::parts::position::{GridConfig, Join, PositionConfig};
use crate::parts::residual::NormOrder;
use crate::parts::residual_gate::{GateConfig, GateKind};

/// Name suffix of twins.
const TINY: &str = "-tiny";

/// A paper's model: of one kind, or of any ([`PresetModel`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Preset<M = PresetModel> {
    /// Paper, and location of the sizes.
    pub source: &'static str,
    /// The model.
    pub model: M,
    /// Context length in training, in tokens or patches.
    pub context: usize,
    /// Number of earlier tokens in the layers' memory ([`SegmentMemory`](crate::block::segment::SegmentMemory)); 0: none.
    pub memory: usize,
    /// Parameter count printed in the paper, or of released weights, in millions. For `gtrxl-12` it covers only the layers, since an image network precedes
    /// them; for `bert-base` all but the outputs.
    pub published_parameters: Option<f64>,
}

/// Configuration of a preset.
#[derive(Clone, Debug, PartialEq)]
pub enum PresetModel {
    /// A decoder-only model.
    LanguageModel(LanguageModelConfig),
    /// A model with encoder and decoder.
    Seq2Seq(Seq2SeqConfig),
    /// An encoder with a classifier.
    Classifier(ClassifierConfig),
    /// An image encoder with a classifier.
    Vision(VisionConfig),
}

impl From<Preset<LanguageModelConfig>> for Preset {
    fn from(preset: Preset<LanguageModelConfig>) -> Self {
        preset.map(PresetModel::LanguageModel)
    }
}

impl From<Preset<Seq2SeqConfig>> for Preset {
    fn from(preset: Preset<Seq2SeqConfig>) -> Self {
        preset.map(PresetModel::Seq2Seq)
    }
}

impl From<Preset<ClassifierConfig>> for Preset {
    fn from(preset: Preset<ClassifierConfig>) -> Self {
        preset.map(PresetModel::Classifier)
    }
}

impl From<Preset<VisionConfig>> for Preset {
    fn from(preset: Preset<VisionConfig>) -> Self {
        preset.map(PresetModel::Vision)
    }
}

impl<M> Preset<M> {
    fn map<N>(self, change: impl FnOnce(M) -> N) -> Preset<N> {
        let Self { source, model, context, memory, published_parameters } = self;
        Preset { source, model: change(model), context, memory, published_parameters }
    }
}

impl PresetModel {
    /// Validates the configuration.
    ///
    /// # Errors
    /// As the model's own `validate`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::LanguageModel(config) => config.validate(),
            Self::Seq2Seq(config) => config.validate(),
            Self::Classifier(config) => config.validate(),
            Self::Vision(config) => config.validate(),
        }
    }

    /// Sizes and options of all layers.
    pub fn block(&self) -> &BlockConfig {
        match self {
            Self::LanguageModel(config) => &config.block,
            Self::Seq2Seq(config) => &config.block,
            Self::Classifier(config) => &config.block,
            Self::Vision(config) => &config.block,
        }
    }

    /// Parameter count of the model, without building it: see [`parameters`](crate::training::parameter_count).
    pub fn parameters(&self) -> Option<ParameterCount> {
        match self {
            Self::LanguageModel(config) => config.parameters(),
            Self::Seq2Seq(config) => config.parameters(),
            Self::Classifier(config) => config.parameters(),
            Self::Vision(config) => config.parameters(),
        }
    }
}

/// Names of all presets; each has a twin with the suffix `-tiny`.
pub const NAMES: [&str; 18] = [
    "transformer-base",
    "transformer-big",
    "transformer-xl-wt103",
    "transformer-xl-enwik8",
    "sparse-enwik8",
    "reformer-enwik8",
    "universal-base",
    "gtrxl-12",
    "image-transformer-cifar",
    "hc-sa-iwslt",
    "synthesizer-base",
    "gpt2",
    "bert-base",
    "vit-b16",
    "llama-3-8b",
    "mistral-7b",
    "qwen-3-0.6b",
    "gemma-2-2b",
];

/// The preset or twin of this name, if it exists.
pub fn named(name: &str) -> Option<Preset> {
    let (base, size) = match name.strip_suffix(TINY) {
        Some(base) => (base, Size::Tiny),
        None => (name, Size::Full),
    };
    let preset = match base {
        "transformer-base" => transformer_base(size).into(),
        "transformer-big" => transformer_big(size).into(),
        "transformer-xl-wt103" => transformer_xl_wt103(size).into(),
        "transformer-xl-enwik8" => transformer_xl_enwik8(size).into(),
        "sparse-enwik8" => sparse_enwik8(size).into(),
        "reformer-enwik8" => reformer_enwik8(size).into(),
        "universal-base" => universal_base(size).into(),
        "gtrxl-12" => gtrxl_12(size).into(),
        "image-transformer-cifar" => image_transformer_cifar(size).into(),
        "hc-sa-iwslt" => hc_sa_iwslt(size).into(),
        "synthesizer-base" => synthesizer_base(size).into(),
        "gpt2" => gpt2(size).into(),
        "bert-base" => bert_base(size).into(),
        "vit-b16" => vit_b16(size).into(),
        "llama-3-8b" => llama_3_8b(size).into(),
        "mistral-7b" => mistral_7b(size).into(),
        "qwen-3-0.6b" => qwen_3_0_6b(size).into(),
        "gemma-2-2b" => gemma_2_2b(size).into(),
        _ => return None,
    };
    Some(preset)
}

/// Sizes of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Sizes of the paper.
    Full,
    /// Sizes of the `-tiny` twin: the same structure, small enough to train on two cores.
    Tiny,
}

impl Size {
    fn of<T>(self, full: T, tiny: T) -> T {
        match self {
            Self::Full => full,
            Self::Tiny => tiny,
        }
    }

    /// Sizes of layers; all twins have the same.
    fn block(self, d_model: usize, heads: usize, d_ff: usize, max_length: usize, dropout: f64) -> BlockConfig {
        let block = BlockConfig::default();
        self.of(
            BlockConfig { d_model, heads, d_ff, max_length, dropout, ..block },
            BlockConfig { d_model: 32, heads: 4, d_ff: 64, max_length: 64, dropout: 0.0, ..block },
        )
    }
}

/// Layer normalisation with PyTorch's epsilon.
fn of_pytorch() -> NormConfig {
    NormConfig::default().with_epsilon(1e-5)
}

/// Omits the published parameter count for twins.
fn of_paper<M>(source: &'static str, size: Size, model: M, context: usize, memory: usize, published: Option<f64>) -> Preset<M> {
    Preset { source, model, context, memory, published_parameters: published.filter(|_| size == Size::Full) }
}

fn seq2seq(source: &'static str, size: Size, model: Seq2SeqConfig, published: Option<f64>) -> Preset<Seq2SeqConfig> {
    of_paper(source, size, model, size.of(256, 16), 0, published)
}

/// The base model of Vaswani et al. 2017, with the 37,000 byte pairs of WMT 2014 English-German. As in the paper, projections have no biases. The code of June
/// 2017 had biases and drew queries, keys and values of self-attention as one matrix
/// ([`PackedXavier`](crate::block::initialisation::Initialisation::PackedXavier)); the code of November did neither.
pub fn transformer_base(size: Size) -> Preset<Seq2SeqConfig> {
    seq2seq("Vaswani et al. 2017, table 3", size, wmt(size), Some(65.0))
}

/// The big model of Vaswani et al. 2017, with the vocabulary of [`transformer_base`].
pub fn transformer_big(size: Size) -> Preset<Seq2SeqConfig> {
    let model = Seq2SeqConfig { block: size.block(1024, 16, 4096, 512, 0.3), ..wmt(size) };
    seq2seq("Vaswani et al. 2017, table 3", size, model, Some(213.0))
}

/// Six layers for English-German.
fn wmt(size: Size) -> Seq2SeqConfig {
    let (vocabulary, layers) = (size.of(37_000, 64), size.of(6, 2));
    Seq2SeqConfig {
        source_vocabulary: vocabulary,
        target_vocabulary: vocabulary,
        encoder_layers: layers,
        decoder_layers: layers,
        block: size.block(512, 8, 2048, 512, 0.1),
        ..Seq2SeqConfig::default()
    }
}

fn transformer_xl(size: Size, block: BlockConfig, layers: usize, vocabulary: usize) -> LanguageModelConfig {
    LanguageModelConfig {
        vocabulary: size.of(vocabulary, 64),
        attention: AnyMechanism::from(RelativeConfig::default().with_shared_biases(true)).into(),
        layers: size.of(layers, 2),
        block: BlockConfig { norm_order: NormOrder::Post, norm: of_pytorch(), feed_forward_dropout: size.of(0.1, 0.0), ..block },
        positions: PositionConfig::None,
        initialisation: Initialisation::Normal { deviation: 0.02 },
        output_bias: true,
        ..LanguageModelConfig::default()
    }
}

/// Transformer-XL on WikiText-103 (Dai et al. 2019), with `u` and `v` shared by all layers, as in the released PyTorch code. That code also applies dropout
/// after the last layer and on the sinusoids, which is omitted here. The paper's output layer is an adaptive softmax, which with one width for all words has as
/// many parameters as the plain one here.
pub fn transformer_xl_wt103(size: Size) -> Preset<LanguageModelConfig> {
    let model = transformer_xl(size, size.block(410, 10, 2100, 300, 0.1), 16, 267_735);
    of_paper("Dai et al. 2019, table 1 and released scripts", size, model, size.of(150, 16), size.of(150, 16), Some(151.0))
}

/// Transformer-XL with 12 layers on enwik8 (Dai et al. 2019).
pub fn transformer_xl_enwik8(size: Size) -> Preset<LanguageModelConfig> {
    let model = transformer_xl(size, size.block(512, 8, 2048, 1024, 0.1), 12, 204);
    of_paper("Dai et al. 2019, table 2 and released scripts", size, model, size.of(512, 16), size.of(512, 16), Some(41.0))
}

/// The Sparse Transformer on enwik8 (Child et al. 2019). Its code was not released; biases and epsilon are those of its authors' later code (distribution
/// augmentation), whose initial weights are 2.8 times as large as in the paper's formula.
pub fn sparse_enwik8(size: Size) -> Preset<LanguageModelConfig> {
    let (stride, summary) = (size.of(128, 8), size.of(32, 2));
    let length = size.of(12_288, 64);
    let model = LanguageModelConfig {
        vocabulary: size.of(256, 64),
        attention: AnyMechanism::from(SparseFixedConfig::default().with_stride(stride).with_summary(summary)).into(),
        layers: size.of(30, 2),
        block: BlockConfig {
            norm_order: NormOrder::Pre,
            norm: of_pytorch(),
            qkv_bias: true,
            attention_output_bias: true,
            activation: Activation::QuickGelu,
            ..size.block(512, 8, 2048, length, 0.4)
        },
        positions: PositionConfig::Grid(GridConfig::new(length / stride, stride)),
        // With scaled embeddings, Adam would move tokens faster than positions.
        embedding_scale: EmbeddingScale::None,
        initialisation: Initialisation::Scaled,
        tied: false,
        ..LanguageModelConfig::default()
    };
    of_paper("Child et al. 2019, table 1 and section 7", size, model, length, 0, Some(95.0))
}

/// The Reformer on enwik8 (Kitaev et al. 2020). Three of four layers use local attention, one uses LSH attention. No parameter count is printed.
pub fn reformer_enwik8(size: Size) -> Preset<LanguageModelConfig> {
    let (chunk, buckets) = (size.of(256, 8), size.of([16, 32], [2, 4]));
    let local = AnyMechanism::from(LocalOneDConfig::default().with_query_block(size.of(128, 8)));
    let lsh = AnyMechanism::from(
        LshConfig::default().with_chunk(chunk).with_rounds(2).with_buckets(BucketCount::Factorised(buckets)).with_scale(Scale::Code),
    );
    let (rows, columns) = (size.of(128, 8), size.of(512, 8));
    let model = LanguageModelConfig {
        vocabulary: size.of(256, 64),
        attention: LayerAttention::Each(vec![local.clone(), local.clone(), lsh, local]),
        layers: size.of(12, 4),
        block: BlockConfig {
            norm_order: NormOrder::Pre,
            attention_dropout: size.of(0.2, 0.0),
            feed_forward_dropout: size.of(0.2, 0.0),
            feed_forward_chunk: Some(size.of(2048, 32)),
            ..size.block(1024, 8, 4096, rows * columns, 0.2)
        },
        positions: PositionConfig::Grid(GridConfig { join: Join::Concatenated, ..GridConfig::new(rows, columns) }),
        // In the released code (trax, before August 2020) token and position vectors both start with deviation 1. Without scaling they also have equal magnitude
        // here, but 32 times smaller. There, the two streams are concatenated as the input of a separate output map.
        embedding_scale: EmbeddingScale::None,
        depth: DepthConfig::Reversible,
        ..LanguageModelConfig::default()
    };
    of_paper("Kitaev et al. 2020, released configuration", size, model, rows * columns, 0, None)
}

/// The Universal Transformer (Dehghani et al. 2018). It is wider than the Transformer's base model, so that both have equally many parameters: 65 million.
/// Sizes are those of the released configuration, blocks those of the paper: the released ones use pre-normalisation, with dropout on weights and hidden units.
pub fn universal_base(size: Size) -> Preset<Seq2SeqConfig> {
    let model =
        Seq2SeqConfig { block: size.block(1024, 16, 4096, 512, 0.3), depth: DepthConfig::Shared(SharedConfig::default()), ..wmt(size) };
    seq2seq("Dehghani et al. 2018, section 3.5, with the sizes of the released configuration", size, model, Some(65.0))
}

/// GTrXL with 12 layers (Parisotto et al. 2020). The text states a width of 256, but the parameter counts of all variants fit 512. The output of the last layer
/// is not normalised, so that the stream is the identity from the input on. Earlier builds of the preset normalised it: load their weights with
/// `block.final_norm` set to `Some(true)`.
pub fn gtrxl_12(size: Size) -> Preset<LanguageModelConfig> {
    let model = LanguageModelConfig {
        vocabulary: size.of(256, 64),
        attention: AnyMechanism::from(RelativeConfig::default()).into(),
        layers: size.of(12, 2),
        block: BlockConfig {
            norm_order: NormOrder::Pre,
            gate: Some(GateConfig::new(GateKind::Gru)),
            relu_before_residual: true,
            final_norm: Some(false),
            ..size.block(512, 8, 1024, 607, 0.0)
        },
        positions: PositionConfig::None,
        ..LanguageModelConfig::default()
    };
    of_paper("Parisotto et al. 2020, section 4.1 and table 1", size, model, size.of(95, 16), size.of(512, 16), Some(66.4))
}

/// The Image Transformer on CIFAR-10 (Parmar et al. 2018), with categorical intensities in raster order. The released configuration draws all maps with
/// `sqrt(0.2)` of the Xavier deviation, and has a value table per colour and an output bias, which are omitted here. No parameter count is printed.
pub fn image_transformer_cifar(size: Size) -> Preset<LanguageModelConfig> {
    let (rows, columns) = (size.of(32, 4), size.of(32, 4));
    let length = rows * columns * 3;
    let block = size.block(512, 4, 2048, length, 0.3);
    let model = LanguageModelConfig {
        vocabulary: 256,
        attention: AnyMechanism::from(LocalOneDConfig::default().with_query_block(size.of(256, 8))).into(),
        layers: size.of(12, 2),
        block: BlockConfig { norm_order: NormOrder::Post, max_length: length, ..block },
        positions: PositionConfig::Grid(GridConfig { join: Join::Concatenated, ..GridConfig::new(rows, columns * 3) }),
        // Values and positions have equal magnitude. In the released configuration both are larger, and positions are sinusoids.
        embedding_scale: EmbeddingScale::None,
        tied: false,
        ..LanguageModelConfig::default()
    };
    of_paper("Parmar et al. 2018, section 5.1 and released configuration", size, model, length, 0, None)
}

/// Hard-coded self-attention on IWSLT (You et al. 2020), with 32,000 byte pairs. No parameter count is printed.
pub fn hc_sa_iwslt(size: Size) -> Preset<Seq2SeqConfig> {
    let layers = size.of(5, 2);
    let model = Seq2SeqConfig {
        source_vocabulary: size.of(32_000, 64),
        target_vocabulary: size.of(32_000, 64),
        attention: AttentionLayout::named("hc-sa").expect("it is in the file of layouts"),
        encoder_layers: layers,
        decoder_layers: layers,
        block: BlockConfig { norm: of_pytorch(), ..size.block(288, 4, 507, 512, 0.1) },
        tying: Tying::ThreeWay,
        ..Seq2SeqConfig::default()
    };
    seq2seq("You et al. 2020, released configuration", size, model, None)
}

/// The Synthesizer in the size of the base Transformer (Tay et al. 2020): random synthesizers replace self-attention. With sequences of at most 256, its
/// parameter count equals that of dot-product attention, as in the paper.
pub fn synthesizer_base(size: Size) -> Preset<Seq2SeqConfig> {
    // The Glorot deviation of a table `[L, H, L]`, as in the released Mesh TensorFlow code.
    let random = AnyMechanism::from(SynthesizerRandomConfig::default().with_init_std(0.0054));
    let model = Seq2SeqConfig { attention: AttentionLayout::for_attention(random), block: size.block(512, 8, 2048, 256, 0.1), ..wmt(size) };
    seq2seq("Tay et al. 2020, table 1", size, model, Some(67.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Module;
    use burn::optim::{AdamConfig, GradientsParams};
    use burn::tensor::{Device, Int, Tensor, TensorData};

    use crate::architectures::classifier::Sentences;
    use crate::architectures::seq2seq::Padded;
    use crate::block::segment::SegmentMemory;
    use crate::training::parameter_count::tests::distinct;

    fn key() -> RandomKey {
        RandomKey::from_seed(3)
    }

    #[test]
    fn every_preset_and_twin_can_be_built() {
        for name in NAMES {
            for name in [name.to_owned(), format!("{name}{TINY}")] {
                let preset = named(&name).unwrap();
                preset.model.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(preset.context + preset.memory <= preset.model.block().max_length, "{name}");
            }
        }
        assert!(named("transformer").is_none() && named("-tiny").is_none());
    }

    #[test]
    fn a_function_gives_what_its_name_does() {
        assert_eq!(named("transformer-big").unwrap(), transformer_big(Size::Full).into());
        assert_eq!(named("gtrxl-12-tiny").unwrap(), gtrxl_12(Size::Tiny).into());
        assert_eq!((gtrxl_12(Size::Full).published_parameters, gtrxl_12(Size::Tiny).published_parameters), (Some(66.4), None));
    }

    /// Parameters included in the published count.
    fn counted(model: &PresetModel, name: &str) -> u128 {
        let ParameterCount { trained, fixed } = model.parameters().unwrap();
        let apart = match model {
            PresetModel::LanguageModel(config) if name.starts_with("gtrxl") => config.vocabulary * config.block.d_model,
            PresetModel::Classifier(config) => (config.block.d_model + 1) * config.outputs,
            _ => 0,
        };
        trained + fixed - apart as u128
    }

    #[test]
    fn released_models_have_exactly_the_parameters_of_their_weights() {
        let released = [
            ("gpt2", 124_439_808),
            ("bert-base", 109_482_240),
            ("vit-b16", 86_567_656),
            ("llama-3-8b", 8_030_261_248),
            ("mistral-7b", 7_241_732_096),
            ("qwen-3-0.6b", 596_049_920),
            ("gemma-2-2b", 2_614_341_888),
        ];
        for (name, published) in released {
            let preset = named(name).unwrap();
            assert_eq!(counted(&preset.model, name), published, "{name}");
            assert_eq!(preset.published_parameters, Some(published as f64 / 1e6), "{name}");
        }
    }

    #[test]
    fn twins_have_as_many_parameters_as_are_counted() {
        for name in NAMES {
            let preset = named(&format!("{name}{TINY}")).unwrap();
            let ParameterCount { trained, fixed } = preset.model.parameters().unwrap();
            let device = Device::flex();
            let built = match preset.model {
                PresetModel::LanguageModel(config) => distinct(&config.init(&key(), &device)),
                PresetModel::Seq2Seq(config) => distinct(&config.init(&key(), &device)),
                PresetModel::Classifier(config) => distinct(&config.init(&key(), &device)),
                PresetModel::Vision(config) => distinct(&config.init(&key(), &device)),
            };
            assert_eq!(trained + fixed, built as u128, "{name}");
        }
    }

    #[test]
    fn models_have_as_many_parameters_as_the_papers_say() {
        for name in NAMES {
            let preset = named(name).unwrap();
            let Some(published) = preset.published_parameters else { continue };
            let found = counted(&preset.model, name) as f64 / 1e6;
            // Printed to two digits; vocabularies and the counted parts are not always printed.
            assert!((found / published - 1.0).abs() < 0.07, "{name}: {found} and {published} million parameters");
        }
    }

    #[test]
    fn only_gtrxl_does_without_a_last_normalisation_where_its_layers_normalise_first() {
        for name in NAMES {
            let preset = named(&format!("{name}{TINY}")).unwrap();
            let PresetModel::LanguageModel(config) = preset.model else { continue };
            let is_expected = config.block.norm_order != NormOrder::Post && name != "gtrxl-12";
            assert_eq!(config.init(&key(), &Device::flex()).decoder.norm.is_some(), is_expected, "{name}");
        }
    }

    /// Losses of 30 steps on one batch.
    fn losses<M: Module>(mut model: M, mut loss: impl FnMut(&M) -> Tensor<1>) -> Vec<f32> {
        let mut optimiser = AdamConfig::new().init();
        let mut losses = Vec::new();
        for _ in 0..30 {
            let loss = loss(&model);
            losses.push(loss.clone().into_scalar::<f32>());
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimiser.step(3e-3, model, gradients);
        }
        losses
    }

    #[test]
    fn every_twin_learns() {
        let device = Device::flex().autodiff();
        for name in NAMES {
            let preset = named(&format!("{name}{TINY}")).unwrap();
            let (context, memory) = (preset.context, preset.memory);
            let tokens = |length: usize| -> Tensor<2, Int> {
                let ids: Vec<i32> = (0..2 * length as i32).map(|index| (index * index + 5 * index) % 61 + 1).collect();
                Tensor::from_data(TensorData::new(ids, [2, length]), &device)
            };
            let found = match preset.model {
                PresetModel::LanguageModel(config) => {
                    let all = tokens(context + 1);
                    let (inputs, targets) = (all.clone().narrow(1, 0, context), all.narrow(1, 1, context).reshape([2 * context]));
                    let width = config.block.d_model;
                    losses(config.init(&key(), &device), |model| {
                        let states = match memory {
                            0 => model.hidden(inputs.clone(), &[], None, &mut Probe::off()).states,
                            _ => model.segment(inputs.clone(), &mut SegmentMemory::new(2, memory), None, &mut Probe::off()).states,
                        };
                        model.cross_entropy(states.reshape([2 * context, width]), targets.clone(), None, 0.0).loss
                    })
                }
                PresetModel::Classifier(config) => losses(config.init(&key(), &device), |model| {
                    let sentences = Sentences { tokens: tokens(context), segments: None, lengths: &[context; 2] };
                    let logits = model.forward_with(sentences, None, &mut Probe::off()).logits;
                    crate::parts::loss::cross_entropy(logits, Tensor::from_data([0, 1], &device), None, 0.0).loss
                }),
                PresetModel::Vision(config) => {
                    let images = Init::Normal(1.0).tensor([2, config.channels, config.height, config.width], &key(), &device);
                    losses(config.init(&key(), &device), |model| {
                        let logits = model.forward_with(images.clone(), None, &mut Probe::off()).logits;
                        crate::parts::loss::cross_entropy(logits, Tensor::from_data([3, 7], &device), None, 0.0).loss
                    })
                }
                PresetModel::Seq2Seq(config) => {
                    let (source, all) = (tokens(context), tokens(context + 1));
                    let targets = all.clone().narrow(1, 1, context).reshape([2 * context]);
                    let (width, lengths) = (config.block.d_model, [context; 2]);
                    losses(config.init(&key(), &device), |model| {
                        let source = Padded { tokens: source.clone(), lengths: &lengths };
                        let target = Padded { tokens: all.clone().narrow(1, 0, context), lengths: &lengths };
                        let states = model.hidden(source, target, None, &mut Probe::off()).states;
                        model.cross_entropy(states.reshape([2 * context, width]), targets.clone(), None, 0.0).loss
                    })
                }
            };
            assert!(found.iter().all(|loss| loss.is_finite()) && found[29] < 0.9 * found[0], "{name}: {found:?}");
        }
    }
}
