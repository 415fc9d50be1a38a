//! Costs that were measured in rounds: the `cost.json` of the blocks of costs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use heedful_attention::random::RandomKey;
use serde::Deserialize;

use super::claim::{Cost, Timing};
use super::evidence::{ContenderScores, Evidence};
use super::ledger::Ledger;
use super::runs::{Reason, folder, waits_for};
use crate::error::ExperimentError;
use crate::metrics::significance::median_ratio;

/// The file that `cost` leaves in its folder.
pub(super) const FILE: &str = "cost.json";
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

/// The measurements of all blocks of costs, by block and part.
#[derive(Debug)]
pub(super) struct Costs(BTreeMap<(String, Option<String>), Sweep>);

impl Costs {
    /// Reads the measurements below `root`.
    ///
    /// # Errors
    /// A file that cannot be read or is none of `cost`.
    pub(super) fn read(ledger: &Ledger, root: &Path) -> Result<Self, ExperimentError> {
        let mut sweeps = BTreeMap::new();
        for block in ledger.blocks.iter().filter(|block| block.is_of_costs()) {
            for part in block.part_names() {
                if let Some(sweep) = Sweep::read(&folder(root, block, part))? {
                    sweeps.insert((block.name.clone(), part.map(str::to_owned)), sweep);
                }
            }
        }
        Ok(Self(sweeps))
    }

    /// The ratio of two timings over rounds.
    pub(super) fn evidence(&self, ledger: &Ledger, cost: &Cost, key: &RandomKey) -> Result<Evidence, Reason> {
        let (Some(numerator), Some(denominator)) = (&cost.numerator, &cost.denominator) else {
            return Err(Reason::NotRun(waits_for(ledger, &cost.missing)));
        };
        let (above, below) = (self.seconds(numerator)?, self.seconds(denominator)?);
        let ratio = median_ratio(above, below, 0.95, 10_000, &key.named("rounds"));
        let ratio =
            ratio.ok_or_else(|| Reason::NotRun("the two timings have unequal numbers of rounds, or fewer than three".to_owned()))?;
        let scores = |(timing, seconds): (&Timing, &[f64])| ContenderScores {
            label: format!("{}, {} elements, {}", timing.attention, timing.length, timing.pass),
            values: seconds.iter().map(|seconds| 1e3 * seconds).collect(),
            parameters: None,
        };
        Ok(Evidence {
            value: ratio.value,
            unit: "ratio of times".to_owned(),
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

    fn seconds(&self, timing: &Timing) -> Result<&[f64], Reason> {
        let place = timing.part.as_ref().map_or(timing.block.clone(), |part| format!("{}, {part}", timing.block));
        let sweep = self.0.get(&(timing.block.clone(), timing.part.clone()));
        let sweep = sweep.ok_or_else(|| Reason::NotRun(format!("{place} has not been measured")))?;
        match sweep.load {
            Some(load) if load <= IDLE => {}
            Some(load) => {
                return Err(Reason::Void(format!("{place} was measured beside other programs: {load:.2} processes ran before it")));
            }
            None => return Err(Reason::Void(format!("{place} does not say whether the machine was idle"))),
        }
        let what = || format!("{place}: {} at {}", timing.attention, timing.length);
        match sweep.point(&timing.attention, &timing.pass, timing.length) {
            Some(Point { missing: Some(reason), .. }) => Err(Reason::NotRun(format!("{}: {reason}", what()))),
            Some(point) => Ok(&point.seconds),
            None => Err(Reason::NotRun(format!("{} was not measured", what()))),
        }
    }
}
