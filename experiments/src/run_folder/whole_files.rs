//! Writing into output folders.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use heedful_host::whole_files as host;
pub use heedful_host::whole_files::file_name;

use super::error::RunFolderError;

/// Replaces the file at `path` by `bytes`, whole or not at all.
///
/// # Errors
/// [`RunFolderError::Write`]; the old file is then intact and no temporary file is left.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RunFolderError> {
    Ok(host::write_atomically(path, bytes)?)
}

/// Replaces the file at `path` by what `write` puts into the file handed to it, whole or not at all.
///
/// # Errors
/// [`RunFolderError::Write`], also for an error of `write`; the old file is then intact and no temporary file is left.
pub fn write_atomically_with(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), RunFolderError> {
    Ok(host::write_atomically_with(path, write)?)
}

/// Creates the file at `path` with `bytes`, whole or not at all; returns whether it did, which it does not where there is a file. Of several processes
/// that try, one does, also on a network file system.
///
/// # Errors
/// [`RunFolderError::Write`]; no temporary file is left.
pub fn create_atomically(path: &Path, bytes: &[u8]) -> Result<bool, RunFolderError> {
    Ok(host::create_atomically(path, bytes)?)
}

pub(super) fn make_folder(path: &Path) -> Result<(), RunFolderError> {
    fs::create_dir_all(path).map_err(|source| RunFolderError::Folder { path: path.into(), source })
}
