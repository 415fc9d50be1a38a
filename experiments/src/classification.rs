//! GLUE-style classification and regression of sentences and pairs: the experiment `glue`.

use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::classifier::{Classifier, ClassifierConfig, Pooling, Sentences};
use heedful_models::loss::{cross_entropy, squared_error};
use serde::{Deserialize, Serialize};

use crate::batch::{pad, sequential_batches, token_budget_batches};
use crate::comparison::{Attention, Comparison, Dataset, ExperimentConfig, Scores, first_non_finite_activation};
use crate::data::generate::{self, Sizes};
use crate::data::glue::{Example, GlueData, GlueTask, Label, Target};
use crate::error::ExperimentError;
use crate::mechanisms::MechanismOptions;
use crate::metrics::{ConfusionMatrix, pearson, spearman};
use crate::model::ModelSettings;
use crate::options::RunSettings;
use crate::published::PublishedNumbers;
use crate::report::MetricColumn;
use crate::run_folder::RunPaths;
use crate::settings::Settings;
use crate::tokenise::{CLASSIFY, PAD, SEPARATE, Tokeniser, TokeniserConfig};
use crate::train::{Interrupt, Objective, ScheduleConfig, Selection, TrainingConfig};

/// Complete configuration of `glue`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassificationConfig {
    /// Which runs.
    pub run: RunSettings,
    /// Which tasks.
    pub data: ClassificationData,
    /// How sentences are cut into tokens; the vocabulary is that of the task's training set.
    pub tokeniser: TokeniserConfig,
    /// The model.
    pub model: ModelSettings,
    /// How hidden states become one vector: `class-token` or `mean`.
    pub pooling: Pooling,
    /// Options of the mechanisms.
    pub mechanisms: MechanismOptions,
    /// How it is trained.
    pub training: TrainingConfig,
}

/// The tasks of a classification experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassificationData {
    /// Tasks by their GLUE names; each is a data set of its own.
    pub tasks: Vec<GlueTask>,
    /// Tokens in a batch, padding included.
    pub batch_tokens: usize,
    /// Training examples of each built-in task.
    pub generated_examples: usize,
}

impl Default for ClassificationConfig {
    fn default() -> Self {
        Self {
            run: RunSettings {
                attention: ["dot-product", "synthesizer-dense", "synthesizer-random", "synthesizer-random+dot-product", "gaussian"]
                    .map(str::to_owned)
                    .to_vec(),
                ..RunSettings::default()
            },
            data: ClassificationData::default(),
            tokeniser: TokeniserConfig::Word { vocabulary: None, min_frequency: 1 },
            model: ModelSettings::default(),
            pooling: Pooling::Mean,
            mechanisms: MechanismOptions::default(),
            training: TrainingConfig {
                steps: 300,
                learning_rate: 1e-3,
                schedule: ScheduleConfig::Linear { warmup: 30, end: 1e-5 },
                evaluate_every: 50,
                checkpoint_every: 50,
                log_every: 25,
                ..TrainingConfig::default()
            },
        }
    }
}

impl Default for ClassificationData {
    fn default() -> Self {
        Self {
            tasks: vec![GlueTask::Cola, GlueTask::Sst2, GlueTask::Mrpc, GlueTask::Rte],
            batch_tokens: 1000,
            generated_examples: Sizes::GLUE.train,
        }
    }
}

impl ExperimentConfig for ClassificationConfig {
    fn run(&self) -> &RunSettings {
        &self.run
    }

    fn mechanisms(&self) -> &MechanismOptions {
        &self.mechanisms
    }

    fn training(&self) -> &TrainingConfig {
        &self.training
    }
}

impl ClassificationConfig {
    fn model(&self, vocabulary: usize, task: GlueTask, attention: &Attention) -> ClassifierConfig {
        let ModelSettings { layers, d_model, heads, d_ff, activation, norm_order, positions, max_length, .. } = self.model;
        ClassifierConfig {
            vocabulary,
            outputs: match task.target() {
                Target::Classes(classes) => classes,
                Target::Range(..) => 1,
            },
            attention: attention.config.clone().into(),
            layers,
            d_model,
            heads,
            d_ff,
            activation,
            norm_order,
            positions,
            max_length,
            pooling: self.pooling,
            segments: task.sentence_columns().len() == 2,
            dropout: self.model.dropout,
            attention_dropout: self.model.attention_dropout,
            feed_forward_dropout: self.model.feed_forward_dropout,
        }
    }
}

/// `<cls> first <sep>` or `<cls> first <sep> second <sep>` (Devlin et al. 2019), and which of the two sentences each token belongs to.
#[derive(Clone, Debug)]
struct TokenExample {
    tokens: Vec<u32>,
    /// Length of the part that belongs to the first sentence.
    first: usize,
    label: Label,
}

