//! A device before it is opened: what it is, or why there is none.

use std::ffi::c_int;

use assay_gpu::{Architecture, DeviceProperties};

use crate::error::error_text;
use crate::library::{Libraries, load_libraries};

/// `hipDeviceProp_tR0600`, of which we need a few fields at offsets that its name fixes. Room for more than it has.
#[repr(C, align(16))]
struct Properties([u8; 4096]);

/// Offsets in `hipDeviceProp_tR0600`.
const MEMORY: usize = 288;
const SHARED: usize = 296;
const WAVE: usize = 308;
const MULTIPROCESSORS: usize = 388;
const TARGET: usize = 1160;
/// The length of its texts.
const TEXT: usize = 256;

impl Properties {
    fn text(&self, at: usize) -> String {
        let bytes = &self.0[at..at + TEXT];
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(TEXT);
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    fn usize(&self, at: usize) -> usize {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_ne_bytes(bytes) as usize
    }
}

/// What the device of this index is. Opens nothing. The error is a lower-case fragment, one line long, that says what is
/// missing and why.
///
/// # Errors
/// Where a library or the device is missing, or too old.
pub fn probe(index: usize) -> Result<DeviceProperties, String> {
    find_device(index).map(|(_, _, properties)| properties)
}

/// How many devices the driver finds.
///
/// # Errors
/// As [`probe`]'s.
pub fn count() -> Result<u32, String> {
    initialise().map(|(_, count)| count as u32)
}

/// Loads the libraries and starts the driver: how many devices it finds.
fn initialise() -> Result<(&'static Libraries, c_int), String> {
    let libraries = load_libraries()?;
    let nothing = |code| format!("libamdhip64 is here, but finds no device that works ({})", error_text(code));
    let mut count = 0;
    // SAFETY: each function is given places of the types that it writes.
    let codes = unsafe { [(libraries.hip.hipInit)(0), (libraries.hip.hipGetDeviceCount)(&raw mut count)] };
    match codes.into_iter().find(|&code| code != 0) {
        Some(code) => Err(nothing(code)),
        None => Ok((libraries, count.max(0))),
    }
}

/// The libraries, the device's number and what it is.
pub(crate) fn find_device(index: usize) -> Result<(&'static Libraries, c_int, DeviceProperties), String> {
    let (libraries, count) = initialise()?;
    let hip = &libraries.hip;
    let number = c_int::try_from(index).ok().filter(|&number| number < count);
    let number = number.ok_or_else(|| format!("there is no AMD device {index}: the driver finds {count}"))?;
    let ask = |code: c_int| if code == 0 { Ok(()) } else { Err(error_text(code)) };
    let (mut version, mut major, mut minor) = (0, 0, 0);
    let mut properties = Properties([0; 4096]);
    // SAFETY: each function is given places of the types that it writes; the properties have room for all of them.
    unsafe {
        ask((hip.hipDriverGetVersion)(&raw mut version))?;
        ask((hip.hipGetDevicePropertiesR0600)((&raw mut properties).cast(), number))?;
        if (libraries.compiler.hiprtcVersion)(&raw mut major, &raw mut minor) != 0 {
            return Err("libhiprtc is here, but does not say its version".into());
        }
        let properties = DeviceProperties {
            name: properties.text(0),
            architecture: Architecture::Hip(properties.text(TARGET)),
            driver: format!("HIP {}", format_version(version)),
            compiler: format!("hipRTC {major}.{minor}"),
            wave: properties.u32(WAVE),
            multiprocessors: properties.u32(MULTIPROCESSORS),
            shared: properties.usize(SHARED),
            memory: properties.usize(MEMORY),
        };
        Ok((libraries, number, properties))
    }
}

/// A version such as 60342134 (6.3.42134) in the form that people write.
fn format_version(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written() {
        assert_eq!(format_version(60_342_134), "6.3.42134");
    }

    #[test]
    fn without_a_driver_one_line_says_so() {
        if let Err(why) = probe(0) {
            assert!(!why.contains('\n') && !why.is_empty(), "{why}");
        }
    }
}
