//! The result of a run as one element of `results.json`.
//!
//! A record holds the scores together with everything needed to judge and repeat them: command, configuration, data checksum, version, machine,
//! backend, seed. `results.json` is replaced as a whole after every finished run, so a later `--resume` finds the finished runs and does not repeat
//! them. A score that is undefined (a correlation of constants, a diverged perplexity) is `null` with a note that says so, never a number.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::run_folder::{RunFolderError, write_atomically};

/// Why the results of a folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file exists but cannot be read.
    #[error("cannot read `{}`: {source}; mend it or choose another --out", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not an array of records.
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
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] RunFolderError),
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

/// What a run was allowed to spend on training; equal for all mechanisms of a fair comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Optimiser steps.
    pub steps: Option<u64>,
    /// Minutes of training, evaluation excluded.
    pub minutes: Option<f64>,
}

/// The machine a run was made on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor, or `unknown`.
    pub cpu: String,
    /// Threads the process may run at once.
    pub cores: usize,
    /// Operating system and processor architecture.
    pub os: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cpu: cpu_model(&cpuinfo).unwrap_or("unknown").into(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        }
    }
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim()).filter(|model| !model.is_empty())
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
    /// What a reader of the scores must know.
    pub notes: Vec<String>,
    /// Training speed; tokens counted as the loss counts them.
    pub tokens_per_second: Option<f64>,
    /// Largest resident memory of the process in bytes, since [`reset_peak_memory`] or the start of the process; see [`peak_memory_bytes`].
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
    /// What the run was allowed to spend.
    pub budget: Budget,
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

/// The records of one `results.json`, in the order in which the runs were first finished.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    path: PathBuf,
    records: Vec<ResultRecord>,
}

impl Results {
    /// An empty set that will replace the file at `path` when the first run is finished.
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), records: Vec::new() }
    }

    /// The records of the file at `path`; none if there is no file yet.
    ///
    /// # Errors
    /// [`RecordError`] when the file cannot be read or is not an array of records.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::new(path)),
            Err(source) => return Err(RecordError::Read { path: path.into(), source }),
        };
        let records = serde_json::from_str(&text).map_err(|source| RecordError::Format { path: path.into(), source })?;
        Ok(Self { path: path.into(), records })
    }

    /// All records.
    pub fn records(&self) -> &[ResultRecord] {
        &self.records
    }

    /// The record of a run that need not be repeated: finished, with this configuration digest.
    ///
    /// # Errors
    /// [`RecordError::OtherConfiguration`] when the run is there but was made with another configuration, which must not be mixed with this one.
    pub fn finished(&self, run: &RunKey, configuration: &str) -> Result<Option<&ResultRecord>, RecordError> {
        match self.records.iter().find(|record| record.key() == *run) {
            Some(record) if record.configuration != configuration => {
                Err(RecordError::OtherConfiguration { path: self.path.clone(), run: run.to_string() })
            }
            found => Ok(found),
        }
    }

    /// Adds a finished run, or replaces the record of the same run, and writes the file.
    ///
    /// # Errors
    /// [`RecordError::Write`]; the file then still holds the earlier records.
    pub fn insert(&mut self, record: ResultRecord) -> Result<(), RecordError> {
        match self.records.iter_mut().find(|other| other.key() == record.key()) {
            Some(other) => *other = record,
            None => self.records.push(record),
        }
        let json = serde_json::to_string_pretty(&self.records).map_err(|source| RecordError::Format { path: self.path.clone(), source })?;
        Ok(write_atomically(&self.path, format!("{json}\n").as_bytes())?)
    }
}

/// Largest resident memory of this process in bytes so far, or none where the system does not tell (anything but Linux).
///
/// It is the peak of the whole process since its start or since [`reset_peak_memory`]: memory that an earlier run of the same process left allocated
/// counts, memory on a GPU does not.
pub fn peak_memory_bytes() -> Option<u64> {
    high_water_mark(&fs::read_to_string("/proc/self/status").ok()?)
}