/// A tokenised task.
#[derive(Debug)]
pub struct ClassificationDataset {
    name: String,
    data: GlueData,
    tokeniser: Tokeniser,
    train: Vec<TokenExample>,
    dev: Vec<(String, Vec<TokenExample>)>,
    truncated: usize,
}

impl Dataset for ClassificationDataset {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn sha256(&self) -> &str {
        &self.data.sha256
    }

    fn description(&self) -> String {
        let dev: Vec<_> = self.dev.iter().map(|(name, examples)| format!("{name} {}", examples.len())).collect();
        let unlabelled: usize = self.data.without_gold_label.iter().map(|(_, rows)| rows).sum();
        format!(
            "{} training examples; development sets: {} ({unlabelled} rows without a gold label left out, {} examples over the maximal length \
             cut off); {} tokens in the vocabulary",
            self.train.len(),
            dev.join(", "),
            self.truncated,
            self.tokeniser.vocabulary_size()
        )
    }

    fn save(&self, folder: &Path) -> Result<(), ExperimentError> {
        self.tokeniser.save(&folder.join("tokenizer.json")).map_err(ExperimentError::failure)
    }
}

/// The comparison of attentions on GLUE tasks, each model trained from scratch on one task.
#[derive(Debug)]
pub struct Classification;

impl Comparison for Classification {
    const NAME: &'static str = "glue";
    const TITLE: &'static str = "GLUE, from scratch";
    type Config = ClassificationConfig;
    type Dataset = ClassificationDataset;
    type Model = Classifier;
    type Task<'a> = ClassificationTask<'a>;

