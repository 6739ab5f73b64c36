//! The settings of the emulator in the environment.

use std::path::PathBuf;
use std::sync::OnceLock;

/// The seed of the order in which blocks and threads are scheduled; by default or with 0, it is their natural order.
pub(crate) const SEED: &str = "ASSAY_GPU_EMULATOR_SEED";
/// Bytes of memory of each device.
pub(crate) const MEMORY: &str = "ASSAY_GPU_EMULATOR_MEMORY";
/// The number of devices.
pub(crate) const DEVICES: &str = "ASSAY_GPU_EMULATOR_DEVICES";
/// The wave width of an AMD device, 32 or 64.
pub(crate) const WAVE: &str = "ASSAY_GPU_EMULATOR_WAVE";
/// The injected failure: `allocation:3`, `bytes:1000000`, `lost:3`, `fault:3`; with the suffix `@1` only on device 1.
pub(crate) const FAIL: &str = "ASSAY_GPU_EMULATOR_FAIL";
/// With 0, libcublasLt supports no product with GELU in its epilogue.
pub(crate) const GELU: &str = "ASSAY_GPU_EMULATOR_GELU";
/// A file to which every problem is written, one per line.
pub(crate) const REPORT: &str = "ASSAY_GPU_EMULATOR_REPORT";
/// The folder of compiled kernels.
pub(crate) const CACHE: &str = "ASSAY_GPU_EMULATOR_CACHE";

/// An injected failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Injected {
    /// The allocation with this number fails, counted from 1.
    Allocation(u64),
    /// An allocation fails if it would bring the total above this number of bytes.
    Bytes(u64),
    /// The device is lost from the launch with this number on, counted from 1.
    Lost(u64),
    /// The kernel of the launch with this number faults, counted from 1.
    Fault(u64),
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) memory: usize,
    pub(crate) devices: usize,
    pub(crate) wave: u32,
    /// The injected failure, and its only device; `None` for all devices.
    pub(crate) fail: Option<(Injected, Option<usize>)>,
    pub(crate) gelu: bool,
    pub(crate) report: Option<PathBuf>,
    pub(crate) cache: PathBuf,
}

/// The settings of this process, read once.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        seed: number(SEED).unwrap_or(0),
        memory: number(MEMORY).and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(8 << 30),
        devices: number(DEVICES).and_then(|count| usize::try_from(count).ok()).unwrap_or(1),
        wave: if number(WAVE) == Some(64) { 64 } else { 32 },
        fail: std::env::var(FAIL).ok().and_then(on_a_device).and_then(|(text, on)| Some((injected(&text)?, on))),
        gelu: number(GELU) != Some(0),
        report: std::env::var_os(REPORT).map(PathBuf::from),
        cache: std::env::var_os(CACHE)
            .map_or_else(|| std::env::temp_dir().join("assay-gpu-emulator-cache"), PathBuf::from),
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.trim().parse().ok()
}

/// Splits a failure and its only device.
fn on_a_device(text: String) -> Option<(String, Option<usize>)> {
    match text.split_once('@') {
        Some((what, device)) => Some((what.to_owned(), Some(device.trim().parse().ok()?))),
        None => Some((text, None)),
    }
}

impl Settings {
    /// The injected failure on this device.
    pub(crate) fn fails_on(&self, device: usize) -> Option<Injected> {
        self.fail.filter(|(_, only)| only.is_none_or(|only| only == device)).map(|(injected, _)| injected)
    }
}

fn injected(text: &str) -> Option<Injected> {
    let (what, at) = text.split_once(':')?;
    let at = at.trim().parse().ok()?;
    match what.trim() {
        "allocation" => Some(Injected::Allocation(at)),
        "bytes" => Some(Injected::Bytes(at)),
        "lost" => Some(Injected::Lost(at)),
        "fault" => Some(Injected::Fault(at)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read() {
        assert_eq!(injected("allocation:3"), Some(Injected::Allocation(3)));
        assert_eq!(injected("bytes: 100"), Some(Injected::Bytes(100)));
        assert_eq!(injected("lost:1"), Some(Injected::Lost(1)));
        assert_eq!(injected("fault:2"), Some(Injected::Fault(2)));
        assert_eq!(injected("sometimes"), None);
        assert_eq!(on_a_device("lost:1@1".into()), Some(("lost:1".into(), Some(1))));
        assert_eq!(on_a_device("lost:1".into()), Some(("lost:1".into(), None)));
        assert_eq!(on_a_device("lost:1@x".into()), None);
    }
}
