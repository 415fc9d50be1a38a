//! The command of an experiment: it trains several attentions, or whole models, over several seeds on one data set after another, scores them, and compares.
//!
//! It reads the options, lays out the run folder, trains each pair of attention and seed of an [`Experiment`] with the one training engine, records every
//! finished run and renders the report. A stopped command continues with `--resume`: it reads finished runs from their `result.json` and resumes the others
//! from their checkpoints. Several commands may share a folder: each skips the runs that another process works on.

mod attention_name;
mod bars;
mod candidate;
mod distributed;
#[cfg(test)]
mod every_field;
mod identity;
mod idle;
mod matching;
mod overview;
mod plan;
mod preparation;
mod run_list;
mod runs;
mod session;
mod slurm_array;
mod sweep;
mod tuning;

use std::path::Path;
use std::process::ExitCode;

use burn::tensor::Device;
use heedful_attention::prelude::*;
use heedful_backends::device_failure::guarded;
use heedful_backends::{Backend, memory_bytes};
use heedful_host::allocator::keep_freed_memory;
use heedful_host::interrupt::Interrupt;
use heedful_host::progress::progress;
use heedful_host::threads::among_workers;
use heedful_runs::record::ResultRecord;
use heedful_runs::report::Section;
use heedful_runs::results::Results;
use heedful_runs::run_folder::RunFolder;
use heedful_runs::settings::{self, Assignment, Settings};

pub use crate::model::attention::Attention;
use crate::model::mechanisms;
use crate::session::error::{Completion, ExperimentError, main_with, print_line};
pub use crate::session::experiment::definition::{Candidate, NamedModel};
use crate::session::experiment::definition::{Config, Experiment, Setup};
use crate::session::footprint::{self, Memory};
use crate::session::options::CommonOptions;
use crate::session::preset_files::PresetFile;
use crate::session::presets::NamedPreset;
use crate::train::{CheckpointFolder, Ranks, Task, Watcher, load_model};
pub use heedful_runs::record::STEPS_PER_SECOND;

pub(crate) use self::attention_name::attention;
pub(crate) use self::bars::scoring_bar;
pub(crate) use self::candidate::candidates;
pub use self::candidate::model_assignments;
use self::candidate::{check_effects, check_overridden, twins, with_earlier};
use self::identity::other_data;
use self::matching::match_parameters;
use self::plan::Plan;
use self::preparation::Preparation;
pub(crate) use self::run_list::{RunList, run_list, run_list_of_pretrained};
use self::runs::{Runs, report, sections};
use self::session::Session;

/// Runs an experiment whose options were read already. `further` are assignments of options that only this experiment has.
pub fn with_options<E: Experiment>(options: &CommonOptions, further: Vec<Assignment>) -> ExitCode {
    keep_freed_memory();
    main_with(|| among_workers(|| run::<E>(options, further)))
}

fn run<E: Experiment>(options: &CommonOptions, further: Vec<Assignment>) -> Result<Completion, ExperimentError> {
    let ranks = distributed::start(options.data_parallel)?;
    // What one rank says the others need not repeat.
    let mut options = options.clone();
    if !ranks.is_first() {
        options.quiet = true;
        (options.logging.log, options.logging.trace) = (None, None);
    }
    let options = &options;
    distributed::conclude(&ranks, run_on::<E>(&ranks, options, further))
}