    fn check(settings: &Settings<ClassificationConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let ClassificationConfig { data, model, .. } = &settings.value;
        if data.tasks.is_empty() {
            let names: Vec<_> = GlueTask::ALL.iter().map(|task| task.name()).collect();
            return Err(settings.refuse("data.tasks", format!("no task is named; known are {}", names.join(", "))).into());
        }
        for (index, task) in data.tasks.iter().enumerate() {
            if data.tasks[..index].contains(task) {
                return Err(settings.refuse("data.tasks", format!("{} is named twice", task.name())).into());
            }
        }
        for (field, value) in [("data.batch_tokens", data.batch_tokens), ("data.generated_examples", data.generated_examples)] {
            if value == 0 {
                return Err(settings.refuse(field, "it must be at least 1").into());
            }
        }
        if model.max_length < 5 {
            let problem = "the class token, two separators and a token of each sentence need at least 5";
            return Err(settings.refuse("model.max_length", problem).into());
        }
        for attention in attentions {
            settings.value.model(1, data.tasks[0], attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn datasets(config: &ClassificationConfig) -> Result<Vec<ClassificationDataset>, ExperimentError> {
        config.data.tasks.iter().map(|&task| dataset(config, task)).collect()
    }

    fn task<'a>(config: &'a ClassificationConfig, dataset: &'a ClassificationDataset) -> ClassificationTask<'a> {
        ClassificationTask { config, dataset }
    }

    fn model(
        config: &ClassificationConfig,
        dataset: &ClassificationDataset,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Classifier {
        config.model(dataset.tokeniser.vocabulary_size(), dataset.data.task, attention).init(key, device)
    }

    fn score(
        task: &ClassificationTask,
        model: &Classifier,
        _paths: &RunPaths,
        _interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let mut scores = Scores::default();
        for (index, (name, examples)) in task.dataset.dev.iter().enumerate() {
            for (metric, value) in task.metrics(model, examples) {
                let signature = format!("{name}, {} examples", examples.len());
                if task.dataset.dev.len() > 1 {
                    scores.push(&format!("{name}/{metric}"), value, signature.clone());
                }
                if index == 0 {
                    scores.push(metric, value, signature);
                }
            }
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        let column = |name| MetricColumn::new(name, name).percent().higher_is_better();
        ["matthews", "accuracy", "f1", "pearson", "spearman", "dev_mismatched/accuracy"].map(column).to_vec()
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::glue()
    }
}

fn dataset(config: &ClassificationConfig, task: GlueTask) -> Result<ClassificationDataset, ExperimentError> {
    let (name, data) = match &config.run.data {
        Some(dir) => (task.name().to_owned(), GlueData::read(dir, task).map_err(ExperimentError::failure)?),
        None => {
            let sizes = Sizes { train: config.data.generated_examples, ..Sizes::GLUE };
            let key = RandomKey::from_seed(0).named("glue data");
            (format!("built-in {}", task.name()), generate::glue(task, &key, sizes).map_err(ExperimentError::usage)?)
        }
    };
    let lines = data.train.iter().flat_map(|example| std::iter::once(example.first.as_str()).chain(example.second.as_deref()));
    let tokeniser = Tokeniser::train(&config.tokeniser, lines).map_err(ExperimentError::usage)?;
    let mut truncated = 0;
    let mut encode = |examples: &[Example]| -> Vec<TokenExample> {
        examples
            .iter()
            .map(|example| {
                let second = example.second.as_deref().map(|second| tokeniser.encode(second));
                let (tokens, was_cut) = compose(tokeniser.encode(&example.first), second, config.model.max_length);
                truncated += usize::from(was_cut);
                let first = tokens.iter().position(|&token| token == SEPARATE).map_or(tokens.len(), |at| at + 1);
                TokenExample { tokens, first, label: example.label }
            })
            .collect()
    };
    let train = encode(&data.train);
    let dev = data.dev.iter().map(|(name, examples)| (name.clone(), encode(examples))).collect();
    if truncated > 0 {
        tracing::warn!(
            "{name}: {truncated} examples are longer than model.max_length = {} tokens and are cut off",
            config.model.max_length
        );
    }
    Ok(ClassificationDataset { name, data, tokeniser, train, dev, truncated })
}

/// The token sequence of an example, and whether it had to be cut to `max_length`: the longer sentence loses its last tokens first.
fn compose(mut first: Vec<u32>, second: Option<Vec<u32>>, max_length: usize) -> (Vec<u32>, bool) {
    let mut second = second;
    let special = if second.is_some() { 3 } else { 2 };
    let mut was_cut = false;
    while first.len() + second.as_ref().map_or(0, Vec::len) + special > max_length {
        match &mut second {
            Some(second) if second.len() > first.len() => second.pop(),
            _ => first.pop(),
        };
        was_cut = true;
    }
    let mut tokens = vec![CLASSIFY];
    tokens.append(&mut first);
    tokens.push(SEPARATE);
    if let Some(mut second) = second {
        tokens.append(&mut second);
        tokens.push(SEPARATE);
    }
    (tokens, was_cut)
}

/// Training a classifier on one task.
#[derive(Debug)]
pub struct ClassificationTask<'a> {
    config: &'a ClassificationConfig,
    dataset: &'a ClassificationDataset,
}

/// Padded sequences and their labels.
#[derive(Debug)]
pub struct ClassificationBatch {
    ids: Vec<i32>,
    segments: Vec<i32>,
    lengths: Vec<usize>,
    labels: Vec<Label>,
}

impl ClassificationTask<'_> {
    fn pad<'e>(&self, examples: impl Iterator<Item = &'e TokenExample> + Clone) -> ClassificationBatch {
        let padded = pad(&examples.clone().map(|example| example.tokens.clone()).collect::<Vec<_>>(), PAD);
        let segments = examples
            .clone()
            .flat_map(|example| (0..padded.width).map(move |index| i32::from(index >= example.first && index < example.tokens.len())))
            .collect();
        ClassificationBatch { ids: padded.ids, segments, lengths: padded.lengths, labels: examples.map(|example| example.label).collect() }
    }

    /// Logits of the classes, or the prediction, `[B, outputs]`, and the sum of the auxiliary losses.
    fn outputs(
        &self,
        model: &Classifier,
        batch: &ClassificationBatch,
        key: Option<RandomKey>,
        probe: &mut Probe,
    ) -> (Tensor<2>, Option<Tensor<1>>) {
        let device = model.embedding.tokens.weight.device();
        let rows = batch.lengths.len();
        let shape = [rows, batch.ids.len() / rows];
        let ids = |values: &[i32]| Tensor::<2, Int>::from_data(TensorData::new(values.to_vec(), shape), &device);
        let is_pair = self.dataset.data.task.sentence_columns().len() == 2;
        let sentences = Sentences { tokens: ids(&batch.ids), segments: is_pair.then(|| ids(&batch.segments)), lengths: &batch.lengths };
        let scores = model.forward(sentences, key, probe);
        (scores.logits, scores.losses.total())
    }

    fn loss(&self, model: &Classifier, batch: &ClassificationBatch, key: Option<RandomKey>, probe: &mut Probe) -> Tensor<1> {
        let (outputs, auxiliary) = self.outputs(model, batch, key, probe);
        let device = outputs.device();
        let rows = batch.labels.len();
        let loss = match self.dataset.data.task.target() {
            Target::Classes(_) => {
                let classes: Vec<i32> = batch.labels.iter().map(|&label| class(label) as i32).collect();
                let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [rows]), &device);
                cross_entropy(outputs, classes, None, 0.0).loss
            }
            Target::Range(..) => {
                let scores: Vec<f32> = batch.labels.iter().map(|&label| score(label)).collect();
                let scores = Tensor::<1>::from_data(TensorData::new(scores, [rows]), &device);
                squared_error(outputs.reshape([rows]), scores)
            }
        };
        match auxiliary {
            Some(auxiliary) => loss + auxiliary * rows as f64,
            None => loss,
        }
    }

