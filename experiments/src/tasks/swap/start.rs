//! The model that all contenders start from.
//!
//! It is a [`StartModel`], whatever its source: a run of `lm`, which may have started from a pretrained model, or a model that is trained first. Another source
//! of trained models only has to provide one, and its sizes beneath the configuration ([`settings_of_run`]).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use heedful_data::tokenise::Tokeniser;
use heedful_host::checksum::sha256_hex;
use heedful_models::architectures::language_model::{LanguageModel, LanguageModelConfig};
use heedful_runs::results::Results;
use heedful_runs::run_folder::RunFolder;
use heedful_runs::settings;

use super::contender::base;
use super::{SwapConfig, SwapDataset, SwapStart};
use crate::session::comparison::{Candidate, candidates, check_registered};
use crate::session::footprint::Memory;
use crate::tasks::language::{Language, LanguageConfig};
use crate::tasks::prelude::*;
use crate::train::{Checkpoint, CheckpointFolder, load_model};

/// Where in the output folder a model that is trained first is.
pub(crate) const FOLDER: &str = "start";
/// The fields of a run of `lm` that do not say what its model and its text are. A model that `adaptive` is part of is refused.
const OTHERS: [&str; 7] = ["run", "training", "slurm", "adaptive", "histogram_texts", "loss_by_position", PRETRAINED];
/// The field of the pretrained model that a run of `lm` began with.
const PRETRAINED: &str = "pretrained";

/// A trained model and what it is.
pub(super) struct StartModel {
    pub(super) config: LanguageModelConfig,
    pub(super) model: LanguageModel,
    /// Where it is from, in a sentence.
    pub(super) description: String,
}

/// The output folder of a finished `lm`.
#[derive(Clone, Debug)]
pub(super) struct RunStart {
    folder: PathBuf,
}

impl RunStart {
    /// The folder, if it is one of `lm`.
    pub(super) fn open(folder: &Path) -> Result<Self, ExperimentError> {
        let shown = folder.display();
        let refuse = |problem: String| Err(ExperimentError::usage(format!("--run {shown}: {problem}; give the output folder of `lm`")));
        let run = RunFolder::at(folder);
        if !run.config().is_file() {
            return refuse(format!("`{}` is missing", run.config().display()));
        }
        match Results::read(&run)?.records().first() {
            None => refuse("it has no finished run".to_owned()),
            Some(record) if record.experiment != Language::NAME => refuse(format!("its runs are of `{}`", record.experiment)),
            Some(_) => Ok(Self { folder: folder.to_owned() }),
        }
    }

    /// Folder of the pretrained model that the runs of one of its attentions and models began with, by default of its first.
    pub(super) fn pretrained(&self, wanted: Option<&str>) -> Result<Option<PathBuf>, ExperimentError> {
        Ok(self.candidate(wanted)?.2.own.pretrained)
    }

    /// What cut its text into tokens, where it was trained on the text.
    pub(super) fn tokeniser(&self) -> Result<Tokeniser, ExperimentError> {
        Tokeniser::load(&self.folder.join("tokenizer.json")).map_err(ExperimentError::usage)
    }

    /// Digest of its results.
    pub(super) fn sha256(&self) -> Result<String, ExperimentError> {
        let bytes = fs::read(RunFolder::at(&self.folder).results()).map_err(ExperimentError::failure)?;
        Ok(sha256_hex(&bytes))
    }

    /// Of its attentions and models the one that is asked for, or its first: its name, the name of its attention, and its configuration.
    fn candidate(&self, wanted: Option<&str>) -> Result<(String, String, LanguageConfig), ExperimentError> {
        let folder = RunFolder::at(&self.folder);
        check_registered(&folder)?;
        let mut settings = Settings::<LanguageConfig>::read(Some(&folder.config()), Vec::new())?;
        let pretrained = settings.value.own.pretrained.clone();
        let all = candidates::<Language>(&mut settings, Memory::of_finished()).map_err(|error| match &pretrained {
            Some(begun) if !begun.is_dir() => {
                let (folder, begun) = (self.folder.display(), begun.display());
                let problem = "whose configuration and tokeniser are still needed, and which is not there; put it back";
                ExperimentError::usage(format!("--run {folder}: it began with the pretrained model of `{begun}`, {problem}"))
            }
            _ => error,
        })?;
        let names: Vec<&str> = all.iter().map(|candidate| candidate.attention.name.as_str()).collect();
        let index = match wanted {
            None => 0,
            Some(wanted) => names.iter().position(|name| *name == wanted).ok_or_else(|| {
                let (folder, known) = (self.folder.display(), names.join(", "));
                ExperimentError::usage(format!("--run {folder}: it has no run of `{wanted}`; give --run-model with one of {known}"))
            })?,
        };
        let Candidate { attention, config, .. } = all.into_iter().nth(index).expect("there is at least one");
        let models = &settings.value.run.models;
        let of_model = models.iter().find(|model| model.name == attention.name).and_then(|model| model.attention.clone());
        Ok((attention.name.clone(), of_model.unwrap_or(attention.name), config))
    }

