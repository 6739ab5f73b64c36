//! The driver's error codes, in the classes that a run tells apart.

use std::ffi::CStr;

use assay_gpu::DriverError;
use cudarc::cublaslt::sys::cublasStatus_t;
use cudarc::driver::sys::{self, CUresult};

/// The code's name and text, as the driver gives them.
pub(crate) fn error_text(code: CUresult) -> String {
    let text = |get: unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult| {
        let mut text = std::ptr::null();
        // SAFETY: the driver writes a pointer to a text of its own, or reports that it knows none.
        unsafe {
            let known = get(code, &raw mut text) == CUresult::CUDA_SUCCESS && !text.is_null();
            known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    match (text(sys::cuGetErrorName), text(sys::cuGetErrorString)) {
        (Some(name), Some(text)) => format!("{name}: {text}"),
        _ => format!("CUDA error {}", code as u32),
    }
}

/// The result of a call, by its name. Out of memory is a matter of who knows the sizes.
pub(crate) fn check_status(call: &'static str, code: CUresult) -> Result<(), DriverError> {
    use CUresult as C;
    let said = || format!("{call}: {}", error_text(code));
    match code {
        C::CUDA_SUCCESS => Ok(()),
        C::CUDA_ERROR_ILLEGAL_ADDRESS
        | C::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | C::CUDA_ERROR_MISALIGNED_ADDRESS
        | C::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | C::CUDA_ERROR_INVALID_PC
        | C::CUDA_ERROR_HARDWARE_STACK_ERROR
        | C::CUDA_ERROR_ASSERT
        | C::CUDA_ERROR_LAUNCH_FAILED
        | C::CUDA_ERROR_LAUNCH_TIMEOUT => Err(DriverError::Fault(said())),
        C::CUDA_ERROR_DEVICE_UNAVAILABLE
        | C::CUDA_ERROR_DEINITIALIZED
        | C::CUDA_ERROR_NO_DEVICE
        | C::CUDA_ERROR_ECC_UNCORRECTABLE
        | C::CUDA_ERROR_NVLINK_UNCORRECTABLE
        | C::CUDA_ERROR_CONTEXT_IS_DESTROYED => Err(DriverError::Lost(said())),
        C::CUDA_ERROR_OUT_OF_MEMORY => Err(DriverError::OutOfMemory { asked: 0, free: 0, total: 0 }),
        _ => Err(DriverError::Call { call, reason: error_text(code) }),
    }
}

/// The result of a call of cuBLASLt. Earlier errors of the device are reported by the driver alone.
pub(crate) fn check_product(call: &'static str, code: cublasStatus_t) -> Result<(), DriverError> {
    match code {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        _ => Err(DriverError::Call { call, reason: format!("{code:?}") }),
    }
}
