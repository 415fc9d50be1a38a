//! Downloading one file, over as many attempts as it takes.
//!
//! Bytes go into `NAME.part` (see the catalogue's part files) and are kept when an attempt fails, so that the next one asks for the rest: with `Range`, and
//! with `If-Range` so that a server whose file has changed sends the whole new file. A server that ignores the range sends the whole file as well. An attempt
//! fails for good when another one would end the same way (404, another size than expected, more bytes than announced or than a file of unknown size may have,
//! a redirect from https to http); a stalled, cut or refused connection, 408, 425, 429 and 5xx are tried again after a pause that doubles, or after what
//! `Retry-After` asks for. The number of attempts counts those in a row that brought nothing new. The checksum is verified before the file takes its name.
//!
//! What follows the announced length on a connection is no part of the file by HTTP and is not read. A proxy is taken from `HTTPS_PROXY` and its like
//! (`download/proxy.rs`).

mod proxy;
mod response;

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use heedful_host::interrupt::Interrupt;
use indicatif::ProgressBar;
use thiserror::Error;
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use self::proxy::{Direct, NamedProxy};
use self::response::{Answer, answer};
use super::partial_download::{Part, Resumption};

/// How often a wish to stop is looked for while nothing arrives.
const LOOK: Duration = Duration::from_millis(50);
/// The longest wait between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
const REDIRECTS: u32 = 10;

/// Default limit on the bytes of a file of unknown size. All data sets of the catalogue but one are smaller.
pub const MOST_BYTES: u64 = 4_000_000_000;

/// Timeout and retries of a download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// How long a connection may be silent.
    pub timeout: Duration,
    /// Retries in a row without new data.
    pub retries: u32,
    /// Pause before the first further attempt; it doubles with each.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), retries: 5, pause: Duration::from_secs(1) }
    }
}

/// A file that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// An http or https address.
    pub address: &'a str,
    /// Where the file is put; its folder exists.
    pub target: &'a Path,
    /// Its size, if known.
    pub bytes: Option<u64>,
    /// Its SHA-256 in lower-case hexadecimal, if known.
    pub sha256: Option<&'a str>,
    /// Most bytes that it may have if its size is not known, such as [`MOST_BYTES`].
    pub most: u64,
}

/// A file that was downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downloaded {
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

/// Why a file was not downloaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// The server does not have the file or refuses it.
    #[error("`{address}` cannot be fetched: {reason}; look for another address and give it with --url")]
    Refused {
        /// The address.
        address: String,
        /// The server's answer.
        reason: String,
    },
    /// The proxy of the environment cannot be used.
    #[error("the proxy `{proxy}` of {variable} cannot be used: {reason}; give {variable} another proxy, or unset it")]
    Proxy {
        /// The variable of the environment.
        variable: &'static str,
        /// The proxy, without user and password.
        proxy: String,
        /// What is wrong.
        reason: String,
    },
    /// All attempts failed.
    #[error("`{address}` could not be fetched in {attempts} attempts: {cause}; what has arrived is kept in `{}`: run the command again to go on", part.display())]
    GaveUp {
        /// The address.
        address: String,
        /// Attempts in a row that brought nothing new.
        attempts: u32,
        /// What ended the last one.
        cause: String,
        /// The part that is kept.
        part: PathBuf,
    },
    /// The file has another size than the catalogue says.
    #[error("`{address}` has {announced} bytes where {expected} are expected: it is another file; give the right address with --url")]
    Size {
        /// The address.
        address: String,
        /// The size the server announces.
        announced: u64,
        /// The size of the catalogue.
        expected: u64,
    },
    /// The server sends more than it announced, or than the catalogue says.
    #[error("`{address}` sends more than the {expected} bytes of the file; nothing of it was kept")]
    TooLong {
        /// The address.
        address: String,
        /// The size that was announced or expected.
        expected: u64,
    },
    /// The file, whose size is not known, has more bytes than are taken.
    #[error(
        "`{address}` has more than {most} bytes, the limit for a file whose size is not known; nothing of it was kept; if that is right, give `most_bytes` \
         of the file in a --catalogue"
    )]
    TooLarge {
        /// The address.
        address: String,
        /// The limit.
        most: u64,
    },
    /// The file has another checksum than the catalogue says.
    #[error("`{address}` has the SHA-256 {found} where {expected} is expected; it is another file, and nothing of it was kept")]
    Checksum {
        /// The address.
        address: String,
        /// The checksum of what arrived.
        found: String,
        /// The checksum of the catalogue.
        expected: String,
    },
    /// The server redirects from https to http.
    #[error("`{address}` redirects from https to http, which anyone on the way could answer; it was not followed")]
    Insecure {
        /// The address.
        address: String,
    },
    /// The server redirects too often.
    #[error("`{address}` redirects more than {REDIRECTS} times; give another address with --url")]
    Redirects {
        /// The address.
        address: String,
    },
    /// Another process downloads the file.
    #[error("`{}` is being written by another process; wait for it to end", part.display())]
    Busy {
        /// The part.
        part: PathBuf,
    },
    /// A file could not be written.
    #[error("cannot write `{}`: {cause}; free space or choose another --out", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// The user stopped it.
    #[error("stopped; what has arrived is kept in `{}`: run the command again to go on", part.display())]
    Interrupted {
        /// The part that is kept.
        part: PathBuf,
    },
}

