//! The runs of a command in their output folder, and the results that are derived from finished ones.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heedful_backends::Backend;
use heedful_host::interrupt::Interrupt;
use heedful_host::whole_files::FileError;
use heedful_metrics::MetricColumn;
use heedful_runs::record::{FEED_FORWARD_WIDTH, LEARNING_RATE, RATES_TRIED, ResultRecord, RunKey};
use heedful_runs::report::{Report, Section};
use heedful_runs::results::{Results, RunOrder};
use heedful_runs::run_folder::{RunFolder, RunPaths};
use heedful_runs::status::RunStatus;
use heedful_runs::trivial::TrivialBaseline;
use toml::Table;

use super::bars::waiting_bar;
use super::candidate::{twins, with_earlier};
use super::identity::{check_folder, recipe};
use super::idle::{self, Remark};
use super::{run_list, sweep};
use crate::session::error::{Completion, ExperimentError, print_line};
use crate::session::experiment::definition::{Candidate, Card, Config, Experiment};
use crate::session::options::CommonOptions;
use crate::session::provenance;
use crate::train::EventFile;

/// The runs of a command, whoever does them.
pub(super) struct Runs<'a, E: Experiment> {
    pub(super) config: &'a Config<E>,
    pub(super) datasets: &'a [E::Data],
    pub(super) candidates: &'a [Candidate<E>],
    pub(super) backend: Backend,
    pub(super) folder: RunFolder,
    /// Sentences on candidates that are the same model.
    twins: Vec<String>,
    /// Mechanisms that do nothing on the data because someone wants it so.
    pub(super) idle: Vec<Remark>,
    /// The folder's configuration. Other commands change nothing in it that belongs to a recipe.
    table: Table,
    finished: Mutex<FinishedRuns>,
}

/// What is finished in a folder, which is read once; what other commands finish meanwhile is taken over.
struct FinishedRuns {
    results: Results,
    /// When the reports were drawn, or the command began.
    drawn: Instant,
    /// Whether the reports lack a run.
    is_behind: bool,
}

/// Reports are drawn at the end of a command, and while it works only so often: tests and pictures of many runs take longer than a short run.
const BETWEEN_REPORTS: Duration = Duration::from_secs(180);

/// One run: which candidate learns from which data set, with which seed, and the folder of its data set.
pub(super) struct Run<'a, E: Experiment> {
    pub(super) dataset: &'a E::Data,
    pub(super) candidate: &'a Candidate<E>,
    pub(super) seed: u64,
    pub(super) folder: RunFolder,
    /// Digest of what it is trained with.
    pub(super) recipe: String,
}

impl<'a, E: Experiment> Runs<'a, E> {
    /// Opens the output folder for them. Nothing is changed in one that must not be mixed with them.
    pub(super) fn open(
        options: &CommonOptions,
        config: &'a Config<E>,
        datasets: &'a [E::Data],
        candidates: &'a [Candidate<E>],
        backend: Backend,
    ) -> Result<Self, ExperimentError> {
        let out = options.output(E::NAME);
        if options.merge && !RunFolder::at(&out).config().exists() {
            let out = out.display();
            return Err(ExperimentError::usage(format!(
                "`{out}` holds no runs that could be merged; give the --out of the command that does them"
            )));
        }
        // Runs to be merged were accepted when they were done.
        let idle = if options.merge { idle::remarks::<E>(candidates, datasets) } else { idle::check::<E>(candidates, datasets)? };
        let folder = RunFolder::open(&out, config, options.resume || options.merge, run_list::align::<E>)?;
        let results = Results::read(&folder)?;
        check_folder::<E>((&folder, &results), config, datasets)?;
        if !options.merge {
            folder.choose_runs(config)?;
        }
        let twins = twins::<E>(&with_earlier::<E>(candidates, &results, config), datasets)?;
        let told = twins.iter().chain(idle.iter().map(|remark| &remark.sentence));
        told.for_each(|sentence| tracing::warn!("{sentence}"));
        let (table, finished) = (folder.table()?, Mutex::new(FinishedRuns { results, drawn: Instant::now(), is_behind: false }));
        Ok(Self { config, datasets, candidates, backend, folder, twins, idle, table, finished })
    }

