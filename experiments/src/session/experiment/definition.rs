//! The definition of an experiment.

use std::fmt::Debug;
use std::path::Path;

use burn::module::Module;
use burn::tensor::Device;
use heedful_data::tokenise::Tokeniser;
use heedful_host::interrupt::Interrupt;
use heedful_metrics::MetricColumn;
use heedful_models::prelude::*;
use heedful_models::pretrained::presets::Preset;
use heedful_runs::published::PublishedNumbers;
use heedful_runs::run_folder::RunPaths;
use heedful_runs::settings::Settings;
use heedful_runs::trivial::TrivialBaseline;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::command_option::CommandOption;
pub(crate) use super::config::Config;
use super::lengths::TrainingLengths;
use super::rule::Rule;
use crate::model::ModelSettings;
use crate::model::attention::Attention;
use crate::session::error::{Completion, ExperimentError, Interruptible};
use crate::session::experiment::paper_model::PaperModel;
use crate::session::experiment::seen_image::SeenImage;
use crate::train::{Scores, Split, Task};

/// The candidate that is a trained model as it is, in experiments that replace attentions of one.
pub(crate) const UNCHANGED: &str = "unchanged";

/// Description of a data set before training.
#[derive(Clone, Debug)]
pub struct Card<'a> {
    /// Name, unique in the experiment.
    pub name: String,
    /// SHA-256 of the data.
    pub sha256: &'a str,
    /// Sizes and what was left out, in one sentence.
    pub description: String,
    /// Its tokeniser, if it is a text; it is stored beside the runs.
    pub tokeniser: Option<&'a Tokeniser>,
    /// Vocabulary size of a model for this data set.
    pub vocabulary: usize,
}

impl<'a> Card<'a> {
    /// A data set of texts.
    pub fn of_texts(name: impl Into<String>, sha256: &'a str, description: String, tokeniser: &'a Tokeniser) -> Self {
        Self { tokeniser: Some(tokeniser), vocabulary: tokeniser.vocabulary_size(), ..Self::new(name, sha256, description) }
    }

    /// A data set without text.
    pub fn new(name: impl Into<String>, sha256: &'a str, description: String) -> Self {
        Self { name: name.into(), sha256, description, tokeniser: None, vocabulary: 1 }
    }
}

/// The configuration, data and attention of a model.
#[derive(Debug)]
pub struct Setup<'a, E: Experiment> {
    /// The configuration.
    pub config: &'a Config<E>,
    /// The data set.
    pub data: &'a E::Data,
    /// The attention under comparison.
    pub attention: &'a Attention,
}

impl<E: Experiment> Clone for Setup<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Experiment> Copy for Setup<'_, E> {}

/// One of those that are compared.
#[derive(Clone, Debug)]
pub struct Candidate<E> {
    /// Its attention, under the candidate's name.
    pub attention: Attention,
    /// The configuration that it is trained with.
    pub config: Config<E>,
    /// The candidate whose weights it has, if it is not trained itself.
    pub weights_of: Option<String>,
}

/// A whole model under a name: the fields that it sets of an experiment's configuration, beneath the configuration file and the options of the command.
#[derive(Clone, Copy, Debug)]
pub struct NamedModel {
    /// Name in options, folders and tables.
    pub name: &'static str,
    /// What it is, in a few words.
    pub description: &'static str,
    /// Name of its attention.
    pub attention: &'static str,
    /// The fields that it sets, in TOML, by their dotted paths.
    pub settings: &'static [&'static str],
}

impl NamedModel {
    /// A model with this attention, which sets these fields.
    pub const fn new(name: &'static str, description: &'static str, attention: &'static str, settings: &'static [&'static str]) -> Self {
        Self { name, description, attention, settings }
    }
}

/// The tokens of a text, as a model read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Those of the encoder; none without one.
    pub encoder: Vec<String>,
    /// Those of the decoder; none without one.
    pub decoder: Vec<String>,
    /// Those that the decoder remembered from segments before.
    pub memory: Vec<String>,
    /// The image whose elements are the tokens of the decoder, if there is one.
    pub image: Option<SeenImage>,
}

