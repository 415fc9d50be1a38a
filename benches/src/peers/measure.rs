//! Times and peaks of the contenders of a case.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use super::plan::{Case, Contender, operator};
use super::side::{Maker, Side, SideError, Sides};
use crate::statistics::{Quartiles, ratios};

/// How the times are taken.
#[derive(Clone, Debug)]
pub struct Alternation {
    /// The processes.
    pub sides: Sides,
    /// Rounds of a case: each runs every contender once.
    pub rounds: usize,
    /// Time after which a case has no further round, if it had three.
    pub budget: Duration,
    /// Whether peaks are measured.
    pub has_peaks: bool,
}

/// What a case came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The size in words.
    pub name: String,
    /// Length of a sequence.
    pub length: usize,
    /// Tokens of a run, all rows together.
    pub tokens: usize,
    /// Of each contender.
    pub measurements: Vec<Measurement>,
}

/// What one contender of a case came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Who, in words.
    pub name: String,
    /// The contender that it is compared with.
    pub baseline: Option<String>,
    /// Seconds of its run in each round.
    pub seconds: Vec<f64>,
    /// Growth of the resident memory of a process that does nothing else, from before the work is built to the peak of its second run, in bytes.
    pub peak_bytes: Option<u64>,
    /// Why there are no times.
    pub missing: Option<String>,
}

impl CaseResult {
    /// The measurement of this name.
    pub fn find(&self, name: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| measurement.name == name)
    }

    /// Times of one contender over those of another, round by round.
    pub fn time_ratios(&self, name: &str, baseline: &str) -> Option<Quartiles> {
        Quartiles::of(&ratios(&self.find(name)?.seconds, &self.find(baseline)?.seconds))
    }

    /// Peak of one contender over that of another.
    pub fn peak_ratio(&self, name: &str, baseline: &str) -> Option<f64> {
        Some(self.find(name)?.peak_bytes? as f64 / self.find(baseline)?.peak_bytes? as f64)
    }
}

impl Alternation {
    /// Rounds that a case has whatever they cost.
    const LEAST_ROUNDS: usize = 3;
    /// Runs of each contender before the first round; one of more seconds than [`LONG_RUN`](Self::LONG_RUN) is enough.
    const WARM_UP_RUNS: usize = 2;
    const LONG_RUN: f64 = 1.0;
    /// Rest before each run: threads of the other side may look for work some time after theirs is done.
    const PAUSE: Duration = Duration::from_millis(30);

    /// Measures the contenders of a case.
    pub fn measure(&self, case: &Case, progress: &ProgressBar) -> CaseResult {
        let mut measurements = if case.is_timed {
            self.times(case, progress)
        } else {
            case.contenders.iter().map(|contender| measurement(contender, Ok(Vec::new()))).collect()
        };
        for (contender, measurement) in case.contenders.iter().zip(&mut measurements) {
            if self.has_peaks && contender.has_peak && measurement.missing.is_none() {
                progress.set_message(format!("{}: peak of {}", case.name, contender.name));
                match self.peak(contender) {
                    Ok(peak) => measurement.peak_bytes = peak,
                    Err(error) => measurement.missing = Some(error.to_string()),
                }
            }
        }
        let operators: Vec<_> = case.contenders.iter().filter_map(|contender| without_projections(contender, &measurements)).collect();
        measurements.extend(operators);
        CaseResult { name: case.name.clone(), length: case.length, tokens: case.tokens, measurements }
    }

