//! Classification of texts by encoders: the experiment `classify`.
//!
//! The comparison of Synthesizers with Linformer (Tay et al. 2021, table 7): a model is trained from scratch, chosen by a development set and scored on the test
//! set. Where there is no test set, the development set is scored, and the report says so.

mod config;

use heedful_data::generate::{self, Sizes};
use heedful_data::glue::{Example, Label, Target};
use heedful_data::labelled::{LabelledText, LabelledTexts};
use heedful_data::tokenise::Tokeniser;
use heedful_models::architectures::classifier::Classifier;
use heedful_models::pretrained::presets::Preset;

use crate::session::comparison::STEPS_PER_SECOND;
use crate::tasks::classification::examples::{Encoder, Frame, Part, Question};
use crate::tasks::classification::{ClassificationDataset, ClassificationTask, Start, baselines, check_pooling};
use crate::tasks::prelude::*;

pub use config::{TextClassification, TextClassificationConfig, TextClassificationData};

impl Experiment for TextClassification {
    const NAME: &'static str = "classify";
    const TITLE: &'static str = "Classification of texts by encoders";
    const ABOUT: &'static str = "\
        Compare attention mechanisms on the classification of texts, or of images with --images, each encoder trained from scratch.\n\nTrains an \
        encoder for each attention and seed, and prints a table of test accuracy with parameters, speed and memory. --data takes AG News (train.csv, \
        test.csv), IMDB (aclImdb, or its archive), TREC, JSON lines or Parquet with the columns text and label, or files with a class, a tab and a text on each line (train.tsv, and dev.tsv and test.tsv if \
        there are any; without a test set the development set is scored); without it texts are generated. With --images the encoder is a Vision \
        Transformer, --data takes a folder with MNIST (IDX) or CIFAR (binary) files, and --pretrained begins with the weights of a pretrained one.";
    const DATA: &'static [&'static str] = &["tokeniser", "data.train", "data.test", "data.generated_texts", "model.max_length"];
    const BATCH: &'static str = "data.batch_tokens";
    const READS_FILES: bool = true;
    const COLUMNS: &'static [&'static str] = LabelledTexts::COLUMNS;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = ClassificationDataset;
    type Model = Classifier;
    type Task<'a> = ClassificationTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        let attentions = "dot-product,linformer,synthesizer-random,synthesizer-factorized-random,synthesizer-factorized-random+dot-product";
        config.compare(attentions, "");
        let schedule = ScheduleConfig::Linear { warmup: 150, end: 1e-5 };
        config.training = TrainingConfig { steps: 1500, learning_rate: 3e-3, schedule, ..TrainingConfig::every(250) };
    }

    fn preset(preset: &Preset) -> Option<PaperModel> {
        PaperModel::of_classifier(preset)
    }

    fn rules() -> Vec<Rule<Self>> {
        vec![
            Rule::counts(&["data.batch_tokens", "data.generated_texts", "data.train", "data.test"]),
            Rule::made(&["data.generated_texts"], "with --data no texts are generated; leave it out"),
        ]
    }

    fn check(settings: &Settings<TextClassificationConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let model = &settings.value.model;
        let remedy = "the class token, a separator and a token of the text need at least 3";
        settings.require("model.max_length", model.max_length >= 3, remedy)?;
        check_pooling(settings, settings.value.own.pooling, attentions.len())?;
        for attention in attentions {
            settings.value.model(1, 2, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn open(config: &TextClassificationConfig) -> Result<Vec<ClassificationDataset>, ExperimentError> {
        let TextClassificationData { train, test, generated_texts, .. } = config.own.data;
        let key = RandomKey::from_seed(0).named("labelled texts");
        let mut texts = match &config.run.data {
            Some(dir) => LabelledTexts::read_columns(dir, &key, &config.run.column_names()).map_err(ExperimentError::failure)?,
            None => {
                let sizes = Sizes { train: generated_texts, ..Sizes::LABELLED };
                let made = generate::labelled(&key, sizes).map_err(ExperimentError::usage)?;
                LabelledTexts { name: "built-in".to_owned(), ..made }
            }
        };
        let has_test_set = !texts.test.is_empty();
        if let (Some(test), false) = (test, has_test_set) {
            return Err(ExperimentError::usage(format!("data.test = {test}: there is no test set ({}); leave it out", texts.split)));
        }
        let all = [texts.train.len(), texts.test.len()];
        // Files may have their classes one after the other.
        for (texts, most) in [(&mut texts.train, train), (&mut texts.test, test)] {
            every_nth(texts, most.unwrap_or(usize::MAX));
        }
        let tokeniser = Tokeniser::train(&config.own.tokeniser, texts.train.iter().map(|text| text.text.as_str()));
        let tokeniser = tokeniser.map_err(ExperimentError::usage)?;
        let mut encoder = Encoder { tokeniser: &tokeniser, frame: Frame::OWN, max_length: config.model.max_length, truncated: 0 };
        let mut encode = |texts: &[LabelledText]| {
            let example = |text: &LabelledText| Example::new(text.text.as_str(), None, Label::Class(text.class));
            encoder.encode(&texts.iter().map(example).collect::<Vec<_>>()).map_err(ExperimentError::usage)
        };
        let question = Question { target: Target::Classes(texts.classes.len()), metrics: &["accuracy"], is_grouped: false };
        let part = Part {
            name: texts.name.clone(),
            question,
            first_output: 0,
            train: encode(&texts.train)?,
            sets: [("dev", &texts.dev), ("test", &texts.test)]
                .into_iter()
                .filter(|(_, texts)| !texts.is_empty())
                .map(|(name, texts)| Ok((name.to_owned(), encode(texts)?)))
                .collect::<Result<_, ExperimentError>>()?,
            scored_from: usize::from(has_test_set),
        };
        let truncated = encoder.truncated;
        let mut remark = format!("{} classes, {}", texts.classes.len(), texts.split);
        if all != [texts.train.len(), texts.test.len()] {
            remark += &format!("; every so many of {} training and {} test texts", all[0], all[1]);
        }
        let LabelledTexts { name, sha256, .. } = texts;
        let (parts, vocabulary) = (vec![part], tokeniser.vocabulary_size());
        let (frame, segments, start) = (Frame::OWN, false, Start::Afresh);
        Ok(vec![ClassificationDataset { name, sha256, tokeniser, frame, vocabulary, parts, segments, truncated, remark, start }])
    }

    fn card(data: &ClassificationDataset) -> Card<'_> {
        data.card()
    }

    fn batch_tokens(config: &TextClassificationConfig, data: &ClassificationDataset) -> usize {
        data.batch_tokens(config.own.data.batch_tokens)
    }

    fn lengths(Setup { config, data, attention }: Setup<'_, Self>) -> TrainingLengths {
        TrainingLengths::new(&attention.layout, config.model.max_length).encoder(data.lengths())
    }

    fn task(Setup { config, data, .. }: Setup<'_, Self>) -> ClassificationTask<'_> {
        data.task(config.own.data.batch_tokens)
    }

    fn model(Setup { config, data, attention }: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<Classifier, ExperimentError> {
        Ok(config.model(data.tokeniser.vocabulary_size(), data.outputs(), attention).init(key, device))
    }

    fn columns() -> Vec<MetricColumn> {
        vec![MetricColumn::new("accuracy", "accuracy").percent().higher_is_better(), MetricColumn::new(STEPS_PER_SECOND, "steps/s")]
    }

    fn trivial_baselines(
        config: &TextClassificationConfig,
        data: &ClassificationDataset,
        interrupt: &Interrupt,
    ) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(baselines(&data.task(config.own.data.batch_tokens), interrupt))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::text_classification()
    }

    fn texts(setup: Setup<'_, Self>, count: usize) -> Vec<String> {
        setup.data.texts(count)
    }

    fn read(setup: Setup<'_, Self>, model: &Classifier, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        setup.data.read(&Self::task(setup), model, text, setup.config.model.max_length, probe)
    }
}

/// Keeps at most so many items, evenly from all over the list.
fn every_nth<T>(items: &mut Vec<T>, most: usize) {
    let count = items.len();
    if most < count {
        let mut index = 0;
        items.retain(|_| {
            // Item i is kept where i * most / count is reached for the first time.
            let kept = index == 0 || index * most / count > (index - 1) * most / count;
            index += 1;
            kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_taken_evenly() {
        for (most, kept) in [
            (1, &[0][..]),
            (2, &[0, 5]),
            (5, &[0, 2, 4, 6, 8]),
            (10, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (99, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ] {
            let mut items: Vec<usize> = (0..10).collect();
            every_nth(&mut items, most);
            assert_eq!(items, kept, "at most {most}");
        }
    }
}
