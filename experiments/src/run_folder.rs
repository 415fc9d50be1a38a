//! The folder a run leaves behind, and files that are never half written.
//!
//! ```text
//! <out>/config.toml                 the complete configuration; fed back with --config it repeats the run
//! <out>/results.json                one record per finished run, derived from the result.json of all
//! <out>/report.md                   the comparison table, derived from the same
//! <out>/report.html                 the comparison as one page with pictures, derived from the same, log.jsonl and analysis/
//! <out>/<attention>-seed<N>/        result.json, log.jsonl, events.out.tfevents.*, checkpoint/, hypotheses/<test set>.txt and .reference.txt,
//!                                   items/<test set>.json; lock.json while a process works on it, error.txt if it failed
//! <out>/slurm/                      the scripts of --slurm, and the logs of their jobs
//! <out>/analysis/<attention>-seed<N>/   what `heedful analyse` has written, see [`crate::analyse`]
//! ```
//!
//! Several commands may work in one folder at once, each on runs of its own ([`crate::run_lock`], [`crate::results`]).
//!
//! A file is written under a temporary name in its own folder, synced, renamed over the old one, and the folder is synced: after a crash or on a full
//! disk the old file or the new one is there, never a part of one. What a checkpoint holds is the training engine's business, not this module's.

mod whole_files;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toml::Table;

pub use self::whole_files::{create_atomically, file_name, write_atomically, write_atomically_with};
use self::whole_files::{is_left_behind, is_temporary};
use crate::metrics::ItemTable;
use crate::settings::{self, Configuration, SettingsError};

/// The configuration tables that do not say how a run is done: which runs are wanted (mechanisms, seeds, backend, data; [`crate::options::RunSettings`]), and
/// what Slurm gives them ([`crate::slurm::SlurmSettings`]).
pub const RUN_TABLES: [&str; 2] = ["run", "slurm"];

/// Why an output folder cannot be used or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunFolderError {
    /// A file could not be written; the old file, if there was one, is intact.
    #[error("cannot write `{}`: {source}{}", path.display(), write_remedy(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A folder could not be made.
    #[error("cannot make the folder `{}`: {source}{}", path.display(), write_remedy(source))]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// An existing file of the folder could not be read.
    #[error("cannot read `{}`: {source}; mend it or choose another --out", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The folder holds files, but no configuration of a run.
    #[error("`{}` is not empty and holds no config.toml, so it is not the output of a run; choose another --out", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds a run of another configuration and resuming was not asked for.
    #[error(
        "`{}` holds another configuration ({difference}); choose another --out, or use the same configuration{}",
        path.display(), if *resumable { ", or --resume to add to it" } else { "" }
    )]
    OtherConfiguration {
        /// The folder.
        path: PathBuf,
        /// The first field that differs: `field: value there, value here`.
        difference: String,
        /// Whether --resume would accept the folder: only the choice of runs differs.
        resumable: bool,
    },
    /// A lock that no process has written.
    #[error("`{}` is not the lock of a run: {source}; delete it if no command works on the run", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// The configuration could not be written out or the old one could not be understood.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl RunFolderError {
    /// Whether the remedy is another command (exit code 2) rather than a mended machine (exit code 1).
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Foreign { .. } | Self::OtherConfiguration { .. } => true,
            Self::Settings(error) => error.is_usage(),
            Self::Write { .. } | Self::Folder { .. } | Self::Read { .. } | Self::Lock { .. } => false,
        }
    }
}

fn write_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => "; free space or choose another --out",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "; choose another --out that may be written",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory => "; choose another --out",
        _ => "",
    }
}

/// What a folder holds.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, RunFolderError> {
    let list = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    list().map_err(|source| RunFolderError::Read { path: folder.into(), source })
}

/// The SHA-256 checksum of `bytes` as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The output folder of one command (`--out`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    root: PathBuf,
}

