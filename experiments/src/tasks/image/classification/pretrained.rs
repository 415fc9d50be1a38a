//! Going on from a pretrained Vision Transformer of Hugging Face.

use std::path::Path;

use heedful_data::images::Images;
use heedful_models::architectures::vision::{VisionConfig, VisionTransformer};
use heedful_models::pretrained::Pretrained;
use serde::Deserialize;

use super::super::ImageDataset;
use super::config::ImageClassification;
use super::dataset::ClassifiedImages;
use crate::session::experiment::paper_model::name;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::{Checksums, check_attentions, check_model, configuration, opened, refused, training};

/// Name of the score of weights before training.
pub(super) const BEFORE: &str = "accuracy before";

/// The file that says what a model is given of an image.
const PREPROCESSOR: &str = "preprocessor_config.json";

/// The folder, and the configuration of its classifier.
fn vision(folder: &Path) -> Result<(Pretrained, VisionConfig), ExperimentError> {
    let opened = opened(folder)?;
    let config = opened.vision_config().map_err(refused)?.clone();
    Ok((opened, config))
}

/// What a folder says of the configuration.
pub(super) fn beneath(folder: &Path) -> Result<Table, ExperimentError> {
    let (_, config) = vision(folder)?;
    let pooling = Value::try_from(config.pooling).map_err(refused)?;
    let further = [("patch", Value::Integer(config.patch as i64)), ("pooling", pooling)];
    let model = ModelSettings::of_vision(&config);
    let mut table = configuration((name(&config.attention), &config.attention), &model, &training(300, 100, 5e-5), further)?;
    // Images are not cut into tokens.
    table.remove("tokeniser");
    Ok(table)
}

/// Checks that configuration and folder are for each other.
pub(super) fn check(settings: &Settings<Config<ImageClassification>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
    let ImageClassification { pretrained, patch, pooling, .. } = &settings.value.own;
    let Some(folder) = pretrained else { return Ok(()) };
    let (_, config) = vision(folder)?;
    check_model(settings, folder, &ModelSettings::of_vision(&config))?;
    for (field, fits) in [("patch", *patch == config.patch), ("pooling", *pooling == config.pooling)] {
        settings.require(field, fits, format!("the weights of `{}` are for another; leave it out", folder.display()))?;
    }
    let own = name(&config.attention);
    check_attentions(settings, folder, &own, attentions, |layout| name(&layout.encoder) == own)
}

/// Refuses images of another size than those of the model.
pub(super) fn check_size(folder: &Path, images: &Images) -> Result<(), ExperimentError> {
    let VisionConfig { height, width, channels, .. } = vision(folder)?.1;
    let Images { height: rows, width: columns, channels: own, .. } = *images;
    let (wanted, found) = (format!("{height} by {width} pixels"), format!("{rows} by {columns}"));
    if [rows, columns] != [height, width] {
        let shrink = rows / height;
        let remedy = match shrink > 1 && [rows, columns] == [height * shrink, width * shrink] {
            true => format!("give --set data.reductions.shrink={shrink}"),
            false => format!("give --data with images of {wanted}, or a folder whose image_size is [{rows}, {columns}]"),
        };
        return Err(refused(format!("the model of `{}` reads images of {wanted}, and these have {found}; {remedy}", folder.display())));
    }
    // A grey image gives all channels.
    if own != channels && own != 1 {
        let problem = format!("reads {channels} numbers of a pixel, and these images have {own}; give --set data.reductions.grey=true");
        return Err(refused(format!("the model of `{}` {problem}", folder.display())));
    }
    Ok(())
}

/// Images, and what the model of a folder reads of them.
pub(super) fn opened_with(folder: &Path, mut dataset: ImageDataset) -> Result<ClassifiedImages, ExperimentError> {
    let (opened, config) = vision(folder)?;
    let normalisation = Normalisation::read(&folder.join(PREPROCESSOR), config.channels)?;
    let checksums = Checksums::with_file(folder, PREPROCESSOR)?;
    dataset.images.sha256 = checksums.with_data(&dataset.images.sha256);
    let has_new_output = !opened.has_output() || config.classes != dataset.images.classes;
    Ok(ClassifiedImages { dataset, normalisation, channels: config.channels, pretrained: Some(checksums), has_new_output })
}

/// The model with the weights of a folder, but for a new output for so many classes if there is one.
pub(super) fn read(folder: &Path, new_output: Option<usize>, model: VisionTransformer) -> Result<VisionTransformer, ExperimentError> {
    let (opened, _) = vision(folder)?;
    new_output.into_iter().fold(opened, Pretrained::with_new_output).read_into(model).map_err(refused)
}

/// What a model is given of values from 0 (black) to 1 (white): `(scale value - mean) / deviation`, by channel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Normalisation {
    scale: f64,
    channels: Vec<(f64, f64)>,
}

/// The fields of the file that matter to images which have their size already.
#[derive(Deserialize)]
#[serde(default)]
struct Preprocessor {
    do_rescale: bool,
    rescale_factor: f64,
    do_normalize: bool,
    image_mean: Numbers,
    image_std: Numbers,
}

/// One for all channels, or one for each.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Numbers {
    All(f64),
    Each(Vec<f64>),
}

impl Default for Preprocessor {
    /// Those of `ViTImageProcessor`.
    fn default() -> Self {
        let half = Numbers::All(0.5);
        Self { do_rescale: true, rescale_factor: 1.0 / 255.0, do_normalize: true, image_mean: half.clone(), image_std: half }
    }
}

impl Numbers {
    fn of(self, channels: usize) -> Option<Vec<f64>> {
        match self {
            Self::All(number) => Some(vec![number; channels]),
            Self::Each(numbers) => (numbers.len() == channels).then_some(numbers),
        }
    }
}

impl Normalisation {
    /// From -1 to 1.
    pub(super) fn of_channels(channels: usize) -> Self {
        Self { scale: 1.0, channels: vec![(0.5, 0.5); channels] }
    }

    fn read(path: &Path, channels: usize) -> Result<Self, ExperimentError> {
        let refuse = |problem: String| refused(format!("`{}`: {problem}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|error| refuse(format!("it cannot be read: {error}; write it with save_pretrained of the image processor")))?;
        let Preprocessor { do_rescale, rescale_factor, do_normalize, image_mean, image_std } =
            serde_json::from_str(text.trim_start_matches('\u{feff}'))
                .map_err(|error| refuse(format!("it is no configuration of an image processor: {error}; fetch the file again")))?;
        let scale = if do_rescale { 255.0 * rescale_factor } else { 255.0 };
        if !do_normalize {
            return Ok(Self { scale, channels: vec![(0.0, 1.0); channels] });
        }
        let numbers = |field: &str, numbers: Numbers| {
            let remedy = format!("`{field}` is not of {channels} channels; take config.json and {PREPROCESSOR} of the same model");
            numbers.of(channels).ok_or_else(|| refuse(remedy))
        };
        let (mean, deviation) = (numbers("image_mean", image_mean)?, numbers("image_std", image_std)?);
        if deviation.iter().any(|deviation| *deviation <= 0.0) {
            return Err(refuse("`image_std` is not greater than 0; fetch the file again".to_owned()));
        }
        Ok(Self { scale, channels: mean.into_iter().zip(deviation).collect() })
    }

    /// What the model is given of a value.
    pub(super) fn of(&self, channel: usize, value: f64) -> f32 {
        let (mean, deviation) = self.channels[channel];
        ((value * self.scale - mean) / deviation) as f32
    }
}
