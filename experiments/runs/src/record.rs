//! The result of a run: its `result.json`, and one element of `results.json` ([`crate::results`]).
//!
//! A record holds the scores together with everything needed to judge and repeat them: command, configuration, data checksum, version, commit, machine,
//! backend, seed. A score that is undefined (a correlation of constants, a diverged perplexity) is `null` with a note that says so, never a number.

use std::collections::BTreeMap;
use std::path::PathBuf;

use heedful_host::display::grouped;
use heedful_host::exit::ProgramError;
use heedful_host::machine::Machine;
use heedful_host::provenance::Provenance;
use heedful_host::whole_files::FileError;
use heedful_metrics::{ItemScore, MetricColumn};
use serde::{Deserialize, Serialize};

use crate::run_folder::RunFolderError;

/// Why the results of a folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file does not hold records.
    #[error("{}:{}: not the results of an experiment: {source}; move the file away or choose another --out", path.display(), source.line())]
    Format {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// A finished run was made with another configuration.
    #[error("`{}` holds the run {run} made with another configuration; choose another --out", path.display())]
    OtherConfiguration {
        /// The file.
        path: PathBuf,
        /// The run.
        run: String,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A folder cannot be used.
    #[error(transparent)]
    Folder(#[from] RunFolderError),
}

impl From<RecordError> for ProgramError {
    fn from(error: RecordError) -> Self {
        Self::failure(error)
    }
}

/// What tells one run from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// Experiment by the name of its binary.
    pub experiment: String,
    /// Data set by name.
    pub dataset: String,
    /// Attention mechanism by name.
    pub attention: String,
    /// Backend by name.
    pub backend: String,
    /// The seed all random streams of the run derive from.
    pub seed: u64,
}

impl std::fmt::Display for RunKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} / {} / {} / {} / seed {}", self.experiment, self.dataset, self.attention, self.backend, self.seed)
    }
}

/// The training budget of a run; equal for all mechanisms of a fair comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Optimiser steps.
    pub steps: Option<u64>,
    /// Minutes of training, evaluation excluded.
    pub minutes: Option<f64>,
}

impl Budget {
    /// The limits in words; `minutes` is what minutes are called, and `unlimited` says that there is none.
    pub(crate) fn in_words(&self, minutes: &str, unlimited: &str) -> String {
        let steps = self.steps.map(|steps| format!("{} steps", grouped(steps)));
        let limits: Vec<String> = steps.into_iter().chain(self.minutes.map(|count| format!("{count} {minutes}"))).collect();
        if limits.is_empty() { unlimited.to_owned() } else { limits.join(", at most ") }
    }
}

/// One finished run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultRecord {
    /// Experiment by the name of its binary.
    pub experiment: String,
    /// Data set by name.
    pub dataset: String,
    /// Attention mechanism by name.
    pub attention: String,
    /// Backend by name.
    pub backend: String,
    /// The seed all random streams of the run derive from.
    pub seed: u64,
    /// Number of trained values of the model, shared ones counted once.
    pub parameters: u64,
    /// The same by part of the model.
    pub parameters_by_part: BTreeMap<String, u64>,
    /// Optimiser steps done.
    pub steps: u64,
    /// Scores by name; `None` where the score is undefined. Set by [`ResultRecord::score`].
    pub metrics: BTreeMap<String, Option<f64>>,
    /// How each score is computed, by the name of the score (a signature as sacreBLEU prints it, a unit and context length).
    pub signatures: BTreeMap<String, String>,
    /// How the scores are shown and which direction is better; unknown for runs of earlier versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<MetricColumn>,
    /// How scores are computed from the items of test sets, by the name of the score, for scores whose items are stored in the folder of the run; unknown for
    /// runs of earlier versions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub items: BTreeMap<String, ItemScore>,
    /// What a reader of the scores must know.
    pub notes: Vec<String>,
    /// Training speed; tokens counted as the loss counts them.
    pub tokens_per_second: Option<f64>,
    /// Largest resident memory of the process in bytes, since [`reset_peak_memory`](heedful_host::machine::reset_peak_memory) or the start of the process; see
    /// [`peak_memory_bytes`](heedful_host::machine::peak_memory_bytes).
    pub peak_memory_bytes: Option<u64>,
    /// Seconds of the run, evaluation included.
    pub wall_seconds: f64,
    /// The command, quoted for a POSIX shell.
    pub command: String,
    /// Version of heedful.
    pub version: String,
    /// SHA-256 of the data set (hexadecimal).
    pub data_sha256: String,
    /// The machine.
    pub machine: Machine,
    /// Digest of the configuration without the choice of runs, see [`crate::settings::digest`].
    pub configuration: String,
    /// The training budget of the run.
    pub budget: Budget,
    /// Its provenance; unknown for runs of earlier versions.
    pub provenance: Option<Provenance>,
    /// When it was finished, in milliseconds since 1970 (UTC); unknown for runs of earlier versions.
    pub finished_ms: Option<u64>,
    /// Whether it is of a whole model and not of an attention.
    pub is_model: bool,
    /// Whether other runs or programs used the same cores meanwhile. Times and speeds of the run are then meaningless and not shown.
    pub disturbed: bool,
}

impl ResultRecord {
    /// What tells the run from others.
    pub fn key(&self) -> RunKey {
        RunKey {
            experiment: self.experiment.clone(),
            dataset: self.dataset.clone(),
            attention: self.attention.clone(),
            backend: self.backend.clone(),
            seed: self.seed,
        }
    }

