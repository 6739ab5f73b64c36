//! The processor, as recorded with every measurement.

use std::fs::File;
use std::io::Read;

use assay_protocol::DeviceInfo;

/// The processor's model and the instruction sets that kernels use.
pub(crate) fn device_info() -> DeviceInfo {
    // If the model is at the start, the kernel need not describe all other processors.
    let name = model_name(&read_listing(BEGINNING)).or_else(|| model_name(&read_listing(u64::MAX)));
    let name = name.unwrap_or_else(|| format!("a {} processor", std::env::consts::ARCH));
    DeviceInfo { name, details: instruction_sets().into_iter().map(str::to_owned).collect() }
}

/// The size of the part of `/proc/cpuinfo` that contains the first processor, in bytes.
const BEGINNING: u64 = 4096;

/// At most `most` bytes of `/proc/cpuinfo`; empty if it does not exist.
fn read_listing(most: u64) -> String {
    let mut listing = Vec::new();
    let read = File::open("/proc/cpuinfo").and_then(|file| file.take(most).read_to_end(&mut listing));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&listing).into_owned())
}

/// The model in a text like `/proc/cpuinfo`; not all architectures state it.
fn model_name(listing: &str) -> Option<String> {
    let names = ["model name", "Model", "cpu model"];
    let pairs = || listing.lines().filter_map(|line| line.split_once(':'));
    names.iter().find_map(|name| {
        let (_, value) = pairs().find(|(key, _)| key.trim() == *name)?;
        let words: Vec<&str> = value.split_whitespace().collect();
        (!words.is_empty()).then(|| words.join(" "))
    })
}

#[cfg(target_arch = "x86_64")]
fn instruction_sets() -> Vec<&'static str> {
    let sets = [
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("f16c", std::is_x86_feature_detected!("f16c")),
        ("avxvnni", std::is_x86_feature_detected!("avxvnni")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512bw", std::is_x86_feature_detected!("avx512bw")),
        ("avx512dq", std::is_x86_feature_detected!("avx512dq")),
        ("avx512vl", std::is_x86_feature_detected!("avx512vl")),
        ("avx512vnni", std::is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", std::is_x86_feature_detected!("avx512bf16")),
    ];
    present_sets(&sets)
}

#[cfg(target_arch = "aarch64")]
fn instruction_sets() -> Vec<&'static str> {
    let sets = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("fp16", std::arch::is_aarch64_feature_detected!("fp16")),
        ("dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
        ("i8mm", std::arch::is_aarch64_feature_detected!("i8mm")),
        ("bf16", std::arch::is_aarch64_feature_detected!("bf16")),
        ("sve", std::arch::is_aarch64_feature_detected!("sve")),
    ];
    present_sets(&sets)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn instruction_sets() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn present_sets(sets: &[(&'static str, bool)]) -> Vec<&'static str> {
    sets.iter().filter(|(_, present)| *present).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_read_from_any_listing() {
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R)  Xeon(R)\n";
        assert_eq!(model_name(intel).as_deref(), Some("Intel(R) Xeon(R)"));
        assert_eq!(model_name("processor : 0\nModel : Raspberry Pi 5\n").as_deref(), Some("Raspberry Pi 5"));
        assert_eq!(model_name("processor : 0\nmodel name :\n"), None);
    }

    #[test]
    fn a_processor_always_has_a_name() {
        assert!(!device_info().name.is_empty());
    }
}