fn run_on<E: Experiment>(ranks: &Ranks, options: &CommonOptions, further: Vec<Assignment>) -> Result<Completion, ExperimentError> {
    let _logging = options.start_logging()?;
    if options.list {
        print_line(mechanisms::list())?;
        let layouts = attention_name::layouts::<E>();
        if !layouts.is_empty() {
            print_line(format!("Layouts of several mechanisms: {}", layouts.join(", ")))?;
        }
        if !E::MODELS.is_empty() {
            let rows = E::MODELS.iter().map(|model| [model.name, model.attention, model.description].map(str::to_owned).to_vec());
            print_line(format!("\n{}", heedful_runs::markup::columns(80, &["model", "attention", "what it is"], rows.collect())))?;
        }
        let presets = NamedPreset::all::<E>();
        if !presets.is_empty() {
            let rows = presets.into_iter().map(|NamedPreset { name, attention, source, .. }| vec![name, attention, source.to_owned()]);
            print_line(format!(
                "\n{}",
                heedful_runs::markup::columns(80, &["model of a paper", "attention", "source of its sizes"], rows.collect())
            ))?;
            print_line("Sizes can be set, e.g. --set model.d_model=64; NAME-tiny is the same build, small.")?;
        }
        return Ok(Completion::Finished);
    }
    if options.list_presets {
        for preset in PresetFile::of(E::NAME) {
            print_line(format!("{}: {}.\n  {}", preset.name, preset.title(), preset.command()))?;
        }
        return Ok(Completion::Finished);
    }
    if options.print_schema {
        print_line(settings::schema(&Config::<E>::default(), &format!("Configuration of {}", E::NAME))?)?;
        return Ok(Completion::Finished);
    }
    let Settled { settings, mut candidates, memory } = settled::<E>(options, further)?;
    if let Some(problem) = E::refuses_slurm(&settings.value).filter(|_| options.slurm) {
        return Err(ExperimentError::usage(format!("--slurm: {problem}")));
    }
    let backend: Backend = settings.value.run.backend.parse().map_err(ExperimentError::usage)?;
    // The machine on which scripts are written or results merged need not have the device of the runs.
    let is_trained_here = !options.slurm && !options.merge;
    let device = is_trained_here.then(|| opened::<E>(backend, &settings, &candidates)).transpose()?;
    if options.print_config {
        print_line(settings::complete_text(&settings.value)?.trim_end())?;
        return Ok(Completion::Finished);
    }
    let memory = memory.with_device(device.as_ref().and_then(memory_bytes));
    // Data that cannot be read must not leave a run folder behind.
    let datasets = opened_data::<E>(&settings, &candidates, memory, ranks)?;
    match_parameters::<E>(&settings, &mut candidates, &datasets)?;
    let jobs = footprint::jobs::<E>(options.jobs.unwrap_or_default(), &candidates, &datasets, backend, memory)?;
    let config = settings.value;
    let Some(device) = device else {
        let runs = Runs::<E>::open(options, &config, &datasets, &candidates, backend)?;
        return if options.merge { runs.merge() } else { runs.write_scripts(options.submit) };
    };
    if options.dry_run {
        let interrupt = Interrupt::new();
        let watcher = watcher(options.quiet);
        let (config, datasets) = (&config, &datasets[..]);
        let out = &options.output(E::NAME);
        E::prepare(&Preparation {
            config,
            datasets,
            backend,
            device: &device,
            watcher,
            interrupt,
            shard: options.shard,
            out,
            is_dry: true,
        })?;
        for remark in idle::check::<E>(&candidates, datasets)? {
            tracing::warn!("{}", remark.sentence);
        }
        let plan = Plan::<E> { candidates: &candidates, datasets, backend, device, jobs, shard: options.shard };
        plan.show(out)?;
        return Ok(Completion::Finished);
    }
    distributed::agree::<E>(ranks, &config, &datasets)?;
    let interrupt = Interrupt::on_signal().map_err(ExperimentError::failure)?;
    if !ranks.is_first() {
        return guarded(backend, GO_ON, || distributed::follow::<E>(ranks, &datasets, &candidates, &device, &interrupt));
    }
    let session = Session::<E> {
        runs: Runs::open(options, &config, &datasets, &candidates, backend)?,
        watcher: watcher(options.quiet),
        interrupt,
        ranks,
        is_resumed: options.resume,
        is_shown: true,
        device,
        jobs,
        shard: options.shard,
    };
    guarded(backend, GO_ON, || {
        let prepared = E::prepare(&session.preparation())?;
        if prepared == Completion::Interrupted { Ok(prepared) } else { session.run() }
    })
}

/// What a command compares, after all that can be refused without data.
struct Settled<E> {
    settings: Settings<Config<E>>,
    candidates: Vec<Candidate<E>>,
    memory: Memory,
}

