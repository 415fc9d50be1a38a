//! An experiment of one's own: a task, its data and its score, compared with all options, folders and reports of the built-in experiments.
//!
//! A sequence of random letters comes twice; a model that looks back by content or by distance knows the second half. Run it with
//! `cargo run --release --example own_experiment -- --attention dot-product,gaussian`.

use std::process::ExitCode;

use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::Parser;
use heedful_attention::probe::Probe;
use heedful_attention::random::RandomKey;
use heedful_attention::read::read;
use heedful_experiments::batch::fixed_size_batches;
use heedful_experiments::comparison::{self, Attention, Comparison, Dataset, ExperimentConfig, Scores};
use heedful_experiments::error::ExperimentError;
use heedful_experiments::mechanisms::MechanismOptions;
use heedful_experiments::model::ModelSettings;
use heedful_experiments::options::{CommonOptions, RunSettings, examples, parse};
use heedful_experiments::published::PublishedNumbers;
use heedful_experiments::report::MetricColumn;
use heedful_experiments::run_folder::{RunPaths, sha256_hex};
use heedful_experiments::settings::Settings;
use heedful_experiments::train::{Interrupt, Objective, Selection, TrainingConfig};
use heedful_models::language_model::{LanguageModel, LanguageModelConfig};
use heedful_models::loss::with_auxiliary;
use rand::RngExt;
use serde::{Deserialize, Serialize};

const LETTERS: usize = 16;

/// The configuration. Every field has a default, and unknown fields are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EchoConfig {
    run: RunSettings,
    data: EchoData,
    model: ModelSettings,
    mechanisms: MechanismOptions,
    training: TrainingConfig,
}

/// Options of this experiment alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EchoData {
    /// Letters before they are repeated.
    half: usize,
    /// Sequences in a batch.
    batch: usize,
}

impl Default for EchoData {
    fn default() -> Self {
        Self { half: 12, batch: 32 }
    }
}

impl Default for EchoConfig {
    fn default() -> Self {
        Self {
            run: RunSettings { attention: vec!["dot-product".to_owned(), "gaussian".to_owned()], ..RunSettings::default() },
            data: EchoData::default(),
            model: ModelSettings::default(),
            mechanisms: MechanismOptions::default(),
            training: TrainingConfig { steps: 300, learning_rate: 3e-3, evaluate_every: 100, ..TrainingConfig::default() },
        }
    }
}

impl ExperimentConfig for EchoConfig {
    fn run(&self) -> &RunSettings {
        &self.run
    }

    fn run_mut(&mut self) -> &mut RunSettings {
        &mut self.run
    }

    fn mechanisms(&self) -> &MechanismOptions {
        &self.mechanisms
    }

    fn training(&self) -> &TrainingConfig {
        &self.training
    }

    fn model_settings(&self) -> &ModelSettings {
        &self.model
    }
}

impl EchoConfig {
    fn language_model(&self, attention: &Attention) -> LanguageModelConfig {
        self.model.language_model(LETTERS, &attention.layout.decoder, true)
    }
}

/// Training and test sequences.
struct Echoes {
    train: Vec<Vec<i32>>,
    test: Vec<Vec<i32>>,
    sha256: String,
}

impl Dataset for Echoes {
    fn name(&self) -> String {
        "echoes".to_owned()
    }

    fn sha256(&self) -> &str {
        &self.sha256
    }

    fn description(&self) -> String {
        format!("{} training and {} test sequences of {} letters", self.train.len(), self.test.len(), self.train[0].len())
    }
}

/// What the training engine asks: batches, loss and evaluation.
struct EchoTask<'a> {
    config: &'a EchoConfig,
    data: &'a Echoes,
}

impl EchoTask<'_> {
    /// Inputs `[B, N]` and the letters that follow them.
    fn tensors(&self, rows: &[Vec<i32>], device: &Device) -> (Tensor<2, Int>, Tensor<2, Int>) {
        let width = rows[0].len() - 1;
        let part = |from: usize| {
            let letters: Vec<i32> = rows.iter().flat_map(|row| &row[from..from + width]).copied().collect();
            Tensor::from_data(TensorData::new(letters, [rows.len(), width]), device)
        };
        (part(0), part(1))
    }

    /// The share of letters of the second half that the model finds.
    fn accuracy(&self, model: &LanguageModel) -> f64 {
        let device = model.embedding.tokens.weight.device();
        let (inputs, targets) = self.tensors(&self.data.test, &device);
        let found = model.forward_with(inputs, &[], None, &mut Probe::off()).logits.argmax(2).squeeze_dim::<2>(2);
        let half = self.config.data.half;
        let right = found.equal(targets).narrow(1, half, half - 1).int();
        let right: Vec<i32> = read(right).iter::<i32>().collect();
        f64::from(right.iter().sum::<i32>()) / right.len() as f64
    }
}

