//! Progress of the runs in an output folder, read from their files: which process works on which run and since when, what is left, and what failed.
//!
//! Other machines are not contacted. A process on this machine is looked up; a process on another machine counts as running as long as its lock exists.

mod folder;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use heedful_host::display::duration;
use heedful_host::process::Process;
use serde::{Deserialize, Serialize};

pub use self::folder::{FolderStatus, Place, WIDE};
use crate::record::ResultRecord;
use crate::run_folder::RunPaths;
use crate::run_lock;

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum State {
    /// Its result is there.
    Finished,
    /// A process works on it.
    Running {
        /// Host of the process.
        host: String,
        /// Its number.
        process: u32,
        /// Whether the process was looked up, which is possible only on its own machine.
        is_checked: bool,
        /// For how long, by the clocks of the file system and of this machine.
        seconds: Option<u64>,
    },
    /// It failed when it was worked on last.
    Failed {
        /// The first line of the reason.
        error: String,
    },
    /// It was stopped or killed, and goes on from its last checkpoint.
    Interrupted,
    /// It was not begun.
    Waiting,
}

impl State {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Running { .. } => "running",
            Self::Failed { .. } => "failed",
            Self::Interrupted => "interrupted",
            Self::Waiting => "waiting",
        }
    }

    /// What is to be known beside its name; nothing of most.
    fn detail(&self) -> String {
        match self {
            Self::Running { host, process, is_checked, seconds } => {
                let since = seconds.map_or_else(String::new, |seconds| format!(" for {}", duration(seconds as f64)));
                let unknown = if *is_checked { "" } else { " (not checked)" };
                format!("process {process} on {host}{since}{unknown}")
            }
            Self::Failed { error } => error.clone(),
            Self::Finished | Self::Interrupted | Self::Waiting => String::new(),
        }
    }
}

/// The score on the development set that selected a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selected {
    /// Its name.
    pub metric: String,
    /// Its value.
    pub value: f64,
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunStatus {
    /// Its state.
    #[serde(flatten)]
    pub state: State,
    /// Steps that are done; of an interrupted run those of the checkpoint that it goes on from.
    pub step: Option<u64>,
    /// The last loss of training that was logged.
    pub loss: Option<f64>,
    /// Seconds of a step between the last two lines of the log.
    pub seconds_per_step: Option<f64>,
    /// The best evaluation up to the last checkpoint.
    pub selected: Option<Selected>,
    /// Since its files were last written.
    pub age_seconds: Option<u64>,
}

impl RunStatus {
    /// Looks at the folder of a run. What cannot be read is not known: the run may be writing it.
    pub fn read(run: &RunPaths) -> Self {
        let trained = run.trained_last();
        let last = Checkpointed::latest(&trained.checkpoint());
        let logged = last_losses(&trained.log()).unwrap_or_default();
        let seconds_per_step = logged.last_chunk::<2>().and_then(|[before, last]| last.seconds_per_step_since(before));
        let logged = logged.last();
        let record = fs::read(run.result()).ok().map(|text| serde_json::from_slice::<ResultRecord>(&text).ok());
        let holder = run_lock::holder(run.root()).ok().flatten();
        let state = match (holder, &record, fs::read_to_string(run.error())) {
            (Some(process), ..) if !process.has_ended() => running(&process, run.root()),
            (_, Some(_), _) => State::Finished,
            (_, None, Ok(error)) => State::Failed { error: error.lines().next().unwrap_or_default().to_owned() },
            (holder, ..) if last.is_some() || logged.is_some() || holder.is_some() => State::Interrupted,
            _ => State::Waiting,
        };
        let checkpoint_step = last.as_ref().map(|state| state.step);
        let step = match (&state, record.flatten()) {
            (State::Finished, Some(record)) => Some(record.steps),
            (State::Interrupted, _) => Some(checkpoint_step.unwrap_or_default()),
            _ => logged.map(|line| line.step).max(checkpoint_step),
        };
        let selected = last.and_then(|state| state.best).and_then(|best| {
            let named = best.metrics.into_iter().find(|metric| metric.value == best.value);
            let metric = named.map_or_else(|| "score".to_owned(), |metric| metric.name);
            Some(Selected { metric, value: best.value.parse().ok()? })
        });
        let written = [trained.log(), trained.checkpoint().join("latest"), run.result(), run.error(), run_lock::path(run.root())];
        let age_seconds = written.iter().filter_map(|path| changed(path)).max().map(|time| since(time).as_secs());
        Self { state, step, loss: logged.map(|line| line.loss), seconds_per_step, selected, age_seconds }
    }

    /// The state with what is to be known beside it.
    pub fn in_words(&self) -> String {
        let at = self.step.filter(|_| self.state == State::Interrupted).map_or_else(String::new, |step| format!(" after step {step}"));
        let detail = self.state.detail();
        let colon = if detail.is_empty() { "" } else { ": " };
        format!("{}{at}{colon}{detail}", self.state.name())
    }
}

/// What the state of a checkpoint says of its run. Numbers stand there as text that reads back to the same bits.
#[derive(Deserialize)]
struct Checkpointed {
    step: u64,
    best: Option<Best>,
}

#[derive(Deserialize)]
struct Best {
    value: String,
    metrics: Vec<Score>,
}

#[derive(Deserialize)]
struct Score {
    name: String,
    value: String,
}

