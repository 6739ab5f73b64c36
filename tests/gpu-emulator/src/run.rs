//! A compiled module in this process, and its launches. The structs are those of `device/engine.hpp`.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;

use crate::memory::Extent;

/// Three extents or indices.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Index3 {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

/// The most parameters of a kernel.
const PARAMETERS: usize = 64;

/// A kernel, as its module describes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    call: unsafe extern "C" fn(*mut *mut c_void),
    parameters: u32,
    sizes: [u32; PARAMETERS],
    /// What `__launch_bounds__` allows; 0 where it says nothing.
    pub(crate) threads: u32,
}

impl Kernel {
    /// The size of each parameter in bytes.
    pub(crate) fn sizes(&self) -> &[u32] {
        &self.sizes[..PARAMETERS.min(self.parameters as usize)]
    }
}

#[repr(C)]
struct Launch {
    call: unsafe extern "C" fn(*mut *mut c_void),
    arguments: *mut *mut c_void,
    grid: Index3,
    block: Index3,
    dynamic_shared: u32,
    wave: u32,
    seed: u64,
    device: u64,
    device_bytes: u64,
    shadow: u64,
    extents: *const Extent,
    extent_count: u64,
}

/// What went wrong, as the engine says it.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawFault {
    problem: u32,
    bytes: u32,
    address: u64,
    write: u32,
    block: Index3,
    thread: Index3,
    text: [c_char; 160],
}

/// What went wrong in a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    OutOfBounds,
    Uninitialised,
    Misaligned,
    Race,
    Barrier,
    Trap,
    Signal,
}

#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) problem: Problem,
    pub(crate) bytes: u32,
    pub(crate) address: u64,
    pub(crate) write: bool,
    pub(crate) block: Index3,
    pub(crate) thread: Index3,
    pub(crate) text: String,
}

/// The grid of a launch, and what it needs to know of memory.
pub(crate) struct Grid<'a> {
    pub(crate) grid: Index3,
    pub(crate) block: Index3,
    pub(crate) dynamic_shared: u32,
    pub(crate) wave: u32,
    pub(crate) seed: u64,
    pub(crate) device: u64,
    pub(crate) device_bytes: u64,
    pub(crate) shadow: u64,
    pub(crate) extents: &'a [Extent],
}

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Library {
    handle: *mut c_void,
    run: *mut c_void,
    /// Open as long as the library is: the loader knows libraries by their paths, and this one's is its descriptor.
    _file: File,
}

// SAFETY: the handle is used under the engine's lock only.
unsafe impl Send for Library {}

impl Library {
    /// Loads the code of a module.
    pub(crate) fn load(code: &[u8]) -> Result<Library, String> {
        // SAFETY: the name is a C string; the descriptor is owned by the file from here on.
        let mut file = unsafe {
            let descriptor = libc::memfd_create(c"gpu-emulator-module".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err("memfd_create failed".into());
            }
            File::from_raw_fd(descriptor)
        };
        file.write_all(code).map_err(|error| error.to_string())?;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let path = CString::new(path).map_err(|error| error.to_string())?;
        // SAFETY: the code was made by `compile.rs`; loading it runs nothing but C++'s own initialisation.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(last_error());
        }
        let mut library = Library { handle, run: std::ptr::null_mut(), _file: file };
        library.run = library.symbol("assay_run").ok_or("the module has no engine")?;
        Ok(library)
    }

    fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// The kernel of this name.
    pub(crate) fn kernel(&self, name: &str) -> Option<Kernel> {
        let found = self.symbol(&format!("assay_kernel_{name}"))?;
        // SAFETY: `compile.rs` puts a `Kernel` under each such name.
        Some(unsafe { *found.cast::<Kernel>() })
    }

    /// Runs a launch to its end. `arguments` are values of the kernel's sizes, one after the other.
    pub(crate) fn run(&self, kernel: &Kernel, grid: &Grid<'_>, arguments: &[Vec<u8>]) -> Result<(), Fault> {
        // 16 bytes each, so that every parameter is aligned.
        let mut values: Vec<Vec<u128>> = arguments.iter().map(|bytes| aligned(bytes)).collect();
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
        let launch = Launch {
            call: kernel.call,
            arguments: pointers.as_mut_ptr(),
            grid: grid.grid,
            block: grid.block,
            dynamic_shared: grid.dynamic_shared,
            wave: grid.wave,
            seed: grid.seed,
            device: grid.device,
            device_bytes: grid.device_bytes,
            shadow: grid.shadow,
            extents: grid.extents.as_ptr(),
            extent_count: grid.extents.len() as u64,
        };
        let zero = Index3::default();
        let mut fault =
            RawFault { problem: 0, bytes: 0, address: 0, write: 0, block: zero, thread: zero, text: [0; 160] };
        // SAFETY: the engine's `assay_run` has this signature, and everything that it is given outlives the call.
        let good = unsafe {
            let run: unsafe extern "C" fn(*const Launch, *mut RawFault) -> bool = std::mem::transmute(self.run);
            run(&raw const launch, &raw mut fault)
        };
        if good { Ok(()) } else { Err(told(&fault)) }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and no launch is under way.
        unsafe { libc::dlclose(self.handle) };
    }
}

fn aligned(bytes: &[u8]) -> Vec<u128> {
    let mut words = vec![0u128; bytes.len().div_ceil(16).max(1)];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(16)) {
        let mut sixteen = [0; 16];
        sixteen[..chunk.len()].copy_from_slice(chunk);
        *word = u128::from_ne_bytes(sixteen);
    }
    words
}

fn told(raw: &RawFault) -> Fault {
    let problem = match raw.problem {
        1 => Problem::OutOfBounds,
        2 => Problem::Uninitialised,
        3 => Problem::Misaligned,
        4 => Problem::Race,
        5 => Problem::Barrier,
        6 => Problem::Trap,
        _ => Problem::Signal,
    };
    // SAFETY: the engine ends the text with a zero.
    let text = unsafe { CStr::from_ptr(raw.text.as_ptr()) }.to_string_lossy().into_owned();
    let RawFault { bytes, address, write, block, thread, .. } = *raw;
    Fault { problem, bytes, address, write: write != 0, block, thread, text }
}

fn last_error() -> String {
    // SAFETY: dlerror gives a C string or null.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "dlopen failed".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}
