//! A run that tries several learning rates and keeps the best model.
//!
//! Each rate is trained in a folder of its own, `rates/RUN-rate-R`, from the same initial weights and in the same order of batches, and resumed as any run is.
//! The best by development score moves to the place of a run without trials; the folders of the others stay.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use heedful_host::whole_files::FileError;
use heedful_runs::record::{LEARNING_RATE, RATES_NEAR_BEST, RATES_TRIED, ResultRecord};
use heedful_runs::run_folder::RATES;

use crate::session::experiment::definition::{Config, Experiment};
use crate::train::{Selection, TrainedModel, TrainingConfig, TrainingError};

/// A rate is near the best one if its development score is at least so much of that of the best.
const NEAR: f64 = 0.9;

/// One training of a run.
pub(super) struct Attempt {
    pub(super) training: TrainingConfig,
    pub(super) folder: PathBuf,
    /// Which of the rates; none if none are tried.
    pub(super) rate: Option<usize>,
}

/// The trainings of a run in the folder `root`: one for each rate, or one.
pub(super) fn attempts<E: Experiment>(config: &Config<E>, root: &Path) -> Vec<Attempt> {
    let run = root.file_name().unwrap_or_default().to_string_lossy();
    let of_rate = |(rate, learning_rate): (usize, f64)| Attempt {
        training: TrainingConfig { learning_rate, ..config.training.clone() },
        folder: root.join(RATES).join(format!("{run}-rate-{learning_rate}")),
        rate: Some(rate),
    };
    let tried: Vec<Attempt> = config.training.learning_rates.iter().copied().enumerate().map(of_rate).collect();
    if tried.is_empty() { vec![Attempt { training: config.training.clone(), folder: root.to_owned(), rate: None }] } else { tried }
}

/// How often a run trains.
pub(super) fn count<E: Experiment>(config: &Config<E>) -> u64 {
    config.training.learning_rates.len().max(1) as u64
}

/// What the trainings of a run came to so far.
pub(super) struct Sweep<M> {
    selection: Selection,
    /// Learning rate and development score, which one that diverged has none of.
    tried: Vec<(f64, Option<f64>)>,
    /// Number of the best training and what it made.
    best: Option<(usize, TrainedModel<M>)>,
    wall_seconds: f64,
    disturbed: bool,
}

impl<M> Sweep<M> {
    pub(super) fn new(selection: Selection) -> Self {
        Self { selection, tried: Vec::new(), best: None, wall_seconds: 0.0, disturbed: false }
    }

    /// A training was finished.
    pub(super) fn finished(&mut self, learning_rate: f64, trained: TrainedModel<M>) {
        let score = trained.metrics.iter().find(|metric| metric.name == self.selection.metric).map(|metric| metric.value);
        self.wall_seconds += trained.wall_seconds;
        self.disturbed |= trained.disturbed;
        let best = self.best.as_ref().and_then(|(index, _)| self.tried[*index].1).filter(|best| !best.is_nan());
        if self.best.is_none() || score.is_some_and(|score| self.selection.improves(score, best)) {
            self.best = Some((self.tried.len(), trained));
        }
        self.tried.push((learning_rate, score));
    }

    /// The loss or the weights of a training ceased to be numbers after so many seconds.
    pub(super) fn diverged(&mut self, learning_rate: f64, wall_seconds: f64, disturbed: bool) {
        self.wall_seconds += wall_seconds;
        self.disturbed |= disturbed;
        self.tried.push((learning_rate, None));
    }

    /// Learning rate and development score of each training, in their order.
    pub(super) fn tried(&self) -> &[(f64, Option<f64>)] {
        &self.tried
    }

    /// What the best training made, if any was finished.
    pub(super) fn best(&self) -> Option<(usize, &TrainedModel<M>)> {
        self.best.as_ref().map(|(index, trained)| (*index, trained))
    }

    /// Writes down what all trainings took.
    pub(super) fn record(&self, record: &mut ResultRecord) {
        record.wall_seconds = self.wall_seconds;
        record.disturbed |= self.disturbed;
    }

    /// Writes down which rates were tried and how they scored.
    pub(super) fn record_rates(&self, record: &mut ResultRecord) {
        let best = self.best().map(|(index, _)| self.tried[index]);
        match best {
            Some((rate, _)) => record.score(LEARNING_RATE, rate),
            None => record.score_undefined(LEARNING_RATE, "all that were tried diverged"),
        }
        record.score(RATES_TRIED, self.tried.len() as f64);
        let is_near = |score: f64| match best.and_then(|(_, best)| best) {
            Some(best) if self.selection.higher_is_better => score >= NEAR * best,
            Some(best) => score * NEAR <= best,
            None => false,
        };
        record.score(RATES_NEAR_BEST, self.tried.iter().filter(|(_, score)| score.is_some_and(is_near)).count() as f64);
        let count = self.tried.len();
        record.notes.push(match best {
            Some(_) => format!(
                "{count} learning rates were tried and the best by {} on the development set was kept ({})",
                self.selection.metric,
                told(&self.tried)
            ),
            None => format!("{count} learning rates were tried and none was kept ({})", told(&self.tried)),
        });
    }

    /// The failure of a run of which no training was finished: with several rates, which were tried and what all took, before how the last of them ended.
    pub(super) fn failure(&self, last: &TrainingError) -> String {
        match self.tried.len() {
            1 => last.to_string(),
            count => {
                format!("{count} learning rates were tried in {:.1} s ({}); the last one: {last}", self.wall_seconds, told(&self.tried))
            }
        }
    }
}

