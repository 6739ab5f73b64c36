//! The memory use of a process group, and the memory of the machine. Linux only; elsewhere both are unknown, and the
//! memory limit is not enforced.

use std::path::Path;

/// The machine's memory in bytes, or its container's limit if that is smaller; `None` if it is unknown.
#[must_use]
pub fn machine_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024);
    let container = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    Some(container.and_then(|text| text.trim().parse().ok()).map_or(total, |limit: u64| limit.min(total)))
}

/// How many processes of this machine the kernel has killed because memory ran out, in a container or in total.
pub(crate) fn kernel_kills() -> Option<u64> {
    kernel_kills_in(&std::fs::read_to_string("/proc/vmstat").ok()?)
}

fn kernel_kills_in(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// The number of measurements between searches for members of the group. Reading one process is cheap, but finding all
/// of a group requires reading every process of the machine.
const MEASUREMENTS_PER_SEARCH: u32 = 12;

/// Measures the resident memory of a process group.
pub(crate) struct Meter {
    group: u32,
    members: Vec<u32>,
    until_search: u32,
    /// The largest sum measured, in bytes.
    pub(crate) peak: u64,
}

impl Meter {
    /// A meter for the group whose leader is the process `leader`.
    pub(crate) fn new(leader: u32) -> Meter {
        Meter { group: leader, members: vec![leader], until_search: MEASUREMENTS_PER_SEARCH, peak: 0 }
    }

    /// The resident bytes of all processes of the group. Shared pages count once for each process.
    pub(crate) fn measure_group(&mut self) -> u64 {
        if self.until_search == 0 {
            self.members = group_members(Path::new("/proc"), self.group);
            self.until_search = MEASUREMENTS_PER_SEARCH;
        }
        self.until_search -= 1;
        let now = self.members.iter().map(|&pid| resident_bytes(pid)).fold(0_u64, u64::saturating_add);
        self.peak = self.peak.max(now);
        now
    }
}

/// Resident bytes; 0 if the process is gone.
fn resident_bytes(pid: u32) -> u64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/statm")) else { return 0 };
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
    pages.saturating_mul(rustix::param::page_size() as u64)
}

/// Every process of a group.
fn group_members(proc: &Path, group: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        std::fs::read_to_string(proc.join(format!("{pid}/stat"))).ok().and_then(|stat| group_of(&stat)) == Some(group)
    })
    .collect()
}

/// The process group in a line of `/proc/PID/stat`. The program's name before it is in parentheses and may itself
/// contain spaces and parentheses.
fn group_of(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_program_name_does_not_hide_the_group() {
        assert_eq!(group_of("17 (a) R 1 5 (b) c) S 1 42 42 0 -1"), Some(42));
        assert_eq!(group_of("17 (cut"), None);
    }

    #[test]
    fn this_process_is_found_in_its_group_and_uses_memory() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let group = group_of(&stat).unwrap();
        assert!(group_members(Path::new("/proc"), group).contains(&std::process::id()));
        let used = Meter::new(std::process::id()).measure_group();
        assert!(used > 100_000 && used < machine_memory().unwrap(), "{used}");
    }

    #[test]
    fn the_kernels_own_count_is_read() {
        assert_eq!(kernel_kills_in("pgfault 5\noom_kill 3\noom_kill_other 9\n"), Some(3));
        assert_eq!(kernel_kills_in("pgfault 5\n"), None);
    }

    #[test]
    fn a_process_that_is_gone_uses_nothing() {
        assert_eq!(Meter::new(u32::MAX).measure_group(), 0);
    }
}
