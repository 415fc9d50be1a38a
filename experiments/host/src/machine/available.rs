//! The main memory that this process may take.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of main memory that this process may take; `None` where the system does not report it.
pub fn available_memory() -> Option<u64> {
    let machine = available_of(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(limit_of_groups(&groups, Path::new("/sys/fs/cgroup")).map_or(machine, |limit| limit.min(machine)))
}

/// `MemAvailable` of `/proc/meminfo`.
fn available_of(meminfo: &str) -> Option<u64> {
    let amount = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    amount.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The lowest `memory.max` of the groups of version 2 that a process is in, by its `/proc/self/cgroup`.
fn limit_of_groups(groups: &str, mounted: &Path) -> Option<u64> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group: PathBuf = mounted.join(own);
    let limits = group.ancestors().take_while(|group| group.starts_with(mounted));
    limits.filter_map(|group| fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_the_least_of_the_machine_and_its_groups() {
        assert_eq!(available_of("MemTotal:       64 kB\nMemAvailable:      3 kB\n"), Some(3072));
        assert_eq!(available_of("MemTotal: 64 kB\n"), None);
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let limit = |groups: &str| limit_of_groups(groups, root.path());
        assert_eq!(limit("0::/a/b\n"), None);
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("a/memory.max"), "4096\n").unwrap();
        fs::write(root.path().join("memory.max"), "8192\n").unwrap();
        assert_eq!(limit("1:name=systemd:/\n0::/a/b\n"), Some(4096), "the groups around a group limit it as well");
        assert_eq!((limit("0::/\n"), limit("4:memory:/a\n")), (Some(8192), None));
    }
}
