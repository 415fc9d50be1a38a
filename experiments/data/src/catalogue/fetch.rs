//! Fetching a data set: its files are downloaded or found, unpacked, and recorded.
//!
//! ```text
//! <out>/<data set>/...              the files, as their readers expect them
//! <out>/<data set>/fetched.json     address, size and SHA-256 of every file, and of what came out of archives
//! ```
//!
//! A file is *verified* when its checksum is published and agrees; otherwise the checksum is *recorded*, and compared when the file is met again. A file that
//! is there with the right checksum is not fetched again, nor is an archive whose files are all there. An archive is unpacked beside its target, its files are
//! moved into place one by one, and it is removed when all are recorded.

mod error;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use heedful_host::interrupt::Interrupt;
use heedful_host::progress::progress;
use heedful_host::whole_files::{FileError, make_folder, write_atomically};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::archive::{Packed, Unpacked, unpack};
use super::download::{DownloadError, Downloaded, MOST_BYTES, Patience, Wanted, download};
use super::entries::{DataSet, Make, SourceFile, Unpack, last_part};
use super::mrpc;
use super::partial_download::{lock, remove_if_there, sha256_of, sync_folder_of};
pub use error::FetchError;

const RECORD: &str = "fetched.json";
const LOCK: &str = ".fetching";
const UNPACKING: &str = ".unpacking";

/// How data sets are fetched.
#[derive(Clone, Debug)]
pub struct FetchSettings {
    /// The folder of all data sets.
    pub out: PathBuf,
    /// Whether archives are unpacked.
    pub unpack: bool,
    /// Whether existing files are fetched again and replaced.
    pub force: bool,
    /// Another place to fetch from: the address of the only file, or with `/` at its end a folder that has the files under their names.
    pub url: Option<String>,
    /// Timeout and retries.
    pub patience: Patience,
}

/// A data set that is being fetched.
#[derive(Debug)]
pub struct Fetch<'a> {
    set: &'a DataSet,
    settings: &'a FetchSettings,
    interrupt: &'a Interrupt,
    root: PathBuf,
    record: Record,
    /// Other processes leave the folder alone while it is open.
    _lock: File,
}

/// A file that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Its path in the folder of the data set.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: String,
    /// Whether the checksum is published and agrees.
    pub verified: bool,
    /// Whether it was there before.
    pub was_there: bool,
    /// What came out of it.
    pub unpacked: Vec<Unpacked>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    files: BTreeMap<String, Entry>,
    #[serde(default)]
    made: BTreeMap<String, Sum>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    address: String,
    bytes: u64,
    sha256: String,
    verified: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    unpacked: BTreeMap<String, Sum>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sum {
    bytes: u64,
    sha256: String,
}

impl<'a> Fetch<'a> {
    /// Prepares the folder of a data set.
    ///
    /// # Errors
    /// A folder that cannot be made or read, another process that fetches the same data set, a record that cannot be understood.
    pub fn begin(set: &'a DataSet, settings: &'a FetchSettings, interrupt: &'a Interrupt) -> Result<Self, FetchError> {
        let root = settings.out.join(&set.name);
        make_folder(&root)?;
        let path = root.join(LOCK);
        let lock = lock(&path).map_err(|source| FileError::write(&path, source))?;
        let Some(lock) = lock else { return Err(DownloadError::Busy { part: path }.into()) };
        let record = Record::read(&root.join(RECORD), settings.force)?;
        Ok(Self { set, settings, interrupt, root, record, _lock: lock })
    }

