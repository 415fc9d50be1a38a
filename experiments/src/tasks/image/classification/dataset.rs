//! Images of classes, ready to be learnt.

use super::super::ImageDataset;
use super::pretrained::Normalisation;
use crate::tasks::pretrained::Checksums;

/// Images with classes, and what a model reads of them.
#[derive(Debug)]
pub struct ClassifiedImages {
    pub(super) dataset: ImageDataset,
    pub(super) normalisation: Normalisation,
    /// Numbers of a pixel that the model reads.
    pub(super) channels: usize,
    /// The checksums of the pretrained model, if there is one.
    pub(super) pretrained: Option<Checksums>,
    /// Whether the outputs are not those of the pretrained model.
    pub(super) has_new_output: bool,
}
