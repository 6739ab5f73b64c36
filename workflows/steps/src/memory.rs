//! The memory use of this process.

/// The peak resident memory of this process, in bytes; `None` if the system does not report it.
#[must_use]
pub fn peak_bytes() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// `VmHWM`; its unit `kB` means KiB.
fn parse(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listing_of_the_kernel_is_read() {
        assert_eq!(parse("Name:\tassay\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"), Some(2 << 20));
        assert_eq!(parse("VmHWM:\tmuch\n"), None);
        assert_eq!(parse(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_needed_some() {
        assert!(peak_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
