//! The shape that all experiments share: train several attentions, or whole models, over several seeds on one task after another, score them, and compare.
//!
//! An experiment says what its data sets, models and scores are ([`Comparison`]); [`main`] reads the options, lays out the run folder, trains each
//! pair of attention and seed with the one training engine, records every finished run and renders the report. A stopped command continues
//! with `--resume`: it reads finished runs from their `result.json` and resumes the others from their checkpoints. Several commands may share a folder: each
//! skips the runs that another process works on.

mod contender;
mod identity;
mod plan;
mod session;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;

use burn::module::Module;
use burn::tensor::Device;
use heedful_attention::placement::Role;
use heedful_attention::probe::{Observation, Probe};
use heedful_attention::random::RandomKey;
use heedful_attention::registry::AnyMechanism;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::allocator::keep_freed_memory;
use crate::backend::{Backend, guarded};
use crate::error::{Completion, ExperimentError, main_with, print_line};
use crate::footprint;
use crate::mechanisms::{self, MechanismOptions};
use crate::model::ModelSettings;
use crate::options::{CommonOptions, RunSettings, progress};
use crate::published::PublishedNumbers;
use crate::record::ResultRecord;
pub use crate::record::STEPS_PER_SECOND;
use crate::report::MetricColumn;
use crate::results::Results;
use crate::run_folder::{RunFolder, RunPaths};
use crate::settings::{self, Assignment, Settings};
use crate::threads::among_workers;
use crate::tokenise::Tokeniser;
use crate::train::{CheckpointFolder, Interrupt, Objective, TrainingConfig, Watcher, load_model};

pub use self::contender::{Attention, Contender, NamedModel, model_assignments};
use self::contender::{check_effects, contenders, twins, with_earlier};
use self::identity::{check_folder, other_data};
use self::plan::Plan;
use self::session::Session;

/// What every experiment's configuration holds.
pub trait ExperimentConfig: Clone + Default + Serialize + DeserializeOwned {
    /// Which runs.
    fn run(&self) -> &RunSettings;
    /// The same, to be completed.
    fn run_mut(&mut self) -> &mut RunSettings;
    /// Options of the mechanisms.
    fn mechanisms(&self) -> &MechanismOptions;
    /// How models are trained.
    fn training(&self) -> &TrainingConfig;
    /// Sizes of the model.
    fn model_settings(&self) -> &ModelSettings;
}

/// [`ExperimentConfig`] for a configuration with the fields `run`, `mechanisms`, `training` and `model`.
macro_rules! experiment_config {
    ($config:ty) => {
        impl $crate::comparison::ExperimentConfig for $config {
            fn run(&self) -> &$crate::options::RunSettings {
                &self.run
            }

            fn run_mut(&mut self) -> &mut $crate::options::RunSettings {
                &mut self.run
            }

            fn mechanisms(&self) -> &$crate::mechanisms::MechanismOptions {
                &self.mechanisms
            }

            fn training(&self) -> &$crate::train::TrainingConfig {
                &self.training
            }

            fn model_settings(&self) -> &$crate::model::ModelSettings {
                &self.model
            }
        }
    };
}
pub(crate) use experiment_config;

/// Scores of a trained model.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// Value by name; not finite where undefined.
    pub metrics: Vec<(String, f64)>,
    /// How each score is computed, by its name.
    pub signatures: BTreeMap<String, String>,
    /// What a reader of the scores must know.
    pub notes: Vec<String>,
}

impl Scores {
    /// Adds a score and how it is computed.
    pub fn push(&mut self, name: &str, value: f64, signature: String) {
        self.metrics.push((name.to_owned(), value));
        self.signatures.insert(name.to_owned(), signature);
    }
}

/// A tokenised data set.
pub trait Dataset {
    /// Name, unique in the experiment.
    fn name(&self) -> String;
    /// SHA-256 of the data.
    fn sha256(&self) -> &str;
    /// Sizes and what was left out, in one sentence.
    fn description(&self) -> String;
    /// What cut it into tokens, if it is a text; it is stored beside the runs.
    fn tokeniser(&self) -> Option<&Tokeniser> {
        None
    }
}