    /// Fetches one of the files of the data set, unpacks it if that is wanted, and records it.
    ///
    /// # Errors
    /// [`FetchError`] of the last address that was tried.
    pub fn file(&mut self, file: &SourceFile) -> Result<Fetched, FetchError> {
        let (path, key) = (file.path(), file.path().to_string_lossy().into_owned());
        let recorded =
            self.record.files.get(&key).filter(|entry| file.sha256.as_ref().is_none_or(|sha256| *sha256 == entry.sha256)).cloned();
        let kind = file.unpack.filter(|_| self.settings.unpack);
        if let Some(entry) = &recorded
            && kind.is_some()
            && !entry.unpacked.is_empty()
            && !self.settings.force
            && entry.unpacked.iter().all(|(path, sum)| self.holds(path, sum))
        {
            return Ok(entry.fetched(path, true));
        }
        let target = self.root.join(&path);
        let there = self.there(&target, file.sha256.as_ref().or(recorded.as_ref().map(|entry| &entry.sha256)))?;
        let was_there = there.is_some();
        let (address, downloaded) = match there {
            Some(downloaded) => (recorded.map_or_else(|| file.addresses[0].clone(), |entry| entry.address), downloaded),
            None => self.download(file, &target)?,
        };
        let Downloaded { bytes, sha256 } = downloaded;
        let mut entry = Entry { address, bytes, sha256, verified: file.sha256.is_some(), unpacked: BTreeMap::new() };
        if let Some(kind) = kind {
            let unpacked = self.unpack(file, kind, &target)?;
            entry.unpacked = unpacked.into_iter().map(|file| (file.path, Sum { bytes: file.bytes, sha256: file.sha256 })).collect();
        }
        self.record.files.insert(key, entry.clone());
        self.write_record()?;
        if kind.is_some() {
            remove_if_there(&target).map_err(|source| FileError::write(&target, source))?;
        }
        Ok(entry.fetched(path, was_there))
    }

    /// Makes the files that are derived from the downloaded ones, and returns their paths.
    ///
    /// # Errors
    /// A file of another form, or one that is there already with other content.
    pub fn finish(mut self) -> Result<Vec<PathBuf>, FetchError> {
        let mut made = Vec::new();
        let has_sources = self.record.files.keys().any(|path| mrpc::is_source(Path::new(path)));
        if self.set.make == Some(Make::Mrpc) && has_sources {
            for (path, text) in mrpc::tables(&self.root)? {
                let sum = Sum { bytes: text.len() as u64, sha256: heedful_host::checksum::sha256_hex(text.as_bytes()) };
                if !self.holds(path, &sum) {
                    if self.root.join(path).exists() && !self.settings.force {
                        return Err(FetchError::Differs { path: self.root.join(path) });
                    }
                    write_atomically(&self.root.join(path), text.as_bytes())?;
                    made.push(PathBuf::from(path));
                }
                self.record.made.insert(path.to_string(), sum);
            }
            self.write_record()?;
        }
        Ok(made)
    }

    /// The file at `target` if it is there with the checksum that is `known`.
    fn there(&self, target: &Path, known: Option<&String>) -> Result<Option<Downloaded>, FetchError> {
        if self.settings.force || !target.exists() {
            return Ok(None);
        }
        let read = || -> io::Result<Downloaded> {
            let mut file = File::open(target)?;
            Ok(Downloaded { bytes: file.metadata()?.len(), sha256: sha256_of(&mut file)? })
        };
        let found = read().map_err(|source| FileError::read(target, source))?;
        if known.is_none_or(|known| *known != found.sha256) {
            return Err(FetchError::Differs { path: target.to_path_buf() });
        }
        Ok(Some(found))
    }

    fn download(&self, file: &SourceFile, target: &Path) -> Result<(String, Downloaded), FetchError> {
        let folder = target.parent().unwrap_or(&self.root);
        make_folder(folder)?;
        let addresses = match &self.settings.url {
            Some(url) if url.ends_with('/') => vec![format!("{url}{}", last_part(&file.addresses[0]))],
            Some(url) => vec![url.clone()],
            None => file.addresses.clone(),
        };
        let bar = bar(&format!("{}/{}", self.set.name, file.path().display()));
        let mut addresses = addresses.into_iter().peekable();
        while let Some(address) = addresses.next() {
            let most = file.most_bytes.unwrap_or(MOST_BYTES);
            let wanted = Wanted { address: &address, target, bytes: file.bytes, sha256: file.sha256.as_deref(), most };
            match download(wanted, self.settings.patience, self.interrupt, &bar) {
                Ok(downloaded) => {
                    bar.finish_and_clear();
                    return Ok((address, downloaded));
                }
                Err(error) if error.is_of_the_address() && addresses.peek().is_some() => tracing::warn!("{error}; trying the next address"),
                Err(error) => {
                    bar.finish_and_clear();
                    return Err(error.into());
                }
            }
        }
        unreachable!("the catalogue has an address for each file")
    }