    fn times(&self, case: &Case, progress: &ProgressBar) -> Vec<Measurement> {
        let mut sides = BTreeMap::new();
        let mut results: Vec<Result<Vec<f64>, String>> = Vec::new();
        for (id, contender) in case.contenders.iter().enumerate() {
            progress.set_message(format!("{}: {}", case.name, contender.name));
            results.push(match &contender.left_out {
                Some(reason) => Err(reason.clone()),
                None => self.warm_up(id, contender, &mut sides).map(|()| Vec::new()).map_err(|error| error.to_string()),
            });
        }
        let begun = Instant::now();
        for round in 0..self.rounds {
            if round >= Self::LEAST_ROUNDS && begun.elapsed() > self.budget {
                break;
            }
            progress.set_message(format!("{}: round {} of {}", case.name, round + 1, self.rounds));
            let mut order: Vec<usize> = (0..results.len()).collect();
            // Every second round is reversed, so that none always follows the same other.
            if round % 2 == 1 {
                order.reverse();
            }
            for id in order {
                let (Ok(seconds), Some(side)) = (&mut results[id], sides.get_mut(&case.contenders[id].maker)) else { continue };
                thread::sleep(Self::PAUSE);
                match side.run(id) {
                    Ok(spent) => seconds.push(spent),
                    Err(error) => results[id] = Err(error.to_string()),
                }
            }
        }
        case.contenders.iter().zip(results).map(|(contender, result)| measurement(contender, result)).collect()
    }

    fn warm_up(&self, id: usize, contender: &Contender, sides: &mut BTreeMap<Maker, Side>) -> Result<(), SideError> {
        let side = match sides.entry(contender.maker) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert(self.sides.start(contender.maker)?),
        };
        side.prepare(id, &contender.work)?;
        for _ in 0..Self::WARM_UP_RUNS {
            if side.run(id)? > Self::LONG_RUN {
                break;
            }
        }
        Ok(())
    }

    /// Growth of the resident memory of a process that does nothing else, none where the system does not tell.
    fn peak(&self, contender: &Contender) -> Result<Option<u64>, SideError> {
        let mut side = self.sides.start(contender.maker)?;
        // What code and threads take is there before.
        side.prepare(0, &contender.work.tiny())?;
        side.run(0)?;
        side.forget(0)?;
        let Some(before) = side.reset_peak() else { return Ok(None) };
        side.prepare(1, &contender.work)?;
        // The second step of an optimiser is the first that has all of its state.
        side.run(1)?;
        side.run(1)?;
        Ok(side.peak_growth(before))
    }
}

/// The seconds of a contender, or why there are none.
fn measurement(contender: &Contender, result: Result<Vec<f64>, String>) -> Measurement {
    let (seconds, missing) = result.map_or_else(|reason| (Vec::new(), Some(reason)), |seconds| (seconds, None));
    Measurement { name: contender.name.clone(), baseline: contender.baseline.clone(), seconds, peak_bytes: None, missing }
}

/// The time of a contender less that of its projections, round by round.
fn without_projections(contender: &Contender, measurements: &[Measurement]) -> Option<Measurement> {
    let find = |name: &str| measurements.iter().find(|measurement| measurement.name == name);
    let layer = find(&contender.name)?;
    let projections = find(contender.projections.as_ref()?)?;
    let seconds: Vec<f64> = layer.seconds.iter().zip(&projections.seconds).map(|(layer, projections)| layer - projections).collect();
    let baseline = contender.baseline.as_deref().map(operator);
    (!seconds.is_empty()).then(|| Measurement { name: operator(&contender.name), baseline, seconds, ..Measurement::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::work::Work;
    use crate::workload::Sizes;

    #[test]
    fn the_operator_is_the_layer_less_the_projections_of_the_same_round() {
        let sizes = Sizes { batch: 1, length: 8, d_model: 8, heads: 2 };
        let contender = Contender {
            name: "ours".into(),
            maker: Maker::Heedful,
            work: Work::Projections { count: 2, sizes, training: true },
            baseline: Some("theirs".into()),
            projections: Some("maps".into()),
            has_peak: false,
            left_out: None,
        };
        let measured = |name: &str, seconds: &[f64]| Measurement { name: name.into(), seconds: seconds.into(), ..Measurement::default() };
        let found = without_projections(&contender, &[measured("ours", &[3.0, 5.0]), measured("maps", &[1.0, 2.0])]).unwrap();
        assert_eq!((found.name.as_str(), found.baseline.as_deref()), ("ours, operator", Some("theirs, operator")));
        assert_eq!(found.seconds, [2.0, 3.0]);
        assert_eq!(without_projections(&contender, &[measured("ours", &[]), measured("maps", &[1.0])]), None);
    }
}
