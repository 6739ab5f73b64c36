//! A device before it is opened: what it is, or why there is none.

use std::ffi::c_int;

use assay_gpu::{Architecture, DeviceProperties};
use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute, CUresult};
use cudarc::nvrtc;

use crate::error::error_text;
use crate::library;

/// CUDA 12.4, as the driver writes versions.
const OLDEST: c_int = 12040;

/// What the device of this index is. Opens nothing. The error is a lower-case fragment, one line long, that says what is
/// missing and why.
///
/// # Errors
/// Where a library or the device is missing, or too old.
pub fn probe(index: usize) -> Result<DeviceProperties, String> {
    find_device(index).map(|(_, properties)| properties)
}

/// How many devices the driver finds.
///
/// # Errors
/// As [`probe`]'s.
pub fn count() -> Result<u32, String> {
    initialise().map(|(_, count)| count as u32)
}

/// Starts the driver: its version, and how many devices it finds.
fn initialise() -> Result<(c_int, c_int), String> {
    library::load_libraries()?;
    let (mut version, mut count) = (0, 0);
    // SAFETY: the library has these functions, and each is given places of the types that it writes.
    unsafe {
        let started = sys::cuInit(0);
        if started != CUresult::CUDA_SUCCESS {
            return Err(format!("libcuda is here, but finds no device that works ({})", error_text(started)));
        }
        describe_failure(sys::cuDriverGetVersion(&raw mut version))?;
        describe_failure(sys::cuDeviceGetCount(&raw mut count))?;
    }
    if version < OLDEST {
        let found = format_version(version);
        return Err(format!("the NVIDIA driver offers CUDA {found}, and 12.4 or later is needed: update the driver"));
    }
    Ok((version, count.max(0)))
}

/// The device of this index.
pub(crate) fn find_device(index: usize) -> Result<(CUdevice, DeviceProperties), String> {
    let (version, count) = initialise()?;
    let Some(ordinal) = c_int::try_from(index).ok().filter(|&ordinal| ordinal < count) else {
        return Err(format!("there is no CUDA device {index}: the driver finds {count}"));
    };
    let mut device = 0;
    // SAFETY: as in `start`.
    unsafe {
        describe_failure(sys::cuDeviceGet(&raw mut device, ordinal))?;
        Ok((device, read_properties(device, version)?))
    }
}

fn describe_failure(code: CUresult) -> Result<(), String> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(error_text(code)) }
}

/// A version such as 12040 in the form that people write.
fn format_version(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// # Safety
/// `device` is a device of the initialised driver.
unsafe fn read_properties(device: CUdevice, version: c_int) -> Result<DeviceProperties, String> {
    use CUdevice_attribute as A;
    let attribute = |attribute: A| {
        let mut value = 0;
        // SAFETY: as the caller promises.
        describe_failure(unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) })?;
        u32::try_from(value).map_err(|_| format!("the driver gives {value} for {attribute:?}"))
    };
    let (mut name, mut memory, mut major, mut minor) = ([0u8; 256], 0, 0, 0);
    // SAFETY: as the caller promises; the name's buffer has the length that is given.
    unsafe {
        describe_failure(sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int - 1, device))?;
        describe_failure(sys::cuDeviceTotalMem_v2(&raw mut memory, device))?;
        if nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) != nvrtc::sys::nvrtcResult::NVRTC_SUCCESS {
            return Err("libnvrtc is here, but does not say its version".into());
        }
    }
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let module = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let driver = match kernel_module(&module) {
        Some(module) => format!("CUDA {}, driver {module}", format_version(version)),
        None => format!("CUDA {}", format_version(version)),
    };
    Ok(DeviceProperties {
        name: String::from_utf8_lossy(&name[..length]).into_owned(),
        architecture: Architecture::Cuda(
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        driver,
        compiler: format!("NVRTC {major}.{minor}"),
        wave: attribute(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
        memory,
    })
}

/// The version in the form of `/proc/driver/nvidia/version`: the first word after "Kernel Module" that begins with a
/// digit.
fn kernel_module(text: &str) -> Option<String> {
    let (_, rest) = text.lines().next()?.split_once("Kernel Module")?;
    rest.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_written() {
        assert_eq!((format_version(12040).as_str(), format_version(13000).as_str()), ("12.4", "13.0"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)";
        assert_eq!(kernel_module(open).as_deref(), Some("580.65.06"));
        assert_eq!(kernel_module(""), None);
    }
}
