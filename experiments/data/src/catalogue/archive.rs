//! Unpacking archives that come from elsewhere.
//!
//! An archive is unpacked into a new folder of its own, and nothing it says about names, links, rights or sizes is trusted: an entry with an absolute path, a
//! `..`, a drive letter or a NUL is refused, and so are links of any kind, devices, and a name that stands twice; a `\` divides folders as `/` does; rights
//! are not taken over; the bytes that come out are counted as they come and limited. What is refused ends the unpacking. Not covered: encryption, sparse files.

mod packed_tar;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use heedful_host::interrupt::Interrupt;
use indicatif::ProgressBar;
use sha2::{Digest, Sha256};
use thiserror::Error;
use zip::ZipArchive;

use super::entries::Unpack;
use crate::bounded::{Bounded, Budget, PLAUSIBLE_RATIO};

/// More entries than any data set has.
const MOST_ENTRIES: usize = 1_000_000;

/// Default limit on the bytes in an archive of this size: a hundred times its size, at least 100 MB and at most 32 GB.
pub fn default_limit(archive_bytes: u64) -> u64 {
    archive_bytes.saturating_mul(PLAUSIBLE_RATIO).clamp(100_000_000, 32_000_000_000)
}

/// An archive and how to unpack it.
#[derive(Clone, Debug)]
pub struct Packed<'a> {
    /// The archive.
    pub path: &'a Path,
    /// Its kind.
    pub kind: Unpack,
    /// Only entries whose path contains this.
    pub only: Option<&'a str>,
    /// Whether entries lose their folders.
    pub flatten: bool,
    /// New paths of entries.
    pub rename: &'a BTreeMap<String, String>,
    /// Most bytes that may come out; [`default_limit`] without this.
    pub limit: Option<u64>,
}

/// A file that came out of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// Its path inside the folder, with `/`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

/// Why an archive was not unpacked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The archive is damaged or of another kind.
    #[error("`{}` cannot be unpacked: {cause}; fetch it again with --force", archive.display())]
    Damaged {
        /// The archive.
        archive: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// An entry could do harm.
    #[error("`{}`, entry `{entry}`: {reason}; nothing of the archive was kept", archive.display())]
    Entry {
        /// The archive.
        archive: PathBuf,
        /// The entry's name as it stands in the archive.
        entry: String,
        /// Why it is refused.
        reason: String,
    },
    /// More bytes come out than is plausible.
    #[error("`{}` holds more than {limit} bytes, the limit for an archive of its size; nothing of it was kept; \
         if that is right, fetch it with --no-unpack and unpack it yourself", archive.display())]
    TooLarge {
        /// The archive.
        archive: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// No entry is wanted.
    #[error("`{}` has no file{}; it is another archive", archive.display(), only.as_ref().map(|only| format!(" whose path contains `{only}`")).unwrap_or_default())]
    Empty {
        /// The archive.
        archive: PathBuf,
        /// What paths should contain.
        only: Option<String>,
    },
    /// A file could not be read or written.
    #[error("cannot unpack into `{}`: {cause}; free space or choose another --out", path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The user stopped it.
    #[error("stopped while unpacking `{}`: run the command again to go on", archive.display())]
    Interrupted {
        /// The archive.
        archive: PathBuf,
    },
}

/// Unpacks an archive into the folder `into`, which must be empty; `bar` shows the bytes that came out. The files are on the disk when this returns.
///
/// # Errors
/// [`ArchiveError`]; the folder then holds a part, to be removed.
pub fn unpack(packed: &Packed<'_>, into: &Path, interrupt: &Interrupt, bar: &ProgressBar) -> Result<Vec<Unpacked>, ArchiveError> {
    let disk = |cause| ArchiveError::Disk { path: packed.path.to_path_buf(), cause };
    let file = File::open(packed.path).map_err(disk)?;
    let limit = packed.limit.unwrap_or(default_limit(file.metadata().map_err(disk)?.len()));
    let meter = Meter { budget: Budget::new(limit), interrupt, bar };
    let mut unpacking = Unpacking { packed, into, meter: &meter, entries: 0, written: Vec::new() };
    let file = io::BufReader::new(file);
    match packed.kind {
        Unpack::Zip => unpacking.zip(file)?,
        Unpack::TarGz => unpacking.tar(&mut meter.reader(MultiGzDecoder::new(file)))?,
        Unpack::Gz => unpacking.gz(&mut meter.reader(MultiGzDecoder::new(file)))?,
    }
    if unpacking.written.is_empty() {
        return Err(ArchiveError::Empty { archive: packed.path.to_path_buf(), only: packed.only.map(str::to_string) });
    }
    Ok(unpacking.written)
}

struct Unpacking<'a> {
    packed: &'a Packed<'a>,
    into: &'a Path,
    meter: &'a Meter<'a>,
    entries: usize,
    written: Vec<Unpacked>,
}

