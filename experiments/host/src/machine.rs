//! Processor, system and memory.

mod available;

use std::fs;

use serde::{Deserialize, Serialize};

pub use self::available::available_memory;

/// The machine a run was made on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor, or `unknown`.
    pub cpu: String,
    /// Threads the process may run at once.
    pub cores: usize,
    /// Operating system and processor architecture.
    pub os: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cpu: cpu_model(&cpuinfo).unwrap_or("unknown").into(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        }
    }
}

/// Average number of processes that ran or waited during the last minute; `None` where the system does not report it.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// The share of the time of the processors above which other programs disturb a measurement.
const DISTURBANCE: f64 = 0.05;

/// The processor time that other programs take on the processors of this process, since a start time.
#[derive(Clone, Copy, Debug)]
pub struct OtherPrograms {
    begun: ProcessorTime,
}

impl OtherPrograms {
    /// Starts watching; `None` where the system does not report it (anything but Linux).
    pub fn watch() -> Option<Self> {
        Some(Self { begun: ProcessorTime::now()? })
    }

    /// Whether other programs have taken more than a twentieth of these processors since then, so that times and speeds of this process are meaningless.
    pub fn disturb(&self) -> bool {
        is_disturbance(self.share())
    }

    /// Share of the time of these processors, from 0 to 1, that other programs have taken since then; `None` if that time is too short to tell.
    pub fn share(&self) -> Option<f64> {
        ProcessorTime::now()?.of_others_since(&self.begun)
    }
}

fn is_disturbance(share: Option<f64>) -> bool {
    share.is_some_and(|share| share > DISTURBANCE)
}

/// Time of the processors that this process may run on, in ticks of the clock of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessorTime {
    all: u64,
    idle: u64,
    /// That of this process and of those that it started and waited for.
    own: u64,
}

impl ProcessorTime {
    fn now() -> Option<Self> {
        let file = |name: &str| fs::read_to_string(format!("/proc/{name}")).ok();
        Self::read(&file("stat")?, &file("self/stat")?, &file("self/status")?)
    }

    /// From `/proc/stat`, and `stat` and `status` of the process (proc(5)).
    fn read(processors: &str, process: &str, status: &str) -> Option<Self> {
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let (mut all, mut idle) = (0, 0);
        for line in processors.lines() {
            let mut fields = line.split_whitespace();
            let number = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            if number.is_some_and(|number| is_in_list(number, allowed)) {
                // User, nice, system, idle, waiting for input and output, two kinds of interrupts, and what other virtual machines had.
                let ticks = fields.take(8).map(|field| field.parse().ok()).collect::<Option<Vec<u64>>>()?;
                all += ticks.iter().sum::<u64>();
                idle += ticks.get(3..5)?.iter().sum::<u64>();
            }
        }
        // After the name of the program, in parentheses, come the 3rd field and the following; the 14th to 17th are times.
        let fields = process.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
        let own = fields.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
        Some(Self { all, idle, own })
    }

    fn of_others_since(&self, begun: &Self) -> Option<f64> {
        let all = self.all.saturating_sub(begun.all);
        let others = all.saturating_sub(self.idle.saturating_sub(begun.idle)).saturating_sub(self.own.saturating_sub(begun.own));
        (all > 0).then(|| others as f64 / all as f64)
    }
}

/// Whether a list such as `0-3,8` has a number.
fn is_in_list(number: usize, list: &str) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&number))
    })
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim()).filter(|model| !model.is_empty())
}

/// Largest resident memory of this process in bytes so far; `None` where the system does not report it (anything but Linux).
///
/// It is the peak of the whole process since its start or since [`reset_peak_memory`]: memory that an earlier run of the same process left allocated
/// counts, memory on a GPU does not.
pub fn peak_memory_bytes() -> Option<u64> {
    high_water_mark(&fs::read_to_string("/proc/self/status").ok()?)
}

fn high_water_mark(status: &str) -> Option<u64> {
    let amount = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    amount.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Starts the peak of [`peak_memory_bytes`] anew at the present size; returns whether the system does that.
pub fn reset_peak_memory() -> bool {
    // Code 5 of clear_refs resets the high water mark (proc(5), since Linux 4.0).
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use std::{process::Command, time::Duration};

    use super::*;

    #[test]
    fn the_peak_of_memory_is_read_in_bytes() {
        assert_eq!(high_water_mark("Name:\tmt\nVmPeak:\t  900 kB\nVmHWM:\t  1234 kB\n"), Some(1234 * 1024));
        assert_eq!(high_water_mark("Name:\tmt\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_of_memory_follows_what_the_process_touches() {
        let before = peak_memory_bytes().unwrap();
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(peak_memory_bytes().unwrap() >= before.max(64 << 20));
        drop(block);
    }

    #[test]
    fn the_time_of_others_is_that_of_the_allowed_processors_without_the_own() {
        let process = "7 (a) b) R 1 1 1 0 -1 4194304 100 0 0 0 30 10 3 1 20 0 1 0 1561701\n";
        let status = "Name:\tmt\nCpus_allowed_list:\t0,2-3\n";
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 9 9\ncpu1 50 0 0 0 0 0 0 0 0 0\ncpu2 10 0 0 20 0 0 0 0 0 0\ncpu3 0 0 0 1 0 0 0 0 0 0\nintr 5\n";
        let begun = ProcessorTime::read(stat, process, status).unwrap();
        assert_eq!(begun, ProcessorTime { all: 36 + 30 + 1, idle: 9 + 20 + 1, own: 44 });
        let later = |all, idle, own| ProcessorTime { all: begun.all + all, idle: begun.idle + idle, own: begun.own + own };
        assert_eq!(later(100, 40, 50).of_others_since(&begun), Some(0.1));
        // Ticks of the processes and of the processors are not counted at the same moment.
        assert_eq!(later(100, 40, 61).of_others_since(&begun), Some(0.0));
        assert_eq!(begun.of_others_since(&begun), None);
        assert_eq!(ProcessorTime::read(stat, process, "Name:\tmt\n"), None);
    }

    /// A status that allows every processor.
    #[cfg(target_os = "linux")]
    const ALL: &str = "Cpus_allowed_list:\t0-4095\n";

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_beside_this_one_is_noticed() {
        let Some(watched) = OtherPrograms::watch() else { return };
        let mut other = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        // How soon it has a hundred ticks depends on what else runs, and which share of the processors they are on how many there are.
        let ticks = || ProcessorTime::read("", &fs::read_to_string(format!("/proc/{}/stat", other.id())).unwrap(), ALL).unwrap().own;
        while ticks() < 100 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (had, now, share) = (ticks(), ProcessorTime::now().unwrap(), watched.share().unwrap());
        other.kill().unwrap();
        other.wait().unwrap();
        // Half of them, since ticks of a process and of the processors are not counted at the same moment.
        let all = (now.all - watched.begun.all) as f64;
        assert!(share <= 1.0 && share * all >= had as f64 / 2.0, "{share} of {all} ticks, where another program had {had}");
    }

    #[test]
    fn more_than_a_twentieth_of_the_time_disturbs() {
        let begun = ProcessorTime { all: 0, idle: 0, own: 0 };
        let share = |all, idle| ProcessorTime { all, idle, own: 0 }.of_others_since(&begun);
        assert!(is_disturbance(share(100, 94)) && !is_disturbance(share(100, 95)) && !is_disturbance(None));
    }

    #[test]
    fn the_processor_is_read_from_its_model_name() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu_model("processor\t: 0\n"), None);
        assert!(Machine::here().cores >= 1);
    }
}