impl Checkpointed {
    /// That of the latest checkpoint in a folder of them, as far as it can be read.
    fn latest(checkpoints: &Path) -> Option<Self> {
        #[derive(Deserialize)]
        struct StateFile {
            state: Checkpointed,
        }
        let name = fs::read_to_string(checkpoints.join("latest")).ok()?;
        let text = fs::read(checkpoints.join(name.trim_end()).join("state.json")).ok()?;
        serde_json::from_slice::<StateFile>(&text).ok().map(|file| file.state)
    }
}

fn running(process: &Process, run: &Path) -> State {
    State::Running {
        host: process.host.clone(),
        process: process.id,
        is_checked: process.is_here() && !process.started.is_empty(),
        seconds: changed(&run_lock::path(run)).map(|time| since(time).as_secs()),
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// The time since a file was written, or none if the clock of its machine is ahead.
fn since(time: SystemTime) -> Duration {
    time.elapsed().unwrap_or_default()
}

/// A line of a log that has a loss.
#[derive(Deserialize)]
struct Logged {
    step: u64,
    loss: f64,
    seconds: Option<f64>,
}

impl Logged {
    fn seconds_per_step_since(&self, before: &Self) -> Option<f64> {
        let steps = self.step.checked_sub(before.step).filter(|steps| *steps > 0)?;
        Some((self.seconds? - before.seconds?) / steps as f64).filter(|seconds| *seconds >= 0.0)
    }
}

/// The lines with a loss at the end of a log, in their order. Of a long log no more is read.
fn last_losses(log: &PathBuf) -> io::Result<Vec<Logged>> {
    const END: u64 = 1 << 16;
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut bytes = Vec::new();
    file.take(END).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::write_result;
    use crate::run_folder::RunFolder;
    use crate::run_lock::RunLock;

    /// A folder with a run that was not begun.
    fn run() -> (tempfile::TempDir, RunPaths) {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::at(folder.path()).run("gaussian", 2).unwrap();
        (folder, run)
    }

    #[test]
    fn the_files_of_a_run_tell_its_state() {
        let (folder, run) = run();
        let state = || RunStatus::read(&run).in_words();
        assert_eq!(RunStatus::read(&RunFolder::at(folder.path()).run_at("uniform", 1)).state, State::Waiting);
        assert_eq!(state(), "waiting");

        let lock = RunLock::take(run.root()).unwrap().unwrap();
        let here = Process::this();
        assert_eq!(state(), format!("running: process {} on {} for 0.0 s", here.id, here.host));
        drop(lock);

        let leave = |process: &Process| fs::write(run_lock::path(run.root()), serde_json::to_vec(process).unwrap()).unwrap();
        leave(&Process { host: "node7".into(), id: 3, ..here.clone() });
        assert!(state().starts_with("running: process 3 on node7 for 0.0 s (not checked)"), "{}", state());
        leave(&Process { started: "1".into(), ..here.clone() });
        assert_eq!(state(), "interrupted after step 0", "its process was killed before the first checkpoint");
        fs::remove_file(run_lock::path(run.root())).unwrap();

        let log = "{\"step\":10,\"loss\":2.5,\"seconds\":3}\n{\"step\":20,\"loss\":1.25,\"seconds\":8}\n{\"step\":20,\"dev\":{\"bleu\":1}}\n{\"step\":3";
        fs::write(run.log(), log).unwrap();
        let status = RunStatus::read(&run);
        assert_eq!((status.state, status.step, status.loss), (State::Interrupted, Some(0), Some(1.25)));
        assert_eq!(status.seconds_per_step, Some(0.5));

        fs::write(run.error(), "the disk is full\nmore\n").unwrap();
        let status = RunStatus::read(&run);
        assert_eq!((status.in_words().as_str(), status.step), ("failed: the disk is full", Some(20)));

        write_result(&run, &ResultRecord { steps: 30, ..Default::default() }).unwrap();
        let status = RunStatus::read(&run);
        assert_eq!((status.state, status.step, status.age_seconds), (State::Finished, Some(30), Some(0)));
    }

    #[test]
    fn of_a_run_that_tries_learning_rates_the_last_one_is_told() {
        let (_folder, run) = run();
        for (rate, step) in [("a-rate-0.1", 7), ("a-rate-0.2", 3)] {
            let folder = run.rates().join(rate);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("log.jsonl"), format!("{{\"step\":{step},\"loss\":{step}.5}}\n")).unwrap();
            let age = Duration::from_secs(if step == 7 { 60 } else { 0 });
            File::options().write(true).open(folder.join("log.jsonl")).unwrap().set_modified(SystemTime::now() - age).unwrap();
        }
        let status = RunStatus::read(&run);
        assert_eq!((status.state, status.loss), (State::Interrupted, Some(3.5)));
        write_result(&run, &ResultRecord { steps: 30, ..Default::default() }).unwrap();
        assert_eq!(RunStatus::read(&run).step, Some(30));
    }

    #[test]
    fn a_file_of_the_future_is_new() {
        let (_folder, run) = run();
        let _lock = RunLock::take(run.root()).unwrap().unwrap();
        let file = File::options().write(true).open(run_lock::path(run.root())).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(86_400)).unwrap();
        let status = RunStatus::read(&run);
        assert!(matches!(status.state, State::Running { seconds: Some(0), .. }) && status.age_seconds == Some(0), "{status:?}");
    }

    #[test]
    fn of_a_long_log_the_end_is_read() {
        let (_folder, run) = run();
        let line = |step: u64| format!("{{\"step\":{step},\"loss\":{step}.5}}\n");
        fs::write(run.log(), (0..10_000).map(line).collect::<String>()).unwrap();
        let last = last_losses(&run.log()).unwrap().pop().unwrap();
        assert_eq!((last.step, last.loss), (9999, 9999.5));
    }
}
