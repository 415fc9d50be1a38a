//! The log of a run: one JSON object per line, appended while training.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use heedful_host::whole_files::write_atomically;
use serde::Serialize;

use super::error::TrainingError;
use super::events::EventFile;
use super::state::Metric;

/// One line of the log.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum LogLine {
    /// What training did since the line before.
    Training {
        /// Optimiser steps done.
        step: u64,
        /// The epoch, counted from 1.
        epoch: u64,
        /// Mean training loss per unit since the last such line: that of the task, without what is added to it.
        loss: f64,
        /// Means of what is added, as it is added, each under its name and `_loss`: `auxiliary_loss`, `ponder_loss`, `span_loss`, and those of other mechanisms.
        #[serde(flatten)]
        added: BTreeMap<String, f64>,
        /// Learning rate of this step.
        learning_rate: f64,
        /// Global gradient norm of this step, before clipping.
        gradient_norm: f64,
        /// Units trained on since the run began.
        tokens: u64,
        /// Seconds since the run began.
        seconds: f64,
    },
    /// An evaluation on the development set.
    Evaluation {
        /// Optimiser steps done.
        step: u64,
        /// The epoch, counted from 1.
        epoch: u64,
        /// Seconds since the run began.
        seconds: f64,
        /// The metrics by name; one that is not finite is `null`.
        dev: serde_json::Map<String, serde_json::Value>,
    },
}

impl LogLine {
    /// The line of an evaluation.
    pub fn evaluation(step: u64, epoch: u64, seconds: f64, metrics: &[Metric]) -> Self {
        Self::Evaluation { step, epoch, seconds, dev: metrics.iter().map(|metric| (metric.name.clone(), metric.value.into())).collect() }
    }
}

/// The log file of a run, and beside it the same for TensorBoard.
pub struct TrainingLog {
    path: PathBuf,
    file: File,
    events: EventFile,
}

impl TrainingLog {
    /// An empty log at `path`, whatever was there.
    ///
    /// # Errors
    /// [`TrainingError::Log`].
    pub fn start(path: &Path) -> Result<Self, TrainingError> {
        Self::open(path, "", 0)
    }

