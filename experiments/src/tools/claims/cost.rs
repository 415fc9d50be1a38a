//! Costs that were measured in rounds: the `cost.json` and `rounds.json` of the blocks of costs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use heedful_host::rounds::{self, Rounds};
use heedful_metrics::significance::median_ratio;
use heedful_random::RandomKey;
use serde::Deserialize;

use super::claim::{Cost, Measured, NamedSeries, Timing};
use super::evidence::{ContenderScores, Evidence};
use super::ledger::Ledger;
use super::runs::{Reason, folder, waits_for};
use crate::session::error::ExperimentError;

/// The file that sweeps of `cost` leave in their folder.
const FILE: &str = "cost.json";
/// Processes that may run or wait on average before a measurement begins.
pub(super) const IDLE: f64 = 0.5;
/// The backend whose times are compared.
const BACKEND: &str = "flex";

/// What is read of a `cost.json`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Sweep {
    load: Option<f64>,
    points: Vec<Point>,
}

/// The seconds of a mechanism, round by round.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Point {
    backend: String,
    attention: String,
    pass: String,
    length: usize,
    /// Why there are none.
    missing: Option<String>,
    pub(super) seconds: Vec<f64>,
}

impl Sweep {
    /// Reads the file in a folder; `None` if there is none.
    ///
    /// # Errors
    /// A file that cannot be read or is none of `cost`.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, ExperimentError> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| ExperimentError::failure(format!("cannot read `{}`: {error}", path.display())))?,
        };
        let sweep = serde_json::from_str(&text);
        sweep.map(Some).map_err(|error| ExperimentError::failure(format!("`{}` is not a result of cost: {error}", path.display())))
    }

    /// What was measured of a mechanism on the backend whose times are compared.
    pub(super) fn point(&self, attention: &str, pass: &str, length: usize) -> Option<&Point> {
        let is_meant =
            |point: &&Point| (&*point.backend, &*point.attention, &*point.pass, point.length) == (BACKEND, attention, pass, length);
        self.points.iter().find(is_meant)
    }
}

/// Whether a folder holds measurements of costs.
pub(super) fn is_measured(folder: &Path) -> bool {
    [FILE, rounds::FILE].iter().any(|file| folder.join(file).exists())
}

/// What the folder of a part holds.
#[derive(Debug)]
struct Measurements {
    sweep: Option<Sweep>,
    rounds: Option<Rounds>,
}

/// The measurements of all blocks of costs, by block and part.
#[derive(Debug)]
pub(super) struct Costs(BTreeMap<(String, Option<String>), Measurements>);

impl Costs {
    /// Reads the measurements below `root`.
    ///
    /// # Errors
    /// A file that cannot be read or is no measurement.
    pub(super) fn read(ledger: &Ledger, root: &Path) -> Result<Self, ExperimentError> {
        let mut parts = BTreeMap::new();
        for block in ledger.blocks.iter().filter(|block| block.is_of_costs()) {
            for part in block.part_names() {
                let at = folder(root, block, part);
                let measurements = Measurements { sweep: Sweep::read(&at)?, rounds: Rounds::read(&at).map_err(ExperimentError::failure)? };
                parts.insert((block.name.clone(), part.map(str::to_owned)), measurements);
            }
        }
        Ok(Self(parts))
    }

    /// The ratio of two costs over rounds.
    pub(super) fn evidence(&self, ledger: &Ledger, cost: &Cost, key: &RandomKey) -> Result<Evidence, Reason> {
        let (Some(numerator), Some(denominator)) = (&cost.numerator, &cost.denominator) else {
            return Err(Reason::NotRun(waits_for(ledger, &cost.missing)));
        };
        let (above, below) = (self.values(numerator)?, self.values(denominator)?);
        let ratio = median_ratio(above, below, 0.95, 10_000, &key.named("rounds"));
        let ratio = ratio.ok_or_else(|| Reason::NotRun("the two costs have unequal numbers of rounds, or fewer than three".to_owned()))?;
        let scores = |(measured, values): (&Measured, &[f64])| match measured {
            Measured::Layer(Timing { attention, length, pass, .. }) => ContenderScores {
                label: format!("{attention}, {length} elements, {pass}"),
                values: values.iter().map(|seconds| 1e3 * seconds).collect(),
                unit: Some("ms".to_owned()),
                parameters: None,
            },
            Measured::Series(NamedSeries { series, unit, .. }) => {
                ContenderScores { label: series.clone(), values: values.to_vec(), unit: Some(unit.clone()), parameters: None }
            }
        };
        let what = match numerator {
            Measured::Series(NamedSeries { unit, .. }) if unit != "seconds" => unit.as_str(),
            _ => "times",
        };
        Ok(Evidence {
            value: ratio.value,
            unit: format!("ratio of {what}"),
            interval_95: ratio.interval,
            interval_99: None,
            p: None,
            every_seed: None,
            by_seed: Vec::new(),
            method: format!("median of the ratios of {} rounds in turn, bootstrap interval", ratio.rounds),
            welch: None,
            contenders: [(numerator, above), (denominator, below)].into_iter().map(scores).collect(),
        })
    }

    fn values(&self, measured: &Measured) -> Result<&[f64], Reason> {
        let (block, part) = (measured.block().to_owned(), measured.part().map(str::to_owned));
        let place = part.as_ref().map_or(block.clone(), |part| format!("{block}, {part}"));
        let found = self.0.get(&(block, part));
        let not_measured = || Reason::NotRun(format!("{place} has not been measured"));
        let is_of_idle_machine = |load: Option<f64>| match load {
            Some(load) if load <= IDLE => Ok(()),
            Some(load) => Err(Reason::Void(format!("{place} was measured beside other programs: {load:.2} processes ran before it"))),
            None => Err(Reason::Void(format!("{place} does not say whether the machine was idle"))),
        };
        match measured {
            Measured::Layer(Timing { attention, pass, length, .. }) => {
                let sweep = found.and_then(|found| found.sweep.as_ref()).ok_or_else(not_measured)?;
                is_of_idle_machine(sweep.load)?;
                let what = || format!("{place}: {attention} at {length}");
                match sweep.point(attention, pass, *length) {
                    Some(Point { missing: Some(reason), .. }) => Err(Reason::NotRun(format!("{}: {reason}", what()))),
                    Some(point) => Ok(&point.seconds),
                    None => Err(Reason::NotRun(format!("{} was not measured", what()))),
                }
            }
            Measured::Series(NamedSeries { series, unit, .. }) => {
                let rounds = found.and_then(|found| found.rounds.as_ref()).ok_or_else(not_measured)?;
                is_of_idle_machine(rounds.load)?;
                let is_meant = |other: &&rounds::Series| (&other.name, &other.unit) == (series, unit);
                let found = rounds.series.iter().find(is_meant);
                found.map(|found| &found.values[..]).ok_or_else(|| Reason::NotRun(format!("{place}: {series} was not measured in {unit}")))
            }
        }
    }
}
