//! Configuration of the experiments.

use heedful_attention::mechanisms::local_1d::LocalOneDConfig;
use heedful_attention::mechanisms::local_2d::{BlockRaster, LocalTwoDConfig};
use heedful_attention::mechanisms::lsh::LshConfig;
use heedful_attention::mechanisms::sparse_fixed::SparseFixedConfig;
use heedful_attention::mechanisms::sparse_strided::SparseStridedConfig;
use heedful_attention::registry::AnyMechanism;
use heedful_models::generation::Sampling;
use heedful_models::language_model::LanguageModelConfig;
use heedful_models::layout::{AttentionLayout, LayerAttention};
use heedful_models::position::{GridConfig, Join, PositionConfig};
use heedful_models::seq2seq::{Seq2SeqConfig, Tying};
use serde::{Deserialize, Serialize};

use crate::comparison::{Attention, experiment_config};
use crate::data::generate::Sizes;
use crate::data::generate::images::ImageShape;
use crate::data::images::{Images, Reductions};
use crate::mechanisms::MechanismOptions;
use crate::model::ModelSettings;
use crate::options::RunSettings;
use crate::train::{ScheduleConfig, TrainingConfig};

/// Complete configuration of `image`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageConfig {
    /// Which runs.
    pub run: RunSettings,
    /// Which images.
    pub data: ImageData,
    /// The model. Its `max_length` is at least the number of values of an image.
    pub model: ModelSettings,
    /// Whether the output projection is the embedding's matrix.
    pub tied: bool,
    /// Options of the mechanisms. The width of `local-2d` is that of the images.
    pub mechanisms: MechanismOptions,
    /// How it is trained.
    pub training: TrainingConfig,
    /// How values are drawn.
    pub sampling: Sampling,
}

/// The images of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageData {
    /// What is taken away from the images that are read.
    pub reductions: Reductions,
    /// Training images at most; by default all.
    pub train: Option<usize>,
    /// Images at most that the model is evaluated on while it is trained.
    pub valid: usize,
    /// Test images at most; by default all.
    pub test: Option<usize>,
    /// Images in a batch.
    pub batch: usize,
    /// Of super-resolution: so many rows and columns of the image become one of what is given.
    pub factor: usize,
    /// Images that are drawn from the trained model, and as many that are completed from their upper half, or sharpened.
    pub samples: usize,
    /// Training images that are made where none are read.
    pub generated_images: usize,
}

impl Default for ImageConfig {
    fn default() -> Self {
        let mut mechanisms = MechanismOptions::default();
        // For images of 12 by 12 values.
        mechanisms.set(AnyMechanism::from(LocalOneDConfig::default().with_query_block(24)));
        mechanisms.set(AnyMechanism::from(LocalTwoDConfig::default().with_width(12).with_query_block([4, 4]).with_memory([4, 4])));
        mechanisms.set(AnyMechanism::from(SparseStridedConfig::default().with_stride(12)));
        mechanisms.set(AnyMechanism::from(SparseFixedConfig::default().with_stride(12).with_summary(3)));
        mechanisms.set(AnyMechanism::from(LshConfig::default().with_chunk(12).with_rounds(2)));
        Self {
            run: RunSettings {
                attention: ["dot-product", "local-1d", "local-2d", "sparse-strided", "sparse-fixed", "lsh", "synthesizer-random"]
                    .map(str::to_owned)
                    .to_vec(),
                ..RunSettings::default()
            },
            data: ImageData::default(),
            model: ModelSettings {
                positions: PositionConfig::Grid(GridConfig { rows: 12, columns: 12, channels: 1, join: Join::Sum }),
                max_length: 144,
                dropout: 0.0,
                ..ModelSettings::default()
            },
            tied: false,
            mechanisms,
            training: TrainingConfig {
                steps: 800,
                learning_rate: 1e-2,
                schedule: ScheduleConfig::Linear { warmup: 80, end: 1e-5 },
                evaluate_every: 200,
                checkpoint_every: 200,
                log_every: 50,
                ..TrainingConfig::default()
            },
            sampling: Sampling::default(),
        }
    }
}

impl Default for ImageData {
    fn default() -> Self {
        Self {
            reductions: Reductions::default(),
            train: None,
            valid: 200,
            test: None,
            batch: 16,
            factor: 4,
            samples: 8,
            generated_images: Sizes::IMAGES.train,
        }
    }
}

experiment_config!(ImageConfig);

impl ImageConfig {
    /// The shape of images that are made here.
    pub(super) fn shape() -> ImageShape {
        ImageShape { height: 12, width: 12, channels: 1, levels: 4 }
    }

    /// The model's settings for sequences of the images' length. A grid of positions is that of the images, or one of blocks and places in them where the
    /// attention wants blocks one after the other.
    fn settings(&self, images: &Images, attention: &LayerAttention) -> ModelSettings {
        let max_length = self.model.max_length.max(images.size());
        let positions = match (self.model.positions, blocks(attention, images)) {
            (PositionConfig::Grid(grid), Some(BlockRaster { block, .. })) => {
                let columns = block.iter().product();
                PositionConfig::Grid(GridConfig { rows: max_length.div_ceil(columns), columns, channels: 1, ..grid })
            }
            (PositionConfig::Grid(grid), None) => {
                let Images { width, channels, .. } = *images;
                PositionConfig::Grid(GridConfig { rows: max_length.div_ceil(width * channels), columns: width, channels, ..grid })
            }
            (other, _) => other,
        };
        ModelSettings { max_length, positions, ..self.model.clone() }
    }

    /// A decoder over the values of an image, after a token that begins it.
    pub(super) fn model(&self, images: &Images, attention: &Attention) -> LanguageModelConfig {
        self.settings(images, &attention.layout.decoder).language_model(
            images.levels + 1,
            &for_width(&attention.layout.decoder, images),
            self.tied,
        )
    }

    /// An encoder of the small image, in which every value sees every other, and a decoder (Image Transformer, section 3.2 and 5.3).
    pub(super) fn sharpening_model(&self, images: &Images, attention: &Attention) -> Seq2SeqConfig {
        let layout = AttentionLayout { decoder: for_width(&attention.layout.decoder, images), ..AttentionLayout::default() };
        let tying = if self.tied { Tying::Output } else { Tying::None };
        let config = self.settings(images, &attention.layout.decoder).encoder_decoder(images.levels + 1, layout, tying);
        Seq2SeqConfig { source_vocabulary: images.levels, ..config }
    }
}

/// The attention for rows of the images' length.
fn for_width(attention: &LayerAttention, images: &Images) -> LayerAttention {
    attention.clone().map(|mechanism| match mechanism.get::<LocalTwoDConfig>() {
        Some(local) => local.clone().with_width(images.width * images.channels).into(),
        None => mechanism,
    })
}

/// Where an attention wants an image to be generated block by block: the blocks.
pub(super) fn blocks(attention: &LayerAttention, images: &Images) -> Option<BlockRaster> {
    let local = attention.mechanisms().iter().find_map(AnyMechanism::get::<LocalTwoDConfig>)?;
    Some(BlockRaster { width: images.width * images.channels, block: local.query_block })
}
