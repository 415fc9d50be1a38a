//! The programs that run blocks: those beside this one, or copies of them that a block was begun with.
//!
//! A copy outlives later builds, so that all records of a block are of one commit:
//!
//! ```text
//! <out>/programs/<commit>/mt, lm, ..    copies of the programs of a commit without changes
//! <out>/programs/<block>.commit         the commit of the programs that the block was begun with
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use heedful_host::provenance::Provenance;
use heedful_host::whole_files::write_atomically;

use super::block::Block;
use super::running::RunOptions;
use crate::error::ExperimentError;
use crate::provenance::{self, COPIED};

/// The folder of all copies below that of all blocks' runs.
const FOLDER: &str = "programs";

/// The path of the program that runs a block.
///
/// # Errors
/// A program that is not there, one with changes that no commit holds where a copy is wanted, and files that cannot be read or written.
pub(super) fn program_of(block: &Block, name: &str, options: &RunOptions) -> Result<PathBuf, ExperimentError> {
    let beside = own_folder()?;
    if !options.keep_programs {
        return Ok(beside.join(file(name)));
    }
    let copies = options.out.join(FOLDER);
    let begun = copies.join(format!("{}.commit", block.name));
    let commit = match fs::read_to_string(&begun) {
        Ok(commit) => commit.trim().to_owned(),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("read", &begun, &error)),
        Err(_) => {
            let commit = clean_commit(&provenance::here())?;
            fs::create_dir_all(&copies).map_err(|error| failed("make", &copies, &error))?;
            write_atomically(&begun, format!("{commit}\n").as_bytes())?;
            commit
        }
    };
    let folder = copies.join(&commit);
    let copy = folder.join(file(name));
    if !copy.is_file() {
        if clean_commit(&provenance::here()).is_ok_and(|own| own == commit) {
            copied(&beside.join(file(name)), &folder, &commit)?;
        } else {
            let (copy, commit) = (copy.display(), &commit[..12.min(commit.len())]);
            let problem =
                format!("{} was begun by the programs of commit {commit}, and `{copy}` is not there; build that commit", block.name);
            return Err(ExperimentError::usage(format!("{problem}, or remove `{}` and its runs", begun.display())));
        }
    }
    Ok(copy)
}

/// The commit of a program without changes.
fn clean_commit(Provenance { commit, is_clean, .. }: &Provenance) -> Result<String, ExperimentError> {
    match is_clean {
        Some(true) => Ok(commit.clone()),
        _ => Err(ExperimentError::usage(
            "--keep-programs: this program was not built of a commit without changes, so that no commit would stand for its runs; commit, and build again",
        )),
    }
}

/// Copies a program into the folder of its commit. A copy that was broken off has another name.
fn copied(program: &Path, folder: &Path, commit: &str) -> Result<(), ExperimentError> {
    if !program.is_file() {
        return Err(not_there(program));
    }
    fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
    write_atomically(&folder.join(COPIED), format!("{commit}\n").as_bytes())?;
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let partial = folder.join(format!("{name}.{}.partial", std::process::id()));
    fs::copy(program, &partial).map_err(|error| failed("copy", program, &error))?;
    fs::rename(&partial, folder.join(&name)).map_err(|error| failed("write", folder, &error))
}

fn failed(what: &str, path: &Path, error: &io::Error) -> ExperimentError {
    ExperimentError::failure(format!("cannot {what} `{}`: {error}", path.display()))
}

/// The refusal of a program that was not built.
pub(super) fn not_there(path: &Path) -> ExperimentError {
    ExperimentError::usage(format!("`{}` is not there; build all programs: cargo build --release", path.display()))
}

/// The file of a program.
pub(super) fn file(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

/// The folder of this program.
pub(super) fn own_folder() -> Result<PathBuf, ExperimentError> {
    let own = std::env::current_exe().map_err(|error| ExperimentError::failure(format!("cannot tell where this program is: {error}")))?;
    Ok(own.parent().unwrap_or(Path::new("")).to_owned())
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
        let refused = program_of(&block(), "lm", &options).unwrap_err();
        assert!(refused.exit_code() == 2 && refused.to_string().contains("commit 0123abcd"), "{refused}");
        fs::write(copies.join("0123abcd/lm"), "a program").unwrap();
        assert_eq!(program_of(&block(), "lm", &options).unwrap(), copies.join("0123abcd").join(file("lm")));
        let beside = program_of(&block(), "lm", &RunOptions { keep_programs: false, ..options }).unwrap();
        assert_eq!(beside, own_folder().unwrap().join(file("lm")));
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
        copied(&program, &folder.path().join("copies"), "0123").unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join("copies").join(name)).unwrap();
        assert_eq!((read("lm").as_str(), read(COPIED).trim()), ("a program", "0123"));
        assert!(copied(&folder.path().join("mt"), folder.path(), "0123").is_err());
    }
}