/// A comparison of attentions on the data sets of one experiment.
pub trait Comparison {
    /// Name of the binary, of the experiment in results, and of the default output folder.
    const NAME: &'static str;
    /// Title of the report.
    const TITLE: &'static str;
    /// Whole models that `--model` takes.
    const MODELS: &'static [NamedModel] = &[];
    /// Fields of the configuration, by their dotted paths, that say what the data sets are. All that are compared share them.
    const DATA: &'static [&'static str];
    /// Stacks of layers with the attention under comparison.
    const STACKS: usize = 1;
    /// The field of the configuration that says how large a training batch is.
    const BATCH: &'static str;
    /// The whole configuration.
    type Config: ExperimentConfig + Sync;
    /// A data set.
    type Dataset: Dataset + Sync;
    /// What is trained.
    type Model: Module;
    /// Training it.
    type Task<'a>: Objective<Model = Self::Model>;

    /// Checks what can be checked without data.
    ///
    /// # Errors
    /// A usage error that names the field and the remedy.
    fn check(settings: &Settings<Self::Config>, attentions: &[Attention]) -> Result<(), ExperimentError>;

    /// Reads or generates the data sets and trains the tokenisers.
    ///
    /// # Errors
    /// Data that is missing or malformed, or does not fit the configuration.
    fn datasets(config: &Self::Config) -> Result<Vec<Self::Dataset>, ExperimentError>;

    /// Checks whether a data set suffices for a configuration and an attention.
    ///
    /// # Errors
    /// A usage error that names the field and the remedy.
    fn fits(_config: &Self::Config, _dataset: &Self::Dataset, _attention: &Attention) -> Result<(), ExperimentError> {
        Ok(())
    }

    /// The mechanisms that an attention places in a model, in an order that says where; the same for two attentions makes the same model of a configuration.
    fn attentions(attention: &Attention) -> Vec<(Role, AnyMechanism)> {
        if Self::STACKS > 1 {
            return attention.layout.mechanisms();
        }
        attention.layout.decoder.mechanisms().iter().map(|mechanism| (Role::Decoder, mechanism.clone())).collect()
    }

    /// Sizes that a model has no less than, for an estimate of its memory.
    fn sizes(config: &Self::Config) -> ModelSettings {
        config.model_settings().clone()
    }

    /// Tokens that a model of a data set has vectors for.
    fn vocabulary(dataset: &Self::Dataset) -> usize {
        dataset.tokeniser().map_or(1, Tokeniser::vocabulary_size)
    }

    /// Tokens that the largest training batch has at least.
    fn batch_tokens(config: &Self::Config, dataset: &Self::Dataset) -> usize;

    /// The task of training on a data set.
    fn task<'a>(config: &'a Self::Config, dataset: &'a Self::Dataset, attention: &Attention) -> Self::Task<'a>;

    /// A model with initial weights from `key`.
    ///
    /// # Errors
    /// Weights to go on from that cannot be read.
    fn model(
        config: &Self::Config,
        dataset: &Self::Dataset,
        attention: &Attention,
        key: &RandomKey,
        device: &Device,
    ) -> Result<Self::Model, ExperimentError>;

    /// The configuration that the runs of a seed have, where seeds differ in more than what is drawn while a model learns.
    fn of_seed(config: &Self::Config, _seed: u64) -> Self::Config {
        config.clone()
    }

    /// Scores of a run whose loss or weights ceased to be numbers, where that is a result; by default it is an error.
    fn diverged(_config: &Self::Config) -> Option<Scores> {
        None
    }

    /// Scores a trained model; what it generates goes into the run's folder. `None` if the interrupt was raised meanwhile.
    ///
    /// # Errors
    /// If a file cannot be written.
    fn score(
        config: &Self::Config,
        dataset: &Self::Dataset,
        task: &Self::Task<'_>,
        model: &Self::Model,
        paths: &RunPaths,
        interrupt: &Interrupt,
    ) -> Result<Option<Scores>, ExperimentError>;

    /// The scores that the table shows.
    fn columns() -> Vec<MetricColumn>;

    /// Numbers that papers report for such tasks.
    fn published() -> PublishedNumbers;
}