fn settled<E: Experiment>(options: &CommonOptions, further: Vec<Assignment>) -> Result<Settled<E>, ExperimentError> {
    let mut assignments = options.assignments()?;
    assignments.extend(further);
    let mut settings: Settings<Config<E>> = match &options.preset {
        Some(name) => PresetFile::named(name)?.settings(assignments)?,
        None => Settings::read(options.config.as_deref(), assignments)?,
    };
    if let Some(base) = E::beneath(&settings.value)? {
        settings = settings.over_table(base)?;
    }
    if !options.dry_run {
        E::within(&mut settings.value, &options.output(E::NAME));
    }
    settings.value.slurm.check().map_err(|(field, problem)| settings.refuse(&format!("slurm.{field}"), problem))?;
    let memory = match options {
        CommonOptions { slurm: true, .. } => Memory::of_task(&settings.value.slurm),
        CommonOptions { merge: true, .. } => Memory::of_finished(),
        _ => Memory::here(),
    };
    check_overridden::<E>(&settings)?;
    let candidates = candidates::<E>(&mut settings, memory)?;
    check_effects::<E>(&settings, &candidates)?;
    Ok(Settled { settings, candidates, memory })
}

/// The data sets, after all that can be refused with them and before anything is written.
fn opened_data<E: Experiment>(
    settings: &Settings<Config<E>>,
    candidates: &[Candidate<E>],
    memory: Memory,
    ranks: &Ranks,
) -> Result<Vec<E::Data>, ExperimentError> {
    let datasets = tracing::info_span!("data", experiment = E::NAME).in_scope(|| E::open(&settings.value))?;
    for Candidate { attention, config, .. } in candidates {
        for dataset in &datasets {
            footprint::check::<E>(settings, config, attention, Some(dataset), memory)?;
            let setup = Setup { config, data: dataset, attention };
            E::fits(setup)?;
            ranks.check(&E::task(setup), config.training.accumulate)?;
        }
    }
    Ok(datasets)
}

/// What a run whose device failed is told.
const GO_ON: &str =
    "if its memory is too small, give smaller batches or a smaller model; --resume goes on from the last checkpoint, if there was one";

/// The device of a backend, which computes with the numbers of all candidates.
fn opened<E: Experiment>(backend: Backend, settings: &Settings<Config<E>>, candidates: &[Candidate<E>]) -> Result<Device, ExperimentError> {
    let device = backend.device().map_err(ExperimentError::usage)?;
    for candidate in candidates {
        let precision = candidate.config.training.precision;
        if !precision.is_supported(&device) {
            let problem = format!("the backend {backend} does not compute with numbers of this type; give f32, or another --backend");
            return Err(settings.refuse("training.precision", problem).into());
        }
    }
    Ok(device)
}

fn watcher(quiet: bool) -> Watcher {
    if quiet { Watcher::Nobody } else { Watcher::Bars(progress().clone()) }
}

/// A trained model of a finished command, with all that it was trained with.
pub struct Reloaded<E: Experiment> {
    /// Its configuration.
    pub config: Config<E>,
    /// Its data set.
    pub dataset: E::Data,
    /// Its attention or model.
    pub attention: Attention,
    /// Its seed.
    pub seed: u64,
    /// The model with the weights that it began with.
    pub initial: E::Model,
    /// The model with the weights of its best checkpoint.
    pub trained: E::Model,
    /// What reports of the folder say beside its results.
    pub sections: Vec<Section>,
}

