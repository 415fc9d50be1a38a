//! The smoke subset: small runs of built-in data whose known effects must still show. It is no verdict on any claim.

use std::path::Path;
use std::process::Command;

use heedful_host::interrupt::Interrupt;
use heedful_metrics::significance::median_ratio;
use heedful_random::RandomKey;
use heedful_runs::markup::aligned;
use heedful_runs::record::ResultRecord;
use heedful_runs::results::Results;
use heedful_runs::run_folder::RunFolder;
use serde::Deserialize;
use toml::{Table, Value};

use super::block::{Block, COST};
use super::cost::Sweep;
use super::error::LedgerError;
use super::ledger::{SMOKE, read};
use super::programs::Program;
use super::running::{RunOptions, configured, is_interrupted};
use crate::session::error::{Completion, ExperimentError, print_line};

const TEXT: &str = include_str!("../../../claims/smoke.toml");

/// The smoke subset, as its file says it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smoke {
    /// Its runs, in their order.
    #[serde(rename = "run")]
    pub runs: Vec<SmokeRun>,
}

/// A command and what must show in its results.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmokeRun {
    /// Its name, that of its folder.
    pub name: String,
    /// The experiment, as for [`Block`].
    pub experiment: String,
    /// About how long it takes on one thread, in minutes.
    pub minutes: f64,
    /// The configuration.
    #[serde(default)]
    pub config: Table,
    /// Options of `cost`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// What must show.
    #[serde(rename = "check")]
    pub checks: Vec<Check>,
}

/// Bounds of a score, of a difference of two, or of a ratio of times.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Attention or model by name.
    pub contender: String,
    /// The score; of costs the length.
    pub metric: Value,
    /// What is subtracted; of costs, what it is divided by.
    #[serde(default)]
    pub less: Option<String>,
    /// Factor of the scores.
    #[serde(default)]
    pub scale: Option<f64>,
    /// The least value.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// The greatest value.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// The value of the run that the bounds were chosen by.
    pub committed: f64,
}

impl Smoke {
    /// The subset of this program.
    ///
    /// # Errors
    /// [`LedgerError`]; tests ensure that there is none.
    pub fn built_in() -> Result<Self, LedgerError> {
        read(SMOKE, TEXT)
    }

    /// Checks what can be checked without running.
    ///
    /// # Errors
    /// [`LedgerError::Content`].
    pub fn check(&self) -> Result<(), LedgerError> {
        for run in &self.runs {
            let refuse = |problem: String| Err(LedgerError::content(SMOKE, format!("{}: {problem}", run.name)));
            if run.checks.iter().any(|check| check.at_least.is_none() && check.at_most.is_none()) {
                return refuse("a check has no bound".to_owned());
            }
            if let Some(check) = run.checks.iter().find(|check| !check.admits(check.committed)) {
                return refuse(format!("the bounds of {} leave out {}", check.contender, check.committed));
            }
            if run.experiment == COST {
                continue;
            }
            let list = run.block().runs(None)?;
            for Check { contender, metric, less, .. } in &run.checks {
                if let Some(unknown) = [Some(contender), less.as_ref()].into_iter().flatten().find(|name| list.contender(name).is_none()) {
                    return refuse(format!("it runs no `{unknown}`"));
                }
                if !list.metrics.iter().any(|known| metric.as_str() == Some(known.name.as_str())) {
                    return refuse(format!("there is no score {metric}"));
                }
            }
        }
        Ok(())
    }

