//! Runs of another experiment that all runs of a command need.

use std::path::Path;

use burn::tensor::Device;
use heedful_backends::Backend;
use heedful_host::interrupt::Interrupt;
use heedful_runs::settings::Settings;

use super::candidate::candidates;
use super::plan::Plan;
use super::runs::Runs;
use super::session::Session;
use crate::session::error::{Completion, ExperimentError};
use crate::session::experiment::definition::{Config, Experiment, Prepare};
use crate::session::footprint::Memory;
use crate::session::jobs::Shard;
use crate::session::options::CommonOptions;
use crate::train::{Ranks, Watcher};

/// A command before the first of its runs.
#[derive(Debug)]
pub(super) struct Preparation<'a, E: Experiment> {
    pub(super) config: &'a Config<E>,
    pub(super) datasets: &'a [E::Data],
    pub(super) backend: Backend,
    pub(super) device: &'a Device,
    pub(super) watcher: Watcher,
    pub(super) interrupt: Interrupt,
    pub(super) shard: Option<Shard>,
    /// The output folder.
    pub(super) out: &'a Path,
    /// Whether the command only shows its plan.
    pub(super) is_dry: bool,
}

impl<E: Experiment> Prepare<E> for Preparation<'_, E> {
    fn config(&self) -> &Config<E> {
        self.config
    }

    fn datasets(&self) -> &[E::Data] {
        self.datasets
    }

    fn first<F: Experiment>(&self, config: Config<F>, datasets: &[F::Data], folder: &str) -> Result<Completion, ExperimentError> {
        let folder = &self.out.join(folder);
        let mut settings = Settings::of(config);
        let candidates = candidates::<F>(&mut settings, Memory::here())?;
        let config = settings.value;
        if self.is_dry {
            let plan =
                Plan::<F> { candidates: &candidates, datasets, backend: self.backend, device: self.device.clone(), jobs: 1, shard: None };
            plan.show(folder)?;
            return Ok(Completion::Finished);
        }
        let options = CommonOptions { out: Some(folder.to_owned()), resume: true, ..CommonOptions::default() };
        let runs = Runs::<F>::open(&options, &config, datasets, &candidates, self.backend)?;
        let mut is_finished = true;
        for run in runs.all()? {
            is_finished &= runs.is_finished(&run)?;
        }
        if is_finished {
            return Ok(Completion::Finished);
        }
        if let Some(shard) = self.shard {
            return Err(ExperimentError::usage(format!(
                "--shard {shard}: all runs begin with a model that is trained first, in `{}`; do that by a command without --shard, or name a finished one",
                folder.display()
            )));
        }
        let (watcher, interrupt, device, ranks) = (self.watcher.clone(), self.interrupt.clone(), self.device.clone(), Ranks::alone());
        // What is asked for is the table of the command.
        let is_shown = !matches!(watcher, Watcher::Nobody);
        Session { runs, device, interrupt, ranks: &ranks, watcher, is_resumed: true, is_shown, jobs: 1, shard: None }.run()
    }
}