impl DownloadError {
    /// Whether another address may have what this one does not.
    pub fn is_of_the_address(&self) -> bool {
        !matches!(self, Self::Busy { .. } | Self::Disk { .. } | Self::Interrupted { .. })
    }
}

/// Why an attempt ended without the file.
enum Failure {
    /// Another attempt may end better, after a pause that the server asks for.
    Again { cause: String, wait: Option<Duration> },
    /// It would not.
    Final(DownloadError),
}

impl Failure {
    fn again(cause: impl Into<String>) -> Self {
        Self::Again { cause: cause.into(), wait: None }
    }
}

/// Downloads a file; `bar` shows how much of it is there.
///
/// # Errors
/// [`DownloadError`]. The part is kept unless it is of no use.
pub fn download(wanted: Wanted<'_>, patience: Patience, interrupt: &Interrupt, bar: &ProgressBar) -> Result<Downloaded, DownloadError> {
    let disk = |cause| DownloadError::Disk { path: wanted.target.to_path_buf(), cause };
    let proxy = proxy::of(wanted.address, |name| std::env::var(name).ok())?;
    let part = Part::open(wanted.target).map_err(disk)?;
    let part = part.ok_or_else(|| DownloadError::Busy { part: wanted.target.with_added_extension("part") })?;
    let mut download = Download { wanted, interrupt, bar, agent: agent(wanted.address, patience.timeout, proxy.as_ref()), proxy, part };
    let (mut failures, mut furthest, mut resumed) = (0, download.part.length(), download.part.length() > 0);
    loop {
        if interrupt.is_raised() {
            return Err(DownloadError::Interrupted { part: download.part.path.clone() });
        }
        let outcome = match download.attempt() {
            Ok(()) => download.verify(resumed),
            Err(failure) => Err(failure),
        };
        let (cause, wait) = match outcome {
            Ok(sha256) => {
                let bytes = download.part.length();
                return download.part.finish().map(|()| Downloaded { bytes, sha256 }).map_err(disk);
            }
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Again { .. }) if interrupt.is_raised() => continue,
            Err(Failure::Again { cause, wait }) => (cause, wait),
        };
        let arrived = download.part.length();
        if arrived > furthest {
            (failures, furthest) = (0, arrived);
        }
        resumed = arrived > 0;
        failures += 1;
        if failures > patience.retries {
            let address = wanted.address.to_string();
            return Err(DownloadError::GaveUp { address, attempts: failures, cause, part: download.part.path.clone() });
        }
        let pause = wait.unwrap_or_else(|| patience.pause.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_PAUSE));
        tracing::warn!("{}: {cause}; next attempt in {:.1} s, at byte {arrived}", wanted.address, pause.as_secs_f64());
        sleep(pause, interrupt);
    }
}