impl Unpacking<'_> {
    fn zip(&mut self, file: io::BufReader<File>) -> Result<(), ArchiveError> {
        let damaged = |cause: zip::result::ZipError| self.packed.damaged(cause.to_string());
        let mut archive = ZipArchive::new(file).map_err(damaged)?;
        for index in 0..archive.len() {
            let entry = archive.by_index(index).map_err(|cause| self.packed.damaged(cause.to_string()))?;
            let name = entry.name().to_string();
            // The kind of file in the upper bits of the Unix mode; none on other systems.
            let kind = match entry.unix_mode().unwrap_or(0) & 0o170_000 {
                _ if entry.is_dir() => Kind::Folder,
                0 | 0o100_000 => Kind::File,
                0o040_000 => Kind::Folder,
                0o120_000 => Kind::Other("a symbolic link"),
                _ => Kind::Other("a device"),
            };
            let declared = entry.size();
            self.entry(&name, kind, declared, &mut self.meter.reader(entry))?;
        }
        Ok(())
    }

    fn gz(&mut self, decoded: &mut dyn Read) -> Result<(), ArchiveError> {
        let name = self.packed.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let destination = self.packed.destination(&name)?;
        self.write(&name, &destination, None, decoded)
    }

    /// Writes an entry if it is wanted and does no harm.
    fn entry(&mut self, name: &str, kind: Kind, declared: u64, content: &mut dyn Read) -> Result<(), ArchiveError> {
        self.entries += 1;
        if self.entries > MOST_ENTRIES {
            return Err(self.packed.damaged(format!("it has more than {MOST_ENTRIES} entries")));
        }
        let destination = self.packed.destination(name)?;
        match kind {
            Kind::Folder => Ok(()),
            Kind::Other(what) => Err(self.packed.refused(name, format!("it is {what}, and only files and folders are unpacked"))),
            Kind::File if self.packed.only.is_some_and(|only| !destination.contains(only)) => Ok(()),
            Kind::File => self.write(name, &destination, Some(declared), content),
        }
    }

    fn write(&mut self, name: &str, destination: &str, declared: Option<u64>, content: &mut dyn Read) -> Result<(), ArchiveError> {
        let renamed = self.packed.rename.get(destination).map_or(destination, String::as_str);
        let place = if self.packed.flatten { renamed.rsplit('/').next().unwrap_or(renamed) } else { renamed };
        let path = self.into.join(place);
        let disk = |cause: io::Error| match cause.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
                self.packed.refused(name, "its name stands twice in the archive".to_string())
            }
            _ => ArchiveError::Disk { path: path.clone(), cause },
        };
        fs::create_dir_all(path.parent().unwrap_or(self.into)).map_err(disk)?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(disk)?;
        let (mut bytes, mut digest, mut buffer) = (0, Sha256::new(), vec![0; 1 << 16]);
        loop {
            let count = match content.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.stopped(&error)),
            };
            if count == 0 {
                break;
            }
            digest.update(&buffer[..count]);
            file.write_all(&buffer[..count]).map_err(disk)?;
            bytes += count as u64;
        }
        if declared.is_some_and(|declared| declared != bytes) {
            return Err(self.packed.damaged(format!("the entry `{name}` has {bytes} bytes instead of {}", declared.unwrap_or_default())));
        }
        file.sync_all().map_err(disk)?;
        self.written.push(Unpacked { path: place.to_string(), bytes, sha256: hex::encode(digest.finalize()) });
        Ok(())
    }

    /// Why reading what an archive holds ended.
    fn stopped(&self, error: &io::Error) -> ArchiveError {
        let archive = self.packed.path.to_path_buf();
        if self.meter.interrupt.is_raised() {
            ArchiveError::Interrupted { archive }
        } else if self.meter.budget.is_exceeded() {
            ArchiveError::TooLarge { archive, limit: self.meter.budget.limit() }
        } else {
            self.packed.damaged(error.to_string())
        }
    }
}

/// What an entry is.
enum Kind {
    File,
    Folder,
    Other(&'static str),
}

impl Packed<'_> {
    /// The path of an entry inside the folder, with `/`, before it is renamed.
    fn destination(&self, name: &str) -> Result<String, ArchiveError> {
        let path = name.replace('\\', "/");
        let mut parts = Vec::new();
        let drive = path.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) && path.as_bytes().get(1) == Some(&b':');
        if path.starts_with('/') || drive {
            return Err(self.refused(name, "its path is absolute".to_string()));
        }
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => return Err(self.refused(name, "its path leads out of the folder".to_string())),
                part if part.contains('\0') => return Err(self.refused(name, "its path holds a NUL".to_string())),
                part => parts.push(part),
            }
        }
        if parts.is_empty() && !path.ends_with('/') && !path.ends_with('.') {
            return Err(self.refused(name, "it has no name".to_string()));
        }
        Ok(parts.join("/"))
    }

    fn refused(&self, entry: &str, reason: String) -> ArchiveError {
        ArchiveError::Entry { archive: self.path.to_path_buf(), entry: entry.escape_debug().to_string(), reason }
    }

    fn damaged(&self, cause: String) -> ArchiveError {
        ArchiveError::Damaged { archive: self.path.to_path_buf(), cause }
    }
}

/// Counts what comes out of an archive.
struct Meter<'a> {
    budget: Budget,
    interrupt: &'a Interrupt,
    bar: &'a ProgressBar,
}

impl Meter<'_> {
    fn reader<R: Read>(&self, inner: R) -> Metered<'_, R> {
        Metered { inner: self.budget.reader(inner), meter: self }
    }
}

/// A reader that ends with an error beyond the limit, or when the user wishes to stop.
struct Metered<'a, R> {
    inner: Bounded<'a, R>,
    meter: &'a Meter<'a>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.meter.bar.set_position(self.meter.budget.spent());
        if self.meter.interrupt.is_raised() {
            return Err(io::Error::other("unpacking was stopped"));
        }
        Ok(count)
    }
}