    /// The best checkpoint of the run that the runs of a seed begin with.
    pub(super) fn checkpoint(&self, config: &SwapConfig, seed: u64) -> Result<Checkpoint, ExperimentError> {
        let start = &config.own.start;
        let (name, seed) = (start.model.as_deref().unwrap_or(&start.attention), start.seed_of(seed));
        let folder = RunFolder::at(&self.folder);
        let finished = Results::read(&folder)?;
        let seeds: BTreeSet<u64> = finished.records().iter().filter(|record| record.attention == name).map(|record| record.seed).collect();
        if !seeds.contains(&seed) {
            let known = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            let problem = match seeds.first() {
                Some(first) => format!(
                    "it has no finished run of {name} with seed {seed}, only with seed {known}; begin all seeds with one of them: --run-seed {first}"
                ),
                None => format!("it has no finished run of {name}; finish it by `lm` with --resume, or give another --run-model"),
            };
            return Err(ExperimentError::usage(format!("--run {}: {problem}", self.folder.display())));
        }
        best(&folder, "", name, seed)?.ok_or_else(|| {
            let folder = folder.run_at(name, seed);
            ExperimentError::usage(format!("`{}` has no checkpoint; train it again by `lm`", folder.root().display()))
        })
    }
}

/// The best checkpoint of a run on a data set, if there is one.
pub(crate) fn best(folder: &RunFolder, dataset: &str, name: &str, seed: u64) -> Result<Option<Checkpoint>, ExperimentError> {
    let Some(run) = folder.existing_run(dataset, name, seed) else { return Ok(None) };
    CheckpointFolder::of_any_configuration(run.root()).best().map_err(ExperimentError::failure)
}

/// What the run that is named in the configuration says of model and text, to lie beneath the configuration; nothing where none is named.
pub(super) fn settings_of_run(start: &SwapStart) -> Result<Option<Table>, ExperimentError> {
    let Some(folder) = &start.run else { return Ok(None) };
    let (name, attention, config) = RunStart::open(folder)?.candidate(start.model.as_deref())?;
    if config.own.adaptive.is_some() {
        let problem = "its model has `adaptive` vectors, which `swap` does not know; give a run without";
        return Err(ExperimentError::usage(format!("--run {}: {problem}", folder.display())));
    }
    let mut table = settings::complete(&config)?;
    table.retain(|key, _| !OTHERS.contains(&key));
    let texts =
        |pairs: Vec<(&str, String)>| Value::Table(pairs.into_iter().map(|(key, text)| (key.to_owned(), Value::String(text))).collect());
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    let pretrained = config.own.pretrained.as_ref().map(|folder| (PRETRAINED, path(folder)));
    table.insert("start".to_owned(), texts([("model", name), ("attention", attention)].into_iter().chain(pretrained).collect()));
    if let Some(data) = &config.run.data {
        let mut run = Table::from_iter([("data".to_owned(), Value::String(path(data)))]);
        run.extend(config.run.columns.as_ref().map(|columns| ("columns".to_owned(), Value::Table(columns.table()))));
        table.insert("run".to_owned(), Value::Table(run));
    }
    Ok(Some(table))
}

/// The model that the runs of the configuration's seed begin with.
pub(super) fn model(config: &SwapConfig, data: &SwapDataset, device: &Device) -> Result<StartModel, ExperimentError> {
    let (attention, seed) = (base(config)?, config.own.start.seed_of(config.run.seed));
    let vocabulary = Language::card(&data.language).vocabulary;
    let model_config = config.language().model(vocabulary, &attention);
    let initial = model_config.init(&RandomKey::from_seed(seed).named("init"), device);
    let (checkpoint, description) = match (&data.run, &config.own.start.place) {
        (Some(run), _) => {
            let name = config.own.start.model.as_deref().unwrap_or(&config.own.start.attention);
            (Some(run.checkpoint(config, config.run.seed)?), format!("began with {name} of `{}`, seed {seed}", run.folder.display()))
        }
        (None, Some(place)) => {
            let found = best(&RunFolder::at(place), "", &attention.name, seed)?;
            let missing = || {
                let problem = "has no trained model that the runs begin with; do the command with --resume";
                ExperimentError::failure(format!("`{}` {problem}", place.display()))
            };
            (Some(found.ok_or_else(missing)?), format!("began with {}, trained first with seed {seed}", attention.name))
        }
        (None, None) => (None, "began with initial weights".to_owned()),
    };
    let model = match checkpoint {
        Some(checkpoint) => load_model(initial, &checkpoint).map_err(|error| {
            ExperimentError::usage(format!("{error}; leave model, text and start.attention as the run of `lm` has them"))
        })?,
        // A plan needs sizes and times alone.
        None => initial,
    };
    Ok(StartModel { config: model_config, model, description })
}
