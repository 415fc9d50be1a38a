//! The file operations a checkpoint is made of, behind a trait so that tests can let each of them fail or be the last thing the process did.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// What a checkpoint needs of a file system. Each method is done when it returns: files and folders are on the disk, not in a cache.
pub(crate) trait Disk: Send + Sync {
    /// Creates a folder; an existing one is fine. The one above it has to be there: of a run whose folder disappeared no part must come back.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;
    /// Creates or replaces a file and syncs it.
    fn write(&self, file: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Syncs a folder, that is, which names it holds.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Renames a file or folder within its folder, replacing a file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file, or a folder with all it holds; one that is not there is fine.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The file system of the operating system.
pub(crate) struct SystemDisk;

impl Disk for SystemDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        match fs::create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
            other => other,
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        // Windows has no way to open a folder for syncing; renames are durable there in their own time.
        if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let result = match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(error) => Err(error),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
pub(crate) mod faulty {
    //! A disk on which the n-th operation goes wrong.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// What the disk does from the failing operation on.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) enum Fault {
        /// The process dies in the middle of the operation: half a file is written, a removal removes one entry, and nothing happens afterwards.
        Kill,
        /// The disk is full: half a file is written and the write fails, as does every later one; the rest works.
        Full,
    }

    pub(crate) struct FaultyDisk {
        fault: Fault,
        /// The failing operation, counted from 0 over all operations (`Kill`) or over writes (`Full`).
        at: usize,
        done: AtomicUsize,
    }

    impl FaultyDisk {
        pub(crate) fn new(fault: Fault, at: usize) -> Self {
            Self { fault, at, done: AtomicUsize::new(0) }
        }

        fn run(&self, is_write: bool, whole: impl FnOnce() -> io::Result<()>, half: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
            if self.fault == Fault::Full && !is_write {
                return whole();
            }
            let number = self.done.fetch_add(1, Ordering::SeqCst);
            if number < self.at {
                return whole();
            }
            if self.fault == Fault::Full || number == self.at {
                half()?;
            }
            Err(match self.fault {
                Fault::Kill => io::Error::other("the process is dead"),
                Fault::Full => io::Error::from(io::ErrorKind::StorageFull),
            })
        }
    }

    impl FaultyDisk {
        /// Whether the failing operation was reached.
        pub(crate) fn has_failed(&self) -> bool {
            self.done.load(Ordering::SeqCst) > self.at
        }
    }

    impl Disk for std::sync::Arc<FaultyDisk> {
        fn create_folder(&self, folder: &Path) -> io::Result<()> {
            self.run(false, || SystemDisk.create_folder(folder), || Ok(()))
        }

        fn write(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
            self.run(true, || SystemDisk.write(file, bytes), || SystemDisk.write(file, &bytes[..bytes.len() / 2]))
        }

        fn sync_folder(&self, folder: &Path) -> io::Result<()> {
            self.run(false, || SystemDisk.sync_folder(folder), || Ok(()))
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.run(false, || SystemDisk.rename(from, to), || Ok(()))
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            let half = || match fs::read_dir(path).ok().and_then(|mut entries| entries.next()) {
                Some(entry) => fs::remove_file(entry?.path()),
                None => Ok(()),
            };
            self.run(false, || SystemDisk.remove(path), half)
        }
    }
}
