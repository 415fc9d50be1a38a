//! Learning curves from the logs of runs.

use std::collections::BTreeMap;
use std::path::Path;

use heedful_host::whole_files::read_if_there;
use serde::Deserialize;

use super::error::CompareError;
use super::group::{Group, Row};

/// What a curve shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// The loss in training.
    Loss,
    /// What is added to it, by the name of its field in words (`span loss`).
    Added(String),
    /// A metric of evaluations, by name.
    Dev(String),
}

impl Quantity {
    /// What the picture calls it.
    pub fn title(&self) -> &str {
        match self {
            Self::Loss => "training loss",
            Self::Added(name) | Self::Dev(name) => name,
        }
    }
}

/// What the log of a run says at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    value: f64,
    seconds: Option<f64>,
}

/// The log of one run: each quantity by step, where it is a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log(BTreeMap<Quantity, BTreeMap<u64, Reading>>);

/// A line of either kind; see [`crate::train`].
#[derive(Deserialize)]
struct Line {
    step: u64,
    seconds: Option<f64>,
    loss: Option<f64>,
    #[serde(default)]
    dev: BTreeMap<String, Option<f64>>,
    #[serde(flatten)]
    other: BTreeMap<String, serde_json::Value>,
}

impl Log {
    /// Reads the log at `path`; `None` if there is none. A last line that was cut short by the end of the process is left out.
    ///
    /// # Errors
    /// [`CompareError`] if the file cannot be read or another line is not one of a log.
    pub fn read(path: &Path) -> Result<Option<Self>, CompareError> {
        let there = read_if_there(path).map_err(|error| CompareError::Read { path: path.into(), source: error.into_source() })?;
        let Some(text) = there else { return Ok(None) };
        let mut log = Self::default();
        for (index, text) in text.split_inclusive('\n').enumerate() {
            let Line { step, seconds, loss, dev, other } = match serde_json::from_str(text) {
                Ok(line) => line,
                Err(_) if !text.ends_with('\n') => break,
                Err(source) => return Err(CompareError::Log { path: path.into(), line: index + 1, source }),
            };
            let dev = dev.into_iter().map(|(name, value)| (Quantity::Dev(name), value));
            let added = other.into_iter().filter(|(field, _)| field.ends_with("_loss"));
            let added = added.map(|(field, value)| (Quantity::Added(field.replace('_', " ")), value.as_f64()));
            for (quantity, value) in dev.chain(added).chain([(Quantity::Loss, loss)]) {
                if let Some(value) = value {
                    log.0.entry(quantity).or_default().insert(step, Reading { value, seconds });
                }
            }
        }
        Ok(Some(log))
    }

    /// What the log has readings of.
    pub fn quantities(&self) -> impl Iterator<Item = &Quantity> {
        self.0.keys()
    }

    /// Every reading: its step, the seconds since the run began if they are known, its quantity and its value. Sorted by step.
    pub fn readings(&self) -> Vec<(u64, Option<f64>, &Quantity, f64)> {
        let mut readings = Vec::new();
        for (quantity, steps) in &self.0 {
            readings.extend(steps.iter().map(|(step, at)| (*step, at.seconds, quantity, at.value)));
        }
        readings.sort_by_key(|(step, _, quantity, _)| (*step, *quantity));
        readings
    }
}

/// The logs of the runs of `group`: for each row one for each record, where there is one.
///
/// # Errors
/// [`CompareError`] for a log that is damaged.
pub fn logs(group: &Group<'_>) -> Result<Vec<Vec<Option<Log>>>, CompareError> {
    let of_row = |row: &Row<'_>| {
        let paths = row.records.iter().map(|record| row.source.folder_of(record));
        paths.map(|paths| Ok(paths.map(|paths| Log::read(&paths.log())).transpose()?.flatten())).collect()
    };
    group.rows.iter().map(of_row).collect()
}

