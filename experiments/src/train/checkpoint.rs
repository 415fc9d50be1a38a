//! Checkpoints that are whole or absent.
//!
//! `<run>/checkpoint/step-000000500/` holds the weights, the optimiser's state and `state.json`; `<run>/checkpoint/latest` names the folder to resume
//! from. A folder is written under a temporary name, synced and renamed; then `latest` is replaced in the same way; only then are older folders
//! removed. Whenever the process dies, `latest` therefore names a complete folder. `state.json` holds the length and SHA-256 of the other files, so
//! damage is noticed before anything is loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use heedful_host::checksum::sha256_hex;
use heedful_host::command::quoted;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::disk::{Disk, SystemDisk};
use super::state::TrainingState;

/// Number of the layout described in this module; a reader refuses any other.
pub(super) const FORMAT: u64 = 1;

/// Name of the folder of checkpoints in that of a run.
const FOLDER: &str = "checkpoint";
const STATE: &str = "state.json";
const LATEST: &str = "latest";

/// Why a checkpoint could not be written or read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// A file could not be written. The checkpoint before it, if there is one, is untouched.
    #[error("{}: {source}; {}", path.display(), remedy_of_write(path, source))]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file that should be there could not be read.
    #[error("{}: {source}; {}", path.display(), remedy_of_damage(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file is truncated or was changed.
    #[error("{}: {reason}; {}", path.display(), remedy_of_damage(path))]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// How that shows.
        reason: String,
    },
    /// The checkpoint was written under another configuration.
    #[error(
        "{}: written under configuration {found}, but this run has configuration {expected}; use the same options as then, or another --out",
        path.display()
    )]
    OtherConfiguration {
        /// The file that holds the digest.
        path: PathBuf,
        /// SHA-256 of this run's configuration.
        expected: String,
        /// SHA-256 of the configuration the checkpoint was written under.
        found: String,
    },
    /// The checkpoint has a layout that this version cannot read.
    #[error(
        "{}: format {found}, but this version reads format {FORMAT}; resume with the version that wrote it, or use another --out",
        path.display()
    )]
    OtherFormat {
        /// The file that holds the format number.
        path: PathBuf,
        /// Its format number.
        found: u64,
    },
    /// The weights or the optimiser's state do not fit the model.
    #[error("{}: does not fit this model: {reason}; use the model it was written for, or another --out", path.display())]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
}

fn remedy_of_write(path: &Path, source: &io::Error) -> String {
    let left = match root_of(path).is_some_and(|root| root.join(LATEST).exists()) {
        true => "the checkpoint before it is intact",
        false => "no checkpoint was written before, so the run begins again",
    };
    let remedy = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => "free space",
        _ => "make the folder writable",
    };
    format!("{left}: {remedy}, then continue with --resume, or choose another --out")
}

/// The folder of the checkpoints that a path is of.
fn root_of(path: &Path) -> Option<&Path> {
    path.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == FOLDER))
}

/// What is lost with a checkpoint, and the command that goes on without it: from an older one that is whole, or from the beginning.
fn remedy_of_damage(damaged: &Path) -> String {
    let Some(root) = root_of(damaged) else { return "restore the file".to_owned() };
    let quoted = |path: &Path| quoted([path.to_string_lossy().into_owned()]);
    if root.with_file_name("result.json").exists() {
        // Older weights would not be those that the scores are of.
        return "restore the file; otherwise the weights of this run are lost, and only its scores are left: train it again with another --out".to_owned();
    }
    match last_whole(root) {
        Some(step) => format!(
            "restore the file, or go on from step {step}, so that the steps after it are done again: echo {} > {}, then the same command with --resume",
            folder_name(step),
            quoted(&root.join(LATEST))
        ),
        None => format!(
            "restore the file; otherwise all steps of this run are lost, since no other checkpoint of it is whole, and it begins again: rm -r {}, then the \
             same command with --resume",
            quoted(root)
        ),
    }
}

/// The last step from which a run can go on: its checkpoint is whole, and so is that of the best model until then.
fn last_whole(root: &Path) -> Option<u64> {
    let folder = CheckpointFolder::of_any_configuration(root.parent()?);
    let is_whole = |step: u64| {
        let state = folder.load(step).ok()?.state;
        state.best.is_none_or(|best| best.step == step || folder.load(best.step).is_ok()).then_some(())
    };
    step_folders(root).ok()?.into_iter().rev().find(|&step| is_whole(step).is_some())
}