/// Body of an experiment's `main`. `further` are assignments of options that only this experiment has.
pub fn main<C: Comparison>(options: &CommonOptions, further: Vec<Assignment>) -> ExitCode {
    keep_freed_memory();
    main_with(|| among_workers(|| run::<C>(options, further)))
}

fn run<C: Comparison>(options: &CommonOptions, further: Vec<Assignment>) -> Result<Completion, ExperimentError> {
    options.start_logging()?;
    if options.completions.is_some() {
        return Err(ExperimentError::usage(
            "this program cannot print --completions: it reads its options otherwise than by `options::parse`",
        ));
    }
    if options.list {
        print_line(mechanisms::list())?;
        let layouts = contender::layouts::<C>();
        if !layouts.is_empty() {
            print_line(format!("Layouts of several mechanisms: {}", layouts.join(", ")))?;
        }
        if !C::MODELS.is_empty() {
            let rows = C::MODELS.iter().map(|model| [model.name, model.attention, model.description].map(str::to_owned).to_vec());
            print_line(format!("\n{}", mechanisms::columns(80, &["model", "attention", "what it is"], rows.collect())))?;
        }
        return Ok(Completion::Finished);
    }
    let mut assignments = options.assignments()?;
    assignments.extend(further);
    let mut settings = Settings::<C::Config>::read(options.config.as_deref(), assignments)?;
    let contenders = contenders::<C>(&mut settings)?;
    check_effects::<C>(&settings, &contenders)?;
    let backend: Backend = settings.value.run().backend.parse().map_err(ExperimentError::usage)?;
    let device = backend.device().map_err(ExperimentError::usage)?;
    for contender in &contenders {
        let precision = contender.config.training().precision;
        if !precision.is_supported(&device) {
            let problem = format!("the backend {backend} does not compute with numbers of this type; give f32, or another --backend");
            return Err(settings.refuse("training.precision", problem).into());
        }
    }
    if options.print_config {
        print_line(settings::complete_text(&settings.value)?.trim_end())?;
        return Ok(Completion::Finished);
    }
    // Data that cannot be read must not leave a run folder behind.
    let datasets = C::datasets(&settings.value)?;
    for Contender { attention, config } in &contenders {
        for dataset in &datasets {
            footprint::check::<C>(&settings, config, attention, Some(dataset))?;
            C::fits(config, dataset, attention)?;
        }
    }
    let jobs = footprint::jobs::<C>(options.jobs.unwrap_or_default(), &contenders, &datasets, backend)?;
    let config = settings.value;
    if options.dry_run {
        let plan = Plan::<C> { contenders: &contenders, datasets: &datasets, backend, device, jobs, shard: options.shard };
        plan.show(&options.output(C::NAME))?;
        return Ok(Completion::Finished);
    }
    let folder = RunFolder::open(&options.output(C::NAME), &config, options.resume)?;
    check_folder::<C>(&folder, &config, &datasets)?;
    folder.choose_runs(&config)?;
    let twins = twins::<C>(&with_earlier::<C>(&contenders, &Results::read(&folder)?, &config))?;
    twins.iter().for_each(|sentence| tracing::warn!("{sentence}"));
    let session = Session::<C> {
        watcher: watcher(options.quiet),
        interrupt: Interrupt::on_signal().map_err(ExperimentError::failure)?,
        config: &config,
        twins,
        folder,
        backend,
        device,
        jobs,
        shard: options.shard,
        deriving: Mutex::new(()),
    };
    guarded(backend, || session.run(&datasets, &contenders))
}

fn watcher(quiet: bool) -> Watcher {
    if quiet { Watcher::Nobody } else { Watcher::Bars(progress().clone()) }
}

/// A trained model of a finished command, with all that it was trained with.
pub struct Reloaded<C: Comparison> {
    /// Its configuration.
    pub config: C::Config,
    /// Its data set.
    pub dataset: C::Dataset,
    /// Its attention or model.
    pub attention: Attention,
    /// Its seed.
    pub seed: u64,
    /// The model with the weights that it began with.
    pub initial: C::Model,
    /// The model with the weights of its best checkpoint.
    pub trained: C::Model,
}

