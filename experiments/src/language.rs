//! Language modelling: the experiment `lm`.

use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_models::language_model::{LanguageModel, LanguageModelConfig};
use heedful_models::loss::cross_entropy;
use rand::RngExt;
use serde::{Deserialize, Serialize};

use crate::batch::{EvaluationWindow, evaluation_windows};
use crate::comparison::{Attention, Comparison, Dataset, ExperimentConfig, Scores, first_non_finite_activation, folder_name, scoring_bar};
use crate::data::generate::{self, Sizes};
use crate::data::text::TextCorpus;
use crate::error::ExperimentError;
use crate::mechanisms::MechanismOptions;
use crate::metrics::{LikelihoodTotal, TextUnit};
use crate::model::ModelSettings;
use crate::options::RunSettings;
use crate::published::PublishedNumbers;
use crate::report::MetricColumn;
use crate::run_folder::RunPaths;
use crate::settings::Settings;
use crate::tokenise::{END, Tokeniser, TokeniserConfig};
use crate::train::{Interrupt, Objective, ScheduleConfig, Selection, TrainingConfig};

/// Complete configuration of `lm`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageConfig {
    /// Which runs.
    pub run: RunSettings,
    /// Which text, and in which pieces.
    pub data: LanguageData,
    /// How it is cut into tokens: `word`, `character`, `bpe` or `word-piece`.
    pub tokeniser: TokeniserConfig,
    /// The model.
    pub model: ModelSettings,
    /// Whether the output projection is the embedding's matrix.
    pub tied: bool,
    /// Options of the mechanisms.
    pub mechanisms: MechanismOptions,
    /// How it is trained.
    pub training: TrainingConfig,
}

/// The text of a language-modelling experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageData {
    /// Tokens that the model reads at once, at most `model.max_length`.
    pub context: usize,
    /// Sequences of `context` tokens in a batch.
    pub batch: usize,
    /// By how many tokens the window moves in evaluation, 1 to `context`: every token is scored once, with at least `context - stride` tokens before it.
    pub stride: usize,
    /// Training words of the built-in text.
    pub generated_words: usize,
}

impl Default for LanguageConfig {
    fn default() -> Self {
        Self {
            run: RunSettings {
                attention: [
                    "dot-product",
                    "synthesizer-dense",
                    "synthesizer-random",
                    "synthesizer-factorized-random",
                    "synthesizer-random+dot-product",
                    "gaussian",
                ]
                .map(str::to_owned)
                .to_vec(),
                ..RunSettings::default()
            },
            data: LanguageData::default(),
            tokeniser: TokeniserConfig::Word { vocabulary: None, min_frequency: 1 },
            model: ModelSettings::default(),
            tied: true,
            mechanisms: MechanismOptions::default(),
            training: TrainingConfig {
                steps: 400,
                learning_rate: 3e-3,
                schedule: ScheduleConfig::Linear { warmup: 40, end: 1e-4 },
                evaluate_every: 100,
                checkpoint_every: 100,
                log_every: 20,
                ..TrainingConfig::default()
            },
        }
    }
}

impl Default for LanguageData {
    fn default() -> Self {
        Self { context: 64, batch: 32, stride: 32, generated_words: Sizes::LANGUAGE.train }
    }
}

impl ExperimentConfig for LanguageConfig {
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

impl LanguageConfig {
    fn model(&self, vocabulary: usize, attention: &Attention) -> LanguageModelConfig {
        let ModelSettings { layers, d_model, heads, d_ff, activation, norm_order, positions, max_length, .. } = self.model;
        LanguageModelConfig {
            vocabulary,
            attention: attention.config.clone().into(),
            layers,
            d_model,
            heads,
            d_ff,
            activation,
            norm_order,
            positions,
            max_length,
            tied: self.tied,
            dropout: self.model.dropout,
            attention_dropout: self.model.attention_dropout,
            feed_forward_dropout: self.model.feed_forward_dropout,
        }
    }

    fn unit(&self) -> TextUnit {
        match self.tokeniser {
            TokeniserConfig::Word { .. } => TextUnit::Word,
            TokeniserConfig::Character {} => TextUnit::Character,
            TokeniserConfig::Bpe { .. } | TokeniserConfig::WordPiece { .. } => TextUnit::Subword,
        }
    }
}

/// A tokenised text. Each split is one sequence that begins with an end-of-line token, which is given and not scored.
#[derive(Debug)]
pub struct LanguageDataset {
    name: String,
    corpus: TextCorpus,
    tokeniser: Tokeniser,
    train: Vec<u32>,
    valid: Vec<u32>,
    test: Vec<u32>,
}

impl Dataset for LanguageDataset {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn sha256(&self) -> &str {
        &self.corpus.sha256
    }

    fn description(&self) -> String {
        format!(
            "{} training, {} validation and {} test tokens, ends of lines included; {} types; splits: {}",
            self.train.len() - 1,
            self.valid.len() - 1,
            self.test.len() - 1,
            self.tokeniser.vocabulary_size(),
            self.corpus.split
        )
    }

