//! Which process holds a lock or writes a file, and whether it still runs.

use std::fs;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::run_folder::sha256_hex;

/// A process, told from every other one, also on machines that share a file system and after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Name of its host.
    pub host: String,
    /// Digest of what else tells the machine, and on Linux the namespace of process ids, from others.
    pub machine: String,
    /// Its number.
    pub id: u32,
    /// When it started, on the clock of its system; empty where the system does not tell.
    pub started: String,
}

impl Process {
    /// This process.
    pub fn this() -> &'static Self {
        static THIS: OnceLock<Process> = OnceLock::new();
        THIS.get_or_init(|| {
            let id = std::process::id();
            Self { host: host(), machine: machine(), id, started: start_of(id).unwrap_or_default() }
        })
    }

    /// Whether it is known to have ended. Of a process elsewhere, or on a system that does not tell, it is not.
    pub fn has_ended(&self) -> bool {
        let this = Self::this();
        let is_here = (&self.host, &self.machine) == (&this.host, &this.machine);
        is_here && !this.started.is_empty() && start_of(self.id).is_none_or(|started| started != self.started)
    }

    /// A part of a file name from which [`Process::named`] gives the process back; it has no `-` at its end.
    pub fn name(&self) -> String {
        let place = sha256_hex(format!("{} {}", self.host, self.machine).as_bytes());
        format!("{}-{}-{}", &place[..12], self.id, self.started)
    }

    /// The process of a [name](Process::name); `None` if it is of another machine or no such name.
    pub fn named(name: &str) -> Option<Self> {
        let [_, id, started] = name.split('-').collect::<Vec<_>>()[..] else { return None };
        let process = Self { id: id.parse().ok()?, started: started.to_owned(), ..Self::this().clone() };
        (process.name() == name).then_some(process)
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.id, self.host)
    }
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| !text.is_empty())
}

fn host() -> String {
    let told = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("COMPUTERNAME").ok());
    told.map(|name| name.trim().to_owned()).or_else(|| output_of("hostname", &[])).unwrap_or_else(|| "unknown".to_owned())
}

fn machine() -> String {
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    sha256_hex(format!("{} {}", machine.trim(), namespace.display()).as_bytes())[..16].to_owned()
}

/// When a process of this machine started, in letters, digits and dots; `None` if there is no such process, or the system does not tell.
#[cfg(target_os = "linux")]
fn start_of(id: u32) -> Option<String> {
    // The name of the program, in parentheses, may hold anything (proc(5)); after it come the state and, as the 22nd field of all, the start.
    let status = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = status.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let ticks = fields.nth(18)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // A zombie has ended, although nobody asked how.
    (!["Z", "X"].contains(&state)).then(|| format!("{}.{ticks}", boot.trim().replace('-', "")))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn start_of(id: u32) -> Option<String> {
    let started = output_of("ps", &["-o", "lstart=", "-p", &id.to_string()])?;
    Some(started.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("."))
}

#[cfg(not(unix))]
fn start_of(_: u32) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_not_ended_and_has_a_name() {
        let this = Process::this();
        assert!(!this.has_ended());
        assert_eq!(Process::named(&this.name()).as_ref(), Some(this));
        assert_eq!(Process::named("a1b2c3"), None);
        assert_eq!(Process::named(&format!("0{}", this.name())), None, "of another machine");
    }

    #[cfg(unix)]
    #[test]
    fn a_process_that_ended_or_whose_number_another_has_is_known_to_have_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let started = start_of(child.id()).unwrap_or_else(|| "1".to_owned());
        child.wait().unwrap();
        assert!(Process { id: child.id(), started, ..Process::this().clone() }.has_ended());
        assert!(Process { started: "1".into(), ..Process::this().clone() }.has_ended(), "another process has its number now");
    }

    #[test]
    fn nothing_is_known_of_a_process_elsewhere() {
        let ended = Process { started: "1".into(), ..Process::this().clone() };
        assert!(!Process { host: "elsewhere".into(), ..ended.clone() }.has_ended());
        assert!(!Process { machine: "namesake".into(), ..ended }.has_ended());
    }
}
