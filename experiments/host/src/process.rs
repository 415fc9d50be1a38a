//! Which process holds a lock or writes a file, and whether it still runs.

use std::fs;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::checksum::sha256_hex;

/// Identity of a process, unique also across machines that share a file system and across restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Name of its host.
    pub host: String,
    /// Digest of what else identifies the machine and, on Linux, its namespace of process ids.
    pub machine: String,
    /// Its number.
    pub id: u32,
    /// When it started, on the clock of its system; empty where the system does not tell.
    pub started: String,
    /// The attempt of a Slurm job that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmAttempt>,
}

/// An attempt of Slurm at a job or an array task. After a preemption or a node failure, Slurm starts a new attempt, possibly on another node. An attempt begins
/// after the previous one has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmAttempt {
    /// Name of the cluster, within which numbers of jobs are unique.
    pub cluster: String,
    /// Number of the job; of an array job, that of the array.
    pub job: String,
    /// Number of the task of an array job.
    pub task: Option<String>,
    /// How often the job was started before.
    pub restart: u64,
}

impl SlurmAttempt {
    /// The attempt whose environment `variable` gives; `None` outside of Slurm.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        Some(Self {
            cluster: variable("SLURM_CLUSTER_NAME").unwrap_or_default(),
            job: variable("SLURM_ARRAY_JOB_ID").or_else(|| variable("SLURM_JOB_ID"))?,
            task: variable("SLURM_ARRAY_TASK_ID"),
            // Slurm sets it from the first restart on.
            restart: variable("SLURM_RESTART_COUNT").and_then(|count| count.parse().ok()).unwrap_or_default(),
        })
    }

    /// Whether it came before another attempt at the same.
    fn is_before(&self, other: &Self) -> bool {
        (&self.cluster, &self.job, &self.task) == (&other.cluster, &other.job, &other.task) && self.restart < other.restart
    }
}

impl Process {
    /// This process.
    pub fn this() -> &'static Self {
        static THIS: OnceLock<Process> = OnceLock::new();
        THIS.get_or_init(|| {
            let id = std::process::id();
            let slurm = SlurmAttempt::of(|name| std::env::var(name).ok());
            Self { host: host(), machine: machine(), id, started: start_of(id).unwrap_or_default(), slurm }
        })
    }

    /// Whether the process is known to have ended. This is not known for a process on another machine, or on a system that does not report processes, unless it
    /// was an earlier attempt at the Slurm job of this process.
    pub fn has_ended(&self) -> bool {
        let this = Self::this();
        if let (Some(attempt), Some(now)) = (&self.slurm, &this.slurm)
            && attempt.is_before(now)
        {
            return true;
        }
        self.is_here() && !this.started.is_empty() && start_of(self.id).is_none_or(|started| started != self.started)
    }

    /// Whether it is or was a process of this machine.
    pub fn is_here(&self) -> bool {
        let this = Self::this();
        (&self.host, &self.machine) == (&this.host, &this.machine)
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
    fn an_earlier_attempt_at_the_same_slurm_task_has_ended() {
        let attempt = |variables: &[(&str, &str)]| {
            SlurmAttempt::of(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        let task = [("SLURM_CLUSTER_NAME", "c"), ("SLURM_ARRAY_JOB_ID", "7"), ("SLURM_JOB_ID", "9"), ("SLURM_ARRAY_TASK_ID", "2")];
        let first = attempt(&task).unwrap();
        assert_eq!(first, SlurmAttempt { cluster: "c".into(), job: "7".into(), task: Some("2".into()), restart: 0 });
        let again = attempt(&[&task[..], &[("SLURM_RESTART_COUNT", "1")]].concat()).unwrap();
        assert!(first.is_before(&again) && !again.is_before(&first) && !first.is_before(&first));
        for (at, other) in [(0, "d"), (1, "8"), (3, "3")] {
            let mut variables = task;
            variables[at].1 = other;
            assert!(!attempt(&variables).unwrap().is_before(&again), "{variables:?}");
        }
        let alone = attempt(&[("SLURM_JOB_ID", "9")]).unwrap();
        assert!((alone.job.as_str(), &alone.task) == ("9", &None) && attempt(&[]).is_none());
    }

    #[test]
    fn nothing_is_known_of_a_process_elsewhere() {
        let ended = Process { started: "1".into(), ..Process::this().clone() };
        assert!(!Process { host: "elsewhere".into(), ..ended.clone() }.has_ended());
        assert!(!Process { machine: "namesake".into(), ..ended }.has_ended());
    }
}
