//! Which models are measured, and how often.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use heedful_host::command::command_line;
use heedful_host::display::distinct;
use heedful_host::machine::{Machine, load};
use heedful_host::names::listed;
use heedful_host::rounds::{Rounds, Series};
use heedful_runs::results::Results;
use heedful_runs::run_folder::RunFolder;

use crate::session::comparison::{Reloaded, reload};
use crate::session::error::{ExperimentError, print_line};
use crate::session::experiment::Experiment;
use crate::session::provenance;

/// Processes that run or wait on average beyond which the machine is busy.
const BUSY: f64 = 0.5;

/// Which models are measured, and how often.
#[derive(Args, Clone, Debug)]
pub struct ModelOptions {
    /// Output folder of a finished command, such as runs/lm
    pub run: PathBuf,

    /// Attentions or models of the run [default: all]
    #[arg(long, value_name = "NAME[,NAME...]")]
    pub attention: Vec<String>,

    /// Seed of the runs [default: the first]
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,

    /// Rounds; in each, every model is measured once, in turn
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = positive())]
    pub rounds: usize,

    /// Folder for rounds.json and rounds.md
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

pub(super) fn positive() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

impl ModelOptions {
    /// The models, which are runs of the experiment `E`.
    ///
    /// # Errors
    /// A usage error for runs of another experiment, or those that are not there.
    pub(super) fn models<E: Experiment>(&self) -> Result<Vec<Reloaded<E>>, ExperimentError> {
        let results = Results::read(&RunFolder::at(&self.run))?;
        let records = results.records();
        let place = self.run.display();
        match records.first() {
            None => return Err(ExperimentError::usage(format!("`{place}` has no finished run; give the output folder of `{}`", E::NAME))),
            Some(record) if record.experiment != E::NAME => {
                return Err(ExperimentError::usage(format!(
                    "`{place}` is a run of {}; this is measured of `{}`",
                    record.experiment,
                    E::NAME
                )));
            }
            Some(_) => {}
        }
        let named: Vec<String> = self.attention.iter().flat_map(|text| listed(text)).map(str::to_owned).collect();
        let names = if named.is_empty() { records.iter().map(|record| record.attention.clone()).collect() } else { named };
        distinct(names.into_iter()).iter().map(|name| reload::<E>(&self.run, (Some(name), self.seed, None), &Device::flex())).collect()
    }

    /// Shows what `measure` found, and writes it.
    pub(super) fn measured(
        &self,
        about: &str,
        measure: impl FnOnce() -> Result<Vec<Series>, ExperimentError>,
    ) -> Result<(), ExperimentError> {
        // Before anything here adds to it.
        let load = load();
        if let Some(load) = load.filter(|&load| load > BUSY) {
            tracing::warn!("the machine is busy (load {load:.1}): what is measured now is not worth keeping");
        }
        let rounds = Rounds {
            command: command_line(),
            about: about.to_owned(),
            machine: Machine::here(),
            load,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            provenance: Some(provenance::here()),
            series: measure()?,
        };
        print_line(rounds.table())?;
        match &self.out {
            Some(folder) => rounds.write(folder).map_err(ExperimentError::failure),
            None => Ok(()),
        }
    }
}
