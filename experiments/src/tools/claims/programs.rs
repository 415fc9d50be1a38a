//! The program that runs blocks: this one, or a copy of it that a block was begun with.
//!
//! A copy outlives later builds, so that all records of a block are of one commit:
//!
//! ```text
//! <out>/programs/<commit>/heedful       the copy of a program of a commit without changes
//! <out>/programs/<block>.commit         the commit of the program that the block was begun with
//! ```
//!
//! Earlier versions had a program for each experiment. A block that one of them has begun goes on with its copy.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use heedful_host::provenance::Provenance;
use heedful_host::whole_files::{make_folder, write_atomically};

use super::block::Block;
use super::running::RunOptions;
use crate::session::error::ExperimentError;
use crate::session::provenance::{self, COPIED};

/// The folder of all copies below that of all blocks' runs.
const FOLDER: &str = "programs";

/// The name of the program.
const NAME: &str = "heedful";

/// A program of all experiments and tools, or one of an earlier version that is a single experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    path: PathBuf,
    is_single: bool,
}

impl Program {
    /// This program.
    ///
    /// # Errors
    /// If the system does not tell where it is.
    pub(super) fn own() -> Result<Self, ExperimentError> {
        let path =
            std::env::current_exe().map_err(|error| ExperimentError::failure(format!("cannot tell where this program is: {error}")))?;
        Ok(Self { path, is_single: false })
    }

    /// The copy of a commit that is in `folder`, if it is there; `experiment` is its command.
    fn copy(folder: &Path, experiment: &str) -> Option<Self> {
        let at = |name: &str, is_single| Self { path: folder.join(file(name)), is_single };
        [at(NAME, false), at(experiment, true)].into_iter().find(|program| program.path.is_file())
    }

    /// The command with arguments, of which the first is that of an experiment or tool. It records itself without its folder.
    ///
    /// # Errors
    /// A program that is not there.
    pub(super) fn command(&self, arguments: &[String]) -> Result<Command, ExperimentError> {
        let (name, arguments) = if self.is_single { (&*arguments[0], &arguments[1..]) } else { (NAME, arguments) };
        let mut command = Command::new(&self.path);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::arg0(&mut command, name);
        command.args(arguments);
        if self.path.is_file() { Ok(command) } else { Err(not_there(&self.path)) }
    }
}

/// The program that runs a block.
///
/// # Errors
/// A program that is not there, one with changes that no commit holds where a copy is wanted, and files that cannot be read or written.
pub(super) fn program_of(block: &Block, options: &RunOptions) -> Result<Program, ExperimentError> {
    let own = Program::own()?;
    if !options.keep_programs {
        return Ok(own);
    }
    let copies = options.out.join(FOLDER);
    let begun = copies.join(format!("{}.commit", block.name));
    let commit = match fs::read_to_string(&begun) {
        Ok(commit) => commit.trim().to_owned(),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("read", &begun, &error)),
        Err(_) => {
            let commit = clean_commit(&provenance::here())?;
            make_folder(&copies)?;
            write_atomically(&begun, format!("{commit}\n").as_bytes())?;
            commit
        }
    };
    let folder = copies.join(&commit);
    if let Some(copy) = Program::copy(&folder, &block.arguments()[0]) {
        return Ok(copy);
    }
    let copy = folder.join(file(NAME));
    if clean_commit(&provenance::here()).is_ok_and(|own| own == commit) {
        copied(&own.path, &copy, &commit)?;
        return Ok(Program { path: copy, is_single: false });
    }
    let (copy, commit) = (copy.display(), &commit[..12.min(commit.len())]);
    let problem = format!("{} was begun by the program of commit {commit}, and `{copy}` is not there; build that commit", block.name);
    Err(ExperimentError::usage(format!("{problem}, or remove `{}` and its runs", begun.display())))
}

/// The commit of a program without changes.
fn clean_commit(Provenance { commit, is_clean, .. }: &Provenance) -> Result<String, ExperimentError> {
    match is_clean {
        Some(true) => Ok(commit.clone()),
        _ => Err(ExperimentError::usage(
            "--keep-programs: this program was not built from a commit without changes, so that no commit identifies its runs; commit, and build again",
        )),
    }
}

/// Copies a program of a commit. A copy that was broken off has another name.
fn copied(program: &Path, copy: &Path, commit: &str) -> Result<(), ExperimentError> {
    if !program.is_file() {
        return Err(not_there(program));
    }
    let folder = copy.parent().unwrap_or(Path::new(""));
    make_folder(folder)?;
    write_atomically(&folder.join(COPIED), format!("{commit}\n").as_bytes())?;
    let partial = copy.with_extension(format!("{}.partial", std::process::id()));
    fs::copy(program, &partial).map_err(|error| failed("copy", program, &error))?;
    fs::rename(&partial, copy).map_err(|error| failed("write", folder, &error))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> ExperimentError {
    ExperimentError::failure(format!("cannot {what} `{}`: {error}", path.display()))
}

/// The refusal of a program that was not built.
fn not_there(path: &Path) -> ExperimentError {
    ExperimentError::usage(format!("`{}` is not there; build it: cargo build --release", path.display()))
}

/// The file of a program.
fn file(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        let text = "title = \"words\"\nexperiment = \"lm\"\nseeds = 1\nminutes = 1\norder = 1\n";
        Block { name: "S1".to_owned(), ..toml::from_str(text).unwrap() }
    }

    #[test]
    fn a_block_goes_on_with_the_copy_that_it_was_begun_with() {
        let out = tempfile::tempdir().unwrap();
        let options = RunOptions { out: out.path().to_owned(), keep_programs: true, ..RunOptions::default() };
        let copies = out.path().join(FOLDER);
        fs::create_dir_all(copies.join("0123abcd")).unwrap();
        fs::write(copies.join("S1.commit"), "0123abcd\n").unwrap();
        let refused = program_of(&block(), &options).unwrap_err();
        assert!(refused.exit_code() == 2 && refused.to_string().contains("commit 0123abcd"), "{refused}");
        let run = |options: &RunOptions| program_of(&block(), options).unwrap().command(&block().arguments()).unwrap();
        let shown = |command: Command| format!("{command:?}");
        fs::write(copies.join("0123abcd/lm"), "a program of an earlier version").unwrap();
        assert!(shown(run(&options)).contains("0123abcd/lm\"") && run(&options).get_args().count() == 0);
        fs::write(copies.join("0123abcd/heedful"), "a program").unwrap();
        assert!(shown(run(&options)).contains("0123abcd/heedful\"") && run(&options).get_args().eq(["lm"]));
        assert_eq!(program_of(&block(), &RunOptions { keep_programs: false, ..options }).unwrap(), Program::own().unwrap());
    }

    #[test]
    fn only_programs_of_a_clean_commit_are_copied() {
        let built = |is_clean| Provenance { commit: "0123".to_owned(), is_clean, ..provenance::here() };
        assert_eq!(clean_commit(&built(Some(true))).unwrap(), "0123");
        for is_clean in [Some(false), None] {
            let error = clean_commit(&built(is_clean)).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains("--keep-programs"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("lm");
        fs::write(&program, "a program").unwrap();
        copied(&program, &folder.path().join("copies/lm"), "0123").unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join("copies").join(name)).unwrap();
        assert_eq!((read("lm").as_str(), read(COPIED).trim()), ("a program", "0123"));
        assert!(copied(&folder.path().join("mt"), &folder.path().join("copies/mt"), "0123").is_err());
    }
}
