//! Files that are never half written, and their names.
//!
//! A file is written under a temporary name in its own folder, synced, renamed over the old one, and the folder is synced: after a crash or on a full
//! disk the old file or the new one is there, never a part of one.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

use crate::checksum::sha256_hex;
use crate::process::Process;

/// What the system refused to do with a file or folder.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
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
    /// An existing file or folder could not be read.
    #[error("cannot read `{}`: {source}; mend it or choose another --out", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl FileError {
    /// A [`Write`](Self::Write).
    pub fn write(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Write { path: path.into(), source }
    }

    /// A [`Folder`](Self::Folder).
    pub fn folder(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Folder { path: path.into(), source }
    }

    /// A [`Read`](Self::Read).
    pub fn read(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Read { path: path.into(), source }
    }

    /// The system's reason.
    pub fn into_source(self) -> io::Error {
        match self {
            Self::Write { source, .. } | Self::Folder { source, .. } | Self::Read { source, .. } => source,
        }
    }
}

/// The text of a file; `None` if there is no such file.
///
/// # Errors
/// [`FileError::Read`].
pub fn read_if_there(path: &Path) -> Result<Option<String>, FileError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FileError::read(path, source)),
    }
}

/// What a folder holds, sorted; nothing if there is no such folder.
///
/// # Errors
/// [`FileError::Read`].
pub fn listed_if_there(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let list = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    match list() {
        Ok(mut paths) => {
            paths.sort();
            Ok(paths)
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(source) => Err(FileError::read(folder, source)),
    }
}

/// Makes a folder and those above it, if need be.
///
/// # Errors
/// [`FileError::Folder`].
pub fn make_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|source| FileError::folder(path, source))
}

/// What to do where an output folder cannot be written, as the end of a message.
pub fn write_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => "; free space or choose another --out",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "; choose another --out that may be written",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory => "; choose another --out",
        _ => "",
    }
}

/// How the names of files begin that are not whole yet; the process that writes them and some random letters follow.
const TEMPORARY: &str = ".partial-";

/// Whether a file is not whole yet, or never became so.
pub fn is_temporary(path: &Path) -> bool {
    path.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(TEMPORARY))
}

/// Whether a temporary file was left behind by a process that is known to have ended.
pub fn is_left_behind(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let writer = name.strip_prefix(TEMPORARY).and_then(|rest| rest.rsplit_once('-')).and_then(|(process, _)| Process::named(process));
    writer.is_some_and(|process| process.has_ended())
}

/// Replaces the file at `path` by `bytes`, whole or not at all.
///
/// # Errors
/// [`FileError::Write`]; the old file is then intact and no temporary file is left.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write_atomically_with(path, |file| file.write_all(bytes))
}

/// Replaces the file at `path` by what `write` puts into the file handed to it, whole or not at all.
///
/// # Errors
/// [`FileError::Write`], also for an error of `write`; the old file is then intact and no temporary file is left.
pub fn write_atomically_with(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), FileError> {
    let replace = || -> io::Result<()> {
        written(path, write)?.persist(path).map_err(|error| error.error)?;
        sync_folder(folder_of(path))
    };
    replace().map_err(|source| FileError::write(path, source))
}

/// Creates the file at `path` with `bytes`, whole or not at all; returns whether it did, which it does not where there is a file. Of several processes
/// that try, one does, also on a network file system.
///
/// # Errors
/// [`FileError::Write`]; no temporary file is left.
pub fn create_atomically(path: &Path, bytes: &[u8]) -> Result<bool, FileError> {
    let create = || -> io::Result<bool> {
        match written(path, |file| file.write_all(bytes))?.persist_noclobber(path) {
            Ok(_) => sync_folder(folder_of(path)).map(|()| true),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error.error),
        }
    };
    create().map_err(|source| FileError::write(path, source))
}

/// What is to become the file at `path`, under another name.
fn written(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<tempfile::NamedTempFile> {
    let mut temporary = new_temporary(folder_of(path))?;
    write(temporary.as_file_mut())?;
    temporary.as_file().sync_all()?;
    Ok(temporary)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn new_temporary(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let prefix = format!("{TEMPORARY}{}-", Process::this().name());
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // A temporary file is private by default; a result should have the rights of any new file, which the umask decides.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// A file name for any name: letters, digits, `-`, `_`, `+` and dots inside stay, every other byte becomes `%` and two hexadecimal digits, so that
/// different names give different files and none leaves its folder. A name too long for a file system is cut and ends in a part of its checksum.
pub fn file_name(name: &str) -> String {
    const LONGEST: usize = 120;
    let mut safe = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'+' => safe.push(byte as char),
            b'.' if index > 0 => safe.push('.'),
            _ => safe.extend(["%", &hex::encode_upper([byte])]),
        }
    }
    if safe.is_empty() {
        return "%".into();
    }
    if safe.len() > LONGEST {
        safe.truncate(LONGEST);
        safe.push('~');
        safe.push_str(&sha256_hex(name.as_bytes())[..16]);
    }
    safe
}

/// The name that [`file_name`] made `file` of, to be shown to people: `local-1d{window=8}` of `local-1d%7Bwindow%3D8%7D`. What is no such file name, or would hide
/// control characters, stays as it is.
pub fn plain_name(file: &str) -> String {
    let decoded = percent_decode_str(file).decode_utf8().ok();
    decoded.filter(|name| !name.contains(char::is_control)).map_or_else(|| file.to_owned(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
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
    fn plain_names_are_those_that_files_were_named_by() {
        for name in ["local-1d{query_block=8,memory_block=8}", "a b/c", "ü%", "synthesizer-random+dot-product"] {
            assert_eq!(plain_name(&file_name(name)), name);
        }
        for file in ["%", "100%x", "%4", "%FF", &file_name("\u{1b}[2J")] {
            assert_eq!(plain_name(file), file);
        }
    }

    #[test]
    fn very_long_names_are_cut_and_stay_apart() {
        let (first, second) = ("é".repeat(500), "é".repeat(501));
        assert!(file_name(&first).len() < 200);
        assert_ne!(file_name(&first), file_name(&second));
    }
}