impl Objective for EchoTask<'_> {
    type Model = LanguageModel;
    type Batch = Vec<Vec<i32>>;

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        fixed_size_batches(self.data.train.len(), self.config.data.batch, key)
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> Self::Batch {
        items.iter().map(|&item| self.data.train[item].clone()).collect()
    }

    fn units(&self, batch: &Self::Batch) -> usize {
        batch.iter().map(|row| row.len() - 1).sum()
    }

    /// Summed over all letters, with the auxiliary losses of the mechanisms.
    fn loss(&self, model: &LanguageModel, batch: &Self::Batch, key: RandomKey) -> Tensor<1> {
        let (inputs, targets) = self.tensors(batch, &model.embedding.tokens.weight.device());
        let hidden = model.hidden(inputs, &[], Some(key), &mut Probe::off());
        let [rows, length, d_model] = hidden.states.dims();
        let states = hidden.states.reshape([rows * length, d_model]);
        let loss = model.cross_entropy(states, targets.reshape([rows * length]), None, 0.0).loss;
        with_auxiliary(loss, &hidden.losses, rows * length)
    }

    fn evaluate(&self, model: &LanguageModel) -> Vec<(String, f64)> {
        vec![("accuracy".to_owned(), self.accuracy(model))]
    }

    fn selection(&self) -> Selection {
        Selection::highest("accuracy")
    }
}

/// The experiment.
struct Echo;

impl Comparison for Echo {
    const NAME: &'static str = "echo";
    const TITLE: &'static str = "Repeating what was read";
    const DATA: &'static [&'static str] = &["data.half"];
    const BATCH: &'static str = "data.batch";
    type Config = EchoConfig;
    type Dataset = Echoes;
    type Model = LanguageModel;
    type Task<'a> = EchoTask<'a>;

    fn check(settings: &Settings<EchoConfig>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let EchoConfig { data, model, .. } = &settings.value;
        if data.half < 2 || 2 * data.half > model.max_length {
            let problem = format!("give at least 2 and at most half of model.max_length = {}", model.max_length);
            return Err(settings.refuse("data.half", problem).into());
        }
        let valid = |attention: &Attention| settings.value.language_model(attention).validate();
        attentions.iter().try_for_each(valid).map_err(ExperimentError::usage)
    }

    fn datasets(config: &EchoConfig) -> Result<Vec<Echoes>, ExperimentError> {
        let mut rng = RandomKey::from_seed(0).named("echoes").rng();
        let mut sequences = |count: usize| -> Vec<Vec<i32>> {
            let mut letters = || (0..config.data.half).map(|_| rng.random_range(0..LETTERS as i32)).collect::<Vec<_>>();
            (0..count).map(|_| letters().repeat(2)).collect()
        };
        let (train, test) = (sequences(4096), sequences(256));
        let sha256 = sha256_hex(format!("{train:?} {test:?}").as_bytes());
        Ok(vec![Echoes { train, test, sha256 }])
    }

    fn vocabulary(_data: &Echoes) -> usize {
        LETTERS
    }

    fn batch_tokens(config: &EchoConfig, _data: &Echoes) -> usize {
        config.data.batch * 2 * config.data.half
    }

    fn task<'a>(config: &'a EchoConfig, data: &'a Echoes, _attention: &Attention) -> EchoTask<'a> {
        EchoTask { config, data }
    }

    fn model(
        config: &EchoConfig,
        _data: &Echoes,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Result<LanguageModel, ExperimentError> {
        Ok(config.language_model(attention).init(key, device))
    }

    fn score(
        _config: &EchoConfig,
        data: &Echoes,
        task: &EchoTask,
        model: &LanguageModel,
        _paths: &RunPaths,
        _interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError> {
        let mut scores = Scores::default();
        scores.push("accuracy", task.accuracy(model), format!("letters of the second half, {} sequences", data.test.len()));
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        vec![MetricColumn::new("accuracy", "accuracy").percent().higher_is_better()]
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::default()
    }
}

/// Compare attention mechanisms on sequences that come twice.
#[derive(Parser)]
#[command(name = "own_experiment", after_help = examples("own_experiment"))]
struct Options {
    #[command(flatten)]
    common: CommonOptions,
}

/// Runs the experiment.
pub fn run(options: &CommonOptions) -> ExitCode {
    comparison::main::<Echo>(options, Vec::new())
}

/// Reads the command and runs the experiment.
pub fn main() -> ExitCode {
    run(&parse::<Options>().common)
}