    /// The log at `path` as it was after `step` steps: later lines, and a line cut short by the end of the process, are dropped.
    /// With `is_due` the evaluation after that step is still to be made, and its line is dropped too.
    ///
    /// # Errors
    /// [`TrainingError::Log`].
    pub fn resume(path: &Path, step: u64, is_due: bool) -> Result<Self, TrainingError> {
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(TrainingError::Log { path: path.to_path_buf(), source }),
        };
        let is_kept = |line: &&str| {
            let Ok(parsed) = serde_json::from_str::<serde_json::Value>(line) else { return false };
            let is_evaluation = parsed.get("dev").is_some();
            let is_before = |at: u64| at < step || at == step && !(is_due && is_evaluation);
            line.ends_with('\n') && parsed["step"].as_u64().is_some_and(is_before)
        };
        Self::open(path, &text.split_inclusive('\n').take_while(is_kept).collect::<String>(), step)
    }

    fn open(path: &Path, contents: &str, step: u64) -> Result<Self, TrainingError> {
        let failed = |source| TrainingError::Log { path: path.to_path_buf(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        write_atomically(path, contents.as_bytes()).map_err(|error| failed(error.into_source()))?;
        let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        let events = EventFile::begin(path.parent().unwrap_or(Path::new(".")), step).map_err(failed)?;
        Ok(Self { path: path.to_path_buf(), file, events })
    }

    /// Appends a line.
    ///
    /// # Errors
    /// [`TrainingError::Log`].
    pub fn append(&mut self, line: &LogLine) -> Result<(), TrainingError> {
        let mut text = serde_json::to_string(line).expect("a log line has only fields that JSON can hold");
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| match line {
            LogLine::Training { step, loss, added, learning_rate, gradient_norm, .. } => {
                let added: Vec<_> = added.iter().map(|(field, value)| (format!("train/{}", field.replace('_', " ")), *value)).collect();
                let mut values = vec![("train/loss", *loss)];
                values.extend(added.iter().map(|(name, value)| (name.as_str(), *value)));
                values.extend([("train/learning rate", *learning_rate), ("train/gradient norm", *gradient_norm)]);
                self.events.scalars(*step, &values)
            }
            LogLine::Evaluation { step, dev, .. } => {
                let names: Vec<_> = dev.iter().filter_map(|(name, value)| Some((format!("dev/{name}"), value.as_f64()?))).collect();
                self.events.scalars(*step, &names.iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>())
            }
        });
        written.map_err(|source| TrainingError::Log { path: self.path.clone(), source })
    }

    /// Shows a text, in Markdown, beside the curves in TensorBoard.
    ///
    /// # Errors
    /// [`TrainingError::Log`].
    pub fn describe(&mut self, name: &str, text: &str) -> Result<(), TrainingError> {
        self.events.text(name, text).map_err(|source| TrainingError::Log { path: self.path.clone(), source })
    }

    /// Waits until all lines are on the disk.
    ///
    /// # Errors
    /// [`TrainingError::Log`].
    pub fn sync(&self) -> Result<(), TrainingError> {
        self.file.sync_data().map_err(|source| TrainingError::Log { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64) -> LogLine {
        LogLine::Training {
            step,
            epoch: 1,
            loss: 0.5,
            added: BTreeMap::new(),
            learning_rate: 0.1,
            gradient_norm: 2.0,
            tokens: 10 * step,
            seconds: 0.0,
        }
    }

    #[test]
    fn resuming_drops_later_and_torn_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/log.jsonl");
        let mut log = TrainingLog::start(&path).unwrap();
        for step in [2, 4, 6] {
            log.append(&line(step)).unwrap();
        }
        log.append(&LogLine::evaluation(4, 1, 0.0, &[])).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}{{\"step\":4,\"ep")).unwrap();
        let mut log = TrainingLog::resume(&path, 4, false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), whole.lines().take(2).map(|line| format!("{line}\n")).collect::<String>());
        log.append(&line(5)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);

        fs::write(&path, "{\"step\":2}\n{\"step\":3").unwrap();
        TrainingLog::resume(&path, 9, false).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"step\":2}\n");
        let names = fs::read_dir(folder.path().join("run")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(names.filter(|name| !name.contains("tfevents")).eq(["log.jsonl"]), "a temporary file was left");
    }

    #[test]
    fn lines_hold_the_documented_fields() {
        let text = serde_json::to_string(&line(2)).unwrap();
        assert_eq!(text, r#"{"step":2,"epoch":1,"loss":0.5,"learning_rate":0.1,"gradient_norm":2.0,"tokens":20,"seconds":0.0}"#);
        let metrics = [("bleu", 1.5), ("loss", f64::NAN)].map(|(name, value)| Metric { name: name.into(), value });
        let text = serde_json::to_string(&LogLine::evaluation(3, 2, 1.0, &metrics)).unwrap();
        assert_eq!(text, r#"{"step":3,"epoch":2,"seconds":1.0,"dev":{"bleu":1.5,"loss":null}}"#);
    }

    #[test]
    fn what_is_added_to_the_loss_has_fields_of_its_own() {
        let added = [("ponder_loss", 0.25), ("span_loss", 50.0)].map(|(name, value)| (name.to_owned(), value));
        let LogLine::Training { step, epoch, loss, learning_rate, gradient_norm, tokens, seconds, .. } = line(2) else { unreachable!() };
        let line = LogLine::Training { step, epoch, loss, added: added.into(), learning_rate, gradient_norm, tokens, seconds };
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.contains(r#""loss":0.5,"ponder_loss":0.25,"span_loss":50.0,"learning_rate""#), "{text}");
        let folder = tempfile::tempdir().unwrap();
        TrainingLog::start(&folder.path().join("log.jsonl")).unwrap().append(&line).unwrap();
        let events =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.extension() != Some("jsonl".as_ref()));
        let events = String::from_utf8_lossy(&fs::read(events.unwrap()).unwrap()).into_owned();
        assert!(["train/loss", "train/ponder loss", "train/span loss"].iter().all(|name| events.contains(name)), "{events}");
    }

    #[test]
    fn a_log_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let error = TrainingLog::start(&folder.path().join("file/log.jsonl")).err().unwrap();
        assert!(error.to_string().contains("log.jsonl"), "{error}");
    }
}