fn folder_name(step: u64) -> String {
    format!("step-{step:09}")
}

fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-").filter(|digits| digits.len() >= 9 && digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// Steps of the complete checkpoint folders, ascending.
fn step_folders(root: &Path) -> io::Result<Vec<u64>> {
    let mut steps = Vec::new();
    for entry in fs::read_dir(root)? {
        steps.extend(entry?.file_name().to_str().and_then(step_of));
    }
    steps.sort_unstable();
    Ok(steps)
}

/// Length and checksum of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileSeal {
    bytes: u64,
    sha256: String,
}

impl FileSeal {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: sha256_hex(bytes) }
    }
}

/// The contents of `state.json`.
#[derive(Serialize, Deserialize)]
struct StateFile {
    format: u64,
    configuration: String,
    state: TrainingState,
    files: BTreeMap<String, FileSeal>,
}

/// A checkpoint that was read and found whole.
pub struct Checkpoint {
    /// Its folder.
    pub folder: PathBuf,
    /// Where in the run it was written.
    pub state: TrainingState,
    files: BTreeMap<String, Vec<u8>>,
}

impl Checkpoint {
    /// The contents of one of its files, and the file's path for error messages; `None` if it has no such file.
    pub fn file(&self, name: &str) -> Option<(PathBuf, &[u8])> {
        self.files.get(name).map(|bytes| (self.folder.join(name), bytes.as_slice()))
    }

    /// All of it, to be sent to another process.
    pub(super) fn to_parts(&self) -> Vec<Vec<u8>> {
        let state = serde_json::to_vec(&self.state).expect("the training state has only fields that JSON can hold");
        let files = self.files.iter().flat_map(|(name, bytes)| [name.clone().into_bytes(), bytes.clone()]);
        [self.folder.to_string_lossy().into_owned().into_bytes(), state].into_iter().chain(files).collect()
    }

    /// What [`to_parts`](Self::to_parts) gave; `None` if there are no parts.
    pub(super) fn from_parts(parts: Vec<Vec<u8>>) -> Option<Self> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it was a text");
        let mut parts = parts.into_iter();
        let (folder, state) = (text(parts.next()?).into(), parts.next()?);
        let state = serde_json::from_slice(&state).expect("the same program has written it");
        let mut files = BTreeMap::new();
        while let (Some(name), Some(bytes)) = (parts.next(), parts.next()) {
            files.insert(text(name), bytes);
        }
        Some(Self { folder, state, files })
    }
}

/// The checkpoints of one run.
pub struct CheckpointFolder {
    root: PathBuf,
    /// SHA-256 of the configuration; none if any will do.
    configuration: Option<String>,
    disk: Box<dyn Disk>,
}

impl CheckpointFolder {
    /// The checkpoints below the run's folder `run`, written and accepted under the configuration whose SHA-256 is `configuration`. Touches nothing.
    pub fn new(run: &Path, configuration: &str) -> Self {
        Self::on(run, configuration, Box::new(SystemDisk))
    }

    /// The same, of whatever configuration: to be read.
    pub fn of_any_configuration(run: &Path) -> Self {
        Self { root: run.join(FOLDER), configuration: None, disk: Box::new(SystemDisk) }
    }

    pub(crate) fn on(run: &Path, configuration: &str, disk: Box<dyn Disk>) -> Self {
        Self { root: run.join(FOLDER), configuration: Some(configuration.to_string()), disk }
    }

    /// The folder of the checkpoint of `step`, whether it exists or not.
    pub fn path(&self, step: u64) -> PathBuf {
        self.root.join(folder_name(step))
    }

    /// Removes all checkpoints, for a run that starts afresh.
    ///
    /// # Errors
    /// [`CheckpointError::Write`].
    pub fn clear(&self) -> Result<(), CheckpointError> {
        // Without `latest` nothing else counts, so a clearing cut short is a clearing.
        for path in [self.root.join(LATEST), self.root.clone()] {
            self.disk.remove(&path).map_err(|source| CheckpointError::Write { path, source })?;
        }
        Ok(())
    }

