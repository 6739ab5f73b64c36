//! The CUDA backend, as it is recorded and opened.

use std::path::PathBuf;

use assay_protocol::{DeviceInfo, KERNELS};
use assay_tensor::Device;

/// The first device, as it is recorded beside every measurement.
pub(crate) fn probe() -> Result<DeviceInfo, String> {
    let facts = assay_cuda::probe(0)?;
    let gib = facts.memory as f64 / f64::from(1 << 30);
    let details = vec![facts.architecture.to_string(), format!("{gib:.1} GiB"), facts.driver, facts.compiler];
    Ok(DeviceInfo { name: facts.name, details })
}

/// Opens the first device.
pub(crate) fn device() -> Result<Device, String> {
    assay_cuda::device(0, std::env::var_os(KERNELS).map(PathBuf::from))
}
