//! The shape that all experiments share: train several attentions, or whole models, over several seeds on one task after another, score them, and compare.
//!
//! An experiment says what its data sets, models and scores are ([`Comparison`]); [`main`] reads the options, lays out the run folder, trains each
//! pair of attention and seed with the one training engine, records every finished run and renders the report. A stopped command continues
//! with `--resume`: it reads finished runs from their `result.json` and resumes the others from their checkpoints. Several commands may share a folder: each
//! skips the runs that another process works on.

mod contender;
mod identity;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use burn::module::Module;
use burn::tensor::Device;
use heedful_attention::placement::Role;
use heedful_attention::probe::{Observation, Probe};
use heedful_attention::random::RandomKey;
use heedful_attention::registry::AnyMechanism;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::allocator::{keep_freed_memory, return_freed_memory};
use crate::backend::{Backend, guarded};
use crate::error::{Completion, ExperimentError, main_with, print_line};
use crate::footprint;
use crate::mechanisms::{self, MechanismOptions};
use crate::model::ModelSettings;
use crate::options::{CommonOptions, RunSettings, progress};
use crate::provenance::Provenance;
use crate::published::PublishedNumbers;
pub use crate::record::STEPS_PER_SECOND;
use crate::record::{Budget, Machine, ResultRecord, command_line, peak_memory_bytes, reset_peak_memory};
use crate::report::{MetricColumn, Report, Section};
use crate::results::{Results, write_result};
use crate::run_folder::{RunFolder, RunPaths, sha256_hex};
use crate::run_lock::{Holder, RunLock};
use crate::settings::{Assignment, Settings};
use crate::threads::among_workers;
use crate::tokenise::Tokeniser;
use crate::train::{
    CheckpointFolder, Interrupt, Objective, Outcome, ParameterCount, Trainer, TrainingConfig, TrainingError, Watcher, load_model,
};

pub use self::contender::{Attention, Contender, NamedModel, model_assignments};
use self::contender::{check_effects, contenders, twins, with_earlier};
use self::identity::{check_folder, other_data, recipe};

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
    type Config: ExperimentConfig;
    /// A data set.
    type Dataset: Dataset;
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
    // Data that cannot be read must not leave a run folder behind.
    let datasets = C::datasets(&settings.value)?;
    for Contender { attention, config } in &contenders {
        for dataset in &datasets {
            footprint::check::<C>(&settings, config, attention, Some(dataset))?;
            C::fits(config, dataset, attention)?;
        }
    }
    let config = settings.value;
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
    };
    guarded(backend, || session.run(&datasets, &contenders))
}

fn watcher(quiet: bool) -> Watcher {
    if quiet { Watcher::Nobody } else { Watcher::Bars(progress().clone()) }
}

/// One command in progress.
struct Session<'a, C: Comparison> {
    config: &'a C::Config,
    /// Sentences on contenders that are the same model.
    twins: Vec<String>,
    folder: RunFolder,
    backend: Backend,
    device: Device,
    interrupt: Interrupt,
    watcher: Watcher,
}

/// How one run of a session ended.
enum RunEnd {
    Finished,
    FinishedBefore,
    Held(Holder),
    Interrupted,
}