/// Reads the trained model of a run folder: of an attention, a seed and a data set, by default the first of the folder.
///
/// # Errors
/// A folder of another experiment, a run that it does not have, or files that cannot be read.
pub fn reload<C: Comparison>(
    folder: &Path,
    (name, seed, dataset): (Option<&str>, Option<u64>, Option<&str>),
    device: &Device,
) -> Result<Reloaded<C>, ExperimentError> {
    let paths = RunFolder::at(folder);
    let mut settings = Settings::<C::Config>::read(Some(&paths.config()), Vec::new())?;
    let contenders = contenders::<C>(&mut settings)?;
    let known: Vec<&str> = contenders.iter().map(|contender| contender.attention.name.as_str()).collect();
    let index = match name {
        None => 0,
        Some(name) => known
            .iter()
            .position(|known| *known == name)
            .ok_or_else(|| ExperimentError::usage(format!("`{}` has no run of `{name}`; it has {}", folder.display(), known.join(", "))))?,
    };
    let Contender { attention, config } = contenders.into_iter().nth(index).expect("there is at least one");
    let mut datasets = C::datasets(&config)?;
    let names: Vec<String> = datasets.iter().map(Dataset::name).collect();
    let index = match dataset {
        None => 0,
        Some(dataset) => names.iter().position(|name| name == dataset).ok_or_else(|| {
            ExperimentError::usage(format!("`{}` has no data set `{dataset}`; it has {}", folder.display(), names.join(", ")))
        })?,
    };
    let dataset = datasets.swap_remove(index);
    C::fits(&config, &dataset, &attention)?;
    let seed = seed.unwrap_or(config.run().seed);
    let run = paths.existing_run(&dataset.name(), &attention.name, seed).ok_or_else(|| {
        ExperimentError::usage(format!("`{}` has no run of {} with seed {seed}; give another --seed", folder.display(), attention.name))
    })?;
    let results = Results::read(&paths)?;
    let is_of_run = |record: &&ResultRecord| record.dataset == dataset.name() && record.attention == attention.name && record.seed == seed;
    if let Some(record) = results.records().iter().find(is_of_run)
        && record.data_sha256 != dataset.sha256()
    {
        let problem = other_data(&record.dataset, &record.data_sha256, dataset.sha256());
        return Err(ExperimentError::usage(format!("`{}` {problem}; restore them, or train again", folder.display())));
    }
    let checkpoint = CheckpointFolder::of_any_configuration(run.root()).best().map_err(ExperimentError::failure)?;
    let checkpoint = checkpoint
        .ok_or_else(|| ExperimentError::usage(format!("`{}` has no checkpoint; run the command to its end", run.root().display())))?;
    let config = C::of_seed(&config, seed);
    let initial = C::model(&config, &dataset, &attention, &RandomKey::from_seed(seed).named("init"), device)?;
    let trained = load_model(initial.clone(), &checkpoint).map_err(ExperimentError::failure)?;
    Ok(Reloaded { config, dataset, attention, seed, initial, trained })
}

/// Name of a data folder, for tables.
pub(crate) fn folder_name(dir: &Path) -> String {
    let absolute = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    match (absolute.parent().and_then(name), name(&absolute)) {
        // These say how the text was prepared, not which it is.
        (Some(parent), Some(own)) if ["raw", "tok", "data"].contains(&own.as_str()) => format!("{parent}/{own}"),
        (_, Some(own)) => own,
        (_, None) => "data".to_owned(),
    }
}

/// A bar for work after training; nothing if standard error is no terminal.
pub(crate) fn scoring_bar(label: &'static str, total: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len}  ETA {eta}").expect("the template is constant");
    progress().add(ProgressBar::new(total as u64)).with_style(style).with_prefix(label)
}

/// Path of the first block whose output has an element that is not finite.
pub(crate) fn first_non_finite_activation(forward: impl FnOnce(&mut Probe)) -> Option<String> {
    let mut found = None;
    let mut listener = |path: &str, observation: Observation| {
        if let (None, Observation::Activation(x)) = (&found, observation)
            && !x.is_finite().all().into_scalar::<bool>()
        {
            found = Some(path.to_owned());
        }
    };
    forward(&mut Probe::listening(&mut listener));
    found
}