fn high_water_mark(status: &str) -> Option<u64> {
    let amount = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    amount.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Starts the peak of [`peak_memory_bytes`] anew at the present size; returns whether the system does that.
pub fn reset_peak_memory() -> bool {
    // Code 5 of clear_refs resets the high water mark (proc(5), since Linux 4.0).
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The command of this process, quoted so that it can be pasted into a POSIX shell, with the number of threads if it was limited.
pub fn command_line() -> String {
    let command = quoted(std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()));
    match std::env::var(THREADS) {
        Ok(threads) => format!("{THREADS}={} {command}", quoted([threads])),
        Err(_) => command,
    }
}

/// The environment variable that limits the threads of the CPU backends.
const THREADS: &str = "RAYON_NUM_THREADS";

fn quoted(arguments: impl IntoIterator<Item = String>) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=,:+@%".contains(&byte);
    let quote = |argument: String| match argument.is_empty() || !argument.bytes().all(plain) {
        true => format!("'{}'", argument.replace('\'', r"'\''")),
        false => argument,
    };
    arguments.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(attention: &str, seed: u64, bleu: f64) -> ResultRecord {
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
    fn results_come_back_from_the_file_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let mut results = Results::new(&path);
        let mut first = record("dot-product", 1, 0.1 + 0.2);
        first.parameters_by_part.insert("encoder".into(), 12);
        first.machine = Machine::here();
        first.budget = Budget { steps: Some(100), minutes: None };
        results.insert(first).unwrap();
        results.insert(record("synthesizer-random", 1, 20.0)).unwrap();
        assert_eq!(Results::read(&path).unwrap(), results);
    }

    #[test]
    fn a_repeated_run_replaces_its_record_and_leaves_the_others_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let mut results = Results::new(&path);
        for (attention, seed, bleu) in [("dot-product", 1, 1.0), ("dot-product", 2, 2.0), ("dense", 1, 3.0), ("dot-product", 1, 4.0)] {
            results.insert(record(attention, seed, bleu)).unwrap();
        }
        let scores: Vec<_> = Results::read(&path).unwrap().records().iter().map(|record| record.metrics["bleu"].unwrap()).collect();
        assert_eq!(scores, [4.0, 2.0, 3.0]);
    }

    #[test]
    fn a_file_that_is_not_there_holds_no_results() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Results::read(&folder.path().join("results.json")).unwrap().records().is_empty());
    }

    #[test]
    fn a_damaged_file_is_named_with_its_line_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        fs::write(&path, "[\n{\"seed\": 1,\n\"steps\": \"many\"}]").unwrap();
        let message = Results::read(&path).unwrap_err().to_string();
        assert!(message.contains("results.json:3:") && message.contains("choose another --out"), "{message}");
    }

    #[test]
    fn a_finished_run_is_found_again_and_one_of_another_configuration_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::new(&folder.path().join("results.json"));
        results.insert(record("dot-product", 1, 1.0)).unwrap();
        let key = record("dot-product", 1, 1.0).key();
        assert!(results.finished(&key, "c1").unwrap().is_some());
        assert!(results.finished(&RunKey { seed: 2, ..key.clone() }, "c1").unwrap().is_none());
        let message = results.finished(&key, "c2").unwrap_err().to_string();
        assert!(message.contains("mt / invented / dot-product / flex / seed 1"), "{message}");
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
        ] {
            assert!(json.get(field).is_some(), "{field} is missing");
        }
    }

    #[test]
    fn the_peak_of_memory_is_read_in_bytes() {
        assert_eq!(high_water_mark("Name:\tmt\nVmPeak:\t  900 kB\nVmHWM:\t  1234 kB\n"), Some(1234 * 1024));
        assert_eq!(high_water_mark("Name:\tmt\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_of_memory_follows_what_the_process_touches() {
        let before = peak_memory_bytes().unwrap();
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(peak_memory_bytes().unwrap() >= before.max(64 << 20));
        drop(block);
    }

    #[test]
    fn a_quoted_command_means_the_same_arguments_to_a_shell() {
        let arguments = ["target/mt", "--set", "a.b=\"c d\"", "it's", "", "$HOME", "*", "a\nb", "--lr=3e-4"].map(String::from);
        let command = quoted(arguments.clone());
        assert!(command.starts_with("target/mt --set 'a.b=\"c d\"'") && command.ends_with("--lr=3e-4"), "{command}");
        let output = std::process::Command::new("sh").arg("-c").arg(format!("printf '%s|' {command}")).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), arguments.map(|argument| argument + "|").concat());
    }

    #[test]
    fn the_processor_is_read_from_its_model_name() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu_model("processor\t: 0\n"), None);
        assert!(Machine::here().cores >= 1);
    }
}
