//! The lock of a run: of the commands that share an output folder, one works on a run at a time.
//!
//! `<run>/lock.json` names the process that works on the run. It is created exclusively, together with its content, which also holds on network file
//! systems. A command takes over the lock of a process of this machine that was killed; it cannot know whether a process of another machine still runs, unless
//! that was an earlier attempt of Slurm at the task that the command is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heedful_host::process::Process;
use heedful_host::whole_files::{FileError, create_atomically};

use crate::run_folder::RunFolderError;

const LOCK: &str = "lock.json";
/// How often it is tried while other processes take and leave the lock, and the pause in between.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// The right to work on a run, until it is dropped.
#[derive(Debug)]
pub struct RunLock {
    path: PathBuf,
}

/// A process that works on a run, and the lock that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process.
    pub process: Process,
    /// The lock.
    pub lock: PathBuf,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { process, lock } = self;
        write!(f, "{process} works on it; if that has ended, delete `{}`", lock.display())
    }
}

impl RunLock {
    /// Takes the lock of the run whose folder is `run`, or names its holder.
    ///
    /// # Errors
    /// [`RunFolderError`] when the lock cannot be written, read or understood.
    pub fn take(run: &Path) -> Result<Result<Self, Holder>, RunFolderError> {
        let path = path(run);
        let mut holder = None;
        for _ in 0..TRIES {
            if create_atomically(&path, &this())? {
                return Ok(Ok(Self { path }));
            }
            holder = read(&path)?;
            match &holder {
                Some(process) if process.has_ended() => remove_left_behind(&path, process)?,
                Some(_) => break,
                // It was given back meanwhile.
                None => {}
            }
            std::thread::sleep(PAUSE);
        }
        let process = holder.ok_or_else(|| write_error(&path, io::Error::from(io::ErrorKind::ResourceBusy)))?;
        Ok(Err(Holder { process, lock: path }))
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        match fs::remove_file(&self.path) {
            // The folder of the run is gone, which the run says itself.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: {error}; delete it by hand", self.path.display());
            }
            _ => {}
        }
    }
}

/// The lock of the run whose folder is `run`.
pub(crate) fn path(run: &Path) -> PathBuf {
    run.join(LOCK)
}

/// The process that has or left the lock of a run; `None` if there is no lock.
///
/// # Errors
/// [`RunFolderError`] when the lock cannot be read or understood.
pub(crate) fn holder(run: &Path) -> Result<Option<Process>, RunFolderError> {
    read(&path(run))
}

fn write_error(path: &Path, source: io::Error) -> RunFolderError {
    FileError::write(path, source).into()
}

/// The process that the lock names; `None` if there is no lock.
fn read(path: &Path) -> Result<Option<Process>, RunFolderError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(FileError::read(path, source).into()),
    };
    serde_json::from_slice(&text).map(Some).map_err(|source| RunFolderError::Lock { path: path.into(), source })
}

/// Removes the lock, or the guard of a removal, of a process that has ended. Of several processes that found it one does that: who came late would otherwise
/// remove the lock of who was first.
fn remove_left_behind(path: &Path, ended: &Process) -> Result<(), RunFolderError> {
    let guard = path.with_file_name(format!(".{LOCK}.{}", ended.name()));
    if create_atomically(&guard, &this())? {
        let removed = read(path).and_then(|process| match process {
            Some(process) if process == *ended => fs::remove_file(path).map_err(|source| write_error(path, source)),
            _ => Ok(()),
        });
        fs::remove_file(&guard).map_err(|source| write_error(&guard, source))?;
        return removed;
    }
    match read(&guard)? {
        // It was killed before it removed the guard.
        Some(process) if process.has_ended() => remove_left_behind(&guard, &process),
        _ => Ok(()),
    }
}

/// This process, as a lock names it.
fn this() -> Vec<u8> {
    serde_json::to_vec_pretty(Process::this()).expect("a process has only fields that JSON can hold")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn leave(folder: &Path, name: &str, process: &Process) {
        fs::write(folder.join(name), serde_json::to_vec(process).unwrap()).unwrap();
    }

    #[test]
    fn a_run_has_one_worker_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let lock = RunLock::take(folder.path()).unwrap().unwrap();
        let holder = RunLock::take(folder.path()).unwrap().unwrap_err();
        assert_eq!(holder.process, *Process::this());
        assert!(holder.to_string().contains("lock.json"), "{holder}");
        drop(lock);
        assert!(names(folder.path()).is_empty());
        RunLock::take(folder.path()).unwrap().unwrap();
    }

    #[test]
    fn of_many_that_find_a_lock_left_behind_one_takes_it() {
        let ended = Process { started: "1".into(), ..Process::this().clone() };
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            leave(folder.path(), LOCK, &ended);
            let (working, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let taken = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        if let Ok(_lock) = RunLock::take(folder.path()).unwrap() {
                            taken.fetch_add(1, Ordering::SeqCst);
                            most.fetch_max(working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_millis(5));
                            working.fetch_sub(1, Ordering::SeqCst);
                        }
                    });
                }
            });
            assert_eq!(most.into_inner(), 1, "two worked at the same time");
            assert!(taken.into_inner() >= 1);
            assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
        }
    }

    #[test]
    fn a_guard_of_who_was_killed_while_it_took_a_lock_over_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["1", "2"].map(|started| Process { started: started.into(), ..Process::this().clone() });
        leave(folder.path(), LOCK, &first);
        leave(folder.path(), &format!(".{LOCK}.{}", first.name()), &second);
        let lock = RunLock::take(folder.path()).unwrap().unwrap();
        assert_eq!(names(folder.path()), [LOCK]);
        drop(lock);
    }

    #[test]
    fn the_lock_of_a_process_elsewhere_stays_and_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = Process { host: "node7".into(), started: "1".into(), ..Process::this().clone() };
        leave(folder.path(), LOCK, &elsewhere);
        let message = RunLock::take(folder.path()).unwrap().unwrap_err().to_string();
        assert!(message.contains("on node7") && message.contains("delete `") && message.contains("lock.json"), "{message}");
        assert_eq!(names(folder.path()), [LOCK]);
    }

    #[test]
    fn what_is_no_lock_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK), "mine").unwrap();
        let message = RunLock::take(folder.path()).unwrap_err().to_string();
        assert!(message.contains("lock.json") && message.contains("delete it"), "{message}");
    }
}
