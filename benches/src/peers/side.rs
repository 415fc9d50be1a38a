//! The processes that compute.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::cores::bind_open_mp;
use super::protocol::{Reply, Request};
use super::work::Work;

/// Whose work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Maker {
    /// Ours.
    Heedful,
    /// That of benches/peers, in Python.
    Peer,
}

/// Why a side did not serve a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SideError {
    /// Its process cannot be started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Its process ended, out of memory for instance.
    #[error("its process ended ({0})")]
    Ended(String),
    /// It answered that it cannot.
    #[error("{0}")]
    Refused(String),
    /// It answered in another language.
    #[error("its answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
}

/// How the processes are started.
#[derive(Clone, Debug)]
pub struct Sides {
    /// The program that has our side.
    pub heedful: PathBuf,
    /// Its arguments for that.
    pub worker: &'static [&'static str],
    /// The Python interpreter and the folder or file that it runs; none if the peers are left out.
    pub peer: Option<(PathBuf, PathBuf)>,
    /// Threads of each side.
    pub threads: usize,
}

impl Sides {
    /// Starts the process of a side.
    ///
    /// # Errors
    /// If it cannot be started, or the peers are left out.
    pub fn start(&self, maker: Maker) -> Result<Side, SideError> {
        let mut command = match (maker, &self.peer) {
            (Maker::Heedful, _) => {
                let mut command = Command::new(&self.heedful);
                command.args(self.worker);
                command
            }
            (Maker::Peer, Some((python, script))) => {
                let mut command = Command::new(python);
                // Without files of compiled code beside the source.
                command.arg("-B").arg(script).arg("--threads").arg(self.threads.to_string());
                command
            }
            (Maker::Peer, None) => return Err(SideError::Refused("left out".into())),
        };
        let threads = self.threads.to_string();
        command.env("RAYON_NUM_THREADS", &threads).env("OMP_NUM_THREADS", &threads).env("MKL_NUM_THREADS", &threads);
        command.envs(bind_open_mp(self.threads).iter().copied());
        Side::start(command)
    }
}

/// A process that computes. It ends when this is dropped.
#[derive(Debug)]
pub struct Side {
    process: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Side {
    fn start(mut command: Command) -> Result<Self, SideError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|source| SideError::Start { program, source })?;
        let requests = process.stdin.take();
        let replies = BufReader::new(process.stdout.take().expect("standard output is a pipe"));
        Ok(Self { process, requests, replies })
    }

    /// Versions of what is measured.
    ///
    /// # Errors
    /// If it cannot compute.
    pub fn versions(&mut self) -> Result<BTreeMap<String, String>, SideError> {
        Ok(self.ask(&Request::About)?.versions)
    }

    /// Builds a piece of work, known by its number from now on.
    ///
    /// # Errors
    /// If the side cannot do this work.
    pub fn prepare(&mut self, id: usize, work: &Work) -> Result<(), SideError> {
        self.ask(&Request::Prepare { id, work: work.clone() }).map(drop)
    }

    /// Runs a piece of work once and returns its seconds.
    ///
    /// # Errors
    /// If the run failed.
    pub fn run(&mut self, id: usize) -> Result<f64, SideError> {
        self.ask(&Request::Run { id })?.seconds.ok_or_else(|| SideError::Refused("it did not say how long the run took".into()))
    }

    /// Frees a piece of work.
    ///
    /// # Errors
    /// If there is none of this number.
    pub fn forget(&mut self, id: usize) -> Result<(), SideError> {
        self.ask(&Request::Forget { id }).map(drop)
    }

    /// Restarts the measurement of [`peak_growth`](Self::peak_growth) and returns the present resident memory in bytes; `None` where the system does not report
    /// it.
    pub fn reset_peak(&self) -> Option<u64> {
        // Code 5 of clear_refs resets the high water mark (proc(5), since Linux 4.0).
        fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5").ok()?;
        self.status("VmHWM:")
    }

    /// Growth of the largest resident memory since it was `before`, in bytes.
    pub fn peak_growth(&self, before: u64) -> Option<u64> {
        Some(self.status("VmHWM:")?.saturating_sub(before))
    }

    fn status(&self, field: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let amount = status.lines().find_map(|line| line.strip_prefix(field))?;
        amount.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, SideError> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        let sent = self.requests.as_mut().map(|requests| requests.write_all(line.as_bytes()).and_then(|()| requests.flush()));
        line.clear();
        if !matches!(sent, Some(Ok(()))) || !matches!(self.replies.read_line(&mut line), Ok(1..)) {
            self.requests = None;
            return Err(SideError::Ended(self.process.wait().map_or_else(|error| error.to_string(), |status| status.to_string())));
        }
        let reply: Reply = serde_json::from_str(&line)?;
        match reply.error {
            Some(error) => Err(SideError::Refused(error)),
            None => Ok(reply),
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // The end of its input is the sign to end.
        self.requests = None;
        let _ = self.process.wait();
    }
}