/// Shows a segment of a text to a model, and says what its tokens are.
pub type ReadSegment<'a> = dyn FnMut(&mut Probe) -> Result<Reading, ExperimentError> + 'a;

/// Is given each segment of a text in turn.
pub type ShowSegment<'a> = dyn FnMut(&mut ReadSegment<'_>) -> Result<(), ExperimentError> + 'a;

/// A trained model, the task that it was trained on, and the folder of its run.
pub struct Trained<'t, 'd, E: Experiment> {
    /// The task.
    pub task: &'t E::Task<'d>,
    /// The model.
    pub model: &'t E::Model,
    /// The folder.
    pub paths: &'t RunPaths,
}

/// A command, before its first run.
pub trait Prepare<E: Experiment> {
    /// The configuration of the command.
    fn config(&self) -> &Config<E>;

    /// Its data sets.
    fn datasets(&self) -> &[E::Data];

    /// Does the unfinished runs of another experiment, in a folder of this name within the output folder, and prints their table unless the command is quiet.
    /// If the command only shows its plan, shows theirs.
    ///
    /// # Errors
    /// Those of a command of that experiment, and a usage error for a command that does only a part of its runs: others would do these at the same time.
    fn first<F: Experiment>(&self, config: Config<F>, datasets: &[F::Data], folder: &str) -> Result<Completion, ExperimentError>;
}