/// Reads the trained model of a run folder: of an attention, a seed and a data set, by default the first of the folder.
///
/// # Errors
/// A folder of another experiment, a run that it does not have, or files that cannot be read.
pub fn reload<E: Experiment>(
    folder: &Path,
    (name, seed, dataset): (Option<&str>, Option<u64>, Option<&str>),
    device: &Device,
) -> Result<Reloaded<E>, ExperimentError> {
    let paths = RunFolder::at(folder);
    check_registered(&paths)?;
    let mut settings = Settings::<Config<E>>::read(Some(&paths.config()), Vec::new())?;
    E::within(&mut settings.value, folder);
    let mut candidates = candidates::<E>(&mut settings, Memory::here())?;
    let known: Vec<&str> = candidates.iter().map(|candidate| candidate.attention.name.as_str()).collect();
    let index = match name {
        None => 0,
        Some(name) => known
            .iter()
            .position(|known| *known == name)
            .ok_or_else(|| ExperimentError::usage(format!("`{}` has no run of `{name}`; it has {}", folder.display(), known.join(", "))))?,
    };
    let results = Results::read(&paths)?;
    let mut datasets = E::open(&candidates[index].config)?;
    match_parameters::<E>(&settings, &mut candidates, &datasets)?;
    let Candidate { attention, config, weights_of } = candidates[index].clone();
    let twins = twins::<E>(&with_earlier::<E>(&candidates, &results, &settings.value), &datasets)?;
    let sections = sections::<E>(&datasets, &twins, &idle::remarks::<E>(&candidates, &datasets));
    let names: Vec<String> = datasets.iter().map(|data| E::card(data).name).collect();
    let index = match dataset {
        None => 0,
        Some(dataset) => names.iter().position(|name| name == dataset).ok_or_else(|| {
            ExperimentError::usage(format!("`{}` has no data set `{dataset}`; it has {}", folder.display(), names.join(", ")))
        })?,
    };
    let dataset = datasets.swap_remove(index);
    E::fits(Setup { config: &config, data: &dataset, attention: &attention })?;
    let card = E::card(&dataset);
    let seed = seed.unwrap_or(config.run.seed);
    let owner = weights_of.as_deref().unwrap_or(&attention.name);
    let run = paths.existing_run(&card.name, owner, seed).ok_or_else(|| {
        ExperimentError::usage(format!("`{}` has no run of {owner} with seed {seed}; give another --seed", folder.display()))
    })?;
    let is_of_run = |record: &&ResultRecord| record.dataset == card.name && record.attention == attention.name && record.seed == seed;
    if let Some(record) = results.records().iter().find(is_of_run)
        && record.data_sha256 != card.sha256
    {
        let problem = other_data(&record.dataset, &record.data_sha256, card.sha256);
        return Err(ExperimentError::usage(format!("`{}` {problem}; restore them, or train again", folder.display())));
    }
    let checkpoint = CheckpointFolder::of_any_configuration(run.root()).best().map_err(ExperimentError::failure)?;
    let checkpoint = checkpoint
        .ok_or_else(|| ExperimentError::usage(format!("`{}` has no checkpoint; run the command to its end", run.root().display())))?;
    let config = E::of_seed(&config, seed);
    let setup = Setup { config: &config, data: &dataset, attention: &attention };
    let initial = E::model(setup, &RandomKey::from_seed(seed).named("init"), device)?;
    let task = E::task(setup);
    let trained = task.without_training_parts(load_model(initial.clone(), &checkpoint).map_err(ExperimentError::failure)?);
    let initial = task.without_training_parts(initial);
    drop(task);
    Ok(Reloaded { config, dataset, attention, seed, initial, trained, sections })
}

/// Refuses a run folder with mechanisms that this program does not know, such as those of a user's own.
///
/// # Errors
/// A usage error that names the first such mechanism and what to do. A configuration that cannot be read is refused by what reads it next.
pub(crate) fn check_registered(folder: &RunFolder) -> Result<(), ExperimentError> {
    let Ok(table) = folder.table() else { return Ok(()) };
    let families = table.get("mechanisms").and_then(toml::Value::as_table).into_iter().flat_map(|families| families.keys());
    match families.into_iter().find(|family| !AnyMechanism::families().contains(&family.as_str())) {
        None => Ok(()),
        Some(own) => Err(ExperimentError::usage(format!(
            "`{}` has the mechanism `{own}`, which this program does not know; if it is one of your own, use a program that registers it and then calls \
             `heedful::main()`",
            folder.config().display()
        ))),
    }
}

/// Brings `report.html` up to date with what an analysis has written into the folder.
pub(crate) fn write_page<E: Experiment>(folder: &RunFolder, config: &Config<E>, sections: Vec<Section>) -> Result<(), ExperimentError> {
    Ok(report::<E>(&Results::read(folder)?, (config, folder), sections)?.write_page(folder)?)
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