    /// Writes the checkpoint of `state.step` with the given files, makes it the latest, and removes those that the state does not name.
    ///
    /// # Errors
    /// [`CheckpointError::Write`]; the checkpoint before it stays the latest, and what was written of the new one is removed.
    pub fn save(&self, state: &TrainingState, files: &[(&str, Vec<u8>)]) -> Result<PathBuf, CheckpointError> {
        let folder = self.path(state.step);
        let temporary = self.root.join(format!(".{}.tmp", folder_name(state.step)));
        let latest = self.root.join(format!(".{LATEST}.tmp"));
        let written = self.write_folder(&temporary, &folder, state, files).and_then(|()| self.point_latest(&latest, state.step));
        if let Err((path, source)) = written {
            for leftover in [&temporary, &latest] {
                // The error to report is the first one; a leftover is removed by the next checkpoint.
                let _ = self.disk.remove(leftover);
            }
            return Err(CheckpointError::Write { path, source });
        }
        self.prune(state);
        Ok(folder)
    }

    fn write_folder(
        &self,
        temporary: &Path,
        folder: &Path,
        state: &TrainingState,
        files: &[(&str, Vec<u8>)],
    ) -> Result<(), (PathBuf, io::Error)> {
        let at = |path: &Path| {
            let path = path.to_path_buf();
            move |error| (path, error)
        };
        let disk = &self.disk;
        disk.create_folder(&self.root).map_err(at(&self.root))?;
        disk.remove(temporary).map_err(at(temporary))?;
        disk.create_folder(temporary).map_err(at(temporary))?;
        let mut seals = BTreeMap::new();
        for (name, bytes) in files {
            let path = temporary.join(name);
            disk.write(&path, bytes).map_err(at(&path))?;
            seals.insert(name.to_string(), FileSeal::of(bytes));
        }
        let contents =
            StateFile { format: FORMAT, configuration: self.configuration.clone().unwrap_or_default(), state: state.clone(), files: seals };
        let contents = serde_json::to_vec_pretty(&contents).expect("the training state has only fields that JSON can hold");
        let path = temporary.join(STATE);
        disk.write(&path, &contents).map_err(at(&path))?;
        disk.sync_folder(temporary).map_err(at(temporary))?;
        // A run that died after the next line's rename and resumed from an older checkpoint meets its own folder here; `latest` names an older one.
        disk.remove(folder).map_err(at(folder))?;
        disk.rename(temporary, folder).map_err(at(folder))?;
        disk.sync_folder(&self.root).map_err(at(&self.root))
    }

    fn point_latest(&self, temporary: &Path, step: u64) -> Result<(), (PathBuf, io::Error)> {
        let latest = self.root.join(LATEST);
        let in_latest = |error| (latest.clone(), error);
        self.disk.write(temporary, format!("{}\n", folder_name(step)).as_bytes()).map_err(in_latest)?;
        self.disk.rename(temporary, &latest).map_err(in_latest)?;
        self.disk.sync_folder(&self.root).map_err(in_latest)
    }

