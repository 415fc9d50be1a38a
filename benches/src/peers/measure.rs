//! Times and peaks of the candidates of a case.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use heedful_host::machine::available_memory;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

use super::plan::{Candidate, Case, operator};
use super::side::{Maker, Side, SideError, Sides};
use super::work::Work;
use crate::cost::estimate;
use crate::markdown::significant;
use crate::statistics::{Quartiles, ratios};
use crate::workload::Sizes;

/// How the times are taken.
#[derive(Clone, Debug)]
pub struct Alternation {
    /// The processes.
    pub sides: Sides,
    /// Rounds of a case: each runs every candidate once.
    pub rounds: usize,
    /// Time after which a case has no further round, if it had three.
    pub budget: Duration,
    /// Whether peaks are measured.
    pub has_peaks: bool,
    /// Bytes beyond which layers are left out; none for what is available.
    pub most_bytes: Option<u64>,
}

/// The result of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The size in words.
    pub name: String,
    /// Length of a sequence.
    pub length: usize,
    /// Tokens of a run, all rows together.
    pub tokens: usize,
    /// Of each candidate.
    pub measurements: Vec<Measurement>,
}

/// The result of one candidate of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Who, in words.
    pub name: String,
    /// The candidate that it is compared with.
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

    /// Times of one candidate over those of another, round by round.
    pub fn time_ratios(&self, name: &str, baseline: &str) -> Option<Quartiles> {
        Quartiles::of(&ratios(&self.find(name)?.seconds, &self.find(baseline)?.seconds))
    }

    /// Peak of one candidate over that of another.
    pub fn peak_ratio(&self, name: &str, baseline: &str) -> Option<f64> {
        Some(self.find(name)?.peak_bytes? as f64 / self.find(baseline)?.peak_bytes? as f64)
    }
}

impl Alternation {
    /// Rounds that a case has whatever they cost.
    const LEAST_ROUNDS: usize = 3;
    /// Runs of each candidate before the first round; one of more seconds than [`LONG_RUN`](Self::LONG_RUN) is enough.
    const WARM_UP_RUNS: usize = 2;
    const LONG_RUN: f64 = 1.0;
    /// Rest before each run: threads of the other side may look for work some time after theirs is done.
    const PAUSE: Duration = Duration::from_millis(30);

    /// Measures the candidates of a case.
    pub fn measure(&self, case: &Case, progress: &ProgressBar) -> CaseResult {
        let mut case = case.clone();
        for candidate in case.candidates.iter_mut().filter(|candidate| candidate.left_out.is_none()) {
            progress.set_message(format!("{}: memory for {}", case.name, candidate.name));
            candidate.left_out = self.too_large(candidate);
        }
        let case = &case;
        let mut measurements = if case.is_timed {
            self.times(case, progress)
        } else {
            let blank = |candidate: &Candidate| measurement(candidate, candidate.left_out.clone().map_or_else(|| Ok(Vec::new()), Err));
            case.candidates.iter().map(blank).collect()
        };
        for (candidate, measurement) in case.candidates.iter().zip(&mut measurements) {
            if self.has_peaks && candidate.has_peak && measurement.missing.is_none() {
                progress.set_message(format!("{}: peak of {}", case.name, candidate.name));
                match self.peak(candidate.maker, &candidate.work) {
                    Ok(peak) => measurement.peak_bytes = peak,
                    Err(error) => measurement.missing = Some(error.to_string()),
                }
            }
        }
        let operators: Vec<_> = case.candidates.iter().filter_map(|candidate| without_projections(candidate, &measurements)).collect();
        measurements.extend(operators);
        CaseResult { name: case.name.clone(), length: case.length, tokens: case.tokens, measurements }
    }

    /// Why a layer is left out that would take more memory than there is, as far as the system tells.
    fn too_large(&self, candidate: &Candidate) -> Option<String> {
        let (sizes, limit) = (candidate.work.layer_sizes()?, self.memory()?);
        if estimate::fits(sizes, limit) {
            return None;
        }
        let peak = |small: Sizes| self.peak(candidate.maker, &candidate.work.clone().with_layer_sizes(small)).ok().flatten();
        let bytes = estimate::bytes(sizes, peak, limit).filter(|&bytes| bytes > limit)?;
        let which = if self.most_bytes == Some(limit) { "allowed" } else { "available" };
        let [bytes, limit] = [bytes, limit].map(|bytes| significant(bytes as f64 / f64::from(1 << 30)));
        Some(format!("left out: about {bytes} GiB, and {limit} GiB are {which}; give shorter --lengths or a smaller batch"))
    }

