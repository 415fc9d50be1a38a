//! Configuration of the experiments.

use heedful_attention::description::AnyMechanism;
use heedful_attention::mechanisms::local_1d::LocalOneDConfig;
use heedful_attention::mechanisms::local_2d::{BlockRaster, LocalTwoDConfig};
use heedful_attention::mechanisms::lsh::LshConfig;
use heedful_attention::mechanisms::sparse_fixed::SparseFixedConfig;
use heedful_attention::mechanisms::sparse_strided::SparseStridedConfig;
use heedful_data::generate::Sizes;
use heedful_data::generate::images::ImageShape;
use heedful_data::images::{Images, Reductions};
use heedful_models::architectures::language_model::LanguageModelConfig;
use heedful_models::architectures::seq2seq::{Seq2SeqConfig, Tying};
use heedful_models::block::layout::{AttentionLayout, LayerAttention};
use heedful_models::generation::Sampling;
use heedful_models::parts::embedding::EmbeddingScale;
use heedful_models::parts::position::{GridConfig, PositionConfig};
use serde::{Deserialize, Serialize};

use super::ImageModelling;
use crate::tasks::prelude::*;

/// Complete configuration of `image`.
pub type ImageConfig = Config<ImageModelling>;

/// Options of the experiments on images. Beside them, the model's `max_length` is at least the number of values of an image, and the width of `local-2d`
/// and the sizes of a grid of positions are those of the images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageOptions {
    /// Which images.
    pub data: ImageData,
    /// Whether the output projection is the embedding's matrix.
    pub tied: bool,
    /// Conditioning of the model: `none`, or the `class` of each image (Parmar et al. 2018, section 5.2), whose vector is added to every value.
    /// Super-resolution has none.
    pub conditions: Conditions,
    /// How values are drawn.
    pub sampling: Sampling,
}

/// Conditioning of a model that generates the values of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conditions {
    /// Nothing.
    #[default]
    None,
    /// Its class.
    Class,
}

/// The images of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageData {
    /// Reductions of the images that are read.
    pub reductions: Reductions,
    /// Training images at most; by default all.
    pub train: Option<usize>,
    /// Most images of an evaluation during training.
    pub valid: usize,
    /// Test images at most; by default all.
    pub test: Option<usize>,
    /// Images in a batch.
    pub batch: usize,
    /// Super-resolution: this many rows and columns of the image become one of the given image.
    pub factor: usize,
    /// Images that the trained model generates (of each class, if it is class-conditional), and as many that it completes from their upper half, or sharpens.
    pub samples: usize,
    /// Training images that are generated if none are read.
    pub generated_images: usize,
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

/// What the experiments change of the defaults that all share, for images of 12 by 12 values.
pub(super) fn defaults<E>(config: &mut Config<E>) {
    config.compare("dot-product,local-1d,local-2d,sparse-strided,sparse-fixed,lsh,synthesizer-random", "");
    // Vectors of values are as large as those of positions, as in Parmar et al. 2018 (released code) and Child et al. 2019 (section 6).
    config.model.embedding_scale = EmbeddingScale::None;
    config.model.positions = PositionConfig::Grid(GridConfig::new(12, 12));
    config.model.max_length = 144;
    config.model.dropout = 0.0;
    config.mechanisms.set(AnyMechanism::from(LocalOneDConfig::default().with_query_block(24)));
    config.mechanisms.set(AnyMechanism::from(LocalTwoDConfig::default().with_width(12).with_query_block([4, 4]).with_memory([4, 4])));
    config.mechanisms.set(AnyMechanism::from(SparseStridedConfig::default().with_stride(12)));
    config.mechanisms.set(AnyMechanism::from(SparseFixedConfig::default().with_stride(12).with_summary(3)));
    config.mechanisms.set(AnyMechanism::from(LshConfig::default().with_chunk(12).with_rounds(2)));
    let schedule = ScheduleConfig::Linear { warmup: 80, end: 1e-5 };
    config.training = TrainingConfig { steps: 800, learning_rate: 1e-2, schedule, ..TrainingConfig::every(200) };
}

/// The shape of images that are made here.
pub(super) const SHAPE: ImageShape = ImageShape { height: 12, width: 12, channels: 1, levels: 4 };

impl ImageOptions {
    /// A decoder over the values of an image, after a token that begins it.
    pub(super) fn model(&self, settings: &ModelSettings, images: &Images, attention: &Attention) -> LanguageModelConfig {
        let attention = &attention.layout.decoder;
        let config = fitted(settings, images, attention).language_model(images.levels + 1, &for_rows(attention, dims(images)));
        let classes = match self.conditions {
            Conditions::None => 0,
            Conditions::Class => images.classes,
        };
        config.with_tied(self.tied).with_classes(classes)
    }

