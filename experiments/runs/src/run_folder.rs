//! The folder a run leaves behind.
//!
//! ```text
//! <out>/config.toml                 the complete configuration; fed back with --config it repeats the run
//! <out>/results.json                one record per finished run, derived from the result.json of all
//! <out>/trivial.json                scores without attention or without learning, see [`crate::trivial`]
//! <out>/trivial/<baseline>/         its scores on the development set as lines for TensorBoard
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
//! Files are replaced whole ([`heedful_host::whole_files`]). The training engine, not this module, determines the content of a checkpoint.

mod error;
mod run_paths;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use heedful_host::whole_files::{
    FileError, create_atomically, file_name, is_left_behind, is_temporary, listed_if_there as listed, make_folder, write_atomically,
};
use toml::Table;

pub use self::error::RunFolderError;
pub use self::run_paths::RATES;
pub use self::run_paths::RunPaths;
use crate::settings::{self, Configuration};

/// The configuration tables that do not affect how a run is done: the selection of runs (mechanisms, seeds, backend, data), and their resources under Slurm.
pub const RUN_TABLES: [&str; 2] = ["run", "slurm"];

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
    /// defaults in it. `align` may make complete configurations, there and here, equal in what does not distinguish their runs.
    ///
    /// # Errors
    /// [`RunFolderError`] when the folder holds another configuration or foreign files, or cannot be written. Nothing is changed then.
    pub fn open<T: Configuration>(
        root: &Path,
        configuration: &T,
        resume: bool,
        align: impl Fn(&mut Table, &mut Table),
    ) -> Result<Self, RunFolderError> {
        let folder = Self { root: root.into() };
        make_folder(root)?;
        let config = folder.config();
        let text = settings::complete_text(configuration)?;
        loop {
            match fs::read_to_string(&config) {
                Ok(there) => {
                    folder.compare(&settings::parse(&config, &there)?, configuration, resume, &align)?;
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
                Err(source) => return Err(FileError::read(config, source).into()),
            }
        }
        for left_behind in listed(root)?.into_iter().filter(|path| is_temporary(path) && is_left_behind(path)) {
            match fs::remove_file(&left_behind) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(FileError::write(left_behind, source).into()),
                _ => {}
            }
        }
        Ok(folder)
    }

    /// Refuses a configuration that must not be mixed with the one that is there.
    fn compare<T: Configuration>(
        &self,
        there: &Table,
        here: &T,
        resume: bool,
        align: impl Fn(&mut Table, &mut Table),
    ) -> Result<(), RunFolderError> {
        let mut here = settings::complete(here)?;
        let mut there = settings::completed::<T>(there).unwrap_or_else(|| there.clone());
        align(&mut there, &mut here);
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
        let text = self.text()?;
        let mut table = settings::parse(&self.config(), &text)?;
        let there = settings::completed::<T>(&table).unwrap_or_else(|| table.clone());
        let mut here = settings::complete(configuration)?;
        let chosen = RUN_TABLES.into_iter().filter_map(|name| Some((name.to_owned(), here.remove(name)?)));
        let changed: Vec<_> = chosen.filter(|(name, runs)| there.get(name) != Some(runs)).collect();
        let is_same = changed.is_empty();
        table.extend(changed);
        if is_same { Ok(()) } else { Ok(write_atomically(&self.config(), settings::table_text(&table)?.as_bytes())?) }
    }

    /// What `config.toml` holds.
    ///
    /// # Errors
    /// [`RunFolderError`] when it cannot be read or is no TOML.
    pub fn table(&self) -> Result<Table, RunFolderError> {
        Ok(settings::parse(&self.config(), &self.text()?)?)
    }

    fn text(&self) -> Result<String, RunFolderError> {
        let path = self.config();
        Ok(fs::read_to_string(&path).map_err(|source| FileError::read(path, source))?)
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

    /// The trivial baselines.
    pub fn trivial(&self) -> PathBuf {
        self.root.join("trivial.json")
    }

    /// The folder with the event file of a trivial baseline, of one of several data sets if `dataset` names it.
    pub fn trivial_events(&self, dataset: Option<&str>, baseline: &str) -> PathBuf {
        let root = dataset.map_or_else(|| self.root.clone(), |dataset| self.root.join(file_name(dataset)));
        root.join("trivial").join(file_name(baseline))
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
    /// [`RunFolderError::File`] when it cannot be made.
    pub fn part(&self, dataset: &str) -> Result<Self, RunFolderError> {
        let root = self.root.join(file_name(dataset));
        make_folder(&root)?;
        Ok(Self { root })
    }

    /// The folder of the run of one mechanism and seed, made if need be.
    ///
    /// # Errors
    /// [`RunFolderError::File`] when it cannot be made.
    pub fn run(&self, attention: &str, seed: u64) -> Result<RunPaths, RunFolderError> {
        let root = self.root.join(run_name(attention, seed));
        make_folder(&root)?;
        Ok(RunPaths { root })
    }

    /// The folder of the run of one mechanism and seed, whether it is there or not.
    pub fn run_at(&self, attention: &str, seed: u64) -> RunPaths {
        self.run_named(&run_name(attention, seed))
    }

    /// The run in a folder of this name.
    pub(crate) fn run_named(&self, folder: &str) -> RunPaths {
        RunPaths { root: self.root.join(folder) }
    }

    /// The folders of all runs there are, in those of their data sets or beside each other, sorted by their paths. What is an output folder itself is none.
    ///
    /// # Errors
    /// [`RunFolderError::File`] when a folder cannot be listed.
    pub fn runs(&self) -> Result<Vec<RunPaths>, RunFolderError> {
        let folders = |root: &Path| -> Result<Vec<PathBuf>, RunFolderError> {
            let is_part = |path: &PathBuf| path.is_dir() && !Self::at(path).config().exists();
            Ok(listed(root)?.into_iter().filter(is_part).collect())
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

#[cfg(test)]
mod tests {
    use heedful_host::process::Process;
    use serde::{Deserialize, Serialize};

    use super::*;

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
        RunFolder::open(folder.path(), &recipe(&["a"], 1), true, |_, _| {}).unwrap();
        assert_eq!(names(folder.path()), ["config.toml"]);
        fs::write(&partial, b"[ru").unwrap();
        RunFolder::open(folder.path(), &recipe(&["a"], 1), true, |_, _| {}).unwrap();
        assert_eq!(names(folder.path()), ["config.toml"]);
        fs::remove_file(folder.path().join("config.toml")).unwrap();
        fs::write(&partial, b"[ru").unwrap();
        fs::write(folder.path().join("letter.txt"), b"mine").unwrap();
        let error = RunFolder::open(folder.path(), &recipe(&["a"], 1), true, |_, _| {}).unwrap_err();
        assert!(matches!(error, RunFolderError::Foreign { .. }), "{error}");
        assert!(partial.exists() && names(folder.path()).len() == 2, "nothing is changed");
    }

    #[test]
    fn what_a_living_command_or_one_elsewhere_is_writing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = Process { host: "node7".into(), started: "1".into(), ..Process::this().clone() };
        let writing = [Process::this(), &elsewhere].map(|process| format!(".partial-{}-a1b2c3", process.name()));
        writing.iter().for_each(|name| fs::write(folder.path().join(name), b"[ru").unwrap());
        RunFolder::open(folder.path(), &recipe(&["a"], 1), true, |_, _| {}).unwrap();
        assert!(writing.iter().all(|name| folder.path().join(name).exists()), "{:?}", names(folder.path()));
        heedful_host::whole_files::write_atomically_with(&folder.path().join("results.json"), |_| {
            let own = names(folder.path()).into_iter().filter(|name| name.starts_with(&format!(".partial-{}-", Process::this().name())));
            assert_eq!(own.count(), 2, "a file that is being written says who writes it");
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn of_two_commands_that_begin_at_once_with_different_recipes_one_is_refused() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let opened: Vec<bool> = std::thread::scope(|scope| {
                let root = folder.path();
                let open = |steps| scope.spawn(move || RunFolder::open(root, &recipe(&["a"], steps), true, |_, _| {}).is_ok());
                [1, 2, 3, 4].map(open).map(|thread| thread.join().unwrap()).into()
            });
            assert_eq!(opened.iter().filter(|opened| **opened).count(), 1, "{opened:?}");
        }
    }

    #[test]
    fn the_same_configuration_may_use_its_folder_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("runs/mt");
        RunFolder::open(&root, &recipe(&["dot-product"], 10), false, |_, _| {}).unwrap();
        RunFolder::open(&root, &recipe(&["dot-product"], 10), false, |_, _| {}).unwrap();
    }

    #[test]
    fn another_recipe_is_refused_with_the_field_that_differs_also_when_resuming() {
        let folder = tempfile::tempdir().unwrap();
        RunFolder::open(folder.path(), &recipe(&["dot-product"], 10), false, |_, _| {}).unwrap();
        for resume in [false, true] {
            let error = RunFolder::open(folder.path(), &recipe(&["dot-product"], 20), resume, |_, _| {}).unwrap_err();
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
        RunFolder::open(folder.path(), &recipe(&["dot-product"], 10), false, |_, _| {}).unwrap();
        let more = recipe(&["dot-product", "synthesizer-random"], 10);
        let error = RunFolder::open(folder.path(), &more, false, |_, _| {}).unwrap_err();
        assert!(error.to_string().contains("--resume"), "{error}");
        let opened = RunFolder::open(folder.path(), &more, true, |_, _| {}).unwrap();
        opened.choose_runs(&more).unwrap();
        assert_eq!(opened.table().unwrap(), settings::complete(&more).unwrap());
    }

    #[test]
    fn a_folder_of_an_earlier_version_stays_usable_and_keeps_its_recipe() {
        let folder = tempfile::tempdir().unwrap();
        let written = "steps = 10\n\n[run]\nattention = [\"a\"]\n";
        fs::write(folder.path().join("config.toml"), written).unwrap();
        RunFolder::open(folder.path(), &recipe(&["a"], 10), false, |_, _| {}).unwrap().choose_runs(&recipe(&["a"], 10)).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("config.toml")).unwrap(), written);
        let more = recipe(&["a", "b"], 10);
        let opened = RunFolder::open(folder.path(), &more, true, |_, _| {}).unwrap();
        opened.choose_runs(&more).unwrap();
        let (there, runs) = (opened.table().unwrap(), RUN_TABLES);
        assert_eq!(
            (there.get("width"), settings::table_digest(there.clone(), &runs)),
            (None, settings::table_digest(written.parse().unwrap(), &runs))
        );
        assert!(there["run"].to_string().contains('b'), "{there}");
        let other = RunFolder::open(folder.path(), &Recipe { width: Some(3), ..more }, true, |_, _| {}).unwrap_err().to_string();
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
        let there = RunFolder::open(folder.path(), &numbers, false, |_, _| {}).unwrap().table().unwrap();
        assert_eq!(settings::table_digest(there, &[]), settings::digest(&numbers, &[]).unwrap());
    }

    #[test]
    fn a_folder_with_other_files_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "").unwrap();
        let error = RunFolder::open(folder.path(), &recipe(&["dot-product"], 10), true, |_, _| {}).unwrap_err();
        assert!(error.to_string().contains("choose another --out"), "{error}");
        assert_eq!(names(folder.path()), ["thesis.tex"]);
    }

    #[test]
    fn an_output_path_that_is_a_file_is_named_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "").unwrap();
        let message = RunFolder::open(&path, &recipe(&["dot-product"], 10), false, |_, _| {}).unwrap_err().to_string();
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
        let run = RunFolder::open(folder.path(), &recipe(&["a/b"], 10), false, |_, _| {}).unwrap().run("a/b", 3).unwrap();
        assert_eq!(run.root(), folder.path().join("a%2Fb-seed3"));
        run.write_hypotheses("test", &["Zwei Hunde .".into(), "eins\nzwei".into(), String::new()]).unwrap();
        assert_eq!(fs::read_to_string(run.hypotheses("test")).unwrap(), "Zwei Hunde .\neins zwei\n\n");
        run.write_references("test", &["Zwei Hunde !", "eins\r\nzwei", ""]).unwrap();
        assert_eq!(fs::read_to_string(run.references("test")).unwrap(), "Zwei Hunde !\neins  zwei\n\n");
        assert_eq!(fs::read_to_string(run.hypotheses("test")).unwrap(), "Zwei Hunde .\neins zwei\n\n");
        assert!(run.log().starts_with(run.root()) && run.checkpoint().starts_with(run.root()));
    }
}
