//! Kernels, compiled by NVRTC.

use std::ffi::{CString, c_char, c_int};

use assay_gpu::{Architecture, DeviceProperties, DriverError, Source};
use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};

/// The image of a source for the device.
pub(crate) fn compile_image(source: &Source<'_>, properties: &DeviceProperties) -> Result<Vec<u8>, DriverError> {
    let program = Program::new(source)?;
    let (target, binary) = target_option(&properties.architecture)?;
    let mut options = vec![target, "--std=c++17".to_owned(), "--device-as-default-execution-space".to_owned()];
    options.extend(source.options.iter().map(|&option| option.to_owned()));
    program.run_compiler(&options)?;
    // SAFETY: the four functions are given what `read` hands them.
    unsafe {
        if binary {
            program.read_output("nvrtcGetCUBIN", sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)
        } else {
            program.read_output("nvrtcGetPTX", sys::nvrtcGetPTXSize, sys::nvrtcGetPTX)
        }
    }
}

/// The option for an architecture, and whether the compiler gives code for that very device. Where it is older than the
/// device, it gives PTX for the newest that it knows, and the driver does the rest.
fn target_option(architecture: &Architecture) -> Result<(String, bool), DriverError> {
    let Architecture::Cuda(major, minor) = architecture else {
        return Err(DriverError::Call {
            call: "nvrtcCompileProgram",
            reason: format!("{architecture:?} is no NVIDIA"),
        });
    };
    let own = (major * 10 + minor) as c_int;
    let mut known = vec![];
    // SAFETY: the second call fills what the first has counted.
    unsafe {
        let mut count = 0;
        check_status("nvrtcGetNumSupportedArchs", sys::nvrtcGetNumSupportedArchs(&raw mut count))?;
        known.resize(usize::try_from(count).unwrap_or(0), 0);
        check_status("nvrtcGetSupportedArchs", sys::nvrtcGetSupportedArchs(known.as_mut_ptr()))?;
    }
    if known.contains(&own) {
        // Warpgroup products are features of 9.0 alone, which the suffix names.
        let suffix = if own == 90 { "a" } else { "" };
        return Ok((format!("--gpu-architecture=sm_{own}{suffix}"), true));
    }
    match known.into_iter().filter(|&other| other < own).max() {
        Some(other) => Ok((format!("--gpu-architecture=compute_{other}"), false)),
        None => Err(DriverError::Call {
            call: "nvrtcCompileProgram",
            reason: format!("the compiler makes no code for compute capability {major}.{minor}"),
        }),
    }
}

fn check_status(call: &'static str, code: nvrtcResult) -> Result<(), DriverError> {
    match code {
        nvrtcResult::NVRTC_SUCCESS => Ok(()),
        _ => Err(DriverError::Call { call, reason: format!("{code:?}") }),
    }
}

fn c_string(text: &str) -> Result<CString, DriverError> {
    CString::new(text).map_err(|_| DriverError::Compile { log: "a source, header or option has a zero byte".into() })
}

fn c_strings<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, DriverError> {
    texts.map(c_string).collect()
}

fn c_pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

/// A program of NVRTC, destroyed when it is dropped.
struct Program(nvrtcProgram);

impl Program {
    fn new(source: &Source<'_>) -> Result<Program, DriverError> {
        let text = c_string(source.source)?;
        let names = c_strings(source.headers.iter().map(|(name, _)| *name))?;
        let headers = c_strings(source.headers.iter().map(|(_, text)| *text))?;
        let mut program = std::ptr::null_mut();
        // SAFETY: NVRTC copies the texts, which live until it returns.
        let code = unsafe {
            sys::nvrtcCreateProgram(
                &raw mut program,
                text.as_ptr(),
                c"kernels.cu".as_ptr(),
                names.len() as c_int,
                c_pointers(&headers).as_ptr(),
                c_pointers(&names).as_ptr(),
            )
        };
        check_status("nvrtcCreateProgram", code).map(|()| Program(program))
    }

    fn run_compiler(&self, options: &[String]) -> Result<(), DriverError> {
        let options = c_strings(options.iter().map(String::as_str))?;
        let options = c_pointers(&options);
        // SAFETY: the program is whole; the options live until the call returns.
        match unsafe { sys::nvrtcCompileProgram(self.0, options.len() as c_int, options.as_ptr()) } {
            nvrtcResult::NVRTC_SUCCESS => Ok(()),
            code => {
                // SAFETY: the two functions are given what `read` hands them.
                let log = unsafe {
                    self.read_output("nvrtcGetProgramLog", sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)
                };
                let log = log.map(|log| String::from_utf8_lossy(&log).trim_matches(['\0', '\n', ' ']).to_owned());
                let log = log.ok().filter(|log| !log.is_empty()).unwrap_or_else(|| format!("{code:?}"));
                Err(DriverError::Compile { log })
            }
        }
    }

    /// # Safety
    /// `read` fills as many bytes as `size` says.
    unsafe fn read_output(
        &self,
        call: &'static str,
        size: unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult,
        read: unsafe fn(nvrtcProgram, *mut c_char) -> nvrtcResult,
    ) -> Result<Vec<u8>, DriverError> {
        let mut bytes = 0;
        // SAFETY: as the caller promises.
        unsafe {
            check_status(call, size(self.0, &raw mut bytes))?;
            let mut content = vec![0u8; bytes];
            check_status(call, read(self.0, content.as_mut_ptr().cast()))?;
            Ok(content)
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was created, and is destroyed once.
        unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}
