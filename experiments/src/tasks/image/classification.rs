//! Classes of images by a Vision Transformer (Dosovitskiy et al. 2021).
//!
//! It shares the readers and data options of the experiments that generate images: `classify --images`.

mod config;
mod dataset;
mod pretrained;
mod task;
mod trivial;

use heedful_models::architectures::vision::VisionTransformer;
use heedful_models::parts::position::PositionConfig;
use heedful_models::pretrained::presets::{Preset, PresetModel};

use super::config::SHAPE;
use super::{ImageDataset, ImageModelling, open, rules};
use crate::session::comparison::STEPS_PER_SECOND;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::score_before;

use self::pretrained::Normalisation;
use self::task::ACCURACY;

pub use self::config::ImageClassification;
pub use self::dataset::ClassifiedImages;
pub use self::task::{VisionBatch, VisionTask};

impl Experiment for ImageClassification {
    const NAME: &'static str = "classify-images";
    const TITLE: &'static str = "Classification of images";
    const OPTIONS: &'static [CommandOption] = &[CommandOption::pretrained("Folder of a pretrained Vision Transformer of Hugging Face with its preprocessor_config.json: fine-tune it on images of its size. With as many \
        classes as the data, it is also scored before fine-tuning; otherwise its output is new").conflicts(&["model"])];
    const DATA: &'static [&'static str] =
        &["pretrained", "data.reductions", "data.train", "data.valid", "data.test", "data.generated_images", "model.max_length"];
    const BATCH: &'static str = ImageModelling::BATCH;
    const READS_FILES: bool = true;
    const HAS_PADDING: bool = false;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = ClassifiedImages;
    type Model = VisionTransformer;
    type Task<'a> = VisionTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        config.compare("dot-product,synthesizer-dense,synthesizer-random,linear-attention,uniform", "");
        config.model.positions = PositionConfig::Learned;
        // Images of 12 by 12 values are nine patches behind a class token.
        config.model.max_length = 10;
        let schedule = ScheduleConfig::Linear { warmup: 80, end: 1e-5 };
        config.training = TrainingConfig { steps: 800, learning_rate: 3e-3, schedule, ..TrainingConfig::every(200) };
    }

    fn beneath(config: &Config<Self>) -> Result<Option<Table>, ExperimentError> {
        config.own.pretrained.as_deref().map(pretrained::beneath).transpose()
    }

    fn preset(preset: &Preset) -> Option<PaperModel> {
        let PresetModel::Vision(config) = &preset.model else { return None };
        let model = PaperModel::new(&config.attention, ModelSettings::of_vision(config));
        Some(model.with("patch", config.patch).with("pooling", config.pooling))
    }

    fn rules() -> Vec<Rule<Self>> {
        let mut rules = rules::<Self>(false);
        rules.push(Rule::counts(&["patch"]));
        rules.push(Rule::used(&["data.samples"], |_| false, "no image is drawn; leave it out"));
        let embedding = &["model.embedding_scale", "model.embedding_norm"];
        rules.push(Rule::used(embedding, |_| false, "patches are no tokens and have no embeddings; leave it out"));
        rules
    }

    fn check(settings: &Settings<Config<Self>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let has_grid = matches!(settings.value.model.positions, PositionConfig::Grid(_));
        let remedy = "patches stand in one row, behind a class token; give learned, sinusoidal, per-layer or none";
        settings.require("model.positions", !has_grid, remedy)?;
        pretrained::check(settings, attentions)
    }

    fn open(config: &Config<Self>) -> Result<Vec<ClassifiedImages>, ExperimentError> {
        let dataset = open(config, &config.own.data, SHAPE, "classified")?.remove(0);
        Ok(vec![match &config.own.pretrained {
            Some(folder) => pretrained::opened_with(folder, dataset)?,
            None => {
                let channels = dataset.images.channels;
                let normalisation = Normalisation::of_channels(channels);
                ClassifiedImages { dataset, normalisation, channels, pretrained: None, has_new_output: true }
            }
        }])
    }

    fn card(data: &ClassifiedImages) -> Card<'_> {
        data.dataset.card()
    }

    fn fits(Setup { config, data, attention }: Setup<'_, Self>) -> Result<(), ExperimentError> {
        let ImageDataset { name, images, .. } = &data.dataset;
        if images.classes < 2 {
            return Err(ExperimentError::usage(format!("the images of `{name}` have no classes; give --data with MNIST or CIFAR")));
        }
        if let Some(folder) = &config.own.pretrained {
            pretrained::check_size(folder, images)?;
        }
        let patch = config.own.patch;
        if !images.height.is_multiple_of(patch) || !images.width.is_multiple_of(patch) {
            let size = format!("{} by {}", images.height, images.width);
            return Err(ExperimentError::usage(format!(
                "patch = {patch} does not divide images of {size}; give --set patch=N with a divisor"
            )));
        }
        config.vision(data, attention).validate().map_err(ExperimentError::usage)
    }

    fn batch_tokens(config: &Config<Self>, data: &ClassifiedImages) -> usize {
        let images = &data.dataset.images;
        let patch = config.own.patch.max(1);
        config.own.data.batch.min(images.train.len()).saturating_mul((images.height / patch) * (images.width / patch))
    }

    fn lengths(Setup { config, data, attention }: Setup<'_, Self>) -> TrainingLengths {
        let model = config.vision(data, attention);
        TrainingLengths::new(&attention.layout, model.block.max_length).encoder([model.length()])
    }

    fn task(Setup { config, data, .. }: Setup<'_, Self>) -> VisionTask<'_> {
        let ClassifiedImages { dataset, normalisation, channels, .. } = data;
        VisionTask { images: &dataset.images, normalisation, channels: *channels, batch: config.own.data.batch }
    }

    fn model(
        Setup { config, data, attention }: Setup<'_, Self>,
        key: &RandomKey,
        device: &Device,
    ) -> Result<VisionTransformer, ExperimentError> {
        let model = config.vision(data, attention).init(key, device);
        match &config.own.pretrained {
            Some(folder) => pretrained::read(folder, data.has_new_output.then_some(data.dataset.images.classes), model),
            None => Ok(model),
        }
    }

    /// Where training began with a pretrained model and its outputs, the accuracy that these have as well.
    fn score(setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, .. } = trained;
        let Some(mut scores) = task.evaluate(model, Split::Test, interrupt) else { return Ok(None) };
        match &setup.data.pretrained {
            Some(checksums) if setup.data.has_new_output => {
                scores.notes.push(format!("{checksums}; the output is a new one, for the classes of the data"));
            }
            Some(checksums) => {
                let device = model.output.weight.device();
                let what = (checksums, ACCURACY, pretrained::BEFORE);
                return Ok(score_before(setup, task, what, (&mut scores, &device), interrupt)?.then_some(scores));
            }
            None => {}
        }
        Ok(Some(scores))
    }

    fn trivial_baselines(_config: &Config<Self>, data: &ClassifiedImages, interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(trivial::baselines(&data.dataset.images, interrupt))
    }

    fn columns() -> Vec<MetricColumn> {
        let accuracy = |name: &str, label: &str| MetricColumn::new(name, label).percent().higher_is_better();
        vec![
            accuracy(ACCURACY, "accuracy"),
            accuracy(pretrained::BEFORE, "before").defined_as("accuracy of the pretrained weights"),
            MetricColumn::new(STEPS_PER_SECOND, "steps/s"),
        ]
    }
}