    /// Bytes that the sides may take.
    fn memory(&self) -> Option<u64> {
        available_memory().into_iter().chain(self.most_bytes).min()
    }

    fn times(&self, case: &Case, progress: &ProgressBar) -> Vec<Measurement> {
        let mut sides = BTreeMap::new();
        let mut results: Vec<Result<Vec<f64>, String>> = Vec::new();
        for (id, candidate) in case.candidates.iter().enumerate() {
            progress.set_message(format!("{}: {}", case.name, candidate.name));
            results.push(match &candidate.left_out {
                Some(reason) => Err(reason.clone()),
                None => self.warm_up(id, candidate, &mut sides).map(|()| Vec::new()).map_err(|error| error.to_string()),
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
                let (Ok(seconds), Some(side)) = (&mut results[id], sides.get_mut(&case.candidates[id].maker)) else { continue };
                thread::sleep(Self::PAUSE);
                match side.run(id) {
                    Ok(spent) => seconds.push(spent),
                    Err(error) => results[id] = Err(error.to_string()),
                }
            }
        }
        case.candidates.iter().zip(results).map(|(candidate, result)| measurement(candidate, result)).collect()
    }

    fn warm_up(&self, id: usize, candidate: &Candidate, sides: &mut BTreeMap<Maker, Side>) -> Result<(), SideError> {
        let side = match sides.entry(candidate.maker) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert(self.sides.start(candidate.maker)?),
        };
        side.prepare(id, &candidate.work)?;
        for _ in 0..Self::WARM_UP_RUNS {
            if side.run(id)? > Self::LONG_RUN {
                break;
            }
        }
        Ok(())
    }

    /// Growth of the resident memory of a process that does nothing else; `None` where the system does not report it.
    fn peak(&self, maker: Maker, work: &Work) -> Result<Option<u64>, SideError> {
        let mut side = self.sides.start(maker)?;
        // What code and threads take is there before.
        side.prepare(0, &work.tiny())?;
        side.run(0)?;
        side.forget(0)?;
        let Some(before) = side.reset_peak() else { return Ok(None) };
        side.prepare(1, work)?;
        // The second step of an optimiser is the first that has all of its state.
        side.run(1)?;
        side.run(1)?;
        Ok(side.peak_growth(before))
    }
}

/// The seconds of a candidate, or why there are none.
fn measurement(candidate: &Candidate, result: Result<Vec<f64>, String>) -> Measurement {
    let (seconds, missing) = result.map_or_else(|reason| (Vec::new(), Some(reason)), |seconds| (seconds, None));
    Measurement { name: candidate.name.clone(), baseline: candidate.baseline.clone(), seconds, peak_bytes: None, missing }
}

/// The time of a candidate less that of its projections, round by round.
fn without_projections(candidate: &Candidate, measurements: &[Measurement]) -> Option<Measurement> {
    let find = |name: &str| measurements.iter().find(|measurement| measurement.name == name);
    let layer = find(&candidate.name)?;
    let projections = find(candidate.projections.as_ref()?)?;
    let seconds: Vec<f64> = layer.seconds.iter().zip(&projections.seconds).map(|(layer, projections)| layer - projections).collect();
    let baseline = candidate.baseline.as_deref().map(operator);
    (!seconds.is_empty()).then(|| Measurement { name: operator(&candidate.name), baseline, seconds, ..Measurement::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_is_the_layer_less_the_projections_of_the_same_round() {
        let sizes = Sizes { batch: 1, length: 8, d_model: 8, heads: 2, kv_heads: None };
        let candidate = Candidate {
            name: "ours".into(),
            maker: Maker::Heedful,
            work: Work::Projections { count: 2, sizes, training: true },
            baseline: Some("theirs".into()),
            projections: Some("maps".into()),
            has_peak: false,
            left_out: None,
        };
        let measured = |name: &str, seconds: &[f64]| Measurement { name: name.into(), seconds: seconds.into(), ..Measurement::default() };
        let found = without_projections(&candidate, &[measured("ours", &[3.0, 5.0]), measured("maps", &[1.0, 2.0])]).unwrap();
        assert_eq!((found.name.as_str(), found.baseline.as_deref()), ("ours, operator", Some("theirs, operator")));
        assert_eq!(found.seconds, [2.0, 3.0]);
        assert_eq!(without_projections(&candidate, &[measured("ours", &[]), measured("maps", &[1.0])]), None);
    }
}