/// An experiment: its own options, and what it builds from them.
///
/// Its fields stand at the top of the configuration, beside the tables `run`, `model`, `mechanisms`, `training` and `slurm` of all experiments. It refuses
/// unknown fields and has a default for each: `#[serde(default, deny_unknown_fields)]`.
pub trait Experiment: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Name of the program, of the experiment in results, and of the default output folder.
    const NAME: &'static str;
    /// Title of the report.
    const TITLE: &'static str;
    /// What its command does, for `--help`: a sentence, and after an empty line more.
    const ABOUT: &'static str = Self::TITLE;
    /// Arguments of its command that `--help` shows as examples.
    const EXAMPLES: &'static [&'static str] = &[
        "--list",
        "--attention dot-product",
        "--attention dot-product,synthesizer-random,gaussian --seeds 3 --out runs/comparison",
        "--attention dot-product --set training.learning_rate=3e-4 --steps 500",
        "--config runs/comparison/config.toml --out runs/again",
    ];
    /// Options of its command beside those of all experiments.
    const OPTIONS: &'static [CommandOption] = &[];
    /// Whole models that `--model` takes.
    const MODELS: &'static [NamedModel] = &[];
    /// Fields of the configuration, by their dotted paths, that say what the data sets are. All that are compared share them.
    const DATA: &'static [&'static str] = &[];
    /// Stacks of layers with the attention under comparison.
    const STACKS: usize = 1;
    /// The field of the configuration that says how large a training batch is.
    const BATCH: &'static str;
    /// Whether it reads the data set in the folder of `--data`, which is refused without it.
    const READS_FILES: bool = false;
    /// The roles of the columns that it reads from JSON lines and Parquet (see [`Columns`](heedful_data::Columns)); none if it reads no such files.
    const COLUMNS: &'static [&'static str] = &[];
    /// Whether it has [trivial baselines](Self::trivial_baselines); where it has none, leaving them out is refused.
    const HAS_TRIVIAL_BASELINE: bool = false;
    /// Whether models are told of padding in their batches, which `model.unpadded` leaves out.
    const HAS_PADDING: bool = true;
    /// A data set, ready to be learnt.
    type Data: Debug + Sync;
    /// What is trained.
    type Model: Module;
    /// Training it.
    type Task<'a>: Task<Model = Self::Model>;

    /// Changes the defaults that all experiments share.
    fn defaults(_config: &mut Config<Self>) {}

    /// Completes the configuration `own` of a model of [`MODELS`](Self::MODELS) with fields that depend on the rest of the configuration. `plain` is the
    /// configuration without the model's settings. By default nothing changes.
    ///
    /// # Errors
    /// If no value fits.
    fn fit_model(_name: &str, _plain: &Config<Self>, _own: &mut Config<Self>, _attention: &Attention) -> Result<(), ExperimentError> {
        Ok(())
    }

    /// The settings of a model of a paper, whose name `--model` accepts as well; `None`, the default, for a model that the experiment does not have.
    fn preset(_preset: &Preset) -> Option<PaperModel> {
        None
    }

    /// Settings from files that the configuration names. The configuration file and the options of the command override them. By default there are none.
    ///
    /// # Errors
    /// A file that cannot be used.
    fn beneath(_config: &Config<Self>) -> Result<Option<Table>, ExperimentError> {
        Ok(None)
    }

    /// Stores the output folder of the runs in the configuration, if they need files from it. By default it is not stored.
    fn within(_config: &mut Config<Self>, _out: &Path) {}

    /// The attention of a name that only this experiment defines; `None` for a name that all experiments share. By default there is no such name.
    fn attention_named(_config: &Config<Self>, _name: &str) -> Option<Result<Attention, ExperimentError>> {
        None
    }

    /// Allowed values of fields, and where fields have an effect. By default there are no rules.
    fn rules() -> Vec<Rule<Self>> {
        Vec::new()
    }

    /// Checks what else can be checked without data.
    ///
    /// # Errors
    /// A usage error that names the field and the remedy.
    fn check(_settings: &Settings<Config<Self>>, _attentions: &[Attention]) -> Result<(), ExperimentError> {
        Ok(())
    }

    /// Reads or generates the data sets.
    ///
    /// # Errors
    /// Data that is missing or malformed, or does not fit the configuration.
    fn open(config: &Config<Self>) -> Result<Vec<Self::Data>, ExperimentError>;

    /// Describes a data set.
    fn card(data: &Self::Data) -> Card<'_>;

    /// Checks whether a data set suffices for a configuration and an attention.
    ///
    /// # Errors
    /// A usage error that names the field and the remedy.
    fn fits(_setup: Setup<'_, Self>) -> Result<(), ExperimentError> {
        Ok(())
    }

    /// Places the mechanisms that a name or a list alone has put into all self-attentions; `other` is dot-product attention with its options. By default they
    /// stay there.
    fn placed(layout: AttentionLayout, _other: &AnyMechanism) -> AttentionLayout {
        layout
    }

    /// The mechanisms that an attention places in a model, in the order of their places. Two attentions with equal lists give the same model under one
    /// configuration.
    fn attentions(attention: &Attention) -> Vec<(Role, AnyMechanism)> {
        if Self::STACKS > 1 {
            return attention.layout.mechanisms();
        }
        attention.layout.decoder.mechanisms().iter().map(|mechanism| (Role::Decoder, mechanism.clone())).collect()
    }

    /// The maximal length of the attentions in models whose configuration decides it; data can only raise it. By default that of the configuration.
    fn max_length(config: &Config<Self>) -> usize {
        config.model.max_length
    }

    /// Lower bounds on the sizes of a model, for an estimate of its memory.
    fn sizes(config: &Config<Self>) -> ModelSettings {
        config.model.clone()
    }

    /// Least number of vectors of the model's width that take as much memory as those of the tokens, for an estimate of its memory. By default each token has
    /// one.
    fn full_vectors(_config: &Config<Self>, data: &Self::Data) -> usize {
        Self::card(data).vocabulary
    }

    /// Lower bound on the tokens of the largest training batch, for an estimate of its memory; 0 if it is unknown.
    fn batch_tokens(_config: &Config<Self>, _data: &Self::Data) -> usize {
        0
    }

    /// The lengths of the training sequences. A mechanism without an effect at these lengths is refused or reported. By default they are those of the
    /// [task](Task::lengths), in encoder and decoder, or else as long as a model may read them.
    fn lengths(setup: Setup<'_, Self>) -> TrainingLengths {
        let max_length = setup.config.model.max_length;
        let lengths = Self::task(setup).lengths().unwrap_or_else(|| vec![max_length]);
        TrainingLengths::new(&setup.attention.layout, max_length).encoder(lengths.iter().copied()).decoder(lengths)
    }

    /// Why the runs of a configuration cannot be tasks of a Slurm array, with the remedy. By default they can.
    fn refuses_slurm(_config: &Config<Self>) -> Option<&'static str> {
        None
    }

    /// Prepares all runs before the first one, for example by training the model that all start from. If the command only shows its plan, describes the
    /// preparation. Work of an earlier command is not repeated. By default there is nothing to do.
    ///
    /// # Errors
    /// Those of runs.
    fn prepare(_preparation: &impl Prepare<Self>) -> Result<Completion, ExperimentError> {
        Ok(Completion::Finished)
    }

    /// The task of training on a data set.
    fn task(setup: Setup<'_, Self>) -> Self::Task<'_>;

    /// A model with initial weights from `key`.
    ///
    /// # Errors
    /// If the weights to start from cannot be read.
    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<Self::Model, ExperimentError>;

    /// The configuration of the runs of a seed, if seeds differ in more than the random draws of training.
    fn of_seed(config: &Config<Self>, _seed: u64) -> Config<Self> {
        config.clone()
    }

    /// Scores of a diverged run, whose loss or weights are no longer finite, if divergence is a result; by default it is an error.
    fn diverged(_config: &Config<Self>) -> Option<Scores> {
        None
    }

    /// Scores a trained model, and writes what it generates into the run's folder. `None` if the interrupt was raised meanwhile. By default the scores are
    /// those of [`Task::evaluate`] on the test set.
    ///
    /// # Errors
    /// If a file cannot be written.
    fn score(_setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        Ok(trained.task.evaluate(trained.model, Split::Test, interrupt))
    }

    /// Adds scores of the changes that training made to a model; `initial` builds the model with its initial weights. By default there are none.
    ///
    /// # Errors
    /// Weights to start from, or texts, that cannot be read.
    fn score_change(
        _setup: Setup<'_, Self>,
        _model: &Self::Model,
        _initial: &dyn Fn() -> Result<Self::Model, ExperimentError>,
        _scores: &mut Scores,
    ) -> Result<(), ExperimentError> {
        Ok(())
    }

    /// The scores that the table shows.
    fn columns() -> Vec<MetricColumn>;

    /// Scores on a data set without attention or without learning, computed like those of models on the same split; `None` if the interrupt was raised
    /// meanwhile. By default there are none.
    ///
    /// # Errors
    /// Texts that cannot be used.
    fn trivial_baselines(_config: &Config<Self>, _data: &Self::Data, _interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(Some(Vec::new()))
    }

    /// Numbers that papers report for such tasks.
    fn published() -> PublishedNumbers {
        PublishedNumbers::default()
    }

    /// At most `count` test texts that are short enough to be read; none if models read no texts.
    fn texts(_setup: Setup<'_, Self>, _count: usize) -> Vec<String> {
        Vec::new()
    }

    /// Shows a text to a model.
    ///
    /// # Errors
    /// If the model cannot read it, for example because it is too long.
    fn read(_setup: Setup<'_, Self>, _model: &Self::Model, _text: &str, _probe: &mut Probe) -> Result<Reading, ExperimentError> {
        Err(ExperimentError::usage(format!("models of `{}` read no texts", Self::NAME)))
    }

    /// Reads a text in segments and hands each to `show`; by default in one segment. The model decides what one segment hands to the next.
    ///
    /// # Errors
    /// As [`read`](Self::read), and those of `show`.
    fn read_segments(setup: Setup<'_, Self>, model: &Self::Model, text: &str, show: &mut ShowSegment<'_>) -> Result<(), ExperimentError> {
        show(&mut |probe| Self::read(setup, model, text, probe))
    }
}

/// Refuses a text without tokens, or with more tokens than are possible.
///
/// # Errors
/// A usage error with both numbers.
pub fn check_length(text: &str, tokens: usize, most: usize) -> Result<(), ExperimentError> {
    if (1..=most).contains(&tokens) {
        return Ok(());
    }
    Err(ExperimentError::usage(format!("--text {text:?}: it has {tokens} tokens where 1 to {most} can be read; give another text")))
}