impl RunFolder {
    /// Makes the folder if need be and writes `config.toml` into it if there is none.
    ///
    /// A folder that holds the same configuration is used again. With `resume`, one whose configuration differs in the [`RUN_TABLES`] alone
    /// (more seeds, other mechanisms) is added to, which [`choose_runs`](Self::choose_runs) writes down. Fields that are newer than the folder had their
    /// defaults in it.
    ///
    /// # Errors
    /// [`RunFolderError`] when the folder holds another configuration or foreign files, or cannot be written. Nothing is changed then.
    pub fn open<T: Configuration>(root: &Path, configuration: &T, resume: bool) -> Result<Self, RunFolderError> {
        let folder = Self { root: root.into() };
        make_folder(root)?;
        let config = folder.config();
        let text = settings::complete_text(configuration)?;
        loop {
            match fs::read_to_string(&config) {
                Ok(there) => {
                    folder.compare(&settings::parse(&config, &there)?, configuration, resume)?;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // A command that was killed while it wrote its very first file has left a part of that.
                    let is_foreign = |path: &PathBuf| !is_temporary(path) && *path != config;
                    if listed(root)?.iter().any(is_foreign) && !config.exists() {
                        return Err(RunFolderError::Foreign { path: root.into() });
                    }
                    // Another command may have written its own meanwhile, which then has to be the same.
                    if create_atomically(&config, text.as_bytes())? {
                        break;
                    }
                }
                Err(source) => return Err(RunFolderError::Read { path: config, source }),
            }
        }
        for left_behind in listed(root)?.into_iter().filter(|path| is_temporary(path) && is_left_behind(path)) {
            match fs::remove_file(&left_behind) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(RunFolderError::Write { path: left_behind, source }),
                _ => {}
            }
        }
        Ok(folder)
    }

    /// Refuses a configuration that must not be mixed with the one that is there.
    fn compare<T: Configuration>(&self, there: &Table, here: &T, resume: bool) -> Result<(), RunFolderError> {
        let here = settings::complete(here)?;
        let there = settings::completed::<T>(there).unwrap_or_else(|| there.clone());
        let recipe_differs = settings::first_difference(&without_runs(&there), &without_runs(&here));
        let differs = recipe_differs.clone().or_else(|| settings::first_difference(&there, &here));
        let refused = if resume { recipe_differs.clone() } else { differs };
        match refused {
            Some(difference) => {
                Err(RunFolderError::OtherConfiguration { path: self.root.clone(), difference, resumable: recipe_differs.is_none() })
            }
            None => Ok(()),
        }
    }

    /// Writes into `config.toml` which runs `configuration` wants; all else stays as it is there.
    ///
    /// # Errors
    /// [`RunFolderError`] when the file cannot be read or written.
    pub fn choose_runs<T: Configuration>(&self, configuration: &T) -> Result<(), RunFolderError> {
        let mut table = self.table()?;
        let there = settings::completed::<T>(&table).unwrap_or_else(|| table.clone());
        let mut here = settings::complete(configuration)?;
        let chosen = RUN_TABLES.into_iter().filter_map(|name| Some((name.to_owned(), here.remove(name)?)));
        let changed: Vec<_> = chosen.filter(|(name, runs)| there.get(name) != Some(runs)).collect();
        let is_same = changed.is_empty();
        table.extend(changed);
        if is_same { Ok(()) } else { write_atomically(&self.config(), settings::table_text(&table)?.as_bytes()) }
    }

    /// What `config.toml` holds.
    ///
    /// # Errors
    /// [`RunFolderError`] when it cannot be read or is no TOML.
    pub fn table(&self) -> Result<Table, RunFolderError> {
        let path = self.config();
        let text = fs::read_to_string(&path).map_err(|source| RunFolderError::Read { path: path.clone(), source })?;
        Ok(settings::parse(&path, &text)?)
    }

    /// The folder that an earlier command left at `root`, to read from.
    pub fn at(root: &Path) -> Self {
        Self { root: root.into() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The complete configuration.
    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    /// The records of the finished runs.
    pub fn results(&self) -> PathBuf {
        self.root.join("results.json")
    }

    /// The comparison table.
    pub fn report(&self) -> PathBuf {
        self.root.join("report.md")
    }

    /// The scripts of `--slurm` and the logs of their jobs.
    pub fn slurm(&self) -> PathBuf {
        self.root.join("slurm")
    }

    /// The comparison as a page.
    pub fn page(&self) -> PathBuf {
        self.root.join("report.html")
    }

    /// The folder of the analyses of its runs.
    pub fn analyses(&self) -> PathBuf {
        self.root.join("analysis")
    }

    /// The folder of the analysis of one run.
    pub fn analysis(&self, attention: &str, seed: u64) -> PathBuf {
        self.analyses().join(run_name(attention, seed))
    }

    /// The folder in it for one of several data sets, made if need be.
    ///
    /// # Errors
    /// [`RunFolderError::Folder`] when it cannot be made.
    pub fn part(&self, dataset: &str) -> Result<Self, RunFolderError> {
        let root = self.root.join(file_name(dataset));
        make_folder(&root)?;
        Ok(Self { root })
    }

    /// The folder of the run of one mechanism and seed, made if need be.
    ///
    /// # Errors
    /// [`RunFolderError::Folder`] when it cannot be made.
    pub fn run(&self, attention: &str, seed: u64) -> Result<RunPaths, RunFolderError> {
        let root = self.root.join(run_name(attention, seed));
        make_folder(&root)?;
        Ok(RunPaths { root })
    }

    /// The folder of the run of one mechanism and seed, whether it is there or not.
    pub(crate) fn run_at(&self, attention: &str, seed: u64) -> RunPaths {
        self.run_named(&run_name(attention, seed))
    }

    /// The run in a folder of this name.
    pub(crate) fn run_named(&self, folder: &str) -> RunPaths {
        RunPaths { root: self.root.join(folder) }
    }

    /// The folders of all runs there are, in those of their data sets or beside each other, sorted by their paths. What is an output folder itself is none.
    ///
    /// # Errors
    /// [`RunFolderError::Read`] when a folder cannot be listed.
    pub fn runs(&self) -> Result<Vec<RunPaths>, RunFolderError> {
        let folders = |root: &Path| -> Result<Vec<PathBuf>, RunFolderError> {
            let there = if root.is_dir() { listed(root)? } else { Vec::new() };
            let is_part = |path: &PathBuf| path.is_dir() && !Self::at(path).config().exists();
            Ok(there.into_iter().filter(is_part).collect())
        };
        let mut runs = Vec::new();
        for folder in folders(&self.root)? {
            runs.extend(folders(&folder)?);
            runs.push(folder);
        }
        runs.sort();
        Ok(runs.into_iter().map(|root| RunPaths { root }).collect())
    }

    /// The folder of a run that was made before, in that of its data set where there are several; `None` if it is not there.
    pub fn existing_run(&self, dataset: &str, attention: &str, seed: u64) -> Option<RunPaths> {
        let name = run_name(attention, seed);
        let places = [self.root.join(file_name(dataset)).join(&name), self.root.join(&name)];
        places.into_iter().find(|root| root.is_dir()).map(|root| RunPaths { root })
    }
}

/// The name of the folder of a run.
pub(crate) fn run_name(attention: &str, seed: u64) -> String {
    format!("{}-seed{seed}", file_name(attention))
}

fn without_runs(table: &Table) -> Table {
    table.iter().filter(|(key, _)| !RUN_TABLES.contains(&key.as_str())).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn make_folder(path: &Path) -> Result<(), RunFolderError> {
    fs::create_dir_all(path).map_err(|source| RunFolderError::Folder { path: path.into(), source })
}

/// The files of the run of one mechanism and seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPaths {
    root: PathBuf,
}

impl RunPaths {
    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The record of the finished run.
    pub fn result(&self) -> PathBuf {
        self.root.join("result.json")
    }

    /// Why the run failed when it was worked on last; there is no such file if it did not.
    pub fn error(&self) -> PathBuf {
        self.root.join("error.txt")
    }

    /// The learning curve, one JSON object per line.
    pub fn log(&self) -> PathBuf {
        self.root.join("log.jsonl")
    }

    /// The folder of the checkpoints.
    pub fn checkpoint(&self) -> PathBuf {
        self.root.join("checkpoint")
    }

    /// The generated text of a test set, one line per test sentence.
    pub fn hypotheses(&self, test_set: &str) -> PathBuf {
        self.root.join("hypotheses").join(format!("{}.txt", file_name(test_set)))
    }

    /// What the generated text of a test set was scored against, one line per test sentence.
    pub fn references(&self, test_set: &str) -> PathBuf {
        self.root.join("hypotheses").join(format!("{}.reference.txt", file_name(test_set)))
    }

    /// What the items of a test set contributed to the scores, one line per item.
    pub fn items(&self, test_set: &str) -> PathBuf {
        self.root.join("items").join(format!("{}.json", file_name(test_set)))
    }

    /// Writes what the items of a test set contributed to the scores.
    ///
    /// # Errors
    /// [`RunFolderError`] when the file cannot be written.
    pub fn write_items(&self, table: &ItemTable) -> Result<(), RunFolderError> {
        make_folder(&self.root.join("items"))?;
        write_atomically(&self.items(table.set()), table.to_json().as_bytes())
    }

    /// Writes the generated text of a test set, one line per test sentence in test order; line breaks inside a sentence become spaces.
    ///
    /// # Errors
    /// [`RunFolderError`] when the file cannot be written.
    pub fn write_hypotheses(&self, test_set: &str, sentences: &[String]) -> Result<(), RunFolderError> {
        self.write_sentences(&self.hypotheses(test_set), sentences)
    }

    /// Writes the references of a test set beside its hypotheses, in the same way.
    ///
    /// # Errors
    /// [`RunFolderError`] when the file cannot be written.
    pub fn write_references<S: AsRef<str>>(&self, test_set: &str, sentences: &[S]) -> Result<(), RunFolderError> {
        self.write_sentences(&self.references(test_set), sentences)
    }

    fn write_sentences<S: AsRef<str>>(&self, path: &Path, sentences: &[S]) -> Result<(), RunFolderError> {
        // Alone, so that a run whose folder disappeared does not come back in part.
        let folder = self.root.join("hypotheses");
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            made => made.map_err(|source| RunFolderError::Folder { path: folder, source })?,
        }
        let mut text = String::new();
        for sentence in sentences {
            text.push_str(&sentence.as_ref().replace(['\n', '\r'], " "));
            text.push('\n');
        }
        write_atomically(path, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write;

    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::process::Process;

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Recipe {
        run: Choice,
        steps: u64,
        /// A field that a later version has brought.
        width: Option<u64>,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Choice {
        attention: Vec<String>,
    }

    fn recipe(attention: &[&str], steps: u64) -> Recipe {
        Recipe { run: Choice { attention: attention.iter().map(|name| name.to_string()).collect() }, steps, width: None }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_command_was_writing_is_no_foreign_file() {
        let folder = tempfile::tempdir().unwrap();
        let ended = Process { started: "1".into(), ..Process::this().clone() };
        let partial = folder.path().join(format!(".partial-{}-a1b2c3", ended.name()));
        fs::write(&partial, b"[ru").unwrap();
        RunFolder::open(folder.path(), &recipe(&["a"], 1), true).unwrap();
        assert_eq!(names(folder.path()), ["config.toml"]);
        fs::write(&partial, b"[ru").unwrap();
        RunFolder::open(folder.path(), &recipe(&["a"], 1), true).unwrap();
        assert_eq!(names(folder.path()), ["config.toml"]);
        fs::remove_file(folder.path().join("config.toml")).unwrap();
        fs::write(&partial, b"[ru").unwrap();
        fs::write(folder.path().join("letter.txt"), b"mine").unwrap();
        let error = RunFolder::open(folder.path(), &recipe(&["a"], 1), true).unwrap_err();
        assert!(matches!(error, RunFolderError::Foreign { .. }), "{error}");
        assert!(partial.exists() && names(folder.path()).len() == 2, "nothing is changed");
    }

    #[test]
    fn what_a_living_command_or_one_elsewhere_is_writing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = Process { host: "node7".into(), started: "1".into(), ..Process::this().clone() };
        let writing = [Process::this(), &elsewhere].map(|process| format!(".partial-{}-a1b2c3", process.name()));
        writing.iter().for_each(|name| fs::write(folder.path().join(name), b"[ru").unwrap());
        RunFolder::open(folder.path(), &recipe(&["a"], 1), true).unwrap();
        assert!(writing.iter().all(|name| folder.path().join(name).exists()), "{:?}", names(folder.path()));
        write_atomically_with(&folder.path().join("results.json"), |_| {
            let own = names(folder.path()).into_iter().filter(|name| name.starts_with(&format!(".partial-{}-", Process::this().name())));
            assert_eq!(own.count(), 2, "a file that is being written says who writes it");
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_file_is_created_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock.json");
        assert!(create_atomically(&path, b"first").unwrap());
        assert!(!create_atomically(&path, b"second").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["lock.json"]);
    }

    #[test]
    fn of_two_commands_that_begin_at_once_with_different_recipes_one_is_refused() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let opened: Vec<bool> = std::thread::scope(|scope| {
                let root = folder.path();
                let open = |steps| scope.spawn(move || RunFolder::open(root, &recipe(&["a"], steps), true).is_ok());
                [1, 2, 3, 4].map(open).map(|thread| thread.join().unwrap()).into()
            });
            assert_eq!(opened.iter().filter(|opened| **opened).count(), 1, "{opened:?}");
        }
    }

    #[test]
    fn a_written_file_replaces_the_old_one_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        write_atomically(&path, b"a long old content").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["results.json"]);
    }

    #[test]
    fn a_write_that_fails_half_way_leaves_the_old_file_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        write_atomically(&path, b"old").unwrap();
        let error = write_atomically_with(&path, |file| {
            file.write_all(b"half of the n")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        })
        .unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["results.json"]);
        assert!(error.to_string().contains("results.json"), "{error}");
        assert!(error.to_string().ends_with("free space or choose another --out"), "{error}");
        assert!(!error.is_usage());
    }

    #[test]
    fn a_rename_that_fails_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("occupied");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("kept"), "").unwrap();
        assert!(write_atomically(&path, b"text").is_err());
        assert_eq!(names(folder.path()), ["occupied"]);
        assert_eq!(names(&path), ["kept"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_written_file_has_the_rights_of_an_ordinary_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ordinary"), "").unwrap();
        write_atomically(&folder.path().join("ours"), b"").unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode("ours"), mode("ordinary"));
    }

    #[test]
    fn file_names_stay_in_their_folder_and_apart_from_each_other() {
        let awkward =
            ["../x", "..", ".", "", "a/b", "a b", "a%2Fb", "a\\b", "a\0b", "ü", "u\u{308}", "synthesizer-random", "Synthesizer-Random"];
        let safe: BTreeSet<String> = awkward.iter().map(|name| file_name(name)).collect();
        assert_eq!(safe.len(), awkward.len());
        for name in &safe {
            assert!(!name.starts_with('.') && !name.is_empty() && !name.contains(['/', '\\', '\0']), "{name}");
        }
        assert_eq!(file_name("synthesizer-random"), "synthesizer-random");
        assert_eq!(file_name("test_2016_flickr.de"), "test_2016_flickr.de");
    }

    #[test]
    fn very_long_names_are_cut_and_stay_apart() {
        let (first, second) = ("é".repeat(500), "é".repeat(501));
        assert!(file_name(&first).len() < 200);
        assert_ne!(file_name(&first), file_name(&second));
    }

    #[test]
    fn a_checksum_equals_the_published_test_vector() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn the_same_configuration_may_use_its_folder_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("runs/mt");
        RunFolder::open(&root, &recipe(&["dot-product"], 10), false).unwrap();
        RunFolder::open(&root, &recipe(&["dot-product"], 10), false).unwrap();
    }

    #[test]
    fn another_recipe_is_refused_with_the_field_that_differs_also_when_resuming() {
        let folder = tempfile::tempdir().unwrap();
        RunFolder::open(folder.path(), &recipe(&["dot-product"], 10), false).unwrap();
        for resume in [false, true] {
            let error = RunFolder::open(folder.path(), &recipe(&["dot-product"], 20), resume).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("`steps`: 10 there, 20 here") && message.contains("another --out"), "{message}");
            assert!(!message.contains("--resume"), "{message}");
            assert!(error.is_usage());
        }
        assert_eq!(RunFolder::at(folder.path()).table().unwrap()["steps"].as_integer(), Some(10));
    }

    #[test]
    fn another_choice_of_mechanisms_needs_resume_and_then_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        RunFolder::open(folder.path(), &recipe(&["dot-product"], 10), false).unwrap();
        let more = recipe(&["dot-product", "synthesizer-random"], 10);
        let error = RunFolder::open(folder.path(), &more, false).unwrap_err();
        assert!(error.to_string().contains("--resume"), "{error}");
        let opened = RunFolder::open(folder.path(), &more, true).unwrap();
        opened.choose_runs(&more).unwrap();
        assert_eq!(opened.table().unwrap(), settings::complete(&more).unwrap());
    }

    #[test]
    fn a_folder_of_an_earlier_version_stays_usable_and_keeps_its_recipe() {
        let folder = tempfile::tempdir().unwrap();
        let written = "steps = 10\n\n[run]\nattention = [\"a\"]\n";
        fs::write(folder.path().join("config.toml"), written).unwrap();
        RunFolder::open(folder.path(), &recipe(&["a"], 10), false).unwrap().choose_runs(&recipe(&["a"], 10)).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("config.toml")).unwrap(), written);
        let more = recipe(&["a", "b"], 10);
        let opened = RunFolder::open(folder.path(), &more, true).unwrap();
        opened.choose_runs(&more).unwrap();
        let (there, runs) = (opened.table().unwrap(), RUN_TABLES);
        assert_eq!(
            (there.get("width"), settings::table_digest(there.clone(), &runs)),
            (None, settings::table_digest(written.parse().unwrap(), &runs))
        );
        assert!(there["run"].to_string().contains('b'), "{there}");
        let other = RunFolder::open(folder.path(), &Recipe { width: Some(3), ..more }, true).unwrap_err().to_string();
        assert!(other.contains("`width`: \"unset\" there, 3 here"), "{other}");
    }

    #[test]
    fn a_written_recipe_has_the_digest_of_its_configuration() {
        #[derive(Default, Serialize, Deserialize)]
        #[serde(default)]
        struct Numbers {
            rate: f64,
            third: f32,
            none: Option<f64>,
            whole: f64,
            name: String,
        }
        let numbers = Numbers { rate: 1e-30, third: 1.0 / 3.0, none: None, whole: 2.0, name: "a\"b\n".into() };
        let folder = tempfile::tempdir().unwrap();
        let there = RunFolder::open(folder.path(), &numbers, false).unwrap().table().unwrap();
        assert_eq!(settings::table_digest(there, &[]), settings::digest(&numbers, &[]).unwrap());
    }

    #[test]
    fn a_folder_with_other_files_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "").unwrap();
        let error = RunFolder::open(folder.path(), &recipe(&["dot-product"], 10), true).unwrap_err();
        assert!(error.to_string().contains("choose another --out"), "{error}");
        assert_eq!(names(folder.path()), ["thesis.tex"]);
    }

    #[test]
    fn an_output_path_that_is_a_file_is_named_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "").unwrap();
        let message = RunFolder::open(&path, &recipe(&["dot-product"], 10), false).unwrap_err().to_string();
        assert!(message.contains("out`") && message.contains("choose another --out"), "{message}");
    }

    #[test]
    fn a_run_is_found_in_the_folder_of_its_data_set_or_beside_the_results() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(root.path());
        assert_eq!(folder.existing_run("copy", "dense", 1), None);
        let run = folder.run("dense", 1).unwrap();
        assert_eq!(folder.existing_run("copy", "dense", 1), Some(run));
        let run = folder.part("a/b").unwrap().run("dense", 1).unwrap();
        assert_eq!(folder.existing_run("a/b", "dense", 1), Some(run));
        assert_eq!(folder.existing_run("a/b", "dense", 2), None);
        assert_eq!(names(root.path()), ["a%2Fb", "dense-seed1"], "looking makes no folder");
    }

    #[test]
    fn a_run_has_its_own_folder_and_one_line_per_hypothesis() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(folder.path(), &recipe(&["a/b"], 10), false).unwrap().run("a/b", 3).unwrap();
        assert_eq!(run.root(), folder.path().join("a%2Fb-seed3"));
        run.write_hypotheses("test", &["Zwei Hunde .".into(), "eins\nzwei".into(), String::new()]).unwrap();
        assert_eq!(fs::read_to_string(run.hypotheses("test")).unwrap(), "Zwei Hunde .\neins zwei\n\n");
        run.write_references("test", &["Zwei Hunde !", "eins\r\nzwei", ""]).unwrap();
        assert_eq!(fs::read_to_string(run.references("test")).unwrap(), "Zwei Hunde !\neins  zwei\n\n");
        assert_eq!(fs::read_to_string(run.hypotheses("test")).unwrap(), "Zwei Hunde .\neins zwei\n\n");
        assert!(run.log().starts_with(run.root()) && run.checkpoint().starts_with(run.root()));
    }
}
