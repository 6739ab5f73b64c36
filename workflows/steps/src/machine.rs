//! The machine of a measurement, as far as it can be read without privileges: part of what makes a latency traceable.
//! Unknown values are omitted.

use std::fs;

use serde::{Deserialize, Serialize};

/// The machine at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name.
    pub cpu: Option<String>,
    /// Logical cores that this process may use.
    pub cores: usize,
    /// The frequency governor of the first core, such as `performance`.
    pub governor: Option<String>,
    /// Vector instruction sets that kernels use.
    pub instructions: Vec<String>,
    /// Memory of the machine, in bytes.
    pub memory_bytes: Option<u64>,
    /// Runnable tasks, averaged over 1, 5 and 15 minutes: above the number of cores, the machine is overloaded.
    pub load: Option<[f64; 3]>,
    /// The system and its kernel.
    pub system: String,
}

impl Machine {
    /// Reads the current state of the machine.
    #[must_use]
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        let kernel = text("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            cpu: text("/proc/cpuinfo").as_deref().and_then(|text| field(text, "model name")).map(str::to_owned),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").map(|text| text.trim().to_owned()),
            instructions: instructions(),
            memory_bytes: text("/proc/meminfo").as_deref().and_then(memory),
            load: text("/proc/loadavg").as_deref().and_then(load),
            system: format!("{} {} {}", std::env::consts::OS, kernel.trim(), std::env::consts::ARCH),
        }
    }
}

/// The first `name : value` of a listing.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// MemTotal; its unit `kB` means KiB.
fn memory(text: &str) -> Option<u64> {
    let kibibytes: u64 = field(text, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn load(text: &str) -> Option<[f64; 3]> {
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

#[cfg(target_arch = "x86_64")]
fn instructions() -> Vec<String> {
    let sets = [
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512vnni", std::is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", std::is_x86_feature_detected!("avx512bf16")),
    ];
    sets.into_iter().filter(|(_, there)| *there).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn instructions() -> Vec<String> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_of_the_kernel_are_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Imagined 9000 @ 2.1GHz\nflags\t\t: fpu\n";
        assert_eq!(field(cpuinfo, "model name"), Some("Imagined 9000 @ 2.1GHz"));
        assert_eq!(field("processor\t: 0\n", "model name"), None);
        assert_eq!(memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16_777_216));
        assert_eq!(memory("MemTotal: many\n"), None);
        assert_eq!(load("0.50 1.25 2.00 3/100 12345\n"), Some([0.5, 1.25, 2.0]));
        assert_eq!(load(""), None);
    }

    #[test]
    fn this_machine_has_a_core() {
        let machine = Machine::read();
        assert!(machine.cores >= 1 && !machine.system.is_empty());
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
    }
}
