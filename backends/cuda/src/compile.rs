//! Kernels, compiled by NVRTC, and kept on disk by everything that they depend on.

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};

use assay_gpu::{Architecture, DriverError, Facts};
use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};

/// Bytes of the hash before an image on disk, which tells a whole file from a torn one.
const HASH: usize = 32;

/// What is to be compiled.
pub(crate) struct Source<'a> {
    pub(crate) source: &'a str,
    /// By the names under which they are included.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) options: &'a [&'a str],
}

impl Source<'_> {
    /// The hash of all that the image depends on.
    pub(crate) fn key(&self, facts: &Facts) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut part = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        part("1");
        part(&format!("{} {:?} {} {}", facts.name, facts.architecture, facts.driver, facts.compiler));
        self.options.iter().for_each(|option| part(option));
        part("headers");
        self.headers.iter().for_each(|(name, text)| {
            part(name);
            part(text);
        });
        part(self.source);
        hasher.finalize().to_hex()[..40].to_owned()
    }

    /// The image for the device: from the folder, if it is there and whole, or else compiled, and kept there.
    pub(crate) fn image(&self, facts: &Facts, key: &str, folder: Option<&Path>) -> Result<Vec<u8>, DriverError> {
        let file = folder.map(|folder| folder.join(format!("{key}.image")));
        if let Some(image) = file.as_deref().and_then(kept) {
            return Ok(image);
        }
        let image = self.compile(facts)?;
        if let Some(file) = file {
            keep(&file, &image);
        }
        Ok(image)
    }

    fn compile(&self, facts: &Facts) -> Result<Vec<u8>, DriverError> {
        let program = Program::new(self)?;
        let (target, binary) = target(&facts.architecture)?;
        let mut options = vec![target, "--std=c++17".to_owned(), "--device-as-default-execution-space".to_owned()];
        options.extend(self.options.iter().map(|&option| option.to_owned()));
        program.compile(&options)?;
        // SAFETY: the four functions are given what `read` hands them.
        unsafe {
            if binary {
                program.read("nvrtcGetCUBIN", sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)
            } else {
                program.read("nvrtcGetPTX", sys::nvrtcGetPTXSize, sys::nvrtcGetPTX)
            }
        }
    }
}

/// The image in a file, if its hash says that it is whole.
fn kept(file: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let (hash, image) = bytes.split_at_checked(HASH)?;
    (blake3::hash(image).as_bytes() == hash).then(|| image.to_vec())
}

/// Keeps an image. Where that fails, the next process compiles again.
fn keep(file: &Path, image: &[u8]) {
    let mut bytes = blake3::hash(image).as_bytes().to_vec();
    bytes.extend(image);
    let own = PathBuf::from(format!("{}.{}", file.display(), std::process::id()));
    let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
    // Written elsewhere and renamed, so that no other process reads half of it.
    if folder.is_ok() && std::fs::write(&own, bytes).is_ok() && std::fs::rename(&own, file).is_err() {
        let _ = std::fs::remove_file(&own);
    }
}

/// The option for an architecture, and whether the compiler gives code for that very device. Where it is older than the
/// device, it gives PTX for the newest that it knows, and the driver does the rest.
fn target(architecture: &Architecture) -> Result<(String, bool), DriverError> {
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
        check("nvrtcGetNumSupportedArchs", sys::nvrtcGetNumSupportedArchs(&raw mut count))?;
        known.resize(usize::try_from(count).unwrap_or(0), 0);
        check("nvrtcGetSupportedArchs", sys::nvrtcGetSupportedArchs(known.as_mut_ptr()))?;
    }
    if known.contains(&own) {
        return Ok((format!("--gpu-architecture=sm_{own}"), true));
    }
    match known.into_iter().filter(|&other| other < own).max() {
        Some(other) => Ok((format!("--gpu-architecture=compute_{other}"), false)),
        None => Err(DriverError::Call {
            call: "nvrtcCompileProgram",
            reason: format!("the compiler makes no code for compute capability {major}.{minor}"),
        }),
    }
}

fn check(call: &'static str, code: nvrtcResult) -> Result<(), DriverError> {
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

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
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
                pointers(&headers).as_ptr(),
                pointers(&names).as_ptr(),
            )
        };
        check("nvrtcCreateProgram", code).map(|()| Program(program))
    }

    fn compile(&self, options: &[String]) -> Result<(), DriverError> {
        let options = c_strings(options.iter().map(String::as_str))?;
        let options = pointers(&options);
        // SAFETY: the program is whole; the options live until the call returns.
        match unsafe { sys::nvrtcCompileProgram(self.0, options.len() as c_int, options.as_ptr()) } {
            nvrtcResult::NVRTC_SUCCESS => Ok(()),
            code => {
                // SAFETY: the two functions are given what `read` hands them.
                let log =
                    unsafe { self.read("nvrtcGetProgramLog", sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog) };
                let log = log.map(|log| String::from_utf8_lossy(&log).trim_matches(['\0', '\n', ' ']).to_owned());
                let log = log.ok().filter(|log| !log.is_empty()).unwrap_or_else(|| format!("{code:?}"));
                Err(DriverError::Compile { log })
            }
        }
    }

    /// # Safety
    /// `read` fills as many bytes as `size` says.
    unsafe fn read(
        &self,
        call: &'static str,
        size: unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult,
        read: unsafe fn(nvrtcProgram, *mut c_char) -> nvrtcResult,
    ) -> Result<Vec<u8>, DriverError> {
        let mut bytes = 0;
        // SAFETY: as the caller promises.
        unsafe {
            check(call, size(self.0, &raw mut bytes))?;
            let mut content = vec![0u8; bytes];
            check(call, read(self.0, content.as_mut_ptr().cast()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("assay-cuda-images-{}", std::process::id()));
        let file = folder.join("deep").join("a.image");
        keep(&file, b"code");
        assert_eq!(kept(&file).as_deref(), Some(&b"code"[..]));
        let mut torn = std::fs::read(&file).unwrap();
        torn.pop();
        std::fs::write(&file, torn).unwrap();
        assert_eq!(kept(&file), None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_key_depends_on_every_part() {
        let facts = Facts {
            name: "a".into(),
            architecture: Architecture::Cuda(9, 0),
            driver: "CUDA 13.0".into(),
            compiler: "NVRTC 13.0".into(),
            wave: 32,
            multiprocessors: 1,
            shared: 1,
            memory: 1,
        };
        let base = Source { source: "a", headers: &[("h", "b")], options: &["-DX"] };
        let newer = Facts { compiler: "NVRTC 13.1".into(), ..facts.clone() };
        let keys = [
            base.key(&facts),
            base.key(&newer),
            Source { source: "b", ..base }.key(&facts),
            Source { headers: &[("h", "c")], ..base }.key(&facts),
            Source { headers: &[], ..base }.key(&facts),
            Source { options: &["-DY"], ..base }.key(&facts),
        ];
        let different: std::collections::BTreeSet<&String> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
    }
}