    /// Removes everything that `state` does not need: older checkpoints, and what a killed process left.
    pub(crate) fn prune(&self, state: &TrainingState) {
        let needed: BTreeSet<String> = state.needed_checkpoints().into_iter().map(folder_name).chain([LATEST.to_string()]).collect();
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|name| needed.contains(name)) {
                continue;
            }
            if let Err(error) = self.disk.remove(&entry.path()) {
                tracing::warn!("{}: {error}; this old checkpoint can be deleted by hand", entry.path().display());
            }
        }
    }

    /// The step of the latest checkpoint; `None` if the run has none.
    ///
    /// # Errors
    /// If `latest` cannot be read or does not name a checkpoint folder.
    pub fn latest(&self) -> Result<Option<u64>, CheckpointError> {
        let path = self.root.join(LATEST);
        let name = match fs::read_to_string(&path) {
            Ok(name) => name,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CheckpointError::Read { path, source }),
        };
        match step_of(name.trim_end()) {
            Some(step) => Ok(Some(step)),
            None => Err(CheckpointError::Corrupt { path, reason: format!("{:?} is not the name of a checkpoint folder", name.trim_end()) }),
        }
    }

    /// Reads the checkpoint with the best score, or the latest if no score was better than others; `None` if the run has none.
    ///
    /// # Errors
    /// Any but [`CheckpointError::Write`], naming the file.
    pub fn best(&self) -> Result<Option<Checkpoint>, CheckpointError> {
        let Some(latest) = self.latest()?.map(|step| self.load(step)).transpose()? else { return Ok(None) };
        match latest.state.best.as_ref().map(|best| best.step) {
            Some(step) if step != latest.state.step => self.load(step).map(Some),
            _ => Ok(Some(latest)),
        }
    }

    /// Reads the checkpoint of `step` and verifies format, configuration and every file.
    ///
    /// # Errors
    /// Any but [`CheckpointError::Write`], naming the file.
    pub fn load(&self, step: u64) -> Result<Checkpoint, CheckpointError> {
        let folder = self.path(step);
        let path = folder.join(STATE);
        let contents = read(&path)?;
        let corrupt = |error: serde_json::Error| CheckpointError::Corrupt { path: path.clone(), reason: error.to_string() };
        let value: serde_json::Value = serde_json::from_slice(&contents).map_err(corrupt)?;
        let field = |name: &str| {
            value.get(name).ok_or_else(|| CheckpointError::Corrupt { path: path.clone(), reason: format!("no field `{name}`") })
        };
        let found = field("format")?.as_u64().unwrap_or(0);
        if found != FORMAT {
            return Err(CheckpointError::OtherFormat { path, found });
        }
        let found = field("configuration")?.as_str().unwrap_or_default().to_string();
        if let Some(expected) = self.configuration.clone().filter(|expected| *expected != found) {
            return Err(CheckpointError::OtherConfiguration { path, expected, found });
        }
        let StateFile { state, files: seals, .. } = serde_json::from_slice(&contents).map_err(corrupt)?;
        if state.step != step {
            return Err(CheckpointError::Corrupt { path, reason: format!("it is the state of step {}", state.step) });
        }
        let mut files = BTreeMap::new();
        for (name, seal) in seals {
            let path = folder.join(&name);
            let bytes = read(&path)?;
            if FileSeal::of(&bytes) != seal {
                let reason = if bytes.len() as u64 == seal.bytes {
                    format!("its SHA-256 is not {}", seal.sha256)
                } else {
                    format!("it has {} bytes instead of {}", bytes.len(), seal.bytes)
                };
                return Err(CheckpointError::Corrupt { path, reason });
            }
            files.insert(name, bytes);
        }
        Ok(Checkpoint { folder, state, files })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::disk::faulty::{Fault, FaultyDisk};
    use super::*;

    const DIGEST: &str = "00ff";

    fn state(step: u64) -> TrainingState {
        TrainingState { step, kept: vec![step], logged_loss: 0.1 + 0.2, ..TrainingState::default() }
    }

    fn files(step: u64) -> Vec<(&'static str, Vec<u8>)> {
        vec![("model.safetensors", vec![step as u8; 100]), ("optimiser.bpk", vec![step as u8; 10])]
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_checkpoint_is_read_as_it_was_written() {
        let run = tempfile::tempdir().unwrap();
        let folder = CheckpointFolder::new(run.path(), DIGEST);
        assert_eq!(folder.latest().unwrap(), None);
        folder.save(&state(5), &files(5)).unwrap();
        folder.save(&state(10), &files(10)).unwrap();
        assert_eq!(folder.latest().unwrap(), Some(10));
        assert_eq!(fs::read_to_string(run.path().join("checkpoint/latest")).unwrap(), "step-000000010\n");
        let checkpoint = folder.load(10).unwrap();
        assert_eq!(checkpoint.state, state(10));
        assert_eq!(checkpoint.file("optimiser.bpk").unwrap().1, [10; 10]);
        assert!(checkpoint.file("carried.bpk").is_none());
        assert_eq!(names(&run.path().join("checkpoint")), ["latest", "step-000000010"]);
        folder.clear().unwrap();
        assert!(!run.path().join("checkpoint").exists());
    }

    #[test]
    fn the_best_and_the_kept_checkpoints_stay() {
        let run = tempfile::tempdir().unwrap();
        let folder = CheckpointFolder::new(run.path(), DIGEST);
        let best = super::super::state::BestEvaluation { step: 1, value: 0.5, metrics: Vec::new() };
        for (step, kept) in [(1, vec![1]), (2, vec![2]), (3, vec![2, 3])] {
            folder.save(&TrainingState { kept, best: Some(best.clone()), ..state(step) }, &files(step)).unwrap();
        }
        assert_eq!(names(&run.path().join("checkpoint")), ["latest", "step-000000001", "step-000000002", "step-000000003"]);
        folder.save(&TrainingState { kept: vec![4], best: Some(best), ..state(4) }, &files(4)).unwrap();
        assert_eq!(names(&run.path().join("checkpoint")), ["latest", "step-000000001", "step-000000004"]);
    }

    #[test]
    fn death_in_any_operation_leaves_the_old_or_the_new_checkpoint() {
        let mut operations = 0;
        let mut seen = BTreeSet::new();
        loop {
            let run = tempfile::tempdir().unwrap();
            CheckpointFolder::new(run.path(), DIGEST).save(&state(1), &files(1)).unwrap();
            // What a process killed earlier may have left in the way.
            for leftover in [".step-000000002.tmp", "step-000000002"] {
                fs::create_dir_all(run.path().join("checkpoint").join(leftover)).unwrap();
                fs::write(run.path().join("checkpoint").join(leftover).join("model.safetensors"), "rest").unwrap();
            }
            let disk = Arc::new(FaultyDisk::new(Fault::Kill, operations));
            let result = CheckpointFolder::on(run.path(), DIGEST, Box::new(disk.clone())).save(&state(2), &files(2));
            let folder = CheckpointFolder::new(run.path(), DIGEST);
            let step = folder.latest().unwrap().expect("there is a checkpoint");
            let checkpoint = folder.load(step).unwrap();
            assert_eq!(checkpoint.state, state(step));
            assert_eq!(checkpoint.file("model.safetensors").unwrap().1, [step as u8; 100]);
            assert!(result.is_err() || step == 2, "the save succeeded but is not the latest");
            seen.insert(step);
            folder.save(&state(3), &files(3)).unwrap();
            assert_eq!(
                names(&run.path().join("checkpoint")),
                ["latest", "step-000000003"],
                "leftovers of a death in operation {operations}"
            );
            if !disk.has_failed() {
                break;
            }
            operations += 1;
        }
        assert_eq!(seen, BTreeSet::from([1, 2]));
        assert!(operations > 10, "only {operations} operations were tried");
    }

    #[test]
    fn a_full_disk_at_any_write_leaves_only_the_old_checkpoint() {
        for write in 0..4 {
            let run = tempfile::tempdir().unwrap();
            CheckpointFolder::new(run.path(), DIGEST).save(&state(1), &files(1)).unwrap();
            let disk = Arc::new(FaultyDisk::new(Fault::Full, write));
            let error = CheckpointFolder::on(run.path(), DIGEST, Box::new(disk)).save(&state(2), &files(2)).unwrap_err();
            let name = ["model.safetensors", "optimiser.bpk", "state.json", "latest"][write];
            assert!(error.to_string().contains(name) && error.to_string().contains("free space"), "{error}");
            let folder = CheckpointFolder::new(run.path(), DIGEST);
            assert_eq!(folder.latest().unwrap(), Some(1));
            assert_eq!(folder.load(1).unwrap().state, state(1));
            assert!(names(&run.path().join("checkpoint")).iter().all(|name| !name.ends_with(".tmp")));
        }
    }

    #[test]
    fn damage_is_found_and_the_file_named() {
        let run = tempfile::tempdir().unwrap();
        let folder = CheckpointFolder::new(run.path(), DIGEST);
        let at = folder.save(&state(1), &files(1)).unwrap();
        folder.save(&TrainingState { kept: vec![1, 2], ..state(2) }, &files(2)).unwrap();
        let fails = |name: &str, contents: &[u8]| {
            let path = at.join(name);
            let original = fs::read(&path).unwrap();
            fs::write(&path, contents).unwrap();
            let message = folder.load(1).err().expect("damage was not noticed").to_string();
            fs::write(&path, original).unwrap();
            assert!(message.contains(&path.display().to_string()), "{message}");
            message
        };
        let message = fails("model.safetensors", &[1; 99]);
        assert!(message.contains("99 bytes instead of 100") && message.contains("go on from step 2"), "{message}");
        let mut flipped = vec![1; 100];
        flipped[50] = 0;
        assert!(fails("model.safetensors", &flipped).contains("SHA-256"));
        let text = fs::read_to_string(at.join("state.json")).unwrap();
        assert!(fails("state.json", &text.as_bytes()[..text.len() / 2]).contains("line"));
        let other_format = text.replace("\"format\": 1", "\"format\": 2");
        assert!(fails("state.json", other_format.as_bytes()).contains("format 2, but this version reads format 1"));
        assert!(fails("state.json", text.replace("\"step\": 1", "\"step\": 3").as_bytes()).contains("step 3"));
        assert!(fails("state.json", b"{}").contains("no field `format`"));
        fs::remove_file(at.join("optimiser.bpk")).unwrap();
        assert!(matches!(folder.load(1), Err(CheckpointError::Read { path, .. }) if path.ends_with("optimiser.bpk")));
        fs::write(run.path().join("checkpoint/latest"), "../../elsewhere\n").unwrap();
        assert!(matches!(folder.latest(), Err(CheckpointError::Corrupt { path, .. }) if path.ends_with("latest")));
        fs::write(run.path().join("checkpoint/latest"), "step-000000007\n").unwrap();
        assert!(matches!(folder.load(folder.latest().unwrap().unwrap()), Err(CheckpointError::Read { .. })));
    }

    /// Runs the command that a message offers, and returns the message.
    #[cfg(unix)]
    fn done_as_told(error: CheckpointError) -> String {
        let message = error.to_string();
        let begin = message.find("echo ").or_else(|| message.find("rm -r ")).expect("a command is offered");
        let command = message[begin..].split(", then the same command").next().unwrap();
        assert!(std::process::Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
        message
    }

    #[cfg(unix)]
    #[test]
    fn the_command_that_is_offered_for_a_damaged_checkpoint_goes_on_without_it() {
        let run = tempfile::Builder::new().prefix("it's a run").tempdir().unwrap();
        let folder = CheckpointFolder::new(run.path(), DIGEST);
        let damage = |step: u64, name: &str| fs::write(folder.path(step).join(name), "damaged").unwrap();
        let best = |step| Some(super::super::state::BestEvaluation { step, value: 0.5, metrics: Vec::new() });
        let resume = || {
            folder.latest().and_then(|step| step.map(|step| folder.load(step)).transpose()).map(|found| found.map(|found| found.state.step))
        };
        for step in 1..=4 {
            folder
                .save(&TrainingState { kept: vec![1, 2, 3, 4], best: best(if step < 3 { 1 } else { 3 }), ..state(step) }, &files(step))
                .unwrap();
        }
        damage(4, "optimiser.bpk");
        // Step 3 is its own best model, but is damaged as well: neither it nor what relies on it is offered.
        damage(3, "model.safetensors");
        let message = done_as_told(resume().unwrap_err());
        assert!(message.contains("from step 2") && message.contains("the steps after it are done again"), "{message}");
        assert_eq!(resume().unwrap(), Some(2));
        fs::write(run.path().join("checkpoint/latest"), "garbage").unwrap();
        done_as_told(resume().unwrap_err());
        assert_eq!(resume().unwrap(), Some(2));
        // Without its best model, step 2 is of no use, and neither is anything else.
        damage(1, "state.json");
        let message = done_as_told(folder.best().err().unwrap());
        assert!(message.contains("all steps of this run are lost"), "{message}");
        assert_eq!(resume().unwrap(), None);
    }

    #[test]
    fn a_checkpoint_of_a_finished_run_is_not_replaced_by_an_older_one() {
        let run = tempfile::tempdir().unwrap();
        let folder = CheckpointFolder::new(run.path(), DIGEST);
        (1..=2).for_each(|step| drop(folder.save(&TrainingState { kept: vec![1, 2], ..state(step) }, &files(step)).unwrap()));
        fs::write(folder.path(2).join("model.safetensors"), "damaged").unwrap();
        fs::write(run.path().join("result.json"), "{}").unwrap();
        let message = folder.load(2).err().unwrap().to_string();
        assert!(message.contains("scores are left") && message.contains("another --out") && !message.contains("--resume"), "{message}");
    }

    #[test]
    fn a_first_checkpoint_that_cannot_be_written_has_none_before_it() {
        for (before, told) in [(0, "no checkpoint was written before"), (1, "the checkpoint before it is intact")] {
            let run = tempfile::tempdir().unwrap();
            (1..=before).for_each(|step| drop(CheckpointFolder::new(run.path(), DIGEST).save(&state(step), &files(step)).unwrap()));
            let disk = Arc::new(FaultyDisk::new(Fault::Full, 0));
            let message = CheckpointFolder::on(run.path(), DIGEST, Box::new(disk)).save(&state(9), &files(9)).unwrap_err().to_string();
            assert!(message.contains(told), "{message}");
        }
    }

    #[test]
    fn another_configuration_is_refused_with_both_digests() {
        let run = tempfile::tempdir().unwrap();
        CheckpointFolder::new(run.path(), DIGEST).save(&state(1), &files(1)).unwrap();
        let message = CheckpointFolder::new(run.path(), "abcd").load(1).err().unwrap().to_string();
        assert!(message.contains("00ff") && message.contains("abcd") && message.contains("another --out"), "{message}");
    }
}