/// Learning rates and their scores, in words.
pub(super) fn told(tried: &[(f64, Option<f64>)]) -> String {
    let told = |(rate, score): &(f64, Option<f64>)| match score {
        Some(score) => format!("{rate}: {score:.4}"),
        None => format!("{rate}: diverged"),
    };
    tried.iter().map(told).collect::<Vec<_>>().join(", ")
}

/// Moves what the best training has left to the place of a run that tries no rates.
///
/// # Errors
/// If a file cannot be moved.
pub(super) fn keep(folder: &Path, root: &Path) -> Result<(), FileError> {
    let moved = |entry: io::Result<fs::DirEntry>| {
        let from = entry?.path();
        let to = root.join(from.file_name().unwrap_or_default());
        // What a command has left here that was killed at this point, or before rates were tried.
        match fs::remove_dir_all(&to).or_else(|_| fs::remove_file(&to)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::rename(from, to),
        }
    };
    let all = fs::read_dir(folder).and_then(|mut entries| entries.try_for_each(moved));
    all.and_then(|()| fs::remove_dir(folder)).map_err(|source| FileError::write(folder, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Metric;

    fn trained(score: f64) -> TrainedModel<&'static str> {
        TrainedModel {
            model: "weights",
            step: 1,
            steps: 2,
            averaged: 1,
            metrics: vec![Metric { name: "score".to_owned(), value: score }],
            tokens: 1,
            tokens_per_second: 1.0,
            wall_seconds: 2.0,
            training_seconds: 1.0,
            disturbed: score == 0.5,
        }
    }

    fn swept(selection: Selection, scores: &[(f64, Option<f64>)]) -> Sweep<&'static str> {
        let mut sweep = Sweep::new(selection);
        for &(rate, score) in scores {
            match score {
                Some(score) => sweep.finished(rate, trained(score)),
                None => sweep.diverged(rate, 0.5, false),
            }
        }
        sweep
    }

    #[test]
    fn the_best_rate_is_kept_and_all_are_told() {
        let scores = [(1e-3, Some(0.5)), (3e-3, Some(0.95)), (1e-2, Some(1.0)), (3e-2, None)];
        let sweep = swept(Selection::highest("score"), &scores);
        assert_eq!(sweep.best().unwrap().0, 2);
        let mut record = ResultRecord::default();
        sweep.record(&mut record);
        sweep.record_rates(&mut record);
        let metric = |name: &str| record.metrics[name].unwrap();
        assert_eq!((metric(LEARNING_RATE), metric(RATES_TRIED), metric(RATES_NEAR_BEST), record.wall_seconds), (1e-2, 4.0, 2.0, 6.5));
        assert!(record.disturbed, "one of the trainings was");
        assert!(record.notes[0].contains("4 learning rates") && record.notes[0].contains("0.03: diverged"), "{:?}", record.notes);
        assert_eq!(swept(Selection::lowest("score"), &scores).best().unwrap().0, 0);
        assert!(swept(Selection::highest("score"), &[(1.0, None)]).best().is_none());
        let mut record = ResultRecord::default();
        swept(Selection::highest("score"), &scores[1..]).record(&mut record);
        assert!(!record.disturbed);
        // The first of equal ones, and a score that is no number only where there is no other.
        assert_eq!(swept(Selection::highest("score"), &[(1.0, Some(f64::NAN)), (2.0, Some(0.1)), (3.0, Some(0.1))]).best().unwrap().0, 1);
    }

    #[test]
    fn rates_that_all_diverge_are_recorded_with_what_they_took() {
        let sweep = swept(Selection::highest("score"), &[(0.1, None), (1.0, None)]);
        let mut record = ResultRecord::default();
        sweep.record(&mut record);
        sweep.record_rates(&mut record);
        assert_eq!((record.wall_seconds, record.metrics[RATES_TRIED], record.metrics[RATES_NEAR_BEST]), (1.0, Some(2.0), Some(0.0)));
        assert_eq!(record.metrics[LEARNING_RATE], None);
        assert!(record.notes.iter().any(|note| note.contains("0.1: diverged, 1: diverged")), "{:?}", record.notes);
        let (quantity, place) = ("loss", "the loss itself".to_owned());
        let last = TrainingError::NonFinite { step: 3, quantity, place, checkpoint: None, wall_seconds: 0.5, disturbed: false };
        let told = sweep.failure(&last);
        assert!(told.starts_with("2 learning rates were tried in 1.0 s (0.1: diverged, 1: diverged)") && told.contains("step 3"), "{told}");
        assert_eq!(swept(Selection::highest("score"), &[(0.1, None)]).failure(&last), last.to_string());
    }

    #[test]
    fn what_the_best_has_left_replaces_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let best = folder.path().join("rates/best");
        for (path, text) in
            [("checkpoint/old", "old"), ("log.jsonl", "old"), ("rates/best/checkpoint/new", "new"), ("rates/best/log.jsonl", "new")]
        {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        keep(&best, folder.path()).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).ok();
        assert_eq!(
            (read("checkpoint/new").as_deref(), read("checkpoint/old"), read("log.jsonl").as_deref()),
            (Some("new"), None, Some("new"))
        );
        assert!(!best.exists());
    }
}
