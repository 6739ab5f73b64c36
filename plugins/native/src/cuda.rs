//! Probes and opens devices of the CUDA backend.

use std::path::PathBuf;

use assay_protocol::{DeviceInfo, KERNELS};
use assay_tensor::Device;

/// The device with this number, as recorded with every measurement.
pub(crate) fn probe_device(number: usize) -> Result<DeviceInfo, String> {
    let facts = assay_cuda::probe(number)?;
    let gib = facts.memory as f64 / f64::from(1 << 30);
    let mut details = vec![facts.architecture.to_string(), format!("{gib:.1} GiB"), facts.driver, facts.compiler];
    if count_devices().is_some_and(|count| count > 1) {
        details.push(format!("device {number}"));
    }
    Ok(DeviceInfo { name: facts.name, details })
}

/// The number of devices.
pub(crate) fn count_devices() -> Option<u32> {
    assay_cuda::count().ok()
}

/// Opens the device with this number.
pub(crate) fn open_device(number: usize) -> Result<Device, String> {
    assay_cuda::device(number, std::env::var_os(KERNELS).map(PathBuf::from))
}
