//! Slurm as the engine beyond one machine: the table `slurm` of the configuration, and the scripts that do the runs of a command as an array job.
//!
//! Each task of the array is the command itself with `--shard K/N --resume`, so that a run gives the same digits wherever it is done. Slurm warns a task before
//! its time ends; the program then saves a checkpoint, and the script puts the task back into the queue. A second job, which depends on the array, derives the
//! report. Of Slurm's answers only the numbers of jobs are read: what was finished is seen from the run folder alone.

mod script;
mod submit;

use serde::{Deserialize, Serialize};

pub(crate) use self::script::Scripts;
pub(crate) use self::submit::{Submitted, submit};

/// Resources of the runs under Slurm: the table `slurm` of every experiment's configuration. It sets where runs are done and not what they compute, so it is
/// not part of their identity. The site decides what is unset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlurmSettings {
    /// Partition, or several separated by commas.
    pub partition: Option<String>,
    /// Account that is charged.
    pub account: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Features that nodes must have.
    pub constraint: Option<String>,
    /// Nodes that must take part.
    pub nodelist: Option<String>,
    /// Nodes that are left out.
    pub exclude: Option<String>,
    /// Longest time of a task before it is stopped and queued again: minutes, `hours:minutes:seconds` or `days-hours`.
    pub time: String,
    /// CPUs of a task. The CPU backends then use as many threads.
    pub cpus: Option<u64>,
    /// Memory of a task, such as `16G`. A model that needs more is refused before anything is submitted.
    pub memory: Option<String>,
    /// GPUs of a task. The job that merges has none.
    pub gpus: Option<u64>,
    /// Seconds before the end of its time at which a task is told to save a checkpoint.
    pub signal: u64,
    /// Most tasks that run at the same time.
    pub at_once: Option<u64>,
    /// Tasks of the array, which share the runs; unset for one task for each run.
    pub tasks: Option<u64>,
    /// How often a task that was stopped is queued again.
    pub requeues: u64,
    /// Further options of `sbatch` for all jobs, such as `--mail-type=FAIL`.
    pub extra: Vec<String>,
    /// Lines of shell before the program is called, such as `module load cuda`.
    pub prologue: Vec<String>,
}

impl Default for SlurmSettings {
    fn default() -> Self {
        Self {
            partition: None,
            account: None,
            qos: None,
            constraint: None,
            nodelist: None,
            exclude: None,
            time: "1:00:00".to_owned(),
            cpus: None,
            memory: None,
            gpus: None,
            signal: 120,
            at_once: None,
            tasks: None,
            requeues: 100,
            extra: Vec::new(),
            prologue: Vec::new(),
        }
    }
}

/// Options of `sbatch` that the scripts give themselves.
const OWN: [&str; 9] = ["array", "chdir", "dependency", "error", "open-mode", "output", "requeue", "no-requeue", "signal"];
/// The longest warning that Slurm takes, in seconds.
const LONGEST_WARNING: u64 = 65_535;

impl SlurmSettings {
    /// The memory of a task in bytes, if it is limited: Slurm counts in MiB where no unit is given, and takes 0 for all that a node has.
    pub(crate) fn memory_in_bytes(&self) -> Option<u64> {
        let text = self.memory.as_deref()?;
        let (digits, shift) = match text.strip_suffix(['K', 'M', 'G', 'T', 'k', 'm', 'g', 't']) {
            Some(digits) => (digits, 10 * (1 + "KMGT".find(text.chars().last()?.to_ascii_uppercase())?)),
            None => (text, 20),
        };
        number(digits).filter(|amount| *amount > 0)?.checked_mul(1 << shift)
    }

