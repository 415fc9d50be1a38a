//! Files that are never half written, and their names.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use super::{RunFolderError, sha256_hex};
use crate::process::Process;

/// How the names of files begin that are not whole yet; the process that writes them and some random letters follow.
const TEMPORARY: &str = ".partial-";

pub(super) fn is_temporary(path: &Path) -> bool {
    path.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(TEMPORARY))
}

/// Whether a temporary file was left behind by a process that is known to have ended.
pub(super) fn is_left_behind(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let writer = name.strip_prefix(TEMPORARY).and_then(|rest| rest.rsplit_once('-')).and_then(|(process, _)| Process::named(process));
    writer.is_some_and(|process| process.has_ended())
}

/// Replaces the file at `path` by `bytes`, whole or not at all.
///
/// # Errors
/// [`RunFolderError::Write`]; the old file is then intact and no temporary file is left.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RunFolderError> {
    write_atomically_with(path, |file| file.write_all(bytes))
}

/// Replaces the file at `path` by what `write` puts into the file handed to it, whole or not at all.
///
/// # Errors
/// [`RunFolderError::Write`], also for an error of `write`; the old file is then intact and no temporary file is left.
pub fn write_atomically_with(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), RunFolderError> {
    let replace = || -> io::Result<()> {
        written(path, write)?.persist(path).map_err(|error| error.error)?;
        sync_folder(folder_of(path))
    };
    replace().map_err(|source| RunFolderError::Write { path: path.into(), source })
}

/// Creates the file at `path` with `bytes`, whole or not at all; returns whether it did, which it does not where there is a file. Of several processes
/// that try, one does, also on a network file system.
///
/// # Errors
/// [`RunFolderError::Write`]; no temporary file is left.
pub fn create_atomically(path: &Path, bytes: &[u8]) -> Result<bool, RunFolderError> {
    let create = || -> io::Result<bool> {
        match written(path, |file| file.write_all(bytes))?.persist_noclobber(path) {
            Ok(_) => sync_folder(folder_of(path)).map(|()| true),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error.error),
        }
    };
    create().map_err(|source| RunFolderError::Write { path: path.into(), source })
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
