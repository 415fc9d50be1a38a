//! Binary files, plain or gzip, of which no more is decompressed than their format allows.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use heedful_host::checksum::sha256_hex;

use crate::bounded::{Budget, limit_in_memory};
use crate::{DataError, files};

/// A file as it is stored.
pub(super) struct StoredFile {
    path: PathBuf,
    name: String,
    bytes: Vec<u8>,
    sha256: String,
}

impl StoredFile {
    /// Reads the file at `path`; `looked_for` says in the error message what should have been there.
    pub(super) fn read(path: &Path, looked_for: &str) -> Result<Self, DataError> {
        let bytes = fs::read(path).map_err(|cause| match cause.kind() {
            ErrorKind::NotFound => DataError::NotFound { path: path.to_path_buf(), looked_for: looked_for.to_owned() },
            _ => DataError::Unreadable { path: path.to_path_buf(), cause },
        })?;
        Ok(Self::from_bytes(path.to_path_buf(), bytes))
    }

    /// The file at `path` with these bytes as stored.
    pub(super) fn from_bytes(path: PathBuf, bytes: Vec<u8>) -> Self {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self { path, name, sha256: sha256_hex(&bytes), bytes }
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its content is compressed.
    pub(super) fn is_compressed(&self) -> bool {
        self.name.ends_with(".gz")
    }

    /// The first `N` bytes of its content, or fewer if there are no more.
    pub(super) fn beginning<const N: usize>(&self) -> Result<Vec<u8>, DataError> {
        match self.is_compressed() {
            true => self.decompressed(N as u64),
            false => Ok(self.bytes.iter().take(N).copied().collect()),
        }
    }

    /// Its content. Of more than `most` bytes, one more is read of a compressed file, which says that there are too many.
    pub(super) fn content(&mut self, most: u64) -> Result<Vec<u8>, DataError> {
        match self.is_compressed() {
            true => self.decompressed(most.saturating_add(1)),
            false => Ok(std::mem::take(&mut self.bytes)),
        }
    }

    fn decompressed(&self, most: u64) -> Result<Vec<u8>, DataError> {
        let mut content = Vec::new();
        let path = self.path.clone();
        let budget = Budget::new(limit_in_memory(self.bytes.len()));
        let read = budget.reader(MultiGzDecoder::new(self.bytes.as_slice()).take(most)).read_to_end(&mut content);
        read.map_err(|cause| match budget.is_exceeded() {
            true => DataError::TooLarge { path, limit: budget.limit(), remedy: "decompress it first and give the plain file" },
            false => DataError::Gzip { path, cause },
        })?;
        Ok(content)
    }

    /// The error of a part that is not what the format wants.
    pub(super) fn wrong(&self, field: &str, found: impl ToString, expected: impl ToString) -> DataError {
        DataError::Binary { path: self.path.clone(), field: field.to_owned(), found: found.to_string(), expected: expected.to_string() }
    }
}

/// The SHA-256 of files, as of [`files::combined_sha256`].
pub(super) fn combined_sha256<'a>(stored: impl IntoIterator<Item = &'a StoredFile>) -> String {
    files::combined(stored.into_iter().map(|file| (&file.sha256, &file.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::TextFile;
    use crate::files::tests::gzip;

    #[test]
    fn a_compressed_file_is_decompressed_no_further_than_asked() {
        let mut bomb = StoredFile::from_bytes("a.gz".into(), gzip(&vec![7; 1 << 20]));
        assert!(bomb.bytes.len() < 2000);
        assert_eq!(bomb.beginning::<3>().unwrap(), [7; 3]);
        assert_eq!(bomb.content(100).unwrap(), [7; 101]);
        assert_eq!(bomb.content(1 << 20).unwrap().len(), 1 << 20);
    }

    #[test]
    fn a_cut_or_empty_gzip_file_is_an_error_even_if_all_its_bytes_are_there() {
        let whole = gzip(b"0123456789");
        for length in 0..whole.len() {
            let mut file = StoredFile::from_bytes("a.gz".into(), whole[..length].to_vec());
            assert!(matches!(file.content(10), Err(DataError::Gzip { .. })), "{length} of {} bytes were accepted", whole.len());
        }
    }

    #[test]
    fn the_checksum_of_binary_files_is_that_of_text_files() {
        let [a, b] = ["a", "b"].map(|name| {
            (StoredFile::from_bytes(name.into(), b"abc".into()), TextFile::from_bytes(name.into(), name.into(), b"abc").unwrap())
        });
        assert_eq!(combined_sha256([&b.0, &a.0]), files::combined_sha256([&a.1, &b.1]));
    }
}