    /// All of them, in the order in which they are numbered.
    pub(super) fn all(&self) -> Result<Vec<Run<'a, E>>, ExperimentError> {
        let mut runs = Vec::new();
        for dataset in self.datasets {
            let Card { name, description, tokeniser, .. } = E::card(dataset);
            tracing::info!("{name}: {description}");
            // Several data sets have the same runs, so each has a folder of its own.
            let folder = if self.datasets.len() == 1 { self.folder.clone() } else { self.folder.part(&name)? };
            if let Some(tokeniser) = tokeniser {
                tokeniser.save(&folder.root().join("tokenizer.json")).map_err(ExperimentError::failure)?;
            }
            let recipe = |candidate: &'a Candidate<E>| Ok((candidate, recipe::<E>(&self.table, self.config, &candidate.config, dataset)?));
            let candidates = self.candidates.iter().map(recipe).collect::<Result<Vec<_>, ExperimentError>>()?;
            for seed in self.config.run.seeds() {
                let run = |(candidate, recipe): &(&'a Candidate<E>, String)| Run {
                    dataset,
                    candidate: *candidate,
                    seed,
                    folder: folder.clone(),
                    recipe: recipe.clone(),
                };
                runs.extend(candidates.iter().map(run));
            }
        }
        Ok(runs)
    }

    fn finished(&self) -> MutexGuard<'_, FinishedRuns> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The known record of a run.
    pub(super) fn record(&self, is_of_run: impl Fn(&ResultRecord) -> bool) -> Option<ResultRecord> {
        self.finished().results.records().iter().find(|record| is_of_run(record)).cloned()
    }

    /// Whether the reports lack a run that is known.
    pub(super) fn is_behind(&self) -> bool {
        self.finished().is_behind
    }

    /// Whether a run is among the results that are known.
    pub(super) fn is_finished(&self, run: &Run<'_, E>) -> Result<bool, ExperimentError> {
        let key = RunKey {
            experiment: E::NAME.to_owned(),
            dataset: E::card(run.dataset).name,
            attention: run.candidate.attention.name.clone(),
            backend: self.backend.name().to_owned(),
            seed: run.seed,
        };
        Ok(self.finished().results.finished(&key, &run.recipe)?.is_some())
    }

    /// Looks whether another command has finished a run meanwhile.
    pub(super) fn look_at(&self, run: &RunPaths) -> Result<(), ExperimentError> {
        Ok(self.finished().results.look_at(run)?)
    }

    /// Computes the trivial baselines that the folder lacks; `false` if the interrupt was raised meanwhile.
    pub(super) fn complete_trivial_baselines(&self, interrupt: &Interrupt) -> Result<bool, ExperimentError> {
        if !self.config.run.trivial_baseline || !E::HAS_TRIVIAL_BASELINE {
            return Ok(true);
        }
        for dataset in self.datasets {
            let card = E::card(dataset);
            let is_same = |there: &TrivialBaseline| there.dataset == card.name && there.data_sha256 == card.sha256;
            if TrivialBaseline::read(&self.folder)?.iter().any(is_same) {
                continue;
            }
            let begun = Instant::now();
            let bar = waiting_bar(format!("trivial baseline of {}", card.name));
            let computed = E::trivial_baselines(&E::of_seed(self.config, self.config.run.seed), dataset, interrupt);
            bar.finish_and_clear();
            let Some(computed) = computed? else { return Ok(false) };
            let seconds = begun.elapsed().as_secs_f64();
            tracing::info!("trivial baseline of {}: {seconds:.1} s", card.name);
            let mut all = TrivialBaseline::read(&self.folder)?;
            // Another command may have been faster.
            if all.iter().any(is_same) {
                continue;
            }
            all.retain(|there| there.dataset != card.name);
            all.extend(computed.into_iter().map(|baseline| TrivialBaseline {
                experiment: E::NAME.to_owned(),
                dataset: card.name.clone(),
                seconds,
                data_sha256: card.sha256.to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                code: provenance::here().code(),
                ..baseline
            }));
            all.iter().filter(|baseline| baseline.dataset == card.name).try_for_each(|baseline| self.draw_lines(baseline))?;
            TrivialBaseline::write(&self.folder, &all)?;
        }
        Ok(true)
    }

    /// Writes the scores of a trivial baseline on the development set as lines beside the curves that TensorBoard shows.
    fn draw_lines(&self, baseline: &TrivialBaseline) -> Result<(), ExperimentError> {
        let names: Vec<_> = baseline.dev.iter().map(|(name, value)| (format!("dev/{name}"), *value)).collect();
        if names.is_empty() {
            return Ok(());
        }
        let folder = self.folder.trivial_events((self.datasets.len() > 1).then_some(baseline.dataset.as_str()), &baseline.name);
        let values: Vec<_> = names.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        Ok(EventFile::constants(&folder, self.config.training.steps, &values).map_err(|source| FileError::write(folder, source))?)
    }

    /// Brings `results.json` up to date, also with the runs that other commands have finished. Draws the reports at the end of a command, and before it once in
    /// [`BETWEEN_REPORTS`].
    pub(super) fn derive(&self, is_end: bool) -> Result<(), ExperimentError> {
        let order = RunOrder {
            datasets: self.datasets.iter().map(|data| E::card(data).name).collect(),
            candidates: self.candidates.iter().map(|candidate| candidate.attention.name.clone()).collect(),
        };
        let mut finished = self.finished();
        let is_drawn = is_end || finished.drawn.elapsed() >= BETWEEN_REPORTS;
        finished.is_behind = !is_drawn;
        finished.results.derive(&order, |results| {
            if is_drawn {
                let report = self.report(results)?;
                report.write(&self.folder.report())?;
                report.write_page(&self.folder)?;
            }
            Ok::<(), ExperimentError>(())
        })?;
        if is_drawn {
            finished.drawn = Instant::now();
        }
        Ok(())
    }

    /// Prints the table of the results that are known.
    pub(super) fn show(&self) -> Result<(), ExperimentError> {
        print_line(self.report(&self.finished().results)?.terminal())?;
        self.twins.iter().try_for_each(print_line)?;
        print_line(format!("Report: {}, as a page: {}", self.folder.report().display(), self.folder.page().display()))
    }

    fn report<'r>(&self, results: &'r Results) -> Result<Report<'r>, ExperimentError> {
        report::<E>(results, (self.config, &self.folder), sections::<E>(self.datasets, &self.twins, &self.idle))
    }

    /// Shows what is finished, whoever did it, and refuses to take it for all if it is not.
    pub(super) fn merge(&self) -> Result<Completion, ExperimentError> {
        let runs = self.all()?;
        self.complete_trivial_baselines(&Interrupt::new())?;
        self.derive(true)?;
        self.show()?;
        let mut missing = Vec::new();
        for run in &runs {
            if !self.is_finished(run)? {
                let status = RunStatus::read(&run.folder.run_at(&run.candidate.attention.name, run.seed));
                missing.push(format!("{run} ({})", status.in_words()));
            }
        }
        if missing.is_empty() {
            return Ok(Completion::Finished);
        }
        let (count, all) = (missing.len(), runs.len());
        Err(ExperimentError::failure(format!(
            "{count} of the {all} runs are missing: {}; do them by the same command with --resume or --slurm in place of --merge",
            missing.join("; ")
        )))
    }
}

