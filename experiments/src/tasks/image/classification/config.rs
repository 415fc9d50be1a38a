//! Options of the classification of images, and what it compares by default.

use std::path::PathBuf;

use heedful_models::architectures::classifier::Pooling;
use heedful_models::architectures::vision::VisionConfig;
use serde::{Deserialize, Serialize};

use super::super::config::ImageData;
use super::dataset::ClassifiedImages;
use crate::tasks::prelude::*;

/// The comparison of attentions on the classification of images: the options that only it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageClassification {
    /// Which images.
    pub data: ImageData,
    /// Rows and columns of the square patches that are the elements of a sequence, a divisor of the rows and columns of the images.
    pub patch: usize,
    /// How hidden states become one vector: `class-token` (the paper), `mean` or `last-token`.
    pub pooling: Pooling,
    /// Folder of a pretrained Vision Transformer of Hugging Face, from whose weights training goes on; by default none. It sets `patch`, `pooling`, the attention
    /// and the fields of the table `model`.
    pub pretrained: Option<PathBuf>,
}

impl Default for ImageClassification {
    fn default() -> Self {
        Self { data: ImageData::default(), patch: 4, pooling: Pooling::ClassToken, pretrained: None }
    }
}

impl Config<ImageClassification> {
    pub(super) fn vision(&self, data: &ClassifiedImages, attention: &Attention) -> VisionConfig {
        let images = &data.dataset.images;
        self.vision_of([images.height, images.width, data.channels], images.classes, attention)
    }

    /// A model of images of so many rows, columns and channels.
    pub(crate) fn vision_of(&self, [height, width, channels]: [usize; 3], classes: usize, attention: &Attention) -> VisionConfig {
        let ImageClassification { patch, pooling, .. } = self.own;
        let ModelSettings { layers, positions, depth, initialisation, max_length, .. } = self.model;
        let attention = attention.layout.encoder.clone();
        let config = VisionConfig { height, width, channels, patch, classes, attention, layers, pooling, ..VisionConfig::default() };
        let config = VisionConfig { block: self.model.block(), positions, depth, initialisation, ..config };
        let length = config.length();
        config.with_max_length(max_length.max(length))
    }
}
