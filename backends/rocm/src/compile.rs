//! Kernels, compiled by hipRTC.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use assay_gpu::{DeviceProperties, DriverError, Source};

use crate::library::{Compiler, Handle};

/// The image of a source for the device.
pub(crate) fn compile_image(
    compiler: &Compiler,
    source: &Source<'_>,
    properties: &DeviceProperties,
) -> Result<Vec<u8>, DriverError> {
    let program = Program::new(compiler, source)?;
    let mut options = vec![format!("--offload-arch={}", properties.architecture), "-std=c++17".into(), "-O3".into()];
    // As NVIDIA's compiler does: products and sums may become one operation.
    options.push("-ffp-contract=fast".into());
    options.extend(source.options.iter().map(|&option| option.to_owned()));
    program.run_compiler(&options)?;
    program.read_output("hiprtcGetCode", compiler.hiprtcGetCodeSize, compiler.hiprtcGetCode)
}

fn check_status(call: &'static str, code: c_int) -> Result<(), DriverError> {
    match code {
        0 => Ok(()),
        _ => Err(DriverError::Call { call, reason: format!("hipRTC error {code}") }),
    }
}

fn c_strings<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, DriverError> {
    let zero = |_| DriverError::Compile { log: "a source, header or option has a zero byte".into() };
    texts.map(|text| CString::new(text).map_err(zero)).collect()
}

fn c_pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

/// A program of hipRTC, destroyed when it is dropped.
struct Program<'a>(&'a Compiler, Handle);

impl<'a> Program<'a> {
    fn new(compiler: &'a Compiler, source: &Source<'_>) -> Result<Program<'a>, DriverError> {
        let text = c_strings(std::iter::once(source.source))?;
        let names = c_strings(source.headers.iter().map(|(name, _)| *name))?;
        let headers = c_strings(source.headers.iter().map(|(_, text)| *text))?;
        let mut program = ptr::null_mut();
        // SAFETY: hipRTC copies the texts, which live until it returns.
        let code = unsafe {
            (compiler.hiprtcCreateProgram)(
                &raw mut program,
                c_pointers(&text)[0],
                c"kernels.cu".as_ptr(),
                names.len() as c_int,
                c_pointers(&headers).as_ptr(),
                c_pointers(&names).as_ptr(),
            )
        };
        check_status("hiprtcCreateProgram", code).map(|()| Program(compiler, program))
    }

    fn run_compiler(&self, options: &[String]) -> Result<(), DriverError> {
        let Program(compiler, program) = self;
        let options = c_strings(options.iter().map(String::as_str))?;
        let options = c_pointers(&options);
        // SAFETY: the program is whole; the options live until the call returns.
        let code = unsafe { (compiler.hiprtcCompileProgram)(*program, options.len() as c_int, options.as_ptr()) };
        if code == 0 {
            return Ok(());
        }
        let log =
            self.read_output("hiprtcGetProgramLog", compiler.hiprtcGetProgramLogSize, compiler.hiprtcGetProgramLog);
        let log = log.map(|log| String::from_utf8_lossy(&log).trim_matches(['\0', '\n', ' ']).to_owned());
        let log = log.ok().filter(|log| !log.is_empty()).unwrap_or_else(|| format!("hipRTC error {code}"));
        Err(DriverError::Compile { log })
    }

    fn read_output(
        &self,
        call: &'static str,
        size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
        read: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, DriverError> {
        let mut bytes = 0;
        // SAFETY: both functions belong to the program's library, and `read` fills as many bytes as `size` says.
        unsafe {
            check_status(call, size(self.1, &raw mut bytes))?;
            let mut content = vec![0u8; bytes];
            check_status(call, read(self.1, content.as_mut_ptr().cast()))?;
            Ok(content)
        }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: it was created, and is destroyed once.
        unsafe { (self.0.hiprtcDestroyProgram)(&raw mut self.1) };
    }
}