    /// Training speed, unless the run was disturbed.
    pub fn speed(&self) -> Option<f64> {
        self.tokens_per_second.filter(|_| !self.disturbed)
    }

    /// Seconds of the run, unless it was disturbed.
    pub fn seconds(&self) -> Option<f64> {
        (!self.disturbed).then_some(self.wall_seconds)
    }

    /// A metric; `None` if there is none of this name, or if it is a speed and the run was disturbed.
    pub fn metric(&self, name: &str) -> Option<Option<f64>> {
        self.metrics.get(name).copied().filter(|_| !self.disturbed || name != STEPS_PER_SECOND)
    }

    /// The code it was computed by, as [`Provenance::code`] shows it.
    pub fn code(&self) -> String {
        self.provenance.as_ref().map_or_else(|| "unknown".to_owned(), Provenance::code)
    }

    /// Processor, threads and system in a few words.
    pub fn machine_in_words(&self) -> String {
        let Machine { cpu, cores, os } = &self.machine;
        match &self.provenance {
            Some(Provenance { threads, instruction_set, ranks, .. }) => {
                let threads = match ranks {
                    Some(ranks) => format!("{ranks} processes with {threads} of {cores} threads each"),
                    None => format!("{threads} of {cores} threads"),
                };
                format!("{cpu}, {threads}, {os}, {instruction_set}")
            }
            None => format!("{cpu}, up to {cores} threads, {os}"),
        }
    }

    /// Sets a score; one that is not finite is recorded as undefined, with a note.
    pub fn score(&mut self, name: &str, value: f64) {
        self.undefined_note(name, (!value.is_finite()).then(|| format!("{name} is {value}, recorded as undefined")));
        self.metrics.insert(name.into(), value.is_finite().then_some(value));
    }

    /// Records that a score is undefined, and why ("one class is never predicted").
    pub fn score_undefined(&mut self, name: &str, reason: &str) {
        self.undefined_note(name, Some(format!("{name} is undefined: {reason}")));
        self.metrics.insert(name.into(), None);
    }

    /// Keeps one note on each score, the latest.
    fn undefined_note(&mut self, name: &str, note: Option<String>) {
        let earlier = format!("{name} is ");
        self.notes.retain(|note| !note.starts_with(&earlier));
        self.notes.extend(note);
    }
}

/// Name of the size of the decoding state among the metrics of runs that measure it.
pub const STATE_BYTES: &str = "state bytes";

/// Name of the learning rate that was kept, among the metrics of runs that try several.
pub const LEARNING_RATE: &str = "learning rate";
/// Name of the number of learning rates that were tried.
pub const RATES_TRIED: &str = "learning rates tried";
/// Name of the number of learning rates whose development score is at least nine tenths of the best.
pub const RATES_NEAR_BEST: &str = "learning rates near the best";

/// Name of the width of the feed-forward networks, among the metrics of runs whose sizes are matched by it.
pub const FEED_FORWARD_WIDTH: &str = "feed-forward width";

/// Name of the speed of training among the metrics of every run.
pub const STEPS_PER_SECOND: &str = "steps per second";

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run of the experiment `mt` on the data set `invented`.
    pub(crate) fn record(attention: &str, seed: u64, bleu: f64) -> ResultRecord {
        let mut record = ResultRecord {
            experiment: "mt".into(),
            dataset: "invented".into(),
            attention: attention.into(),
            backend: "flex".into(),
            seed,
            configuration: "c1".into(),
            ..Default::default()
        };
        record.score("bleu", bleu);
        record
    }

    #[test]
    fn a_score_that_is_not_finite_becomes_null_with_one_note() {
        let mut record = record("dot-product", 1, f64::NAN);
        record.score("bleu", f64::NAN);
        record.score("perplexity", f64::INFINITY);
        record.score_undefined("matthews", "one class is never predicted");
        let json = serde_json::to_value(&record).unwrap();
        assert!(json["metrics"]["bleu"].is_null() && json["metrics"]["perplexity"].is_null() && json["metrics"]["matthews"].is_null());
        assert_eq!(record.notes.len(), 3);
        record.score("bleu", 12.0);
        assert_eq!(record.metrics["bleu"], Some(12.0));
        assert!(record.notes.iter().all(|note| !note.contains("bleu")));
    }

    #[test]
    fn results_json_has_the_documented_fields() {
        let json = serde_json::to_value(record("dot-product", 1, 1.0)).unwrap();
        for field in [
            "experiment",
            "dataset",
            "attention",
            "backend",
            "seed",
            "parameters",
            "steps",
            "metrics",
            "tokens_per_second",
            "peak_memory_bytes",
            "wall_seconds",
            "command",
            "version",
            "data_sha256",
            "provenance",
            "finished_ms",
        ] {
            assert!(json.get(field).is_some(), "{field} is missing");
        }
    }

    #[test]
    fn speeds_of_a_disturbed_run_are_not_shown_and_its_scores_are() {
        let mut record = record("dot-product", 1, 1.0);
        record.score(STEPS_PER_SECOND, 5.0);
        (record.tokens_per_second, record.wall_seconds) = (Some(100.0), 3.0);
        assert_eq!((record.speed(), record.seconds(), record.metric(STEPS_PER_SECOND)), (Some(100.0), Some(3.0), Some(Some(5.0))));
        record.disturbed = true;
        assert_eq!((record.speed(), record.seconds(), record.metric(STEPS_PER_SECOND)), (None, None, None));
        assert_eq!(record.metric("bleu"), Some(Some(1.0)));
    }
}