    fn unpack(&self, file: &SourceFile, kind: Unpack, archive: &Path) -> Result<Vec<Unpacked>, FetchError> {
        let into = self.root.join(UNPACKING);
        let folder_error = |source| FileError::folder(&into, source);
        // What an earlier process left behind when it was killed.
        clear(&into).map_err(folder_error)?;
        fs::create_dir(&into).map_err(folder_error)?;
        let bar = bar(&format!("unpacking {}/{}", self.set.name, file.path().display()));
        let packed = Packed {
            path: archive,
            kind,
            only: file.only.as_deref(),
            flatten: file.flatten,
            rename: &file.rename,
            limit: file.unpacked_limit,
        };
        let unpacked = unpack(&packed, &into, self.interrupt, &bar);
        bar.finish_and_clear();
        let moved = unpacked.map_err(FetchError::from).and_then(|files| self.install(&into, files));
        clear(&into).map_err(folder_error)?;
        moved
    }

    /// Moves unpacked files to their places, or none if one of them holds something else.
    fn install(&self, from: &Path, files: Vec<Unpacked>) -> Result<Vec<Unpacked>, FetchError> {
        let sum = |file: &Unpacked| Sum { bytes: file.bytes, sha256: file.sha256.clone() };
        let is_other = |file: &&Unpacked| self.root.join(&file.path).exists() && !self.holds(&file.path, &sum(file));
        if let Some(file) = files.iter().find(is_other).filter(|_| !self.settings.force) {
            return Err(FetchError::Differs { path: self.root.join(&file.path) });
        }
        for file in &files {
            let path = self.root.join(&file.path);
            let install = || -> io::Result<()> {
                fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
                fs::rename(from.join(&file.path), &path)?;
                sync_folder_of(&path)
            };
            install().map_err(|source| FileError::write(&path, source))?;
        }
        Ok(files)
    }

    fn holds(&self, path: &str, sum: &Sum) -> bool {
        let path = self.root.join(path);
        let is_size = fs::metadata(&path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == sum.bytes);
        is_size && File::open(&path).and_then(|mut file| sha256_of(&mut file)).is_ok_and(|sha256| sha256 == sum.sha256)
    }

    fn write_record(&self) -> Result<(), FetchError> {
        let path = self.root.join(RECORD);
        let text = serde_json::to_string_pretty(&self.record)
            .map_err(|error| FetchError::Record { path: path.clone(), cause: error.to_string() })?;
        Ok(write_atomically(&path, text.as_bytes())?)
    }
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        let _ = remove_if_there(&self.root.join(LOCK));
    }
}

impl Record {
    fn read(path: &Path, force: bool) -> Result<Self, FetchError> {
        match fs::read_to_string(path) {
            Ok(text) => match serde_json::from_str(&text) {
                Err(_) if force => Ok(Self::default()),
                outcome => outcome.map_err(|error| FetchError::Record { path: path.to_path_buf(), cause: error.to_string() }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(FileError::read(path, source).into()),
        }
    }
}

impl Entry {
    fn fetched(self: &Entry, path: PathBuf, was_there: bool) -> Fetched {
        let unpacked = |(path, sum): (&String, &Sum)| Unpacked { path: path.clone(), bytes: sum.bytes, sha256: sum.sha256.clone() };
        let unpacked = self.unpacked.iter().map(unpacked).collect();
        Fetched { path, bytes: self.bytes, sha256: self.sha256.clone(), verified: self.verified, was_there, unpacked }
    }
}

fn clear(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A bar with bytes, rate and remaining time; nothing is drawn if standard error is no terminal.
fn bar(label: &str) -> ProgressBar {
    const TEMPLATE: &str = "{prefix} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}, {eta} left";
    let bar = progress().add(ProgressBar::no_length());
    bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("the template is constant"));
    bar.set_prefix(label.to_string());
    bar
}