    /// An encoder of the small image, in which every value may see every other, and a decoder (Image Transformer, section 3.2 and 5.3). A grid of positions is
    /// that of the small image in the encoder.
    pub(super) fn sharpening_model(&self, settings: &ModelSettings, images: &Images, attention: &Attention) -> Seq2SeqConfig {
        let AttentionLayout { encoder, decoder, cross } = &attention.layout;
        let Images { height, width, .. } = *images;
        let small = Images { height: height / self.data.factor, width: width / self.data.factor, ..images.without_images() };
        let layout =
            AttentionLayout { encoder: for_rows(encoder, dims(&small)), decoder: for_rows(decoder, dims(images)), cross: cross.clone() };
        let tying = if self.tied { Tying::Output } else { Tying::None };
        let settings = fitted(settings, images, decoder);
        let source_positions = Some(fitted(&settings, &small, encoder).positions);
        Seq2SeqConfig { source_vocabulary: images.levels, source_positions, ..settings.encoder_decoder(images.levels + 1, layout, tying) }
    }
}

/// The model's settings for sequences of the images' length. A grid of positions is that of the images, read as the attention wants it, row by row or block by
/// block.
pub(super) fn fitted(settings: &ModelSettings, images: &Images, attention: &LayerAttention) -> ModelSettings {
    let max_length = settings.max_length.max(images.size());
    let positions = match settings.positions {
        PositionConfig::Grid(grid) => {
            let Images { width, channels, .. } = *images;
            let block = blocks(attention, dims(images)).map(|order| order.block);
            let rows = max_length.div_ceil(row(images)).next_multiple_of(block.map_or(1, |[rows, _]| rows));
            PositionConfig::Grid(GridConfig { rows, columns: width, channels, block, ..grid })
        }
        other => other,
    };
    ModelSettings { max_length, positions, ..settings.clone() }
}

/// Lengths of sequences of the values of images.
pub(super) fn lengths(settings: &ModelSettings, images: &Images, attention: &Attention) -> TrainingLengths {
    let decoder = for_rows(&attention.layout.decoder, dims(images));
    TrainingLengths::new(&attention.layout, settings.max_length.max(images.size())).decoder_attention(decoder).decoder([images.size()])
}

/// Values in a row of an image.
pub(super) fn row(images: &Images) -> usize {
    images.width * images.channels
}

/// The number of rows of an image, and of values in a row.
pub(super) fn dims(images: &Images) -> [usize; 2] {
    [images.height, row(images)]
}

/// The attention for images of so many rows of so many values.
pub(super) fn for_rows(attention: &LayerAttention, shape: [usize; 2]) -> LayerAttention {
    attention.clone().map(|mechanism| match mechanism.get::<LocalTwoDConfig>() {
        Some(local) => local.clone().with_width(shape[1]).with_query_block(order(local, shape).block).into(),
        None => mechanism,
    })
}

/// Where an attention wants images of so many rows of so many values to be read block by block: the blocks.
pub(super) fn blocks(attention: &LayerAttention, shape: [usize; 2]) -> Option<BlockRaster> {
    Some(order(attention.mechanisms().iter().find_map(AnyMechanism::get::<LocalTwoDConfig>)?, shape))
}

fn order(local: &LocalTwoDConfig, [rows, row]: [usize; 2]) -> BlockRaster {
    local.clone().with_width(row).order(rows * row)
}

#[cfg(test)]
mod tests {
    use heedful_data::generate;

    use super::*;

    #[test]
    fn default_blocks_divide_images_of_usual_sizes() {
        for [rows, row] in [[14, 14], [28, 28], [32, 32], [64, 64], [32, 96], [64, 192], [28, 84]] {
            let BlockRaster { width, block: [height, columns] } = order(&LocalTwoDConfig::default(), [rows, row]);
            assert!(width == row && rows % height == 0 && row % columns == 0, "{rows} x {row}: {height} x {columns}");
            assert!(height > 1 && columns > 1, "{rows} x {row}: {height} x {columns}");
        }
    }

    #[test]
    fn encoder_and_decoder_have_the_grid_of_their_own_image() {
        let images = generate::images(&RandomKey::from_seed(1), SHAPE, Sizes { train: 1, valid: 1, test: 1 }).unwrap();
        let settings = ImageConfig::default().model;
        let model = ImageOptions::default().sharpening_model(&settings, &images, &Attention::new(AnyMechanism::default()));
        model.validate().unwrap();
        let grid = |rows, columns| PositionConfig::Grid(GridConfig::new(rows, columns));
        // A small image has three rows of three values. The grid has room for as many positions as the decoder's.
        assert_eq!((model.source_positions, model.positions), (Some(grid(48, 3)), grid(12, 12)));
    }

    #[test]
    fn an_image_that_is_read_in_blocks_keeps_its_rows_columns_and_channels() {
        let shape = ImageShape { channels: 3, ..SHAPE };
        let images = generate::images(&RandomKey::from_seed(1), shape, Sizes { train: 1, valid: 1, test: 1 }).unwrap();
        let settings = ModelSettings { max_length: 433, ..ImageConfig::default().model };
        let positions = |attention: AnyMechanism| fitted(&settings, &images, &attention.into()).positions;
        let in_blocks = AnyMechanism::from(LocalTwoDConfig::default().with_query_block([4, 6]));
        // One position more than 12 rows have needs four rows more, since blocks have four.
        let grid = GridConfig { channels: 3, block: Some([4, 6]), ..GridConfig::new(16, 12) };
        assert_eq!(positions(in_blocks), PositionConfig::Grid(grid));
        assert_eq!(positions(AnyMechanism::default()), PositionConfig::Grid(GridConfig { channels: 3, ..GridConfig::new(13, 12) }));
    }
}
