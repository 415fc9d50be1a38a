//! A command of a few steps, in this process and without a word.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use heedful_backends::Backend;
use heedful_host::interrupt::Interrupt;
use heedful_runs::record::{ResultRecord, STEPS_PER_SECOND};
use heedful_runs::results::Results;
use heedful_runs::settings::Settings;

use super::super::overview::Overview;
use super::super::runs::Runs;
use super::super::session::{RunEnd, Session};
use super::super::{Settled, opened, opened_data, settled};
use crate::session::error::{ExperimentError, USAGE_EXIT};
use crate::session::experiment::definition::{Config, Experiment};
use crate::session::options::CommonOptions;
use crate::train::{Ranks, Watcher};

/// How a command ended.
#[derive(Debug)]
pub(super) enum End {
    /// A value is not of the type of its field.
    Mistyped(String),
    /// It was refused before anything was written.
    Refused(String),
    /// Its runs did not end well: why.
    Failed(String),
    /// It panicked.
    Panicked(String),
    /// Its runs ended.
    Done(Found),
}

/// What the runs of a command gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Losses and scores by name.
    pub(super) numbers: BTreeMap<String, f64>,
    /// What was written besides: texts, pictures, items, and why no score is a number.
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

impl Found {
    /// What differs, by name.
    pub(super) fn differences(&self, other: &Self, tolerance: f64) -> Vec<String> {
        let is_near = |a: f64, b: f64| a == b || (a - b).abs() <= tolerance * a.abs().max(b.abs()) || a.is_nan() && b.is_nan();
        // How often a log has lines does not matter to what is as good as equal.
        let is_meant = |name: &&String| tolerance == 0.0 || !name.contains("log.jsonl");
        let names = self.numbers.keys().chain(other.numbers.keys()).filter(is_meant);
        let numbers = names.filter(|name| match (self.numbers.get(*name), other.numbers.get(*name)) {
            (Some(a), Some(b)) => !is_near(*a, *b),
            _ => true,
        });
        let files =
            self.files.keys().chain(other.files.keys()).filter(|name| tolerance == 0.0 && self.files.get(*name) != other.files.get(*name));
        numbers.chain(files).cloned().collect()
    }
}

/// The folders and files of a run that say nothing of what a model gives, or of when and where.
const OTHERS: [&str; 8] = ["checkpoint", "log.jsonl", "result.json", "lock", "report.md", "report.html", "results.json", "trivial.json"];

/// The command with these fields set.
pub(super) fn run<E: Experiment>(fields: &[String]) -> End {
    let options =
        |folder: &Path| CommonOptions { assignments: fields.to_vec(), out: Some(folder.to_owned()), quiet: true, ..Default::default() };
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let folder = tempfile::tempdir().unwrap();
        let options = options(&folder.path().join("runs"));
        let read = options.assignments().and_then(|assignments| Settings::<Config<E>>::read(None, assignments));
        match read {
            Err(error) => End::Mistyped(error.to_string()),
            Ok(_) => attempt::<E>(&options),
        }
    }));
    ended.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        End::Panicked(words.unwrap_or("without a word").to_owned())
    })
}

fn attempt<E: Experiment>(options: &CommonOptions) -> End {
    let ranks = Ranks::alone();
    let checked = settled::<E>(options, Vec::new()).and_then(|Settled { settings, candidates, memory }| {
        let backend: Backend = settings.value.run.backend.parse().map_err(ExperimentError::usage)?;
        let device = opened::<E>(backend, &settings, &candidates)?;
        let datasets = opened_data::<E>(&settings, &candidates, memory, &ranks)?;
        Ok((settings.value, candidates, backend, device, datasets))
    });
    let (config, candidates, backend, device, datasets) = match checked {
        Ok(checked) => checked,
        Err(error) => return End::Refused(error.to_string()),
    };
    let runs = match Runs::open(options, &config, &datasets, &candidates, backend) {
        Ok(runs) => runs,
        Err(error) if error.exit_code() == USAGE_EXIT => return End::Refused(error.to_string()),
        Err(error) => return End::Failed(error.to_string()),
    };
    let done = || {
        let session = Session::<E> {
            runs,
            watcher: Watcher::Nobody,
            interrupt: Interrupt::new(),
            ranks: &ranks,
            device,
            is_resumed: false,
            is_shown: false,
            jobs: 1,
            shard: None,
        };
        E::prepare(&session.preparation())?;
        let runs = session.runs.all()?;
        let overview = Overview::new(&Watcher::Nobody, &[]);
        for run in &runs {
            match session.one_run(run, &overview)? {
                RunEnd::Finished => {}
                _ => return Err(ExperimentError::failure("a run did not finish")),
            }
        }
        session.runs.derive(true)?;
        Ok(Results::read(&session.runs.folder)?.records().to_vec())
    };
    match done() {
        Ok(records) => End::Done(found(&records, options.out.as_deref().unwrap())),
        Err(error) if error.exit_code() == USAGE_EXIT => End::Failed(format!("refused too late: {error}")),
        Err(error) => End::Failed(error.to_string()),
    }
}

fn found(records: &[ResultRecord], folder: &Path) -> Found {
    let mut found = Found::default();
    for record in records {
        let run = format!("{} {} {}", record.dataset, record.attention, record.seed);
        let scores = record.metrics.iter().filter(|(name, _)| *name != STEPS_PER_SECOND);
        found.numbers.extend(scores.map(|(name, value)| (format!("{run} {name}"), value.unwrap_or(f64::NAN))));
        found.numbers.insert(format!("{run} parameters"), record.parameters as f64);
        found.numbers.insert(format!("{run} steps"), record.steps as f64);
    }
    read_into(folder, folder, &mut found);
    found
}

fn read_into(root: &Path, folder: &Path, found: &mut Found) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        let is_of_run = folder != root;
        if path.ends_with("log.jsonl") {
            for line in fs::read_to_string(&path).unwrap().lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                let dev = line.get("dev").and_then(|dev| dev.as_object());
                let training = ["loss", "learning_rate"].into_iter().filter_map(|field| Some((field, line.get(field)?)));
                for (field, value) in training.chain(dev.into_iter().flatten().map(|(field, value)| (field.as_str(), value))) {
                    found.numbers.insert(format!("{name} {} {field}", line["step"]), value.as_f64().unwrap_or(f64::NAN));
                }
            }
        } else if OTHERS.iter().any(|other| path.ends_with(other)) {
        } else if path.is_dir() {
            read_into(root, &path, found);
        } else if is_of_run && !name.contains("tfevents") {
            found.files.insert(name, fs::read(&path).unwrap());
        }
    }
}