    /// Runs everything into `out`, one after another, and reports which known effects show.
    ///
    /// # Errors
    /// A program that is missing or fails, and bounds that do not hold.
    pub fn run(&self, out: &Path, resume: bool, interrupt: &Interrupt) -> Result<Completion, ExperimentError> {
        let mut rows = vec![["run", "contender", "score", "value", "bounds", "committed", ""].map(str::to_owned).to_vec()];
        let mut failures = 0;
        for run in &self.runs {
            if interrupt.is_raised() {
                return Ok(Completion::Interrupted);
            }
            let at = out.join(&run.name);
            let status = run.command(out, &at, resume)?.status();
            let status = status.map_err(|error| ExperimentError::failure(format!("cannot start the run {}: {error}", run.name)))?;
            if is_interrupted(status) {
                return Ok(Completion::Interrupted);
            }
            if !status.success() {
                return Err(ExperimentError::failure(format!("the smoke run {} failed; why is said above", run.name)));
            }
            let values = run.values(&at)?;
            for (check, value) in run.checks.iter().zip(values) {
                let holds = check.admits(value);
                failures += usize::from(!holds);
                let name = check.less.as_ref().map_or(check.contender.clone(), |less| {
                    format!("{} {} {less}", check.contender, if run.experiment == COST { "by" } else { "less" })
                });
                let metric = check.metric.as_str().map_or_else(|| check.metric.to_string(), str::to_owned);
                let verdict = if holds { "holds" } else { "DOES NOT HOLD" };
                rows.push(vec![
                    run.name.clone(),
                    name,
                    metric,
                    format!("{value:.3}"),
                    check.bounds(),
                    check.committed.to_string(),
                    verdict.to_owned(),
                ]);
            }
        }
        print_line(aligned(&rows))?;
        match failures {
            0 => Ok(Completion::Finished),
            count => Err(ExperimentError::failure(format!("{count} of {} known effects do not show", rows.len() - 1))),
        }
    }
}

impl SmokeRun {
    /// The same as a block, with one seed.
    fn block(&self) -> Block {
        let Self { name, experiment, minutes, config, .. } = self.clone();
        let title = "smoke".to_owned();
        Block {
            name,
            title,
            experiment,
            data: None,
            pretrained: None,
            seeds: 1,
            minutes,
            order: 0,
            preset_rate: None,
            missing: Vec::new(),
            config,
            parts: Vec::new(),
        }
    }

    fn command(&self, out: &Path, at: &Path, resume: bool) -> Result<Command, ExperimentError> {
        let block = self.block();
        let mut command = if self.experiment == COST {
            let mut command = Program::own()?.command(&[COST.to_owned()])?;
            command.args(&self.arguments).arg("--out").arg(at);
            command
        } else {
            let options = RunOptions { out: out.to_owned(), resume, ..RunOptions::default() };
            configured(&block, &self.name, &block.configuration(None), at, &options)?
        };
        // Times of several threads depend on what else runs; scores do not.
        command.env("RAYON_NUM_THREADS", "1");
        Ok(command)
    }

    /// The value of each check.
    fn values(&self, at: &Path) -> Result<Vec<f64>, ExperimentError> {
        if self.experiment == COST {
            return self.checks.iter().map(|check| ratio(at, check)).collect();
        }
        let results = Results::read(&RunFolder::at(at))?;
        let score = |name: &str, check: &Check| {
            let record = results.records().iter().find(|record: &&ResultRecord| record.attention == name);
            let value = record.and_then(|record| record.metric(check.metric.as_str()?)).flatten();
            value.map_or(f64::NAN, |value| check.scale.unwrap_or(1.0) * value)
        };
        let value = |check: &Check| score(&check.contender, check) - check.less.as_ref().map_or(0.0, |less| score(less, check));
        Ok(self.checks.iter().map(value).collect())
    }
}

impl Check {
    fn admits(&self, value: f64) -> bool {
        !value.is_nan() && self.at_least.is_none_or(|bound| value >= bound) && self.at_most.is_none_or(|bound| value <= bound)
    }

    fn bounds(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (Some(least), None) => format!("at least {least}"),
            (None, Some(most)) => format!("at most {most}"),
            (None, None) => String::new(),
        }
    }
}

/// A ratio of times in training, from the `cost.json` of a folder.
fn ratio(at: &Path, check: &Check) -> Result<f64, ExperimentError> {
    let unusable = |problem: String| ExperimentError::failure(format!("`{}` cannot be used: {problem}", at.display()));
    let sweep = Sweep::read(at)?.ok_or_else(|| unusable("it has no measurement of costs".to_owned()))?;
    let length = check.metric.as_integer().and_then(|length| usize::try_from(length).ok());
    let seconds = |attention: &str| {
        let point = length.and_then(|length| sweep.point(attention, "training", length));
        point.map(|point| &point.seconds[..]).ok_or_else(|| unusable(format!("there is no time of {attention}")))
    };
    let Some(less) = &check.less else { return Err(unusable("a check of costs divides by another mechanism".to_owned())) };
    let key = RandomKey::from_seed(0);
    let ratio = median_ratio(seconds(&check.contender)?, seconds(less)?, 0.95, 1, &key);
    Ok(ratio.ok_or_else(|| unusable("fewer than three rounds".to_owned()))?.value)
}