impl<E: Experiment> Run<'_, E> {
    /// The most steps that it takes.
    pub(super) fn steps(&self) -> u64 {
        if self.candidate.weights_of.is_some() {
            return 0;
        }
        self.candidate.config.training.steps.saturating_mul(sweep::count(&self.candidate.config))
    }
}

impl<E: Experiment> std::fmt::Display for Run<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, seed {}", self.candidate.attention.name, self.seed)
    }
}

/// What reports of a folder say beside its results.
pub(super) fn sections<E: Experiment>(datasets: &[E::Data], twins: &[String], idle: &[Remark]) -> Vec<Section> {
    let cards = datasets.iter().map(E::card);
    let descriptions: Vec<_> = cards.map(|card| format!("* {}: {}", card.name, card.description)).collect();
    let same = (!twins.is_empty()).then(|| Section { title: "The same model twice".to_owned(), body: twins.join("\n") });
    let sentences: Vec<_> = idle.iter().map(|remark| format!("* {}", remark.sentence)).collect();
    let idle = (!idle.is_empty()).then(|| Section { title: "Mechanisms that do nothing here".to_owned(), body: sentences.join("\n") });
    std::iter::once(Section { title: "Data".to_owned(), body: descriptions.join("\n") }).chain(same).chain(idle).collect()
}

/// The columns of reports: those of the experiment, and those of what a command asks for.
pub(super) fn columns<E: Experiment>(config: &Config<E>) -> Vec<MetricColumn> {
    let mut columns = E::columns();
    let width = MetricColumn::new(FEED_FORWARD_WIDTH, "d_ff")
        .digits(0)
        .defined_as("width of the feed-forward networks, by which sizes are matched");
    let rates = [
        MetricColumn::new(LEARNING_RATE, "best rate").digits(6).defined_as("the learning rate that was the best of those tried"),
        MetricColumn::new(RATES_TRIED, "rates tried").digits(0).defined_as("learning rates that were tried for the candidate"),
    ];
    let matched = config.run.match_parameters.map(|_| width);
    let tuned = config.training.tune.as_ref().map(|_| rates).into_iter().flatten();
    for column in matched.into_iter().chain(tuned) {
        if columns.iter().all(|known| known.name != column.name) {
            columns.push(column);
        }
    }
    columns
}

/// The report of the results of a folder.
pub(super) fn report<'r, E: Experiment>(
    results: &'r Results,
    (config, folder): (&Config<E>, &RunFolder),
    sections: Vec<Section>,
) -> Result<Report<'r>, ExperimentError> {
    let has_models = !config.run.models.is_empty() || results.records().iter().any(|record| record.is_model);
    let mut compared: BTreeSet<&str> = results.records().iter().map(|record| record.attention.as_str()).collect();
    compared.extend(config.run.models.iter().filter_map(|model| model.attention.as_deref()));
    Ok(Report {
        title: E::TITLE.to_owned(),
        subject: if has_models { "model" } else { "attention" },
        records: results.records(),
        metrics: columns::<E>(config),
        trivial: if config.run.trivial_baseline { TrivialBaseline::read(folder)? } else { Vec::new() },
        published: E::published().of(&compared),
        sections,
    })
}
