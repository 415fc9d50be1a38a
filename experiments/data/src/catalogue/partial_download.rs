//! A file that has arrived in part.
//!
//! It lies beside its target as `NAME.part`, with the known facts about its origin in `NAME.part.json`. The part is locked while a process writes it, and takes
//! its real name when it is whole.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use heedful_host::whole_files::write_atomically;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Where the bytes of a part come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    pub address: String,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

/// What is asked for to go on with a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Resumption {
    /// The first byte that is missing.
    pub from: u64,
    /// The version of the file that the part is of, for `If-Range`.
    pub version: Option<String>,
}

/// A part that this process may write.
#[derive(Debug)]
pub(super) struct Part {
    pub path: PathBuf,
    target: PathBuf,
    file: File,
    length: u64,
    origin: Option<Origin>,
}

impl Part {
    /// Opens or makes the part of a target; `None` if another process writes it.
    pub(super) fn open(target: &Path) -> io::Result<Option<Self>> {
        let path = beside(target, ".part");
        let Some(file) = lock(&path)? else { return Ok(None) };
        let length = file.metadata()?.len();
        let origin = fs::read(origin_path(target)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Ok(Some(Self { path, target: target.to_path_buf(), file, length, origin }))
    }

    /// Bytes that have arrived.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// How to go on from an address, or `None` to begin again. Bytes of an unknown version are of use only if a checksum will tell whether they fit.
    pub(super) fn resumption(&self, address: &str, has_checksum: bool) -> Option<Resumption> {
        let origin = self.origin.as_ref().filter(|_| self.length > 0)?;
        let version = if origin.address == address { origin.version() } else { None };
        (version.is_some() || has_checksum).then_some(Resumption { from: self.length, version })
    }

    /// Empties the part and notes a new origin.
    pub(super) fn restart(&mut self, origin: Origin) -> io::Result<()> {
        self.empty()?;
        let text = serde_json::to_vec(&origin).map_err(io::Error::other)?;
        write_atomically(&origin_path(&self.target), &text).map_err(io::Error::other)?;
        self.origin = Some(origin);
        Ok(())
    }

    /// Empties the part.
    pub(super) fn discard(&mut self) -> io::Result<()> {
        self.origin = None;
        self.empty()?;
        remove_if_there(&origin_path(&self.target))
    }

    fn empty(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.length = 0;
        Ok(())
    }

    /// Adds bytes at the end.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// SHA-256 of what has arrived.
    pub(super) fn sha256(&mut self) -> io::Result<String> {
        self.file.seek(SeekFrom::Start(0))?;
        sha256_of(&mut self.file)
    }

    /// Gives the whole file its real name. After a crash there is the part or the file, whole.
    pub(super) fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, &self.target)?;
        sync_folder_of(&self.target)?;
        remove_if_there(&origin_path(&self.target))
    }
}

impl Drop for Part {
    /// A part of no bytes is of no use to the next process.
    fn drop(&mut self) {
        if self.length == 0 {
            let _ = remove_if_there(&self.path).and_then(|()| remove_if_there(&origin_path(&self.target)));
        }
    }
}

impl Origin {
    /// What `If-Range` may name: a strong entity tag, or a date.
    fn version(&self) -> Option<String> {
        self.etag.clone().filter(|tag| tag.starts_with('"')).or_else(|| self.last_modified.clone())
    }
}

/// Opens or makes a file that no other process has locked; `None` if one has. It is unlocked when it is closed.
pub(super) fn lock(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => return Err(error),
            _ => {}
        }
        // Another process may have renamed or removed the file between opening and locking it.
        if path.exists() {
            return Ok(Some(file));
        }
    }
}

/// SHA-256 of what is read, in lower-case hexadecimal.
pub(super) fn sha256_of(reader: &mut impl Read) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(hex::encode(digest.finalize())),
            Ok(count) => digest.update(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn origin_path(target: &Path) -> PathBuf {
    beside(target, ".part.json")
}

fn beside(target: &Path, extension: &str) -> PathBuf {
    let mut name = target.as_os_str().to_os_string();
    name.push(extension);
    PathBuf::from(name)
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(unix)]
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
pub(super) fn sync_folder_of(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(address: &str, etag: Option<&str>, last_modified: Option<&str>) -> Origin {
        Origin { address: address.into(), etag: etag.map(Into::into), last_modified: last_modified.map(Into::into) }
    }

    #[test]
    fn a_part_survives_its_process_with_its_origin() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a.zip");
        let mut part = Part::open(&target).unwrap().unwrap();
        part.restart(origin("http://a/b", Some("\"1\""), None)).unwrap();
        part.write(b"half").unwrap();
        assert!(Part::open(&target).unwrap().is_none(), "it is locked");
        drop(part);
        let mut part = Part::open(&target).unwrap().unwrap();
        let version = Some("\"1\"".to_string());
        assert_eq!(part.resumption("http://a/b", false), Some(Resumption { from: 4, version }));
        part.write(b" whole").unwrap();
        part.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"half whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn bytes_of_an_unknown_version_are_continued_only_under_a_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let mut part = Part::open(&folder.path().join("a")).unwrap().unwrap();
        for (origin, address, with_checksum, without) in [
            (origin("http://a/b", None, None), "http://a/b", Some(None), None),
            (origin("http://a/b", Some("W/\"1\""), None), "http://a/b", Some(None), None),
            (origin("http://a/b", Some("W/\"1\""), Some("date")), "http://a/b", Some(Some("date")), Some(Some("date"))),
            (origin("http://a/b", Some("\"1\""), None), "http://c/b", Some(None), None),
        ] {
            part.restart(origin).unwrap();
            assert_eq!(part.resumption(address, true), None, "nothing has arrived");
            part.write(b"x").unwrap();
            let expected = |version: Option<Option<&str>>| version.map(|version| Resumption { from: 1, version: version.map(Into::into) });
            assert_eq!(part.resumption(address, true), expected(with_checksum));
            assert_eq!(part.resumption(address, false), expected(without));
        }
        part.discard().unwrap();
        part.write(b"x").unwrap();
        assert_eq!(part.resumption("http://a/b", true), None, "the origin is forgotten");
    }
}