impl<C: Comparison> Session<'_, C> {
    fn run(self, datasets: &[C::Dataset], contenders: &[Contender<C::Config>]) -> Result<Completion, ExperimentError> {
        let mut finished_before = 0;
        let mut held = Vec::new();
        for dataset in datasets {
            tracing::info!("{}: {}", dataset.name(), dataset.description());
            // Several data sets have the same runs, so each has a folder of its own.
            let folder = if datasets.len() == 1 { self.folder.clone() } else { self.folder.part(&dataset.name())? };
            if let Some(tokeniser) = dataset.tokeniser() {
                tokeniser.save(&folder.root().join("tokenizer.json")).map_err(ExperimentError::failure)?;
            }
            for seed in self.config.run().seeds() {
                for contender in contenders {
                    match self.one_run(dataset, contender, seed, &folder)? {
                        RunEnd::Finished => drop(self.derive(datasets)?),
                        RunEnd::FinishedBefore => finished_before += 1,
                        RunEnd::Held(_) => held.push((dataset, contender, seed, folder.clone())),
                        RunEnd::Interrupted => return Ok(Completion::Interrupted),
                    }
                }
            }
        }
        // Meanwhile others have finished what was left to them, or were stopped.
        let mut left = Vec::new();
        for (dataset, contender, seed, folder) in held {
            match self.one_run(dataset, contender, seed, &folder)? {
                RunEnd::Finished => drop(self.derive(datasets)?),
                RunEnd::FinishedBefore => {}
                RunEnd::Held(holder) => left.push(format!("{}, seed {seed}: {holder}", contender.attention.name)),
                RunEnd::Interrupted => return Ok(Completion::Interrupted),
            }
        }
        if finished_before > 0 {
            let out = self.folder.root().display();
            tracing::warn!(
                "{finished_before} runs in {out} were finished by an earlier command and not repeated; give another --out to repeat them"
            );
        }
        let results = self.derive(datasets)?;
        print_line(self.report(&results, datasets).terminal())?;
        self.twins.iter().try_for_each(print_line)?;
        print_line(format!("Report: {}", self.folder.report().display()))?;
        match left.first() {
            // Who relies on the command's end must not take the results for complete.
            Some(first) => Err(ExperimentError::failure(format!(
                "{} of the runs were left to other commands, the first being {first}; when they have ended, go on with --resume",
                left.len()
            ))),
            None => Ok(Completion::Finished),
        }
    }

    /// Brings `results.json` and the report up to date, also with the runs that other commands have finished.
    fn derive(&self, datasets: &[C::Dataset]) -> Result<Results, ExperimentError> {
        Results::derive(&self.folder, |results| Ok(self.report(results, datasets).write(&self.folder.report())?))
    }

    fn report<'r>(&self, results: &'r Results, datasets: &[C::Dataset]) -> Report<'r> {
        let descriptions: Vec<_> = datasets.iter().map(|dataset| format!("* {}: {}", dataset.name(), dataset.description())).collect();
        let same = (!self.twins.is_empty()).then(|| Section { title: "The same model twice".to_owned(), body: self.twins.join("\n") });
        let has_models = !self.config.run().models.is_empty() || results.records().iter().any(|record| record.is_model);
        Report {
            title: C::TITLE.to_owned(),
            subject: if has_models { "model" } else { "attention" },
            records: results.records(),
            metrics: C::columns(),
            published: C::published(),
            sections: std::iter::once(Section { title: "Data".to_owned(), body: descriptions.join("\n") }).chain(same).collect(),
        }
    }

    fn one_run(
        &self,
        dataset: &C::Dataset,
        Contender { attention, config }: &Contender<C::Config>,
        seed: u64,
        folder: &RunFolder,
    ) -> Result<RunEnd, ExperimentError> {
        let recipe = recipe::<C>(&self.folder, self.config, config, dataset)?;
        let config = &C::of_seed(config, seed);
        let training = config.training();
        let mut record = ResultRecord {
            experiment: C::NAME.to_owned(),
            dataset: dataset.name(),
            attention: attention.name.clone(),
            backend: self.backend.name().to_owned(),
            seed,
            command: command_line(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data_sha256: dataset.sha256().to_owned(),
            machine: Machine::here(),
            budget: Budget { steps: Some(training.steps), minutes: training.minutes },
            provenance: Some(Provenance::here()),
            is_model: self.config.run().models.iter().any(|model| model.name == attention.name),
            ..Default::default()
        };
        let is_finished = || Ok::<_, ExperimentError>(Results::read(&self.folder)?.finished(&record.key(), &recipe)?.is_some());
        if is_finished()? {
            return Ok(RunEnd::FinishedBefore);
        }
        let paths = folder.run(&attention.name, seed)?;
        let _lock = match RunLock::take(paths.root())? {
            Ok(lock) => lock,
            Err(holder) => return Ok(RunEnd::Held(holder)),
        };
        // Another command may have finished it just before.
        if is_finished()? {
            return Ok(RunEnd::FinishedBefore);
        }
        return_freed_memory();
        reset_peak_memory();
        let key = RandomKey::from_seed(seed);
        let task = C::task(config, dataset, attention);
        let model = C::model(config, dataset, attention, &key.named("init"), &self.device.clone().autodiff())?;
        let parameters = ParameterCount::of(&model);
        let identity = sha256_hex(format!("{recipe} {} {seed} {}", attention.name, self.backend).as_bytes());
        let outcome = Trainer::new(&task, training, paths.root(), &identity, key)
            .resume(true)
            .watcher(self.watcher.clone())
            .interrupt(self.interrupt.clone())
            .run(model);
        record.configuration = recipe;
        record.parameters = parameters.trainable as u64;
        record.parameters_by_part = parameters.parts.iter().map(|(part, count)| (part.clone(), *count as u64)).collect();
        let scores = match (outcome, C::diverged(config)) {
            (Ok(Outcome::Interrupted { .. }), _) => return Ok(RunEnd::Interrupted),
            (Ok(Outcome::Finished(trained)), _) => {
                record.steps = trained.steps;
                record.tokens_per_second = Some(trained.tokens_per_second);
                record.wall_seconds = trained.wall_seconds;
                record.score(STEPS_PER_SECOND, trained.steps as f64 / trained.training_seconds.max(f64::MIN_POSITIVE));
                C::score(config, dataset, &task, &trained.model, &paths, &self.interrupt)?
            }
            (Err(TrainingError::NonFinite { step, .. }), Some(scores)) => {
                record.steps = step;
                Some(scores)
            }
            (Err(error), _) if error.is_usage() => return Err(ExperimentError::usage(error)),
            (Err(error), _) => return Err(ExperimentError::failure(error)),
        };
        let Some(scores) = scores else { return Ok(RunEnd::Interrupted) };
        record.peak_memory_bytes = peak_memory_bytes();
        record.signatures = scores.signatures;
        record.notes = scores.notes;
        for (name, value) in scores.metrics {
            record.score(&name, value);
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        record.finished_ms = Some(now.as_millis() as u64);
        write_result(&paths, &record)?;
        Ok(RunEnd::Finished)
    }
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