    fn save(&self, folder: &Path) -> Result<(), ExperimentError> {
        self.tokeniser.save(&folder.join("tokenizer.json")).map_err(ExperimentError::failure)
    }
}

/// The comparison of attentions on language modelling.
#[derive(Debug)]
pub struct Language;

impl Comparison for Language {
    const NAME: &'static str = "lm";
    const TITLE: &'static str = "Language modelling";
    type Config = LanguageConfig;
    type Dataset = LanguageDataset;
    type Model = LanguageModel;
    type Task<'a> = LanguageTask<'a>;

    fn check(settings: &Settings<LanguageConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let LanguageConfig { data, model, .. } = &settings.value;
        if data.batch == 0 {
            return Err(settings.refuse("data.batch", "at least one sequence is needed").into());
        }
        if data.generated_words == 0 {
            return Err(settings.refuse("data.generated_words", "at least one word is needed").into());
        }
        if data.context == 0 || data.context > model.max_length {
            let problem = format!(
                "{} tokens are not between 1 and model.max_length = {}, the maximal length of every attention here; \
                 give a smaller context or --set model.max_length={}",
                data.context, model.max_length, data.context
            );
            return Err(settings.refuse("data.context", problem).into());
        }
        if data.stride == 0 || data.stride > data.context {
            let problem = format!("{} is not between 1 and data.context = {}", data.stride, data.context);
            return Err(settings.refuse("data.stride", problem).into());
        }
        for attention in attentions {
            settings.value.model(1, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn datasets(config: &LanguageConfig) -> Result<Vec<LanguageDataset>, ExperimentError> {
        let (name, corpus) = match &config.run.data {
            Some(dir) => (folder_name(dir), TextCorpus::read(dir).map_err(ExperimentError::failure)?),
            None => {
                let sizes = Sizes { train: config.data.generated_words, ..Sizes::LANGUAGE };
                ("built-in".to_owned(), generate::language(&RandomKey::from_seed(0).named("language data"), sizes))
            }
        };
        let lines = corpus.train.iter().map(String::as_str);
        let tokeniser = Tokeniser::train(&config.tokeniser, lines).map_err(ExperimentError::usage)?;
        let encode = |lines: &[String]| {
            let tokens = lines.iter().flat_map(|line| tokeniser.encode(line).into_iter().chain([END]));
            std::iter::once(END).chain(tokens).collect::<Vec<_>>()
        };
        let (train, valid, test) = (encode(&corpus.train), encode(&corpus.valid), encode(&corpus.test));
        if train.len() <= config.data.context + 1 {
            return Err(ExperimentError::usage(format!(
                "data.context = {}: the training text has only {} tokens; give --set data.context=N with a smaller N",
                config.data.context,
                train.len()
            )));
        }
        Ok(vec![LanguageDataset { name, corpus, tokeniser, train, valid, test }])
    }

    fn task<'a>(config: &'a LanguageConfig, dataset: &'a LanguageDataset) -> LanguageTask<'a> {
        LanguageTask { config, dataset }
    }

    fn model(config: &LanguageConfig, dataset: &LanguageDataset, attention: &Attention, key: &RandomKey, device: &Device) -> LanguageModel {
        config.model(dataset.tokeniser.vocabulary_size(), attention).init(key, device)
    }

    fn score(
        task: &LanguageTask,
        model: &LanguageModel,
        _paths: &RunPaths,
        interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let mut scores = Scores::default();
        for (split, tokens) in [("test", &task.dataset.test), ("valid", &task.dataset.valid)] {
            let Some(total) = task.likelihood(model, tokens, Some(interrupt)) else { return Ok(None) };
            let LanguageData { context, stride, .. } = task.config.data;
            let signature =
                format!("unit:{}|context:{context}|stride:{stride}|memory:0|ends of lines:scored|units:{}", total.unit, total.units);
            if split == "test" {
                scores.push("perplexity", total.perplexity().unwrap_or(f64::NAN), signature.clone());
                scores.push("bits per unit", total.bits_per_unit().unwrap_or(f64::NAN), signature);
                continue;
            }
            scores.push("valid perplexity", total.perplexity().unwrap_or(f64::NAN), signature);
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        vec![
            MetricColumn::new("perplexity", "test ppl").lower_is_better(),
            MetricColumn::new("bits per unit", "test bits").digits(3).lower_is_better(),
            MetricColumn::new("valid perplexity", "valid ppl").lower_is_better(),
        ]
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::language_modelling()
    }
}

/// Training a language model on a text.
#[derive(Debug)]
pub struct LanguageTask<'a> {
    config: &'a LanguageConfig,
    dataset: &'a LanguageDataset,
}

/// Inputs and the tokens that follow them, row by row.
#[derive(Debug)]
pub struct LanguageBatch {
    inputs: Vec<i32>,
    targets: Vec<i32>,
    rows: usize,
}

impl LanguageTask<'_> {
    /// Negative log-likelihood of all targets, with the auxiliary losses if a key for training is given.
    fn loss(&self, model: &LanguageModel, batch: &LanguageBatch, key: Option<RandomKey>, probe: &mut Probe) -> Tensor<1> {
        let device = model.embedding.tokens.weight.device();
        let width = batch.inputs.len() / batch.rows;
        let inputs = Tensor::<2, Int>::from_data(TensorData::new(batch.inputs.clone(), [batch.rows, width]), &device);
        let targets = Tensor::<1, Int>::from_data(TensorData::new(batch.targets.clone(), [batch.targets.len()]), &device);
        let scores = model.forward(inputs, &[], key, probe);
        let [rows, length, vocabulary] = scores.logits.dims();
        let loss = cross_entropy(scores.logits.reshape([rows * length, vocabulary]), targets, None, 0.0).loss;
        match scores.losses.total() {
            // An auxiliary loss is per token, as the main loss is after division by the number of tokens.
            Some(auxiliary) if key.is_some() => loss + auxiliary * batch.targets.len() as f64,
            _ => loss,
        }
    }

    /// Scores each token once; `None` if the interrupt was raised meanwhile.
    fn likelihood(&self, model: &LanguageModel, tokens: &[u32], interrupt: Option<&Interrupt>) -> Option<LikelihoodTotal> {
        let LanguageData { context, stride, batch, .. } = self.config.data;
        let device = model.embedding.tokens.weight.device();
        let windows = evaluation_windows(tokens.len(), context, stride);
        let bar = scoring_bar("scoring", windows.len());
        let mut total = LikelihoodTotal::new(self.config.unit());
        for windows in windows.chunks(batch) {
            if interrupt.is_some_and(Interrupt::is_raised) {
                return None;
            }
            let width = windows[0].end - windows[0].start;
            let inputs: Vec<i32> = windows.iter().flat_map(|window| window.inputs(tokens)).map(|&id| id as i32).collect();
            let inputs = Tensor::<2, Int>::from_data(TensorData::new(inputs, [windows.len(), width]), &device);
            let hidden = model.hidden(inputs, &[], None, &mut Probe::off()).states;
            // Only what is scored is projected to the vocabulary.
            let scored = |window: &EvaluationWindow| window.unscored()..width;
            let indices: Vec<i32> = windows
                .iter()
                .enumerate()
                .flat_map(|(row, window)| scored(window).map(move |column| (row * width + column) as i32))
                .collect();
            let targets: Vec<i32> =
                windows.iter().flat_map(|window| &window.targets(tokens)[scored(window)]).map(|&id| id as i32).collect();
            let count = targets.len();
            let [_, _, d_model] = hidden.dims();
            let hidden = hidden
                .reshape([windows.len() * width, d_model])
                .select(0, Tensor::<1, Int>::from_data(TensorData::new(indices, [count]), &device));
            let targets = Tensor::<1, Int>::from_data(TensorData::new(targets, [count]), &device);
            let nll = cross_entropy(model.project(hidden), targets, None, 0.0).negative_log_likelihood;
            total.record(f64::from(nll.into_scalar::<f32>()), count as u64);
            bar.inc(windows.len() as u64);
        }
        bar.finish_and_clear();
        Some(total)
    }
}

impl Objective for LanguageTask<'_> {
    type Model = LanguageModel;
    type Batch = LanguageBatch;

    /// Items are the first positions of windows. They lie end to end, from an offset that changes with the epoch, so that windows do not repeat.
    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let LanguageData { context, batch, .. } = self.config.data;
        let targets = self.dataset.train.len() - 1;
        let offset = key.rng().random_range(0..=(targets - context).min(context - 1));
        let count = (targets - offset) / context;
        let batches = crate::batch::fixed_size_batches(count, batch, key);
        batches.into_iter().map(|items| items.into_iter().map(|item| offset + item * context).collect()).collect()
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> LanguageBatch {
        let context = self.config.data.context;
        let cut = |shift: usize| {
            let tokens = items.iter().flat_map(|&start| &self.dataset.train[start + shift..start + shift + context]);
            tokens.map(|&id| id as i32).collect()
        };
        LanguageBatch { inputs: cut(0), targets: cut(1), rows: items.len() }
    }

    fn units(&self, batch: &LanguageBatch) -> usize {
        batch.targets.len()
    }

    fn loss(&self, model: &LanguageModel, batch: &LanguageBatch, key: RandomKey) -> Tensor<1> {
        LanguageTask::loss(self, model, batch, Some(key), &mut Probe::off())
    }

    fn evaluate(&self, model: &LanguageModel) -> Vec<(String, f64)> {
        let total = self.likelihood(model, &self.dataset.valid, None).expect("it is not interrupted");
        vec![("perplexity".to_owned(), total.perplexity().unwrap_or(f64::NAN))]
    }

    fn selection(&self) -> Selection {
        Selection::lowest("perplexity")
    }

    fn locate_non_finite(&self, model: &LanguageModel, batch: &LanguageBatch, key: RandomKey) -> Option<String> {
        first_non_finite_activation(|probe| {
            LanguageTask::loss(self, model, batch, Some(key), probe);
        })
    }
}