    /// Refuses what Slurm cannot be asked for: the field, from the table on, and what to give instead.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        let texts = [
            ("partition", &self.partition),
            ("account", &self.account),
            ("qos", &self.qos),
            ("constraint", &self.constraint),
            ("nodelist", &self.nodelist),
            ("exclude", &self.exclude),
            ("memory", &self.memory),
        ];
        for (field, text) in texts {
            if text
                .as_ref()
                .is_some_and(|text| text.is_empty() || text.contains(|letter: char| letter.is_control() || " \"'\\#".contains(letter)))
            {
                return Err((
                    field,
                    "blanks, quotes, # and \\ cannot stand in it, and it cannot be empty; unset leaves it to the site".to_owned(),
                ));
            }
        }
        for (field, number) in [("cpus", self.cpus), ("at_once", self.at_once), ("tasks", self.tasks)] {
            if number == Some(0) {
                return Err((field, "it must be at least 1".to_owned()));
            }
        }
        let Some(seconds) = seconds(&self.time) else {
            return Err(("time", format!("`{}` is no time; give minutes, hours:minutes:seconds or days-hours", self.time)));
        };
        if !(1..=LONGEST_WARNING).contains(&self.signal) || self.signal >= seconds {
            return Err(("signal", format!("give 1 to {LONGEST_WARNING} seconds, fewer than slurm.time = `{}` has", self.time)));
        }
        for option in &self.extra {
            let name = option.strip_prefix("--").map(|rest| rest.split(['=', ' ']).next().unwrap_or_default());
            match name {
                Some(name) if OWN.contains(&name) => {
                    return Err(("extra", format!("`{option}`: the scripts of --slurm give --{name} themselves; leave it out")));
                }
                Some(name) if !name.is_empty() && !option.contains(char::is_control) => {}
                _ => return Err(("extra", format!("`{option}` is no option of sbatch; write --name=value"))),
            }
        }
        match self.prologue.iter().find(|line| line.contains(['\n', '\r', '\0'])) {
            Some(line) => Err(("prologue", format!("`{}` has several lines; give each as an element of the list", line.escape_debug()))),
            None => Ok(()),
        }
    }
}

/// The seconds of a time limit as Slurm reads it: `minutes`, `minutes:seconds`, `hours:minutes:seconds`, and `days-hours` with or without more parts.
fn seconds(time: &str) -> Option<u64> {
    let (days, rest) = match time.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, time),
    };
    let parts = rest.split(':').map(number).collect::<Option<Vec<_>>>()?;
    let [hours, minutes, seconds] = match (days, &parts[..]) {
        (_, [hours, minutes, seconds]) => [*hours, *minutes, *seconds],
        (None, [minutes]) => [0, *minutes, 0],
        (None, [minutes, seconds]) => [0, *minutes, *seconds],
        (Some(_), [hours]) => [*hours, 0, 0],
        (Some(_), [hours, minutes]) => [*hours, *minutes, 0],
        _ => return None,
    };
    let hours = days.unwrap_or_default().checked_mul(24)?.checked_add(hours)?;
    hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60)?.checked_add(seconds)
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_slurm_reads_them() {
        for (text, expected) in
            [("90", 5400), ("1:30", 90), ("2:00:01", 7201), ("1-2", 93_600), ("1-2:30", 95_400), ("1-0:0:5", 86_405), ("0:90:00", 5400)]
        {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for wrong in ["", "1h", "1:2:3:4", "-1", "1-", "1-1:1:1:1", ":", "18446744073709551615"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn memory_is_read_as_slurm_reads_it() {
        let of = |text: &str| SlurmSettings { memory: Some(text.to_owned()), ..SlurmSettings::default() }.memory_in_bytes();
        for (text, mib) in [("512", 512), ("512M", 512), ("2048k", 2), ("16G", 16 << 10), ("1t", 1 << 20)] {
            assert_eq!(of(text), Some(mib << 20), "{text}");
        }
        for unlimited in ["0", "0G", "much", "1.5G", "G"] {
            assert_eq!(of(unlimited), None, "{unlimited}");
        }
        assert_eq!(SlurmSettings::default().memory_in_bytes(), None);
    }

    #[test]
    fn what_slurm_cannot_be_asked_for_is_refused() {
        assert_eq!(SlurmSettings::default().check(), Ok(()));
        let refused = |text: &str| {
            let settings: SlurmSettings = toml::from_str(text).unwrap();
            settings.check().expect_err(text)
        };
        for (text, field, part) in [
            ("partition = 'a b'", "partition", "blanks"),
            ("account = ''", "account", "empty"),
            ("cpus = 0", "cpus", "at least 1"),
            ("time = 'long'", "time", "hours:minutes:seconds"),
            ("signal = 0", "signal", "65535"),
            ("time = '2'", "signal", "slurm.time"),
            ("extra = ['mem=1G']", "extra", "--name=value"),
            ("extra = ['--output=x']", "extra", "leave it out"),
            ("extra = ['--array 1-3']", "extra", "leave it out"),
            ("extra = ['--a=1\\u000A#SBATCH']", "extra", "--name=value"),
            ("prologue = [\"a\\nb\"]", "prologue", "several lines"),
        ] {
            let text = text.replace("'--a=1\\u000A#SBATCH'", "\"--a=1\\n#SBATCH\"");
            let (found, problem) = refused(&text);
            assert!(found == field && problem.contains(part), "{text}: {found}: {problem}");
        }
        let accepted =
            "partition = 'gpu,long'\nconstraint = '[a100|h100]'\nexclude = 'n[1-3]'\nextra = ['--mail-type=FAIL', '--exclusive']";
        assert_eq!(toml::from_str::<SlurmSettings>(accepted).unwrap().check(), Ok(()));
    }
}