    /// The task's official metrics, as fractions.
    fn metrics(&self, model: &Classifier, examples: &[TokenExample]) -> Vec<(&'static str, f64)> {
        let lengths: Vec<_> = examples.iter().map(|example| (example.tokens.len(), 0)).collect();
        let (mut actual, mut predicted) = (Vec::new(), Vec::new());
        for items in sequential_batches(&lengths, self.config.data.batch_tokens) {
            let batch = self.pad(items.iter().map(|&item| &examples[item]));
            let (outputs, _) = self.outputs(model, &batch, None, &mut Probe::off());
            let width = outputs.dims()[1];
            let values: Vec<f32> = outputs.into_data().iter::<f32>().collect();
            predicted.extend(values.chunks(width).map(|row| if width == 1 { f64::from(row[0]) } else { highest(row) as f64 }));
            actual.extend(batch.labels.iter().map(|&label| match label {
                Label::Class(class) => class as f64,
                Label::Score(score) => f64::from(score),
            }));
        }
        let task = self.dataset.data.task;
        let Target::Classes(classes) = task.target() else {
            let undefined = |value: Option<f64>| value.unwrap_or(f64::NAN);
            return vec![("pearson", undefined(pearson(&actual, &predicted))), ("spearman", undefined(spearman(&actual, &predicted)))];
        };
        let as_classes = |values: &[f64]| values.iter().map(|&value| value as usize).collect::<Vec<_>>();
        let confusion = ConfusionMatrix::from_labels(classes, &as_classes(&actual), &as_classes(&predicted));
        let value = |metric: &&'static str| match *metric {
            "matthews" => confusion.matthews_correlation().value,
            "f1" => confusion.binary_scores(1).f1,
            _ => confusion.accuracy().unwrap_or(f64::NAN),
        };
        let mut metrics: Vec<_> = task.metrics().iter().map(|metric| (*metric, value(metric))).collect();
        if !task.metrics().contains(&"accuracy") {
            metrics.push(("accuracy", value(&"accuracy")));
        }
        metrics
    }
}

fn class(label: Label) -> usize {
    match label {
        Label::Class(class) => class,
        Label::Score(_) => unreachable!("the reader gives classes for a task that has them"),
    }
}

fn score(label: Label) -> f32 {
    match label {
        Label::Score(score) => score,
        Label::Class(_) => unreachable!("the reader gives scores for a task that has them"),
    }
}

/// Index of the highest value, the first of equal ones.
fn highest(values: &[f32]) -> usize {
    (1..values.len()).fold(0, |best, index| if values[index] > values[best] { index } else { best })
}

impl Objective for ClassificationTask<'_> {
    type Model = Classifier;
    type Batch = ClassificationBatch;

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let lengths: Vec<_> = self.dataset.train.iter().map(|example| (example.tokens.len(), 0)).collect();
        token_budget_batches(&lengths, self.config.data.batch_tokens, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> ClassificationBatch {
        self.pad(items.iter().map(|&item| &self.dataset.train[item]))
    }

    fn units(&self, batch: &ClassificationBatch) -> usize {
        batch.labels.len()
    }

    fn loss(&self, model: &Classifier, batch: &ClassificationBatch, key: RandomKey) -> Tensor<1> {
        ClassificationTask::loss(self, model, batch, Some(key), &mut Probe::off())
    }

    fn evaluate(&self, model: &Classifier) -> Vec<(String, f64)> {
        let (_, examples) = &self.dataset.dev[0];
        self.metrics(model, examples).into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn selection(&self) -> Selection {
        Selection::highest(self.dataset.data.task.metrics()[0])
    }

    fn locate_non_finite(&self, model: &Classifier, batch: &ClassificationBatch, key: RandomKey) -> Option<String> {
        first_non_finite_activation(|probe| {
            ClassificationTask::loss(self, model, batch, Some(key), probe);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_framed_by_class_token_and_separators() {
        assert_eq!(compose(vec![10, 11], None, 8), (vec![CLASSIFY, 10, 11, SEPARATE], false));
        assert_eq!(compose(vec![10], Some(vec![20]), 8), (vec![CLASSIFY, 10, SEPARATE, 20, SEPARATE], false));
    }

    #[test]
    fn the_longer_sentence_is_cut_first() {
        let (tokens, was_cut) = compose(vec![10, 11], Some(vec![20, 21, 22, 23]), 7);
        assert_eq!(tokens, [CLASSIFY, 10, 11, SEPARATE, 20, 21, SEPARATE]);
        assert!(was_cut);
    }
}
