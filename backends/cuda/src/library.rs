//! The three libraries: whether they are there, and whether they have what is called.

use cudarc::{cublaslt, driver, nvrtc};

/// What is called of libcuda.
const DRIVER: [&str; 39] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
];

/// What is called of libnvrtc.
const COMPILER: [&str; 12] = [
    "nvrtcVersion",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetSupportedArchs",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcCompileProgram",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
    "nvrtcGetPTXSize",
    "nvrtcGetPTX",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
];

/// What is called of libcublasLt.
const PRODUCTS: [&str; 13] = [
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatrixLayoutSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmul",
];

/// The function that gives the time between two events: the name in the bindings exists since CUDA 12.8 only.
pub(crate) type Elapsed = unsafe extern "C" fn(*mut f32, driver::sys::CUevent, driver::sys::CUevent) -> u32;

/// Sees that everything is there that will be called. The error is a lower-case fragment that says what is not.
pub(crate) fn load_libraries() -> Result<(), String> {
    // SAFETY: loading a vendor's library runs its initialisation, which these three are made for.
    unsafe {
        if !driver::sys::is_culib_present() {
            return Err("there is no NVIDIA driver: libcuda.so.1 was not found".into());
        }
        require_symbols("libcuda", &DRIVER, |name| driver::sys::culib().get::<unsafe extern "C" fn()>(name).is_ok())?;
        if !nvrtc::sys::is_culib_present() {
            return Err(missing_library("libnvrtc", "nvidia-cuda-nvrtc"));
        }
        require_symbols("libnvrtc", &COMPILER, |name| nvrtc::sys::culib().get::<unsafe extern "C" fn()>(name).is_ok())?;
        if !cublaslt::sys::is_culib_present() {
            return Err(missing_library("libcublasLt", "nvidia-cublas"));
        }
        require_symbols("libcublasLt", &PRODUCTS, |name| {
            cublaslt::sys::culib().get::<unsafe extern "C" fn()>(name).is_ok()
        })
    }
}

fn missing_library(library: &str, package: &str) -> String {
    format!(
        "{library}.so of CUDA 12.4 or later was not found, in LD_LIBRARY_PATH or where the system looks; it comes with \
         the CUDA toolkit and with PyPI's `{package}`"
    )
}

fn require_symbols(library: &str, names: &[&str], found: impl Fn(&[u8]) -> bool) -> Result<(), String> {
    match names.iter().find(|name| !found(name.as_bytes())) {
        None => Ok(()),
        Some(name) => Err(format!("{library} has no `{name}`: CUDA 12.4 or later is needed")),
    }
}

/// The function that tells the time between two events, if libcuda has it.
pub(crate) fn find_elapsed_time() -> Option<Elapsed> {
    // SAFETY: both names have this signature; the library stays loaded.
    unsafe {
        let library = driver::sys::culib();
        let old = library.get::<Elapsed>(b"cuEventElapsedTime").ok();
        old.or_else(|| library.get::<Elapsed>(b"cuEventElapsedTime_v2").ok()).map(|found| *found)
    }
}