/// A client for an address: one that begins with https never goes on over http.
fn agent(address: &str, timeout: Duration, proxy: Option<&NamedProxy>) -> Agent {
    let timeout = Some(timeout);
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(proxy.and_then(NamedProxy::supported))
        .https_only(address.starts_with("https://"))
        .max_redirects(REDIRECTS)
        .save_redirect_history(true)
        .user_agent(concat!("heedful-data/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(timeout)
        .timeout_connect(timeout)
        .timeout_send_request(timeout)
        .timeout_recv_response(timeout)
        .timeout_per_read(timeout)
        .build();
    Agent::with_parts(config, DefaultConnector::default(), Direct(proxy.cloned()))
}

struct Download<'a> {
    wanted: Wanted<'a>,
    interrupt: &'a Interrupt,
    bar: &'a ProgressBar,
    agent: Agent,
    proxy: Option<NamedProxy>,
    part: Part,
}

impl Download<'_> {
    /// Asks for what is missing. Afterwards the part is whole, as far as its length tells.
    fn attempt(&mut self) -> Result<(), Failure> {
        let (agent, interrupt) = (self.agent.clone(), self.interrupt.clone());
        let (ended, end) = mpsc::channel::<()>();
        // A read that waits for a silent server sees nothing else, so another thread closes its connection.
        let watch = thread::spawn(move || {
            while end.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if interrupt.is_raised() {
                    return agent.shutdown();
                }
            }
        });
        let outcome = self.transfer();
        drop(ended);
        // It has nothing to report, not even a panic that would matter here.
        let _ = watch.join();
        outcome
    }

    fn transfer(&mut self) -> Result<(), Failure> {
        let address = self.wanted.address;
        let resumption = self.part.resumption(address, self.wanted.sha256.is_some());
        let mut request = self.agent.get(address).header("Accept-Encoding", "identity");
        if let Some(Resumption { from, version }) = &resumption {
            request = request.header("Range", format!("bytes={from}-"));
            if let Some(version) = version {
                request = request.header("If-Range", version);
            }
        }
        let mut response = request.call().map_err(|error| self.judge(error))?;
        let answer = answer(&response, address, resumption.as_ref())?;
        let total = match answer {
            Answer::Complete => return Ok(()),
            Answer::Unusable(cause) => {
                self.part.discard().map_err(|cause| self.disk(cause))?;
                return Err(Failure::Again { cause, wait: Some(Duration::ZERO) });
            }
            Answer::Rest { total } => total,
            Answer::Whole { total, origin } => {
                self.part.restart(origin).map_err(|cause| self.disk(cause))?;
                total
            }
        };
        if let (Some(announced), Some(expected)) = (total, self.wanted.bytes)
            && announced != expected
        {
            return Err(Failure::Final(DownloadError::Size { address: address.to_string(), announced, expected }));
        }
        let total = total.or(self.wanted.bytes);
        if self.wanted.bytes.is_none() && total.is_some_and(|total| total > self.wanted.most) {
            return Err(self.too_large());
        }
        self.receive(response.body_mut(), total)
    }

    fn receive(&mut self, body: &mut Body, total: Option<u64>) -> Result<(), Failure> {
        if let Some(total) = total {
            self.bar.set_length(total);
        }
        let mut reader = body.as_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            self.bar.set_position(self.part.length());
            let count = match reader.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.judge(error.into())),
            };
            if count == 0 {
                break;
            }
            if let Some(expected) = total
                && self.part.length() + count as u64 > expected
            {
                self.part.discard().map_err(|cause| self.disk(cause))?;
                return Err(Failure::Final(DownloadError::TooLong { address: self.wanted.address.to_string(), expected }));
            }
            if total.is_none() && self.part.length() + count as u64 > self.wanted.most {
                return Err(self.too_large());
            }
            self.part.write(&buffer[..count]).map_err(|cause| self.disk(cause))?;
            if self.interrupt.is_raised() {
                return Err(Failure::again("stopped"));
            }
        }
        match (self.part.length(), total) {
            (arrived, Some(total)) if arrived < total => {
                Err(Failure::again(format!("the connection ended after {arrived} of {total} bytes")))
            }
            (0, _) => Err(Failure::again("nothing was sent")),
            _ => Ok(()),
        }
    }

    /// The checksum of the whole part, if it is the right one.
    fn verify(&mut self, resumed: bool) -> Result<String, Failure> {
        let found = self.part.sha256().map_err(|cause| self.disk(cause))?;
        let Some(expected) = self.wanted.sha256.filter(|expected| *expected != found) else { return Ok(found) };
        self.part.discard().map_err(|cause| self.disk(cause))?;
        if resumed {
            // The beginning may be of another version of the file.
            return Err(Failure::Again { cause: "the parts do not fit together".to_string(), wait: Some(Duration::ZERO) });
        }
        let address = self.wanted.address.to_string();
        Err(Failure::Final(DownloadError::Checksum { address, found, expected: expected.to_string() }))
    }

    /// Ends the download of a file that has more bytes than are taken.
    fn too_large(&mut self) -> Failure {
        match self.part.discard() {
            Ok(()) => Failure::Final(DownloadError::TooLarge { address: self.wanted.address.to_string(), most: self.wanted.most }),
            Err(cause) => self.disk(cause),
        }
    }

    fn disk(&self, cause: io::Error) -> Failure {
        Failure::Final(DownloadError::Disk { path: self.part.path.clone(), cause })
    }

    fn judge(&self, error: ureq::Error) -> Failure {
        response::judge(error, self.wanted.address, self.proxy.as_ref())
    }
}

fn sleep(pause: Duration, interrupt: &Interrupt) {
    let begun = Instant::now();
    while begun.elapsed() < pause && !interrupt.is_raised() {
        thread::sleep(LOOK.min(pause.saturating_sub(begun.elapsed())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_https_address_never_goes_on_over_http() {
        let secure = |address| agent(address, Duration::from_secs(1), None).config().https_only();
        assert!(secure("https://host/a"));
        assert!(!secure("http://host/a"));
    }
}
