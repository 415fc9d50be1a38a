//! Processor, system and memory.

use std::fs;

use serde::{Deserialize, Serialize};

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

/// Processes that run or wait, on average of the last minute; none where the system does not tell.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim()).filter(|model| !model.is_empty())
}

/// Largest resident memory of this process in bytes so far, or none where the system does not tell (anything but Linux).
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
    fn the_processor_is_read_from_its_model_name() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu_model("processor\t: 0\n"), None);
        assert!(Machine::here().cores >= 1);
    }
}