/// Comma-separated values in long form: one line for each run, step and quantity.
///
/// # Errors
/// Those of the writer.
pub fn csv<'a>(groups: impl Iterator<Item = (&'a Group<'a>, &'a [Vec<Option<Log>>])>) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["experiment", "dataset", "run", "attention", "backend", "seed", "step", "seconds", "metric", "value"])?;
    for (group, logs) in groups {
        for (row, logs) in group.rows.iter().zip(logs) {
            let runs = row.records.iter().zip(logs).filter_map(|(record, log)| Some((record, log.as_ref()?)));
            for (record, log) in runs {
                for (step, seconds, quantity, value) in log.readings() {
                    // What disturbed runs took says nothing.
                    let seconds = seconds.filter(|_| !record.disturbed);
                    writer.write_record([
                        &record.experiment,
                        &record.dataset,
                        &row.source.label,
                        &record.attention,
                        &record.backend,
                        &record.seed.to_string(),
                        &step.to_string(),
                        &seconds.map(|seconds| seconds.to_string()).unwrap_or_default(),
                        quantity.title(),
                        &value.to_string(),
                    ])?;
                }
            }
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A quantity at one step over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSpread {
    /// Optimiser steps done.
    pub step: u64,
    /// Mean of the seconds since the runs began; `None` if a log has none.
    pub seconds: Option<f64>,
    /// Mean over seeds.
    pub mean: f64,
    /// The least of all seeds.
    pub low: f64,
    /// The greatest of all seeds.
    pub high: f64,
}

/// `quantity` over seeds, at the steps that all of `logs` have: a mean of other seeds at other steps would jump where nothing happened.
pub fn over_seeds(logs: &[&Log], quantity: &Quantity) -> Vec<StepSpread> {
    let readings: Option<Vec<&BTreeMap<u64, Reading>>> = logs.iter().map(|log| log.0.get(quantity)).collect();
    let Some((first, _)) = readings.as_deref().and_then(<[_]>::split_first) else { return Vec::new() };
    let at = |step: &u64| readings.iter().flatten().map(|readings| readings.get(step).copied()).collect::<Option<Vec<Reading>>>();
    let spread = |step: &u64| {
        let readings = at(step)?;
        let count = readings.len() as f64;
        let values = || readings.iter().map(|reading| reading.value);
        let seconds: Option<Vec<f64>> = readings.iter().map(|reading| reading.seconds).collect();
        Some(StepSpread {
            step: *step,
            seconds: seconds.map(|seconds| seconds.iter().sum::<f64>() / count),
            mean: values().sum::<f64>() / count,
            low: values().fold(f64::INFINITY, f64::min),
            high: values().fold(f64::NEG_INFINITY, f64::max),
        })
    };
    first.keys().filter_map(spread).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The text of a log with a loss at each of `steps`, and an evaluation at the last.
    pub(crate) fn log_text(steps: &[u64], loss: f64) -> String {
        let line =
            |step: &u64| format!("{{\"step\":{step},\"epoch\":1,\"loss\":{},\"seconds\":{}}}\n", loss / *step as f64, *step as f64 / 2.0);
        let last = steps.last().unwrap();
        let evaluation = format!("{{\"step\":{last},\"epoch\":1,\"seconds\":{last}.5,\"dev\":{{\"perplexity\":{loss},\"f1\":null}}}}\n");
        steps.iter().map(line).collect::<String>() + &evaluation
    }

    fn read(text: &str) -> Result<Option<Log>, CompareError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        std::fs::write(&path, text).unwrap();
        Log::read(&path)
    }

    #[test]
    fn a_curve_is_the_mean_over_seeds_at_the_steps_they_share() {
        let logs = [log_text(&[1, 2, 4], 8.0), log_text(&[1, 2, 3], 4.0)].map(|text| read(&text).unwrap().unwrap());
        let curve = over_seeds(&logs.each_ref(), &Quantity::Loss);
        assert_eq!(curve[0], StepSpread { step: 1, seconds: Some(0.5), mean: 6.0, low: 4.0, high: 8.0 });
        assert_eq!(curve.iter().map(|point| point.step).collect::<Vec<_>>(), [1, 2]);
        assert!(over_seeds(&logs.each_ref(), &Quantity::Dev("perplexity".into())).is_empty(), "no step in common");
        assert_eq!(over_seeds(&[&logs[0]], &Quantity::Dev("perplexity".into())).len(), 1);
        assert!(over_seeds(&[], &Quantity::Loss).is_empty());
        let names: Vec<&str> = logs[0].quantities().map(Quantity::title).collect();
        assert_eq!(names, ["training loss", "perplexity"], "an undefined metric has no readings");
    }

    #[test]
    fn a_torn_last_line_is_left_out_and_any_other_is_refused_with_its_number() {
        let whole = log_text(&[1, 2], 8.0);
        assert_eq!(read(&format!("{whole}{{\"step\":3,\"lo")).unwrap(), read(&whole).unwrap());
        let message = read(&format!("{{\"step\":3,\"lo\n{whole}")).unwrap_err().to_string();
        assert!(message.contains("log.jsonl:1: not a line of a log"), "{message}");
        let message = read("{\"step\":1}\n{\"loss\":1.0}\n").unwrap_err().to_string();
        assert!(message.contains("log.jsonl:2:") && message.contains("step"), "{message}");
        assert_eq!(Log::read(Path::new("nowhere/log.jsonl")).unwrap(), None);
    }

    #[test]
    fn what_is_added_to_the_loss_has_a_curve_of_its_own_and_older_logs_have_none() {
        let log =
            read("{\"step\":1,\"loss\":2.0,\"span_loss\":50.5,\"gradient_norm\":1.0}\n{\"step\":2,\"loss\":1.5,\"span_loss\":null}\n")
                .unwrap()
                .unwrap();
        let span = Quantity::Added("span loss".into());
        assert_eq!(log.quantities().map(Quantity::title).collect::<Vec<_>>(), ["training loss", "span loss"]);
        assert_eq!(over_seeds(&[&log], &span).iter().map(|at| (at.step, at.mean)).collect::<Vec<_>>(), [(1, 50.5)]);
        let older = read(&log_text(&[1, 2], 8.0)).unwrap().unwrap();
        assert!(over_seeds(&[&older], &span).is_empty());
    }

    #[test]
    fn seconds_are_left_out_where_a_log_has_none() {
        let without = read("{\"step\":1,\"loss\":2.0}\n").unwrap().unwrap();
        let with = read("{\"step\":1,\"loss\":2.0,\"seconds\":1.0}\n").unwrap().unwrap();
        assert_eq!(over_seeds(&[&with, &without], &Quantity::Loss)[0].seconds, None);
    }
}
