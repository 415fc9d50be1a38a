//! The table of all experiments. The sub-commands of the program, `analyse` and the ledger are built from it.

use std::process::ExitCode;

use heedful_runs::settings::Assignment;
use toml::Table;

use crate::analyse::{self, AnalyseOptions};
use crate::session::comparison::{RunList, run_list, run_list_of_pretrained, with_options};
use crate::session::error::ExperimentError;
use crate::session::experiment::{CommandOption, Experiment};
use crate::session::options::CommonOptions;
use crate::tasks::algorithmic::Algorithmic;
use crate::tasks::classification::Classification;
use crate::tasks::image::{ImageClassification, ImageMixtures, ImageModelling, SuperResolution};
use crate::tasks::language::Language;
use crate::tasks::memory_rl::MemoryRl;
use crate::tasks::ponder::Ponder;
use crate::tasks::pre_training::{MaskedModelling, SpanModelling};
use crate::tasks::recall::{Recall, Track};
use crate::tasks::swap::Swap;
use crate::tasks::text_classification::TextClassification;
use crate::tasks::text_generation::TextGeneration;
use crate::tasks::translation::Translation;

/// The experiments, in the order of `--help`.
pub static EXPERIMENTS: [Row; 17] = [
    Row::of::<Translation>(),
    Row::of::<Language>(),
    Row::of::<Classification>(),
    Row::of::<Algorithmic>(),
    Row::of::<MaskedModelling>(),
    Row::of::<SpanModelling>().chosen_by(Choice::value(
        MaskedModelling::NAME,
        "objective",
        ["tokens", "spans"],
        "Training objective: an encoder finds masked tokens (BERT), or an encoder-decoder fills in spans (T5)",
    )),
    Row::of::<TextGeneration>(),
    Row::of::<TextClassification>(),
    Row::of::<ImageClassification>().without_texts().chosen_by(Choice::flag(
        TextClassification::NAME,
        "images",
        "Classify images, cut into patches of N by N pixels (--set patch=N)",
    )),
    Row::of::<ImageModelling>(),
    Row::of::<SuperResolution>().chosen_by(Choice::flag(
        ImageModelling::NAME,
        "super-resolution",
        "Super-resolution: add an encoder that reads a smaller version of the image (smaller by data.factor)",
    )),
    Row::of::<ImageMixtures>().chosen_by(Choice::flag(
        ImageModelling::NAME,
        "logistic-mixture",
        "Generate colour images pixel by pixel, with a mixture of logistics for the three values of a pixel in place of one token per value",
    )),
    Row::of::<MemoryRl>(),
    Row::of::<Recall>(),
    Row::of::<Track>(),
    Row::of::<Ponder>().without_texts(),
    Row::of::<Swap>(),
];

/// Shows the attention of a trained model.
type Analyse = fn(&AnalyseOptions) -> Result<(), ExperimentError>;

/// One experiment.
pub struct Row {
    /// Its name in records, and that of its command where no option chooses it.
    pub name: &'static str,
    /// The option by which the command of another experiment becomes that of this one.
    pub choice: Option<Choice>,
    /// The text of `--help`.
    pub(crate) about: &'static str,
    /// Arguments that `--help` shows.
    pub(crate) examples: &'static [&'static str],
    /// Whether it has models beside attentions.
    pub(crate) has_models: bool,
    /// Options beside those of all experiments.
    pub(crate) options: &'static [CommandOption],
    /// Runs its command.
    pub(crate) run: fn(&CommonOptions, Vec<Assignment>) -> ExitCode,
    /// The runs of a configuration.
    pub(crate) run_list: fn(&Table) -> Result<RunList, ExperimentError>,
    /// The runs of a configuration that goes on from a pretrained model which is not at hand.
    pub(crate) run_list_of_pretrained: fn(&Table) -> Result<RunList, ExperimentError>,
    /// Shows the attention of a trained model that reads texts.
    pub(crate) analyse: Option<Analyse>,
}

/// An option that chooses an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The command that has it.
    pub command: &'static str,
    /// Its name, without the dashes.
    pub option: &'static str,
    /// The value that it has to have, after the one that it has otherwise; none of a flag.
    pub values: Option<[&'static str; 2]>,
    /// Text of `--help`.
    pub help: &'static str,
}

impl Row {
    const fn of<E: Experiment>() -> Self {
        Self {
            name: E::NAME,
            choice: None,
            about: E::ABOUT,
            examples: E::EXAMPLES,
            has_models: !E::MODELS.is_empty(),
            options: E::OPTIONS,
            run: with_options::<E>,
            run_list: run_list::<E>,
            run_list_of_pretrained: run_list_of_pretrained::<E>,
            analyse: Some(analyse::run::<E>),
        }
    }

    const fn without_texts(self) -> Self {
        Self { analyse: None, ..self }
    }

    const fn chosen_by(self, choice: Choice) -> Self {
        Self { choice: Some(choice), ..self }
    }

    /// The experiment that records call `name`.
    pub fn named(name: &str) -> Option<&'static Self> {
        EXPERIMENTS.iter().find(|row| row.name == name)
    }

    /// The name of its command.
    pub fn command(&self) -> &'static str {
        self.choice.map_or(self.name, |choice| choice.command)
    }

    /// The arguments that make the command that of this experiment, the command first.
    pub fn arguments(&self) -> Vec<String> {
        let choice = self
            .choice
            .into_iter()
            .flat_map(|choice| [Some(format!("--{}", choice.option)), choice.values.map(|[_, value]| value.to_owned())]);
        std::iter::once(Some(self.command().to_owned())).chain(choice).flatten().collect()
    }
}

impl Choice {
    const fn flag(command: &'static str, option: &'static str, help: &'static str) -> Self {
        Self { command, option, values: None, help }
    }

    const fn value(command: &'static str, option: &'static str, values: [&'static str; 2], help: &'static str) -> Self {
        Self { command, option, values: Some(values), help }
    }
}
